package read

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/lazyregexp"
)

// How systemd-analyze prints a length and how it names units.
const (
	spanText = `[0-9.]+(?:y|month|w|d|h|min|s|ms|us|µs|μs)(?: [0-9.]+(?:y|month|w|d|h|min|s|ms|us|µs|μs))*`
	unitText = `[A-Za-z0-9:_.@\\-]+\.(?:service|socket|target|device|mount|automount|swap|timer|path|slice|scope)`
	// moreText tells what has all that these texts lack.
	moreText = "for all of it: (systemctl show; echo; systemctl show --all '*') > node.txt"
)

var (
	terminal    = lazyregexp.New(`\x1b\[[0-9;]*[A-Za-z]`)
	quoted      = lazyregexp.New(`^(?:> ?)+`)
	chainBranch = lazyregexp.New("^([ │|]*)(?:└─|├─|`-|\\|-) ?(" + unitText + `|\.\.\.)(?: @(` + spanText + `))?(?: \+(` + spanText +
		`))?(?: +[^ @+].*)?$`)
	chainCut  = lazyregexp.New("^[ │|]*(?:└─|├─|`-|\\|-)") // a pager cut the line
	chainRoot = lazyregexp.New(`^ *(` + unitText + `)(?: @(` + spanText + `)(?: \+(` + spanText + `))?(?: +[^ @+].*)?| \+(` + spanText +
		`))?$`)
	blameRow    = lazyregexp.New(`^ *(` + spanText + `) (` + unitText + `)$`)
	finishedRow = lazyregexp.New(`^Startup finished in (` + spanText + ` \([a-z]+\)|` + spanText + `)`)
	phaseText   = lazyregexp.New(`(` + spanText + `) \((firmware|loader|kernel|initrd|userspace)\)`)
	reachedRow  = lazyregexp.New(`^(` + unitText + `) reached after (` + spanText + `) in userspace`)
)

// tidyLine is a line as the command printed it, without what a terminal, a web page or a mail added.
func tidyLine(line string) string {
	if strings.HasPrefix(line, ">") {
		line = quoted.ReplaceAllString(line, "")
	}
	if strings.Contains(line, "\x1b") {
		line = terminal.ReplaceAllString(line, "")
	}
	return strings.TrimRight(strings.ReplaceAll(line, "\u00a0", " "), " \t\r")
}

func sniffAnalyzeText(head []byte) bool {
	for line := range strings.SplitSeq(string(head), "\n") {
		line = tidyLine(line)
		if m := chainBranch.FindStringSubmatch(line); m != nil && m[3]+m[4] != "" {
			return true
		}
		if blameRow.MatchString(line) || finishedRow.MatchString(line) {
			return true
		}
	}
	return false
}

// analyzeText collects what `systemd-analyze critical-chain`, `blame` and `time` printed. All three may
// stand in one text, as people paste them.
type analyzeText struct {
	c        *boot.Capture
	unit     map[string]int
	next     map[int][]int // what systemd-analyze prints below a unit
	unplaced map[int]bool  // units of which only the length is known
	path     []branch
	root     []string // the line before, if it may be the first of a chain
	sources  map[string]bool
	finish   boot.Micros
	finished string // the line that says so
	lengths  map[string]boot.Micros
}

// twoBoots is the error of a text whose parts contradict each other.
func twoBoots(what string, one, other any) error {
	return fmt.Errorf("two boots in one text: %s %v in one and %v in another; give the text of one boot", what, one, other)
}

// branch is a unit above the line that is read, and the column of its name.
type branch struct{ column, unit int }

// readAnalyzeText reads the text that systemd-analyze printed, also among other text. Its times have
// milliseconds and count from userspace.
func readAnalyzeText(data []byte) (*boot.Capture, error) {
	r := &analyzeText{c: &boot.Capture{}, unit: map[string]int{}, next: map[int][]int{}, unplaced: map[int]bool{},
		sources: map[string]bool{}, lengths: map[string]boot.Micros{}}
	for line := range strings.SplitSeq(string(data), "\n") {
		if err := r.line(tidyLine(line)); err != nil {
			return nil, err
		}
	}
	if len(r.c.Units) == 0 && len(r.c.Lengths) == 0 && r.finish == 0 {
		return nil, errors.New("no unit with a time in it")
	}
	r.edges()
	r.place()
	for _, source := range []string{"critical-chain", "blame", "time"} {
		if r.sources[source] {
			r.c.Sources = append(r.c.Sources, source)
		}
	}
	if r.sources["critical-chain"] {
		r.c.Note("read from the text of systemd-analyze critical-chain: exact to 1 ms; units outside this chain, and those after the end of startup, are not in it; %s", moreText)
	} else {
		r.c.Note("read from the text of systemd-analyze: it has no dependencies, so no chain; %s", moreText)
	}
	return r.c, nil
}

func (r *analyzeText) line(line string) error {
	root := r.root
	r.root = nil
	if m := chainBranch.FindStringSubmatch(line); m != nil {
		return r.branch(root, utf8.RuneCountInString(m[1]), m[2], m[3], m[4])
	}
	if chainCut.MatchString(line) { // what is below belongs to what is above
		return r.first(root)
	}
	r.path = nil
	if m := chainRoot.FindStringSubmatch(line); m != nil {
		r.root = []string{m[1], m[2], m[3] + m[4]}
		return nil
	}
	if m := blameRow.FindStringSubmatch(line); m != nil {
		took, ok := parseSpan(m[1])
		if before, again := r.lengths[m[2]]; ok && again && !near(before, took) {
			return twoBoots(m[2]+" took", before, took)
		}
		if ok {
			r.sources["blame"] = true
			r.lengths[m[2]] = took
			r.c.Lengths = append(r.c.Lengths, boot.Length{Name: m[2], Took: took})
		}
		return nil
	}
	if finishedRow.MatchString(line) {
		if r.finish > 0 && line != r.finished {
			return twoBoots("systemd-analyze says", strconv.Quote(r.finished), strconv.Quote(line))
		}
		r.phases(line)
	}
	if m := reachedRow.FindStringSubmatch(line); m != nil {
		i, err := r.add(m[1], m[2], "")
		if err == nil {
			r.c.Units[i].Names = []string{"default.target"}
		}
		return err
	}
	return nil
}

// first takes the line before a tree, where it is one of a unit.
func (r *analyzeText) first(root []string) error {
	if root == nil {
		return nil
	}
	i, err := r.add(root[0], root[1], root[2])
	r.path = []branch{{-1, i}}
	return err
}

// branch takes a line of the tree.
func (r *analyzeText) branch(root []string, column int, name, at, took string) error {
	r.sources["critical-chain"] = true
	if err := r.first(root); err != nil {
		return err
	}
	for len(r.path) > 0 && r.path[len(r.path)-1].column >= column {
		r.path = r.path[:len(r.path)-1]
	}
	if name == "..." { // printed elsewhere
		return nil
	}
	i, err := r.add(name, at, took)
	if err != nil {
		return err
	}
	if len(r.path) > 0 {
		above := r.path[len(r.path)-1].unit
		r.next[above] = append(r.next[above], i)
	}
	r.path = append(r.path, branch{column, i})
	return nil
}

// add takes a unit with the time at which it began and the time it took. A unit without the first is
// one that was up before userspace, or the first of a chain, of which systemd-analyze prints the
// second alone.
func (r *analyzeText) add(name, at, took string) (int, error) {
	began, placed := parseSpan(at) // not so where systemd-analyze counted below zero
	length, _ := parseSpan(took)
	began = max(began, 1) // what was up by the start of userspace
	s := boot.Stamps{Activating: began, Activated: began + length}
	i, known := r.unit[name]
	switch {
	case !known:
		i = len(r.c.Units)
		r.unit[name] = i
		r.c.Units = append(r.c.Units, boot.Unit{ID: name, Stamps: s})
		r.unplaced[i] = at == "" && length > 0
	case r.unplaced[i] && placed:
		r.c.Units[i].Stamps, r.unplaced[i] = s, false
	case placed && !r.unplaced[i] && !near(r.c.Units[i].Activating, began):
		return 0, twoBoots(name+" began at", r.c.Units[i].Activating, began)
	case length > 0 && took != "" && r.c.Units[i].Took() == 0:
		u := &r.c.Units[i]
		u.Activated = u.Activating + length
	}
	return i, nil
}

// near tells whether two stamps that are cut to milliseconds may be of the same moment.
func near(a, b boot.Micros) bool { return max(a-b, b-a) <= 1000 }

const (
	// maxBelow bounds how far a chain is followed below a unit that came up too late.
	maxBelow = 64
	// maxLate bounds the notes about such units.
	maxLate = 3
)

// edges makes of what was printed below a unit what it was ordered after. systemd-analyze also prints
// there what came up after the unit had begun; what that waited for takes its place.
func (r *analyzeText) edges() {
	for i := range r.c.Units {
		u := &r.c.Units[i]
		switch {
		case r.unplaced[i] && len(r.next[i]) == 0:
			r.c.Lengths = append(r.c.Lengths, boot.Length{Name: u.ID, Took: u.Took()})
			u.Stamps = boot.Stamps{}
		case r.unplaced[i]: // the first of a chain began when what it waited for was up
			last := r.c.Units[r.next[i][0]].Done()
			u.Stamps = boot.Stamps{Activating: last, Activated: last + u.Took()}
			r.c.Note("the text does not say when %s began: it is taken to have begun when %s was up", u.ID, r.c.Units[r.next[i][0]].ID)
		}
	}
	late := 0
	for i := range r.c.Units {
		u := &r.c.Units[i]
		seen := map[int]bool{i: true}
		queue := r.next[i]
		for n := 0; n < len(queue) && n < maxBelow; n++ {
			j := queue[n]
			if seen[j] {
				continue
			}
			seen[j] = true
			below := &r.c.Units[j]
			if below.Done() <= u.Began()+1000 {
				u.After = append(u.After, below.ID)
				continue
			}
			if late++; late <= maxLate {
				r.c.Note("%s came up after %s had begun, though systemd-analyze has it below: the chain goes on with what is below that",
					below.ID, u.ID)
			}
			queue = append(queue[:len(queue):len(queue)], r.next[j]...)
		}
	}
}

// phases takes the line of `systemd-analyze time`. Firmware and loader are lengths before the kernel.
func (r *analyzeText) phases(line string) {
	length := map[string]boot.Micros{}
	for _, m := range phaseText.FindAllStringSubmatch(line, -1) {
		length[m[2]], _ = parseSpan(m[1])
	}
	m := &r.c.Manager
	r.sources["time"], r.finished = true, line
	r.finish = max(length["userspace"], 1)
	if length["userspace"] == 0 { // a container's line has one length
		r.finish, _ = parseSpan(strings.TrimSuffix(strings.TrimPrefix(line, "Startup finished in "), "."))
	}
	if length["kernel"] == 0 {
		return
	}
	m.Loader = length["loader"]
	m.Firmware = length["firmware"] + m.Loader
	if length["initrd"] > 0 {
		m.InitRD = length["kernel"]
	}
	m.Userspace = length["kernel"] + length["initrd"]
	m.SecurityStart = m.Userspace // says "not a container"; the true stamp is not in the text
	m.Finish = m.Userspace + r.finish
}

// place moves the units to where they belong if the kernel's time is known; else all counts from
// userspace.
func (r *analyzeText) place() {
	m := &r.c.Manager
	if m.Userspace == 0 {
		m.FromUserspace, m.Finish = len(r.c.Units) > 0 || r.finish > 0, r.finish
		return
	}
	for i := range r.c.Units {
		for _, s := range []*boot.Micros{&r.c.Units[i].Activating, &r.c.Units[i].Activated} {
			*s += m.Userspace
		}
	}
}
