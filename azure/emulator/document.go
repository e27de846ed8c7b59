package emulator

import (
	"encoding/json"
	"reflect"
	"strings"
)

// object is a JSON object as it travels; the store knows no other model.
type object = map[string]any

// dig follows keys through objects; nil where the way ends early.
func dig(o object, keys ...string) any {
	var value any = o
	for _, key := range keys {
		inner, ok := value.(object)
		if !ok {
			return nil
		}
		value = inner[key]
	}
	return value
}

// text is the string at the end of keys, or "".
func text(o object, keys ...string) string {
	value, _ := dig(o, keys...).(string)
	return value
}

// truth is the boolean at the end of keys, or false.
func truth(o object, keys ...string) bool {
	value, _ := dig(o, keys...).(bool)
	return value
}

// number is the number at the end of keys; ok is false where there is none.
func number(o object, keys ...string) (n int, ok bool) {
	switch value := dig(o, keys...).(type) {
	case float64:
		return int(value), true
	case int:
		return value, true
	}
	return 0, false
}

// part is the object at the end of keys, or nil.
func part(o object, keys ...string) object {
	value, _ := dig(o, keys...).(object)
	return value
}

// items are the objects of the array at the end of keys.
func items(o object, keys ...string) []object {
	array, _ := dig(o, keys...).([]any)
	found := make([]object, 0, len(array))
	for _, element := range array {
		if inner, ok := element.(object); ok {
			found = append(found, inner)
		}
	}
	return found
}

// has says whether the key at the end of keys is there, null included.
func has(o object, keys ...string) bool {
	inner := part(o, keys[:len(keys)-1]...)
	_, ok := inner[keys[len(keys)-1]]
	return ok
}

// set writes a value, making the objects on the way.
func set(o object, value any, keys ...string) {
	for _, key := range keys[:len(keys)-1] {
		inner, ok := o[key].(object)
		if !ok {
			inner = object{}
			o[key] = inner
		}
		o = inner
	}
	o[keys[len(keys)-1]] = value
}

// unset removes the last key.
func unset(o object, keys ...string) {
	if inner := part(o, keys[:len(keys)-1]...); inner != nil {
		delete(inner, keys[len(keys)-1])
	}
}

// clone copies a document deeply.
func clone[T any](value T) T {
	copied, _ := cloneAny(value).(T)
	return copied
}

func cloneAny(value any) any {
	switch value := value.(type) {
	case object:
		if value == nil {
			return value
		}
		copied := make(object, len(value))
		for key, inner := range value {
			copied[key] = cloneAny(inner)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, inner := range value {
			copied[i] = cloneAny(inner)
		}
		return copied
	}
	return value
}

// merge writes change over base: objects merge, arrays and values replace, null removes.
func merge(base, change object) object {
	if base == nil {
		base = object{}
	}
	for key, value := range change {
		switch value := value.(type) {
		case nil:
			delete(base, key)
		case object:
			inner, _ := base[key].(object)
			base[key] = merge(inner, value)
		default:
			base[key] = cloneAny(value)
		}
	}
	return base
}

// same compares two documents as JSON.
func same(a, b any) bool {
	return reflect.DeepEqual(plain(a), plain(b))
}

// plain brings a value into the form encoding/json decodes to.
func plain(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var decoded any
	if json.Unmarshal(raw, &decoded) != nil {
		return value
	}
	return decoded
}

// fold compares names the way ARM does.
func fold(a, b string) bool { return strings.EqualFold(a, b) }

// array turns objects into what JSON decodes to.
func array(objects ...object) []any {
	made := make([]any, 0, len(objects))
	for _, o := range objects {
		made = append(made, o)
	}
	return made
}
