package kamino

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnnotationFreshness holds a node's Freshness as JSON. The agent on nodes of Kamino's images
// writes it with the node's own credential: it is a claim, and only shown.
const AnnotationFreshness = "kamino.dev/freshness"

// Freshness is how far a disk is patched, as the agent on it tells. What it does not know, and what
// an earlier agent did not look for, is left out.
type Freshness struct {
	// PackageDigest is the SHA-256 in hex of the packages on the disk, a line each of name, version
	// and architecture, sorted; "" where no package manager is.
	PackageDigest string `json:"packageDigest,omitempty"`
	PackageCount  int    `json:"packageCount,omitempty"`
	// PatchedAt is when the newest package was put on the disk, by the node's clock.
	PatchedAt time.Time `json:"patchedAt,omitzero"`
	// Kernel is the newest one in /boot, which the next boot takes unless the boot loader was told
	// otherwise.
	Kernel string `json:"kernel,omitempty"`
}

// Software is what a node runs, as its kubelet tells
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeStatus).
type Software struct {
	Kernel, OS, Kubelet, Runtime string
	// Images are those in its cache, as many as the kubelet lists: the 50 largest, unless its
	// nodeStatusMaxImages says otherwise
	// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
	Images []CachedImage
}

// CachedImage is a container image that a node need not pull.
type CachedImage struct {
	Name  string `json:"name"` // by digest where the kubelet knows it
	Bytes int64  `json:"bytes"`
}

// tagValue bounds the value of a tag. Azure and AWS take 256 characters and 50 tags
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources,
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html).
const tagValue = 128

// tags are what a version says of what its nodes begin with; what is not known has none.
func (f Freshness) tags(s Software) map[string]string {
	var bytes int64
	for _, image := range s.Images {
		bytes += max(image.Bytes, 0)
	}
	all := map[string]string{
		TagPackages: f.PackageDigest, TagKernel: firstWord(f.Kernel, s.Kernel), TagOS: s.OS, TagKubelet: s.Kubelet, TagRuntime: s.Runtime,
	}
	if f.PackageCount > 0 {
		all[TagPackageCount] = strconv.Itoa(f.PackageCount)
	}
	if !f.PatchedAt.IsZero() {
		all[TagPatched] = f.PatchedAt.UTC().Format(time.RFC3339)
	}
	if len(s.Images) > 0 {
		all[TagImages], all[TagImageBytes] = strconv.Itoa(len(s.Images)), strconv.FormatInt(bytes, 10)
	}
	for key, value := range all {
		if all[key] = cutText(Plain(value), tagValue); value == "" {
			delete(all, key)
		}
	}
	return all
}

// freshness is what a node tells of itself; zero where it tells nothing.
func (n Node) freshness() (f Freshness) {
	if json.Unmarshal([]byte(n.Annotations[AnnotationFreshness]), &f) != nil {
		return Freshness{}
	}
	return f
}

// Compared is how the packages of the next node compare with those of a running one.
type Compared string

// What a comparison of digests can say.
const (
	ComparedSame    Compared = "same"
	ComparedDiffers Compared = "differ"
	ComparedUnknown Compared = "unknown" // the version or the node does not tell
)

// Behind is what the next node of a pool would lack, or have otherwise, than the best node that
// runs there: the Ready one that was patched last.
type Behind struct {
	Node string `json:"node"`
	// Days is how much later the node was patched than the version's disk; nil where either does
	// not tell when.
	Days     *float64  `json:"days,omitempty"`
	Packages Compared  `json:"packages"`
	Differs  []Drifted `json:"differs,omitempty"`
	// Missing are container images in the node's cache that the next one would have to pull; nil
	// where no list of the version's is kept, or it may not be read.
	Missing []CachedImage `json:"imagesNotCached,omitzero"`
}

// Drifted is something that the next node would have in another version than one that runs.
type Drifted struct {
	What    string `json:"what"` // kernel, os, kubelet or runtime
	Next    string `json:"next"`
	Running string `json:"running"`
}

// behind compares a version with the best running node; nil where there is none, or the version
// does not tell what is on it.
func (o overview) behind(next Artifact, now time.Time, signals []Signal) *Behind {
	best, patched := freshest(o.nodes, signals, now)
	if best == nil || next.Tags[TagKernel] == "" {
		return nil
	}
	b := &Behind{Node: best.Name, Packages: ComparedUnknown}
	if digest := best.freshness().PackageDigest; digest != "" && next.Tags[TagPackages] == digest {
		b.Packages = ComparedSame
	} else if digest != "" && next.Tags[TagPackages] != "" {
		b.Packages = ComparedDiffers
	}
	if at, ok := next.patched(); ok && !patched.IsZero() {
		later := 0.0
		if patched.after(at) {
			later = days(patched.Sub(at.Time))
		}
		b.Days = &later
	}
	for _, d := range []Drifted{
		{"kernel", next.Tags[TagKernel], best.Software.Kernel}, {"os", next.Tags[TagOS], best.Software.OS},
		{"kubelet", next.Tags[TagKubelet], best.Software.Kubelet}, {"runtime", next.Tags[TagRuntime], best.Software.Runtime},
	} {
		if d.Running = cutText(Plain(d.Running), tagValue); d.Next != "" && d.Running != "" && d.Next != d.Running {
			b.Differs = append(b.Differs, d)
		}
	}
	return b
}

// patched is when the disk of a version was last patched, as far as anybody knows.
func (a Artifact) patched() (stamp, bool) {
	if at, err := time.Parse(time.RFC3339, a.Tags[TagPatched]); err == nil {
		return stamp{at, true}, true
	}
	return a.built()
}

// freshest is the Ready node that was patched last, by its signals or by its own word; where none
// says when, the one with the newest kernel. Nil: no node is Ready.
func freshest(nodes []Node, signals []Signal, now time.Time) (best *Node, patched stamp) {
	for i := range nodes {
		n := &nodes[i]
		if !n.Ready || n.Deleting {
			continue
		}
		at, known := newestPatch(nodes[i:i+1], signals, now)
		if told := (stamp{n.freshness().PatchedAt, true}); !told.IsZero() && !told.future(now) && (!known || told.after(at)) {
			at = told
		}
		later := best == nil || at.after(patched)
		if best != nil && !later && !patched.after(at) {
			later = cmp.Or(compareKernels(n.Software.Kernel, best.Software.Kernel), strings.Compare(best.Name, n.Name)) > 0
		}
		if later {
			best, patched = n, at
		}
	}
	return best, patched
}

// compareKernels compares two kernels' versions number by number, and then as texts.
func compareKernels(a, b string) int {
	numbers := func(version string) (all []int) {
		for _, digits := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
			n, _ := strconv.Atoi(digits) // too many digits are the largest number
			all = append(all, n)
		}
		return all
	}
	return cmp.Or(slices.Compare(numbers(a), numbers(b)), strings.Compare(a, b))
}

// String is one line for people.
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
