package kamino_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testKinds start the name of a test file that is not about one file of its package.
var testKinds = []string{
	"bench",   // measures
	"docs",    // compares with pages of docs/
	"example", // shows how a package is used
	"export",  // what tests from outside need of the inside
	"fuzz",    // any input
	"golden",  // compares with files that people have read
	"harness", // what the package's tests share
}

// testsOfMore are test files, and folders of them, that are named otherwise, and why.
var testsOfMore = map[string]string{
	"arch_test.go":                "about all packages",
	"formats_test.go":             "about all packages",
	"structure_test.go":           "about all packages",
	"engine/side_by_side_test.go": "about every run that may be beside another one",
	"internal/sim/":               "whole runs: a file is named after what happens to them",
	"providertest/":               "the contract: a file is named after its subject, not after the provider that is asked",
}

// TestTestFiles: whoever reads x.go finds its tests in x_test.go or x_SOMETHING_test.go. A test file is named
// after a file of its package, after the package, or after the kind of its tests.
func TestTestFiles(t *testing.T) {
	files := goFiles(t)
	subjects := map[string][]string{} // of each folder
	for _, file := range files {
		if dir, name := filepath.Split(file); !strings.HasSuffix(name, "_test.go") {
			name = strings.TrimSuffix(strings.TrimSuffix(name, ".go"), "_linux")
			subjects[dir] = append(subjects[dir], name)
		}
	}
	needless := map[string]bool{}
	for name := range testsOfMore {
		needless[name] = true
	}
	for _, file := range files {
		dir, name := filepath.Split(file)
		name, isTest := strings.CutSuffix(name, "_test.go")
		if !isTest {
			continue
		}
		about := func(subject string) bool { return name == subject || strings.HasPrefix(name, subject+"_") }
		if name == filepath.Base(dir) || slices.ContainsFunc(subjects[dir], about) || slices.ContainsFunc(testKinds, about) {
			continue
		}
		excused := false
		for _, allowed := range []string{filepath.ToSlash(file), filepath.ToSlash(dir)} {
			if testsOfMore[allowed] != "" {
				excused, needless[allowed] = true, false
			}
		}
		if !excused {
			t.Errorf("%s: no file of its package has this name or starts it: name it after the file that it tests, x_test.go or x_SOMETHING_test.go", file)
		}
	}
	for name, is := range needless {
		if is {
			t.Errorf("testsOfMore: %s needs no exception any more", name)
		}
	}
}
