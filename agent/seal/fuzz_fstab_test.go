package seal

import (
	"os"
	"path"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzFstab: whatever stands in fstab(5), the files that count as swap are named by patterns that
// match one name each. Edits and checks of fstab are FuzzEdits' and FuzzChecks'.
func FuzzFstab(f *testing.F) {
	d := disktest.New(f, map[string]string{"etc/fstab": ""})
	for _, seed := range []string{"/swapfile none swap sw 0 0\n", "/a[b none swap\n", "UUID=x none swap sw\n/dev/sda2 none swap\n", "\x00 \x1b swap\n", "/../x y swap"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(d.Host("etc/fstab"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range swapFiles(d, nil) {
			if _, err := path.Match(pattern, "/x"); err != nil || !strings.HasPrefix(pattern, "/") || strings.HasPrefix(pattern, "/dev/") {
				t.Errorf("%q: pattern %q, %v", text, pattern, err)
			}
		}
	})
}
