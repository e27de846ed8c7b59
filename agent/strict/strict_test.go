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
		"names: a\n":                    "line 1: unknown field names",
		"name: a\nname: b\n":            `line 2: mapping key "name" already defined at line 1`,
		"count: many\ninner: {lst: []}": "line 1: str value is of the wrong kind here; line 2: unknown field lst",
		"inner: {list: x}\n":            "line 1: str value is of the wrong kind here",
		"name: a\n---\nname: b\n":       "more than one document",
		"name: [a\n":                    "line 1: did not find expected ',' or ']'",
		"name: a\n...\ntrailing: {{{\n": "",
	} {
		t.Run(text, func(t *testing.T) {
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
		})
	}
}

// TestTellsNoContent: a document that is really another file, such as /etc/shadow behind a link, is
// not quoted.
func TestTellsNoContent(t *testing.T) {
	const secret = "S3cr3tS4lt"
	for _, text := range []string{
		"root:$6$" + secret + ":19700:0:99999:7:::\nadmin:$6$" + secret + ":1::::::\n",
		"password: " + secret + "\n", "kind: [" + secret + "]\n", "kind: {" + secret + ": 1}\n", secret + "-x: 1\n", "generation: " + secret + "\n",
		"kind: *" + secret + "\n", "kind: !" + secret + " x\n", "\"" + secret + "/x\": 1\n\"" + secret + "/x\": 2\n", "- " + secret + "\n", "kind: \"" + secret + "\n", "kind: @" + secret + "\n",
	} {
		var into struct {
			Kind       map[int]string `yaml:"kind"`
			Generation int            `yaml:"generation"`
		}
		err := Decode([]byte(text), &into)
		if err == nil {
			t.Errorf("%q is valid", text)
		} else if strings.Contains(err.Error(), secret[:4]) {
			t.Errorf("%q: the error tells what is in it: %v", text, err)
		}
	}
}
