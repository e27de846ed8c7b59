package read

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used: the agent starts on every
// boot, and reads no text.
type pattern struct {
	text string
	once sync.Once
	re   *regexp.Regexp
}

func (p *pattern) compiled() *regexp.Regexp {
	p.once.Do(func() { p.re = regexp.MustCompile(p.text) })
	return p.re
}

func (p *pattern) Match(data []byte) bool       { return p.compiled().Match(data) }
func (p *pattern) MatchString(text string) bool { return p.compiled().MatchString(text) }

// Find is the text that matched and its groups, or nil.
func (p *pattern) Find(text string) []string { return p.compiled().FindStringSubmatch(text) }

// FindAll is Find for each match.
func (p *pattern) FindAll(text string) [][]string {
	return p.compiled().FindAllStringSubmatch(text, -1)
}
