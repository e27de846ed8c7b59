package prove

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestKinds: every check that judges a machine has a bad image, and is switched off once.
func TestKinds(t *testing.T) {
	bad, unclear, good, off := badKinds(), unclearKinds(), goodKinds(), offKinds()
	if len(bad) < 16 || len(unclear) < 6 || len(good) < 20 {
		t.Errorf("%d bad, %d inconclusive and %d good kinds", len(bad), len(unclear), len(good))
	}
	for _, check := range kamino.Checks() {
		for what, list := range map[string][]kind{"image": append(bad, unclear...), "trial without it": off} {
			if !slices.ContainsFunc(list, func(k kind) bool { return k.check == check }) {
				t.Errorf("check %s has no %s", check, what)
			}
		}
	}
	for _, k := range append(bad, unclear...) {
		if k.behave == nil && k.fault == nil && !k.policy && !k.alone && !k.evicted {
			t.Errorf("%s differs in nothing", k.name)
		}
	}
}

// TestNamesAreNotSeen: neither what judges an image nor what plays one knows what is wrong with it
// by any name of ours: it imports no lab, which another test holds, and no text in it is the name
// of a kind. Those of one word are words that clouds and registries use.
func TestNamesAreNotSeen(t *testing.T) {
	read := 0
	for _, root := range []string{"../..", "../../agent", "../../aws", "../../azure", "../../boot", "../../cmd", "../../controller", "../../kube", "../nodes"} {
		err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (root == "../.." && name != root || d.Name() == "testdata"):
				return filepath.SkipDir
			case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			read++
			return namesIn(t, name)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 200 {
		t.Errorf("%d files were read", read)
	}
}

// namesIn looks for the names of kinds in the texts of one file.
func namesIn(t *testing.T, name string) error {
	source, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var s scanner.Scanner
	fset := token.NewFileSet()
	s.Init(fset.AddFile(name, fset.Base(), len(source)), source, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return nil
		} else if tok != token.STRING {
			continue
		}
		for _, k := range slices.Concat(badKinds(), unclearKinds()) {
			if strings.Contains(k.name, " ") && strings.EqualFold(strings.Trim(text, "\"`"), k.name) || strings.Contains(text, "lab/prove") {
				t.Errorf("%s: %s knows the kind %q", fset.Position(pos), text, k.name)
			}
		}
	}
}
