package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// PromoteOptions are the options of kamino promote.
type PromoteOptions struct {
	Pool       string // name or ID
	Version    string // "": the newest version that has passed its proof
	DryRun     bool
	AdoptModel bool // replaces an image that somebody else wrote into the model
	// AcceptUnsealed accepts a version without a seal receipt, such as one that somebody else made.
	AcceptUnsealed bool
	// Proof, if set, is how the version is proved first. A version that fails is withdrawn.
	Proof         *kamino.Proving
	PendingReboot []kamino.Signal // as in Options
}

// PromoteVersion makes a hidden version what the pool's next instance boots from, as the run would
// that proved it. A withdrawn version can only be used again by a rollback that names it. Repeated,
// it changes nothing.
func (e *Engine) PromoteVersion(ctx context.Context, opts PromoteOptions) (Rollback, error) {
	if err := opts.validate(); err != nil {
		return Rollback{}, err
	}
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun, nil)
	if err != nil {
		return Rollback{}, err
	}
	if err := e.refusePaused(ctx); err != nil {
		return Rollback{}, err
	}
	t := poolstate.Destination{Points: o.Follows(), Verb: kamino.VerbPromote}
	for i, v := range o.Versions {
		if opts.Version == "" && (v.Phase == kamino.PhaseWaiting || o.Halfway(v)) || kamino.CompareVersions(v.Name, opts.Version) == 0 &&
			opts.Version != "" {
			t.Version = &o.Versions[i]
			break
		}
	}
	now := o.Next()
	if t.Version == nil && opts.Version == "" && opts.Proof == nil && now != nil && now.Name == o.Versions[0].Name && now.Receipt != "" {
		t.Version = now // it was promoted already, and the command is repeated
	}
	switch v := t.Version; {
	case v == nil && opts.Version == "":
		return Rollback{}, kamino.WithHint(fmt.Errorf("pool %s has no version that passed its proof and waits", o.Pool.Name),
			"%s", o.HowToName())
	case v == nil:
		return Rollback{}, kamino.WithHint(fmt.Errorf("version %q of pool %s does not exist", opts.Version, o.Pool.Name),
			"kamino status lists them")
	case v.Bad != "":
		return Rollback{}, kamino.WithHint(fmt.Errorf("version %s of pool %s is withdrawn: %s", v.Name, o.Pool.Name, v.Bad),
			"to use it anyway: kamino rollback --pool %s --to %s", o.Pool.Name, v.Name)
	case v.Unaccepted && o.Pool.Owner != nil && opts.Version == "":
		return Rollback{}, kamino.WithHint(fmt.Errorf(
			"version %s of pool %s was left hidden: its instances would run the bootstrap of the model, which %s writes", v.Name,
			o.Pool.Name, o.Pool.Owner.Name),
			"%s offers it", poolstate.HowToPromote(o.Pool.Name, v.Name))
	case v.Receipt == "" && !opts.AcceptUnsealed:
		return Rollback{}, kamino.WithHint(fmt.Errorf("version %s of pool %s has no seal receipt: %s", v.Name, o.Pool.Name, v.Unsealed()),
			"to use it anyway: --accept-unsealed, with --prove canary to prove it first")
	}
	promoted := now != nil && now.Name == t.Version.Name && (opts.Proof == nil || now.Proof == kamino.TagProofPassed)
	if err := o.Provable(*t.Version); err != nil && !promoted {
		return Rollback{}, err
	}
	if pin := o.Pin(); pin != nil && !opts.AdoptModel {
		return Rollback{}, &kamino.RefusedError{Subject: "pool " + o.Pool.Name, Refusals: []kamino.Refusal{pin.Refusal(o.Pool)}}
	}
	t.Adopts = opts.AdoptModel
	if v := t.Version; v.Unaccepted && opts.Version != "" && e.livesIn(kamino.KindDefinition) &&
		(o.Pool.Owner != nil || kamino.Points(o.Pool.Model.Image, o.Versions)) {
		t.Points, t.Offered = true, true // naming the version accepts its bootstrap; the model stays its owner's
	}
	if err := e.comeToPoint(ctx, &o, &t); err != nil {
		return Rollback{}, err
	}
	// otherwise the proof waits
	if err := bootable(ctx, e, o, t, opts.DryRun || opts.Proof != nil); err != nil && (opts.Proof == nil || opts.DryRun) {
		return Rollback{}, err
	}
	switch {
	case opts.Proof != nil && !promoted:
		return proveNamed(ctx, e, o, t, opts)
	case opts.Proof != nil && o.Lease.Ledger.Canary != "" && !opts.DryRun:
		if err := retireLeft(ctx, e, o); err != nil {
			return Rollback{}, err
		}
	}
	return pointTo(ctx, e, o, t, nil, opts.DryRun)
}

// WithdrawVersion takes a version back until a person names it again. If the version is the pool's
// next image, the good version before it replaces it; if there is none, nothing is changed. Any
// other version is only marked. Repeated, it changes nothing; see Withdrawal.
func (e *Engine) WithdrawVersion(ctx context.Context, opts kamino.WithdrawOptions) (Rollback, error) {
	if strings.TrimSpace(opts.Reason) == "" {
		return Rollback{}, kamino.WithHint(errors.New("--reason is required"), "--reason TEXT is recorded on the version")
	}
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun, nil)
	if err != nil {
		return Rollback{}, err
	}
	now, i := o.Next(), kamino.IndexOf(o.Versions, opts.Version)
	switch {
	case opts.Version == "" && now == nil:
		return Rollback{}, kamino.WithHint(fmt.Errorf("new nodes of pool %s boot from %s, which is not a version", o.Pool.Name,
			kamino.LastSegments(o.Pool.Model.Image, 3)), "%s", o.HowToName())
	case opts.Version == "":
		same, err := o.Lease.Ledger.Withdrew.Again(now.Name, opts)
		if err != nil {
			return Rollback{}, err
		} else if i = kamino.IndexOf(o.Versions, same); i < 0 { // it was pruned since
			return Rollback{Pool: o.ID, Name: o.Pool.Name, From: now.Name, To: now.Name, GivenBack: o.GivenBack}, nil
		}
	case i < 0:
		return Rollback{}, kamino.WithHint(fmt.Errorf("version %q of pool %s does not exist", opts.Version, o.Pool.Name),
			"kamino status lists them")
	}
	v := o.Versions[i]
	t := poolstate.Destination{Version: now, Points: o.Follows(), Stays: now == nil || now.Name != v.Name, Verb: kamino.VerbWithdraw,
		Why: kamino.Bad{Reason: opts.Reason, Nodes: opts.Nodes}}
	if !t.Stays {
		if t.Version = o.Fallback(); t.Version == nil {
			return Rollback{}, o.NoFallback(fmt.Errorf("pool %s has no good version before %s: nothing is withdrawn", o.Pool.Name, v.Name))
		}
	}
	var bad []kamino.Version
	if v.Bad == "" || slices.Contains(o.Lease.Ledger.RolledBack, v.Name) {
		bad = append(bad, v)
	}
	if !t.Stays {
		bad = append(bad, o.PassedOver(t)...)
	}
	back, err := pointTo(ctx, e, o, t, bad, opts.DryRun)
	back.Descendants = kamino.Descendants(v.Name, o.Versions)
	return back, err
}

// validate checks the options of a proof by themselves.
func (o PromoteOptions) validate() error {
	switch p := o.Proof; {
	case p == nil:
		return nil
	case p.Mode != kamino.ProveCanary:
		return kamino.WithHint(fmt.Errorf("%q cannot prove a version before its promotion", p.Mode), "use --prove canary, or omit it")
	case o.Version == "":
		return kamino.WithHint(errors.New("no version to prove is named"), "name it with --version: kamino status lists them")
	}
	return o.Proof.Validate()
}
