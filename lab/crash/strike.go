package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// Strike is one misfortune of one process.
type Strike struct {
	At     int // the call that it hits
	Kind   worlds.Fault
	Method string // of the call in the undisturbed run, with Path: the same call may come
	Path   string // under another number, since reads of a process depend on others' timing
	Rival  *worlds.Rival

	Hit  bool   // it came to it
	step string // of the call
}

// hits tells whether the strike is for this call.
func (s *Strike) hits(c *Call) bool {
	if s == nil {
		return false
	}
	if (s.Kind == worlds.Blind || s.Kind == worlds.Vanished) && c.Side != Cloud {
		return false
	}
	if (s.Kind == worlds.NoAnswer || s.Kind == worlds.Blind) && s.Hit {
		return c.Step == s.step && !c.token
	}
	if s.Hit || c.N != s.At {
		return false
	}
	s.Hit, s.step = true, c.Step
	return true
}

// cloudFault is the emulator's fault for one of the dictionary, nil for what the proxy does itself.
func cloudFault(k worlds.Fault, c *Call) *emulator.Fault {
	f := &emulator.Fault{Method: c.Method, Path: c.Path}
	switch k {
	case worlds.FalseSuccess:
		f.Kind = emulator.FalseSuccess
	case worlds.OperationFailed, worlds.OperationCanceled, worlds.OperationLies:
		f.Kind, f.OperationStatus, f.Code, f.Committed = emulator.FailOperation, "Failed", "InternalExecutionError",
			k == worlds.OperationLies
		if k == worlds.OperationCanceled {
			f.OperationStatus, f.Code = "Canceled", "OperationPreempted"
		}
	case worlds.OperationGone:
		f.Kind, f.Status, f.Count = emulator.Poll, http.StatusNotFound, -1
	case worlds.PollForbidden:
		f.Kind, f.Status, f.Count = emulator.Poll, http.StatusForbidden, -1
	case worlds.OperationEndless:
		// Longer than any step waits for it: in the end every cloud gives up.
		f.Kind, f.Duration = emulator.SlowOperation, endless
		if c.means.Verb == invariant.CreateVersion {
			f.Duration = endlessBuild
		}
	case worlds.Empty:
		f.Kind = emulator.Empty
	case worlds.LateCreate:
		f.Kind, f.Duration = emulator.Stale, lateCreate
	default:
		return nil
	}
	return f
}

// vanish lets instances and artifacts be not found for a while, and lists be empty.
func (w *onAzure) vanish() {
	w.vanished = w.clock.Now().Add(worlds.Vanishing)
	for path, kind := range map[string]emulator.FaultKind{
		"**/virtualMachines": emulator.Empty, "**/images/*/versions": emulator.Empty, "**/virtualMachines/**": emulator.Absent,
		"**/snapshots/*": emulator.Absent, "**/galleries/**": emulator.Absent,
	} {
		id := w.cloud.AddFault(emulator.Fault{Method: http.MethodGet, Path: path, Kind: kind, Times: -1})
		w.clock.virtual.AfterFunc(worlds.Vanishing, func() { w.cloud.RemoveFault(id) })
	}
}

// How long an operation takes that never ends: more than the half hour that most
// steps wait, the hour for a donor, and the six hours for a build.
const (
	endless      = 70 * time.Minute
	endlessBuild = 7 * time.Hour
)

// lateCreate is for how long what was made is not found.
const lateCreate = 30 * time.Second

// throttleTime is longer than any client library waits by itself.
const throttleTime = 20 * time.Minute

// lie is the reply of a fault that keeps the call from its destination, nil
// for others.
func lie(k worlds.Fault, side Side) *reply {
	status, azureCode, kubeReason := 0, "", ""
	switch k {
	case worlds.Conflict:
		status, azureCode, kubeReason = http.StatusConflict, "Conflict", "Conflict"
	case worlds.Precondition:
		status, azureCode, kubeReason = http.StatusPreconditionFailed, "PreconditionFailed", "Conflict"
	case worlds.Throttled:
		status, azureCode, kubeReason = http.StatusTooManyRequests, "OperationNotAllowed", "TooManyRequests"
	case worlds.ServerError, worlds.NoAnswer, worlds.FalseFailure:
		status, azureCode, kubeReason = http.StatusInternalServerError, "InternalServerError", "InternalError"
	case worlds.Forbidden:
		status, azureCode, kubeReason = http.StatusForbidden, "AuthorizationFailed", "Forbidden"
	case worlds.Absent:
		status, azureCode, kubeReason = http.StatusNotFound, "ResourceNotFound", "NotFound"
	case worlds.Blind:
		status, azureCode, kubeReason = http.StatusNotFound, "SubscriptionNotFound", "NotFound"
	case worlds.Quota:
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
		if k == worlds.Precondition {
			r.status = http.StatusConflict // Kubernetes has no 412 for writes
		}
		details := map[string]any{}
		if k == worlds.Throttled {
			details["retryAfterSeconds"] = int(throttleTime / time.Second)
		}
		body = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
			"reason": kubeReason, "code": r.status, "details": details}
	}
	if k == worlds.Throttled {
		r.header.Set("Retry-After", strconv.Itoa(int(throttleTime/time.Second)))
	}
	raw, _ := json.Marshal(body) // maps of strings and numbers
	r.body.Write(raw)
	return r
}
