package dist

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestWorkflow: a tag of an action can be moved by its owner, with the rights to publish a release.
func TestWorkflow(t *testing.T) {
	file, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	pinned, found := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`), 0
	for line := range strings.Lines(string(file)) {
		if !strings.Contains(line, "uses:") {
			continue
		}
		if found++; !pinned.MatchString(strings.TrimSpace(line)) {
			t.Errorf("%q does not name a commit, with its version in a comment", strings.TrimSpace(line))
		}
	}
	if found == 0 {
		t.Error("the workflow uses no action")
	}
}

// TestWorkflowChecks: the release that the workflow makes was checked for known vulnerabilities,
// with a database that the step before has unpacked.
func TestWorkflowChecks(t *testing.T) {
	file, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`curl -fsSLo "$RUNNER_TEMP/vulndb.zip"`, `make lint VULNDB="$RUNNER_TEMP/vulndb"`, `UNSIGNED=1 VULNDB="$RUNNER_TEMP/vulndb"`} {
		if !strings.Contains(string(file), want) {
			t.Errorf("the workflow has no %s", want)
		}
	}
	if strings.Contains(string(file), "UNCHECKED") {
		t.Error("the workflow releases what nobody checked")
	}
}
