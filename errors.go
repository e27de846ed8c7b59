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

// The errors of both ports. Adapters wrap them with %w, and the engine checks them with errors.Is.
var (
	// ErrNotFound: one answer says that the resource does not exist. It may be wrong for a while,
	// because clouds replicate between regions. No donor is given up for one such answer.
	ErrNotFound = errors.New("not found")
	// ErrNotVisible: these credentials see nothing where the resource should be (another tenant, or
	// a subscription or resource group that does not exist or grants them no rights). Whether the
	// resource exists is not known.
	ErrNotVisible = errors.New("not visible to these credentials")
	// ErrInProgress: another operation on the resource is running; look again later.
	ErrInProgress = errors.New("another operation is in progress")
	// ErrConflict: the resource changed since it was read, and nothing was written. Read and decide
	// again.
	ErrConflict = errors.New("changed since it was read")
	// ErrUnavailable: the service did not answer, or answered with a server error. Whether the call
	// took effect is not known: look.
	ErrUnavailable = errors.New("service unavailable")
	// ErrForbidden: these credentials may not do this. Trying again does not help.
	ErrForbidden = errors.New("not allowed")
	// ErrUnsupported: this provider, pool or instance cannot do this, ever.
	ErrUnsupported = errors.New("not supported")
	// ErrTooLarge: the value is larger than its store accepts.
	ErrTooLarge = errors.New("too large")
	// ErrInUse: a model or an instance refers to the version, so it was not deleted.
	ErrInUse = errors.New("in use")
	// ErrLeaseLost: another process took the run over. This process must stop without changing
	// anything.
	ErrLeaseLost = errors.New("the run was taken over by another process")
)

// ThrottledError is an error of a service that accepts no more calls for a while. It delays a step and never fails
// it.
type ThrottledError struct {
	After time.Duration // how long from now, as the service said
	Err   error
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("throttled, next call in %s: %v", e.After, e.Err)
}

func (e *ThrottledError) Unwrap() error { return e.Err }

// HintError is an error with advice: what the operator can type or change next.
type HintError struct {
	Err  error
	Hint string
}

func (e *HintError) Error() string { return e.Err.Error() }

func (e *HintError) Unwrap() error { return e.Err }

// WithHint adds advice to an error. The command line prints it on a line below the message.
func WithHint(err error, format string, args ...any) error {
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

// Hint returns the advice of an error; "" if it has none.
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

// Refusals returns the refusals of every error in a tree of joined and wrapped errors.
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

// Advice returns everything that an error tells the operator to do, each line once: what its
// refusals say, and its hints.
func Advice(err error) []string {
	var all []string
	for _, r := range Refusals(err) {
		all = append(all, r.Do)
	}
	return each(append(all, Hints(err)...))
}

// AdviceOr returns every hint of an error, each once; otherwise, if it has none.
func AdviceOr(err error, otherwise string) string {
	return cmp.Or(strings.Join(each(Hints(err)), "; "), otherwise)
}

// each removes repeated lines.
func each(lines []string) (out []string) {
	for _, line := range lines {
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// Refusal is one reason why Kamino does not touch a pool or a node. It names the field, its value,
// and what the user can do.
type Refusal struct {
	Code  Code   `json:"code"`            // stable, for programs: "upgrade-policy", "spot", …
	Field string `json:"field"`           // where the value is
	Value string `json:"value"`           // the value found there
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

// Spot reports whether the provider may take the machine away at any time, according to its
// Refusals.
func Spot(list []Refusal) bool {
	return slices.ContainsFunc(list, func(r Refusal) bool { return r.Code == CodeSpot })
}

// RefusedError lists every refusal that applies. Nothing was changed.
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

// HeldError reports that another run of this pool is alive.
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

// Transient reports whether looking again later can help.
func Transient(err error) bool {
	var t *ThrottledError
	return errors.As(err, &t) || errors.Is(err, ErrInProgress) ||
		errors.Is(err, ErrConflict) || errors.Is(err, ErrUnavailable)
}

// RefuseUnknown is the refusal of a node that the cluster does not have.
func RefuseUnknown(node string) error {
	return &RefusedError{Subject: fmt.Sprintf("node %q", node), Refusals: []Refusal{{Code: "unknown-node",
		Why: "not found: the cluster has no node of that name",
		Do:  "kubectl get nodes lists the nodes; if a run left this one off and Kubernetes forgot it: kamino restore"}}}
}

// RefuseMark is the refusal of a node whose mark cannot be believed.
func RefuseMark(node string, err error) error {
	return &RefusedError{Subject: "node " + node, Refusals: []Refusal{{Code: "mark", Why: err.Error(), Do: LeftAlone(node)}}}
}

// OfNode reports whether all refusals concern only this node and were found before anything was
// taken. Such a candidate has cost nothing, and the next candidate may succeed.
func OfNode(refusals []Refusal) bool {
	return len(refusals) > 0 && !slices.ContainsFunc(refusals,
		func(r Refusal) bool { return r.Code != CodeLocalVolume && r.Code != CodeReturns })
}

// RefuseStuck is the refusal of a node for pods that waiting does not remove.
func RefuseStuck(pods []Pod) Refusal {
	if back := Returning(pods); len(back) > 0 {
		return Refusal{Code: CodeReturns, Why: "the node cannot be drained: " + DescribePods(back) + "; nothing was evicted",
			Do: LeaveReturning}
	}
	return Refusal{Code: "drain", Why: "the node cannot be drained: " + DescribePods(pods) + "; nothing was evicted",
		Do: "give these pods a controller or fix their budgets, choose another node, or use --force to delete them"}
}

// Returning returns the pods that would come back after an eviction and do not end by themselves.
func Returning(pods []Pod) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return !p.Returns || !p.Stuck })
}

// Tolerant returns the pods that tolerate the block. Any of them may have arrived after the drain.
func Tolerant(pods []Pod) []Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return !p.Returns })
}

// LeaveReturning is the advice about pods that come back to a blocked node.
const LeaveReturning = "choose another node, or let the workloads of these pods name no node and tolerate only the taints that they need; --force does not help"

// InTheWay is an error that lasts until somebody changes what its message names: repeating the command
// cannot help. A failed read is none: services recover, and new rights take effect after minutes (Azure).
type InTheWay struct{ Err error }

func (e InTheWay) Error() string { return e.Err.Error() }

func (e InTheWay) Unwrap() error { return e.Err }

// Refusing reports whether the error of an observation is a refusal.
func Refusing(err error) bool {
	var refused *RefusedError
	var held *HeldError
	var met InTheWay
	return errors.As(err, &refused) || errors.As(err, &held) || errors.As(err, &met)
}

// HintPool adds what to type if the pool of a donor cannot be read.
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

// CutText shortens a text to a number of characters, the last of which is then "…".
func CutText(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// FailedStep returns the step in which a run's error occurred.
func FailedStep(err error) string {
	var s *StepError
	if errors.As(err, &s) {
		return s.Step
	}
	return ""
}

// StepError is an error with the step that failed.
type StepError struct {
	Step string
	Err  error
	// Refused: the run met an obstacle that the same command would meet again, before it changed
	// anything but marks.
	Refused bool
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }

func (e *StepError) Unwrap() error { return e.Err }

// Interrupted is the error of a call that ended because ctx ended. Clients report that as anything
// from a time-out to a broken reply.
func Interrupted(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (Transient(err) || errors.Is(err, cause)) {
		return &interruption{cause}
	}
	return err
}

// interruption is the end of a run's context, worded for people.
type interruption struct{ cause error }

func (i *interruption) Error() string {
	if errors.Is(i.cause, context.Canceled) {
		return "interrupted"
	}
	return "interrupted: " + i.cause.Error()
}

func (i *interruption) Unwrap() error { return i.cause }

// SomeOf names the first entries of a list and counts the others.
func SomeOf(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// InBrackets returns " (text)"; "" for an empty text.
func InBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
