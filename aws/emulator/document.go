package emulator

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// object is a structure as it comes in a request and goes out in a reply. Its values are strings,
// objects and []any, and in replies also numbers, booleans and times.
type object = map[string]any

// parseQuery makes a structure of the parameters of a query: Filter.1.Value.2=x and
// Tags.member.1.Key=x are lists
// (https://smithy.io/2.0/aws/protocols/aws-query-protocol.html, aws-ec2-query-protocol.html).
func parseQuery(form url.Values) object {
	root := object{}
	for name, values := range form {
		at, parts := root, strings.Split(name, ".")
		for _, part := range parts[:len(parts)-1] {
			next, ok := at[part].(object)
			if !ok {
				next = object{}
				at[part] = next
			}
			at = next
		}
		if _, ok := at[parts[len(parts)-1]]; !ok {
			at[parts[len(parts)-1]] = values[0]
		}
	}
	for name, value := range root {
		root[name] = listed(value)
	}
	return root
}

// listed turns objects whose names are numbers into lists, at any depth.
func listed(value any) any {
	o, ok := value.(object)
	if !ok {
		return value
	}
	if inner, ok := o["member"]; ok && len(o) == 1 {
		return listed(inner)
	}
	var numbers []int
	for name, inner := range o {
		o[name] = listed(inner)
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) != len(o) || len(o) == 0 {
		return o
	}
	slices.Sort(numbers)
	list := make([]any, 0, len(numbers))
	for _, n := range numbers {
		list = append(list, o[strconv.Itoa(n)])
	}
	return list
}

// dig is what stands below a path of names; nil where there is nothing.
func dig(value any, names ...string) any {
	for _, name := range names {
		o, _ := value.(object)
		value = o[name]
	}
	return value
}

func text(value any, names ...string) string {
	s, _ := dig(value, names...).(string)
	return s
}

func part(value any, names ...string) object {
	o, _ := dig(value, names...).(object)
	return o
}

func items(value any, names ...string) []object {
	list, _ := dig(value, names...).([]any)
	var found []object
	for _, item := range list {
		if o, ok := item.(object); ok {
			found = append(found, o)
		}
	}
	return found
}

func texts(value any, names ...string) []string {
	list, _ := dig(value, names...).([]any)
	var found []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			found = append(found, s)
		}
	}
	return found
}

func truth(value any, names ...string) bool { return strings.EqualFold(text(value, names...), "true") }

// number reads a number; ok is false where there is none.
func number(value any, names ...string) (int, bool) {
	switch v := dig(value, names...).(type) {
	case float64: // JSON
		return int(v), true
	case string:
		n, err := strconv.Atoi(v)
		return n, err == nil
	}
	return 0, false
}

// copied is a deep copy of a structure of a request.
func copied(value any) any {
	switch v := value.(type) {
	case object:
		o := object{}
		for name, inner := range v {
			o[name] = copied(inner)
		}
		return o
	case []any:
		list := make([]any, len(v))
		for i, inner := range v {
			list[i] = copied(inner)
		}
		return list
	}
	return value
}

// each renders a list.
func each[T any](list []T, show func(T) any) []any {
	out := make([]any, 0, len(list))
	for _, item := range list {
		out = append(out, show(item))
	}
	return out
}
