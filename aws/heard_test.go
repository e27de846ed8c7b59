package aws_test

import (
	"net/http/httptest"
	"slices"
	"testing"

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
	for range 2 {
		if _, err := p.Pool(t.Context(), "aws:eu-central-1/blue"); err == nil {
			t.Error("the group was read without the right to read its template")
		}
		endpoint.Close()
	}
	for _, want := range []string{"Auto Scaling DescribeAutoScalingGroups 200", "EC2 DescribeLaunchTemplateVersions 403", "Auto Scaling DescribeAutoScalingGroups error"} {
		if !slices.Contains(heard, want) {
			t.Errorf("%q is not among %q", want, heard)
		}
	}
}
