package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChecked: nothing is released that govulncheck was not asked about, or that it knows something
// of, unless the caller says that nobody checked; and that is on the screen.
func TestChecked(t *testing.T) {
	for name, c := range map[string]struct {
		database, script string
		unchecked        bool
		fails, says      string
	}{
		"no database":     {fails: "VULNDB=DIR"},
		"said so":         {unchecked: true, says: "NOT CHECKED"},
		"both":            {unchecked: true, database: "db", fails: "exclude"},
		"nothing known":   {database: "db", script: "echo asked about $2 and $3", says: "asked about kamino and kamino-agent"},
		"something known": {database: "db", script: "echo GO-2026-9999; exit 3", fails: "exit status 3", says: "GO-2026-9999"},
		"no script":       {database: "db", fails: "vulncheck"},
	} {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			if c.script != "" {
				if err := os.Mkdir(filepath.Join(source, ".ci"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(source, ".ci/vulncheck"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil { //nolint:gosec // a script
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			err := checked(t.Context(), source, c.database, c.unchecked, &log)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) || !strings.Contains(log.String(), c.says) {
				t.Errorf("%v, %q", err, log.String())
			}
		})
	}
}
