package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

// Former versions kept leases and seal pods in the namespace that --namespace or POD_NAMESPACE
// named. A lease there counts until its run and its ledger have moved here, which the next taking
// of the pool does:
//
//  1. the former lease gets format 2, which no former version touches. That write is
//     conditional, so a process that still holds it fails at its next one. An account that may
//     only read there goes without: it has watched the lease for its duration. If runs hold
//     leases in several namespaces, all are watched, and all get the format; the lease of one is
//     taken over, and those of the others count as held until the pool is free.
//  2. the lease here is written with what stood there, and notes what it took over. A lease that
//     changes afterwards lives again, and counts again.
//
// Only namespaces that somebody named are believed: whoever may write leases in any other could
// otherwise write the model of a pool.
const (
	// annotationMoved on a former lease is the resource version at which it was retired.
	annotationMoved = "kamino.dev/moved"
	// movedPrefix and a namespace, on the lease here: uid/version of what it took over there.
	movedPrefix = "moved.kamino.dev/"
	// movedFormat is the format of a former lease that was retired.
	movedFormat = 2
)

// revision makes the next write of a lease conditional, on former leases too. Without any of
// those its text is the resource version of the lease.
type revision struct {
	Here   string        `json:"here,omitempty"`
	Former []formerLease `json:"former,omitempty"`
}

// formerLease is a lease in another namespace that was not taken over yet.
type formerLease struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	At        string `json:"at"`             // resource version
	Seen      string `json:"seen"`           // uid/version at which it was last used
	Take      bool   `json:"take,omitempty"` // with the next write
	// Held: a run holds it. Its process is fenced with the next write, whoever's lease that takes.
	Held bool `json:"held,omitempty"`
}

func (r revision) String() string {
	if len(r.Former) == 0 {
		return r.Here
	}
	text, _ := json.Marshal(r) // strings and booleans always encode
	return string(text)
}

func parseRevision(text string) (revision, error) {
	if !strings.HasPrefix(text, "{") {
		return revision{Here: text}, nil
	}
	var r revision
	err := json.Unmarshal([]byte(text), &r)
	return r, err
}

// lastUse tells one use of a former lease from the next; retiring it is none.
func lastUse(l *coordinationv1.Lease) string {
	at := l.ResourceVersion
	if then := l.Annotations[annotationMoved]; then != "" {
		at = then
	}
	return string(l.UID) + "/" + at
}

// allLeases lists leases of every namespace, or where that is not allowed, those here. Who was
// allowed to a moment ago is not told that there are none elsewhere.
func (c *Cluster) allLeases(ctx context.Context, opts metav1.ListOptions) ([]coordinationv1.Lease, error) {
	items, err := c.leasesIn(ctx, metav1.NamespaceAll, opts)
	if err == nil {
		c.seesAll.Store(true)
	} else if errors.Is(err, kamino.ErrForbidden) && !c.seesAll.Load() {
		items, err = c.leasesIn(ctx, kamino.SystemNamespace, opts)
	}
	return items, err
}

func (c *Cluster) leasesIn(ctx context.Context, namespace string, opts metav1.ListOptions) ([]coordinationv1.Lease, error) {
	var out []coordinationv1.Lease
	err := pages(ctx, c.api.leases(namespace), opts, "list leases.coordination.k8s.io -n "+kamino.SystemNamespace, func() { out = nil }, func(list *coordinationv1.LeaseList) {
		out = append(out, list.Items...)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ours says whether a lease in another namespace looks like one of Kamino's.
func ours(l *coordinationv1.Lease) bool {
	return l.Labels[labelManagedBy] == managedBy && l.Annotations[annotationPool] != ""
}

func (c *Cluster) believes(namespace string) bool {
	return namespace == metav1.NamespaceSystem || slices.Contains(c.opts.Former, namespace)
}

// former reads those leases of other namespaces that here has not taken over, by namespace.
func (c *Cluster) former(here *coordinationv1.Lease, elsewhere []coordinationv1.Lease) ([]kamino.Lease, revision, error) {
	var leases []kamino.Lease
	var at revision
	for i := range elsewhere {
		l := &elsewhere[i]
		if holder := l.Spec.HolderIdentity; holder != nil && c.believes(l.Namespace) {
			c.homes.Store(*holder, l.Namespace)
		}
		if here != nil && here.Annotations[movedPrefix+l.Namespace] == lastUse(l) {
			continue
		}
		if !c.believes(l.Namespace) {
			return nil, revision{}, kamino.WithHint(
				fmt.Errorf("lease %s/%s: %w: --namespace does not name that namespace", l.Namespace, l.Name, kamino.ErrForbidden),
				"if a former version of kamino ran there, add --namespace %s once; else delete it: kubectl delete lease -n %[1]s %s", l.Namespace, l.Name)
		}
		read, err := readLease(l, movedFormat)
		if err != nil {
			return nil, revision{}, err
		}
		leases = append(leases, read)
		at.Former = append(at.Former, formerLease{Namespace: l.Namespace, Name: l.Name, At: l.ResourceVersion, Seen: lastUse(l), Held: read.Holder != ""})
	}
	return leases, at, nil
}

// standing is the lease of a pool as all namespaces together tell it: here's, while a run holds
// it; else a former one that a run holds; else a free one with everybody's ledger.
func (c *Cluster) standing(pool kamino.PoolID, here *coordinationv1.Lease, elsewhere []coordinationv1.Lease) (kamino.Lease, error) {
	out := kamino.Lease{Pool: pool}
	var at string
	if here != nil {
		var err error
		if out, err = readLease(here, leaseFormat); err != nil {
			return kamino.Lease{}, err
		}
		at = here.ResourceVersion
	}
	former, rev, err := c.former(here, elsewhere)
	if err != nil {
		return kamino.Lease{}, err
	}
	if out.Holder != "" || len(former) == 0 {
		return out, nil
	}
	held := slices.IndexFunc(former, func(l kamino.Lease) bool { return l.Holder != "" })
	ledger, epoch := out.Ledger, out.Epoch
	for i, l := range former {
		ledger, epoch = joinLedgers(ledger, l.Ledger), max(epoch, l.Epoch)
		rev.Former[i].Take = held < 0 || held == i
	}
	if held >= 0 {
		out = former[held]
	}
	rev.Here = at
	out.Pool, out.Ledger, out.Epoch, out.Revision = pool, ledger, epoch, rev.String()
	return out, nil
}

// joinLedgers keeps the first original model, the last former one, what was rolled back, and every
// run.
func joinLedgers(a, b kamino.Ledger) kamino.Ledger {
	out := a
	if out.Original == nil || b.Original != nil && b.Original.At.Before(out.Original.At) {
		out.Original = b.Original
	}
	// Who wrote the last model knows what it wrote. Former versions noted nothing, which is no pin.
	if out.Former == nil || b.Former != nil && b.Former.At.After(out.Former.At) {
		out.Former, out.Owed, out.Wrote = b.Former, b.Owed, b.Wrote
	}
	out.RolledBack = slices.Clone(a.RolledBack)
	for _, name := range b.RolledBack {
		if !slices.Contains(out.RolledBack, name) {
			out.RolledBack = append(out.RolledBack, name)
		}
	}
	out.Past = slices.Clone(a.Past)
	for _, run := range b.Past {
		if !slices.Contains(out.Past, run) {
			out.Past = append(out.Past, run)
		}
	}
	slices.SortStableFunc(out.Past, func(a, b kamino.PastRun) int { return b.Ended.Compare(a.Ended) })
	return out
}

// takeOver retires the former leases that the next write takes over, and returns what the lease
// here notes of them.
func (c *Cluster) takeOver(ctx context.Context, former []formerLease) (map[string]string, error) {
	notes := map[string]string{}
	for _, f := range former {
		if f.Take {
			notes[movedPrefix+f.Namespace] = f.Seen
		} else if !f.Held {
			continue
		}
		if !strings.HasSuffix(f.Seen, "/"+f.At) {
			continue // retired by a process that got no further
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": f.At,
			"annotations": map[string]string{annotationFormat: fmt.Sprint(movedFormat), annotationMoved: f.At}}})
		if err != nil {
			return nil, fmt.Errorf("write lease %s/%s: %w", f.Namespace, f.Name, err)
		}
		_, err = c.api.leases(f.Namespace).Patch(ctx, f.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, explain("patch leases.coordination.k8s.io -n "+f.Namespace, err)
		}
	}
	return notes, nil
}

// home is the other namespace in which the seal pod of a run may be; "" when there is none.
func (c *Cluster) home(run string) string {
	namespace, _ := c.homes.Load(run)
	text, _ := namespace.(string)
	return text
}

// byPool groups leases by their pool, each once: the one here, and those elsewhere.
func byPool(items []coordinationv1.Lease) map[kamino.PoolID]*group {
	groups := map[kamino.PoolID]*group{}
	for i := range items {
		id := kamino.PoolID(items[i].Annotations[annotationPool])
		g := groups[kamino.PoolID(strings.ToLower(string(id)))]
		if g == nil {
			g = &group{pool: id}
			groups[kamino.PoolID(strings.ToLower(string(id)))] = g
		}
		g.add(&items[i])
	}
	return groups
}

// group is what stands of one pool in all namespaces.
type group struct {
	pool      kamino.PoolID
	here      *coordinationv1.Lease
	elsewhere []coordinationv1.Lease
}

func (g *group) add(l *coordinationv1.Lease) {
	switch {
	case l.Namespace == kamino.SystemNamespace:
		g.here, g.pool = l, kamino.PoolID(l.Annotations[annotationPool])
	case ours(l):
		g.elsewhere = append(g.elsewhere, *l)
	}
}
