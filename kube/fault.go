package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kamino.dev/kamino"
)

// fault is an error of the API that says what it means to the engine, too. Its
// text is that of the API.
type fault struct{ kind, err error }

func (f *fault) Error() string   { return f.err.Error() }
func (f *fault) Unwrap() []error { return []error{f.kind, f.err} }

// plainError has the text of err without what a terminal obeys: the API server passes on what
// webhooks and kubelets say.
type plainError struct{ err error }

func (p plainError) Error() string { return kamino.Plain(p.err.Error()) }
func (p plainError) Unwrap() error { return p.err }

// explain turns an error of client-go into one of the port's. What is the
// permission that the call needs, as "verb resource".
func explain(what string, err error) error {
	var status apierrors.APIStatus
	if err != nil && kamino.Plain(err.Error()) != err.Error() {
		err = plainError{err}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case !errors.As(err, &status):
		return explainTransport(err)
	case apierrors.IsNotFound(err):
		return &fault{kamino.ErrNotFound, err}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &fault{kamino.ErrConflict, err}
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		// A list took longer than etcd keeps old revisions: begin it again.
		return &fault{kamino.ErrConflict, err}
	case apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsInvalid(err) && strings.Contains(err.Error(), "metadata.annotations: Too long"):
		return &fault{kamino.ErrTooLarge, err}
	case apierrors.IsTooManyRequests(err):
		return &kamino.ThrottledError{After: retryAfter(err), Err: err}
	case apierrors.IsUnauthorized(err):
		return kamino.WithHint(&fault{kamino.ErrForbidden, err},
			"the cluster does not accept these credentials: log in again, or check the user of the kubeconfig's context")
	case apierrors.IsForbidden(err):
		return kamino.WithHint(&fault{kamino.ErrForbidden, err},
			"%s, and check with: kubectl auth can-i %s", grant(what, refusedUser(err)), what)
	case status.Status().Code >= http.StatusInternalServerError, apierrors.IsTimeout(err):
		return &fault{kamino.ErrUnavailable, err}
	}
	return err
}

// userRefused is the account in the API server's words, as
// k8s.io/apiserver/pkg/endpoints/handlers/responsewriters writes them.
var userRefused = regexp.MustCompile(`User "([^"]+)" cannot `)

// refusedUser is the account that the API server refused, "" where it does not say.
func refusedUser(err error) string {
	if found := userRefused.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return ""
}

// explainTransport is for calls without an answer. What a person must mend
// first is not called unavailable, so that nobody waits for it.
func explainTransport(err error) error {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &host):
		return kamino.WithHint(err, "check server and certificate-authority in the kubeconfig")
	case strings.Contains(err.Error(), "getting credentials"):
		// client-go's words for a credential plugin that failed; it has no type for it.
		return kamino.WithHint(err, "run the credential plugin that the kubeconfig names by hand")
	}
	return kamino.WithHint(&fault{kamino.ErrUnavailable, err},
		"is the API server reachable? kubectl cluster-info")
}

// retryAfter is how long the API server asks to be left alone.
func retryAfter(err error) time.Duration {
	if s, ok := apierrors.SuggestsClientDelay(err); ok && s > 0 {
		return time.Duration(s) * time.Second
	}
	return time.Second
}
