package sim

import (
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// TestInterruptedFirstRun: a pool's first run is told to end, or killed and given back, before it
// announced a version. The next one knows from the ledger that there is none, and does not wait for
// a list of versions to show one: it would hold a turn of those that may take a donor that long.
func TestInterruptedFirstRun(t *testing.T) {
	golden := &proc{logging: true}
	w := fresh(1)
	w.startUpdate(golden, options("a-0"))
	w.wait()
	tried := 0
	for _, s := range golden.log {
		if s.step == "return" {
			break // the build is announced with what gives the donor back
		} else if !s.call.write || s.step == "lock" {
			continue
		}
		for _, kind := range []worlds.Fault{worlds.Interrupted, worlds.KillBefore, worlds.KillAfter} {
			w := fresh(1)
			w.update(options("a-0"), fault{kind: kind, at: s.at})
			w.restore()
			if w.version(kamino.VersionName(w.now)) != nil {
				continue
			}
			tried++
			w.advance(w.now.Add(10 * time.Minute))
			waited := ""
			p := &proc{tune: heard(func(ev kamino.Event) {
				if ev.Kind == kamino.EventWaiting && strings.Contains(ev.Message, "none is listed") {
					waited = ev.Message
				}
			})}
			w.startUpdate(p, options("a-0"))
			w.wait()
			if p.err != nil || waited != "" {
				t.Errorf("%s at %s: the next run ended %v, and waited for %s", kind, s, p.err, waited)
			}
			if w.standing(poolA).Ledger.Empty {
				t.Errorf("%s at %s: a version was made, and the ledger knows of none", kind, s)
			}
			w.sound(t)
		}
	}
	if tried < 20 {
		t.Errorf("%d places were tried", tried)
	}
}
