// Package wording collects from the source what an operator can see of a program: every string that
// has words in it, so that all of them can be read in one sitting. Some that nobody sees (patterns,
// queries) are among them; none that somebody sees is missing, but single words.
package wording

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "kamino.dev/kamino"

// words is what a text has that is one: two words with a space between them.
var words = regexp.MustCompile(`[A-Za-z]{2,}[^A-Za-z]* [^A-Za-z]*[A-Za-z%]{2,}`)

// notTexts are functions whose strings nobody reads.
var notTexts = []string{"regexp.MustCompile", "regexp.Compile", "panic"}

// Of reads the sources of a program, in the module's directory root, and returns its texts, each
// package and file under a heading. List is the file that names the packages that the program is
// linked with, one a line.
func Of(root, list string) (string, error) {
	linked, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(linked))
	for lines.Scan() {
		path := strings.TrimSpace(lines.Text())
		if path != module && !strings.HasPrefix(path, module+"/") {
			continue
		}
		dir := filepath.Join(root, strings.TrimPrefix(strings.TrimPrefix(path, module), "/"))
		p, err := build.ImportDir(dir, 0)
		if err != nil {
			return "", err
		}
		for _, name := range p.GoFiles {
			found, err := inFile(filepath.Join(dir, name))
			if err != nil {
				return "", err
			}
			if len(found) > 0 {
				at, err := filepath.Rel(root, filepath.Join(dir, name))
				if err != nil {
					return "", err
				}
				fmt.Fprintf(&out, "== %s\n%s\n", filepath.ToSlash(at), strings.Join(found, "\n"))
			}
		}
	}
	return out.String(), lines.Err()
}

func inFile(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return n.Tag == nil // its tag is no text, and no type holds one
		case *ast.CallExpr:
			return !slices.Contains(notTexts, called(n))
		case *ast.BinaryExpr:
			if text, ok := joined(n); ok {
				found = appendText(found, text)
				return false
			}
		case *ast.BasicLit:
			if text, ok := joined(n); ok {
				found = appendText(found, text)
			}
		}
		return true
	})
	return found, nil
}

func appendText(list []string, text string) []string {
	if !words.MatchString(text) {
		return list
	}
	return append(list, strings.NewReplacer("\n", "\n    ", "\x00", `\0`).Replace(strings.TrimSpace(text)))
}

// joined is a string literal, or several that + joins.
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

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// Avoided are the words that a page says not to write: the first column of its table with the head
// "not" and "but".
func Avoided(page string) (list []string) {
	_, table, _ := strings.Cut(page, "| not | but |\n| --- | --- |\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		list = append(list, strings.TrimSpace(cells[1]))
	}
	return list
}
