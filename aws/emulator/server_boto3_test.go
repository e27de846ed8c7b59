package emulator

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/aws/emulator/wire"
)

// witnessed serves a group at some times the pace, on the wall clock, as a foreign client knows no
// other.
func witnessed(t *testing.T, speed float64) (*Server, string) {
	t.Helper()
	s := &Server{Speed: speed, Latencies: Latencies{Forget: 10_000 * time.Hour}}
	s.Seed(Group{Name: "blue", Count: 5, Min: 1, Tags: map[string]string{"empty": ""}})
	checked, _ := wire.Checked(t, s)
	server := httptest.NewServer(checked)
	t.Cleanup(func() { server.Close(); s.Close() })
	return s, server.URL
}

// foreignCommand is a program with credentials of nobody, and no way to find others.
func foreignCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	cmd.Env = append(inherited, "AWS_ACCESS_KEY_ID=AKIATEST", "AWS_SECRET_ACCESS_KEY=not-a-secret", "AWS_DEFAULT_REGION=eu-central-1",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=", "AWS_MAX_ATTEMPTS=1", "NO_PROXY=127.0.0.1")
	return cmd
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
	s, url := witnessed(t, 100)
	if out, err := foreignCommand(t, "python3", "testdata/witness.py", url).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n, actions := calls(s, "Boto3/")
	fmt.Printf("WITNESS boto3: %d different calls of %d actions\n", n, actions)
	if n < 60 || actions < 48 {
		t.Errorf("%d calls of %d actions, want 60 and 48", n, actions)
	}
}
