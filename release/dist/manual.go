package dist

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// manuals are the pages of docs/ that are also read with man, by program.
var manuals = map[string]struct{ page, section, title string }{
	kamino: {"docs/cli.md", "1", "Kamino"},
	agent:  {"docs/agent.md", "8", "Kamino's node agent"},
}

// manual makes the manual page of a program (man-pages(7)) from the page of docs/ that tells all of
// it.
func (r *Release) manual(program string) (entry, error) {
	m := manuals[program]
	page, err := os.ReadFile(filepath.Join(r.Source, m.page))
	if err != nil {
		return entry{}, err
	}
	var text []string
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "<!--") { // notes to those who edit it
			text = append(text, line)
		}
	}
	head := fmt.Sprintf("%% %s(%s) v%s | %s\n%%\n%% %s\n\n", strings.ToUpper(program), m.section, r.Version, m.title,
		r.Time.Format("January 2006"))
	return entry{name: "man/" + program + "." + m.section, mode: 0o644, body: md2man.Render([]byte(head + strings.Join(text, "")))}, nil
}
