package seal

import (
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCutOff: a file of a package that is empty, as a crash leaves it, refuses the seal without a
// policy and with one; so does the temporary name under which rpm writes a file, whatever it holds.
// People empty configuration files.
func TestCutOff(t *testing.T) {
	sum := func(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
	files := func(program string) map[string]string {
		return map[string]string{"usr/lib/tool/program": program, "usr/lib/tool/__init__.py": "", "etc/tool.conf": "", "etc/tool.d/table": "table\n",
			"var/lib/dpkg/status":            "Package: tool\nStatus: install ok installed\nArchitecture: all\nVersion: 1\nConffiles:\n /etc/tool.conf " + sum("setting\n") + "\n\n",
			"var/lib/dpkg/info/tool.list":    "/.\n/usr/lib/tool/program\n/usr/lib/tool/__init__.py\n/etc/tool.conf\n/etc/tool.d/table\n",
			"var/lib/dpkg/info/tool.md5sums": sum("program\n") + "  usr/lib/tool/program\n" + sum("") + "  usr/lib/tool/__init__.py\n" + sum("table\n") + "  etc/tool.d/table\n"}
	}
	for what, c := range map[string]struct {
		files map[string]string
		names string
	}{
		"whole":                            {files("program\n"), ""},
		"empty":                            {files(""), "/usr/lib/tool/program"},
		"temporary":                        {map[string]string{"usr/lib/tool/program;65f1a2b3": "prog"}, "/usr/lib/tool/program;65f1a2b3"},
		"temporary, as the package has it": {map[string]string{"usr/lib/tool/program;65f1a2b3": "program\n"}, "/usr/lib/tool/program;65f1a2b3"},
		"temporary, empty":                 {map[string]string{"usr/lib/tool/program;65f1a2b3": ""}, "/usr/lib/tool/program;65f1a2b3"},
		"temporary, a link":                {map[string]string{"usr/lib/tool/program;65f1a2b3": "-> __init__.py"}, "/usr/lib/tool/program;65f1a2b3"},
		"empty, of no configuration":       {map[string]string{"etc/tool.d/table": ""}, "/etc/tool.d/table"},
	} {
		for _, mode := range []string{UnknownReport, UnknownRefuse} {
			t.Run(what+", "+mode, func(t *testing.T) {
				all := files("program\n")
				for name, text := range c.files {
					all[name] = text
				}
				d := nodeWith(t, all)
				name := strings.TrimPrefix(c.names, "/")
				if to, ok := strings.CutPrefix(all[name], "-> "); ok {
					if err := errors.Join(os.Remove(d.Host(name)), os.Symlink(to, d.Host(name))); err != nil {
						t.Fatal(err)
					}
				}
				o := planted(func(o *Options) { o.Config.Verify.Unknown = mode })
				_, err := Seal(t.Context(), d, o)
				switch {
				case c.names == "" && mode == UnknownReport && err != nil:
					t.Error(err)
				case c.names != "" && (err == nil || !strings.Contains(err.Error(), c.names+" ")):
					t.Errorf("%v does not name %s", err, c.names)
				}
				if text, rerr := os.ReadFile(d.Host("etc/hostname")); c.names != "" && (rerr != nil || len(text) == 0) {
					t.Errorf("the refused disk was changed: %v", rerr)
				}
			})
		}
	}
}
