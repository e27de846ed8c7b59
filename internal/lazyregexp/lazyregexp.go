// Package lazyregexp has regular expressions that are compiled when they are first used. A package
// variable of this type costs nothing in a command that does not use it. Go's own
// internal/lazyregexp does the same.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Regexp is a regular expression. Several goroutines may use it.
type Regexp struct{ compiled func() *regexp.Regexp }

// inTest is true in test binaries, which compile each expression at once, so that a mistake in one
// is found without a use.
var inTest = len(os.Args) > 0 && strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test")

// New keeps an expression until its first use, which panics if the expression is invalid.
func New(expr string) *Regexp {
	r := &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })}
	if inTest {
		r.compiled()
	}
	return r
}

// Match is that of regexp.Regexp.
func (r *Regexp) Match(data []byte) bool { return r.compiled().Match(data) }

// MatchString is that of regexp.Regexp.
func (r *Regexp) MatchString(text string) bool { return r.compiled().MatchString(text) }

// Find is that of regexp.Regexp.
func (r *Regexp) Find(data []byte) []byte { return r.compiled().Find(data) }

// FindIndex is that of regexp.Regexp.
func (r *Regexp) FindIndex(data []byte) []int { return r.compiled().FindIndex(data) }

// FindString is that of regexp.Regexp.
func (r *Regexp) FindString(text string) string { return r.compiled().FindString(text) }

// FindSubmatch is that of regexp.Regexp.
func (r *Regexp) FindSubmatch(data []byte) [][]byte { return r.compiled().FindSubmatch(data) }

// FindStringSubmatch is that of regexp.Regexp.
func (r *Regexp) FindStringSubmatch(text string) []string {
	return r.compiled().FindStringSubmatch(text)
}

// FindAllString is that of regexp.Regexp.
func (r *Regexp) FindAllString(text string, n int) []string {
	return r.compiled().FindAllString(text, n)
}

// FindAllStringSubmatch is that of regexp.Regexp.
func (r *Regexp) FindAllStringSubmatch(text string, n int) [][]string {
	return r.compiled().FindAllStringSubmatch(text, n)
}

// FindAllStringSubmatchIndex is that of regexp.Regexp.
func (r *Regexp) FindAllStringSubmatchIndex(text string, n int) [][]int {
	return r.compiled().FindAllStringSubmatchIndex(text, n)
}

// FindAllSubmatch is that of regexp.Regexp.
func (r *Regexp) FindAllSubmatch(data []byte, n int) [][][]byte {
	return r.compiled().FindAllSubmatch(data, n)
}

// FindAllSubmatchIndex is that of regexp.Regexp.
func (r *Regexp) FindAllSubmatchIndex(data []byte, n int) [][]int {
	return r.compiled().FindAllSubmatchIndex(data, n)
}

// FindAllStringIndex is that of regexp.Regexp.
func (r *Regexp) FindAllStringIndex(text string, n int) [][]int {
	return r.compiled().FindAllStringIndex(text, n)
}

// FindStringSubmatchIndex is that of regexp.Regexp.
func (r *Regexp) FindStringSubmatchIndex(text string) []int {
	return r.compiled().FindStringSubmatchIndex(text)
}

// ReplaceAll is that of regexp.Regexp.
func (r *Regexp) ReplaceAll(data, replacement []byte) []byte {
	return r.compiled().ReplaceAll(data, replacement)
}

// ReplaceAllString is that of regexp.Regexp.
func (r *Regexp) ReplaceAllString(text, replacement string) string {
	return r.compiled().ReplaceAllString(text, replacement)
}

// ReplaceAllLiteralString is that of regexp.Regexp.
func (r *Regexp) ReplaceAllLiteralString(text, replacement string) string {
	return r.compiled().ReplaceAllLiteralString(text, replacement)
}

// ReplaceAllFunc is that of regexp.Regexp.
func (r *Regexp) ReplaceAllFunc(data []byte, replace func([]byte) []byte) []byte {
	return r.compiled().ReplaceAllFunc(data, replace)
}

// ReplaceAllStringFunc is that of regexp.Regexp.
func (r *Regexp) ReplaceAllStringFunc(text string, replace func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(text, replace)
}
