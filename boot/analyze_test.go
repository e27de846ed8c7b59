package boot

import (
	"bytes"
	"testing"
)

func TestAnalyzeSeed(t *testing.T) {
	for _, name := range []string{"docker", "preprovisioned", "cloud-final"} {
		a, err := Analyze(readFile(t, "seed", name+".show"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		a.WriteText(&b)
		t.Log(b.String())
	}
}
