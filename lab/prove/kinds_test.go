package prove

import (
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
			if !slices.ContainsFunc(list, func(k kind) bool { return k.check == check }) && (check != "cloud" || what == "image") {
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

// TestNamesAreNotSeen: what judges an image does not know what is wrong with it, by any name of
// ours: it imports no lab, which another test holds, and speaks of none of the kinds.
func TestNamesAreNotSeen(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"../../*.go", "../../kube/*.go", "../../azure/*.go", "../nodes/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		sources = append(sources, found...)
	}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, k := range append(badKinds(), unclearKinds()...) {
			if strings.Contains(string(text), `"`+k.name+`"`) && strings.Contains(k.name, " ") {
				t.Errorf("%s knows the kind %q by its name", name, k.name)
			}
		}
		if strings.Contains(string(text), "lab/prove") {
			t.Errorf("%s knows the trials", name)
		}
	}
}
