package kamino

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is the result of one check, or of a whole proof.
type Outcome string

// The outcomes. Failed: evidence from the canary itself. Inconclusive: the cloud, the API server or
// the registry is the cause, or the cause is unknown. NotApplicable: the check has nothing to
// compare with; it neither passes nor fails, and is listed.
const (
	ProofPassed        Outcome = "pass"
	ProofFailed        Outcome = "fail"
	ProofInconclusive  Outcome = "inconclusive"
	ProofWaits         Outcome = "wait"
	ProofNotApplicable Outcome = "not applicable"
)

// Finding is the result of one check.
type Finding struct {
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Evidence string  `json:"evidence"` // for people
}

// String describes the finding for terminals and tags, without control characters that a node may
// have sent, eight-bit ones included.
func (f Finding) String() string {
	return f.Check + ": " + Plain(f.Evidence)
}

// ProveMode is how a version is proved before the pool's nodes boot from it.
type ProveMode string

// The modes.
const (
	ProveCanary ProveMode = "canary" // by one instance beside the pool
	ProveNone   ProveMode = "none"
)

// PromoteMode is who promotes a version that passed its proof.
type PromoteMode string

// The modes.
const (
	PromoteAuto   PromoteMode = "auto"
	PromoteManual PromoteMode = "manual" // a person, with kamino promote
)

// Proving are the options of proofs.
type Proving struct {
	Mode   ProveMode
	For    time.Duration // how long a canary is watched after its node is Ready
	Budget time.Duration // limit of the boot, from the machine's start to its Ready node
	// Times makes the boot budget a multiple of the usual boot of the pool's good canaries, once
	// that is known; 0: Budget counts.
	Times   float64
	Promote PromoteMode
	Probe   []byte   // a Job, as YAML or JSON, that must succeed on the canary; nil for none
	Without []string // names of the checks that are skipped
}

// Checks lists the names of the checks of a proof, in their order.
func Checks() []string {
	return []string{"cloud", "identity", "apart", "certificate", "ready", "boot", "stable", "labels", "capacity",
		"pressure", "clock", "images",
		"daemonsets", "report", "units", "reboot", "probe"}
}

// Validate refuses unknown modes, times and checks.
func (p Proving) Validate() error {
	switch {
	case p.Mode != ProveCanary && p.Mode != ProveNone:
		return WithHint(fmt.Errorf("invalid proof mode %q", p.Mode), "use --prove canary or none")
	case p.Promote != PromoteAuto && p.Promote != PromoteManual:
		return WithHint(fmt.Errorf("invalid promotion mode %q", p.Promote), "use --promote auto or manual")
	case p.Mode != ProveNone && p.Budget < time.Minute:
		return WithHint(fmt.Errorf("boot budget %s is too short", p.Budget), "use --boot-budget 1m or more")
	case p.Times != 0 && !(p.Times >= 1 && p.Times <= 100):
		return WithHint(fmt.Errorf("invalid boot budget %gx", p.Times),
			"use --boot-budget 2x, or any factor from 1 to 100; or a time, as 10m")
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

// ProofError reports that a version was not promoted because of its proof. Failed: the version is withdrawn.
// Inconclusive: the version stays hidden, and the next run proves it again.
type ProofError struct {
	Version  string
	Outcome  Outcome
	Findings []Finding // the first is the reason
	// Kept: new nodes still boot from the version, because no other could replace it.
	Kept bool
}

func (e *ProofError) Error() string {
	word := "the proof of version " + e.Version + " is inconclusive"
	if e.Outcome == ProofFailed {
		word = "version " + e.Version + " failed its proof"
	}
	return word + ": " + e.Reason()
}

// Reason describes the first finding, for people.
func (e *ProofError) Reason() string {
	if len(e.Findings) == 0 {
		return "unknown reason"
	}
	return e.Findings[0].String()
}

// OfCanary reports whether a pool is only the scale set of a canary (CanaryName).
func (p PoolID) OfCanary() bool {
	hash, ok := strings.CutPrefix(p.Name(), canaryPrefix)
	return ok && len(hash) == 8 && strings.Trim(hash, "0123456789abcdef") == ""
}

const canaryPrefix = "kamino-"

// BootBudget returns the boot limit of a canary. A factor counts once the usual boot of the pool's
// canaries is known, with a minimum that no machine is too fast for.
func (p Proving) BootBudget(l Ledger) time.Duration {
	if usual := Usually(l.Boots); p.Times > 0 && usual > 0 {
		return max(time.Duration(p.Times*float64(usual)), time.Minute)
	}
	return p.Budget
}
