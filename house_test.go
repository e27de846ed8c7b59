package kamino_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHouse counts what keeps the root readable: a stranger must see from ls where to begin.
func TestHouse(t *testing.T) {
	root, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	product, tests := 0, 0
	counts := map[string]int{}
	for _, file := range root {
		if strings.HasSuffix(file, "_test.go") {
			tests++
			continue
		}
		product++
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range membersOf(t, parsed) {
			counts[name] = n
		}
	}
	counts["files of the root package"], counts["test files of the root package"] = product, tests
	for name, most := range map[string]int{
		"files of the root package": 34, "test files of the root package": 10,
		"Run": 16, "Provider": 16, "Cluster": 16,
	} {
		if n, counted := counts[name]; !counted || n > most {
			t.Errorf("%s: %d, at most %d", name, n, most)
		}
	}
}

// membersOf counts the fields of structs and the methods of interfaces. Run embeds nothing.
func membersOf(t *testing.T, file *ast.File) map[string]int {
	t.Helper()
	out := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		var list *ast.FieldList
		switch x := spec.Type.(type) {
		case *ast.StructType:
			list = x.Fields
		case *ast.InterfaceType:
			list = x.Methods
		default:
			return false
		}
		for _, f := range list.List {
			if out[spec.Name.Name] += max(1, len(f.Names)); len(f.Names) == 0 && spec.Name.Name == "Run" {
				t.Errorf("Run embeds %s", f.Type)
			}
		}
		return false
	})
	return out
}

// TestComments: comments wrap at 100 columns, with a tab for four, in all three modules. Long
// addresses, and columns within a comment, stay as they are; code is as long as gofmt leaves it.
func TestComments(t *testing.T) {
	files := goFiles(t)
	for _, module := range []string{"lab", "release"} {
		more, err := filepath.Glob(filepath.Join(module, "*", "*.go"))
		deeper, err2 := filepath.Glob(filepath.Join(module, "*", "*", "*.go"))
		if err != nil || err2 != nil || len(more)+len(deeper) == 0 {
			t.Fatal(module, err, err2)
		}
		files = slices.Concat(files, more, deeper)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			comment, is := strings.CutPrefix(strings.TrimLeft(line, "\t"), "// ")
			if !is || strings.Contains(comment, "://") || strings.HasPrefix(comment, "   ") {
				continue
			}
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > 100 {
				t.Errorf("%s:%d: a comment of %d columns, at most 100", file, i+1, n)
			}
		}
	}
}
