package controller

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/poolstate"
)

// world is everything that one pass knows about a prototype and its pool.
type world struct {
	now     time.Time
	trouble *problem // why there is no view
	view    poolstate.PoolView
	// unpromoted is why the promotion failed that an annotation requested.
	unpromoted string
	maxAge     time.Duration
	window     sight
	hours      *window // the window that sight belongs to
	patchDue   bool    // nodes are to be patched first
	own        *run    // the run of this process, possibly ended
	warning    string  // warning of the watch of new nodes
	retry      time.Duration
	turn       bool // a donor may be taken
}

// verdict is what to do with a prototype, and its new status.
type verdict struct {
	status v1alpha1.NodePrototypeStatus
	start  bool      // start auto-update now
	back   bool      // only restore what a run took, and begin nothing
	wake   time.Time // latest time of the next pass; zero: the usual interval
}

// derive computes the verdict. It is a pure function: the status depends only on the world, and on
// the former status for transition times.
func derive(p *v1alpha1.NodePrototype, w world) (v verdict) {
	s := &v.status
	s.ObservedGeneration, s.Conditions = p.Generation, p.DeepCopy().Status.Conditions
	d := deriving{p: p, w: w, v: &v, at: p.Generation}
	if w.trouble != nil {
		d.ready(metav1.ConditionFalse, w.trouble.reason, w.trouble.text)
		d.unknown()
		d.run()
		v.back = w.trouble.reason == v1alpha1.ReasonConflict || w.trouble.reason == v1alpha1.ReasonInvalid
		if u := w.view.Status.Unfinished; u != nil && v.back && u.Alive {
			d.wake(w.now.Add(letBe))
		} else if u != nil { // what can be restored without the pool, is
			d.finish()
		}
		return v
	}
	d.facts()
	d.conditions()
	if w.unpromoted != "" {
		d.ready(metav1.ConditionFalse, v1alpha1.ReasonPromotion, w.unpromoted)
		return v
	}
	d.decide()
	return v
}

type deriving struct {
	p  *v1alpha1.NodePrototype
	w  world
	v  *verdict
	at int64
}

func (d deriving) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	const most = 1024
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	meta.SetStatusCondition(&d.v.status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: message, ObservedGeneration: d.at, LastTransitionTime: metav1.NewTime(d.w.now)})
}

func (d deriving) ready(status metav1.ConditionStatus, reason, message string) {
	d.condition(v1alpha1.ConditionReady, status, reason, message)
}

// unknown removes the facts about a pool that cannot be read.
func (d deriving) unknown() {
	for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionProven, v1alpha1.ConditionStale,
		v1alpha1.ConditionRefused, v1alpha1.ConditionPinned, v1alpha1.ConditionConfigFailed} {
		d.condition(kind, metav1.ConditionUnknown, d.w.trouble.reason, "")
	}
	d.paused()
}

// facts sets the parts of the status that are observed.
func (d deriving) facts() {
	s, st, plan := &d.v.status, d.w.view.Status, d.w.view.Plan
	s.Pool, s.Image, s.Candidate = st.Name, plan.Image, plan.Donor
	for _, v := range st.Versions {
		if v.Name == st.Next && st.Next != "" {
			s.Next = &v1alpha1.Image{Version: v.Name, From: v.BuiltFrom, Run: v.Run}
			if st.NextBuilt != nil {
				s.Next.Built = moment(*st.NextBuilt)
			}
		}
		if v.Bad != "" && len(s.Withdrawn) < 50 {
			s.Withdrawn = append(s.Withdrawn, v1alpha1.Withdrawn{Version: v.Name, Reason: kamino.Plain(v.Bad)})
		}
	}
	if b := st.Behind; b != nil {
		s.Behind = &v1alpha1.Behind{Node: b.Node, Packages: string(b.Packages)}
		if b.Days != nil {
			days := int32(math.Ceil(*b.Days))
			s.Behind.Days = &days
		}
		for _, one := range b.Differs {
			s.Behind.Differs = append(s.Behind.Differs, fmt.Sprintf("%s %s, on the node %s", one.What, kamino.Plain(one.Next), one.Running))
		}
	}
	d.run()
}

// run sets the part of the status about the run that holds the pool.
func (d deriving) run() {
	s := &d.v.status
	if u := d.w.view.Status.Unfinished; u != nil {
		s.Donor = u.Donor
		s.Run = &v1alpha1.Run{ID: u.Run, Step: u.Step, Version: u.Version, Process: u.Process}
		if !u.Started.IsZero() {
			s.Run.Since = moment(u.Started)
		}
	}
	if own := d.w.own; own != nil && own.running {
		if s.Run == nil {
			s.Run = &v1alpha1.Run{ID: own.id, Since: moment(own.began)}
		}
		s.Run.Step = cmp.Or(own.step, s.Run.Step)
		if own.percent >= 0 {
			percent := int32(own.percent)
			s.Run.Percent = &percent
		}
	}
}

func moment(t time.Time) *metav1.Time {
	at := metav1.NewTime(t.UTC().Truncate(time.Second)) // as the API server returns it
	return &at
}

func (d deriving) yes(kind string, is bool, reason, message, otherwise string) {
	if is {
		d.condition(kind, metav1.ConditionTrue, reason, message)
		return
	}
	d.condition(kind, metav1.ConditionFalse, otherwise, "")
}

func (d deriving) conditions() {
	st, plan := d.w.view.Status, d.w.view.Plan
	run := d.v.status.Run
	message := ""
	if run != nil {
		message = fmt.Sprintf("run %s is at step %s", run.ID, cmp.Or(run.Step, "lock"))
	}
	d.yes(v1alpha1.ConditionProgressing, run != nil, "Running", message, "Idle")
	d.proven()
	var why []string
	for _, verdict := range plan.Why {
		switch verdict.Code {
		case kamino.CodeAge: // its text changes with the age
			why = append(why, fmt.Sprintf("image %s is older than %s", plan.Image, d.w.maxAge))
		case kamino.CodeNoImage, kamino.CodePatches:
			why = append(why, verdict.Text)
		}
	}
	d.yes(v1alpha1.ConditionStale, len(why) > 0, "NeedsImage", strings.Join(why, "; "), "Fresh")
	var refusals []string
	for _, r := range st.Refusals {
		refusals = append(refusals, r.String())
	}
	d.yes(v1alpha1.ConditionRefused, len(refusals) > 0, "PoolRefused", strings.Join(refusals, "; "), "Accepted")
	failed := ""
	if nodes := st.FailedConfigs(); len(nodes) > 0 {
		failed = fmt.Sprintf("%d of %d nodes: %s", len(nodes), st.Nodes, nodes[0])
	}
	d.yes(v1alpha1.ConditionConfigFailed, failed != "", "NodesRefused", failed, "NoneRefused")
	text := ""
	if st.Pinned != nil {
		text = st.Pinned.String()
	}
	d.yes(v1alpha1.ConditionPinned, st.Pinned != nil, "ForeignImage", text, "Own")
	d.paused()
}

func (d deriving) paused() {
	switch paused := d.w.view.Status.Paused; {
	case paused != "":
		d.condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, "ClusterPaused", kamino.Plain(paused))
	case d.p.Spec.Suspend:
		d.condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, "Suspended", "spec.suspend is set")
	default:
		d.condition(v1alpha1.ConditionPaused, metav1.ConditionFalse, "Active", "")
	}
}

func (d deriving) proven() {
	next := d.v.status.Next
	if next == nil {
		d.condition(v1alpha1.ConditionProven, metav1.ConditionFalse, "NoImage", "the next node's image was not made by kamino")
		return
	}
	for _, v := range d.w.view.Status.Versions {
		if v.Name == next.Version {
			d.yes(v1alpha1.ConditionProven, v.Proven(), "Passed", "version "+v.Name+" passed its proof", "Unproved")
		}
	}
}

// decide decides what to do, and why not.
func (d deriving) decide() {
	plan, own := d.w.view.Plan, d.w.own
	need, why := plan.Action == poolstate.DoUpdate || plan.Action == poolstate.DoModel, said(plan.Why)
	switch {
	case own != nil && own.running:
		d.ready(metav1.ConditionUnknown, v1alpha1.ReasonRunning, d.message())
	case plan.Action == poolstate.DoFinish:
		d.ready(metav1.ConditionUnknown, v1alpha1.ReasonRunning, d.message())
		d.finish()
	case len(plan.Held) > 0 && !(d.w.patchDue && only(plan.Held, kamino.CodeTooFew, kamino.CodeToday)):
		d.held()
	case need || d.w.patchDue:
		if !need {
			why = "nodes are to be patched"
		}
		d.due(why)
	case d.w.view.Status.Kept() != nil:
		d.ready(metav1.ConditionFalse, v1alpha1.ReasonUnfit, d.w.view.Status.NotReady())
	default:
		if d.w.warning != "" {
			why += "; " + kamino.Plain(d.w.warning)
		}
		d.ready(metav1.ConditionTrue, v1alpha1.ReasonUpToDate, why)
		if next := d.v.status.Next; next != nil && next.Built != nil && d.w.maxAge > 0 && !d.p.Spec.Suspend {
			due := next.Built.Add(d.w.maxAge + time.Second)
			d.wake(due)
			d.nextRun(d.w.hours.next(due))
		}
	}
}

// letBe is how long the controller leaves another process's run alone after a try to finish it:
// that process has just shown that it is alive, or there is another obstacle.
const letBe = time.Minute

// finish continues or restores what an ended process left, also outside of the window.
func (d deriving) finish() {
	if own := d.w.own; own != nil && d.w.now.Sub(own.ended) < letBe {
		d.wake(own.ended.Add(letBe))
		return
	}
	d.v.start = d.w.turn
}

func (d deriving) message() string {
	run := d.v.status.Run
	if run == nil || run.ID == "" {
		return "a run begins"
	}
	return fmt.Sprintf("run %s, donor %s, at step %s", run.ID, cmp.Or(d.v.status.Donor, "none"), cmp.Or(run.Step, "lock"))
}

// due starts a run, unless something prevents it now.
func (d deriving) due(why string) {
	failed, again := d.failure()
	switch {
	case d.p.Spec.Suspend:
		d.ready(metav1.ConditionFalse, v1alpha1.ReasonSuspended, "spec.suspend is set; "+why)
	case !d.w.window.open:
		d.ready(metav1.ConditionUnknown, v1alpha1.ReasonWindow, "waiting for the window; "+why)
		d.nextRun(d.w.window.from)
	case d.w.now.Before(again):
		d.ready(metav1.ConditionFalse, v1alpha1.ReasonBackOff, failed)
		d.nextRun(d.w.hours.next(again))
	case !d.w.turn:
		d.ready(metav1.ConditionUnknown, v1alpha1.ReasonTurn, "waiting for the donors of other pools to return; "+why)
	default:
		d.ready(metav1.ConditionUnknown, v1alpha1.ReasonNeedsRun, why)
		d.v.start = true
	}
}

func (d deriving) wake(at time.Time) {
	if d.v.wake.IsZero() || at.Before(d.v.wake) {
		d.v.wake = at
	}
}

func (d deriving) nextRun(at time.Time) {
	if !at.IsZero() {
		d.v.status.NextRun = moment(at)
		d.wake(at)
	}
}

// longestRetry is the longest time between two tries.
const longestRetry = 12 * time.Hour

// failure returns how the last run failed, and when the next may be tried. It comes from the pool's
// ledger, so that it is known after a restart, or from this process if that knows more.
func (d deriving) failure() (text string, again time.Time) {
	wait, last := d.w.retry, time.Time{}
	for _, past := range d.w.view.Status.Runs {
		if past.Failure == "" {
			break
		}
		if past.Verb != "" {
			continue
		}
		if last.IsZero() {
			last, text = past.Ended, fmt.Sprintf("run %s failed: %s", past.Run, past.Failure)
		} else {
			wait = min(2*wait, longestRetry)
		}
	}
	if own := d.w.own; own != nil && own.failed() && own.ended.After(last) {
		last, text = own.ended, own.err.Error()
		for range own.failures - 1 {
			wait = min(2*wait, longestRetry)
		}
	}
	if last.IsZero() {
		return "", time.Time{}
	}
	return text, last.Add(wait)
}

// reasons are the reasons of the condition Ready, by the code of the held verdict.
var reasons = map[kamino.Code]string{
	kamino.CodePinned: v1alpha1.ReasonPinned, kamino.CodeForeignModel: v1alpha1.ReasonPinned, kamino.CodePaused: v1alpha1.ReasonPaused,
	kamino.CodeRefused: v1alpha1.ReasonRefused, kamino.CodePromote: v1alpha1.ReasonAwaits, kamino.CodeError: v1alpha1.ReasonUnreadable,
}

func (d deriving) held() {
	plan, first := d.w.view.Plan, d.w.view.Plan.Held[0]
	reason, status := cmp.Or(reasons[first.Code], v1alpha1.ReasonHeld), metav1.ConditionFalse
	switch {
	case reason == v1alpha1.ReasonRefused && d.w.view.Status.Owner != nil:
		reason = v1alpha1.ReasonOwned
	case reason == v1alpha1.ReasonAwaits:
		status = metav1.ConditionUnknown
	case first.Code == kamino.CodeToday:
		y, m, day := d.w.now.UTC().Date()
		d.nextRun(d.w.hours.next(time.Date(y, m, day+1, 0, 0, 0, 0, time.UTC)))
	}
	text := said(plan.Held)
	if first.Code == kamino.CodeTooFew {
		text += rejected(plan.Candidates)
	}
	d.ready(status, reason, text)
}

// rejected counts by code why nodes are no candidates. The texts are not used, because they contain
// times that change.
func rejected(all []kamino.Candidate) string {
	count := map[kamino.Code]int{}
	for _, c := range all {
		for _, r := range c.Reasons {
			count[r.Code]++
		}
	}
	var words []string
	for _, code := range slices.Sorted(maps.Keys(count)) {
		words = append(words, fmt.Sprintf("%s: %d", code, count[code]))
	}
	if len(words) == 0 {
		return ""
	}
	return "; rejected nodes, by reason: " + strings.Join(words, ", ") + " (see kamino plan)"
}

func said(verdicts []kamino.Verdict) string {
	texts := make([]string, len(verdicts))
	for i, v := range verdicts {
		texts[i] = v.Text
	}
	return strings.Join(texts, "; ")
}

// only reports whether every verdict has one of the codes.
func only(verdicts []kamino.Verdict, codes ...kamino.Code) bool {
	return !slices.ContainsFunc(verdicts, func(v kamino.Verdict) bool { return !slices.Contains(codes, v.Code) })
}
