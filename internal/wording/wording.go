// Package wording reads from the source what an operator can see of a program: its string literals.
package wording

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const module = "kamino.dev/kamino"

// Text is a string literal, or several that + joins.
type Text struct {
	At    token.Position
	Value string
}

// Of returns the texts of a program, without its tests. Root is the module's directory; list is the
// file that names the packages that the program is linked with, one a line.
func Of(root, list string) (texts []Text, err error) {
	linked, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	for _, path := range strings.Fields(string(linked)) {
		if path != module && !strings.HasPrefix(path, module+"/") {
			continue
		}
		dir := filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(path, module)))
		p, err := build.ImportDir(dir, 0)
		if err != nil {
			return nil, err
		}
		for _, name := range p.GoFiles {
			parsed, err := parser.ParseFile(files, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				e, _ := n.(ast.Expr)
				value, ok := joined(e)
				if ok {
					texts = append(texts, Text{At: files.Position(n.Pos()), Value: value})
				}
				return !ok
			})
		}
	}
	return texts, nil
}

// joined returns the value of a string literal, or of several that + joins.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, ok := joined(e.X)
		right, ok2 := joined(e.Y)
		return left + right, ok && ok2 && e.Op == token.ADD
	}
	return "", false
}
