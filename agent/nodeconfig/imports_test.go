package nodeconfig

import (
	"strings"
	"testing"
)

// TestImporting: however containerd's configuration writes its imports, ours is among them
// afterwards, behind what was there, and nothing else has changed.
func TestImporting(t *testing.T) {
	const own = `"/etc/containerd/conf.d/90-kamino*.toml"`
	const all = `"/etc/containerd/conf.d/*.toml"`
	for text, want := range map[string]string{
		"":                                       "imports = [" + all + "]\nversion = 2\n",
		"version = 2\n":                          "imports = [" + all + "]\nversion = 2\n",
		"version = 2\n[plugins]\nimports = []\n": "imports = [" + all + "]\nversion = 2\n[plugins]\nimports = []\n",
		"# imports = []\n[debug]\n":              "imports = [" + all + "]\n# imports = []\n[debug]\n",
		"imports = []\n":                         "imports = [" + all + "]\n",
		"version = 2\nimports = [] # none\n":     "version = 2\nimports = [" + all + "] # none\n",
		"imports=[\n  # none yet\n]\nroot='/x'":  "imports=[" + all + "\n  # none yet\n]\nroot='/x'",
		`"imports" = [ ]`:                        `"imports" = [` + all + ` ]`,

		`imports = ["/etc/containerd/conf.d/99-nvidia.toml"]` + "\n": `imports = ["/etc/containerd/conf.d/99-nvidia.toml", ` + own + "]\n",
		"imports = [\n  \"/a\", # first\n  '/b',\n]\nversion = 2\n":  "imports = [\n  \"/a\", # first\n  '/b', " + own + ",\n]\nversion = 2\n",
		`imports = ["/a]#"]`:                     `imports = ["/a]#", ` + own + `]`,
		`imports = ["/a\"b"] # "c"`:              `imports = ["/a\"b", ` + own + `] # "c"`,
		"root = '''\n[x]\n'''\nimports = ['/a']": "root = '''\n[x]\n'''\nimports = ['/a', " + own + "]",
		"oom = {a = [1, 2]}\nimports = ['/a']":   "oom = {a = [1, 2]}\nimports = ['/a', " + own + "]",
		"imports = ['/etc/containerd/*/*.yaml']": "imports = ['/etc/containerd/*/*.yaml', " + own + "]",

		"imports = [" + all + "]\n":                            "",
		"imports = [\n'/a',\n" + all + "\n]\n":                 "",
		"imports = ['conf.d/*.toml'] # relative\n":             "",
		"imports = ['/etc/containerd/conf.d/90-kamino.toml']":  "",
		"imports = ['/etc/containerd/./conf.d/9*.toml', '/a']": "",
	} {
		t.Run(text, func(t *testing.T) {
			if want == "" {
				want = text
			}
			got, err := importing(text)
			if err != nil || got != want {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
			if again, err := importing(got); err != nil || again != got {
				t.Errorf("a second time: %q, %v", again, err)
			}
		})
	}
	for _, text := range []string{"imports = ['/a'", "imports = ['/a\n']", "imports = '/a'", "imports\n", "root = '''\nimports = []"} {
		if got, err := importing(text); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// FuzzImporting: whatever containerd's configuration is, it is refused or imports our file, and
// all that stood there stands there still.
func FuzzImporting(f *testing.F) {
	for _, seed := range []string{"", "imports = ['/a', # b\n]", "a = \"\"\"\nx\"\"\"\nimports = []", "[plugins]\n", "imports = [[{]}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := importing(text)
		if err != nil {
			return
		}
		again, err := importing(got)
		if err != nil || again != got {
			t.Errorf("%q became %q, and that %q, %v", text, got, again, err)
		}
		rest := got
		for _, line := range strings.Split(text, "\n") {
			for _, half := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune("[]'\"", r) }) {
				_, after, found := strings.Cut(rest, half)
				if !found {
					t.Errorf("%q is gone from %q", half, got)
				}
				rest = after
			}
		}
	})
}
