package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// TestHolds: what the engine says that a run holds is what a second signal leaves.
func TestHolds(t *testing.T) {
	steps := map[string]Step{}
	for _, s := range slices.Concat(Pipeline(), restitution(&Run{}), leftovers(&Run{})) {
		steps[s.Name] = s
	}
	type deeds = []string // of steps: "+" it has acted, "=" it is done, "-" it was not needed
	for name, tt := range map[string]struct {
		deeds   deeds
		adopted bool
		want    []string
	}{
		"nothing":                 {deeds: deeds{"=" + kamino.StepValidate}},
		"taken":                   {deeds: deeds{"+" + kamino.StepLock, "+" + kamino.StepProtect, "+" + kamino.StepDrain, "=" + kamino.StepDrain}, want: []string{"the donor's block", "the donor's protection", "the lease"}},
		"given back":              {deeds: deeds{"+" + kamino.StepLock, "+" + kamino.StepStop, "+" + kamino.StepSnapshot, "=" + kamino.StepReturn}, want: []string{"the lease", "the snapshot"}},
		"being given back":        {deeds: deeds{"+" + kamino.StepUnseal}, want: []string{"a node that is being given back"}},
		"built":                   {deeds: deeds{"+" + kamino.StepLock, "+" + kamino.StepSnapshot, "+" + kamino.StepImage, "=" + kamino.StepImage, "=" + kamino.StepClean}, want: []string{"the lease"}},
		"failed to build":         {deeds: deeds{"+" + kamino.StepImage, "=" + kamino.StepFailedVersion}},
		"adopted":                 {deeds: deeds{"=" + kamino.StepLock}, adopted: true, want: []string{"resources of its previous process, possibly the donor", "the lease"}},
		"adopted, its donor off":  {deeds: deeds{"=" + kamino.StepLock, "=" + kamino.StepStop}, adopted: true, want: []string{"resources of its previous process, possibly the donor", "the donor off", "the lease"}},
		"adopted, its donor back": {deeds: deeds{"=" + kamino.StepLock, "-" + kamino.StepReturn}, adopted: true, want: []string{"the lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			r := newRun((&Engine{Holds: func(_ kamino.PoolID, what []string) { got = slices.Sorted(slices.Values(what)) }}), kamino.Options{})
			r.held.Adopted = tt.adopted
			for _, d := range tt.deeds {
				s := steps[d[1:]]
				if d[0] != '-' {
					r.takes(s)
				}
				if d[0] != '+' {
					r.passed(s)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestReceiptNamesThePolicy: a receipt of another policy than the run brought, or of an agent that
// does not know policies, is none.
func TestReceiptNamesThePolicy(t *testing.T) {
	r := newRun((&Engine{}), kamino.Options{SealPolicy: []byte("x")})
	r.held.Run = "r1"
	for _, c := range []struct{ brought, named string }{{"", ""}, {r.donor.policySum(), r.donor.policySum()}, {r.donor.policySum(), ""}, {r.donor.policySum(), "00"}, {"", "00"}} {
		r.held.Lease = &kamino.Lease{Record: kamino.Record{Policy: c.brought}}
		r.donor.instance.VMID = "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10"
		err := r.donor.checkReceipt(kamino.Receipt{Run: "r1", VMID: r.donor.instance.VMID, Policy: c.named})
		if (err == nil) != (c.brought == c.named) || err != nil && !strings.Contains(err.Error(), "seal policy") {
			t.Errorf("brought %q, named %q: %v", c.brought, c.named, err)
		}
	}
}

// TestUnknownFilesTravel: what the receipt says of them is on the image's tags, and status reads it
// there.
func TestUnknownFilesTravel(t *testing.T) {
	r := newRun((&Engine{}), kamino.Options{})
	r.held.Run, r.held.Lease = "r1", &kamino.Lease{}
	unknown := kamino.UnknownFiles{Mode: "report", Count: 12, Digest: "sha256:aa"}
	got := poolstate.StatusOf(kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Tags: r.build.tags(kamino.Receipt{Hash: "h", Policy: "p", Unknown: &unknown})}))
	if got.Unknown == nil || *got.Unknown != unknown || got.Policy != "p" {
		t.Errorf("status says %+v and policy %q", got.Unknown, got.Policy)
	}
	if old := poolstate.StatusOf(kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Tags: r.build.tags(kamino.Receipt{Hash: "h"})})); old.Unknown != nil || old.Policy != "" {
		t.Errorf("status of an image without unknown files: %+v", old)
	}
}

// rightless is a cluster on which nobody has rights.
type rightless struct {
	kamino.Cluster
	kamino.Examiner
}

func (rightless) Preflight(context.Context, kamino.DrainOptions) ([]kamino.Warning, error) {
	return nil, kamino.WithHint(fmt.Errorf("list nodes: %w", kamino.ErrForbidden), "bind kamino-run")
}

func (rightless) PreflightProof(context.Context, []byte) error {
	return kamino.WithHint(fmt.Errorf("delete nodes: %w", kamino.ErrForbidden), "bind kamino-prove")
}

// TestRightsAtOnce: the rights of a run and those of its proof are told together.
func TestRightsAtOnce(t *testing.T) {
	r := newRun((&Engine{Cluster: rightless{}, Clock: kamino.WallClock{}}), kamino.Options{Proof: kamino.Proving{Mode: kamino.ProveCanary}})
	if err := r.checkCluster(t.Context()); !errors.Is(err, kamino.ErrForbidden) || kamino.AdviceOr(err, "") != "bind kamino-run; bind kamino-prove" {
		t.Errorf("%v; hints %q", err, kamino.Hints(err))
	}
	r.opts.Proof.Mode = kamino.ProveNone
	if err := r.checkCluster(t.Context()); strings.Join(kamino.Hints(err), ", ") != "bind kamino-run" {
		t.Errorf("without a proof: %v; hints %q", err, kamino.Hints(err))
	}
}

// noPools is a provider that finds no node's pool.
type noPools struct {
	kamino.Provider
	err error
}

func (p noPools) PoolOf(context.Context, kamino.InstanceID) (kamino.PoolID, error) { return "", p.err }

// TestNamedPool: another node is no remedy where the cloud did not say which pool one is of.
func TestNamedPool(t *testing.T) {
	for _, cause := range []error{kamino.ErrUnsupported, kamino.ErrForbidden, kamino.ErrUnavailable} {
		e := &Engine{Provider: noPools{err: fmt.Errorf("list groups: %w", cause)}}
		_, err := e.namedPool(t.Context(), kamino.Node{Name: "n"})
		var refused *kamino.RefusedError
		if errors.As(err, &refused) != errors.Is(cause, kamino.ErrUnsupported) || refused == nil && !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
