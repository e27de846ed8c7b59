package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachHostHasItsOwnAddresses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	if err := configure("10.1.0.37", dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "10-lab.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) || !strings.Contains(string(text), `"10.244.37.0/24"`) {
		t.Errorf("%s", text)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("half a file is left: %v %v", left, err)
	}
	for _, wrong := range []string{"", "fe80::1", "node"} {
		if configure(wrong, dir) == nil {
			t.Errorf("HOST_IP %q is taken", wrong)
		}
	}
	if run("dance") == nil {
		t.Error("an unknown verb is taken")
	}
}
