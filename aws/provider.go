package aws

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	transport "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"kamino.dev/kamino"
)

// Config says how to reach AWS. Credentials, and what is empty, come from where all programs of AWS
// look: the environment (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL, AWS_WEB_IDENTITY_TOKEN_FILE,
// …), the shared files, pod identity, the instance's role
// (https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html).
type Config struct {
	Region string
	// Cluster names the cluster in the names of parameters: /kamino/CLUSTER/POOL/image. "": what
	// the group's tag kubernetes.io/cluster/NAME says.
	Cluster string
	// Transport carries the calls, those for credentials excepted; nil: the SDK's own.
	Transport *http.Client
	Clock     kamino.Clock // nil: the wall clock
	// Heard, if set, is told of each request as it ends, those for credentials excepted: service
	// and operation ("EC2 DescribeInstances"), and the status code, or "error" where none came.
	Heard func(call, code string)
}

// Provider is kamino.Provider on AWS. It may be used by several goroutines.
type Provider struct {
	config  Config
	region  string
	ec2     ec2Calls
	scaling scalingCalls
	ssm     ssmCalls

	known *known

	mu     sync.Mutex
	listed time.Time                  // when all groups were last listed
	all    []scaling.AutoScalingGroup // as they were then
	groups map[string]string          // group by instance ID, as last read; an instance never changes into another group unseen for long
}

var _ kamino.Provider = (*Provider)(nil)

// New makes a provider. It reads environment and shared files, and makes no call.
func New(c Config) (*Provider, error) {
	if c.Clock == nil {
		c.Clock = kamino.WallClock{}
	}
	options := []func(*config.LoadOptions) error{
		// One attempt: the SDK would send CreateSnapshot again after a lost answer, which has no
		// client token. The engine looks, and calls again.
		config.WithRetryer(func() sdk.Retryer { return sdk.NopRetryer{} }),
		// Also for STS, whose client is made while the configuration is read.
		config.WithHTTPClient(transport.NewBuildableClient().WithTimeout(callTime)),
	}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	loaded, err := config.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of AWS: %w", err)
	}
	if loaded.Region == "" {
		return nil, kamino.WithHint(fmt.Errorf("no region of AWS is configured"), "set AWS_REGION")
	}
	if c.Transport != nil { // not as an option: AWS_CA_BUNDLE would be refused beside it
		loaded.HTTPClient = c.Transport
	}
	loaded.HTTPClient = whole{loaded.HTTPClient, c.Heard}
	loaded.Credentials = &lasting{CredentialsProvider: loaded.Credentials}
	p := &Provider{config: c, region: loaded.Region, known: newKnown(), groups: map[string]string{}}
	p.ec2, p.scaling, p.ssm = newCalls(loaded)
	return p, nil
}

// callTime bounds one call. The SDK waits for an answer for ever, and one that never came would
// keep a worker of the controller, and whoever waits for the same list. Whoever gives a transport
// has decided that. Tests have another time.
var callTime = time.Minute

// Homes is empty: images stand by themselves.
func (p *Provider) Homes() []kamino.Kind { return nil }

func text(s *string) string { return sdk.ToString(s) }
