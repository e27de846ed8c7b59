package strict

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	type doc struct {
		Name  string `yaml:"name"`
		Count int    `yaml:"count"`
		Inner struct {
			List []string `yaml:"list"`
		} `yaml:"inner"`
	}
	for text, want := range map[string]string{
		"name: a\ncount: 3\n":           "",
		"":                              "the document is empty",
		"# only a comment\n":            "the document is empty",
		"nmae: a\n":                     "line 1: unknown field nmae",
		"name: a\nname: b\n":            `line 2: mapping key "name" already defined at line 1`,
		"count: many\ninner: {lst: []}": "line 1: str `many` is of the wrong kind here; line 2: unknown field lst",
		"inner: {list: x}\n":            "line 1: str `x` is of the wrong kind here",
		"name: a\n---\nname: b\n":       "more than one document",
		"name: [a\n":                    "line 1: did not find expected ',' or ']'",
		"name: a\n...\ntrailing: {{{\n": "",
	} {
		var d doc
		err := Decode([]byte(text), &d)
		switch {
		case strings.Contains(text, "trailing"):
			if err == nil {
				t.Errorf("%q: no error", text)
			}
		case err == nil && want != "", err != nil && err.Error() != want:
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
