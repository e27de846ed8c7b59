package kamino

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
)

// Plain makes somebody else's text safe to show and to keep in a tag, on one line. It removes
// control characters (C0, DEL and C1), some of which terminals obey, and bidirectional controls
// (https://www.unicode.org/reports/tr9/), which change the visible order of letters. Tabs and line
// ends become blanks. Bytes that are not UTF-8 become U+FFFD.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u2028' || r == '\u2029':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}

// PlainAll makes each string that v points to Plain, also in fields, slices and maps. An adapter
// calls it once on what it read, so that no command, log or label needs to. Bytes stay as they are.
// A map is replaced and not changed, because its former owner may still have it.
func PlainAll(v any) { plainAll(reflect.ValueOf(v).Elem()) }

func plainAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if text := Plain(v.String()); text != v.String() {
			v.SetString(text)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			plainAll(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				plainAll(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				plainAll(v.Index(i))
			}
		}
	case reflect.Map:
		plainMap(v)
	default: // numbers, times, functions
	}
}

// plainMap copies a map only if it is not plain. Most are plain, and thousands of nodes have some.
func plainMap(v reflect.Value) {
	if texts, ok := v.Interface().(map[string]string); ok {
		dirty := false
		for key, value := range texts {
			dirty = dirty || Plain(key) != key || Plain(value) != value
		}
		if !dirty {
			return
		}
	}
	if v.IsNil() {
		return
	}
	plain := reflect.MakeMapWithSize(v.Type(), v.Len())
	for all := v.MapRange(); all.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(all.Key())
		value.Set(all.Value())
		plainAll(key)
		plainAll(value)
		plain.SetMapIndex(key, value)
	}
	v.Set(plain)
}

// readPlain reads JSON that a node wrote into v and makes it plain. JSON may contain any character
// as an escape.
func readPlain(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return err
	}
	PlainAll(v)
	return nil
}
