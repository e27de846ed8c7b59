package seal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/roots"
	"kamino.dev/kamino/agent/scan"
)

// Options of one seal.
type Options struct {
	Run       string
	Nonce     string // what the receipt repeats
	Donor     string // the donor's node name
	Config    Config
	FirstBoot string
	Join      string // JoinKeep or JoinFresh; JoinAuto was decided by the caller
	Facts     Facts
	Agent     string   // version of this program
	Binary    string   // path of this program, to be installed; empty: not installed
	Swaps     []string // files that were used for swapping until services were stopped
	Now       func() time.Time
	Log       *slog.Logger
	// Earlier is a look at the disk as it was before the services were stopped (Survey). Nil: Seal
	// makes one.
	Earlier *inventory.Index
	// Seen lets Clean, called again, look only at what changed; nil has it look at everything.
	Seen *scan.Seen
	// Estimate leaves out what only works, or only makes sense, once services are stopped.
	Estimate bool

	unvouched []string          // explain's
	vouched   func(string) bool // explain's

	// For tests of the seal itself: stop dead after this rule, as a power failure would; leave one
	// rule out.
	InterruptAfter string
	Omit           string
}

// ErrInterrupted is what InterruptAfter causes: nothing was cleaned up.
var ErrInterrupted = errors.New("interrupted on request")

// Step is one line of the plan.
type Step struct {
	Rule    string   `json:"rule"`
	Action  Action   `json:"action"`
	Secret  bool     `json:"secret"`
	Paths   []string `json:"paths"`
	Bytes   int64    `json:"bytes"`
	matches []Match
	why     string
}

// Plan is what a seal would do to the disk as it is now, rules without a match left out.
func Plan(d *disk.Disk, o Options) (plan []Step, err error) {
	err = within(d, func(own *disk.Disk) error {
		plan, err = planOf(own, o)
		return err
	})
	return plan, err
}

func planOf(d *disk.Disk, o Options) ([]Step, error) {
	var plan []Step
	for _, r := range o.rules(d) {
		if r.ID == o.Omit {
			continue
		}
		matches, err := r.matches(d, o)
		if err != nil {
			return nil, err
		}
		if len(matches) == 0 {
			continue
		}
		s := Step{Rule: r.ID, Action: r.Action, Secret: r.Secret, matches: matches, why: r.Why}
		for _, m := range matches {
			s.Paths = append(s.Paths, m.Path)
			s.Bytes += m.Bytes
		}
		plan = append(plan, s)
	}
	return plan, nil
}

// Permit is nil if the disk may be sealed. Nothing is changed, no service need be stopped.
func Permit(d *disk.Disk, o Options) error {
	return within(d, func(own *disk.Disk) error { return permit(own, o, Unmounted(own)) })
}

// permit is Permit for a disk on which nothing is mounted any more below the directories unmounted.
func permit(d *disk.Disk, o Options, unmounted []string) error {
	o.Estimate = true
	if err := stuck(d); err != nil {
		return err
	}
	for _, r := range o.Config.Rules {
		if err := r.rule().sparesOwn(); err != nil {
			return err
		}
	}
	if err := unfit(d); err != nil {
		return err
	}
	if half, err := inventory.Unfinished(d); err != nil {
		return err
	} else if len(half) > 0 { // each clone would have it, and no patch works on one
		return refusal("wait, or finish it on the donor: "+half.Todo(), "a change of packages is under way or was interrupted: %s",
			half.What())
	}
	plan, err := planOf(d, o)
	if err != nil {
		return err
	}
	if err := refused(plan); err != nil {
		return err
	}
	if err := blocked(d, o, plan, unmounted); err != nil {
		return err
	}
	return feasible(d, o, plan)
}

// refused is the error of a rule of action check that matched.
func refused(plan []Step) error {
	for _, s := range plan {
		if s.Action == Check {
			return fmt.Errorf("seal refused by rule %s: /%s: %s; nothing was changed (an exception for the rule allows it, in %s)",
				s.Rule, disk.Line(strings.Join(s.Paths, ", /")), s.why, allowIn)
		}
	}
	return nil
}

// Seal seals the disk. On an error everything is as it was before, unless it is a *NeedsBoot; on
// success the receipt is on the disk, and what was set aside is overwritten and removed. Free space
// is the caller's next step (FreeSpace). Sealing a sealed disk again for the same run returns its
// receipt.
func Seal(ctx context.Context, d *disk.Disk, o Options) (r Receipt, err error) {
	err = within(d, func(own *disk.Disk) error {
		r, err = sealOwn(ctx, own, o)
		return err
	})
	return r, err
}

func sealOwn(ctx context.Context, d *disk.Disk, o Options) (Receipt, error) {
	if old, ok, err := ReadReceipt(d); ok {
		if err == nil && old.Run != o.Run {
			err = fmt.Errorf("seal: this disk was sealed by run %s and has not booted since", old.Run)
		}
		if err == nil {
			err = Purge(d)
		}
		if err != nil {
			return old, &NeedsBoot{Err: err}
		}
		return old, nil
	}
	if restored, err := Unseal(d); err != nil {
		return Receipt{}, &NeedsBoot{Err: fmt.Errorf("undo an interrupted seal: %w", err), Halfway: true}
	} else if restored > 0 {
		o.Log.Info("undid an interrupted seal", "changes", restored)
	}
	if err := permit(d, o, nil); err != nil {
		return Receipt{}, err
	}
	if err := swapping(d); err != nil {
		return Receipt{}, err
	}
	tellLeft(d, o)
	if err := noContainers(d); err != nil {
		return Receipt{}, err
	}
	if err := survey(ctx, d, &o); err != nil {
		return Receipt{}, err
	}
	receipt, err := set(ctx, d, o)
	if errors.Is(err, ErrInterrupted) {
		return receipt, err
	}
	if err != nil {
		if d.Exists(ReceiptPath) { // written, though not known to be durable
			return receipt, &NeedsBoot{Err: err}
		}
		if !d.Exists(journalPath) && setAside(d) {
			return receipt, &NeedsBoot{Err: fmt.Errorf("%w; and the seal's journal is gone, so nothing can be undone", err)}
		}
		if _, uerr := Unseal(d); uerr != nil {
			return receipt, &NeedsBoot{Err: fmt.Errorf("%w; and undoing the seal failed (`kamino-agent unseal` tries again): %w", err,
				uerr), Halfway: true}
		}
		return receipt, err
	}
	if o.InterruptAfter == "receipt" {
		return receipt, ErrInterrupted
	}
	if err := Purge(d); err != nil {
		return receipt, &NeedsBoot{Err: err}
	}
	return receipt, nil
}

// set applies the rules and commits.
func set(ctx context.Context, d *disk.Disk, o Options) (Receipt, error) {
	receipt := Receipt{APIVersion: "kamino.dev/v1alpha1", Kind: "Receipt", Run: o.Run, Nonce: o.Nonce, Donor: o.Donor,
		SealedAt: o.Now().UTC().Truncate(time.Second), VMID: o.Facts.VMID, Agent: o.Agent}
	var err error
	// A database that cannot be read was told by the inventory, and does not keep a disk from being
	// sealed.
	if _, receipt.Facts, err = inventory.Packages(d); err != nil {
		o.Log.Warn("the receipt does not list the packages", "error", err)
	}
	receipt.SSHKeys = inventory.SSHKeys(d)
	if o.Binary != "" {
		if err := InstallBinary(d, o.Binary); err != nil {
			return receipt, err
		}
	}
	s, err := begin(d, o.Facts.VMID)
	if err != nil {
		return receipt, err
	}
	if err := prepare(s, d, o); err != nil {
		return receipt, err
	}
	for _, r := range o.rules(d) {
		if r.ID == o.Omit || r.Action == Check {
			continue
		}
		if err := ctx.Err(); err != nil {
			return receipt, err
		}
		matches, err := r.matches(d, o)
		if err != nil {
			return receipt, err
		}
		if err := s.apply(r.ID, matches); err != nil {
			return receipt, err
		}
		if n := len(matches); n > 0 {
			c := RuleCount{ID: r.ID, Matched: n}
			for _, m := range matches {
				c.Bytes += m.Bytes
			}
			receipt.Rules = append(receipt.Rules, c)
		}
		if r.ID == o.InterruptAfter {
			return receipt, ErrInterrupted
		}
	}
	if err := zeroSwaps(ctx, d); err != nil {
		return receipt, err
	}
	if err := explain(ctx, s, d, &o, &receipt); err != nil {
		return receipt, err
	}
	if err := Clean(ctx, d, o); err != nil {
		return receipt, err
	}
	if err := removable(d); err != nil {
		return receipt, err
	}
	return receipt, commit(d, &receipt)
}

// prepare installs what clones need and writes the genealogy; before the rules, so that an
// interrupted seal is met by the agent at the next boot.
func prepare(s *stage, d *disk.Disk, o Options) error {
	matches, err := installed(d, o)
	if err != nil {
		return err
	}
	if err := s.apply("install", matches); err != nil {
		return err
	}
	former, err := d.ReadFile(Ancestry, disk.Small)
	if err != nil && d.Exists(Ancestry) {
		return err
	}
	if len(former) > 0 && former[len(former)-1] != '\n' {
		former = append(former, '\n')
	}
	name := cmp.Or(o.Facts.Host, o.Donor)
	line := o.Now().UTC().Format(time.DateOnly) + " " + name + "\n"
	err = s.apply("ancestry", []Match{{Path: Ancestry, New: &Content{Data: append(former, line...), Mode: 0o644}}})
	if err == nil && o.InterruptAfter == "ancestry" {
		return ErrInterrupted
	}
	return err
}

func commit(d *disk.Disk, r *Receipt) error {
	sum, err := r.sum()
	if err != nil {
		return err
	}
	r.Hash = sum
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return d.WriteFile(ReceiptPath, append(data, '\n'), 0o644)
}

// Found is a scan that found something.
type Found struct{ Result scan.Result }

func (f *Found) Error() string {
	const most = 10
	var lines []string
	for _, finding := range f.Result.Findings[:min(len(f.Result.Findings), most)] {
		lines = append(lines, "  "+finding.String())
	}
	all := len(f.Result.Findings) + f.Result.More
	if n := all - most; n > 0 {
		lists := "all"
		if f.Result.More > 0 {
			lists = fmt.Sprintf("the first %d", len(f.Result.Findings))
		}
		lines = append(lines, fmt.Sprintf("  and %d more; `kamino-agent verify -o json` lists %s", n, lists))
	}
	return fmt.Sprintf("%d things must not be in an image:\n%s\nRemove them, or write a rule or verify.allow for them in %s.",
		all, strings.Join(lines, "\n"), allowIn)
}

// Clean scans the disk for what the rules forgot, or for what was written since it did so last
// (o.Seen); *Found if there is anything.
func Clean(ctx context.Context, d *disk.Disk, o Options) error {
	look := o.Scan(d)
	var err error
	if look.Also, err = otherNames(d); err != nil {
		return err
	}
	return clean(ctx, d, o, look)
}

// keeps is what the rules leave by a decision of the operator's: exceptions, and what the cluster's
// nodes share. Each allows the kinds of finding that it was made for, not all: a key in an excepted
// file is still found.
func (o Options) keeps(d *disk.Disk) (out []Allowed) {
	found := roots.Of(d)
	for _, r := range o.rooted(d) {
		if o.Join == JoinKeep {
			for _, p := range r.Shared {
				for _, kind := range append([]string{sensitivePlace}, r.SharedKinds...) {
					out = append(out, Allowed{Path: p, Kind: kind, Why: "the cluster's nodes share it (join: keep)"})
				}
			}
		}
		for _, e := range o.Config.Exceptions {
			if e.Rule != r.ID {
				continue
			}
			for _, p := range found.Expand(r.narrowed(e)) {
				out = append(out, Allowed{Path: p, Kind: cmp.Or(e.Kind, sensitivePlace), Why: e.Why})
			}
		}
	}
	return out
}

// sensitivePlace is the scan's kind for anything in a place that must be empty.
const sensitivePlace = "sensitive-place"

// Scan is how the scan looks at a disk sealed with these options.
func (o Options) Scan(d *disk.Disk) scan.Options {
	allowed := slices.Concat(o.Config.Verify.Allow, o.keeps(d))
	return scan.Options{
		Facts: scan.Facts(o.Facts), Seen: o.Seen, Unvouched: o.unvouched, Vouched: o.vouched,
		Allow: func(kind, name string) bool {
			return slices.ContainsFunc(allowed, func(a Allowed) bool { return a.Kind == kind && covers(a.Path, name) })
		},
	}
}
