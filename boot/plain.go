package boot

import (
	"reflect"
	"strings"
	"unicode"
)

// plain removes from every text of a capture what a terminal obeys and what turns letters round:
// whoever wrote the record may mean harm, and SVG allows no control character at all. It goes
// through the value by reflection, so that a new field is covered.
func (c *Capture) plain() { plainAll(reflect.ValueOf(c).Elem()) }

func plainAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if text := plainText(v.String()); text != v.String() {
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
		for i := range v.Len() {
			plainAll(v.Index(i))
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(all.Key())
			value.Set(all.Value())
			plainAll(key)
			plainAll(value)
			v.SetMapIndex(all.Key(), reflect.Value{})
			v.SetMapIndex(key, value)
		}
	default: // numbers and times
	}
}

// plainText is s on one line, without control characters (C0, DEL, C1) and bidirectional controls
// (https://www.unicode.org/reports/tr9/).
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u2028' || r == '\u2029':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\ufffe' || r == '\uffff':
			return -1
		}
		return r
	}, s)
}
