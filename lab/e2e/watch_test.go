package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/crash"
	"kamino.dev/kamino/lab/labtest"
	"kamino.dev/kamino/lab/nodes"
)

// watchers is a cluster whose controller follows the test's clock.
type watchers struct {
	*kept
	clock *labtest.Clock
}

// TestControllerWatch: a version whose new nodes do not become Ready is withdrawn by the controller
// that watches them, also of a prototype that is suspended; the version before it is next. The
// first version of a pool has none before it, so it stays, which another process tells, too.
// Status, event, notification and metrics tell either way.
func TestControllerWatch(t *testing.T) {
	t.Parallel()
	w := &watchers{clock: &labtest.Clock{}}
	w.kept = newKept(t, func(o *lab.Options) { o.Clock = w.clock })
	w.env, w.binary = w.clock.Serve(t), filepath.Join(t.TempDir(), "kamino")
	if err := crash.BuildKamino(t.Context(), "../..", w.binary, 50*time.Millisecond, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	heard, address := newHeard(t), freeAddress(t)
	p := w.pool("blue", 3)
	// A leader that is starved for some seconds must not end the test.
	begin := func() *process {
		return w.start("--notify-file", heard.file, "--metrics-address", address, "--lease-time", "1m")
	}
	former := begin()
	const spec = `pool: blue, maxImageAge: 24h, watch: 2h, prove: {mode: None, bootBudget: 2m}`
	w.apply("blue", "{"+spec+"}")
	first := w.awaitReason("blue", v1alpha1.ReasonUpToDate).Status.Image
	shrink := w.grow(p, "the first version is found bad", func(s v1alpha1.NodePrototypeStatus) bool {
		ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		return s.Next != nil && s.Next.Version == first && ready.Reason == v1alpha1.ReasonUnfit && strings.Contains(ready.Message, "kamino rollback --pool blue --to original")
	})
	shrink()
	await(t, "the promotion and the bad nodes are told, and noted as told: what is on its way when a process ends, the next one repeats", func() string {
		told := w.get("blue").Annotations[v1alpha1.AnnotationTold]
		if len(strings.Fields(told)) < 2 {
			return told
		}
		return ""
	})
	former.endsInOrder(t, heard)
	w.patch("blue", `{"status":null}`, "status")
	begin()
	w.awaitReason("blue", v1alpha1.ReasonUnfit) // as the ledger tells

	w.clock.Advance(25 * time.Hour) // its successor is of another day
	var second string
	labtest.Await(t, 2*time.Minute, "another version is next", func() string {
		s := w.get("blue").Status
		if s.Next == nil || s.Next.Version == first || s.Run != nil {
			return fmt.Sprintf("%+v", s)
		}
		second = s.Next.Version
		return ""
	})
	w.apply("blue", "{"+spec+", suspend: true}") // else a third would be made
	w.grow(p, "version "+second+" is withdrawn", func(s v1alpha1.NodePrototypeStatus) bool {
		return s.Next != nil && s.Next.Version == first && slices.ContainsFunc(s.Withdrawn, func(v v1alpha1.Withdrawn) bool {
			return v.Version == second && strings.Contains(v.Reason, "new nodes of pool blue were not Ready within 2m0s")
		})
	})
	w.events(map[string]int{"Normal KaminoPromoted blue": 2, "Warning KaminoProofFailed blue": 1, "Warning KaminoWithdrawn blue": 1})
	for _, words := range [][]string{{"new nodes of pool blue boot from version " + first + " and are not Ready: ", "kamino rollback --pool blue --to original"},
		{"version " + second + " of pool blue was withdrawn: ", "new nodes boot from " + first}} {
		await(t, "it is told of "+words[0], func() string {
			texts := heard.all()
			if n := len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return !strings.Contains(s, words[0]) || !strings.Contains(s, words[1]) })); n != 1 {
				return fmt.Sprintf("%d of %q", n, texts)
			}
			return ""
		})
	}
	token := w.administrator()
	for _, line := range []string{`kamino_withdrawals_total{pool="blue"} 1`, `kamino_proofs_total{outcome="failed",pool="blue"} 1`} {
		await(t, "there is the metric "+line, func() string {
			if text := metricsAt(t, address, token); !strings.Contains(text, line+"\n") {
				return text
			}
			return ""
		})
	}
}

// grow gives a pool three nodes more, whose kubelets never start, and lets time pass until its
// status is as wanted. Of the minute between two looks of the watch the last seconds pass by
// themselves: it believes leases only that are younger than a minute.
func (w *watchers) grow(p *pool, what string, is func(v1alpha1.NodePrototypeStatus) bool) (shrink func()) {
	w.Helper()
	elders := p.computers()
	w.lab.Nodes.Behave(func(in emulator.Instance) nodes.Behaviour {
		return nodes.Behaviour{NoKubelet: !slices.Contains(elders, strings.ToLower(in.ComputerName))}
	})
	sku, _ := w.lab.Cloud.Document(p.id)["sku"].(map[string]any)
	p.arm("PATCH", p.id, fmt.Sprintf(`{"sku":{"name":%q,"capacity":6}}`, sku["name"]))
	began := w.clock.Now()
	labtest.Await(w, 5*time.Minute, what, func() string {
		s, now, beat := w.get(p.name).Status, w.clock.Now(), p.heartbeat(elders[0])
		if is(s) {
			return ""
		}
		if w.clock.Asleep(50*time.Second) && now.Sub(beat) < 3*time.Minute {
			w.clock.Advance(50 * time.Second)
		}
		return fmt.Sprintf("%s later, %s after a heartbeat: %+v", now.Sub(began), now.Sub(beat), s)
	})
	return func() {
		for _, in := range w.lab.Cloud.Instances() {
			if strings.EqualFold(in.PoolID, p.id) && !slices.Contains(elders, strings.ToLower(in.ComputerName)) {
				p.arm("DELETE", in.ID, "")
			}
		}
		w.lab.Nodes.Behave(nil)
	}
}

// heartbeat is when a node was heard of last.
func (p *pool) heartbeat(name string) (at time.Time) {
	p.Helper()
	for _, c := range p.get(name).Status.Conditions {
		if c.LastHeartbeatTime.After(at) {
			at = c.LastHeartbeatTime.Time
		}
	}
	return at
}

// administrator is a token that may see everything.
func (k *kept) administrator() string {
	k.Helper()
	_, err := k.lab.Client.RbacV1().ClusterRoleBindings().Create(k.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "administrator"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: kamino.SystemNamespace}}}, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	token, err := k.lab.Client.CoreV1().ServiceAccounts(kamino.SystemNamespace).CreateToken(k.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	return token.Status.Token
}

func metricsAt(t *testing.T, address, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
