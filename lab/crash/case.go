package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// Golden is a run that nobody disturbs.
type Golden struct {
	Shape  Shape
	Calls  []*Call
	Rows   []string // of the matrix, by call
	Digest []string // of its end
	nexts  []string // what the next machine booted from
	at     []time.Duration
	took   time.Duration
}

// Case is one attempt to make Kamino lose something.
type Case struct {
	Name   string
	Cell   Cell
	Golden *Golden
	Strike Strike
	Start  time.Time     // of the world; zero is worldBegins
	Skew   time.Duration // of the clock of the process that runs again
	// Heal runs kamino restore before the command is run again.
	Heal bool
	// Check, if set, is all that the case is: no process runs.
	Check func(*Golden) []string
	// Refused: the first run must change nothing at all.
	Refused bool
	// Peek takes a digest right after the first process has ended.
	Peek bool
	// Abandoned: nobody runs the command again.
	Abandoned bool
	// Fails, if set, is what the first run must end with, and Mend what a person does about it
	// then.
	Fails string
	Mend  func(*World)
	// Loose: the end may differ from the undisturbed run's.
	Loose bool
}

// Outcome is what became of a case.
type Outcome struct {
	Case       *Case
	Hit        bool     // the strike found its call
	Violations []string // of invariants, and differences in the end
	FirstErr   error    // of the process that was struck
	Away       []time.Duration
	Took       time.Duration // of this machine
	History    []string      // what happened, if there are violations
	Writes     int           // of the struck process
	After      []string      // digest after the first process had ended, if asked for
	Idle       bool          // a run with nothing to do came last, and was looked at
}

// limits of a run's virtual time: a build may be waited for six hours, a donor
// one, and throttling comes on top.
const runLimit = 16 * time.Hour

// settleTime is how long the world is left alone at the end: machines boot, and what is late comes.
const settleTime = 10 * time.Minute

// rivalTime is how long it takes at least until somebody runs the command again
// after others have changed the world: a replaced machine boots meanwhile.
const rivalTime = 2 * time.Minute

// runGolden makes an undisturbed run.
func runGolden(ctx context.Context, s *Station, shape Shape) (*Golden, error) {
	w, err := s.NewWorld(ctx, shape, worldBegins)
	if err != nil {
		return nil, err
	}
	defer w.End()
	w.verbose = true
	p := w.work(w.prepare(nil), w.options())
	w.wait()
	w.settle()
	if p.Err != nil || len(w.audit.Violations()) > 0 || w.trouble != nil {
		return nil, fmt.Errorf("the undisturbed run of %s fails: %v, %v, harness: %v\n%s", shape.Name, p.Err, w.audit.Violations(),
			w.trouble, tail(w.history, 60))
	}
	g := &Golden{Shape: shape, Calls: p.Calls, Rows: rowsOf(p.Calls), took: p.Ended.Sub(p.Started)}
	for _, c := range p.Calls {
		g.at = append(g.at, c.at.Sub(p.Started))
	}
	if shape.Command != "" {
		for i := range g.Rows {
			g.Rows[i] = moves[shape.Command]
		}
	}
	g.nexts = w.nexts
	if err := g.chooses(); err != nil {
		return nil, err
	}
	g.Digest, err = w.Digest()
	return g, err
}

// settle lets the world come to rest and checks what must hold in the end.
func (w *World) settle() {
	w.clock.pass(settleTime)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty = dirt{true, true, true}
	w.refresh()
	w.audit.Settled(&w.state)
	w.restPatch()
	if did := w.reconcile(); did.WroteModel || len(did.Deleted) > 0 {
		w.audit.Violate("I10", "the owner of the pool finds it changed: %+v", did)
	}
}

// reconcile lets the owner of the recipe, if it has one, look at its pool: it puts its image back,
// and leaves instances alone that are of another one, as its gate has it.
func (w *onAzure) reconcile() (did emulator.CAPZWork) {
	if !w.shape.Owned {
		return did
	}
	id := w.scenario.PoolID(poolName)
	z := emulator.CAPZ{Pool: id, Image: map[string]any{"id": w.definition}, Replicas: intAt(w.cloud.Document(id), "sku", "capacity"),
		SkipModelReconciliation: true, Call: w.ask}
	did, err := z.Reconcile()
	w.check("let the owner look", err)
	return did
}

// Try runs a case.
func (c *Case) Try(ctx context.Context, s *Station, verbose bool) (out Outcome, err error) {
	began := time.Now()
	out = Outcome{Case: c}
	defer func() { out.Took = time.Since(began) }()
	if c.Check != nil {
		out.Hit, out.Violations = true, c.Check(c.Golden)
		return out, nil
	}
	start := c.Start
	if start.IsZero() {
		start = worldBegins
	}
	w, err := s.NewWorld(ctx, c.Golden.Shape, start)
	if err != nil {
		return out, err
	}
	defer w.End()
	w.verbose, w.chosen = true, c.Golden.nexts
	c.play(w, &out)
	if w.trouble != nil {
		out.Violations = append(out.Violations, "the harness itself fails: "+w.trouble.Error())
	}
	for _, v := range w.audit.Violations() {
		out.Violations = append(out.Violations, v.String())
	}
	for _, span := range w.audit.Spans() {
		out.Away = append(out.Away, span.Took)
	}
	if len(out.Violations) > 0 || verbose {
		out.History = w.history
	}
	return out, ctx.Err()
}

// play lets things go wrong, mends them, and runs the command again.
func (c *Case) play(w *World, out *Outcome) {
	strike := c.Strike
	first := w.work(w.prepare(&strike), w.options())
	w.wait()
	out.Hit, out.FirstErr = strike.Hit || strike.Kind == "", first.Err
	out.Writes = writes(first)
	w.ended(first)
	if c.Peek {
		var err error
		if out.After, err = w.Digest(); err != nil {
			out.Violations = append(out.Violations, "look at what was left: "+err.Error())
		}
	}
	switch strike.Kind {
	case worlds.OperationEndless:
		w.clock.pass(endlessBuild)
	case worlds.Vanished:
		w.clock.pass(worlds.Vanishing)
	}
	if c.Fails != "" && (first.Err == nil || !strings.Contains(first.Err.Error(), c.Fails)) {
		out.Violations = append(out.Violations, fmt.Sprintf("the run ends %v, not because of %q", first.Err, c.Fails))
	}
	if c.Mend != nil {
		c.Mend(w)
		w.clock.pass(rivalTime)
	}
	if strike.Rival != nil {
		if r := strike.Rival; r.Unharmed && first.Err != nil &&
			!(r.Name == "a person deletes the lease" && c.Golden.Calls[strike.At-1].means.Verb == invariant.SetModel) &&
			!(r.Name == "nothing can be deleted in the cloud" && out.Writes == 0) && // connect refuses before anything is touched
			// Who looks seldom at a machine that stays on cannot rule out that it was started again.
			!(w.shape.Mute && strings.Contains(first.Err.Error(), "it may have been started again since")) {
			out.Violations = append(out.Violations, fmt.Sprintf("I19: the run fails although it could go on: %v", first.Err))
		}
		w.mend()
		w.clock.pass(max(rivalTime, strike.Rival.Later))
	}
	if w.shape.Patch && first.Err != nil { // it asks for a node that is Ready
		w.clock.pass(rivalTime)
	}
	if c.Refused {
		c.refused(w, first, out)
		return
	}
	w.mended()
	if c.Heal {
		p := w.restore(w.prepare(nil))
		w.wait()
		w.ended(p)
		if p.Err != nil {
			out.Violations = append(out.Violations, fmt.Sprintf("kamino restore fails: %v", p.Err))
		}
	}
	if !c.Abandoned && (first.Killed || first.Err != nil || first.warned() || strike.Rival != nil ||
		strike.Kind == worlds.Vanished || strike.Kind == worlds.Empty) { // what was not listed is left to another run
		c.again(w, out)
	}
	w.settle()
	if r := strike.Rival; len(out.Violations) == 0 && (r == nil || r.Same) && c.Skew == 0 && !c.Loose {
		end, err := w.Digest()
		if err != nil {
			out.Violations = append(out.Violations, "read the end: "+err.Error())
		}
		for _, line := range differences(c.Golden.Digest, end) {
			out.Violations = append(out.Violations, "end differs: "+line)
		}
	}
	if len(out.Violations) == 0 && !c.Abandoned {
		c.idle(w, out)
	}
}

// idle runs the command once more: where today's version is in use already, it
// changes nothing (I19). Past midnight there would be something to do. After patches, it is kamino
// restore that must find nothing.
func (c *Case) idle(w *World, out *Outcome) {
	if w.shape.Patch {
		c.still(w, out, w.restore(w.prepare(nil)))
		return
	}
	if w.shape.Named || w.shape.Command != "" {
		c.still(w, out, w.work(w.prepare(nil), w.freshDonor()))
		return
	}
	day, err := kamino.VersionDate(w.version())
	if err != nil || kamino.VersionName(day) != kamino.VersionName(w.clock.Now()) {
		return
	}
	c.still(w, out, w.update(w.prepare(nil), w.freshDonor()))
}

// still waits for a process that has nothing to do.
func (c *Case) still(w *World, out *Outcome, p *Process) {
	w.wait()
	w.ended(p)
	var other *engine.OtherDonorError // the one that today's version was made of is gone
	if p.Err != nil && !errors.As(p.Err, &other) {
		out.Violations = append(out.Violations, fmt.Sprintf("a run with nothing to do fails: %v", p.Err))
	}
	w.mu.Lock()
	w.audit.Idle(p.Name, writes(p))
	w.mu.Unlock()
	w.settle()
	out.Idle = true
}

// version is what the pool's next machine boots from; "" where that is none.
func (w *World) version() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	image := ""
	for _, p := range w.state.Pools {
		if p.ID == w.pool {
			image = cmp.Or(p.Next, p.Image)
		}
	}
	for _, a := range w.state.Artifacts {
		if a.Kind == invariant.Version && strings.EqualFold(a.ID, image) {
			return a.Name
		}
	}
	return ""
}

// again runs the command as an operator would after whatever has happened.
func (c *Case) again(w *World, out *Outcome) {
	p := w.prepare(nil)
	p.Skew = c.Skew
	w.work(p, w.freshDonor())
	w.wait()
	w.ended(p)
	if p.Err != nil && c.Skew != 0 {
		// A clock that is wrong is refused; one that is right must do.
		p = w.work(w.prepare(nil), w.freshDonor())
		w.wait()
		w.ended(p)
	}
	var other *engine.OtherDonorError
	if errors.As(p.Err, &other) {
		// Another donor's version of today is no version of this one's: as told.
		o := w.freshDonor()
		o.Today = kamino.TodayAgain
		p = w.work(w.prepare(nil), o)
		w.wait()
		w.ended(p)
	}
	var refused *kamino.RefusedError
	if w.shape.Command == Promote && w.shape.Group != nil && errors.As(p.Err, &refused) && refused.Refusals[0].Allow == "adopt-model" {
		// No counter of AWS tells whether the write ever took effect (docs/aws.md): as told.
		p = w.move(w.prepare(nil), true)
		w.wait()
		w.ended(p)
	}
	if p.Err != nil {
		out.Violations = append(out.Violations, fmt.Sprintf("the clean re-run fails: %v", p.Err))
	}
}

// refused checks that a run which must not be has changed nothing (I28).
func (c *Case) refused(w *World, first *Process, out *Outcome) {
	if first.Err == nil {
		out.Violations = append(out.Violations, "I28: the run was not refused")
	}
	if out.Writes > 0 {
		out.Violations = append(out.Violations, fmt.Sprintf("I28: a refused run makes %d writes", out.Writes))
	}
}

// writes counts what a process changed, its lease not counted.
func writes(p *Process) int {
	n := 0
	for _, c := range p.Calls {
		if c.Write && c.means.Verb != invariant.SetLease {
			n++
		}
	}
	return n
}

// ended checks that a process has ended in time (I18).
func (w *World) ended(p *Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	endless := p.strike != nil && p.strike.Kind == worlds.NoAnswer // no limit is meant for that
	if !p.Killed && !endless {
		w.audit.Ended(p.Name, p.Ended.Sub(p.Started), runLimit)
	}
}

func tail(lines []string, n int) string {
	text := ""
	for _, line := range lines[max(0, len(lines)-n):] {
		text += line + "\n"
	}
	return text
}
