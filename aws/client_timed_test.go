package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"kamino.dev/kamino"
)

// TestTimed: a call that nobody answers ends, and is one of a service that is away; so is that for
// credentials, by the SDK's own client of STS.
func TestTimed(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	was := callTime
	callTime = 10 * time.Millisecond
	t.Cleanup(func() { callTime = was })
	for name, environment := range map[string]map[string]string{
		"EC2": {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
		"STS": {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/kamino", "AWS_WEB_IDENTITY_TOKEN_FILE": token},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
				t.Setenv(variable, environment[variable])
			}
			t.Setenv("AWS_REGION", "eu-central-1")
			t.Setenv("AWS_ENDPOINT_URL", silent.URL)
			t.Setenv("AWS_ENDPOINT_URL_STS", silent.URL)
			p, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = p.PoolOf(t.Context(), "aws:///eu-central-1a/i-0123456789abcdef0"); !errors.Is(err, kamino.ErrUnavailable) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRenewalOverdue: where STS does not answer the renewal of credentials until the time is over
// that a run gives the call, no right is missing.
func TestRenewalOverdue(t *testing.T) {
	l := &lasting{CredentialsProvider: &lapsing{}}
	if _, err := l.Retrieve(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := l.Retrieve(ctx)
	err = classify(fmt.Errorf("operation error EC2: DescribeInstances, get identity: get credentials: %w", err)) // as the SDK wraps it
	if !errors.Is(err, kamino.ErrUnavailable) {
		t.Error(err)
	}
}

// lapsing are credentials that were there, and whose renewal nobody answers.
type lapsing struct{ had bool }

func (l *lapsing) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	if !l.had {
		l.had = true
		return sdk.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
	}
	<-ctx.Done()
	return sdk.Credentials{}, &sdk.RequestCanceledError{Err: ctx.Err()}
}
