package scan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what a scan lists, so that a tree of a million secrets takes no more memory than one with
// a few. What is beyond them is counted.
const (
	// MostFindings is how many findings a Result lists.
	MostFindings = 2000
	// mostSkipped is how many files a Result lists as skipped.
	mostSkipped = 1000
	// mostHits is how many matches of one kind are kept of one file.
	mostHits = 500
	// mostReasons is how many reasons are given why one file was not read in full.
	mostReasons = 16
)

// findings collects what must not be there: the first MostFindings in the order of their paths.
type findings struct {
	allow func(kind, path string) bool // nil: nothing is allowed
	list  []Finding
	more  int
}

// counts reports whether a kind of finding counts at a path.
func (l *findings) counts(kind, path string) bool {
	if strings.HasPrefix(kind, "donor-") && under(path, genealogy) {
		return false
	}
	return l.allow == nil || !l.allow(kind, path)
}

func (l *findings) add(all ...Finding) {
	for _, f := range all {
		if !l.counts(f.Kind, f.Path) {
			continue
		}
		if l.list = append(l.list, f); len(l.list) >= 2*MostFindings {
			l.settle()
		}
	}
}

// addMore counts the findings of one file that are not listed.
func (l *findings) addMore(path string, more map[string]int) {
	for kind, n := range more {
		if l.counts(kind, path) {
			l.more += n
		}
	}
}

// settle sorts the list, removes duplicates, and counts what is beyond its bound.
func (l *findings) settle() {
	slices.SortFunc(l.list, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Offset, b.Offset), strings.Compare(a.Kind, b.Kind),
			strings.Compare(a.Detail, b.Detail))
	})
	l.list = first(slices.Compact(l.list), MostFindings, &l.more)
}

// first cuts a list after n elements, and adds to more how many were cut off.
func first[T any](list []T, n int, more *int) []T {
	n = min(len(list), n)
	*more += len(list) - n
	clear(list[n:])
	return list[:n]
}

// skipped collects what was not read, as findings does.
type skipped struct {
	list []string
	more int
}

func (s *skipped) add(lines ...string) {
	if s.list = append(s.list, lines...); len(s.list) >= 2*mostSkipped {
		s.settle()
	}
}

func (s *skipped) settle() {
	slices.Sort(s.list)
	s.list = first(s.list, mostSkipped, &s.more)
}

// lines are the list, with a line that says how much is not in it.
func (s *skipped) lines() []string {
	s.settle()
	if s.more > 0 {
		s.list = append(s.list, fmt.Sprintf("%d more, which are not listed", s.more))
	}
	return s.list
}

// match is a hit without its text.
type match struct {
	kind   string
	offset int64
	size   int
	prose  bool
	about  string // for people
}

// hits collects the matches in one stream, up to mostHits of each kind and one more. That one counts
// wherever it stands: of the rest nobody knows whether something better covers it.
type hits struct {
	digest digest
	quiet  bool // prose counts for nothing
	list   []match
	count  map[match]int  // of a kind, prose apart
	more   map[string]int // by kind
}

func (c *hits) add(h hit) {
	if h.prose && c.quiet {
		return
	}
	if c.count == nil {
		c.count, c.more = map[match]int{}, map[string]int{}
	}
	of := match{kind: h.kind, prose: h.prose}
	c.count[of]++
	n := c.count[of]
	if n > mostHits+1 {
		c.more[h.kind]++
		return
	}
	c.list = append(c.list, match{h.kind, h.offset, len(h.text), h.prose && n <= mostHits, h.where + c.digest.of(h.text)})
}
