package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// reply is what a handler answers. Either body or shows (a resource to render once
// the transaction is complete) is the body; err wins over both.
type reply struct {
	status int
	body   any
	shows  string
	op     *pending
	err    *apiError
	header http.Header
}

// apiError is an ARM error: status code and {"error":{"code","message",…}}.
type apiError struct {
	Status     int
	Code       string
	Message    string
	Target     string
	Details    []apiError
	RetryAfter time.Duration
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

// document is the error as it travels.
func (e *apiError) document() object {
	inner := object{"code": e.Code, "message": e.Message}
	if e.Target != "" {
		inner["target"] = e.Target
	}
	if len(e.Details) > 0 {
		var details []any
		for i := range e.Details {
			details = append(details, e.Details[i].document())
		}
		inner["details"] = details
	}
	return inner
}

func refuse(status int, code, format string, args ...any) *apiError {
	return &apiError{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func failed(status int, code, format string, args ...any) reply {
	return reply{err: refuse(status, code, format, args...)}
}

func notFound(c *call, id string) reply {
	rt, _ := parse(id)
	if len(rt.types) == 0 || len(rt.names) == 0 {
		return failed(http.StatusNotFound, "ResourceNotFound", "The Resource '%s' was not found.", id)
	}
	name := ""
	for i := range rt.names {
		name += "/" + rt.types[i] + "/" + rt.names[i]
	}
	return failed(http.StatusNotFound, "ResourceNotFound",
		"The Resource '%s%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
		rt.namespace, name, c.rt.group)
}

// write sends a reply with ARM's headers.
func (c *call) write(w http.ResponseWriter, rep reply) {
	h := w.Header()
	for name, values := range rep.header {
		h[name] = values
	}
	h.Set("x-ms-request-id", c.requestID)
	h.Set("x-ms-correlation-request-id", c.correlation)
	h.Set("x-ms-routing-request-id", "EMULATOR:"+c.now.Format("20060102T150405Z")+":"+c.requestID)
	if client := c.r.Header.Get("x-ms-client-request-id"); client != "" {
		h.Set("x-ms-client-request-id", client)
	}
	h.Set("x-ms-ratelimit-remaining-subscription-"+budget(c.r.Method), "11999")
	h.Set("Cache-Control", "no-cache")
	h.Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
	status, body := rep.status, rep.body
	if rep.err != nil {
		status, body = rep.err.Status, object{"error": rep.err.document()}
		h.Set("x-ms-error-code", rep.err.Code)
		if rep.err.RetryAfter > 0 {
			h.Set("Retry-After", strconv.Itoa(int(rep.err.RetryAfter.Round(time.Second)/time.Second)))
		}
	}
	c.status = status
	if body == nil || status == http.StatusNoContent || c.r.Method == http.MethodHead {
		w.WriteHeader(status)
		return
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		c.s.logger().Debug("write reply", "error", err)
	}
}

func budget(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "reads"
	case http.MethodDelete:
		return "deletes"
	}
	return "writes"
}
