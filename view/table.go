package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/poolstate"
)

// Table prints the status of pools as text; wide prints all columns and runs.
func Table(w io.Writer, pools []poolstate.PoolStatus, wide bool) {
	if len(pools) == 0 {
		fmt.Fprintln(w, "No node of this cluster belongs to a pool.")
		return
	}
	for i, p := range pools {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printPoolStatus(w, p, wide)
	}
}

// distrusted describes the consequence if a pool does not follow its definition.
func distrusted(p poolstate.PoolStatus) string {
	if p.Owner != nil {
		return p.Owner.Name + " writes the model, so that nothing else is done about it: let its spec name the version"
	}
	return "the model is written by version until somebody removes the tag " + kamino.TagPointer + " from image definition " +
		kamino.DefinitionName(p.Name)
}

func printPoolStatus(w io.Writer, p poolstate.PoolStatus, wide bool) {
	fmt.Fprintf(w, "Pool:\t%s\n", p.Name)
	if p.Paused != "" {
		fmt.Fprintf(w, "Paused:\t%s; kamino resume ends it\n", p.Pause())
	}
	if p.Error != "" {
		fmt.Fprintf(w, "Error:\t%s\n", p.Error)
		return
	}
	if p.Definition != "" {
		fmt.Fprintf(w, "Definition:\t%s\n", p.Definition)
	}
	fmt.Fprintf(w, "Model:\t%s\n", Short(p.Model))
	if p.Owner != nil {
		fmt.Fprintf(w, "Owner:\t%s writes the model; kamino does not\n", p.Owner.Name)
	}
	fmt.Fprintf(w, "Nodes:\t%d, %d Ready, capacity %d\n", p.Nodes, p.Ready, p.Capacity)
	printConfigs(w, p, wide)
	fmt.Fprintf(w, "Next node:\t%s\n", nextNode(p))
	if p.Behind != nil {
		fmt.Fprintf(w, "Behind:\t%s\n", p.Behind)
	}
	if p.Strayed != nil {
		fmt.Fprintf(w, "Distrusted:\t%s; %s\n", p.Strayed, distrusted(p))
	}
	if why := p.NotReady(); why != "" {
		fmt.Fprintf(w, "Not Ready:\tnew nodes: %s\n", why)
	}
	if warning := p.Models.Warning(); warning != "" {
		fmt.Fprintf(w, "Warning:\t%s\n", warning)
	}
	if p.Pinned != nil {
		fmt.Fprintf(w, "Pinned:\tby someone else; kamino last wrote %s; kamino update --target-node NODE --adopt-model replaces it\n",
			Short(p.Pinned.Wrote))
	}
	fmt.Fprintf(w, "Rollback to:\t%s\n", rollbackTo(p))
	for _, text := range NextRuns(p) {
		fmt.Fprintf(w, "Next run:\t%s\n", text)
	}
	if u := p.Unfinished; u != nil {
		Unfinished(w, u, p.Paused != "")
	}
	for _, b := range p.Blocked {
		fmt.Fprintf(w, "Blocked:\tnode %s, %s\n\t%s\n", b.Node, b, b.Do())
	}
	for _, c := range p.Canaries {
		fmt.Fprintf(w, "Canary:\t%s of run %s, %s, of version %s; expires %s\n", c.Name, Shown(c.Run), c.State, Short(c.Version),
			Instant(c.Expires))
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(w, "Refused:\t%s\n", r)
	}
	defer printRuns(w, p.Runs, wide)
	if wide {
		defer printConfigTable(w, p.Configs)
	}
	if len(p.Versions) == 0 {
		return
	}
	more := func(columns ...string) string {
		if !wide {
			return ""
		}
		return "\t" + strings.Join(columns, "\t")
	}
	fmt.Fprintln(w, "\nVERSION\tSTATE\tBUILT FROM\tBUILT AT\tPARENT\tINSTANCES"+more("RUN", "SEAL POLICY")+"\tNOTE")
	for _, v := range p.Versions {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d%s\t%s\n", v.Name, versionState(v), Shown(v.BuiltFrom), builtAt(v),
			Shown(v.Parent), v.Instances, more(Shown(v.Run), Shown(v.Policy)), versionNote(v, wide))
	}
}

// rollbackTo describes the target of a rollback.
func rollbackTo(p poolstate.PoolStatus) string {
	if p.RollbackNamed {
		return p.RollbackTarget + ", with --to"
	}
	return cmp.Or(p.RollbackTarget, "nothing")
}

// Unfinished prints a run that has not ended, and what ends it. While the cluster is paused, no
// command continues the run before a resume.
func Unfinished(w io.Writer, u *kamino.Unfinished, paused bool) {
	node := "donor " + Shown(u.Donor)
	switch u.Work {
	case kamino.WorkPatch:
		node = "node " + Shown(u.Donor) + " taken for a patch"
	case kamino.WorkProve:
		node = "proof of version " + u.Version
	}
	where := fmt.Sprintf("process %s, %s, at step %s, begun %s", cmp.Or(u.Process, "none"), node, Shown(u.Step), Instant(u.Started))
	if u.Alive {
		fmt.Fprintf(w, "Running:\t%s: %s, last heartbeat %s ago\n", u.Run, where, silence(u))
	} else {
		fmt.Fprintf(w, "Unfinished:\t%s\n\t%s\n", unfinished(u), where)
	}
	if u.Failure != "" {
		fmt.Fprintf(w, "\tgiving back after: %s\n", Cut(u.Failure, 100))
	}
	if since := u.Away(); !since.IsZero() {
		away := "Donor away"
		if u.Work == kamino.WorkPatch {
			away = "Node away"
		}
		fmt.Fprintf(w, "%s:\t%s, since %s%s\n", away, u.Donor, Instant(since), awayFor(u))
	}
	if u.Alive {
		fmt.Fprintf(w, "\t%s\n", lock.HowToEnd(u.Process))
		return
	}
	gives := "kamino restore gives back what it took"
	if u.Work == kamino.WorkPatch {
		gives += "; a node whose packages may have been changed stays blocked then"
	}
	if u.Work == kamino.WorkProve {
		fmt.Fprintf(w, "\t%s, as does the next run; %skamino promote --prove canary proves version %s again\n", gives,
			first(paused), u.Version)
		return
	}
	fmt.Fprintf(w, "\t%s%s finishes it, %s\n", first(paused), finish(u), gives)
}

// first is what to type before a command that begins a run.
func first(paused bool) string {
	if paused {
		return "kamino resume && "
	}
	return ""
}

// unfinished describes a run whose process gives no sign of life.
func unfinished(u *kamino.Unfinished) string {
	switch {
	case u.Process == "":
		return "run " + u.Run + ", which no process holds"
	case u.Heartbeat.IsZero():
		return "run " + u.Run + ", whose lease was never renewed"
	}
	return fmt.Sprintf("run %s, no heartbeat for %s (its process has probably ended)", u.Run, silence(u))
}

// awayFor describes how long the donor of a run has been away, and that it does not come back by
// itself.
func awayFor(u *kamino.Unfinished) string {
	var text string
	if !u.Heartbeat.IsZero() { // otherwise the time is not known
		text = " (" + ago(u.Heartbeat.Add(silence(u)), u.Away()) + ")"
	}
	if !u.Alive {
		text += "; it may be off until one of these commands ends the run:"
	}
	return text
}

// builtAt formats when a version was built, as other times in the table; a text that is no time
// stays as it is.
func builtAt(v poolstate.VersionStatus) string {
	t, err := time.Parse(time.RFC3339, v.BuiltAt)
	if err != nil {
		return Shown(v.BuiltAt)
	}
	return Instant(t)
}

// silence returns the age of a run's last sign of life.
func silence(u *kamino.Unfinished) time.Duration { return time.Duration(u.Silence) * time.Second }

// shownRuns is how many past runs the table has; -o wide and the other formats have all.
const shownRuns = 5

func printRuns(w io.Writer, runs []kamino.PastRun, wide bool) {
	if len(runs) == 0 {
		return
	}
	most, whole := shownRuns, func(s string) string { return Cut(s, 160) }
	if wide {
		most, whole = len(runs), OneLine
	}
	fmt.Fprintln(w, "\nRUN\tENDED\tWORK\tNODE\tVERSION\tTOOK\tRESULT")
	for _, r := range runs[:min(len(runs), most)] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Run, r.Ended.UTC().Format(time.RFC3339), pastWork(r), Shown(r.Donor),
			Shown(pastVersion(r)),
			Seconds(r.Seconds), whole(pastResult(r)))
	}
	if more := len(runs) - most; more > 0 {
		fmt.Fprintf(w, "%d earlier ones: kamino status -o wide\n", more)
	}
}

// pastWork returns the command of a run that has ended.
func pastWork(r kamino.PastRun) string {
	switch {
	case r.Work != "":
		return string(r.Work)
	case r.Verb != "":
		return string(r.Verb)
	}
	return "update"
}

// pastVersion returns the version that a run made or promoted; "" for a patch.
func pastVersion(r kamino.PastRun) string {
	if r.Work == kamino.WorkPatch {
		return ""
	}
	return cmp.Or(r.Version, r.Withdrawn, r.Pointed)
}

// pastResult describes the result of a run that has ended.
func pastResult(r kamino.PastRun) string {
	switch {
	case r.Failure != "" && r.Work == kamino.WorkPatch:
		return "patch failed: " + r.Failure
	case r.Work == kamino.WorkPatch && r.Packages == 0:
		return "checked the node's packages, nothing to upgrade"
	case r.Work == kamino.WorkPatch:
		return fmt.Sprintf("patched the node, %d packages changed", r.Packages)
	case r.Failure != "" && r.Verb != "":
		return fmt.Sprintf("%s failed: %s", r.Verb, r.Failure)
	case r.Failure != "":
		return "failed: " + r.Failure
	case r.Verb == kamino.VerbPromote:
		return "promoted " + r.Pointed
	case r.Verb == kamino.VerbRollback:
		return "rolled back to " + r.Pointed
	case r.Verb == kamino.VerbWithdraw && r.Pointed == "":
		return fmt.Sprintf("withdrew %s: %s", r.Withdrawn, r.Reason)
	case r.Verb == kamino.VerbWithdraw:
		return fmt.Sprintf("withdrew %s: %s; next node boots from %s", r.Withdrawn, r.Reason, r.Pointed)
	}
	return "ok"
}

func nextNode(p poolstate.PoolStatus) string {
	if slices.ContainsFunc(p.Refusals, func(r kamino.Refusal) bool { return r.Code == kamino.CodeNoImage }) {
		return "cannot boot: its image " + p.Model + " does not exist"
	}
	if p.Next == "" {
		return "boots from an image that is not a prototype"
	}
	text := "boots from " + p.Next
	for _, v := range p.Versions {
		if proof := proofNote(v); v.Name == p.Next && proof != "" {
			text += ", " + proof
		}
	}
	if p.NextAgeDays != nil {
		text += fmt.Sprintf(", %.1f days old", *p.NextAgeDays)
	}
	if p.MissesDays != nil {
		text += fmt.Sprintf(", misses %.1f days of patches", *p.MissesDays)
	}
	return text
}

func versionState(v poolstate.VersionStatus) string {
	switch {
	case v.State == kamino.Deleting:
		return "deleting"
	case v.State == kamino.Creating, v.State == kamino.Succeeded && !v.Ready:
		return fmt.Sprintf("%s %d%%", v.Phase, v.Percent)
	}
	return string(v.Phase)
}

// Unproved is the state of a version that nobody has examined.
const Unproved = "unproved"

// proofNote describes how the proof ended of a version that new nodes boot from, or may; "" if it
// passed, or if that does not matter.
func proofNote(v poolstate.VersionStatus) string {
	switch {
	case v.Unaccepted:
		return "its instances would run the owner's bootstrap: kamino plan shows how to accept it"
	case v.Phase == kamino.PhaseWaiting:
		return "passed; kamino promote makes new nodes boot from it"
	case v.Proven(), v.Phase != kamino.PhaseHidden && v.Phase != kamino.PhasePromoted:
		return ""
	case v.Proof == "", v.Proof == "omitted":
		return Unproved
	case v.Proof == "wanted":
		return Unproved + " so far"
	}
	return "proof " + v.Proof
}

func versionNote(v poolstate.VersionStatus, wide bool) string {
	var notes []string
	if v.Bad != "" && v.Instances > 0 {
		notes = append(notes, "withdrawn, and in use by "+boot.Count(v.Instances, "instance"))
	}
	switch {
	case v.State == kamino.Failed && v.Phase != kamino.PhaseFailed:
		notes = append(notes, "last change failed: "+cmp.Or(v.Failure, "unknown reason"))
	case v.Failure != "":
		notes = append(notes, v.Failure)
	}
	if v.InModel {
		notes = append(notes, "in the model")
	}
	if v.OfFormer {
		notes = append(notes, "of an earlier pool of this name, and never chosen unless named")
	}
	if proof := proofNote(v); proof != "" {
		notes = append(notes, proof)
	}
	if v.BadAncestor != "" {
		notes = append(notes, "it descends from "+v.BadAncestor+", which was withdrawn")
	}
	if v.Bad != "" {
		notes = append(notes, "bad: "+v.Bad)
	} else if v.Excluded && v.Phase == kamino.PhasePromoted {
		notes = append(notes, "excluded from latest")
	}
	if v.Outnumbered != "" {
		notes = append(notes, "never the latest: its name counts as earlier than "+v.Outnumbered)
	}
	if u := v.Unknown; u != nil && u.Count > 0 {
		notes = append(notes, fmt.Sprintf("%d unknown files (%s)", u.Count, u.Mode))
	}
	note := strings.Join(notes, "; ")
	if wide && note != "" {
		return OneLine(note)
	}
	return Shown(note)
}
