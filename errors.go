package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The errors that both ports share. Adapters wrap them with %w, so that the
// engine can decide by errors.Is what a failed call means.
var (
	// ErrNotFound: the thing named does not exist (any more), says one answer. It
	// may be wrong for a while: clouds replicate what their regions know. No donor
	// is given up for it alone.
	ErrNotFound = errors.New("not found")
	// ErrNotVisible: these credentials are shown nothing where the thing should
	// be: another tenant, a subscription or resource group that does not exist or
	// in which they have no rights. Whether the thing exists is not known.
	ErrNotVisible = errors.New("not visible to these credentials")
	// ErrInProgress: something else is being done to the thing just now; look
	// again later.
	ErrInProgress = errors.New("another operation is in progress")
	// ErrConflict: the thing changed since it was read; nothing was written.
	// Read again, decide again.
	ErrConflict = errors.New("changed since it was read")
	// ErrUnavailable: the other side did not answer, or answered that it could
	// not. Whether the call took effect is not known: look.
	ErrUnavailable = errors.New("service unavailable")
	// ErrForbidden: these credentials may not do this. Trying again is useless.
	ErrForbidden = errors.New("not allowed")
	// ErrUnsupported: this provider, pool or instance cannot do this, ever.
	ErrUnsupported = errors.New("not supported")
	// ErrTooLarge: what was to be stored is larger than the store takes.
	ErrTooLarge = errors.New("too large")
	// ErrInUse: a model or an instance refers to the version; it was not deleted.
	ErrInUse = errors.New("in use")
	// ErrLeaseLost: another process took the run over; this one must stop
	// without touching anything more.
	ErrLeaseLost = errors.New("the run was taken over by another process")
)

// ThrottledError says that the other side accepts no more calls for a while. It
// is never a failure of the step, only a delay.
type ThrottledError struct {
	After time.Duration // how long from now, as the service said
	Err   error
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("throttled, next call in %s: %v", e.After, e.Err)
}

func (e *ThrottledError) Unwrap() error { return e.Err }

// HintError carries what the operator can type or change next.
type HintError struct {
	Err  error
	Hint string
}

func (e *HintError) Error() string { return e.Err.Error() }

func (e *HintError) Unwrap() error { return e.Err }

// WithHint adds advice to an error. The command line prints it on a line of its
// own below the message.
func WithHint(err error, format string, args ...any) error {
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

// Hint returns the advice an error carries, or "".
func Hint(err error) string {
	var h *HintError
	if errors.As(err, &h) {
		return h.Hint
	}
	return ""
}

// Hints returns the advice of every error in a tree of joined and wrapped errors, the outermost
// first.
func Hints(err error) []string {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *HintError:
		return append([]string{e.Hint}, Hints(e.Err)...)
	case interface{ Unwrap() error }:
		return Hints(e.Unwrap())
	case interface{ Unwrap() []error }:
		var out []string
		for _, inner := range e.Unwrap() {
			out = append(out, Hints(inner)...)
		}
		return out
	}
	return nil
}

// Refusals are those of every error in a tree of joined and wrapped errors.
func Refusals(err error) (list []Refusal) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *RefusedError:
		return e.Refusals
	case interface{ Unwrap() error }:
		return Refusals(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			list = append(list, Refusals(inner)...)
		}
	}
	return list
}

// Advice is all that an error tells the operator to do, each once: what its refusals say, and its
// hints.
func Advice(err error) []string {
	var all []string
	for _, r := range Refusals(err) {
		all = append(all, r.Do)
	}
	return each(append(all, Hints(err)...))
}

// AdviceOr is what every hint of an error says, each once, or otherwise where it has none.
func AdviceOr(err error, otherwise string) string {
	return cmp.Or(strings.Join(each(Hints(err)), "; "), otherwise)
}

// each leaves out what was said before.
func each(lines []string) (out []string) {
	for _, line := range lines {
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// Refusal is one reason why Kamino does not touch a pool or a node. It names
// the field, its value, and what the user can do.
type Refusal struct {
	Code  string `json:"code"`            // stable, for programs: "upgrade-policy", "spot", …
	Field string `json:"field"`           // where the value stands
	Value string `json:"value"`           // what stands there
	Why   string `json:"why"`             // what would go wrong
	Do    string `json:"do"`              // what the user can do about it
	Allow string `json:"allow,omitempty"` // the option that overrides it, where one exists
}

// String omits an empty field.
func (r Refusal) String() string {
	if r.Field == "" {
		return r.Why + "; " + r.Do
	}
	return fmt.Sprintf("%s is %q: %s; %s", r.Field, r.Value, r.Why, r.Do)
}

// Spot says whether the provider may take the machine away at any time, as Refusals tell.
func Spot(list []Refusal) bool {
	return slices.ContainsFunc(list, func(r Refusal) bool { return r.Code == "spot" })
}

// Codes of refusals that are about taking donors, or about promoting. A pool goes back to a former
// image all the same, most of all while a bad one is rolled out: they stop no withdrawal and no
// rollback.
const (
	CodeShared    = "shared" // the pool's next image is that of another pool, too
	CodeRefresh   = "refresh"
	CodeSuspended = "suspended"
	CodeWarmPool  = "warm-pool"
	CodeRepairs   = "automatic-repairs"
	CodeNoImage   = "no-image" // the image that the pool's next instance boots from does not exist
)

var notOfGoingBack = []string{CodeShared, CodeRefresh, CodeSuspended, CodeWarmPool, CodeRepairs, CodeNoImage}

// RefusedError lists every refusal that applies, not only the first. Nothing
// was changed anywhere.
type RefusedError struct {
	Subject  string // "node k8s-…" or "pool …"
	Refusals []Refusal
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		lines[i] = r.String()
	}
	return fmt.Sprintf("%s refused: %s", e.Subject, strings.Join(lines, "\n  and: "))
}

// HeldError says that another run of this pool is alive.
type HeldError struct {
	Pool   PoolID
	Holder string // run
	By     string // process, as host/pid
	Step   string
	Donor  string
	Work   Work
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("pool %s is held by run %s (process %s, %s %s, step %s)",
		e.Pool.Name(), e.Holder, cmp.Or(e.By, "unknown"), e.Work.Takes(), cmp.Or(e.Donor, "none"), cmp.Or(e.Step, StepLock))
}

// Transient tells whether looking again later can help.
func Transient(err error) bool {
	var t *ThrottledError
	return errors.As(err, &t) || errors.Is(err, ErrInProgress) ||
		errors.Is(err, ErrConflict) || errors.Is(err, ErrUnavailable)
}

// RefuseUnknown refuses a node that the cluster does not have.
func RefuseUnknown(node string) error {
	return &RefusedError{Subject: fmt.Sprintf("node %q", node), Refusals: []Refusal{{Code: "unknown-node",
		Why: "not found: the cluster has no node of that name",
		Do:  "kubectl get nodes lists the nodes; if a run left this one off and Kubernetes forgot it: kamino restore"}}}
}

// RefuseMark refuses a node whose mark cannot be believed.
func RefuseMark(node string, err error) error {
	return &RefusedError{Subject: "node " + node, Refusals: []Refusal{{Code: "mark", Why: err.Error(), Do: LeftAlone(node)}}}
}

// CodeSealPod is the code of the refusal of a seal pod that no donor could have: its image is
// not known, or not admitted.
const CodeSealPod = "seal-pod"

// CodeLocalVolume is the code of the refusal of a node on whose machine a PersistentVolume has its
// data: a drain keeps that, and a stop destroys it. No option lifts it.
const CodeLocalVolume = "local-volume"

// CodeReturns is the code of the refusal of a node for pods that would come back after an eviction.
const CodeReturns = "returning-pods"

// OfNode says whether all of an error's refusals are for what only its node has, and what is found
// before anything is taken: such a candidate has cost nothing, and says nothing of the next one.
func OfNode(refusals []Refusal) bool {
	return len(refusals) > 0 && !slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Code != CodeLocalVolume && r.Code != CodeReturns })
}

// RefuseStuck is the refusal of a node for pods that no waiting removes.
func RefuseStuck(pods []Pod) Refusal {
	if back := Returning(pods); len(back) > 0 {
		return Refusal{Code: CodeReturns, Why: "the node cannot be drained: " + DescribePods(back) + "; nothing was evicted", Do: LeaveReturning}
	}
	return Refusal{Code: "drain", Why: "the node cannot be drained: " + DescribePods(pods) + "; nothing was evicted",
		Do: "give these pods a controller or fix their budgets, choose another node, or use --force to delete them"}
}

// Returning are the pods that would come back, and that no waiting removes.
func Returning(pods []Pod) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return !p.Returns || !p.Stuck })
}

// Tolerant are the pods that tolerate the block: any of them may have come after the drain.
func Tolerant(pods []Pod) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return !p.Returns })
}

// LeaveReturning is what to do about pods that come back to a node although it is blocked.
const LeaveReturning = "choose another node, or let the workloads of these pods tolerate only the taints that they need; --force does not help"

// InTheWay is what a look met that the same command would meet again until somebody changes what
// the message names. A read that failed is none: services and credentials come right by
// themselves (a role of Azure takes minutes to be in effect).
type InTheWay struct{ Err error }

func (e InTheWay) Error() string { return e.Err.Error() }

func (e InTheWay) Unwrap() error { return e.Err }

// Refusing says whether an error of a look is a refusal.
func Refusing(err error) bool {
	var refused *RefusedError
	var held *HeldError
	var met InTheWay
	return errors.As(err, &refused) || errors.As(err, &held) || errors.As(err, &met)
}

// HintPool tells what to do where a pool cannot be read that a donor belongs to.
func HintPool(err error, pool PoolID) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return WithHint(err, "nothing was removed; try again in a few minutes: kamino restore; if the pool was deleted for good: kamino restore --pool %s --pool-is-gone", pool.Name())
	case errors.Is(err, ErrNotVisible):
		return WithHint(err, "nothing was removed; use credentials of the pool's tenant that may read %s, then: kamino restore; if the pool was deleted with its resource group: kamino restore --pool %s --pool-is-gone",
			pool, pool.Name())
	}
	return err
}

// CutText keeps at most so many characters of a text, the last of which then is "…".
func CutText(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// FailedStep is the step that an error of a run comes from.
func FailedStep(err error) string {
	var s *StepError
	if errors.As(err, &s) {
		return s.Step
	}
	return ""
}

// StepError says which step failed.
type StepError struct {
	Step string
	Err  error
	// Refused: a look before the first change but for marks met what the same command would meet
	// again.
	Refused bool
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }

func (e *StepError) Unwrap() error { return e.Err }

// Interrupted is the error of a call that ended because ctx did: clients tell
// that as anything between a time-out and a broken reply.
func Interrupted(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (Transient(err) || errors.Is(err, cause)) {
		return &interruption{cause}
	}
	return err
}

// interruption is the end of a run's context, in words for people.
type interruption struct{ cause error }

func (i *interruption) Error() string {
	if errors.Is(i.cause, context.Canceled) {
		return "interrupted"
	}
	return "interrupted: " + i.cause.Error()
}

func (i *interruption) Unwrap() error { return i.cause }

// SomeOf names the first few of a list.
func SomeOf(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// InBrackets is a text in brackets, with a space before it; "" where there is no text.
func InBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// CodeNoCanary is the code of the refusal of a proof where no canary can be created.
const CodeNoCanary = "no-canary"
