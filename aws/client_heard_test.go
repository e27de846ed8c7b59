package aws_test

import (
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/aws/emulator"
)

// Whoever asks is told of each request, also of one that is refused or that nobody answers.
func TestHeard(t *testing.T) {
	server := &emulator.Server{Identities: []emulator.Identity{{AccessKey: key, Policy: &emulator.Policy{Allow: []string{"autoscaling:DescribeAutoScalingGroups"}}}}}
	server.Seed(emulator.Group{Name: "blue", Count: 1})
	endpoint := httptest.NewServer(server)
	t.Cleanup(server.Close)
	var heard []string
	p := connect(t, endpoint.URL, aws.Config{Heard: func(call, code string) { heard = append(heard, call+" "+code) }})
	for _, hint := range []string{"give the role the action", "check the network"} {
		if _, err := p.Pool(t.Context(), "aws:eu-central-1/blue"); err == nil || !strings.Contains(kamino.Hint(err), hint) {
			t.Errorf("%v, hint %q, want %q", err, kamino.Hint(err), hint)
		}
		endpoint.Close()
	}
	for _, want := range []string{"Auto Scaling DescribeAutoScalingGroups 200", "EC2 DescribeLaunchTemplateVersions 403", "Auto Scaling DescribeAutoScalingGroups error"} {
		if !slices.Contains(heard, want) {
			t.Errorf("%q is not among %q", want, heard)
		}
	}
}

// Whoever AWS does not know looks at the credentials, not at rights.
func TestStranger(t *testing.T) {
	server := &emulator.Server{Identities: []emulator.Identity{{AccessKey: "AKIAOTHER"}}}
	endpoint := httptest.NewServer(server)
	t.Cleanup(func() { endpoint.Close(); server.Close() })
	_, err := connect(t, endpoint.URL, aws.Config{}).Pool(t.Context(), "aws:eu-central-1/blue")
	if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(kamino.Hint(err), "aws sts get-caller-identity") {
		t.Errorf("%v, hint %q", err, kamino.Hint(err))
	}
}
