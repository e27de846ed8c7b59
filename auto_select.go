package kamino

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Rules say which nodes of a pool may become its donor.
type Rules struct {
	Self              string        // node that this process runs on
	Ignore            []string      // names of nodes
	IgnoreAnnotations []string      // a node that carries one of them is ignored
	PendingReboot     []Signal      // any of them: patches are not in effect yet
	LastPatch         []Signal      // when the node was patched; the latest counts
	MinReady          time.Duration // Ready for at least as long, by our clock
	RejectTainted     bool          // reject nodes with NoSchedule or NoExecute taints of others
	RequireLabels     []LabelDemand // a node that lacks one of them is rejected
	FineConditions    []string      // conditions that may be True

	// Image is the newest image of the pool: only nodes patched after it are
	// worth taking. Nil when there is none.
	Image *Artifact
	// AnyPatch lifts that condition: the image is to be renewed for its age.
	AnyPatch bool
	// Bad are versions that were withdrawn. A node that one was built from is
	// not taken again before it is patched.
	Bad []Artifact
}

// Candidate is a node that selection considered.
type Candidate struct {
	Node     string    `json:"node"`
	Rank     int       `json:"rank"` // 1 is the best; 0: rejected
	Patched  string    `json:"patched,omitempty"`
	ReadyFor string    `json:"readyFor,omitempty"` // whole minutes, as Go writes a duration
	Reasons  []Verdict `json:"reasons"`            // why it was rejected, all that apply
}

// Verdict is one reason against a node.
type Verdict struct {
	Code string `json:"code"` // stable, for programs
	Text string `json:"text"`
}

// Select judges every node of a pool and ranks those that may become its donor:
// newest patch level first, where a level is a day because programs stamp the
// same patches on different nodes hours apart, then longest Ready, then by
// name. Candidates come first, in the order of their rank, then the rejected by
// name. It is a pure function of its arguments.
func Select(nodes []Node, rules Rules, now time.Time) []Candidate {
	all := make([]judged, 0, len(nodes))
	for _, n := range nodes {
		j := judged{Rules: rules, Candidate: Candidate{Node: n.Name, Reasons: []Verdict{}}}
		j.role(n)
		j.health(n, now)
		j.patches(n, now)
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b judged) int {
		return cmp.Or(cmp.Compare(b.day, a.day), cmp.Compare(b.ready, a.ready), strings.Compare(a.Node, b.Node))
	})
	out := make([]Candidate, 0, len(all))
	for _, j := range all {
		out = append(out, j.Candidate)
	}
	rank(out)
	return out
}

// SelectPatch judges every node of a pool as one whose packages are to be upgraded, or the one that
// the options name.
func SelectPatch(nodes []Node, o PatchOptions, now time.Time) []Candidate {
	rules := o.Rules
	rules.AnyPatch, rules.Image, rules.Bad, rules.PendingReboot, rules.Self = true, nil, nil, nil, o.Self
	if o.Donor != "" {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Name != o.Donor })
		for i := range nodes { // a person may repair it so
			nodes[i].Taints = slices.DeleteFunc(slices.Clone(nodes[i].Taints), func(t Taint) bool { return t.Key == TaintPatchFailed })
		}
	}
	return Select(nodes, rules, now)
}

// rank numbers the candidates that nothing speaks against, in their order, and puts the others behind
// them, by name.
func rank(all []Candidate) {
	slices.SortStableFunc(all, func(a, b Candidate) int {
		if len(a.Reasons) > 0 && len(b.Reasons) > 0 {
			return strings.Compare(a.Node, b.Node)
		}
		return cmp.Compare(min(len(a.Reasons), 1), min(len(b.Reasons), 1))
	})
	for i := range all {
		if all[i].Rank = 0; len(all[i].Reasons) == 0 {
			all[i].Rank = i + 1
		}
	}
}

// judged is a node that is judged by rules.
type judged struct {
	Rules
	Candidate
	day   int64 // on which it was patched, in seconds since 1970
	ready time.Duration
}

// twins tells each node which other one shows the same machine. A kubelet registers with any
// provider ID, and admission plugin NodeRestriction does not look at it: of two nodes with one
// machine nobody can say which runs on it, so that none is a donor.
func twins(nodes []Node) []Node {
	out, first := slices.Clone(nodes), map[string]int{}
	for i, n := range out {
		id := strings.ToLower(string(n.ProviderID))
		if at, seen := first[id]; seen && id != "" {
			out[i].Twin, out[at].Twin = out[at].Name, n.Name
		} else {
			first[id] = i
		}
	}
	return out
}

// reject adds a reason against a node.
func (c *Candidate) reject(code, text string, args ...any) {
	c.Reasons = append(c.Reasons, Verdict{code, fmt.Sprintf(text, args...)})
}

// role is about what the node is and what others do with it.
func (j *judged) role(n Node) {
	if n.Name == j.Self && j.Self != "" {
		j.reject("self", "this process runs on it")
	}
	if slices.Contains(j.Ignore, n.Name) {
		j.reject("ignored", "listed to be ignored")
	}
	for _, a := range j.IgnoreAnnotations {
		if v, ok := n.Annotations[a]; ok {
			j.reject("ignored", "annotation %s=%s", a, v)
		}
	}
	if n.Twin != "" {
		j.reject("machine", "node %s shows the same machine", n.Twin)
	}
	if n.ControlPlane {
		j.reject("control-plane", "a control plane node")
	}
	if n.OS != "" && n.OS != "linux" {
		j.reject("os", "runs %s", n.OS)
	} else if n.appliance() {
		j.reject("os", "runs %s, which is read-only", n.Software.OS)
	}
	if n.Unschedulable {
		j.reject("cordoned", "cordoned")
	}
	if n.Deleting {
		j.reject("deleting", "being deleted")
	}
	if mark, err := n.Mark(); mark.patches() {
		j.reject("donor", "%s", mark.patching())
	} else if mark != nil {
		j.reject("donor", "donor of run %s", mark.Run)
	} else if err != nil {
		j.reject("donor", "%s", err.Error())
	}
	for _, l := range j.RequireLabels {
		if !l.on(n) {
			j.reject("label", "lacks label %s", l)
		}
	}
	for _, t := range n.Taints {
		switch {
		case t.Key == TaintDeleting:
			j.reject("scale-down", "cluster-autoscaler is deleting it")
		case t.Key == TaintPatchFailed:
			b := n.blocked()
			j.reject("patch-failed", "blocked %s; kamino patch --target-node %s continues", b, n.Name)
		case j.RejectTainted && t.Effect != "PreferNoSchedule" && foreignTaint(n, t):
			j.reject("tainted", "taint %s:%s", t.Key, t.Effect)
		}
	}
}

// foreignTaint leaves out taints that tell what other reasons tell already: our
// own and those that Kubernetes makes of conditions and of a cordon.
func foreignTaint(n Node, t Taint) bool {
	return t.Key != TaintBlock && t.Key != TaintPatchFailed && !strings.HasPrefix(t.Key, "node.kubernetes.io/") &&
		(!n.ControlPlane || !strings.HasPrefix(t.Key, "node-role.kubernetes.io/"))
}

// health is about Ready and all other conditions.
func (j *judged) health(n Node, now time.Time) {
	if !n.Ready {
		j.reject("not-ready", "not Ready")
	} else {
		j.ready = readyTime(n, now)
		j.ReadyFor = j.ready.Truncate(time.Minute).String()
		if j.ready < j.MinReady {
			j.reject("ready-too-short", "Ready for %s, less than %s", j.ready.Truncate(time.Second), j.MinReady)
		}
	}
	for _, k := range n.Conditions {
		if k.Status != "True" || k.Type == "Ready" || slices.Contains(j.FineConditions, k.Type) || j.isSignal(k.Type) {
			continue
		}
		// The pressures of the kubelet and the conditions of the
		// node-problem-detector are all True when something is wrong.
		j.reject("condition", "condition %s is True%s", k.Type, inBrackets(k.Reason))
	}
	for _, s := range j.PendingReboot {
		if v, ok := s.on(n); ok {
			j.reject("pending-reboot", "%s=%s", s, v)
		}
	}
}

// readyTime is how long the node has been Ready. A kubelet writes its conditions
// itself, with their times: it cannot have been Ready for longer than its Node
// object exists, nor since a time that is yet to come.
func readyTime(n Node, now time.Time) time.Duration {
	since := n.ReadySince
	if since.Before(n.Created) {
		since = n.Created
	}
	return max(now.Sub(since), 0)
}

func (j *judged) isSignal(condition string) bool {
	is := func(s Signal) bool { return s.Condition == condition }
	return slices.ContainsFunc(j.PendingReboot, is) || slices.ContainsFunc(j.LastPatch, is)
}

// patches is about when the node was patched.
func (j *judged) patches(n Node, now time.Time) {
	patched, found, problems := lastPatch(n, j.LastPatch)
	j.Reasons = append(j.Reasons, problems...)
	if found {
		j.Patched = patched.String()
		j.day = min(patched.day().Unix(), stamp{Time: now}.day().Unix()) // nobody gains by a day to come
	}
	switch {
	case found && patched.future(now):
		j.reject("patch-in-future", "patched at %s, which is in the future", patched)
	case j.AnyPatch:
	case !found && len(problems) == 0:
		j.reject("no-patch", "has none of %s", joinSignals(j.LastPatch))
	case found && j.Image != nil:
		if built, ok := j.Image.built(); ok && !patched.after(built) {
			j.reject("no-newer-patch", "patched at %s, not after image %s (%s)", j.Patched, j.Image.Name, built)
		}
	}
	for _, v := range j.Bad {
		built, ok := v.built()
		digest, was := n.freshness().PackageDigest, v.Tags[TagPackages]
		switch {
		case v.Tags[TagBuiltFrom] != n.Name:
		case digest != "" && digest == was:
			j.reject("bad-image", "version %s, which was withdrawn, was built from it with the same packages", v.Name)
		case digest != "" && was != "": // another disk than that one's
		case !ok || !found || !patched.after(built):
			j.reject("bad-image", "version %s, which was withdrawn, was built from it", v.Name)
		}
	}
}

// lastPatch is the latest that any of the signals tells. A value that cannot be
// read speaks against the node.
func lastPatch(n Node, signals []Signal) (last stamp, found bool, problems []Verdict) {
	for _, s := range signals {
		v, ok := s.on(n)
		if !ok {
			continue
		}
		at, err := parseStamp(v)
		if err != nil {
			problems = append(problems, Verdict{"patch-unreadable", fmt.Sprintf("%s: %v", s, err)})
			continue
		}
		if !found || at.after(last) {
			last, found = at, true
		}
	}
	return last, found, problems
}

func joinSignals(signals []Signal) string {
	words := make([]string, len(signals))
	for i, s := range signals {
		words[i] = s.String()
	}
	return strings.Join(words, ", ")
}

// Signal is a place on a node where another program says something that
// selection needs to know: an annotation, or a condition. Whatever keeps the
// nodes patched is plugged in here.
type Signal struct {
	Annotation string `json:"annotation,omitempty"`
	Condition  string `json:"condition,omitempty"` // type of a condition that is True
	Label      string `json:"label,omitempty"`     // below node-restriction.kubernetes.io
}

// The annotations of kured, which the original was validated with, and the label of kamino patch.
var (
	KaminoPatched      = Signal{Label: LabelPatched}
	KuredPendingReboot = Signal{Annotation: "weave.works/kured-reboot-in-progress"}
	KuredLastPatch     = Signal{Annotation: "weave.works/kured-most-recent-reboot-needed"}
)

const (
	conditionPrefix = "condition:"
	labelPrefix     = "label:"
)

var (
	annotationName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	conditionType  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_./]*$`)
)

// ParseSignal reads a signal as people write it: the name of an annotation,
// "condition:" and the type of a condition, or "label:" and a label that nodes cannot write.
func ParseSignal(s string) (Signal, error) {
	if c, ok := strings.CutPrefix(s, conditionPrefix); ok {
		if !conditionType.MatchString(c) || c == "Ready" {
			return Signal{}, WithHint(fmt.Errorf("invalid node condition type %q (Ready is not allowed)", c),
				"kubectl describe node lists the conditions")
		}
		return Signal{Condition: c}, nil
	}
	if key, ok := strings.CutPrefix(s, labelPrefix); ok {
		label, err := ParseLabelDemand(key)
		if err != nil || label.Value != "" {
			return Signal{}, WithHint(fmt.Errorf("invalid patch label %q", s), "for instance %s", KaminoPatched)
		}
		return Signal{Label: label.Key}, nil
	}
	if !annotationName.MatchString(s) {
		return Signal{}, WithHint(fmt.Errorf("invalid annotation name %q", s),
			"for instance %s, or condition:TYPE for a node's condition", KuredLastPatch.Annotation)
	}
	return Signal{Annotation: s}, nil
}

// String is what ParseSignal reads.
func (s Signal) String() string {
	if s.Condition != "" {
		return conditionPrefix + s.Condition
	}
	if s.Label != "" {
		return labelPrefix + s.Label
	}
	return s.Annotation
}

// on reads the signal on a node. The value of a condition is the time since
// when it is True.
func (s Signal) on(n Node) (value string, ok bool) {
	if s.Label != "" {
		value, ok = n.Labels[s.Label]
		return value, ok
	}
	if s.Condition == "" {
		value, ok = n.Annotations[s.Annotation]
		return value, ok
	}
	for _, c := range n.Conditions {
		if c.Type == s.Condition && c.Status == "True" {
			return c.Since.UTC().Format(time.RFC3339), true
		}
	}
	return "", false
}

// stamp is a point in time that may be known to the day only.
type stamp struct {
	time.Time
	exact bool
}

func (s stamp) day() time.Time { return s.UTC().Truncate(24 * time.Hour) }

// after compares as closely as both are known: two days, or two times.
func (s stamp) after(t stamp) bool {
	if s.exact && t.exact {
		return s.Time.After(t.Time)
	}
	return s.day().After(t.day())
}

// clockSkew is how far a node's clock may be ahead of ours.
const clockSkew = 5 * time.Minute

// farthestEast is the offset of the time zone in which a day begins first, UTC+14
// (https://data.iana.org/time-zones/tzdb/australasia, Pacific/Kiritimati).
const farthestEast = 14 * time.Hour

// future says whether the time is yet to come, clocks and time zones allowed for.
func (s stamp) future(now time.Time) bool {
	if s.exact {
		return s.Time.After(now.Add(clockSkew))
	}
	return s.day().After(now.Add(farthestEast))
}

func (s stamp) String() string {
	if s.exact {
		return s.UTC().Format(time.RFC3339)
	}
	return s.UTC().Format(time.DateOnly)
}
