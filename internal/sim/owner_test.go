package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

func (w *world) definition() *simArtifact {
	return w.artifacts[artifactKey(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))]
}

// TestTagIsBelieved: a definition that is tagged as unreliable is not relied upon, also where the
// pool's ledger, which somebody deleted, tells of no instance that strayed.
func TestTagIsBelieved(t *testing.T) {
	for name, play := range map[string]func(w *world, v string) (want string, err error){
		"withdraw": func(w *world, v string) (string, error) {
			_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: v, Reason: "bad"})
			return "2026.03.09", p.err
		},
		"rollback": func(w *world, _ string) (string, error) {
			_, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.01"})
			return "2026.03.01", err
		},
		"promote": func(w *world, _ string) (string, error) {
			w.waits("2026.03.10")
			_, err := w.promote(engine.PromoteOptions{Pool: "a"})
			return "2026.03.10", err
		},
		"auto-update": func(w *world, _ string) (string, error) {
			w.waits("2026.03.10")
			p, _ := w.auto(autoOptions())
			return "2026.03.10", p.err
		},
	} {
		w, v := updated(t)
		w.definition().Tags = map[string]string{kamino.TagPointer: "unreliable"}
		want, err := play(w, v)
		w.advance(w.now.Add(time.Minute))
		if named := lastSegment(w.pools[poolA].image); err != nil || named != want {
			t.Errorf("%s ended %v: the model refers to %s, want %s", name, err, named, want)
		}
		w.sound(t)
	}
}

// TestPinSaysNothingOfThePointer: what boots while a person pins an older version does not make the
// definition unreliable, where the pool is updated at night only.
func TestPinSaysNothingOfThePointer(t *testing.T) {
	w, v := updated(t)
	w.patch("a-2", "2026-03-11T08:00:00Z")
	w.version(v).Excluded = true
	if p, res := w.auto(autoOptions()); p.err != nil || !kamino.Has(res[0].Held, "pinned") {
		t.Fatalf("the night ended %v, %+v", p.err, res)
	}
	w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
	w.advance(w.now.Add(time.Hour))
	w.version(v).Excluded = false
	w.advance(w.now.Add(24 * time.Hour))
	if s := w.status(t).Strayed; s != nil {
		t.Errorf("a pin that was lifted: %v", s)
	}
	if p, _ := w.auto(autoOptions()); p.err != nil || lastSegment(w.pools[poolA].image) != kamino.DefinitionName("a") {
		t.Errorf("the night after that ended %v; the model refers to %s", p.err, w.pools[poolA].image)
	}
	w.sound(t)
}

// TestUnacceptedBootstrap: a version that was left hidden because its instances would run the
// model's own bootstrap is offered by nobody to a pool whose model kamino does not write, until
// somebody promotes it by its name. The model is not written then either.
func TestUnacceptedBootstrap(t *testing.T) {
	begin := func() (*world, string) {
		w := pointing(1)
		w.pools[poolA].owner = &kamino.Owner{Name: "somebody"}
		o := options("a-0")
		o.ImageOnly = true
		if p := w.update(o); p.err != nil || !p.result.Hidden {
			t.Fatalf("the run ended %v, hidden %t", p.err, p.result.Hidden)
		}
		return w, kamino.VersionName(w.now)
	}
	w, v := begin()
	if p := w.update(options("a-0")); p.err != nil || !p.result.Hidden || birth(w) == v {
		t.Errorf("an ordinary run ended %v, hidden %t", p.err, p.result.Hidden)
	}
	if p, res := w.auto(autoOptions()); p.err != nil || birth(w) == v || !kamino.Has(res[0].Held, "image-only") {
		t.Errorf("a night ended %v, held %v", p.err, res[0].Held)
	}
	o := autoOptions()
	o.ImageOnly = true
	if p, res := w.auto(o); p.err != nil || birth(w) == v || !kamino.Has(res[0].Held, "image-only") {
		t.Errorf("a night with --image-only ended %v, held %v", p.err, res[0].Held)
	}
	model := w.pools[poolA].model
	back, err := w.promote(engine.PromoteOptions{Pool: "a", Version: v})
	w.advance(w.now.Add(time.Minute))
	if err != nil || back.Offered || birth(w) != v || w.pools[poolA].model != model {
		t.Errorf("promoted by its name: %v, %+v; the next instance boots from %s", err, back, birth(w))
	}
	w.sound(t)
	w, v = begin()
	w.version(v).Tags[kamino.TagProof] = "passed"
	if _, err := w.promote(engine.PromoteOptions{Pool: "a"}); err == nil || !strings.Contains(kamino.Hint(err), "--version "+v) || birth(w) == v {
		t.Errorf("promoted without a name: %v", err)
	}
	w, v = begin()
	w.pools[poolA].owner = nil
	p := w.update(options("a-0"))
	w.advance(w.now.Add(time.Minute))
	if p.err != nil || birth(w) != v || len(w.pools[poolA].exts) != 1 {
		t.Errorf("where kamino writes the model, a run ended %v; the next instance boots from %s", p.err, birth(w))
	}
	w.sound(t)
}

// TestModelIsWrittenOnce: what puts an extension back each night costs no model each night. It is
// told, and written where a person says so.
func TestModelIsWrittenOnce(t *testing.T) {
	w := untagged(1)
	p := w.update(options("a-0"))
	models, told := w.pools[poolA].model, ""
	for night := 0; night < 3 && p.err == nil; night++ {
		w.advance(w.now.Add(24 * time.Hour))
		w.pools[poolA].exts, w.pools[poolA].revision = []string{"monitor", "policy"}, w.next()
		p = w.startUpdate(&proc{tune: func(e *engine.Engine) {
			report := e.Report
			e.Report = func(ev kamino.Event) { report(ev); told += ev.Message + "; " }
		}}, options("a-0"))
		w.wait()
	}
	if wrote := w.pools[poolA].model - models; p.err != nil || wrote != 0 || strings.Count(told, "extensions that somebody added") != 3 {
		t.Errorf("ended %v; the model was written %d times, and told was %q", p.err, wrote, told)
	}
	back, err := w.rollback(t, engine.RollbackOptions{Pool: "a"})
	if wrote := w.pools[poolA].model - models; err != nil || wrote != 0 || len(back.ModelDiff) != 0 {
		t.Errorf("a rollback ended %v; the model was written %d times", err, wrote)
	}
	w.advance(w.now.Add(24 * time.Hour))
	o := options("a-0")
	o.AdoptModel = true
	if p := w.update(o); p.err != nil || len(w.pools[poolA].exts) != 1 {
		t.Errorf("told to, the run ended %v with extensions %v", p.err, w.pools[poolA].exts)
	}
	w.sound(t)
}

// TestOwnBootstrapIsTakenOff: where somebody else let the model name the definition, with a
// bootstrap of its own, the first run takes that off, also one that follows a run which was killed.
func TestOwnBootstrapIsTakenOff(t *testing.T) {
	begin := func() *world {
		w := pointing(1)
		w.pools[poolA].exts = []string{"bootstrap"}
		return w
	}
	log := &proc{logging: true}
	w := begin()
	w.startUpdate(log, options("a-0"))
	w.wait()
	if exts := w.pools[poolA].exts; log.err != nil || len(exts) != 1 || exts[0] != "monitor" {
		t.Fatalf("the run ended %v with extensions %v", log.err, exts)
	}
	for _, s := range log.log {
		if s.step != "model" || !s.call.write {
			continue
		}
		w := begin()
		w.update(options("a-0"), fault{kind: worlds.KillBefore, at: s.at})
		p := w.update(options("a-0"))
		if exts := w.pools[poolA].exts; p.err != nil || len(exts) != 1 || exts[0] != "monitor" {
			t.Errorf("killed at %s: the run after it ended %v with extensions %v", s, p.err, exts)
		}
		w.sound(t)
	}
}

// TestOneModelIsOneWrite: a write that is repeated because its offer or itself failed counts once.
func TestOneModelIsOneWrite(t *testing.T) {
	log := &proc{logging: true}
	w := aged(1)
	w.startUpdate(log, options("a-0"))
	w.wait()
	if n := len(w.leases[poolA].Ledger.Writes); n != 1 {
		t.Fatalf("an undisturbed run notes %d writes", n)
	}
	for _, s := range log.log {
		for _, kind := range []worlds.Fault{worlds.ServerError, worlds.KillBefore, worlds.KillAfter} {
			if s.step != "model" || !s.call.write {
				continue
			}
			w := aged(1)
			w.update(options("a-0"), fault{kind: kind, at: s.at})
			p := w.update(options("a-0"))
			if n := len(w.leases[poolA].Ledger.Writes); p.err != nil || n != 1 {
				t.Errorf("%s at %s: the run after it ended %v, and %d writes are noted", kind, s, p.err, n)
			}
		}
	}
}

// TestWithdrawOfTheHidden: a version that the definition does not stand for can be withdrawn though
// that stands for nothing.
func TestWithdrawOfTheHidden(t *testing.T) {
	w := pointing(1)
	for _, a := range w.artifacts {
		a.Excluded = a.Kind == kamino.KindVersion
	}
	v := w.waits("2026.03.10")
	if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: v.Name, Reason: "bad"}); p.err != nil || v.Tags[kamino.TagBad] != "bad" {
		t.Errorf("ended %v, tags %v", p.err, v.Tags)
	}
}

// TestNoVersionIsMadeAnew: a version that is about to be written, and is not found just then, is
// not made a second time.
func TestNoVersionIsMadeAnew(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"points": pointing, "by version": aged} {
		log := &proc{logging: true}
		w := begin(1)
		w.startUpdate(log, options("a-0"))
		w.wait()
		for _, s := range log.log {
			if s.call.kube || s.step != "model" && s.step != "image" {
				continue
			}
			w := begin(1)
			again := &proc{logging: true, faults: []fault{{kind: worlds.Absent, at: s.at}}}
			w.startUpdate(again, options("a-0"))
			w.wait()
			made := 0
			for _, c := range again.log {
				if c.call.create && strings.Contains(c.call.method, string(kamino.KindVersion)) {
					made++
				}
			}
			if made != 1 {
				t.Errorf("%s, not found at %s: the run ended %v and made %d versions", name, s, again.err, made)
			}
		}
	}
}

// TestOwnedSeeds plays cluster-api-provider-azure, which puts its image back and replaces what
// shows another one, around whatever Kamino does in a pool whose recipe names the definition: no
// model is written, no node is replaced. That instances show the definition is unverified.
func TestOwnedSeeds(t *testing.T) {
	moved := 0
	for seed := range uint64(100) {
		w, rng := pointing(seed), rand.New(rand.NewPCG(seed, 5))
		pool := w.pools[poolA]
		pool.owner = &kamino.Owner{Name: "capz"}
		image, models, machines := pool.image, pool.model, len(w.machines)
		for range 4 {
			died := fault{kind: faults[rng.IntN(4)], at: rng.IntN(walkCalls)}
			switch rng.IntN(4) {
			case 0:
				w.update(options("a-0"), died)
			case 1:
				_, _ = w.rollback(t, engine.RollbackOptions{Pool: "a"}, fault{kind: died.kind, at: rng.IntN(40)})
			case 2:
				w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "bad"}, fault{kind: died.kind, at: rng.IntN(40)})
			case 3:
				p := &proc{faults: []fault{died}}
				w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().AutoUpdate(ctx, autoOptions()) })
				w.wait()
			}
			w.pass(t)
			w.advance(w.now.Add(time.Duration(1+rng.IntN(30)) * time.Hour))
		}
		if p := w.update(options("a-0")); p.err != nil && !strings.Contains(p.err.Error(), "withdrawn") {
			t.Errorf("seed %d: the last run ended %v", seed, p.err)
		}
		if pool.image != image || pool.model != models || len(w.machines) != machines {
			t.Errorf("seed %d: the model names %s, written %d times; %d machines, were %d", seed, pool.image, pool.model-models, len(w.machines), machines)
		}
		moved += len(slices.Compact(w.turns())) - 1
	}
	if moved < 100 {
		t.Errorf("the pointer was moved %d times in 100 seeds", moved)
	}
}
