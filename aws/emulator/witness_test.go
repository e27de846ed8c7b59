package emulator

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// witnessed serves a group at a hundred times the pace, on the wall clock, as a foreign client
// knows no other.
func witnessed(t *testing.T) (*Server, string) {
	t.Helper()
	s := &Server{Speed: 100}
	s.Seed(Group{Name: "blue", Count: 5, Min: 1, Tags: map[string]string{"empty": ""}})
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.Close(); s.Close() })
	return s, server.URL
}

// foreign runs a program with credentials of nobody, and no way to find others.
func foreign(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	cmd.Env = append(inherited, "AWS_ACCESS_KEY_ID=AKIATEST", "AWS_SECRET_ACCESS_KEY=not-a-secret", "AWS_DEFAULT_REGION=eu-central-1",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=", "AWS_MAX_ATTEMPTS=1", "NO_PROXY=127.0.0.1")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, errors.String())
	}
	return out
}

// calls counts the different requests of a client, and of how many actions they were; who waits
// asks the same again and again.
func calls(s *Server, agent string) (requests, actions int) {
	bodies, names := map[string]bool{}, map[string]bool{}
	for _, e := range s.Requests(0) {
		if strings.Contains(e.UserAgent, agent) {
			name := e.Service + ":" + e.Action
			bodies[fmt.Sprint(name, e.Parameters)] = true
			names[name] = true
		}
	}
	return len(bodies), len(names)
}

// TestBoto3: AWS's own Python client understands what it is told, and is understood.
func TestBoto3(t *testing.T) {
	if err := exec.Command("python3", "-c", "import boto3").Run(); err != nil {
		t.Skip("boto3 is not installed: apt-get install python3-boto3")
	}
	s, url := witnessed(t)
	foreign(t, "python3", "testdata/witness.py", url)
	n, actions := calls(s, "Boto3/")
	t.Logf("boto3 made %d different calls of %d actions", n, actions)
	if n < 60 || actions < 50 {
		t.Errorf("%d calls of %d actions, want 60 and 50", n, actions)
	}
}

// TestCLI: the aws command lists, filters, waits, and is refused.
func TestCLI(t *testing.T) {
	if _, err := exec.LookPath("aws"); err != nil {
		t.Skip("the aws command is not installed: apt-get install awscli")
	}
	s, url := witnessed(t)
	aws := func(args ...string) map[string]any {
		t.Helper()
		raw := foreign(t, "aws", append([]string{"--endpoint-url", url, "--output", "json"}, args...)...)
		out := map[string]any{}
		if err := json.Unmarshal(raw, &out); len(raw) > 0 && err != nil {
			t.Fatalf("%q: %v in %s", args, err, raw)
		}
		return out
	}
	if got := text(aws("sts", "get-caller-identity"), "Account"); got != "123456789012" {
		t.Errorf("account %q", got)
	}
	donor := s.Machines()[0].ID
	reservations := items(aws("ec2", "describe-instances", "--filters", "Name=instance-id,Values="+donor), "Reservations")
	if len(reservations) != 1 || text(items(reservations[0], "Instances")[0], "InstanceId") != donor {
		t.Errorf("%v", reservations)
	}
	aws("autoscaling", "enter-standby", "--auto-scaling-group-name", "blue", "--instance-ids", donor, "--should-decrement-desired-capacity")
	image := text(aws("ec2", "create-image", "--instance-id", donor, "--name", "kamino-blue", "--no-reboot"), "ImageId")
	aws("ec2", "wait", "image-exists", "--image-ids", image)
	aws("ssm", "put-parameter", "--name", "/p", "--value", image, "--type", "String", "--data-type", imageType)
	if groups := items(aws("autoscaling", "describe-auto-scaling-groups", "--page-size", "1"), "AutoScalingGroups"); len(groups) != 1 {
		t.Errorf("%v", groups)
	}
	if n, actions := calls(s, "aws-cli/"); n < 7 || actions < 7 {
		t.Errorf("%d calls of %d actions", n, actions)
	}
}
