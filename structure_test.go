package kamino_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// testKinds start the name of a test file that is not about one file of its package.
var testKinds = []string{
	"bench",   // measures
	"docs",    // compares with pages of docs/
	"example", // shows how a package is used
	"export",  // what tests from outside need of the inside
	"fuzz",    // any input
	"golden",  // compares with files that people have read
	"harness", // what the package's tests share
}

// testsOfMore are test files, and folders of them, that are named otherwise, and why.
var testsOfMore = map[string]string{
	"arch_test.go":                "about all packages",
	"formats_test.go":             "about all packages",
	"structure_test.go":           "about all packages",
	"engine/side_by_side_test.go": "about every run that may be beside another one",
	"internal/sim/":               "whole runs: a file is named after what happens to them",
	"providertest/":               "the contract: a file is named after its subject, not after the provider that is asked",
}

// TestTestFiles: whoever reads x.go finds its tests in x_test.go or x_SOMETHING_test.go. A test file is named
// after a file of its package, after the package, or after the kind of its tests.
func TestTestFiles(t *testing.T) {
	files := goFiles(t)
	subjects := map[string][]string{} // of each folder
	for _, file := range files {
		if dir, name := filepath.Split(file); !strings.HasSuffix(name, "_test.go") {
			name = strings.TrimSuffix(strings.TrimSuffix(name, ".go"), "_linux")
			subjects[dir] = append(subjects[dir], name)
		}
	}
	needless := map[string]bool{}
	for name := range testsOfMore {
		needless[name] = true
	}
	for _, file := range files {
		dir, name := filepath.Split(file)
		name, isTest := strings.CutSuffix(name, "_test.go")
		if !isTest {
			continue
		}
		about := func(subject string) bool { return name == subject || strings.HasPrefix(name, subject+"_") }
		if name == filepath.Base(dir) || slices.ContainsFunc(subjects[dir], about) || slices.ContainsFunc(testKinds, about) {
			continue
		}
		excused := false
		for _, allowed := range []string{filepath.ToSlash(file), filepath.ToSlash(dir)} {
			if testsOfMore[allowed] != "" {
				excused, needless[allowed] = true, false
			}
		}
		if !excused {
			t.Errorf("%s: no file of its package has this name or starts it: name it after the file that it tests, x_test.go or x_SOMETHING_test.go", file)
		}
	}
	for name, is := range needless {
		if is {
			t.Errorf("testsOfMore: %s needs no exception any more", name)
		}
	}
}

// structureOf is how a package is filed, as TestStructure counts it. A file group is the files whose
// names begin with the same word: donor.go, donor_seal.go.
type structureOf struct {
	files   int
	cycle   []string // the largest set of files each of which refers to all others, directly or not
	methods int
	outside []string // methods in another file group than their type
	writes  []string // fields that are written in another file group than their type: type.field in file
}

// structureBounds are what a package of the core may have beyond the rule: no cycle of more than a
// third of its files, at most 5 % of its methods outside, and no field written outside. They are
// what it has; whoever makes it less lowers them.
var structureBounds = map[string]struct{ cycle, outside, writes int }{
	"kamino.dev/kamino":           {cycle: 22, outside: 28},
	"kamino.dev/kamino/proof":     {cycle: 2, outside: 5},
	"kamino.dev/kamino/poolstate": {cycle: 8, outside: 39},
	"kamino.dev/kamino/engine":    {writes: 56},
}

// TestStructure: a file of the core can be read with few others.
func TestStructure(t *testing.T) {
	config := &packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax |
		packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports}
	core, err := packages.Load(config, ".", "./selection", "./proof", "./poolstate", "./workflow", "./lock", "./engine")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range core {
		if len(p.Errors) > 0 {
			t.Fatal(p.Errors)
		}
		s, bound := structure(p), structureBounds[p.PkgPath]
		for _, c := range []struct {
			what            string
			is, rule, bound int
			found           []string
		}{
			{"files in one reference cycle", len(s.cycle), max(1, s.files/3), bound.cycle, s.cycle},
			{"methods outside the files of their type", len(s.outside), s.methods / 20, bound.outside, s.outside},
			{"fields written outside the files of their type", len(s.writes), 0, bound.writes, s.writes},
		} {
			most := max(c.rule, c.bound)
			switch {
			case c.is > most:
				t.Errorf("%s: %d %s, at most %d: %s", p.PkgPath, c.is, c.what, most, strings.Join(c.found, ", "))
			case c.bound > c.rule && c.is < c.bound:
				t.Errorf("%s: %d %s: lower the bound of %d in structureBounds", p.PkgPath, c.is, c.what, c.bound)
			}
		}
	}
}

func structure(p *packages.Package) (s structureOf) {
	fileOf := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	group := func(file string) string {
		first, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
		return first
	}
	holder := map[types.Object]types.Object{} // field -> its type
	for _, name := range p.Types.Scope().Names() {
		if of, ok := p.Types.Scope().Lookup(name).(*types.TypeName); ok {
			if fields, ok := of.Type().Underlying().(*types.Struct); ok {
				for i := range fields.NumFields() {
					holder[fields.Field(i)] = of
				}
			}
		}
	}
	refers := map[string]map[string]bool{}
	written := map[string]bool{}
	for _, f := range p.Syntax {
		from := fileOf(f.Pos())
		refers[from] = map[string]bool{}
		write := func(e ast.Expr) {
			for {
				index, ok := e.(*ast.IndexExpr)
				if !ok {
					break
				}
				e = index.X
			}
			if field, ok := e.(*ast.SelectorExpr); ok {
				if of := holder[p.TypesInfo.Uses[field.Sel]]; of != nil && of.Pkg() == p.Types && !of.Exported() && group(fileOf(of.Pos())) != group(from) {
					written[of.Name()+"."+field.Sel.Name+" in "+from] = true
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					write(e)
				}
			case *ast.IncDecStmt:
				write(n.X)
			case *ast.Ident:
				if o := p.TypesInfo.Uses[n]; o != nil && o.Pkg() == p.Types {
					field, isVar := o.(*types.Var)
					if _, isFunc := o.(*types.Func); isFunc || o.Parent() == p.Types.Scope() || isVar && field.IsField() {
						refers[from][fileOf(o.Pos())] = true
					}
				}
			}
			return true
		})
		for _, d := range f.Decls {
			if m, ok := d.(*ast.FuncDecl); ok && m.Recv != nil {
				s.methods++
				recv := p.TypesInfo.TypeOf(m.Recv.List[0].Type)
				if to, ok := recv.(*types.Pointer); ok {
					recv = to.Elem()
				}
				if of := recv.(*types.Named).Obj(); group(fileOf(of.Pos())) != group(from) {
					s.outside = append(s.outside, of.Name()+"."+m.Name.Name+" in "+from)
				}
			}
		}
	}
	s.files, s.cycle, s.writes = len(refers), largestCycle(refers), slices.Sorted(maps.Keys(written))
	return s
}

// largestCycle returns the largest strongly connected set of a graph.
func largestCycle(refers map[string]map[string]bool) (largest []string) {
	reach := func(graph func(string) map[string]bool, from string) map[string]bool {
		seen, left := map[string]bool{from: true}, []string{from}
		for len(left) > 0 {
			at := left[0]
			left = left[1:]
			for to := range graph(at) {
				if !seen[to] {
					seen[to], left = true, append(left, to)
				}
			}
		}
		return seen
	}
	back := map[string]map[string]bool{}
	for from, tos := range refers {
		for to := range tos {
			if back[to] == nil {
				back[to] = map[string]bool{}
			}
			back[to][from] = true
		}
	}
	for file := range refers {
		out, in := reach(func(f string) map[string]bool { return refers[f] }, file), reach(func(f string) map[string]bool { return back[f] }, file)
		maps.DeleteFunc(out, func(f string, _ bool) bool { return !in[f] })
		if len(out) > len(largest) {
			largest = slices.Sorted(maps.Keys(out))
		}
	}
	return largest
}
