package poolstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
)

const noVersionYet = "the pool has no version yet: kamino update --target-node NODE makes one"

// HowToName is the advice where a command needs the name of a version.
func (o State) HowToName() string {
	if len(o.Versions) == 0 {
		return noVersionYet
	}
	return "name one with --version: kamino status lists them"
}

// Fallback returns the version that replaces a withdrawn one: that of defaultTarget, unless promote
// would refuse it.
func (o State) Fallback() *kamino.Version {
	now := o.Next()
	for i, v := range o.Versions {
		if now != nil && kamino.CompareVersions(v.Name, now.Name) < 0 && v.StandsIn(o.Pool) && v.Unlike(now.Machine) == "" {
			return &o.Versions[i]
		}
	}
	return nil
}

// PassedOver returns the versions in between that a definition would stand for instead.
func (o State) PassedOver(t Destination) []kamino.Version {
	return slices.DeleteFunc(o.Distrusted(t), func(v kamino.Version) bool {
		return !t.Points || v.Excluded || kamino.CompareVersions(v.Name, o.Next().Name) >= 0
	})
}

// NoFallback adds what to do if no version can replace a bad one.
func (o State) NoFallback(err error) error {
	if t := o.defaultTarget(); t.Version != nil && t.Version.Receipt == "" {
		return kamino.WithHint(err, "new nodes still boot from it; version %s has no seal receipt, and %s: kamino rollback --pool %s --to %[1]s uses it anyway",
			t.Name(), t.Version.Unsealed(), o.Pool.Name)
	}
	return kamino.WithHint(err, "new nodes still boot from it; kamino rollback --pool %s --to original goes back to the model from before; --dry-run shows first which of your settings that needs", o.Pool.Name)
}

// ToOriginal is the name of the model before the first promotion, as a target.
const ToOriginal = "original"

// Destination is what a promotion or rollback points a model at: a version, or a saved model.
type Destination struct {
	Version *kamino.Version
	Points  bool                  // the pool refers to its definition, and continues to
	Comes   kamino.ImageReference // how the pool will refer to the version; "": as before, see comeToPoint
	Stays   bool                  // the next image does not change; only tags and records do
	Saved   *kamino.SavedModel
	Secrets kamino.Secrets
	Verb    kamino.Verb
	Why     kamino.Bad // why the version that it replaces is withdrawn; empty for a rollback
	Offered bool       // the version is offered, and the pool's model is not written
	Adopts  bool       // it replaces an image that somebody else chose
	Unnamed bool       // it is the previous version, and nobody named it
	Since   string     // it is the next image already, since this version was left; "": it is not
	Unborn  []string   // newer versions that interrupted runs may have begun and no list shows yet
	// Nobody, if set, holds the conditions of a promotion that no person named.
	Nobody *kamino.Proving
}

// TakesUntried reports whether a person takes a version without the proof that it had to pass.
func (t Destination) TakesUntried() bool {
	return t.Nobody == nil && t.Version != nil && !t.Stays && t.Version.Untried() &&
		(t.Verb == kamino.VerbPromote || t.Verb == kamino.VerbRollback)
}

// Name returns the name of the version, or a replacement for it; "" if neither is known.
func (t Destination) Name() string {
	switch {
	case t.Version != nil:
		return t.Version.Name
	case t.Saved != nil:
		return ToOriginal
	}
	return ""
}

// WithdrawnSince reports whether a version is the target, and was withdrawn after somebody chose
// it.
func (t Destination) WithdrawnSince(v kamino.Version) bool {
	return t.Version != nil && !t.Stays && t.Version.Name == v.Name && t.Version.Bad == "" && v.Bad != ""
}

// Offers returns the versions that have to be offered for a target: its own, or none.
func (t Destination) Offers() []string {
	if t.Version == nil || t.Stays || !(kamino.Target{Reference: t.Spec().Reference, Seen: t.Version}).Offers() {
		return nil
	}
	return []string{t.Version.Name}
}

// Spec returns the target for the provider.
func (t Destination) Spec() kamino.Target {
	switch {
	case t.Version != nil && t.Points:
		return kamino.Target{Version: t.Version.Name, Reference: kamino.ByDefinition}
	case t.Version != nil:
		return kamino.Target{Version: t.Version.Name, Reference: cmp.Or(t.Comes, kamino.ByVersion)}
	case t.Saved == nil:
		return kamino.Target{}
	}
	return kamino.Target{Former: t.Saved.Saved, Secrets: t.Secrets}
}

// defaultTarget returns the newest good version older than the model's that no person excluded and
// that fits the machines; else the original model. It is empty if the model refers to no version.
func (o State) defaultTarget() Destination {
	now := o.Next()
	if now == nil {
		return Destination{}
	}
	former := kamino.First(o.Versions, func(v kamino.Version) bool {
		return kamino.CompareVersions(v.Name, now.Name) < 0 && !v.OfFormer && v.Unlike(now.Machine) == "" && v.Good() && v.Ready &&
			!v.Unused() && (!v.Excluded || v.Hidden()) && !(v.Untried() && !v.Hidden())
	})
	if former != nil {
		return Destination{Version: former}
	}
	return Destination{Saved: o.Lease.Ledger.Original}
}

// FindTarget resolves a target that the user named.
func (o State) FindTarget(to string) (Destination, error) {
	if to == "" {
		if left := o.Lease.Ledger.Withdrew.Left(o.Next()); left != "" {
			return Destination{Version: o.Next(), Since: left}, nil
		}
		if w, saved := o.Lease.Ledger.Withdrew, o.Lease.Ledger.Original; w != nil && w.To == ToOriginal && saved != nil &&
			strings.EqualFold(o.Pool.Model.Image, saved.Image) {
			return Destination{Saved: saved, Since: w.Version}, nil
		}
		t := o.defaultTarget()
		t.Unnamed = true
		switch {
		case t.Version != nil && t.Version.Receipt == "":
			return Destination{}, kamino.WithHint(fmt.Errorf("the version before it, %s of pool %s, has no seal receipt: %s", t.Name(),
				o.Pool.Name, t.Version.Unsealed()),
				"to use it anyway: --to %s; else %s", t.Name(), o.TargetsHint())
		case t.Name() != "":
			return t, nil
		}
		if o.Next() == nil {
			return t, kamino.WithHint(fmt.Errorf("pool %s has nothing to roll back: its model refers to %s, which is not a version of %s",
				o.Pool.Name, kamino.LastSegments(o.Pool.Model.Image, 3), kamino.DefinitionName(o.Pool.Name)), "%s", o.TargetsHint())
		}
		return t, kamino.WithHint(fmt.Errorf("pool %s has no earlier good version, and its original model is not saved", o.Pool.Name),
			"%s", o.TargetsHint())
	}
	if strings.EqualFold(to, ToOriginal) {
		if saved := o.Lease.Ledger.Original; saved != nil {
			return Destination{Saved: saved}, nil
		}
		return Destination{}, kamino.WithHint(fmt.Errorf("pool %s: its original model is not saved", o.Pool.Name), "%s", o.TargetsHint())
	}
	switch v := kamino.First(o.Versions, func(v kamino.Version) bool { return kamino.CompareVersions(v.Name, to) == 0 }); {
	case v == nil:
		return Destination{}, kamino.WithHint(fmt.Errorf("version %q of pool %s does not exist", to, o.Pool.Name), "%s", o.TargetsHint())
	case !v.Whole() || !v.Ready:
		return Destination{}, kamino.WithHint(fmt.Errorf("version %s of pool %s is %s and not ready to boot from: %s", v.Name, o.Pool.Name,
			v.State, cmp.Or(v.Failure, "not replicated")),
			"%s", o.TargetsHint())
	default:
		return Destination{Version: v}, nil
	}
}

// TargetsHint lists the possible targets, except those that were just refused.
func (o State) TargetsHint(but ...string) string {
	var names []string
	for _, v := range o.Versions {
		if v.Whole() && v.Ready && !v.OfFormer && !slices.Contains(but, v.Name) {
			names = append(names, v.Name)
		}
	}
	if o.Lease.Ledger.Original != nil {
		names = append(names, ToOriginal)
	}
	switch {
	case len(o.Versions) == 0 && len(names) == 0:
		return noVersionYet
	case len(names) == 0:
		return "no other version can be chosen: kamino status lists them"
	}
	return "choose with --to " + strings.Join(names, ", ")
}

// Options returns the options of a run without a donor. Evictions of instances do not affect it.
func (t Destination) Options() kamino.Options {
	o := kamino.Defaults()
	o.AllowSpot, o.AdoptModel, o.ImageOnly, o.Offers = true, t.Adopts, t.Offered, t.Offered
	o.Proof.Mode, o.Back = kamino.ProveNone, t.Verb != kamino.VerbPromote
	return o
}
