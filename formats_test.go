package kamino

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/internal/golden"
)

// TestFormats freezes what is written on leases, nodes and images: record and ledger of a lease, the
// mark of a node, and the names and states in tags, annotations, labels and taints. What the golden
// file shows is read as it was written. From the first release on a change of that file may only
// add lines.
func TestFormats(t *testing.T) {
	const path = "testdata/formats.txt"
	var text strings.Builder
	for _, format := range []struct {
		what        string
		want, empty any
	}{
		{"record of a lease", &Record{}, &Record{}},
		{"ledger of a lease", &Ledger{}, &Ledger{}},
		{"mark of a node", &Mark{}, &Mark{}},
	} {
		fill(reflect.ValueOf(format.want).Elem(), "")
		written, err := json.MarshalIndent(format.want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "== %s\n%s\n", format.what, written)
		if err := json.Unmarshal(written, format.empty); err != nil || !reflect.DeepEqual(format.empty, format.want) {
			t.Errorf("%s: wrote %+v, read %+v, %v", format.what, format.want, format.empty, err)
		}
	}
	text.WriteString("== names and states\n" + strings.Join(frozen(t), "\n") + "\n")
	golden.Check(t, path, text.String())
}

// fill gives every field of a struct a value, strings their field's name.
func fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 20, 3, 4, 5, 0, time.UTC)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`"saved"`))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Tag.Get("json") != "-" {
				fill(v.Field(i), field.Name)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, name)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), value)
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		panic("formats: no value of kind " + v.Kind().String())
	}
}

// frozen are the constants of this package that name a tag, an annotation, a label or a taint, or a
// state that a tag has.
func frozen(t *testing.T) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	prefixes := []string{"Tag", "Annotation", "Label", "Taint", "offer", "proof", "bootstrap", "pointer"}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				c := spec.(*ast.ValueSpec)
				ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Names[0].Name, p) })
				if len(c.Values) != 1 || !ours {
					continue
				}
				if value, ok := c.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
					lines = append(lines, c.Names[0].Name+" = "+value.Value)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}
