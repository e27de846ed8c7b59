package kamino

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is what a check, or all of them together, say of an image.
type Outcome string

// The outcomes. Failed is evidence from the clone itself; Inconclusive is what cloud, API server or
// registry are to blame for, or what nobody can tell. NotApplicable is what a check has nothing to
// compare with for: it neither passes nor convicts, and is told.
const (
	ProofPassed        Outcome = "pass"
	ProofFailed        Outcome = "fail"
	ProofInconclusive  Outcome = "inconclusive"
	ProofWaits         Outcome = "wait"
	ProofNotApplicable Outcome = "not applicable"
)

// Finding is what one check found.
type Finding struct {
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Evidence string  `json:"evidence"` // for people
}

// String is for terminals and tags, without the control characters that a node may have sent, those
// of eight bits included.
func (f Finding) String() string {
	return f.Check + ": " + Plain(f.Evidence)
}

// ProveMode says how a version is proved before it is what the pool's nodes boot from.
type ProveMode string

// The modes.
const (
	ProveCanary ProveMode = "canary" // by one instance beside the pool
	ProveNone   ProveMode = "none"
)

// PromoteMode says who makes a version that passed what the pool's nodes boot from.
type PromoteMode string

// The modes.
const (
	PromoteAuto   PromoteMode = "auto"
	PromoteManual PromoteMode = "manual" // a person, with kamino promote
)

// Proving is what the user decides about proofs.
type Proving struct {
	Mode   ProveMode
	For    time.Duration // how long a canary is watched once its node is Ready
	Budget time.Duration // for its boot, from a machine that runs to a node that is Ready
	// Times makes the budget so many times what good canaries of the pool usually took, once that
	// is known; 0: it is Budget.
	Times   float64
	Promote PromoteMode
	Probe   []byte   // a Job as YAML or JSON that must succeed on the canary; nil for none
	Without []string // checks that are left out
}

// Checks lists the names of the checks of a proof, in the order in which they are told.
func Checks() []string {
	return []string{"cloud", "identity", "apart", "certificate", "ready", "boot", "stable", "labels", "capacity", "pressure", "clock", "images",
		"daemonsets", "report", "units", "reboot", "probe"}
}

// Validate refuses modes, times and checks that there are not.
func (p Proving) Validate() error {
	switch {
	case p.Mode != ProveCanary && p.Mode != ProveNone:
		return WithHint(fmt.Errorf("invalid proof mode %q", p.Mode), "use --prove canary or none")
	case p.Promote != PromoteAuto && p.Promote != PromoteManual:
		return WithHint(fmt.Errorf("invalid promotion mode %q", p.Promote), "use --promote auto or manual")
	case p.Mode != ProveNone && p.Budget < time.Minute:
		return WithHint(fmt.Errorf("boot budget %s is too short", p.Budget), "use --boot-budget 1m or more")
	case p.Times != 0 && !(p.Times >= 1 && p.Times <= 100):
		return WithHint(fmt.Errorf("invalid boot budget %gx", p.Times), "use --boot-budget 2x, or any factor from 1 to 100; or a time, as 10m")
	case p.For < 0 || p.For > 24*time.Hour:
		return WithHint(fmt.Errorf("invalid time for a proof: %s", p.For), "use --prove-for 0 to 24h")
	}
	for _, name := range p.Without {
		if !slices.Contains(Checks(), name) {
			return WithHint(fmt.Errorf("unknown check %q", name), "the checks are %s", strings.Join(Checks(), ", "))
		}
	}
	return nil
}

// ProofError says that a version was not promoted because of its proof. Failed: it is withdrawn.
// Inconclusive: it stays hidden, and the next run proves it again.
type ProofError struct {
	Version  string
	Outcome  Outcome
	Findings []Finding // the first is the reason
	// Kept says that new nodes boot from it all the same: no version could take its place.
	Kept bool
}

func (e *ProofError) Error() string {
	word := "the proof of version " + e.Version + " is inconclusive"
	if e.Outcome == ProofFailed {
		word = "version " + e.Version + " failed its proof"
	}
	return word + ": " + e.Reason()
}

// Reason is the first finding, for people.
func (e *ProofError) Reason() string {
	if len(e.Findings) == 0 {
		return "unknown reason"
	}
	return e.Findings[0].String()
}

// OfCanary says whether a pool is no pool but what a canary is made of: CanaryName.
func (p PoolID) OfCanary() bool {
	hash, ok := strings.CutPrefix(p.Name(), canaryPrefix)
	return ok && len(hash) == 8 && strings.Trim(hash, "0123456789abcdef") == ""
}

const canaryPrefix = "kamino-"

// BootBudget is for the boot of a pool's canary: a factor of what theirs usually took counts once that
// is known, and as one that no machine is too fast for.
func (p Proving) BootBudget(l Ledger) time.Duration {
	if usual := Usually(l.Boots); p.Times > 0 && usual > 0 {
		return max(time.Duration(p.Times*float64(usual)), time.Minute)
	}
	return p.Budget
}
