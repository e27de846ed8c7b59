package kamino

import (
	"errors"
	"fmt"
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
	ErrUnavailable = errors.New("no usable answer, outcome unknown")
	// ErrForbidden: these credentials may not do this. Trying again is useless.
	ErrForbidden = errors.New("not allowed")
	// ErrUnsupported: this provider, pool or instance cannot do this, ever.
	ErrUnsupported = errors.New("not supported")
	// ErrInUse: a model or an instance refers to the version; it was not deleted.
	ErrInUse = errors.New("in use")
	// ErrLeaseLost: another process took the run over; this one must stop
	// without touching anything more.
	ErrLeaseLost = errors.New("the run was taken over by another process")
)

// ThrottledError says that the other side wants no more calls for a while.
// It is never a failure of the step, only a delay.
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

// Hints returns the advice of every error in a tree of joined and wrapped errors, the outermost first.
func Hints(err error) []string {
	switch e := err.(type) {
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

// String leaves out the field where nothing stands in one.
func (r Refusal) String() string {
	if r.Field == "" {
		return r.Why + "; " + r.Do
	}
	return fmt.Sprintf("%s is %q: %s; %s", r.Field, r.Value, r.Why, r.Do)
}

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
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("pool %s is held by run %s (process %s, donor %s, step %s)",
		e.Pool.Name(), e.Holder, firstWord(e.By, "unknown"), firstWord(e.Donor, "none"), firstWord(e.Step, InLock))
}

// transient tells whether looking again later can help.
func transient(err error) bool {
	var t *ThrottledError
	return errors.As(err, &t) || errors.Is(err, ErrInProgress) ||
		errors.Is(err, ErrConflict) || errors.Is(err, ErrUnavailable)
}
