package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
)

// Kind is what goes wrong at a call.
type Kind string

// The kinds. What "done" means: the call took effect.
const (
	KillBefore        Kind = "killed before it is sent"
	KillUnheard       Kind = "killed when done, before the reply"
	KillAfter         Kind = "killed after the reply"
	LostReply         Kind = "done, reply lost"
	FalseFailure      Kind = "done, failure reported"
	FalseSuccess      Kind = "not done, success reported"
	Conflict          Kind = "409"
	Precondition      Kind = "412"
	Throttled         Kind = "429 for 20 minutes"
	ServerError       Kind = "500, not done"
	Forbidden         Kind = "403"
	OperationFailed   Kind = "operation Failed"
	OperationCanceled Kind = "operation Canceled"
	OperationLies     Kind = "operation Failed, though done"
	OperationGone     Kind = "operation's URL gone"
	PollForbidden     Kind = "403 on the poll"
	OperationEndless  Kind = "operation never ends"
	LateCreate        Kind = "404 for 30 s after the create"
	StaleRead         Kind = "stale read"
	Absent            Kind = "404, though it is there"
	Blind             Kind = "404 as to blind credentials until the step gives up"
	Quota             Kind = "quota exceeded"
	NoAnswer          Kind = "500 until the step gives up"
	Interrupted       Kind = "told to stop"
	RivalActs         Kind = "rival"
)

// kills tells the three positions.
func (k Kind) kills() bool { return k == KillBefore || k == KillUnheard || k == KillAfter }

// Strike is one misfortune of one process.
type Strike struct {
	At     int // the call that it hits
	Kind   Kind
	Method string // of the call in the undisturbed run, with Path: the same call may come
	Path   string // under another number, since reads of a process depend on others' timing
	Rival  *Rival

	Hit  bool   // it came to it
	step string // of the call
}

// hits tells whether the strike is for this call.
func (s *Strike) hits(c *Call) bool {
	if s == nil {
		return false
	}
	if s.Kind == Blind && c.Side != Azure {
		return false
	}
	if (s.Kind == NoAnswer || s.Kind == Blind) && s.Hit {
		return c.Step == s.step && !strings.HasSuffix(c.Path, "/token")
	}
	if s.Hit || c.N != s.At {
		return false
	}
	s.Hit, s.step = true, c.Step
	return true
}

// cloudFault is the emulator's fault for a kind, nil for what the proxy does itself.
func (k Kind) cloudFault(c *Call) *emulator.Fault {
	f := &emulator.Fault{Method: c.Method, Path: c.Path}
	switch k {
	case FalseSuccess:
		f.Kind = emulator.FalseSuccess
	case OperationFailed, OperationCanceled, OperationLies:
		f.Kind, f.OperationStatus, f.Code, f.Committed = emulator.FailOperation, "Failed", "InternalExecutionError", k == OperationLies
		if k == OperationCanceled {
			f.OperationStatus, f.Code = "Canceled", "OperationPreempted"
		}
	case OperationGone:
		f.Kind, f.Status, f.Count = emulator.Poll, http.StatusNotFound, -1
	case PollForbidden:
		f.Kind, f.Status, f.Count = emulator.Poll, http.StatusForbidden, -1
	case OperationEndless:
		// Longer than any step waits for it: in the end every cloud gives up.
		f.Kind, f.Duration = emulator.SlowOperation, endless
		if c.means.Verb == invariant.CreateVersion {
			f.Duration = endlessBuild
		}
	case LateCreate:
		f.Kind, f.Duration = emulator.Stale, 30*time.Second
	default:
		return nil
	}
	return f
}

// How long an operation takes that never ends: more than the half hour that most
// steps wait, the hour for a donor, and the six hours for a build.
const (
	endless      = 70 * time.Minute
	endlessBuild = 7 * time.Hour
)

// throttleTime is longer than any client library waits by itself.
const throttleTime = 20 * time.Minute

// answer is the reply of a kind that keeps the call from its destination, nil
// for other kinds.
func (k Kind) answer(side Side) *reply {
	status, azureCode, kubeReason := 0, "", ""
	switch k {
	case Conflict:
		status, azureCode, kubeReason = http.StatusConflict, "Conflict", "Conflict"
	case Precondition:
		status, azureCode, kubeReason = http.StatusPreconditionFailed, "PreconditionFailed", "Conflict"
	case Throttled:
		status, azureCode, kubeReason = http.StatusTooManyRequests, "OperationNotAllowed", "TooManyRequests"
	case ServerError, NoAnswer, FalseFailure:
		status, azureCode, kubeReason = http.StatusInternalServerError, "InternalServerError", "InternalError"
	case Forbidden:
		status, azureCode, kubeReason = http.StatusForbidden, "AuthorizationFailed", "Forbidden"
	case Absent:
		status, azureCode, kubeReason = http.StatusNotFound, "ResourceNotFound", "NotFound"
	case Blind:
		status, azureCode, kubeReason = http.StatusNotFound, "SubscriptionNotFound", "NotFound"
	case Quota:
		status, azureCode, kubeReason = http.StatusConflict, "QuotaExceeded", "Forbidden"
	default:
		return nil
	}
	r := newReply()
	r.status = status
	r.header.Set("Content-Type", "application/json")
	message := fmt.Sprintf("the crash harness answers %d", status)
	var body any = map[string]any{"error": map[string]string{"code": azureCode, "message": message}}
	if side == Kubernetes {
		if k == Precondition {
			r.status = http.StatusConflict // Kubernetes has no 412 for writes
		}
		details := map[string]any{}
		if k == Throttled {
			details["retryAfterSeconds"] = int(throttleTime / time.Second)
		}
		body = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
			"reason": kubeReason, "code": r.status, "details": details}
	}
	if k == Throttled {
		r.header.Set("Retry-After", strconv.Itoa(int(throttleTime/time.Second)))
	}
	raw, _ := json.Marshal(body) // maps of strings and numbers
	r.body.Write(raw)
	return r
}
