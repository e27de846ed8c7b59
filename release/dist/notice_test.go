package dist

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write NOTICE anew")

// TestNotice: what is linked stands in NOTICE with its licence, and every licence is known.
func TestNotice(t *testing.T) {
	want, err := Notice("../..")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("../../NOTICE", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("NOTICE is not what the programs are linked with; write it with: cd release && go test ./dist -run TestNotice -update")
	}
}

func TestLicenses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"Apache", "Apache License\n   Version 2.0, January 2004", "Apache-2.0"},
		{"MIT over lines", "Permission is hereby granted, free of\ncharge, to any person obtaining a copy", "MIT"},
		{"three clauses", "Redistributions in binary form must reproduce the above copyright\nNeither the name of Google Inc. nor", "BSD-3-Clause"},
		{"two clauses", "Redistributions in binary form must reproduce the above copyright", "BSD-2-Clause"},
		{"nobody's", "You may not use this.", ""},
		{"copyleft", "GNU GENERAL PUBLIC LICENSE Version 3", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := recognize(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
