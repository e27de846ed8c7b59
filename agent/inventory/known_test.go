package inventory

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func parseKnown(t *testing.T, data []byte) []Known {
	t.Helper()
	var doc struct {
		Verify struct{ Known []Known }
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	return doc.Verify.Known
}

func TestKnownValidate(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for name, k := range map[string]Known{
		"relative":       {Path: "etc/x", Why: "y"},
		"root":           {Path: "/", Why: "y"},
		"up":             {Path: "/etc/../x", Why: "y"},
		"pattern":        {Path: "/etc/[", Why: "y"},
		"no reason":      {Path: "/etc/x"},
		"short digest":   {Path: "/etc/x", SHA256: "abcd", Why: "y"},
		"not hex":        {Path: "/etc/x", SHA256: strings.Repeat("zz", 32), Why: "y"},
		"both":           {Path: "/etc/x", SHA256: sum, Tree: sum, Why: "y"},
		"tree with glob": {Path: "/etc/*", Tree: sum, Why: "y"},
	} {
		t.Run(name, func(t *testing.T) {
			if k.Validate() == nil {
				t.Errorf("%s: %+v is valid", name, k)
			}
		})
	}
	if err := (Known{Path: "/etc/*", SHA256: sum, Why: "y"}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestGroups: a directory without anything known is one line; the files beside known ones are
// named.
func TestGroups(t *testing.T) {
	files := debian()
	for _, name := range []string{"etc/a", "etc/b", "etc/c.d/x", "etc/c.d/deep/y", "srv/app/1", "srv/web/2", "usr/bin/own"} {
		files[name] = name
	}
	var got []string
	for _, g := range looked(t, tree(t, files), Options{}).Groups() {
		got = append(got, g.String())
	}
	want := []string{
		"/etc (2 files, 10 B): a b",
		"/etc/c.d/ (2 files, 23 B): deep/y x",
		"/srv/ (2 files, 18 B): app/1 web/2",
		"/usr/bin/own (11 B; no package's)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
