package inventory

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino/internal/docpage"
)

var update = flag.Bool("update", false, "write the table of generated files into docs/agent.md")

// TestDocs: docs/agent.md has the table as it is.
func TestDocs(t *testing.T) {
	const page = "../../docs/agent.md"
	const begin, end = "<!-- generated files: go test ./agent/inventory -run TestDocs -update -->\n", "<!-- end of generated files -->"
	var b strings.Builder
	b.WriteString("\n| generated and known | why |\n| --- | --- |\n")
	for _, r := range Table() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(r.Paths, "` `"), r.Why)
	}
	b.WriteString("\n")
	if err := docpage.Keep(page, begin, end, b.String(), *update); err != nil {
		t.Fatal(err)
	}
}
