package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// TestRefusedBeforeDrain: what the inventory refuses ends the run with no pod evicted and nothing
// left, and the message is the agent's.
func TestRefusedBeforeDrain(t *testing.T) {
	w := aged(1)
	w.machineOf(w.nodes["a-0"]).Fate = worlds.DiskIsRefused
	p := w.update(options("a-0"))
	var step *kamino.StepError
	if !errors.As(p.err, &step) || step.Step != "inventory" || !step.Refused || kamino.Hint(p.err) == "" || !strings.Contains(p.err.Error(), "nothing explains") {
		t.Fatalf("got %v, hint %q", p.err, kamino.Hint(p.err))
	}
	for _, pod := range w.pods {
		if pod.ending {
			t.Errorf("pod %s was evicted", pod)
		}
	}
	n := w.nodes["a-0"]
	if n.Annotations[kamino.AnnotationRun] != "" || n.Tainted(kamino.TaintBlock) || len(w.surveys)+len(w.sealPods) > 0 {
		t.Errorf("the donor: %v, %v; pods %v %v", n.Annotations, n.Taints, w.surveys, w.sealPods)
	}
	w.sound(t)
}

// TestRefusedForAnother: what the inventory refused is looked at again where another process goes
// on with the run, and the disk is mended since.
func TestRefusedForAnother(t *testing.T) {
	for at := 1; ; at++ {
		w := aged(1)
		m := w.machineOf(w.nodes["a-0"])
		m.Fate = worlds.DiskIsRefused
		if p := w.update(options("a-0"), fault{kind: worlds.KillAfter, at: at}); !p.crashed {
			return
		}
		m.Fate = worlds.Healthy
		if p := w.update(options("a-0")); p.err != nil {
			t.Errorf("killed after call %d: %v", at, p.err)
		}
		w.sound(t)
	}
}

// TestInventoryFailed: an image that cannot be pulled now may come right by itself, and is no
// refusal.
func TestInventoryFailed(t *testing.T) {
	w := aged(1)
	w.machineOf(w.nodes["a-0"]).Fate = worlds.NoImage
	p := w.update(options("a-0"))
	var step *kamino.StepError
	if !errors.As(p.err, &step) || step.Step != "inventory" || step.Refused {
		t.Errorf("got %v", p.err)
	}
	w.sound(t)
}

// TestNoRoomForInventory: a node that is full is sealed all the same, after a look that is made in
// the seal.
func TestNoRoomForInventory(t *testing.T) {
	w := aged(1)
	w.machineOf(w.nodes["a-0"]).Fate = worlds.NoRoom
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	if len(w.surveys) > 0 {
		t.Errorf("left: %v", w.surveys)
	}
	w.sound(t)
}

// TestInventoryBesideSettling: the look begins with the time that cluster-autoscaler is given, not
// after it.
func TestInventoryBesideSettling(t *testing.T) {
	w := aged(1)
	w.tracing = true
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	var at []time.Time
	for _, what := range []string{"creates the inventory's pod", "-run1 ended: succeeded", "is evicted"} {
		i := slices.IndexFunc(w.trace, func(line string) bool { return strings.Contains(line, what) })
		if i < 0 {
			t.Fatalf("nothing %s in\n%s", what, strings.Join(w.trace, "\n"))
		}
		when, err := time.Parse("02T15:04:05.000", strings.Fields(w.trace[i])[0])
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, when)
	}
	if asked, drained := at[1].Sub(at[0]), at[2].Sub(at[1]); asked != surveyTime || drained < 0 || drained > 2*engine.LongestPoll {
		t.Errorf("the inventory took %s, and the drain began %s later", asked, drained)
	}
}
