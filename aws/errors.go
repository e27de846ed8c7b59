package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	transport "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"kamino.dev/kamino"
)

// throttledFor is how long to wait where AWS does not say; it never does.
const throttledFor = 5 * time.Second

// translate turns an error of the SDK into one of the port's contract, saying what was tried.
func translate(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, classify(err))...)
}

// Codes by what they mean to the engine
// (https://docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html and the service models).
var (
	throttleCodes = []string{"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "TooManyUpdates"}
	// busyCodes go away by themselves: another change is under way, or what was just made is not
	// known everywhere yet.
	busyCodes = []string{
		"IncorrectInstanceState", "IncorrectState", "InvalidState", "ScalingActivityInProgress", "ResourceContention", "ResourceInUse",
		"ConcurrentSnapshotLimitExceeded", "SnapshotCreationPerVolumeRateExceeded", "ConcurrentTagAccess", "InvalidAMIID.Unavailable",
		"SsmInvalidParameter",
	}
	forbiddenCodes = []string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "SsmAccessDenied"}
	// strangerCodes: AWS does not know who asks, or not in this Region. A clock that is wrong by
	// minutes makes a signature wrong; SSM has names of its own for that
	// (https://docs.aws.amazon.com/systems-manager/latest/APIReference/CommonErrors.html).
	strangerCodes = []string{"AuthFailure", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidSignatureException",
		"IncompleteSignature", "IncompleteSignatureException",
		"MissingAuthenticationToken", "UnrecognizedClientException", "OptInRequired"}
	expiredCodes = []string{"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
)

// errLapsed: credentials that were there before cannot be renewed.
var errLapsed = errors.New("renew the credentials")

// lasting tells credentials that were never there from those that cannot be renewed at the moment,
// as while STS, the metadata service or the agent of EKS Pod Identity does not answer. Each is
// asked once (see New), and a run outlives many credentials.
type lasting struct {
	sdk.CredentialsProvider
	had atomic.Bool
}

func (l *lasting) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	c, err := l.CredentialsProvider.Retrieve(ctx)
	if err == nil {
		l.had.Store(true)
	} else if l.had.Load() && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errLapsed, err)
	}
	return c, err
}

func classify(err error) error {
	if errors.Is(err, errLapsed) && !hasCode(err, forbiddenCodes...) {
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrUnavailable, kamino.Plain(err.Error())),
			"check that STS, the metadata service or the agent of EKS Pod Identity answers, whichever gives the credentials")
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return unanswered(err)
	}
	code, said := api.ErrorCode(), kamino.Plain(api.ErrorCode()+": "+api.ErrorMessage())
	var response *transport.ResponseError
	status := 0
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	switch {
	case slices.Contains(throttleCodes, code):
		return &kamino.ThrottledError{After: throttledFor, Err: errors.New(said)}
	case isMissing(code):
		return fmt.Errorf("%w: %s", kamino.ErrNotFound, said)
	case code == "InvalidSnapshot.InUse":
		return fmt.Errorf("%w: %s", kamino.ErrInUse, said)
	case slices.Contains(busyCodes, code):
		return fmt.Errorf("%w: %s", kamino.ErrInProgress, said)
	case slices.Contains(forbiddenCodes, code):
		if explicitly(said) {
			return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrForbidden, said), "%s", denialHint)
		}
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrForbidden, said),
			"give the role the action that the message names, on the resource that it names: docs/aws-policy.json")
	case slices.Contains(strangerCodes, code):
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrForbidden, said),
			"check the access key or the profile, its Region, this machine's clock, and whether the key is still valid: aws sts get-caller-identity")
	case slices.Contains(expiredCodes, code):
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrUnavailable, said), "renew the credentials, and check this machine's clock")
	case code == "InsufficientInstanceCapacity":
		return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrInProgress, said),
			"the zone has no capacity for the instance type at the moment; the instance keeps its place in the group meanwhile")
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s", kamino.ErrUnavailable, said)
	}
	return errors.New(said)
}

// denialHint is for what no right of the role's own can lift.
const denialHint = "change the policy that denies it; one that asks for a tag (aws:RequestTag) is met by a tag of the Auto Scaling group that is propagated at launch"

// explicitly says whether a refusal is a denial: a service control policy of the organization, or
// another policy that denies
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html).
func explicitly(said string) bool {
	return strings.Contains(said, "explicit deny") || strings.Contains(said, "service control policy")
}

// isMissing says whether a code tells that a thing does not exist, or not yet.
func isMissing(code string) bool {
	return strings.HasSuffix(code, ".NotFound") || strings.HasSuffix(code, ".NotFoundException") ||
		strings.HasSuffix(code, ".VersionNotFound") ||
		code == "ParameterNotFound" || code == "ParameterVersionNotFound" || code == "InvalidInstanceID.Malformed"
}

// unanswered is a call of which nobody knows whether it took effect.
func unanswered(err error) error {
	said := kamino.Plain(err.Error())
	credentials := strings.Contains(said, "get credentials") || strings.Contains(said, "failed to refresh cached credentials")
	if credentials && !errors.Is(err, context.DeadlineExceeded) { // what is overdue is not missing
		return kamino.WithHint(fmt.Errorf("%w: no credentials for AWS: %s", kamino.ErrForbidden, said),
			"set AWS_PROFILE, give the pod a role (IRSA or pod identity), or allow it the instance's role: from a pod network that needs a metadata hop limit of 2")
	}
	return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrUnavailable, said),
		"check the network, the proxy, and AWS_ENDPOINT_URL where it is set")
}

// hasCode says whether AWS answered with a code.
func hasCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
