package kamino_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"kamino.dev/kamino/internal/golden"
)

const module = "kamino.dev/kamino"

// rule says what a package, and everything below it that has no rule of its
// own, may import of other people's and of this module.
type rule struct {
	pkg     string
	allowed []string // packages of this module, with "/..." what lies below one, too; prefixes of others. The standard library is always allowed
	why     string
}

// rules are the architecture: who may know whom. Test files are not bound.
var rules = []rule{
	{"", nil, "words and ports need nothing but the standard library"},
	{"selection", []string{module}, "who becomes a donor follows from nodes and rules only"},
	{"proof", []string{module}, "a verdict follows from what was seen and its bounds only"},
	{"poolstate", []string{module, module + "/selection"}, "what is to be done follows from how the pool stands and from the options"},
	{"workflow", []string{module}, "a runner of steps knows no pool"},
	{"lock", []string{module, module + "/workflow"}, "the lock knows its lease and the run that has it"},
	{"engine", []string{module, module + "/selection", module + "/proof", module + "/poolstate", module + "/workflow", module + "/lock"},
		"the runs know the ports, and nobody behind them"},
	{"boot", []string{module + "/boot/...", module + "/internal/lazyregexp"}, "boot analysis is pure and embeddable"},
	{"agent", []string{module + "/boot/...", module + "/agent/...", module + "/internal/lazyregexp", "golang.org/x/sys", "go.yaml.in/yaml", "github.com/coreos/go-systemd", "github.com/godbus/dbus", "go.etcd.io/bbolt", "github.com/klauspost/compress/zstd", "github.com/ulikunitz/xz"},
		"the agent is small, static, and knows no cluster and no cloud SDK"},
	{"agent/userdata", []string{module + "/agent/strict", module + "/internal/lazyregexp", "go.yaml.in/yaml"}, "kamino reads user data as the agent does, on every system"},
	{"api", []string{"k8s.io/apimachinery/"}, "whoever writes a NodePrototype needs the kind and nothing else"},
	{"kube", []string{module, "k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/"}, "one adapter per outside world; no providers"},
	{"controller", []string{module, module + "/engine", module + "/poolstate", module + "/kube", module + "/notify", module + "/api/...", module + "/controller/...", "k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/", "github.com/prometheus/"},
		"one reconciler around the engine; no providers"},
	{"notify", []string{module, module + "/poolstate"}, "it knows what a status tells and who is told, and no cluster"},
	{"azure", []string{module, "github.com/Azure/azure-sdk-for-go"}, "one adapter per outside world; never the emulator, which would hide its mistakes"},
	{"azure/emulator", []string{module + "/azure/emulator/..."}, "it must not share the client's mistakes"},
	{"aws", []string{module, module + "/agent/userdata", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"}, "one adapter per outside world; never the emulator, which would hide its mistakes. A canary's user data is read as a node does"},
	{"aws/emulator", []string{module + "/aws/emulator/..."}, "it must not share the client's mistakes"},
	{"providertest", []string{module}, "the contract knows no provider"},
	{"view", []string{module, module + "/boot", module + "/engine", module + "/lock", module + "/poolstate", module + "/internal/render"}, "what people see of a status; it asks nobody"},
	{"cmd/kamino", []string{module + "/...", "github.com/spf13/", "k8s.io/client-go/", "k8s.io/apimachinery/", "k8s.io/klog/v2", "sigs.k8s.io/yaml", "golang.org/x/term", "golang.org/x/crypto/x509roots"}, "wires everything but the emulator"},
	{"cmd/kamino-agent", []string{module + "/agent/...", module + "/boot/..."}, "a small main around agent"},
	{"internal/invariant", nil, "a referee that used the player's functions would share his mistakes"},
	{"internal/sim", []string{module + "/..."}, "it plays the engine as anybody could who imports it"},
	{"internal/worlds", []string{module}, "what both worlds play with, and nothing of either"},
	{"internal/sim/mutants", nil, "they are patches, and no part of what they patch"},
	{"charts", []string{module + "/internal/render"}, "whoever installs the charts needs nothing else"},
	{"internal/render", nil, "a few constructs of text/template, and not that"},
	{"internal/lazyregexp", nil, "regular expressions that cost nothing until they are used"},
	{"internal/golden", []string{"github.com/google/go-cmp"}, "compares texts in tests"},
	{"internal/treefile", []string{"golang.org/x/tools/txtar"}, "reads trees of files in tests"},
	{"internal/wording", nil, "reads the source in tests"},
	{"internal/hostile", nil, "what it fills must not clean it"},
}

// forbidden is never imported by code of the product, whatever is allowed.
var forbidden = map[string]string{
	module + "/lab":               "nobody imports the lab",
	"k8s.io/kubernetes":           "only the lab may",
	"k8s.io/client-go/kubernetes": "it links each group of the API that there is: 15 MB of the program, 11 MB of the memory of each command",
	"text/template":               "the linker keeps each method of each type for it: use internal/render",
	"html/template":               "the linker keeps each method of each type for it: use internal/render",
	module + "/azure/emulator":    "the product carries no emulator",
	module + "/aws/emulator":      "the product carries no emulator",
	module + "/internal/sim":      "only its own tests play it",
}

func TestImports(t *testing.T) {
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		r := ruleFor(filepath.ToSlash(filepath.Dir(file)))
		for _, imp := range parsed.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if why := breaks(r, path); why != "" {
				t.Errorf("%s imports %s: %s", file, path, why)
			}
		}
	}
}

func breaks(r rule, path string) string {
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") {
		return forbidden[path]
	}
	for bad, why := range forbidden {
		inside := strings.HasPrefix(module+"/"+r.pkg, bad)
		if !inside && (path == bad || strings.HasPrefix(path, bad+"/")) {
			return why
		}
	}
	for _, p := range r.allowed {
		below, all := strings.CutSuffix(p, "/...")
		switch ours := strings.HasPrefix(p, module); {
		case ours && path == below, all && strings.HasPrefix(path, below+"/"), !ours && strings.HasPrefix(path, p):
			return ""
		}
	}
	return r.why
}

// ruleFor finds the rule of the package or of its nearest parent.
func ruleFor(dir string) rule {
	best := rules[0]
	for _, r := range rules[1:] {
		if (dir == r.pkg || strings.HasPrefix(dir, r.pkg+"/")) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best
}

// TestOneClock: engine, adapters, controller and commands know the time, wait and give up by the
// injected clock only, which is WallClock in production. Nothing else may read the machine's: not
// for a part of a package either. What has a clock of its own is not the engine's: the agent, which
// is alone on its machine and waits for that machine's programs, and the emulators.
func TestOneClock(t *testing.T) {
	clocks := map[string][]string{
		"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	}
	checked := map[string]bool{}
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		top, _, _ := strings.Cut(dir, "/")
		if strings.HasSuffix(file, "_test.go") || top == "agent" || top == "internal" || strings.HasSuffix(dir, "/emulator") {
			continue
		}
		checked[dir] = true
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && f.Recv != nil {
				if of, ok := f.Recv.List[0].Type.(*ast.Ident); ok && dir == "." && of.Name == "WallClock" {
					return false
				}
			}
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && slices.Contains(clocks[pkg.Name], sel.Sel.Name) {
					t.Errorf("%s uses %s.%s, not the clock that it is given", file, pkg.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
	for _, dir := range []string{".", "selection", "proof", "poolstate", "workflow", "lock", "engine", "kube", "azure", "aws", "controller", "controller/metrics", "notify", "cmd/kamino"} {
		if !checked[dir] {
			t.Errorf("nothing of %s was read", dir)
		}
	}
}

// TestPackageDocs: every package says once what it is for.
func TestPackageDocs(t *testing.T) {
	docs, packages := map[string]int{}, map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(file)
		packages[dir] = true
		if parsed.Doc != nil {
			docs[dir]++
		}
	}
	for dir := range packages {
		if docs[dir] != 1 {
			t.Errorf("%s has %d package docs, want 1", dir, docs[dir])
		}
	}
}

// TestGuide: the architecture page names files to read first that exist.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(guide), "Read first: ")
	list, _, _ = strings.Cut(list, "\n")
	first := strings.Split(list, ", ")
	for _, name := range first {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("docs/architecture.md: %v", err)
		}
	}
	if len(first) > 6 {
		t.Errorf("docs/architecture.md names %q to be read first, which is more than ten minutes take", first)
	}
}

// TestLayout: no drawer for odds and ends.
func TestLayout(t *testing.T) {
	for _, file := range goFiles(t) {
		for _, part := range strings.Split(filepath.ToSlash(filepath.Dir(file)), "/") {
			if slices.Contains([]string{"pkg", "util", "utils", "common", "helpers", "types", "misc"}, part) {
				t.Errorf("%s lies in a folder named %q, which says nothing", file, part)
			}
		}
	}
}

// TestBinaries: what each shipped binary is made of stands in a list, so that a change that brings
// a package along shows it to whoever reads the change. Neither emulator nor control plane is among
// them, also not by a detour.
func TestBinaries(t *testing.T) {
	for _, cmd := range []string{"cmd/kamino", "cmd/kamino-agent"} {
		list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./"+cmd)
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", cmd, err)
		}
		packages := strings.Fields(string(out))
		slices.Sort(packages)
		for _, dep := range packages {
			for bad, why := range forbidden {
				if dep == bad || strings.HasPrefix(dep, bad+"/") {
					t.Errorf("%s depends on %s: %s", cmd, dep, why)
				}
			}
		}
		golden.Check(t, filepath.Join(filepath.FromSlash(cmd), "testdata", "packages.txt"), strings.Join(packages, "\n")+"\n")
	}
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "lab" || path == "release" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal(os.ErrNotExist)
	}
	return files
}

// longText is the longest text of a line of Go.
var longText = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`?")

// TestColumns: a line has at most 140 columns, with a tab for four, in all three modules. Longer are only
// the code of tests, and texts: without its longest text such a line has at most 100. Long addresses,
// columns within a comment, markers of controller-gen and raw texts stay as they are.
func TestColumns(t *testing.T) {
	files := goFiles(t)
	for _, module := range []string{"lab", "release"} {
		more, err := filepath.Glob(filepath.Join(module, "*", "*.go"))
		deeper, err2 := filepath.Glob(filepath.Join(module, "*", "*", "*.go"))
		if err != nil || err2 != nil || len(more)+len(deeper) == 0 {
			t.Fatal(module, err, err2)
		}
		files = slices.Concat(files, more, deeper)
	}
	columns := func(s string) int { return utf8.RuneCountInString(strings.ReplaceAll(s, "\t", "    ")) }
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "zz_generated.") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw := false
		for i, line := range strings.Split(string(text), "\n") {
			within := raw
			raw = raw != (strings.Count(line, "`")%2 == 1)
			comment, is := strings.CutPrefix(strings.TrimLeft(line, "\t"), "// ")
			if is && (strings.Contains(comment, "://") || strings.HasPrefix(comment, "   ") || strings.HasPrefix(comment, "+kubebuilder:")) ||
				columns(line) <= 140 || !is && (within || strings.HasSuffix(file, "_test.go")) {
				continue
			}
			longest := 0
			for _, text := range longText.FindAllString(line, -1) {
				longest = max(longest, columns(text))
			}
			if n := columns(line); is || n-longest > 100 {
				t.Errorf("%s:%d: %d columns, at most 140", file, i+1, n)
			}
		}
	}
}
