package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"kamino.dev/kamino"
)

// busy are the codes of a 409 that goes away by itself: another operation on
// the same resource is under way, or has taken its turn
// (https://learn.microsoft.com/azure/virtual-machines/troubleshooting/).
var busy = []string{
	"Conflict", "AnotherOperationInProgress", "OperationPreempted", "OperationNotAllowedBecauseOfConcurrent",
	"AttachDiskWhileBeingDetached", "RetryableError", "ResourceDeploymentFailure",
}

// modelLimit recognises the refusal of an eleventh model of a Uniform scale set
// (https://github.com/microsoft/onefuzz/issues/2318). Status and code are not known.
var modelLimit = regexp.MustCompile(`limit of \d+ models`)

const defaultRetryAfter = 30 * time.Second

// translate turns an error of the SDK into one of the port's contract, saying
// what was tried.
func translate(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, classify(err))...)
}

func classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errElsewhere) {
		return err
	}
	var re *azcore.ResponseError
	if errors.As(err, &re) {
		return classifyResponse(re)
	}
	var auth *azidentity.AuthenticationFailedError
	if errors.As(err, &auth) && auth.RawResponse != nil {
		switch status := auth.RawResponse.StatusCode; {
		case status == http.StatusTooManyRequests:
			return &kamino.ThrottledError{After: retryAfter(auth.RawResponse), Err: errors.New("Entra ID: " + authMessage(auth))}
		case status < 500:
			return refusedCredentials(auth)
		}
	}
	if u := (*url.Error)(nil); errors.As(err, &u) && u.Op == "parse" { // a reply's link is none
		return err
	}
	// No answer: a connection that was refused or cut, a time-out, an authority
	// or metadata service that is away. Whether the request took effect is open.
	// The hints go by the text: of what kept it from Entra ID azidentity passes nothing else on
	// (azidentity v1.15.0, errors.go: newAuthenticationFailedErrorFromMSAL).
	lost := fmt.Errorf("%w: %s", kamino.ErrUnavailable, firstLine(err.Error()))
	switch text := err.Error(); {
	case strings.Contains(text, "dial tcp"):
		return kamino.WithHint(lost, "check that the address can be reached from here and belongs to the right cloud (AZURE_ENVIRONMENT, AZURE_ENVIRONMENT_FILEPATH, or cloud in azure.json)")
	case strings.Contains(text, "x509:"):
		return kamino.WithHint(lost, "name the authority that the certificate is from with SSL_CERT_FILE")
	}
	return lost
}

// refusedCredentials tells what to set. Without any credentials the SDK ends at
// the managed identity of the machine, which only a machine of Azure has.
func refusedCredentials(auth *azidentity.AuthenticationFailedError) error {
	err := fmt.Errorf("%w: Entra ID refused the credentials: %s", kamino.ErrForbidden, authMessage(auth))
	if strings.HasPrefix(auth.Error(), "ManagedIdentityCredential") {
		return kamino.WithHint(err, "if this machine has no managed identity that may be used: "+
			"set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (or AZURE_FEDERATED_TOKEN_FILE), or name an azure.json with --azure-config")
	}
	return kamino.WithHint(err, "check the tenant, the client and its secret or identity: AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or --azure-config")
}

// authMessage is what Entra ID said: the first line of its error_description,
// which begins with a code of
// https://learn.microsoft.com/entra/identity-platform/reference-error-codes.
func authMessage(e *azidentity.AuthenticationFailedError) string {
	var body struct {
		Description string `json:"error_description"`
	}
	raw, err := runtime.Payload(e.RawResponse)
	if err != nil || json.Unmarshal(raw, &body) != nil || body.Description == "" {
		return firstLine(e.Error())
	}
	return firstLine(body.Description)
}

func classifyResponse(re *azcore.ResponseError) error {
	text := message(re)
	switch {
	case re.StatusCode == http.StatusTooManyRequests:
		return &kamino.ThrottledError{After: retryAfter(re.RawResponse), Err: errors.New(text)}
	case re.StatusCode == http.StatusNotFound && ofResource(re), notActive(re, text):
		return fmt.Errorf("%w: %s", kamino.ErrNotFound, text)
	case re.StatusCode == http.StatusNotFound:
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrNotVisible, text),
			"check tenant, subscription and resource group of the credentials, and that their role is assigned there")
	case re.StatusCode == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %s", kamino.ErrConflict, text)
	case strings.EqualFold(re.ErrorCode, "RequestDisallowedByPolicy"):
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrForbidden, text),
			"a policy of the subscription denies this write, whatever the role allows: exempt the resource group from the assignment that the message names")
	case strings.EqualFold(re.ErrorCode, "ScopeLocked"):
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrForbidden, text),
			"a management lock forbids it, whatever the role allows: az lock list shows the locks, az lock delete --ids removes one")
	case modelLimit.MatchString(text):
		return kamino.WithHint(errors.New(text),
			"replace the oldest nodes of the pool (drain them, then delete their instances): each image that a node booted from holds a model; a model that names the image definition is not written again")
	case re.StatusCode == http.StatusUnauthorized, re.StatusCode == http.StatusForbidden:
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrForbidden, text),
			"give the identity the actions of docs/azure-role.json at the scope that the message names")
	case (re.StatusCode == http.StatusConflict || re.StatusCode < 300) && isBusy(re):
		// Below 300: a reply of success that cannot be read, or an operation that ended badly.
		return fmt.Errorf("%w: %s", kamino.ErrInProgress, text)
	case re.StatusCode == http.StatusRequestTimeout || re.StatusCode >= 500:
		return fmt.Errorf("%w: %s", kamino.ErrUnavailable, text)
	}
	return errors.New(text)
}

// resourceCodes are the codes of a 404 that speaks of the resource itself: ARM's own, and those of
// Microsoft.Compute
// (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-not-found). With
// any other code (SubscriptionNotFound, ResourceGroupNotFound, InvalidResourceNamespace, none at
// all) nobody has looked for the resource.
var resourceCodes = []string{"ResourceNotFound", "ParentResourceNotFound", "NotFound", "GalleryImageNotFound"}

func ofResource(re *azcore.ResponseError) bool { return listed(resourceCodes, re.ErrorCode) }

// listed says whether a word is on a list, without case, as Azure compares its own.
func listed(list []string, word string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, word) })
}

// notActive recognises the 400 with which scale sets answer calls on an instance that they do not
// have (the text is that of cloud-provider-azure, pkg/provider/azure_vmss.go; whether a GET is
// answered so is unverified).
func notActive(re *azcore.ResponseError, text string) bool {
	return re.StatusCode == http.StatusBadRequest && strings.Contains(text, "not an active Virtual Machine Scale Set VM")
}

func isBusy(re *azcore.ResponseError) bool { return re.ErrorCode == "" || listed(busy, re.ErrorCode) }

// retryAfter reads how long the service wants to be left alone; it may be far
// longer than the SDK would wait (20 minutes and more:
// https://learn.microsoft.com/troubleshoot/azure/virtual-machines/troubleshooting-throttling-errors).
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return defaultRetryAfter
	}
	text := resp.Header.Get("Retry-After")
	if s, err := strconv.Atoi(text); err == nil && s >= 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		if sent, err := http.ParseTime(resp.Header.Get("Date")); err == nil { // by the service's own clock
			return max(at.Sub(sent), 0)
		}
	}
	return defaultRetryAfter
}

// message is what Azure said, in one line: "Code: text [correlation …]".
func message(err error) string {
	var re *azcore.ResponseError
	if !errors.As(err, &re) {
		return firstLine(err.Error())
	}
	text := strconv.Itoa(re.StatusCode)
	if re.ErrorCode != "" {
		text = kamino.Plain(re.ErrorCode)
	}
	if m := bodyMessage(re.Error()); m != "" {
		text += ": " + m
	}
	if re.RawResponse != nil {
		if id := re.RawResponse.Header.Get("x-ms-correlation-request-id"); id != "" {
			text += " [correlation " + kamino.Plain(id) + "]"
		}
	}
	return text
}

// bodyMessage finds error.message, and those of its details, in the JSON that
// the SDK prints.
func bodyMessage(text string) string {
	i := strings.IndexByte(text, '{')
	if i < 0 {
		return ""
	}
	type detail struct {
		Message string `json:"message"`
	}
	var body struct {
		Error struct {
			detail
			Details []detail `json:"details"`
		} `json:"error"`
	}
	if json.NewDecoder(strings.NewReader(text[i:])).Decode(&body) != nil {
		return ""
	}
	words := []string{body.Error.Message}
	for _, d := range body.Error.Details {
		if d.Message != "" && !strings.Contains(body.Error.Message, d.Message) {
			words = append(words, d.Message)
		}
	}
	return kamino.Plain(strings.Join(words, "; "))
}

// firstLine is the first line of a text, and the next where the first only
// announces it, as MSAL's "server response error:" does.
func firstLine(s string) string {
	line, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	line = kamino.Plain(strings.TrimSpace(line))
	if more && strings.HasSuffix(line, ":") {
		return line + " " + firstLine(rest)
	}
	return line
}
