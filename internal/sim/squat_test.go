package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

const rivalSquats = "somebody else's pods have the names of the run's"

// TestSquat: a pod under a name of the run's is its own only on its node and with its nonce. Where
// somebody else's is there, even one that succeeded, the run ends at once, names the pod, and gives
// its donor back; the next run is not disturbed.
func TestSquat(t *testing.T) {
	log, _ := golden(t, aged)
	for i, s := range log {
		if s.call.method != "Survey" && s.call.method != "Seal" {
			continue
		}
		t.Run(fmt.Sprint(s.call.method, i), func(t *testing.T) {
			w := aged(1)
			began := w.now
			p := w.update(goldenOptions(), fault{kind: worlds.RivalActs, at: s.at, rival: rivalNamed(rivalSquats)})
			if p.err == nil || !strings.Contains(p.err.Error(), "is not this run's") || !strings.Contains(p.err.Error(), worlds.NoNode) {
				t.Errorf("the run ended with %v", p.err)
			}
			if took := w.now.Sub(began); took > 20*time.Minute {
				t.Errorf("it took %s", took)
			}
			if wrong := w.over(); wrong != "" {
				t.Error(wrong)
			}
			if again := w.update(goldenOptions()); again.err != nil {
				t.Error(again.err)
			}
			w.audit.settled()
			w.sound(t)
		})
	}
}

// TestSquatProbe: a Job under the name of the operator's probe that somebody else made, and that
// succeeds, acquits no image; it stays where it is.
func TestSquatProbe(t *testing.T) {
	w := aged(1)
	w.watchNext()
	o := proving()
	o.Proof.Probe = []byte("a Job")
	p := &proc{}
	p.tune = heard(func(ev kamino.Event) {
		if w.probe == "" && ev.Kind == kamino.EventStarted && ev.Step == "launch" {
			w.Squat()
		}
	})
	w.startUpdate(p, o)
	w.wait()
	if p.err == nil || !strings.Contains(p.err.Error(), "is not this run's") || w.probeNonce != foreignNonce || w.probes != 0 {
		t.Errorf("%v; probe %q of %q, %d were started", p.err, w.probe, w.probeNonce, w.probes)
	}
	w.sound(t)
}

// TestSquatPatch is TestSquat for the pods of a patch, which goes on with another node.
func TestSquatPatch(t *testing.T) {
	w := aged(1)
	first := w.startPatch(patchOptions())
	first.logging = true
	w.wait()
	if first.err != nil {
		t.Fatal(first.err)
	}
	asked := 0
	for _, s := range first.log {
		if s.call.method != "Patch" {
			continue
		}
		asked++
		t.Run(s.call.subject[:5], func(t *testing.T) {
			w := aged(1)
			p := w.patched(patchOptions(), fault{kind: worlds.RivalActs, at: s.at, rival: rivalNamed(rivalSquats)})
			if len(p.out.Nodes) != 2 || !strings.Contains(p.out.Nodes[0].Error, "is not this run's") || p.out.Nodes[1].Signed == "" {
				t.Errorf("%+v, %v", p.out, p.err)
			}
			w.audit.settled()
			w.sound(t)
		})
	}
	if asked < 3 {
		t.Errorf("%d pods were asked for", asked)
	}
}
