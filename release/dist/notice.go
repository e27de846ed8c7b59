package dist

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
)

// Notice is what the file NOTICE must say: each module that a program is linked with on some
// target, with its licence. It fails where a licence is not known: somebody has to read it first.
func Notice(source string) (string, error) {
	r := Release{Source: source, Targets: Targets, modules: map[string]module{}}
	deps := map[string]*debug.Module{}
	for _, t := range r.Targets {
		cmd := exec.Command("go", "list", "-deps", "-tags=grpcnotrace", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}",
			"./cmd/"+kamino, "./cmd/"+agent)
		cmd.Dir, cmd.Stderr = source, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch, "GOFLAGS=")
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("list the modules for %s: %w", t, err)
		}
		for _, path := range strings.Fields(string(out)) {
			deps[path] = &debug.Module{Path: path}
		}
	}
	var list []*debug.Module
	for _, d := range deps {
		list = append(list, d)
	}
	if err := r.read(list); err != nil {
		return "", err
	}
	var lines []string
	for _, m := range r.modules {
		lines = append(lines, fmt.Sprintf("%-62s %s\n", m.Path, m.License))
	}
	slices.Sort(lines)
	return "Kamino\nCopyright 2026 The Kamino authors\n\nThe programs are linked with these Go modules. The texts of their licences are in the\narchives and packages of a release, below licenses/.\n\n" + strings.Join(lines, ""), nil
}
