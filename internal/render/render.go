// Package render does what this program needs of text/template and html/template, with their syntax
// and their parser. Those find methods by their names, for which the linker keeps each exported
// method of each type there is: a quarter of kamino's size. Here templates see fields, maps and
// functions, and no methods.
package render

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"text/template/parse"
)

// Raw is text that is written as it is, where other values are escaped.
type Raw string

// Template is one with those that it defines.
type Template struct {
	name   string
	trees  map[string]*parse.Tree
	funcs  map[string]any
	escape func(string) string
}

// New parses a template. Functions are of type func(string) string; eq of two values, gt and len of
// numbers and lists, and or are known besides. Escape is for each value that is written; nil leaves
// values as they are. It must fit every place of the template in which a value stands.
func New(name, text string, funcs map[string]func(string) string, escape func(string) string) (*Template, error) {
	known := map[string]any{"eq": true, "gt": true, "len": true, "or": true}
	for name, f := range funcs {
		known[name] = f
	}
	trees, err := parse.Parse(name, text, "", "", known)
	if err != nil {
		return nil, err
	}
	return &Template{name, trees, known, escape}, nil
}

// Must is for templates that are part of the program.
func Must(t *Template, err error) *Template {
	if err != nil {
		panic(err)
	}
	return t
}

// Execute writes the template for some data.
func (t *Template) Execute(w io.Writer, data any) error {
	r := rendering{t: t, variables: map[string]reflect.Value{}}
	if err := r.list(t.trees[t.name].Root, reflect.ValueOf(data)); err != nil {
		return fmt.Errorf("template %s: %w", t.name, err)
	}
	_, err := io.WriteString(w, r.out.String())
	return err
}

type rendering struct {
	t         *Template
	variables map[string]reflect.Value // with their $
	out       strings.Builder
}

func (r *rendering) list(l *parse.ListNode, dot reflect.Value) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := r.node(n, dot); err != nil {
			return err
		}
	}
	return nil
}

func (r *rendering) node(n parse.Node, dot reflect.Value) error {
	switch n := n.(type) {
	case *parse.TextNode:
		r.out.Write(n.Text)
		return nil
	case *parse.ActionNode:
		value, err := r.pipe(n.Pipe, dot)
		if err == nil {
			r.write(value)
		}
		return err
	case *parse.IfNode:
		value, err := r.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		if holds(value) {
			return r.list(n.List, dot)
		}
		return r.list(n.ElseList, dot)
	case *parse.WithNode:
		value, err := r.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		if holds(value) {
			return r.list(n.List, value)
		}
		return r.list(n.ElseList, dot)
	case *parse.RangeNode:
		return r.each(n, dot)
	case *parse.TemplateNode:
		tree := r.t.trees[n.Name]
		if tree == nil {
			return fmt.Errorf("no template %q", n.Name)
		}
		value, err := r.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		return r.list(tree.Root, value)
	}
	return unknown(n)
}

// write writes a value, escaped.
func (r *rendering) write(v reflect.Value) {
	v = plain(v)
	text := ""
	if v.IsValid() {
		text = fmt.Sprint(v.Interface())
	}
	if v.IsValid() && v.Type() == reflect.TypeFor[Raw]() || r.t.escape == nil {
		r.out.WriteString(text)
		return
	}
	r.out.WriteString(r.t.escape(text))
}

func (r *rendering) each(n *parse.RangeNode, dot reflect.Value) error {
	value, err := r.pipe(&parse.PipeNode{Cmds: n.Pipe.Cmds}, dot)
	if err != nil {
		return err
	}
	value = plain(value)
	if !value.IsValid() || value.Kind() == reflect.Slice && value.Len() == 0 {
		return r.list(n.ElseList, dot)
	}
	if value.Kind() != reflect.Slice {
		return unknown(n.Pipe)
	}
	before := maps.Clone(r.variables)
	for i := range value.Len() {
		if d := n.Pipe.Decl; len(d) > 0 {
			r.variables[d[len(d)-1].Ident[0]] = value.Index(i)
			if len(d) > 1 {
				r.variables[d[0].Ident[0]] = reflect.ValueOf(i)
			}
		}
		if err := r.list(n.List, value.Index(i)); err != nil {
			return err
		}
	}
	r.variables = before
	return nil
}
