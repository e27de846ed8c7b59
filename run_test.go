package kamino

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestPortsTakeNoFlags: no method of a port has a parameter that changes what the method does.
func TestPortsTakeNoFlags(t *testing.T) {
	for _, port := range []reflect.Type{reflect.TypeFor[Provider](), reflect.TypeFor[Prover](), reflect.TypeFor[Holder](),
		reflect.TypeFor[Cluster](), reflect.TypeFor[Examiner](), reflect.TypeFor[Patcher](), reflect.TypeFor[Shelf](),
		reflect.TypeFor[Clock](), reflect.TypeFor[Recorder]()} {
		for i := range port.NumMethod() {
			m := port.Method(i)
			for in := range m.Type.Ins() {
				if in.Kind() == reflect.Bool {
					t.Errorf("%s.%s takes a flag", port, m.Name)
				}
			}
		}
	}
}

// TestHolds: what the engine says that a run holds is what a second signal leaves.
func TestHolds(t *testing.T) {
	steps := map[string]Step{}
	for _, s := range slices.Concat(Pipeline(), restitution(), leftovers()) {
		steps[s.Name] = s
	}
	type deeds = []string // of steps: "+" it has acted, "=" it is done, "-" it was not needed
	for name, tt := range map[string]struct {
		deeds   deeds
		adopted bool
		want    []string
	}{
		"nothing":                 {deeds: deeds{"=" + InValidate}},
		"taken":                   {deeds: deeds{"+" + InLock, "+" + InProtect, "+" + InDrain, "=" + InDrain}, want: []string{"the donor's block", "the donor's protection", "the lease"}},
		"given back":              {deeds: deeds{"+" + InLock, "+" + InStop, "+" + InSnapshot, "=" + InReturn}, want: []string{"the lease", "the snapshot"}},
		"being given back":        {deeds: deeds{"+" + InUnseal}, want: []string{"a node that is being given back"}},
		"built":                   {deeds: deeds{"+" + InLock, "+" + InSnapshot, "+" + InImage, "=" + InImage, "=" + InClean}, want: []string{"the lease"}},
		"failed to build":         {deeds: deeds{"+" + InImage, "=" + InFailedVersion}},
		"adopted":                 {deeds: deeds{"=" + InLock}, adopted: true, want: []string{"the lease", "what its former process had taken, possibly the donor"}},
		"adopted, its donor off":  {deeds: deeds{"=" + InLock, "=" + InStop}, adopted: true, want: []string{"the donor off", "the lease", "what its former process had taken, possibly the donor"}},
		"adopted, its donor back": {deeds: deeds{"=" + InLock, "-" + InReturn}, adopted: true, want: []string{"the lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			r := (&Engine{Holds: func(_ PoolID, what []string) { got = slices.Sorted(slices.Values(what)) }}).newRun(Options{})
			r.held.adopted = tt.adopted
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
	r := (&Engine{}).newRun(Options{SealPolicy: []byte("x")})
	r.held.run = "r1"
	for _, c := range []struct{ brought, named string }{{"", ""}, {r.policySum(), r.policySum()}, {r.policySum(), ""}, {r.policySum(), "00"}, {"", "00"}} {
		r.held.lease = &Lease{Record: Record{Policy: c.brought}}
		r.donor.instance.VMID = "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10"
		err := r.checkReceipt(Receipt{Run: "r1", VMID: r.donor.instance.VMID, Policy: c.named})
		if (err == nil) != (c.brought == c.named) || err != nil && !strings.Contains(err.Error(), "seal policy") {
			t.Errorf("brought %q, named %q: %v", c.brought, c.named, err)
		}
	}
}

// TestUnknownFilesTravel: what the receipt says of them is on the image's tags, and status reads it
// there.
func TestUnknownFilesTravel(t *testing.T) {
	r := (&Engine{}).newRun(Options{})
	r.held.run, r.held.lease = "r1", &Lease{}
	unknown := UnknownFiles{Mode: "report", Count: 12, Digest: "sha256:aa"}
	got := versionStatus(Artifact{Kind: Version, Tags: r.tags(Receipt{Hash: "h", Policy: "p", Unknown: &unknown})})
	if got.Unknown == nil || *got.Unknown != unknown || got.Policy != "p" {
		t.Errorf("status says %+v and policy %q", got.Unknown, got.Policy)
	}
	if old := versionStatus(Artifact{Kind: Version, Tags: r.tags(Receipt{Hash: "h"})}); old.Unknown != nil || old.Policy != "" {
		t.Errorf("status of an image without unknown files: %+v", old)
	}
}

// rightless is a cluster on which nobody has rights.
type rightless struct {
	Cluster
	Examiner
}

func (rightless) Preflight(context.Context, DrainOptions) ([]Doubt, error) {
	return nil, WithHint(fmt.Errorf("list nodes: %w", ErrForbidden), "bind kamino-run")
}

func (rightless) PreflightProof(context.Context, []byte) error {
	return WithHint(fmt.Errorf("delete nodes: %w", ErrForbidden), "bind kamino-prove")
}

// TestRightsAtOnce: the rights of a run and those of its proof are told together.
func TestRightsAtOnce(t *testing.T) {
	r := (&Engine{Cluster: rightless{}, Clock: WallClock{}}).newRun(Options{Proof: Proving{Mode: ProveCanary}})
	if err := r.checkCluster(t.Context()); !errors.Is(err, ErrForbidden) || advice(err, "") != "bind kamino-run; bind kamino-prove" {
		t.Errorf("%v; hints %q", err, Hints(err))
	}
	r.opts.Proof.Mode = ProveNone
	if err := r.checkCluster(t.Context()); strings.Join(Hints(err), ", ") != "bind kamino-run" {
		t.Errorf("without a proof: %v; hints %q", err, Hints(err))
	}
}

// noPools is a provider that finds no node's pool.
type noPools struct {
	Provider
	err error
}

func (p noPools) PoolOf(context.Context, InstanceID) (PoolID, error) { return "", p.err }

// TestNamedPool: another node is no remedy where the cloud did not say which pool one is of.
func TestNamedPool(t *testing.T) {
	for _, cause := range []error{ErrUnsupported, ErrForbidden, ErrUnavailable} {
		e := &Engine{Provider: noPools{err: fmt.Errorf("list groups: %w", cause)}}
		_, err := e.namedPool(t.Context(), Node{Name: "n"})
		var refused *RefusedError
		if errors.As(err, &refused) != errors.Is(cause, ErrUnsupported) || refused == nil && !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// TestBackWhileRefused: what a person does to stop a bad image, or how it is being rolled out, does
// not keep the pool from going back. (aws/refuse.go has the codes.)
func TestBackWhileRefused(t *testing.T) {
	for _, code := range []string{"refresh", "suspended", "warm-pool", "automatic-repairs", CodeShared} {
		for _, verb := range []Verb{VerbRollback, VerbWithdraw} {
			if left := (target{verb: verb}).options().unlifted([]Refusal{{Code: code}}); len(left) > 0 {
				t.Errorf("%s is refused for %q", verb, code)
			}
		}
	}
}
