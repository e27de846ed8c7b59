package kube

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

type notes = map[string]string

var foreignTaint = corev1.Taint{Key: "person/maintenance", Value: "x", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: noon}}

func ourTaint(run string) corev1.Taint {
	return corev1.Taint{Key: kamino.TaintBlock, Value: run, Effect: corev1.TaintEffectNoSchedule}
}

func node(annotations notes, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7", Annotations: annotations},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: taints}, // somebody cordoned it; never our business
	}
}

func markOf(run string, change func(*kamino.Mark)) kamino.Mark {
	m := kamino.Mark{Format: kamino.MarkFormat, Run: run, Since: noon}
	if change != nil {
		change(&m)
	}
	return m
}

func text(m kamino.Mark) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestMark(t *testing.T) {
	str := func(s string) *string { return &s }
	plain := markOf("r1", nil)
	block := markOf("r1", func(m *kamino.Mark) { m.Block = true })
	hadFalse := markOf("r1", func(m *kamino.Mark) { m.Protection = str("false") })
	hadTrue := markOf("r1", func(m *kamino.Mark) { m.Protection = str("true") })
	hadEmpty := markOf("r1", func(m *kamino.Mark) { m.Protection = str("") })
	const run, protect, receipt = kamino.AnnotationRun, kamino.AnnotationProtect, kamino.AnnotationReceipt
	for name, tt := range map[string]struct {
		before, want *corev1.Node
		mark         *kamino.Mark
	}{
		"first annotation": {node(nil), node(notes{run: text(plain), protect: "true"}), &plain},
		"beside others": {node(notes{"a/b~c": "d"}, foreignTaint),
			node(notes{"a/b~c": "d", run: text(plain), protect: "true"}, foreignTaint), &plain},
		"over a former protection": {node(notes{protect: "false"}), node(notes{run: text(hadFalse), protect: "true"}), &hadFalse},
		"block":                    {node(notes{run: text(plain), protect: "true"}), node(notes{run: text(block), protect: "true"}, ourTaint("r1")), &block},
		"block beside others": {node(notes{run: text(plain), protect: "true"}, foreignTaint),
			node(notes{run: text(block), protect: "true"}, foreignTaint, ourTaint("r1")), &block},
		"block over a left taint": {node(nil, ourTaint("r0"), foreignTaint),
			node(notes{run: text(block), protect: "true"}, ourTaint("r1"), foreignTaint), &block},
		"block again, taken off by somebody": {node(notes{run: text(block), protect: "true"}),
			node(notes{run: text(block), protect: "true"}, ourTaint("r1")), &block},
		"unblock": {node(notes{run: text(block), protect: "true"}, foreignTaint, ourTaint("r1")),
			node(notes{run: text(plain), protect: "true"}, foreignTaint), &plain},
		"protection changed by somebody stays": {node(notes{run: text(plain), protect: "false"}),
			node(notes{run: text(block), protect: "false"}, ourTaint("r1")), &block},
		"protection removed by somebody stays": {node(notes{run: text(plain)}), node(notes{run: text(block)}, ourTaint("r1")), &block},

		"take off": {node(notes{run: text(block), protect: "true", receipt: "{}", kamino.AnnotationSealFailure: "{}", "a": "b"}, ourTaint("r1"), foreignTaint),
			node(notes{"a": "b"}, foreignTaint), nil},
		"give false back": {node(notes{run: text(hadFalse), protect: "true"}), node(notes{protect: "false"}), nil},
		"give true back":  {node(notes{run: text(hadTrue), protect: "true"}), node(notes{protect: "true"}), nil},
		"give empty back": {node(notes{run: text(hadEmpty), protect: "true"}), node(notes{protect: ""}), nil},
		"somebody's later protection survives": {node(notes{run: text(hadTrue), protect: "no"}),
			node(notes{protect: "no"}), nil},
		"somebody's removal survives": {node(notes{run: text(hadFalse), "a": "b"}), node(notes{"a": "b"}), nil},
		"protection without our mark": {node(notes{protect: "true"}, ourTaint("r0"), foreignTaint),
			node(notes{protect: "true"}, foreignTaint), nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.before)
			if err := NewForClient(client, Options{}).mark(t.Context(), NodeOf(tt.before), tt.mark); err != nil {
				t.Fatal(err)
			}
			if n := len(client.Actions()); n != 1 {
				t.Errorf("%d requests", n)
			}
			checkNode(t, client, tt.want)
		})
	}
}

func checkNode(t *testing.T, client *fake.Clientset, want *corev1.Node) {
	t.Helper()
	got, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.Taints) == 0 {
		got.Spec.Taints = nil
	}
	got.ManagedFields = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMarkNothingToDo(t *testing.T) {
	m := markOf("r1", func(m *kamino.Mark) { m.Block = true })
	for name, tt := range map[string]struct {
		before *corev1.Node
		mark   *kamino.Mark
	}{
		"marked already":   {node(notes{kamino.AnnotationRun: text(m), kamino.AnnotationProtect: "true"}, ourTaint("r1")), &m},
		"unmarked already": {node(notes{"a": "b"}, foreignTaint), nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.before)
			if err := NewForClient(client, Options{}).mark(t.Context(), NodeOf(tt.before), tt.mark); err != nil || len(client.Actions()) > 0 {
				t.Errorf("%s: %v, %v", name, err, client.Actions())
			}
		})
	}
}

// A kubelet's status report between read and write is no reason to give up.
func TestMarkTriesAgainWhenTheNodeChanged(t *testing.T) {
	now := node(notes{"new": "one"}, foreignTaint)
	now.ResourceVersion = "8"
	client := fake.NewClientset(now)
	refuseStale(client)
	m := markOf("r1", func(m *kamino.Mark) { m.Block = true })
	if err := NewForClient(client, Options{}).mark(t.Context(), NodeOf(node(nil)), &m); err != nil {
		t.Fatal(err)
	}
	want := node(notes{"new": "one", kamino.AnnotationRun: text(m), kamino.AnnotationProtect: "true"}, foreignTaint, ourTaint("r1"))
	want.ResourceVersion = "8"
	checkNode(t, client, want)
}

// refuseStale answers patches with a failing test as the API server does: 422.
func refuseStale(client *fake.Clientset) {
	react := ktesting.ObjectReaction(client.Tracker())
	client.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
		_, obj, err := react(a)
		if err != nil {
			err = apierrors.NewGenericServerResponse(422, "patch", a.GetResource().GroupResource(), "n1", err.Error(), 0, false)
		}
		return true, obj, err
	})
}

// A process that was frozen in its patch leaves the node alone: it may have
// lost the run.
func TestMarkDoesNotTryAgainAfterAFreeze(t *testing.T) {
	now := node(notes{"new": "one"}, foreignTaint)
	now.ResourceVersion = "8"
	client := fake.NewClientset(now)
	refuseStale(client)
	clock := &fixedClock{now: noon}
	client.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
		clock.now = clock.now.Add(markTime + time.Second)
		return false, nil, nil
	})
	m := markOf("r1", nil)
	if err := NewForClient(client, Options{Clock: clock}).mark(t.Context(), NodeOf(node(nil)), &m); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	checkNode(t, client, now)
}

// TestSignBootsOnce: a write that was refused for a change is repeated in the boot that was
// examined only.
func TestSignBootsOnce(t *testing.T) {
	for boot, signs := range map[string]bool{"b1": true, "b2": false} {
		now, examined := node(notes{"new": "one"}), node(nil)
		now.ResourceVersion, now.Status.NodeInfo.BootID, examined.Status.NodeInfo.BootID = "8", boot, "b1"
		client := fake.NewClientset(now)
		refuseStale(client)
		err := NewForClient(client, Options{}).Sign(t.Context(), NodeOf(examined), noon)
		got, gerr := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if gerr != nil {
			t.Fatal(gerr)
		}
		if signed := got.Labels[kamino.LabelPatched] != ""; signed != signs || signs != (err == nil) || !signs && !errors.Is(err, kamino.ErrConflict) {
			t.Errorf("in boot %s: signed %t, %v", boot, signed, err)
		}
	}
}

func TestMarkLeavesForeignNodesAlone(t *testing.T) {
	m, other := markOf("r1", nil), markOf("r2", nil)
	newer := markOf("r1", func(m *kamino.Mark) { m.Format = kamino.MarkFormat + 1 })
	replaced := node(nil)
	replaced.UID, replaced.ResourceVersion = "u2", "9"
	remarked := node(notes{kamino.AnnotationRun: text(other)})
	remarked.ResourceVersion = "9"
	protected := node(notes{kamino.AnnotationProtect: "true"}) // by a person, whose wish the mark must remember
	protected.ResourceVersion = "9"
	for name, tt := range map[string]struct {
		read, stored *corev1.Node
		mark         *kamino.Mark
		conflict     bool
	}{
		"replaced":                {node(nil), replaced, &m, true},
		"marked by another run":   {node(notes{kamino.AnnotationRun: text(other)}), node(notes{kamino.AnnotationRun: text(other)}), &m, true},
		"marked meanwhile":        {node(nil), remarked, &m, true},
		"protected meanwhile":     {node(nil), protected, &m, true},
		"taken over meanwhile":    {node(notes{kamino.AnnotationRun: text(m)}), remarked, nil, true},
		"marked by a newer one":   {node(notes{kamino.AnnotationRun: text(newer)}), node(notes{kamino.AnnotationRun: text(newer)}), nil, false},
		"annotation is not ours":  {node(notes{kamino.AnnotationRun: "?"}), node(notes{kamino.AnnotationRun: "?"}), &m, false},
		"annotation is not ours2": {node(notes{kamino.AnnotationRun: "?"}), node(notes{kamino.AnnotationRun: "?"}), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.stored.DeepCopy())
			refuseStale(client)
			err := NewForClient(client, Options{}).mark(t.Context(), NodeOf(tt.read), tt.mark)
			if err == nil || errors.Is(err, kamino.ErrConflict) != tt.conflict {
				t.Errorf("got %v", err)
			}
			checkNode(t, client, tt.stored)
		})
	}
}

// Refused for what is written, not for what changed: said once, with the API's words.
func TestMarkInvalid(t *testing.T) {
	n := node(nil)
	client := fake.NewClientset(n)
	client.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "n1", nil)
	})
	m := markOf("r1", nil)
	err := NewForClient(client, Options{}).mark(t.Context(), NodeOf(n), &m)
	if !apierrors.IsInvalid(err) || len(client.Actions()) != 2 {
		t.Errorf("got %v after %d requests", err, len(client.Actions()))
	}
}

// TestBlockOfAnyEffect: the block's key counts as a mark whatever its effect, so it is taken off
// whatever its effect, however often it is there, and nothing else is.
func TestBlockOfAnyEffect(t *testing.T) {
	other := corev1.Taint{Key: "example.com/x", Effect: corev1.TaintEffectNoSchedule}
	block := func(e corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: kamino.TaintBlock, Value: "x", Effect: e}
	}
	for _, taints := range [][]corev1.Taint{
		{block(corev1.TaintEffectNoExecute), other},
		{other, block(corev1.TaintEffectPreferNoSchedule)},
		{block(corev1.TaintEffectNoExecute), other, block(corev1.TaintEffectNoSchedule), block(corev1.TaintEffectPreferNoSchedule)},
	} {
		c := NewForClient(fake.NewClientset(node(nil, taints...)), Options{})
		n, err := c.Node(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.mark(t.Context(), n, nil); err != nil {
			t.Fatal(err)
		}
		if n, _ = c.Node(t.Context(), "n1"); n.Tainted(kamino.TaintBlock) || len(n.Taints) != 1 {
			t.Errorf("%v: after everything was taken off there are %v", taints, n.Taints)
		}
	}
}
