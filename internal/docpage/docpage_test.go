package docpage

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKeep(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	for _, tt := range []struct {
		text, want string
		write      bool
		after      string // "" is an error
	}{
		{"a <b>old<e> z", "old", false, "a <b>old<e> z"},
		{"a <b>old<e> z", "new", false, ""},
		{"a <b>old<e> z", "new", true, "a <b>new<e> z"},
		{"a <b>old z", "new", true, ""},
		{"a", "new", true, ""},
	} {
		t.Run(tt.text, func(t *testing.T) {
			if err := os.WriteFile(page, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Keep(page, "<b>", "<e>", tt.want, tt.write)
			got, rerr := os.ReadFile(page)
			if rerr != nil {
				t.Fatal(rerr)
			}
			if tt.after == "" && (err == nil || string(got) != tt.text) || tt.after != "" && (err != nil || string(got) != tt.after) {
				t.Errorf("%+v: %q, %v", tt, got, err)
			}
		})
	}
}
