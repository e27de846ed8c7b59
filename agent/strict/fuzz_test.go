package strict

import (
	"strings"
	"testing"
)

// FuzzStrict: any text is decoded or refused, on one line a fault and without the text's values.
func FuzzStrict(f *testing.F) {
	for _, seed := range []string{"a: 1\nb: {c: [x]}\n", "a: secret\n", "d: &x [*x]\n", "a: 1\n---\na: 2\n", "a: 1\na: 2\n", "? [a]\n: b\n", "!!binary x", "b: {<<: {c: []}}\n", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var into struct {
			A int `yaml:"a"`
			B struct {
				C []string `yaml:"c"`
			} `yaml:"b"`
			D any `yaml:"d"`
		}
		if err := Decode(data, &into); err != nil && strings.ContainsAny(err.Error(), "\x1b\x00") {
			t.Errorf("%q", err)
		}
	})
}
