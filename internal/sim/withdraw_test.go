package sim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// byReference are the worlds of pools that refer to a version, and to the definition.
func byReference() map[string]func(uint64) *world {
	return map[string]func(uint64) *world{"by version": aged, "pointing": pointing}
}

// TestWithdrawnStaysOut: what was seen when a withdrawal or a rollback began is marked when that
// ended well, whatever a list did not show meanwhile, and no night after makes nodes of it.
func TestWithdrawnStaysOut(t *testing.T) {
	kinds := []worlds.Fault{worlds.KillBefore, worlds.KillAfter, worlds.Empty, worlds.StaleRead, worlds.ServerError,
		worlds.Forbidden, worlds.LostReply, worlds.Absent, worlds.FalseSuccess, worlds.OperationFailed}
	withdrawn := func(version string) func(context.Context, *engine.Engine) error {
		return func(ctx context.Context, e *engine.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: version, Reason: "leaks a key"})
			return err
		}
	}
	for _, tt := range []struct {
		what, bad, want string
		do              func(context.Context, *engine.Engine) error
	}{
		{"withdraw the present one", "2026.03.09", "2026.03.05", withdrawn("2026.03.09")},
		{"withdraw one that waits", "2026.03.19", "2026.03.09", withdrawn("2026.03.19")},
		{"rollback", "2026.03.09", "2026.03.05", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
			return err
		}},
	} {
		for reference, begin := range byReference() {
			play := func(faults ...fault) (*world, *proc) {
				w, p := begin(1), &proc{logging: true, faults: faults}
				if tt.bad == "2026.03.19" {
					w.waits(tt.bad)
				}
				w.spawn(p, func(ctx context.Context) { p.err = tt.do(ctx, p.engine()) })
				w.wait()
				return w, p
			}
			_, log := play()
			for _, s := range log.log {
				for _, kind := range kinds {
					if !kind.Fits(s.call.is()) || s.step == "" {
						continue
					}
					w, p := play(fault{kind: kind, at: s.at})
					w.advance(w.now.Add(time.Minute))
					began := p.err == nil && !p.crashed || w.version(tt.bad).Tags[kamino.TagBad] != ""
					for range 2 {
						w.advance(w.now.Add(24 * time.Hour))
						w.auto(autoOptions())
					}
					w.advance(w.now.Add(time.Minute))
					if got := birth(w); began && got != tt.want {
						t.Errorf("%s, %s, %s at %s: it ended %v; two nights after, nodes boot from %s, want %s; %v", reference, tt.what, kind, s, p.err, got, tt.want, w.version(tt.bad).Tags)
					}
				}
			}
		}
	}
}

// TestWithdrawnAndAway: a version that stays away from lists while it is withdrawn is told, and
// distrusted when it is back.
func TestWithdrawnAndAway(t *testing.T) {
	for reference, begin := range byReference() {
		w := begin(1)
		v := w.waits("2026.03.19")
		var key string
		for k, a := range w.artifacts {
			if a == v {
				key = k
			}
		}
		var back engine.Rollback
		p := &proc{tune: heard(func(ev kamino.Event) {
			if ev.Step == "lock" && ev.Kind == kamino.EventStarted {
				delete(w.artifacts, key)
			}
		})}
		began := w.now
		w.spawn(p, func(ctx context.Context) {
			back, p.err = p.engine().WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: v.Name, Reason: "leaks a key"})
		})
		w.wait()
		if p.err != nil || len(back.Unmarked) != 1 || w.now.Sub(began) < goneAfter {
			t.Errorf("%s: ended %v after %s, not marked: %v", reference, p.err, w.now.Sub(began), back.Unmarked)
		}
		w.artifacts[key] = v
		w.advance(w.now.Add(24 * time.Hour))
		w.auto(autoOptions())
		if got := birth(w); got != "2026.03.09" {
			t.Errorf("%s: the night after, nodes boot from %s", reference, got)
		}
	}
}

// between plays what a person does, and something else after the first read and before the lease.
func (w *world) between(happens func(), do func(context.Context, *engine.Engine) error) *proc {
	w.promotedByHand = true
	p := &proc{tune: heard(func(ev kamino.Event) {
		if ev.Step == "lock" && ev.Kind == kamino.EventStarted {
			happens()
		}
	})}
	w.spawn(p, func(ctx context.Context) { p.err = do(ctx, p.engine()) })
	w.wait()
	w.advance(w.now.Add(time.Minute))
	return p
}

// TestTargetWithdrawnBetween: what somebody withdraws after the first read is no target any more,
// and the reason stays. What was withdrawn before that is, where a person names it.
func TestTargetWithdrawnBetween(t *testing.T) {
	for verb, tt := range map[string]struct {
		target string
		do     func(context.Context, *engine.Engine) error
	}{
		"promote": {"2026.03.19", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.PromoteVersion(ctx, engine.PromoteOptions{Pool: "a"})
			return err
		}},
		"rollback": {"2026.03.05", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a"})
			return err
		}},
		"withdraw": {"2026.03.05", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Reason: "bad"})
			return err
		}},
	} {
		for reference, begin := range byReference() {
			w := begin(1)
			w.waits("2026.03.19")
			v := w.version(tt.target)
			p := w.between(func() {
				v.Artifact = kamino.ParseVersion(v.Artifact).Withdrawn(kamino.Bad{Reason: "leaks a key"}).Artifact
			}, tt.do)
			if got := birth(w); p.err == nil || got != "2026.03.09" || v.Tags[kamino.TagBad] != "leaks a key" {
				t.Errorf("%s, %s: ended %v; nodes boot from %s; %v", reference, verb, p.err, got, v.Tags)
			}
			if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: tt.target}); err != nil || birth(w) != tt.target {
				t.Errorf("%s, %s: rollback to the version that is withdrawn ended %v; nodes boot from %s", reference, verb, err, birth(w))
			}
		}
	}
}

// TestPromotedBetween: what somebody promotes after the first read, and before the lease, is
// neither undone nor marked: whoever decided before that is told.
func TestPromotedBetween(t *testing.T) {
	withdraw := func(version string) func(context.Context, *engine.Engine) error {
		return func(ctx context.Context, e *engine.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: version, Reason: "bad"})
			return err
		}
	}
	for verb, do := range map[string]func(context.Context, *engine.Engine) error{
		"promote": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.PromoteVersion(ctx, engine.PromoteOptions{Pool: "a", Version: "2026.03.19"})
			return err
		},
		"withdraw":         withdraw("2026.03.09"),
		"withdraw unnamed": withdraw(""),
		"rollback": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a"})
			return err
		},
	} {
		for reference, begin := range byReference() {
			w := begin(1)
			w.waits("2026.03.19")
			v := w.waits("2026.03.21")
			p := w.between(func() {
				v.Artifact = kamino.ParseVersion(v.Artifact).Offered().Artifact
				if a, l := w.pools[poolA], w.leases[poolA]; reference == "by version" {
					a.image, a.revision = v.ID, w.next()
					l.Ledger.Wrote = &kamino.WrittenModel{Image: v.ID, Seen: true, At: w.now}
					w.leases[poolA] = l
				}
			}, do)
			if got := birth(w); p.err == nil || got != v.Name || v.Tags[kamino.TagBad] != "" {
				t.Errorf("%s, %s: ended %v; nodes boot from %s; %v", reference, verb, p.err, got, v.Tags)
			}
		}
	}
}

// TestTrialEnds: who goes back to the original by name ends a trial, and judges neither the image
// nor its donor. The same node makes the next image, of the same packages; a rollback that fell
// back to the original, as the version was bad, keeps it out.
func TestTrialEnds(t *testing.T) {
	for to, fine := range map[string]bool{poolstate.ToOriginal: true, "": false} {
		w := fresh(1)
		w.listed = true
		if p := w.update(options("a-0")); p.err != nil {
			t.Fatal(p.err)
		}
		w.advance(w.now.Add(time.Minute))
		given := engine.RollbackOptions{Pool: "a", To: to, Secrets: kamino.Secrets{CustomData: []byte("bootstrap"), Protected: map[string]json.RawMessage{"cse": nil}}}
		if out, err := w.rollback(t, given); err != nil || out.To != poolstate.ToOriginal {
			t.Fatalf("%+v, %v", out, err)
		}
		w.advance(w.now.Add(time.Minute))
		again := options("a-0")
		again.Today = kamino.TodayAgain
		if p := w.update(again); (p.err == nil) != fine {
			t.Errorf("--to %q: the same node on the same day: %v", to, p.err)
		}
		w.advance(w.now.Add(24 * time.Hour))
		if p := w.update(options("a-0")); (p.err == nil) != fine {
			t.Errorf("--to %q: the same node on the next day: %v", to, p.err)
		}
		w.sound(t)
	}
}

// TestSamePackages: a node that has the same packages as when a version was made of it that is
// withdrawn is refused before a pod of it is evicted, wherever the run before was killed; what is
// refused names the version and why it is bad. Patched it may be the donor again.
func TestSamePackages(t *testing.T) {
	again := options("a-0")
	again.Today = kamino.TodayAgain
	begin := func() *world {
		w := aged(1)
		w.listed = true
		if p := w.update(options("a-0")); p.err != nil {
			t.Fatal(p.err)
		}
		p := &proc{}
		w.spawn(p, func(ctx context.Context) {
			_, p.err = p.engine().WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Reason: "units: unit web failed"})
		})
		if w.wait(); p.err != nil {
			t.Fatal(p.err)
		}
		w.calls = nil
		return w
	}
	refused := func(w *world, p *proc) {
		t.Helper()
		var refusal *kamino.RefusedError
		var step *kamino.StepError
		if !errors.As(p.err, &refusal) || refusal.Refusals[0].Code != "bad-image" || !errors.As(p.err, &step) || !step.Refused || !strings.Contains(p.err.Error(), "units: unit web failed") {
			t.Fatalf("%v\n%s", p.err, w.tail(40))
		}
		if n := w.nodes["a-0"]; slices.Contains(w.calls, "Evict") || len(n.Taints) > 0 || n.Annotations[kamino.AnnotationRun] != "" || n.Annotations[kamino.AnnotationPackages] != "" || len(w.patches) > 0 {
			t.Fatalf("the node was touched: %v, %+v, pods %v", w.calls, n.Node, w.patches)
		}
		w.sound(t)
	}
	w := begin()
	log := &proc{logging: true}
	w.startUpdate(log, again)
	w.wait()
	refused(w, log)
	for _, s := range log.log {
		w := begin()
		w.update(again, fault{kind: worlds.KillAfter, at: s.at})
		w.advance(w.now.Add(2 * time.Minute))
		refused(w, w.update(again))
	}
	w.machineOf(w.nodes["a-0"]).release++
	if p := w.update(again); p.err != nil {
		t.Errorf("patched: %v", p.err)
	}
	w.sound(t)

	w = begin()
	w.mute = true
	if p := w.update(again); p.err == nil || !strings.Contains(p.err.Error(), "the same packages") {
		t.Errorf("a node that does not answer: %v", p.err)
	}
	w.sound(t)
}

// TestWithdrawnDonorsStayUnfit: a node whose image failed is unfit until its packages differ, also
// after another node's image failed and a third one's did well.
func TestWithdrawnDonorsStayUnfit(t *testing.T) {
	w := aged(1)
	w.listed = true
	again := func(donor string) *proc {
		o := options(donor)
		o.Today = kamino.TodayAgain
		return w.update(o)
	}
	for _, donor := range []string{"a-0", "a-1"} {
		if p := again(donor); p.err != nil {
			t.Fatal(p.err)
		}
		p := &proc{}
		w.spawn(p, func(ctx context.Context) {
			_, p.err = p.engine().WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Reason: "units: unit web failed on " + donor})
		})
		if w.wait(); p.err != nil {
			t.Fatal(p.err)
		}
		w.advance(w.now.Add(24 * time.Hour))
	}
	if p := again("a-2"); p.err != nil {
		t.Fatal(p.err)
	}
	w.advance(w.now.Add(24 * time.Hour))
	w.calls = nil
	p := again("a-0")
	if p.err == nil || slices.Contains(w.calls, "Evict") {
		t.Errorf("an image of the same packages was made of a-0 again: %v; nodes boot from %s", p.err, birth(w))
	}
}
