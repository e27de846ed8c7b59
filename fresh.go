package kamino

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnnotationFreshness holds a node's Freshness as JSON. The agent on nodes of Kamino's images
// writes it with the node's own credential: it is a claim, and only shown.
const AnnotationFreshness = "kamino.dev/freshness"

// Freshness is how far a disk is patched, as the agent on it reports. What it does not know is
// empty.
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

// Software is what a node runs, as its kubelet reports
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
		TagPackages: f.PackageDigest, TagKernel: cmp.Or(f.Kernel, s.Kernel), TagOS: s.OS, TagKubelet: s.Kubelet, TagRuntime: s.Runtime,
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
	if readPlain([]byte(n.Annotations[AnnotationFreshness]), &f) != nil {
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
		if d.Running = cutText(d.Running, tagValue); d.Next != "" && d.Running != "" && d.Next != d.Running {
			b.Differs = append(b.Differs, d)
		}
	}
	return b
}

// newestPatch is the latest patch that any node tells of, leaving out those
// that are yet to come.
func newestPatch(nodes []Node, signals []Signal, now time.Time) (newest stamp, known bool) {
	for _, n := range nodes {
		at, found, _ := lastPatch(n, signals)
		if found && !at.day().After(now.Add(24*time.Hour)) && (!known || at.after(newest)) {
			newest, known = at, true
		}
	}
	return newest, known
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

// AnnotationPackages is where the agent writes what is installed on its node, for the run that its
// nonce names: a list of packages as base64 of gzip in JSON.
const AnnotationPackages = "kamino.dev/packages"

// packagesMost bounds a list of packages, in bytes; some 50 a package.
const packagesMost = 1 << 20

// packages reads what the node wrote for an order; ok is false when it did not, or it cannot be
// read. The list is the node's own word, as long as no receipt has its digest.
func (n Node) packages(run, nonce string) (list []string, ok bool) {
	var answer struct {
		Run, Nonce string
		List       []byte
	}
	if readPlain([]byte(n.Annotations[AnnotationPackages]), &answer) != nil || answer.Run != run || answer.Nonce != nonce {
		return nil, false
	}
	text, err := unpack(answer.List, packagesMost)
	if err != nil {
		return nil, false
	}
	for line := range strings.Lines(string(text)) {
		list = append(list, Plain(strings.TrimSuffix(line, "\n")))
	}
	return list, true
}

// unpack is what a node compressed with gzip, of at most so many bytes.
func unpack(packed []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return data, err
}

// packageDigest is Freshness.PackageDigest of a list.
func packageDigest(list []string) string {
	sum := sha256.New()
	for _, line := range list {
		sum.Write([]byte(line + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// DiskList is what is on the disk of a version, by name.
type DiskList struct {
	Packages []string // "NAME VERSION ARCHITECTURE" each, sorted
	Images   []CachedImage
}

// lacks are the images in the cache of a node that are not on the list.
func (l DiskList) lacks(n Node) []CachedImage {
	lacks := []CachedImage{}
	for _, image := range n.Software.Images {
		if !slices.ContainsFunc(l.Images, func(i CachedImage) bool { return i.Name == image.Name }) {
			lacks = append(lacks, image)
		}
	}
	return lacks
}

// addLacks tells which images the next node of each pool would have to pull: 1 request for each
// whose version has a list. Who may not read it is told nothing.
func (e *Engine) addLacks(ctx context.Context, all []overview, out []PoolStatus) {
	shelf, ok := e.Cluster.(Shelf)
	if !ok {
		return
	}
	for i, o := range all {
		b := out[i].Behind
		if b == nil {
			continue
		}
		list, err := shelf.List(ctx, o.next().Tags[TagRun])
		at := slices.IndexFunc(o.nodes, func(n Node) bool { return n.Name == b.Node })
		if err == nil && at >= 0 {
			b.Missing = list.lacks(o.nodes[at])
		}
	}
}

// saveList keeps what the receipt's disk holds. Without it an image is as good, and a difference by
// name cannot be told.
func (r *Run) saveList(ctx context.Context, n Node, receipt Receipt) {
	shelf, ok := r.engine.Cluster.(Shelf)
	list, told := n.packages(receipt.Run, receipt.Nonce)
	if !ok || !told || packageDigest(list) != receipt.PackageDigest {
		return
	}
	if err := shelf.SaveList(ctx, r.pool.ID, receipt.Run, DiskList{list, n.Software.Images}); err != nil {
		r.held.warn("the package list of the image was not saved: " + err.Error())
	}
}

// pruneLists deletes the lists of which there is no version any more.
func (r *Run) pruneLists(ctx context.Context, versions []Artifact) (next Next, any bool) {
	shelf, ok := r.engine.Cluster.(Shelf)
	if !ok {
		return Next{}, false
	}
	runs, err := shelf.Lists(ctx, r.pool.ID)
	if err != nil {
		r.held.warn("old package lists were not deleted: " + err.Error())
		return Next{}, false
	}
	runs = slices.DeleteFunc(runs, func(run string) bool {
		return run == r.held.run || slices.ContainsFunc(versions, func(v Artifact) bool { return v.Tags[TagRun] == run })
	})
	if len(runs) == 0 {
		return Next{}, false
	}
	return act(ActDeleteLists, "delete the package lists of versions that are gone", func(ctx context.Context) (err error) {
		for _, run := range runs {
			err = errors.Join(err, shelf.DeleteList(ctx, run))
		}
		return err
	}), true
}

var (
	timeInText = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})`)
	dayInText  = regexp.MustCompile(`(^|[^0-9])([0-9]{4}-[0-9]{2}-[0-9]{2})([^0-9]|$)`)
)

// parseStamp finds the first time (RFC 3339) or else the first date
// (YYYY-MM-DD) anywhere in a text.
func parseStamp(text string) (stamp, error) {
	// Most values are nothing but a time, and thousands of nodes have one.
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return stamp{t.UTC(), true}, nil
	}
	if t, err := time.Parse(PatchedFormat, text); err == nil {
		return stamp{t.UTC(), true}, nil
	}
	for _, m := range timeInText.FindAllString(text, -1) {
		if t, err := time.Parse(time.RFC3339, strings.ToUpper(m)); err == nil {
			return stamp{t.UTC(), true}, nil
		}
	}
	for _, m := range dayInText.FindAllStringSubmatch(text, -1) {
		if t, err := time.Parse(time.DateOnly, m[2]); err == nil {
			return stamp{t, false}, nil
		}
	}
	return stamp{}, fmt.Errorf("%q holds no date (RFC 3339 or YYYY-MM-DD)", text)
}

// builtAt is when a version was built, for programs.
func builtAt(v Artifact) string {
	t, err := parseBuiltAt(v.Tags[TagBuiltAt])
	if err != nil {
		return v.Tags[TagBuiltAt]
	}
	return t.Format(time.RFC3339)
}

func parseBuiltAt(text string) (time.Time, error) {
	// The original wrote the local time of its pod, which is UTC in containers.
	return time.Parse("2006-01-02 15:04:05", text)
}
