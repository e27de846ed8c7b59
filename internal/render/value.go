package render

import (
	"fmt"
	"reflect"
	"text/template/parse"
)

// pipe is the value of a pipeline of one command.
func (r *rendering) pipe(p *parse.PipeNode, dot reflect.Value) (v reflect.Value, err error) {
	if p == nil {
		return v, nil
	}
	if len(p.Cmds) != 1 || len(p.Decl) > 0 {
		return v, unknown(p)
	}
	args := p.Cmds[0].Args
	id, is := args[0].(*parse.IdentifierNode)
	if !is {
		if len(args) != 1 {
			return v, unknown(p)
		}
		return r.value(args[0], dot)
	}
	values := make([]reflect.Value, 0, len(args))
	for _, arg := range args[1:] {
		value, err := r.value(arg, dot)
		if err != nil {
			return v, err
		}
		values = append(values, plain(value))
	}
	return r.call(p, id.Ident, values)
}

// call is the value of a function.
func (r *rendering) call(at parse.Node, name string, args []reflect.Value) (v reflect.Value, err error) {
	f, own := r.t.funcs[name].(func(string) string)
	switch {
	case own && len(args) == 1 && args[0].Kind() == reflect.String:
		return reflect.ValueOf(f(args[0].String())), nil
	case name == "len" && len(args) == 1 && args[0].Kind() == reflect.Slice:
		return reflect.ValueOf(args[0].Len()), nil
	case name == "eq" && len(args) == 2 && args[0].IsValid() && args[1].IsValid() && args[0].Type() == args[1].Type() &&
		args[0].Comparable():
		return reflect.ValueOf(args[0].Equal(args[1])), nil
	case name == "gt" && len(args) == 2 && args[0].CanInt() && args[1].CanInt():
		return reflect.ValueOf(args[0].Int() > args[1].Int()), nil
	case name == "or" && len(args) == 2:
		if holds(args[0]) {
			return args[0], nil
		}
		return args[1], nil
	}
	return v, unknown(at)
}

func (r *rendering) value(n parse.Node, dot reflect.Value) (v reflect.Value, err error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return field(n, dot, n.Ident)
	case *parse.VariableNode:
		if v, ok := r.variables[n.Ident[0]]; ok {
			return field(n, v, n.Ident[1:])
		}
	case *parse.NumberNode:
		return reflect.ValueOf(int(n.Int64)), nil
	case *parse.StringNode:
		return reflect.ValueOf(n.Text), nil
	case *parse.PipeNode:
		return r.pipe(n, dot)
	}
	return v, unknown(n)
}

// field goes down from a value by names of fields, and by keys of maps.
func field(at parse.Node, v reflect.Value, names []string) (reflect.Value, error) {
	for _, name := range names {
		switch v = plain(v); v.Kind() {
		case reflect.Struct:
			v = v.FieldByName(name)
		case reflect.Map:
			v = v.MapIndex(reflect.ValueOf(name))
		default:
			return v, unknown(at)
		}
		if !v.IsValid() {
			return v, fmt.Errorf("%s: nothing is named %s", at, name)
		}
	}
	return v, nil
}

// plain is what pointers and interfaces stand for.
func plain(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// holds is what text/template calls true: what is not empty.
func holds(v reflect.Value) bool {
	v = plain(v)
	switch v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() > 0
	case reflect.Struct:
		return true
	}
	return !v.IsZero()
}

// unknown is of what no template has used so far.
func unknown(n parse.Node) error { return fmt.Errorf("%s: not known to package render", n) }
