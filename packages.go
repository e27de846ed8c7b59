package kamino

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

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
	if json.Unmarshal([]byte(n.Annotations[AnnotationPackages]), &answer) != nil || answer.Run != run || answer.Nonce != nonce {
		return nil, false
	}
	z, err := gzip.NewReader(bytes.NewReader(answer.List))
	if err != nil {
		return nil, false
	}
	text, err := io.ReadAll(io.LimitReader(z, packagesMost+1))
	if err != nil || len(text) > packagesMost {
		return nil, false
	}
	for line := range strings.Lines(string(text)) {
		list = append(list, Plain(strings.TrimSuffix(line, "\n")))
	}
	return list, true
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
			lacks = append(lacks, CachedImage{Plain(image.Name), image.Bytes})
		}
	}
	return lacks
}

// addLacks tells which images the next node of each pool would have to pull: 1 request for each
// whose version has a list. Who may not read it is told nothing.
func (e *Engine) addLacks(ctx context.Context, all []overview, out []PoolStatus) {
	shelf, ok := e.Cluster.(Shelf)
	for i, o := range all {
		if b := out[i].Behind; ok && b != nil {
			list, err := shelf.List(ctx, o.next().Tags[TagRun])
			at := slices.IndexFunc(o.nodes, func(n Node) bool { return n.Name == b.Node })
			if err == nil && at >= 0 {
				b.Missing = list.lacks(o.nodes[at])
			}
		}
	}
}

// Shelf is a Cluster that keeps a DiskList for each image version, under the run that made it, and
// asks nodes for theirs. Errors are those of [Provider].
type Shelf interface {
	// SaveList keeps the list of a run; one that is there already stays.
	SaveList(ctx context.Context, pool PoolID, run string, list DiskList) error
	// List reads it. ErrNotFound: there is none.
	List(ctx context.Context, run string) (DiskList, error)
	// Lists are the runs of a pool of which there are lists.
	Lists(ctx context.Context, pool PoolID) (runs []string, err error)
	// DeleteList deletes one; one that does not exist is no error.
	DeleteList(ctx context.Context, run string) error
	// AskPackages creates the pod in which the agent writes AnnotationPackages on the node. One of
	// that run that exists is replaced.
	AskPackages(ctx context.Context, node Node, order SealOrder) error
	// ForgetPackages removes that pod and the annotation.
	ForgetPackages(ctx context.Context, node Node, run string) error
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
		r.held.warn("the list of the image's packages is not kept: " + err.Error())
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
		r.held.warn("lists of packages are not pruned: " + err.Error())
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

// PackageDiff is how the packages of a running node differ from those that the next node of its
// pool would have.
type PackageDiff struct {
	Node    string         `json:"node"`
	Pool    string         `json:"pool"`
	Version string         `json:"nextVersion"`
	Same    int            `json:"same"`
	Differs []PackageDrift `json:"differs"`
	Missing []CachedImage  `json:"imagesNotCached"` // images of the node that the next one would have to pull
}

// PackageDrift is a package that is not the same. A side that has several versions of it, as of
// kernels, has them joined by commas; "" is not installed.
type PackageDrift struct {
	Name string `json:"name"`
	Arch string `json:"architecture,omitempty"`
	Next string `json:"next,omitempty"`
	Node string `json:"node,omitempty"`
}

const (
	packagesPause = time.Second
	packagesLimit = 5 * time.Minute
)

// PackageDiff asks a node for its packages, by a pod, and compares them with those of the version
// that the next node of its pool boots from. Of the node it leaves nothing changed.
func (e *Engine) PackageDiff(ctx context.Context, name string) (out PackageDiff, err error) {
	shelf, ok := e.Cluster.(Shelf)
	if !ok {
		return out, fmt.Errorf("compare packages: %w", ErrUnsupported)
	}
	n, err := e.Cluster.Node(ctx, name)
	if err != nil {
		return out, fmt.Errorf("read node %s: %w", name, err)
	}
	id, err := e.Provider.PoolOf(ctx, n.ProviderID)
	if err != nil {
		return out, fmt.Errorf("node %s: %w", name, err)
	}
	all, _, err := e.overviews(ctx, []string{string(id)})
	if err != nil {
		return out, err
	}
	next := all[0].next()
	switch {
	case all[0].err != nil:
		return out, all[0].err
	case next == nil:
		return out, fmt.Errorf("compare packages: the next node of pool %s boots from an image that is no prototype, of which no packages are known", id.Name())
	}
	list, err := shelf.List(ctx, next.Tags[TagRun])
	if errors.Is(err, ErrNotFound) {
		return out, WithHint(fmt.Errorf("compare packages: no package list of version %s is kept", next.Name), "the next update keeps one; earlier kaminos did not")
	} else if err != nil {
		return out, fmt.Errorf("read the packages of version %s: %w", next.Name, err)
	}
	have, err := e.askPackages(ctx, shelf, n)
	if err != nil {
		return out, err
	}
	out = PackageDiff{Node: name, Pool: id.Name(), Version: next.Name}
	out.Same, out.Differs = comparePackages(list.Packages, have)
	out.Missing = list.lacks(n)
	return out, nil
}

// askPackages gets a node's list by a pod, which does not outlive it.
func (e *Engine) askPackages(ctx context.Context, shelf Shelf, n Node) (list []string, err error) {
	switch mark, merr := n.Mark(); {
	case merr != nil:
		return nil, merr
	case mark != nil:
		return nil, fmt.Errorf("node %s is the donor of run %s: its packages are asked for when it is back", n.Name, mark.Run)
	case !n.Ready:
		return nil, fmt.Errorf("node %s is not Ready: no pod can look at its packages", n.Name)
	}
	sum := sha256.Sum256([]byte(n.UID))
	order := SealOrder{Run: "diff-" + hex.EncodeToString(sum[:4]), Nonce: rand.Text()}
	defer func() {
		// Also after a signal, which has ended ctx.
		back, cancel := e.clock().WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if ferr := shelf.ForgetPackages(back, n, order.Run); ferr != nil && !errors.Is(ferr, ErrNotFound) {
			err = errors.Join(err, fmt.Errorf("clean up after the look at node %s: %w", n.Name, ferr))
		}
	}()
	if err := shelf.AskPackages(ctx, n, order); err != nil {
		return nil, fmt.Errorf("ask node %s for its packages: %w", n.Name, err)
	}
	for began := e.now(); ; {
		now, err := e.Cluster.Node(ctx, n.Name)
		if err != nil {
			return nil, fmt.Errorf("read node %s: %w", n.Name, err)
		}
		if list, ok := now.packages(order.Run, order.Nonce); ok {
			return list, nil
		}
		pod, err := e.Cluster.AgentPod(ctx, order.Run, TaskPackages)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read the pod that lists the packages: %w", err)
		case pod.Failed || !pod.Exists:
			return nil, fmt.Errorf("node %s did not tell its packages: %s", n.Name, firstWord(pod.Message, "somebody deleted the pod"))
		case e.now().Sub(began) > packagesLimit:
			return nil, fmt.Errorf("node %s did not tell its packages within %s; the pod is %s", n.Name, packagesLimit, pod.Message)
		}
		if err := e.clock().Sleep(ctx, packagesPause); err != nil {
			return nil, err
		}
	}
}

// comparePackages compares two lists by name and architecture.
func comparePackages(next, node []string) (same int, differs []PackageDrift) {
	all := map[PackageDrift][2][]string{}
	for side, list := range [][]string{next, node} {
		for _, line := range list {
			name, rest, _ := strings.Cut(line, " ")
			version, arch, _ := strings.Cut(rest, " ")
			both := all[PackageDrift{Name: name, Arch: arch}]
			both[side] = append(both[side], version)
			all[PackageDrift{Name: name, Arch: arch}] = both
		}
	}
	differs = []PackageDrift{}
	for _, p := range slices.SortedFunc(maps.Keys(all), func(a, b PackageDrift) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Arch, b.Arch))
	}) {
		both := all[p]
		if slices.Equal(both[0], both[1]) {
			same++
			continue
		}
		p.Next, p.Node = strings.Join(both[0], ","), strings.Join(both[1], ",")
		differs = append(differs, p)
	}
	return same, differs
}
