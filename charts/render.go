package charts

import (
	"fmt"
	"strings"
	"text/template/parse"
)

// render does what the templates of kamino-base need of text/template, whose parser it uses. That
// package itself finds methods by their names, for which the linker keeps every method of every
// type there is: half of kamino's size.
func render(name, text string, values map[string]any) (string, error) {
	trees, err := parse.Parse(name, text, "", "", map[string]any{"eq": true})
	if err != nil {
		return "", err
	}
	r := rendering{name: name, values: values, variables: map[string]any{}}
	err = r.list(trees[name].Root)
	return r.out.String(), err
}

type rendering struct {
	name      string
	values    map[string]any
	variables map[string]any // with their $
	out       strings.Builder
}

func (r *rendering) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := r.node(n); err != nil {
			return err
		}
	}
	return nil
}

func (r *rendering) node(n parse.Node) error {
	switch n := n.(type) {
	case *parse.TextNode:
		r.out.Write(n.Text)
		return nil
	case *parse.ActionNode:
		value, err := r.pipe(n.Pipe)
		fmt.Fprint(&r.out, value)
		return err
	case *parse.IfNode:
		value, err := r.pipe(n.Pipe)
		if err != nil {
			return err
		}
		if yes, ok := value.(bool); ok && yes {
			return r.list(n.List)
		} else if !ok {
			return r.unknown(n)
		}
		return r.list(n.ElseList)
	case *parse.RangeNode:
		return r.each(n)
	}
	return r.unknown(n)
}

func (r *rendering) each(n *parse.RangeNode) error {
	value, err := r.pipe(n.Pipe)
	if err != nil {
		return err
	}
	texts, ok := value.([]string)
	if !ok || len(n.Pipe.Decl) != 2 {
		return r.unknown(n)
	}
	if len(texts) == 0 {
		return r.list(n.ElseList)
	}
	for i, text := range texts {
		r.variables[n.Pipe.Decl[0].Ident[0]], r.variables[n.Pipe.Decl[1].Ident[0]] = i, text
		if err := r.list(n.List); err != nil {
			return err
		}
	}
	return nil
}

func (r *rendering) pipe(p *parse.PipeNode) (any, error) {
	if len(p.Cmds) != 1 {
		return nil, r.unknown(p)
	}
	args := p.Cmds[0].Args
	if id, ok := args[0].(*parse.IdentifierNode); ok && id.Ident == "eq" && len(args) == 3 {
		a, err := r.value(args[1])
		if err != nil {
			return nil, err
		}
		b, err := r.value(args[2])
		return a == b, err
	}
	if len(args) != 1 {
		return nil, r.unknown(p)
	}
	return r.value(args[0])
}

func (r *rendering) value(n parse.Node) (any, error) {
	switch n := n.(type) {
	case *parse.FieldNode:
		if v, ok := r.values[n.Ident[len(n.Ident)-1]]; ok && len(n.Ident) == 2 && n.Ident[0] == "Values" {
			return v, nil
		}
	case *parse.VariableNode:
		if v, ok := r.variables[n.Ident[0]]; ok && len(n.Ident) == 1 {
			return v, nil
		}
	case *parse.NumberNode:
		return int(n.Int64), nil
	}
	return nil, r.unknown(n)
}

// unknown is of what the templates of kamino-base did not use so far.
func (r *rendering) unknown(n parse.Node) error {
	return fmt.Errorf("%s: %s: not known to package charts", r.name, n)
}
