package kamino

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AutoOptions are the options of auto-update, which chooses donors by itself.
type AutoOptions struct {
	Options                     // of each run; Donor is chosen
	Pools         []string      // names or IDs; none means all
	Rules         Rules         // Image, AnyPatch and Bad are filled in for each pool
	MinCandidates int           // with fewer candidates the pool is left alone
	MaxImageAge   time.Duration // an older image is renewed without newer patches; 0: never
	// MaxAway is how many donors may be away in the cluster at the same time, including those of
	// other processes; 0: any number.
	MaxAway int
	// MaxNotReady is how many other nodes of the cluster may be NotReady when a donor is taken.
	// Cluster-autoscaler ignores a pool once three of its nodes are not ready
	// (--ok-total-unready-count,
	// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md).
	MaxNotReady int
	// Patch, if set, patches nodes of each pool first; its pool and donor are filled in. So the new
	// version has the patches.
	Patch *PatchOptions
}

// AutoDefaults are the defaults of auto-update: those of the original script, where it had the
// option.
func AutoDefaults() AutoOptions {
	return AutoOptions{
		Options: Defaults(),
		Rules: Rules{
			PendingReboot: []Signal{KuredPendingReboot}, LastPatch: []Signal{KuredLastPatch, KaminoPatched}, MinReady: time.Minute,
		},
		MinCandidates: 1, MaxAway: 1, MaxNotReady: 2,
	}
}

// Validate checks the options, without the cluster and the cloud.
func (o AutoOptions) Validate() error {
	run := o.Options
	run.Donor = "to be chosen"
	if err := run.Validate(); err != nil {
		return err
	}
	switch {
	case o.MinCandidates < 1:
		return WithHint(fmt.Errorf("invalid number of candidates %d", o.MinCandidates), "use --minimum-candidates 1 or more")
	case o.MaxImageAge < 0:
		return WithHint(fmt.Errorf("maximum age %s is negative", o.MaxImageAge), "use --maximum-image-age 0 for no maximum")
	case o.Rules.MinReady < 0:
		return WithHint(fmt.Errorf("minimum ready time %s is negative", o.Rules.MinReady), "use --minimum-ready-time 0 or more")
	case o.MaxAway < 0:
		return WithHint(fmt.Errorf("invalid number of donors away %d", o.MaxAway), "use --max-unavailable-pools 1 or more, or all")
	case o.MaxNotReady < 0:
		return WithHint(fmt.Errorf("invalid number of NotReady nodes %d", o.MaxNotReady), "use --max-not-ready 0 or more")
	}
	return o.validateRules()
}

func (o AutoOptions) validateRules() error {
	if len(o.Rules.LastPatch) == 0 || len(o.Rules.PendingReboot) == 0 {
		return WithHint(errors.New("selection needs a signal for the last patch and one for a pending reboot"),
			"use --last-patch-annotation and --pending-reboot-annotation")
	}
	for _, list := range [][]string{o.Pools, o.Rules.Ignore, o.Rules.IgnoreAnnotations, o.Rules.FineConditions} {
		for i, s := range list {
			if s == "" {
				return WithHint(errors.New("an empty name in a list"), "omit the flag instead")
			}
			if slices.Contains(list[:i], s) {
				return WithHint(fmt.Errorf("%q is given twice", s), "give it once")
			}
		}
	}
	return o.validateOverlaps()
}

// validateOverlaps refuses a name that is given for two purposes.
func (o AutoOptions) validateOverlaps() error {
	for _, s := range slices.Concat(o.Rules.LastPatch, o.Rules.PendingReboot) {
		if slices.Contains(o.Rules.LastPatch, s) && slices.Contains(o.Rules.PendingReboot, s) {
			return WithHint(fmt.Errorf("%s is given for the last patch and for a pending reboot", s),
				"no patched node could ever be chosen: use two different ones")
		}
		if slices.Contains(o.Rules.IgnoreAnnotations, s.Annotation) {
			return WithHint(fmt.Errorf("annotation %s is both a signal and listed for nodes to ignore", s.Annotation),
				"remove it from --node-ignore-annotation")
		}
		if slices.Contains(o.Rules.FineConditions, s.Condition) {
			return WithHint(fmt.Errorf("condition %s is both a signal and listed to be ignored", s.Condition),
				"remove it from --ignore-condition")
		}
	}
	return nil
}

// Unlifted removes the refusals that an option overrides.
func (o Options) Unlifted(list []Refusal) []Refusal {
	return slices.DeleteFunc(slices.Clone(list), func(f Refusal) bool {
		return f.Allow == AllowSpot && o.AllowSpot || f.Allow == AllowAdopt && o.AdoptModel ||
			f.Allow == AllowImageOnly && o.ImageOnly || o.Back && slices.Contains(notOfGoingBack, f.Code)
	})
}

// RebootMode says when a patched node is restarted.
type RebootMode string

// The modes.
const (
	RebootAuto   RebootMode = "auto" // if an upgraded package needs it
	RebootAlways RebootMode = "always"
	RebootNever  RebootMode = "never"
)

// PatchOptions are the options of kamino patch.
type PatchOptions struct {
	Options     // Donor names the one node to patch; "" chooses in Pool
	Order       PatchOrder
	Pool        string // name or ID
	Nodes       int    // how many nodes to patch, one after the other
	Retries     int    // how many more candidates to try if a node is refused or does not come back
	Rules       Rules
	MaxAway     int // see AutoOptions
	MaxNotReady int
}

// PatchDefaults are the defaults of kamino patch.
func PatchDefaults() PatchOptions {
	all := AutoDefaults()
	o := PatchOptions{Options: all.Options, Nodes: 1, Retries: 1, MaxAway: 1, MaxNotReady: all.MaxNotReady,
		Order: PatchOrder{Within: time.Hour, Reboot: RebootAuto, Return: 10 * time.Minute, Settle: time.Minute}}
	o.Proof = Proving{Mode: ProveNone, Promote: PromoteAuto}
	return o
}

// In returns the options with those of a run, but for what only an image has.
func (o PatchOptions) In(run Options) PatchOptions {
	proof := o.Proof
	o.Options = run
	o.Proof, o.NewNodes, o.SealPolicy = proof, 0, nil
	return o
}

// Validate checks the options, without the cluster and the cloud.
func (o PatchOptions) Validate() error {
	switch w := o.Order; {
	case o.Pool != "" && o.Donor != "":
		return WithHint(fmt.Errorf("--pool %s and --target-node %s are mutually exclusive", o.Pool, o.Donor),
			"use --pool for the best nodes of a pool, or --target-node for one node")
	case o.Pool+o.Donor == "":
		return WithHint(errors.New("no pool and no node named"), "use --pool or --target-node; kamino status lists the pools")
	case o.Nodes < 1 || o.Nodes > 3:
		return WithHint(fmt.Errorf("invalid number of nodes %d", o.Nodes), "use --nodes 1 to 3: the image renews the others")
	case o.Retries < 0:
		return WithHint(fmt.Errorf("invalid number of retries %d", o.Retries), "use --retries 0 or more")
	case w.Reboot != RebootAuto && w.Reboot != RebootAlways && w.Reboot != RebootNever:
		return WithHint(fmt.Errorf("invalid reboot mode %q", w.Reboot), "use --reboot auto, always or never")
	case w.Within < time.Minute || w.Within > 4*time.Hour:
		return WithHint(fmt.Errorf("invalid time limit %s", w.Within), "use --timeout 1m to 4h")
	case w.Return < time.Minute || w.Settle < 0:
		return WithHint(fmt.Errorf("invalid time for a boot %s or to be healthy %s", w.Return, w.Settle),
			"use --return 1m or more, and --min-ready 0 or more")
	}
	run := o.Options
	run.Donor = cmp.Or(o.Donor, "to be chosen")
	return run.Validate()
}

// WithdrawOptions are the options of kamino withdraw.
type WithdrawOptions struct {
	Pool    string // name or ID
	Version string // "": the version that the next node would boot from
	Reason  string // written on the version
	DryRun  bool
	Nodes   bool // as Bad.Nodes
}

// Verb is a command that changed a pool's next image without a new version.
type Verb string

// The verbs.
const (
	VerbPromote  Verb = "promote" // by a person, or by auto-update
	VerbWithdraw Verb = "withdraw"
	VerbRollback Verb = "rollback"
)

// Today is what a run does with an image version that was made on the same day.
type Today string

// The ways to use a version of the same day.
const (
	// TodayOfDonor accepts a version of the donor, and refuses a version of another donor.
	TodayOfDonor Today = ""
	// TodayOfAny accepts a version of any donor, for runs whose donor no person chose.
	TodayOfAny Today = "any"
	// TodayAgain makes another version.
	TodayAgain Today = "again"
)

// ImageReference is how a model refers to an image.
type ImageReference string

// The ways to refer to an image: by the image definition, which the model then always names, or by
// the version, with a write of the model at each promotion. "" is as the model does now. By a
// pointer is only for providers without definitions, whose pools refer to a parameter instead.
const (
	ByVersion    ImageReference = "version"
	ByDefinition ImageReference = "definition"
	ByPointer    ImageReference = "pointer"
)

// Options are the options of one run.
type Options struct {
	Donor    string      // name of the donor's node
	Patch    *PatchOrder // for runs that patch the node and make no image; else nil
	Version  string      // for runs that prove an existing version and take no donor; else ""
	NewNodes int         // number of instances to request at the end
	History  int         // number of promoted versions to keep, at least 2

	Grace        time.Duration // see DrainOptions.Grace
	DrainTimeout time.Duration // for the whole drain; 0 means nine grace periods
	Force        bool          // see DrainOptions.Force

	Today         Today    // what to do with a version of the same day
	Self          string   // the node that this process runs on, never a donor
	PendingReboot []Signal // places that announce a reboot of the node
	AllowSpot     bool     // accept a spot instance as donor
	AdoptModel    bool     // replace an image that somebody else wrote into the model
	Unsealed      bool     // prove a version without a seal receipt
	ImageOnly     bool     // make a version, and do not write the model
	// RequireLabels are labels that the donor must have.
	RequireLabels []LabelDemand
	// Proof is how a version is proved before the pool's nodes boot from it.
	Proof Proving
	// SealPolicy defines which files may stay on the disk, as YAML (docs/agent.md). With a policy,
	// files that nothing explains fail the seal; without one, they are counted.
	SealPolicy []byte
	// Back is set for commands that take a version back or name one. They repair both pools if
	// another pool shares the next image.
	Back bool
	// Offers: a person named the version. With ImageOnly, it is offered; otherwise it would stay
	// hidden.
	Offers bool
}

// Defaults are the defaults of update: those of the original script, where it had the option.
func Defaults() Options {
	return Options{
		History: 3, Grace: 5 * time.Minute,
		Proof: Proving{Mode: ProveCanary, For: 10 * time.Minute, Budget: 10 * time.Minute, Promote: PromoteAuto},
	}
}

// Validate checks the options, without the cluster and the cloud.
func (o Options) Validate() error {
	switch {
	case o.Donor == "":
		return WithHint(fmt.Errorf("no donor named"), "name the node with --target-node; kubectl get nodes lists them")
	case strings.Contains(o.Donor, "/"):
		return WithHint(fmt.Errorf("invalid node name %q", o.Donor),
			"name the Node object, not its machine: kubectl get nodes -o custom-columns=NAME:.metadata.name,MACHINE:.spec.providerID")
	case o.History < 2:
		return WithHint(fmt.Errorf("history %d is too short: the version in use and one to roll back to must be kept", o.History),
			"use --max-history 2 or more")
	case o.NewNodes < 0:
		return WithHint(fmt.Errorf("invalid number of new nodes %d", o.NewNodes), "use --new-updated-nodes 0 or more")
	case o.ImageOnly && o.NewNodes > 0:
		return WithHint(errors.New("--image-only and --new-updated-nodes are mutually exclusive"), "omit one of them")
	case o.Today != TodayOfDonor && o.Today != TodayOfAny && o.Today != TodayAgain:
		return fmt.Errorf("invalid mode %q for a version of today", o.Today)
	case len(o.SealPolicy) > SealPolicyMost:
		return WithHint(fmt.Errorf("seal policy of %d bytes is too large: at most %d", len(o.SealPolicy), SealPolicyMost),
			"let entries of verify.known name directories instead of files")
	}
	return o.Proof.Validate()
}

// DrainLimit returns the time limit of a drain: --drain-timeout, or nine grace periods and at least
// a minute.
func (o Options) DrainLimit() time.Duration {
	if o.DrainTimeout > 0 {
		return o.DrainTimeout
	}
	grace := o.Grace
	if grace < 0 {
		grace = Defaults().Grace
	}
	// The original script tried three times for three grace periods each.
	return max(9*grace, time.Minute)
}

// DrainOptions returns the options of the drain.
func (o Options) DrainOptions() DrainOptions {
	return DrainOptions{Grace: o.Grace, Within: o.DrainLimit(), Force: o.Force}
}
