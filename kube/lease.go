package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "kamino"

	annotationFormat  = "kamino.dev/format"
	annotationPool    = "kamino.dev/pool"
	annotationProcess = "kamino.dev/process"
	annotationRecord  = "kamino.dev/record"
	annotationLedger  = "kamino.dev/ledger"

	// leaseFormat is the format of the annotations that this program writes. A
	// lease with a higher number is left alone.
	leaseFormat = 1
)

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// leaseName is the pool's own name, for people, and enough of a hash of its ID to
// keep pools of one name apart. Azure's IDs do not care for case; the name
// must not either, or one pool could have two locks.
func leaseName(pool kamino.PoolID) string {
	const most = 40
	sum := sha256.Sum256([]byte(strings.ToLower(string(pool))))
	name := notInNames.ReplaceAllString(strings.ToLower(pool.Name()), "-")
	name = strings.Trim(name[:min(len(name), most)], "-")
	if name == "" {
		name = "pool"
	}
	return "kamino-" + name + "-" + hex.EncodeToString(sum[:4])
}

// Lease reads the lease of a pool. A pool that has none yet has an empty one.
func (c *Cluster) Lease(ctx context.Context, pool kamino.PoolID) (kamino.Lease, error) {
	name := leaseName(pool)
	items, err := c.leases(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return kamino.Lease{}, err
	}
	i := slices.IndexFunc(items, func(l coordinationv1.Lease) bool { return l.Name == name })
	if i < 0 {
		return kamino.Lease{Pool: pool}, nil
	}
	if of := items[i].Annotations[annotationPool]; !strings.EqualFold(of, string(pool)) {
		return kamino.Lease{}, fmt.Errorf("lease %s/%s is of pool %s, not of %s", items[i].Namespace, name, of, pool)
	}
	return readLease(&items[i])
}

// Leases reads the leases of all pools. One that cannot be read has an Err.
func (c *Cluster) Leases(ctx context.Context) ([]kamino.Lease, error) {
	items, err := c.leases(ctx, metav1.ListOptions{LabelSelector: labelManagedBy + "=" + managedBy})
	if err != nil {
		return nil, err
	}
	var out []kamino.Lease
	for i := range items {
		l, err := readLease(&items[i])
		if err != nil { // one pool's lease hides no other's
			l = kamino.Lease{Pool: PoolOfLease(items[i].Annotations), Err: err}
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b kamino.Lease) int { return strings.Compare(string(a.Pool), string(b.Pool)) })
	return out, nil
}

func (c *Cluster) leases(ctx context.Context, opts metav1.ListOptions) (out []coordinationv1.Lease, err error) {
	what := "list leases.coordination.k8s.io -n " + kamino.SystemNamespace
	err = pages(ctx, c.api.leases(kamino.SystemNamespace), opts, what, func() { out = nil }, func(list *coordinationv1.LeaseList) {
		out = append(out, list.Items...)
	})
	return out, err
}

// SetLease creates the lease when it has no revision, else changes it if it
// still is at that revision; labels and annotations of others stay.
func (c *Cluster) SetLease(ctx context.Context, lease kamino.Lease) (kamino.Lease, error) {
	object, err := writeLease(lease)
	if err != nil {
		return kamino.Lease{}, err
	}
	leases := c.api.leases(kamino.SystemNamespace)
	var got *coordinationv1.Lease
	what := "create"
	if lease.Revision == "" {
		got, err = leases.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		what = "patch"
		var patch []byte
		if patch, err = leasePatch(object, lease.Revision); err != nil {
			return kamino.Lease{}, err
		}
		got, err = leases.Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	}
	err = explain(what+" leases.coordination.k8s.io -n "+kamino.SystemNamespace, err)
	switch {
	case errors.Is(err, kamino.ErrNotFound) && lease.Revision != "":
		return kamino.Lease{}, &fault{kamino.ErrConflict, err} // somebody deleted it
	case errors.Is(err, kamino.ErrNotFound):
		return kamino.Lease{}, kamino.WithHint(err, noBase)
	case err != nil:
		return kamino.Lease{}, err
	}
	return readLease(got)
}

// writeLease is the API's object of a lease.
func writeLease(l kamino.Lease) (*coordinationv1.Lease, error) {
	if l.Epoch < 0 || l.Epoch > math.MaxInt32 {
		return nil, fmt.Errorf("write lease of pool %s: epoch %d does not fit", l.Pool.Name(), l.Epoch)
	}
	record, err := json.Marshal(l.Record)
	if err != nil {
		return nil, fmt.Errorf("write record of pool %s: %w", l.Pool.Name(), err)
	}
	ledger, err := l.Ledger.Pack()
	if err != nil {
		return nil, fmt.Errorf("write ledger of pool %s: %w", l.Pool.Name(), err)
	}
	epoch := int32(l.Epoch)
	out := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:   leaseName(l.Pool),
			Labels: map[string]string{labelManagedBy: managedBy},
			Annotations: map[string]string{
				annotationFormat:  strconv.Itoa(leaseFormat),
				annotationPool:    string(l.Pool),
				annotationProcess: l.Process,
				annotationRecord:  string(record),
				annotationLedger:  ledger,
			},
		},
		Spec: coordinationv1.LeaseSpec{LeaseTransitions: &epoch},
	}
	if l.Holder != "" {
		out.Spec.HolderIdentity = &l.Holder
	}
	if !l.Renewed.IsZero() {
		out.Spec.RenewTime = &metav1.MicroTime{Time: l.Renewed}
	}
	if seconds := int32(l.Duration / time.Second); seconds > 0 {
		out.Spec.LeaseDurationSeconds = &seconds
	}
	return out, nil
}

// leasePatch is the merge patch (RFC 7386) that writes what is ours; null
// removes, so a free lease loses its holder.
func leasePatch(l *coordinationv1.Lease, revision string) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": revision, "labels": l.Labels, "annotations": l.Annotations},
		"spec": map[string]any{
			"holderIdentity":       l.Spec.HolderIdentity,
			"leaseTransitions":     l.Spec.LeaseTransitions,
			"renewTime":            l.Spec.RenewTime,
			"leaseDurationSeconds": l.Spec.LeaseDurationSeconds,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write lease %s: %w", l.Name, err)
	}
	return patch, nil
}

// readLease reads the API's object. One that is not ours, or was written by a
// newer program, is an error, so that it is never written over.
func readLease(l *coordinationv1.Lease) (kamino.Lease, error) {
	fail := func(format string, args ...any) (kamino.Lease, error) {
		return kamino.Lease{}, fmt.Errorf("lease %s/%s: "+format, append([]any{l.Namespace, l.Name}, args...)...)
	}
	format, err := strconv.Atoi(l.Annotations[annotationFormat])
	if err != nil {
		return fail("annotation %s is %q: kamino did not write it", annotationFormat, l.Annotations[annotationFormat])
	}
	if format > leaseFormat {
		return fail("annotation %s is %d, written by a newer kamino (this one knows %d)", annotationFormat, format, leaseFormat)
	}
	out := kamino.Lease{
		Pool:     kamino.PoolID(l.Annotations[annotationPool]),
		Process:  l.Annotations[annotationProcess],
		Revision: l.ResourceVersion,
	}
	if err := json.Unmarshal([]byte(l.Annotations[annotationRecord]), &out.Record); err != nil {
		return fail("read annotation %s: %w", annotationRecord, err)
	}
	if out.Ledger, err = kamino.UnpackLedger(l.Annotations[annotationLedger]); err != nil {
		return fail("read annotation %s: %w", annotationLedger, err)
	}
	if l.Spec.HolderIdentity != nil {
		out.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseTransitions != nil {
		out.Epoch = int64(*l.Spec.LeaseTransitions)
	}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.UTC()
	}
	if l.Spec.LeaseDurationSeconds != nil {
		out.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	kamino.PlainAll(&out)
	return out, nil
}

// PoolOfLease is the pool that the annotations of a lease name; "" where they name none.
func PoolOfLease(annotations map[string]string) kamino.PoolID {
	return kamino.PoolID(annotations[annotationPool])
}

// TrimLease keeps those annotations of a lease that name its pool and the run that holds it.
func TrimLease(annotations map[string]string) {
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key != annotationPool && key != annotationProcess && key != annotationRecord
	})
}
