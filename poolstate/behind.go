package poolstate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/selection"
)

// Compared is the result of comparing the packages of the next node with those of a running one.
type Compared string

// The results of a comparison of digests.
const (
	ComparedSame    Compared = "same"
	ComparedDiffers Compared = "differ"
	ComparedUnknown Compared = "unknown" // the version or the node has no digest
)

// Behind is what the next node of a pool would lack, or have in another version, compared with the
// best running node: the Ready node that was patched last.
type Behind struct {
	Node string `json:"node"`
	// Days is how much later the node was patched than the version's disk; nil if either time is
	// not known.
	Days     *float64  `json:"days,omitempty"`
	Packages Compared  `json:"packages"`
	Differs  []Drifted `json:"differs,omitempty"`
	// Missing are container images in the node's cache that the next node would have to pull; nil
	// if the version has no list, or if the list may not be read.
	Missing []kamino.CachedImage `json:"imagesNotCached,omitzero"`
}

// Drifted is a component whose version differs between the next node and the running one.
type Drifted struct {
	What    string `json:"what"` // kernel, os, kubelet or runtime
	Next    string `json:"next"`
	Running string `json:"running"`
}

// behind compares a version with the best running node; nil if there is none, or if the version
// does not describe its disk.
func (o State) behind(next kamino.Version, now time.Time, signals []kamino.Signal) *Behind {
	best, patched := freshest(o.Nodes, signals, now)
	if best == nil || next.Software.Kernel == "" {
		return nil
	}
	b := &Behind{Node: best.Name, Packages: ComparedUnknown}
	if digest := best.Freshness().PackageDigest; digest != "" && next.Packages == digest {
		b.Packages = ComparedSame
	} else if digest != "" && next.Packages != "" {
		b.Packages = ComparedDiffers
	}
	if at, ok := next.Patched(); ok && !patched.IsZero() {
		later := 0.0
		if patched.Later(at) {
			later = days(patched.Sub(at.Time))
		}
		b.Days = &later
	}
	is, runs := next.Software, best.Software
	for _, d := range []Drifted{{"kernel", is.Kernel, runs.Kernel}, {"os", is.OS, runs.OS}, {"kubelet", is.Kubelet, runs.Kubelet},
		{"runtime", is.Runtime, runs.Runtime}} {
		if d.Running = kamino.CutText(d.Running, kamino.TagValue); d.Next != "" && d.Running != "" && d.Next != d.Running {
			b.Differs = append(b.Differs, d)
		}
	}
	return b
}

// newestPatch returns the latest patch time of any node, omitting times in the future.
func newestPatch(nodes []kamino.Node, signals []kamino.Signal, now time.Time) (newest kamino.Stamp, known bool) {
	for _, n := range nodes {
		at, found, _ := selection.LastPatch(n, signals)
		if found && !at.StartOfDay().After(now.Add(24*time.Hour)) && (!known || at.Later(newest)) {
			newest, known = at, true
		}
	}
	return newest, known
}

// freshest returns the Ready node that was patched last, by its signals or its own report; if no
// time is known, the node with the newest kernel. Nil: no node is Ready.
func freshest(nodes []kamino.Node, signals []kamino.Signal, now time.Time) (best *kamino.Node, patched kamino.Stamp) {
	for i := range nodes {
		n := &nodes[i]
		if !n.Ready || n.Deleting {
			continue
		}
		at, known := newestPatch(nodes[i:i+1], signals, now)
		if told := (kamino.Stamp{Time: n.Freshness().PatchedAt, Exact: true}); !told.IsZero() && !told.Future(now) &&
			(!known || told.Later(at)) {
			at = told
		}
		later := best == nil || at.Later(patched)
		if best != nil && !later && !patched.Later(at) {
			later = cmp.Or(compareKernels(n.Software.Kernel, best.Software.Kernel), strings.Compare(best.Name, n.Name)) > 0
		}
		if later {
			best, patched = n, at
		}
	}
	return best, patched
}

// compareKernels compares two kernel versions number by number, then as texts.
func compareKernels(a, b string) int {
	numbers := func(version string) (all []int) {
		for _, digits := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
			n, _ := strconv.Atoi(digits) // a number with too many digits counts as the largest
			all = append(all, n)
		}
		return all
	}
	return cmp.Or(slices.Compare(numbers(a), numbers(b)), strings.Compare(a, b))
}

// String describes the difference in one line, for people.
func (b Behind) String() string {
	text := "node " + b.Node
	if b.Days != nil && *b.Days > 0 {
		text += fmt.Sprintf(" by %.1f days", *b.Days)
	}
	var words []string
	for _, d := range b.Differs {
		words = append(words, fmt.Sprintf("%s %s (there %s)", d.What, d.Next, d.Running))
	}
	switch b.Packages {
	case ComparedDiffers:
		words = append(words, "packages differ")
	case ComparedUnknown:
		words = append(words, "packages not compared")
	}
	if len(b.Missing) > 0 {
		words = append(words, fmt.Sprintf("%d images not cached", len(b.Missing)))
	}
	switch {
	case b.Packages != ComparedSame:
	case len(words) > 0:
		words = append(words, "packages the same")
	default:
		words = []string{"the same kernel, OS, kubelet, runtime and packages"}
	}
	return text + ": " + strings.Join(words, ", ")
}

// PackageDigest computes Freshness.PackageDigest of a list.
func PackageDigest(list []string) string {
	sum := sha256.New()
	for _, line := range list {
		sum.Write([]byte(line + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// builtAt returns when a version was built, for programs.
func builtAt(v kamino.Version) string {
	t, err := kamino.ParseBuiltAt(v.BuiltAt)
	if err != nil {
		return v.BuiltAt
	}
	return t.Format(time.RFC3339)
}
