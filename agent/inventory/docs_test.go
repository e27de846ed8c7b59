package inventory

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of generated files into docs/agent.md")

// TestDocs: docs/agent.md has the table as it is.
func TestDocs(t *testing.T) {
	const page = "../../docs/agent.md"
	const begin, end = "<!-- generated files: go test ./agent/inventory -run TestDocs -update -->\n", "<!-- end of generated files -->"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(data), begin)
	former, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("the page has no place for the table")
	}
	var b strings.Builder
	b.WriteString("\n| generated and known | why |\n| --- | --- |\n")
	for _, r := range Table() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(r.Paths, "` `"), r.Why)
	}
	b.WriteString("\n")
	if former == b.String() {
		return
	}
	if !*update {
		t.Fatal("docs/agent.md is behind the table: go test ./agent/inventory -run TestDocs -update")
	}
	if err := os.WriteFile(page, []byte(head+begin+b.String()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
