package view

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/render"
	"kamino.dev/kamino/poolstate"
)

// The parts of the page, which contains each of them, so that it needs no other file.
var (
	//go:embed page/page.tmpl
	pageText string
	//go:embed page/page.css
	pageStyle string

	// Each value of the page is in text or in quotes, where HTML's escapes work.
	pageTemplate = render.Must(render.New("page", pageText, nil, html.EscapeString))
)

// The moods of the page and of its parts, worst first.
const (
	moodBad  = "bad"  // somebody should act now
	moodWarn = "warn" // somebody should look during the day
	moodInfo = "info"
	moodGood = "good"
)

type (
	pageView struct {
		Title, Headline, Mood, At, Context string
		Policy                             render.Raw
		Style                              render.Raw
		Notices, More                      []pageNotice // More is folded away
		Pools                              []pagePool
	}
	pageNotice struct {
		Mood, Pool, ID, What, Why string
		Type                      []string // the commands to type
	}
	pagePool struct {
		ID, Name, Mood, Error, Next, Age, Misses, Ready, Now string
		Facts                                                []pageFact
		Run                                                  *pageRun
		Picture                                              *pagePicture
		Boots                                                *pageBoots
		Waterfalls                                           *pagePicture
		Versions                                             []pageVersion
		Runs                                                 []pagePast
	}
	pageFact struct{ Name, Text string }
	pageRun  struct {
		Title, Text string
		Steps       []pageStep
	}
	pageStep    struct{ Name, Does, State string }
	pagePicture struct {
		Pool, Text string
		SVG        render.Raw
	}
	pageBoots struct {
		Pool, Text, Besides string
		SVG                 render.Raw
	}
	pageVersion struct {
		Name, State, Donor, Built, Parent, Note string
		Instances                               int
	}
	pagePast struct{ Mood, Ended, Run, Donor, Version, Took, Away, Result string }
)

// Page writes the status of pools as one self-contained HTML page. What a person on call must
// know comes first, with what to type.
func Page(w io.Writer, pools []poolstate.PoolStatus, at time.Time) error {
	v := pageView{Title: "Kamino: status", At: at.UTC().Format(time.RFC3339), Style: render.Raw(pageStyle)}
	v.Policy = render.Raw(contentPolicy())
	for _, p := range pools {
		notices := poolNotices(p, at)
		v.Notices = append(v.Notices, notices...)
		v.Pools = append(v.Pools, poolView(p, notices, at))
	}
	if len(pools) > 0 && pools[0].Paused != "" { // the pause of the whole cluster is shown once
		v.Notices = append(v.Notices, pageNotice{Mood: moodWarn, What: "The cluster is paused:", Why: pools[0].Pause().String(),
			Type: []string{"kamino resume"}})
	}
	slices.SortStableFunc(v.Notices, func(a, b pageNotice) int { return cmp.Compare(severity(a.Mood), severity(b.Mood)) })
	v.Mood, v.Headline = headline(pools, v.Notices)
	if n := unfolded(v.Notices); n < len(v.Notices) {
		v.Notices, v.More = v.Notices[:n], v.Notices[n:]
	}
	v.Context = boot.Count(len(pools), "pool")
	return pageTemplate.Execute(w, v)
}

// contentPolicy allows the page only its own style (https://www.w3.org/TR/CSP3/).
func contentPolicy() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func severity(mood string) int {
	return slices.Index([]string{moodBad, moodWarn, moodInfo, moodGood}, mood)
}

// unfolded returns how many notices are shown at once: all bad ones, and as many others as fit on a
// screen.
func unfolded(notices []pageNotice) int {
	bad := slices.IndexFunc(notices, func(n pageNotice) bool { return n.Mood != moodBad })
	if bad < 0 {
		return len(notices)
	}
	return min(max(bad, 6), len(notices))
}

// away returns since when the donor of an unfinished run may be off; zero if it is not.
func away(p poolstate.PoolStatus) time.Time {
	if u := p.Unfinished; u != nil {
		return u.Away()
	}
	return time.Time{}
}

// headline describes what people look for first: whether a node is away.
func headline(pools []poolstate.PoolStatus, notices []pageNotice) (mood, text string) {
	var donors []string
	for _, p := range pools {
		if !away(p).IsZero() {
			donors = append(donors, p.Unfinished.Donor)
		}
	}
	mood = moodGood
	if len(notices) > 0 && notices[0].Mood != moodInfo {
		mood = notices[0].Mood
	}
	switch {
	case len(pools) == 0:
		return moodWarn, "No node of this cluster belongs to a pool."
	case len(donors) > 1:
		return mood, fmt.Sprintf("%d donors are away: %s", len(donors), strings.Join(donors, ", "))
	case len(donors) == 1:
		return mood, "A donor is away: " + donors[0]
	case slices.ContainsFunc(pools, func(p poolstate.PoolStatus) bool { return p.Error != "" }):
		return mood, "Not every pool can be read"
	}
	return mood, "No donor is away"
}

// poolNotices returns what somebody should know about a pool.
func poolNotices(p poolstate.PoolStatus, now time.Time) (out []pageNotice) {
	add := func(mood, what, why string, commands ...string) {
		out = append(out, pageNotice{Mood: mood, Pool: p.Name, ID: anchor(p), What: what, Why: why, Type: commands})
	}
	if u := p.Unfinished; u != nil {
		since, word := away(p), "donor"
		if u.Work == kamino.WorkPatch {
			word = "patched node"
		}
		switch {
		case u.Alive && !since.IsZero():
			add(moodInfo, fmt.Sprintf("%s %s has been away for %s", word, u.Donor, ago(now, since)),
				fmt.Sprintf("run %s is at step %s, last heartbeat %s ago", u.Run, Shown(u.Step), silence(u)))
		case u.Alive:
			add(moodInfo, "a run is active", fmt.Sprintf("%s, at step %s", u.Run, Shown(u.Step)))
		case !since.IsZero():
			add(moodBad, fmt.Sprintf("%s %s has been away for %s, and its run has probably ended", word, u.Donor, ago(now, since)),
				silentRun(u)+"; finish it, or give back what it took:", first(p.Paused != "")+finish(u), "kamino restore")
		case u.Work == kamino.WorkProve:
			add(moodBad, "the proof of version "+u.Version+" was interrupted",
				unfinished(u)+"; give back what it took, and prove it again:",
				"kamino restore", first(p.Paused != "")+"kamino promote --pool "+p.Name+" --version "+u.Version+" --prove canary")
		default:
			add(moodBad, "a run was interrupted", unfinished(u)+"; finish it, or give back what it took:", first(p.Paused != "")+finish(u),
				"kamino restore")
		}
	}
	if p.Error != "" {
		add(moodBad, "cannot be read", p.Error)
		return out
	}
	for _, b := range p.Blocked {
		add(moodWarn, "node "+b.Node+" stays blocked after a patch", b.String()+"; continue and examine it, or let it take pods as it is:",
			"kamino patch --target-node "+b.Node, "kubectl taint node "+b.Node+" "+kamino.TaintPatchFailed+"-")
	}
	if p.Ready < p.Nodes {
		add(moodWarn, fmt.Sprintf("%d of %d nodes are not Ready", p.Nodes-p.Ready, p.Nodes), "")
	}
	if len(p.Runs) > 0 && p.Runs[0].Failure != "" {
		add(moodWarn, "the last run failed", fmt.Sprintf("%s: %s", ended(p.Runs[0]), Cut(p.Runs[0].Failure, 300)))
	}
	if p.Strayed != nil {
		add(moodWarn, "new nodes did not boot from the next image", fmt.Sprintf("%s; %s", p.Strayed, distrusted(p)))
	}
	if why := p.NotReady(); why != "" {
		add(moodBad, "new nodes are not Ready", why)
	}
	if failed := p.FailedConfigs(); len(failed) > 0 {
		add(moodWarn, boot.Count(len(failed), "node")+" refused a NodeConfig, or cannot read it", failed[0].String())
	}
	if warning := p.Models.Warning(); warning != "" {
		add(moodWarn, "many models are in use", warning)
	}
	for _, v := range p.Versions {
		switch {
		case v.Phase == kamino.PhaseWaiting:
			add(moodInfo, "version "+v.Name+" passed its proof and waits", "", "kamino promote --pool "+p.Name)
		case v.Bad != "" && v.Instances > 0:
			add(moodWarn, nodesRun(v.Instances)+" from version "+v.Name+", which was withdrawn", v.Bad)
		}
	}
	if p.Pinned != nil {
		add(moodInfo, "somebody pinned the model", "runs leave it alone until", "kamino update --target-node NODE --adopt-model")
	}
	for _, c := range p.Canaries {
		if p.Unfinished == nil && now.After(c.Expires) {
			add(moodWarn, "canary "+c.Name+" was left behind", "expired "+Instant(c.Expires), "kamino restore")
		}
	}
	return out
}

func silentRun(u *kamino.Unfinished) string {
	if u.Process == "" || u.Heartbeat.IsZero() {
		return unfinished(u)
	}
	return fmt.Sprintf("run %s of process %s: last heartbeat %s ago", u.Run, u.Process, silence(u))
}

// finish returns the command that continues an interrupted run.
func finish(u *kamino.Unfinished) string {
	switch {
	case u.Work == kamino.WorkPatch && u.Donor != "":
		return "kamino patch --target-node " + u.Donor
	case u.Donor == "":
		return "kamino auto-update"
	}
	return "kamino update --target-node " + u.Donor
}

func poolView(p poolstate.PoolStatus, notices []pageNotice, now time.Time) pagePool {
	v := pagePool{ID: anchor(p), Name: p.Name, Error: p.Error, Next: p.Next, Age: days(p.NextAgeDays), Misses: days(p.MissesDays),
		Ready: fmt.Sprintf("%d of %d", p.Ready, p.Nodes), Now: "nothing to do"}
	if len(notices) > 0 {
		v.Mood, v.Now = notices[0].Mood, notices[0].What
	}
	if p.Error == "" {
		v.Facts = facts(p)
		v.Picture, v.Boots, v.Waterfalls = lineage(p), boots(p), waterfalls(p)
	}
	if p.Unfinished != nil {
		v.Run = runView(p, now)
	}
	for _, s := range p.Versions {
		v.Versions = append(v.Versions, pageVersion{Name: s.Name, State: versionState(s), Donor: Shown(s.BuiltFrom), Built: builtAt(s),
			Parent: Shown(Short(s.Parent)), Instances: s.Instances, Note: versionNote(s, true)})
	}
	for _, r := range p.Runs {
		past := pagePast{Ended: ended(r), Run: r.Run, Donor: Shown(r.Donor), Version: Shown(pastVersion(r)), Took: Seconds(r.Seconds),
			Away: "-", Result: pastResult(r)}
		if r.AwaySeconds > 0 {
			past.Away = Seconds(r.AwaySeconds)
		}
		if r.Failure != "" {
			past.Mood = moodBad
		}
		v.Runs = append(v.Runs, past)
	}
	return v
}

func facts(p poolstate.PoolStatus) []pageFact {
	f := []pageFact{{"Next node", nextNode(p)}}
	for _, text := range NextRuns(p) {
		f = append(f, pageFact{"Next run", text})
	}
	if len(p.Configs) > 0 {
		f = append(f, pageFact{"NodeConfig", ranConfigs(p)})
	}
	if p.Behind != nil {
		f = append(f, pageFact{"Behind the best running node", p.Behind.String()})
	}
	f = append(f, pageFact{"Nodes", fmt.Sprintf("%d, %d Ready, capacity %d", p.Nodes, p.Ready, p.Capacity)},
		pageFact{"Model", Short(p.Model)}, pageFact{"Rollback to", rollbackTo(p)})
	if p.Patched != "" {
		f = append(f, pageFact{"Newest patch of a node", p.Patched})
	}
	if p.Owner != nil {
		f = append(f, pageFact{"Owner of the model", p.Owner.Name})
	}
	for _, c := range p.Canaries {
		f = append(f, pageFact{"Canary", fmt.Sprintf("%s, %s, of version %s", c.Name, c.State, Short(c.Version))})
	}
	for _, r := range p.Refusals {
		f = append(f, pageFact{"Refused", r.String()})
	}
	return f
}

// runView shows at which step of the pipeline an unfinished run is.
func runView(p poolstate.PoolStatus, now time.Time) *pageRun {
	u := p.Unfinished
	r := &pageRun{Title: "Run " + u.Run, Text: "At step " + Shown(u.Step)}
	if u.Intent != "" {
		r.Text += ": " + u.Intent
	}
	if since := away(p); !since.IsZero() {
		r.Text += fmt.Sprintf(". Donor %s has been away since %s (%s)", u.Donor, Instant(since), ago(now, since))
	}
	if u.Failure != "" {
		r.Text += ". It gives back after: " + Cut(u.Failure, 300)
	}
	if !u.Alive {
		r.Title += ", interrupted"
	}
	steps := engine.Pipeline()
	if u.Work == kamino.WorkProve {
		steps = engine.ProvePipeline()
	}
	at := slices.IndexFunc(steps, func(s engine.Step) bool { return s.Name == u.Step })
	if at < 0 {
		return r
	}
	for i, s := range steps {
		state := "later"
		if i < at {
			state = "done"
		} else if i == at {
			state = "now"
		}
		r.Steps = append(r.Steps, pageStep{Name: s.Name, Does: s.Does, State: state})
	}
	return r
}

// ago formats a duration for people, to the minute once it is that long.
func ago(now, since time.Time) string {
	d := max(now.Sub(since), 0)
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func ended(r kamino.PastRun) string { return r.Ended.UTC().Format("2006-01-02 15:04 UTC") }

func days(d *float64) string {
	if d == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f days", *d)
}

// nodesRun describes how many nodes run.
func nodesRun(n int) string {
	if n == 1 {
		return "1 node runs"
	}
	return boot.Count(n, "node") + " run"
}

// anchor is the ID of a pool's element: its name, for people who read links, and a part that
// differs for each pool, because two resource groups may have a pool of the same name.
func anchor(p poolstate.PoolStatus) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, p.Name)
	sum := sha256.Sum256([]byte(string(p.Pool) + " " + p.Name))
	return fmt.Sprintf("pool-%s-%x", name, sum[:4])
}
