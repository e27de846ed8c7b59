package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Overlay writes copies of the product's source with all mutants in them into dir, and returns the
// file to name with go test -overlay. root is the directory of the module. A patch that
// no longer applies, or changes anything but functions, is an error that names it.
func Overlay(root, dir string) (file string, err error) {
	w := weaver{root: root, dir: dir, replace: map[string]string{}, sources: map[string]*source{}}
	var errs []error
	for _, m := range All() {
		if err := w.add(m); err != nil {
			errs = append(errs, fmt.Errorf("mutant %s: %w", m.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	for _, s := range w.sources {
		if err := w.write(filepath.Join(root, s.name), s.woven()); err != nil {
			return "", err
		}
	}
	if err := w.write(filepath.Join(root, "mutant.go"), []byte(rootSwitch)); err != nil {
		return "", err
	}
	if err := w.write(filepath.Join(root, "internal", "sim", "mutants", "on.go"), []byte(onSwitch)); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": w.replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

// Play plays the running test again in a binary that holds the mutants. The test's package lies two
// folders below the product's module, in whichever module.
func Play(t testing.TB) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := Overlay(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-buildvcs=false", "-count=1", "-v", "-timeout=3h", "-overlay="+overlay,
		"-ldflags=-s -w", "-run=^"+t.Name()+"$", ".")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s", out)
}

const rootSwitch = `package kamino

// Mutant names the one that is switched on.
var Mutant string
`

const onSwitch = `package mutants

import "kamino.dev/kamino"

func init() { set = func(name string) { kamino.Mutant = name } }
`

// weaver puts mutants beside the functions that they change.
type weaver struct {
	root, dir string
	replace   map[string]string // file of the product -> its copy
	sources   map[string]*source
}

// source is a file of the product and the functions in it that mutants change.
type source struct {
	name    string
	text    []byte
	funcs   map[string]function
	inserts map[int][]string // offset of a body -> questions to put there
	asks    bool             // the questions need an import that the file lacks
}

// module is the import path of the package that has the switch.
const module = `"kamino.dev/kamino"`

// function is a declaration as it stands in a file.
type function struct {
	decl *ast.FuncDecl
	text string
	name int // offset of the name in text
	body int // offset in the file, behind the opening brace
}

func (w *weaver) write(file string, text []byte) error {
	copied := filepath.Join(w.dir, strings.ReplaceAll(strings.TrimPrefix(file, w.root+string(filepath.Separator)),
		string(filepath.Separator), "_"))
	w.replace[file] = copied
	return os.WriteFile(copied, text, 0o600)
}

func (w *weaver) add(m Mutant) error {
	patched, err := apply(w.root, m.patch)
	if err != nil {
		return err
	}
	changed := 0
	for _, name := range slices.Sorted(maps.Keys(patched)) {
		s := w.sources[name]
		if s == nil {
			if s, err = read(w.root, name); err != nil {
				return err
			}
			w.sources[name] = s
		}
		mutated, header, err := s.mutate(m.Name, patched[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		changed += len(mutated)
		file := path.Join(path.Dir(name), fmt.Sprintf("mutant_%s_%s", ident(m.Name), path.Base(name)))
		if err := w.write(filepath.Join(w.root, file), []byte(header+strings.Join(mutated, "\n\n")+"\n")); err != nil {
			return err
		}
	}
	if changed == 0 {
		return errors.New("it changes no function")
	}
	return nil
}

// apply applies a patch to copies of the files that it names.
func apply(root string, patch []byte) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "mutant-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	names := map[string]bool{}
	for line := range strings.Lines(string(patch)) {
		if name, ok := strings.CutPrefix(line, "--- a/"); ok {
			names[strings.TrimSpace(name)] = true
		}
	}
	for name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, text, 0o600)); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("it no longer applies; mend internal/sim/mutants: %w: %s", err, bytes.TrimSpace(said))
	}
	out := map[string][]byte{}
	for name := range names {
		if out[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func read(root, name string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	_, funcs, _, err := parse(name, text)
	return &source{name: name, text: text, funcs: funcs, inserts: map[int][]string{}}, err
}

// parse lists the functions of a file; rest is the file without them.
func parse(name string, text []byte) (file *ast.File, funcs map[string]function, rest string, err error) {
	set := token.NewFileSet()
	if file, err = parser.ParseFile(set, name, text, parser.SkipObjectResolution); err != nil {
		return nil, nil, "", err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	funcs = map[string]function{}
	end := 0
	var outside strings.Builder
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		from, to := offset(f.Pos()), offset(f.End())
		outside.Write(text[end:from])
		end = to
		funcs[signature(f)] = function{f, string(text[from:to]), offset(f.Name.Pos()) - from, offset(f.Body.Lbrace) + 1}
	}
	outside.Write(text[end:])
	return file, funcs, outside.String(), nil
}

// signature is a function's name with the type of its receiver.
func signature(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	return fmt.Sprint(t) + "." + f.Name.Name
}

// mutate compares the source with its patched text: the patched functions under new names, with
// the head of a file for them.
func (s *source) mutate(mutant string, text []byte) (funcs []string, header string, err error) {
	file, patched, rest, err := parse(s.name, text)
	if err != nil {
		return nil, "", err
	}
	if _, _, was, err := parse(s.name, s.text); err != nil {
		return nil, "", err
	} else if was != rest {
		return nil, "", errors.New("the patch changes more than the bodies of functions")
	}
	var used strings.Builder
	for _, key := range slices.Sorted(maps.Keys(patched)) {
		f, was := patched[key], s.funcs[key]
		if f.text == was.text {
			continue
		}
		if was.decl == nil {
			return nil, "", fmt.Errorf("the patch adds function %s", key)
		}
		if f.text[:strings.Index(f.text, "{")] != was.text[:strings.Index(was.text, "{")] {
			return nil, "", fmt.Errorf("the patch changes how %s is called", key)
		}
		name := f.decl.Name.Name + "_" + ident(mutant)
		s.inserts[was.body] = append(s.inserts[was.body], s.question(was.decl, mutant, name))
		funcs = append(funcs, f.text[:f.name]+name+f.text[f.name+len(f.decl.Name.Name):])
		used.WriteString(f.text)
	}
	header = "package " + file.Name.Name + "\n\n"
	s.asks = file.Name.Name != "kamino" && !slices.ContainsFunc(file.Imports,
		func(i *ast.ImportSpec) bool { return i.Path.Value == module })
	for _, i := range file.Imports {
		name := path.Base(strings.Trim(i.Path.Value, `"`))
		if i.Name != nil {
			name = i.Name.Name
		}
		if regexp.MustCompile(`(^|[^.\w])` + name + `\.`).MatchString(used.String()) {
			header += "import " + name + " " + i.Path.Value + "\n"
		}
	}
	return funcs, header + "\n", nil
}

// question is the statement that hands over to a mutant which is switched on.
func (s *source) question(f *ast.FuncDecl, mutant, name string) string {
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			arg := n.Name
			if _, more := p.Type.(*ast.Ellipsis); more {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.Recv != nil {
		call = f.Recv.List[0].Names[0].Name + "." + call
	}
	if f.Type.Results == nil {
		call += "; return"
	} else {
		call = "return " + call
	}
	on := "Mutant"
	if path.Dir(s.name) != "." {
		on = "kamino.Mutant"
	}
	return fmt.Sprintf(" if %s == %q { %s };", on, mutant, call)
}

// woven is the source with its questions; lines keep their numbers.
func (s *source) woven() []byte {
	var out bytes.Buffer
	end := 0
	for _, at := range slices.Sorted(maps.Keys(s.inserts)) {
		out.Write(s.text[end:at])
		out.WriteString(strings.Join(s.inserts[at], ""))
		end = at
	}
	out.Write(s.text[end:])
	if s.asks {
		clause := regexp.MustCompile(`(?m)^package \w+$`)
		return clause.ReplaceAll(out.Bytes(), []byte("$0; import "+module))
	}
	return out.Bytes()
}

func ident(name string) string { return strings.ReplaceAll(name, "-", "_") }
