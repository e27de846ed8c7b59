// Package hostile has the text of somebody who means harm, for tests of what reads others' words.
package hostile

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// Text has what a terminal obeys and what changes the order of letters: ESC, OSC, BEL, CR, LF, C1,
// DEL, line separators, bidirectional controls, and a byte that is not UTF-8.
const Text = "a\x1b[31mEVIL\x1b]0;pwn\x07\u009b31m\x7f\u202e\u2066\u200f<script>\n\r| forged row\u2028\u2029\u0085\x9bz"

// Fill writes Text into each empty string that v points to, also in fields that are structs,
// slices, maps and pointers. An empty slice or map gets one element.
func Fill(v any) { fill(reflect.ValueOf(v).Elem(), 0) }

// deepest is where Fill stops: some types hold themselves.
const deepest = 12

func fill(v reflect.Value, depth int) {
	if depth > deepest || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.Len() == 0 {
			v.SetString(Text)
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		if v.Len() > 0 {
			return
		}
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default: // numbers, times, interfaces
	}
}

// Find lists the strings in v that are not plain, each by its path.
func Find(v any) (found []string) {
	walk(reflect.ValueOf(v), "", 0, func(path, text string) {
		if bad := In(text); bad != "" {
			found = append(found, fmt.Sprintf("%s has %s", path, bad))
		}
	})
	return found
}

// Reached counts the strings in v that have the letters of Text: where there are none, a test has
// read nothing.
func Reached(v any) (count int) {
	walk(reflect.ValueOf(v), "", 0, func(_, text string) {
		if strings.Contains(text, "EVIL") {
			count++
		}
	})
	return count
}

func walk(v reflect.Value, path string, depth int, each func(path, text string)) {
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.String:
		each(path, v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(v.Elem(), path, depth+1, each)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name, depth+1, each)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1, each)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			walk(key, path+" key", depth+1, each)
			walk(v.MapIndex(key), fmt.Sprintf("%s[%.20q]", path, key), depth+1, each)
		}
	default:
	}
}

// In is the first character of a value that a terminal obeys or that turns letters round, quoted;
// "" for none. A newline is one.
func In(text string) string {
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return fmt.Sprintf("%+q", r)
		}
	}
	return ""
}

// InOutput is as In, of a whole output: its lines end with newlines and tabs are allowed. It also
// finds a line that begins with what Text has after a newline.
func InOutput(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if bad := In(strings.ReplaceAll(line, "\t", "")); bad != "" {
			return bad + " in " + fmt.Sprintf("%+q", line)
		}
		if strings.HasPrefix(line, "| forged") {
			return "a forged line " + fmt.Sprintf("%+q", line)
		}
	}
	return ""
}
