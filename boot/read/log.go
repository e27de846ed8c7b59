package read

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/lazyregexp"
)

// stampForm is a way in which a log begins its lines: a pattern with the stamp, and what it means.
type stampForm struct {
	name    string
	pattern *lazyregexp.Regexp // the groups are the parts of the stamp, the last is the rest of the line
	// read is the stamp in µs: of the wall clock since 1970, or since the kernel's start where mono is
	// set.
	read   func(part []string) (time.Time, error)
	mono   bool
	year   bool // the stamp has a year and a zone
	coarse bool // it may have whole seconds only
}

// stampForms are those of journalctl (short-monotonic, short-delta, short, short-precise, short-iso,
// short-full, short-unix), of syslog and of dmesg. Syslog has the short stamp (RFC 3164) or that of RFC 3339, which
// rsyslog writes where its configuration names no template, as on Debian 12
// (https://www.debian.org/releases/bookworm/amd64/release-notes/ch-information.en.html).
var stampForms = []stampForm{
	{name: "monotonic", mono: true, pattern: lazyregexp.New(`^\[ *(\d{1,10})\.(\d{6})(?: <[^>\]]*>)?\](?:\[ *[TC]\d+\])? ?(.*)$`),
		read: func(p []string) (time.Time, error) {
			s, err := strconv.ParseInt(p[0], 10, 64)
			us, err2 := strconv.ParseInt(p[1], 10, 64)
			return time.UnixMicro(s*1e6 + us), errors.Join(err, err2)
		}},
	{name: "ctime", coarse: true, pattern: lazyregexp.New(`^\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] (.*)$`),
		read: func(p []string) (time.Time, error) {
			return time.Parse(time.ANSIC, p[0])
		}},
	{name: "short", coarse: true, pattern: lazyregexp.New(`^([\pL\d]{2,9})\.? ([ \d]?\d \d\d:\d\d:\d\d)(\.\d{1,9})? (.*)$`),
		read: func(p []string) (time.Time, error) {
			month, err := monthOf(p[0])
			if err != nil {
				return time.Time{}, err
			}
			return time.Parse("2006 1 _2 15:04:05", fmt.Sprintf("2000 %d %s%s", month, p[1], p[2])) // a leap year
		}},
	{name: "iso", coarse: true, year: true, pattern: lazyregexp.New(
		`^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)([.,]\d{1,9})?(Z|[+-]\d\d:?\d\d) (.*)$`), read: func(p []string) (time.Time, error) {
		zone := strings.Replace(strings.Replace(p[3], "Z", "+0000", 1), ":", "", 1)
		return time.Parse("2006-01-02 15:04:05-0700", p[0]+" "+p[1]+strings.Replace(p[2], ",", ".", 1)+zone)
	}},
	{name: "full", coarse: true, year: true, pattern: lazyregexp.New(
		`^[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,9})? UTC (.*)$`), read: func(p []string) (time.Time, error) {
		return time.Parse("2006-01-02 15:04:05", p[0]+p[1])
	}},
	{name: "local", coarse: true, pattern: lazyregexp.New(
		`^[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,9})? (?:[A-Z]{2,5}|[+-]\d\d(?:\d\d)?) (.*)$`),
		read: func(p []string) (time.Time, error) {
			return time.Parse("2006-01-02 15:04:05", p[0]+p[1])
		}},
	{name: "unix", year: true, pattern: lazyregexp.New(`^(\d{9,10})\.(\d{6}) (.*)$`), read: func(p []string) (time.Time, error) {
		s, err := strconv.ParseInt(p[0], 10, 64)
		us, err2 := strconv.ParseInt(p[1], 10, 64)
		return time.UnixMicro(s*1e6 + us), errors.Join(err, err2)
	}},
}

var (
	// logSource is what stands before a message: the host, the program, its process.
	logSource = lazyregexp.New(`^(\S+) ([^\s\[:]+)(?:\[(\d+)\])?: (.*)$`)
	// dmesgSource is the same in the kernel's buffer, which has no host; the kernel's own lines have none.
	dmesgSource = lazyregexp.New(`^([a-zA-Z0-9_.@()-]+)\[(\d+)\]: (.*)$`)
	kernelStamp = lazyregexp.New(`^\[ *(\d{1,10})\.(\d{6})\](?:\[ *[TC]\d+\])? ?(.*)$`)
	priority    = lazyregexp.New(`^(?:<\d{1,3}>|[a-z0-9]{3,8} *:[a-z]{3,6} *: )$`)
	// sentLine is a line as syslog sends it (RFC 5424, section 6): a priority, and in the newer form a version, the
	// time, the host, the program, its process, the kind of message and structured data. Without a version the rest
	// is as in a file.
	sentLine   = lazyregexp.New(`^<\d{1,3}>(?:1 (\S+) (\S+) (\S+) (\S+) \S+ (?:-|(?:\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\])+)(?: \x{feff}?|$))?(.*)$`)
	logHeader  = lazyregexp.New(`^-- (?:Logs begin|Journal begins|Boot|Reboot)\b.*--$`)
	logBoot    = lazyregexp.New(`^-- (?:Reboot|Boot ([0-9a-f]{32})) --$`)
	hostedLine = lazyregexp.New(`^[^\s\[\]:]+ (?:kernel|[^\s\[:]+\[\d+\]): `)
)

// maxPriority bounds what dmesg writes before a stamp: "authpriv:notice: ".
const maxPriority = 20

// maxProse is how many lines without a stamp may stand before a log: a prompt, or what an issue says.
const maxProse = 20

// logTidy is a line as it was printed; a web page may have indented it, a machine that died may have left
// zeros before it, and dmesg -x or --raw a priority.
func logTidy(line string) string {
	line = strings.TrimLeft(tidyLine(line), " \t\x00")
	if i := strings.IndexByte(line, '['); i > 0 && i < maxPriority && priority.MatchString(line[:i]) {
		return line[i:]
	}
	if strings.HasPrefix(line, "<") {
		return asInFile(line)
	}
	return line
}

// asInFile is a line that syslog sends as rsyslog writes it to a file.
func asInFile(line string) string {
	m := sentLine.FindStringSubmatch(line)
	switch {
	case m == nil:
		return line
	case m[1] == "":
		return m[5]
	case m[4] == "-":
		return m[1] + " " + m[2] + " " + m[3] + ": " + m[5]
	}
	return m[1] + " " + m[2] + " " + m[3] + "[" + m[4] + "]: " + m[5]
}

// logForm finds how a log's first line with a stamp begins.
func logForm(head string) (stampForm, bool) {
	n := 0
	for line := range strings.SplitSeq(head, "\n") {
		if line = logTidy(line); line == "" || logHeader.MatchString(line) {
			continue
		}
		for _, f := range stampForms {
			if f.pattern.MatchString(line) {
				return f, true
			}
		}
		if n++; n == maxProse {
			break
		}
	}
	return stampForm{}, false
}

func sniffLog(head []byte) bool {
	form, ok := logForm(string(head))
	if !ok || form.mono && consoleMark.Match(head) {
		return false
	}
	return form.mono || form.name == "ctime" || bytesAny(head, " systemd[1]: ", " init.scope[1]: ", " kernel: ", " systemd: ", " kubelet[",
		" systemd 1 - ", " kernel - - ")
}

func bytesAny(head []byte, words ...string) bool {
	text := string(head)
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// logLine is a line that says something of a boot.
type logLine struct {
	at                  boot.Micros // µs by the log's clock
	kernel              boot.Micros // µs since the kernel's start, where the line has that besides
	host, tag, pid, msg string
}

// textLog collects the lines of the last boot in a log.
type textLog struct {
	form   stampForm
	hosted bool
	lines  []logLine
	bootID string
	boots  int
	first  boot.Micros // the first line of this boot
	last   boot.Micros
	seen   bool
	// finished tells whether PID 1 has said that startup finished, and down whether it has gone down.
	finished, down bool
	former         string // the last host of the boot before
}

// readLog reads what journalctl prints for people, what syslog writes to messages and syslog, and
// dmesg, of which the last boot counts. PID 1's messages name units by their description, unless
// systemd writes both.
func readLog(data []byte) (*boot.Capture, error) {
	text := string(data)
	form, ok := logForm(text[:min(len(text), sniffed)])
	if !ok {
		return nil, fmt.Errorf("%w: no line with a time at its beginning", ErrUnknownFormat)
	}
	r := &textLog{form: form, boots: 1, hosted: form.hosted(text[:min(len(text), sniffed)])}
	lines := strings.SplitSeq(text, "\n")
	backwards := form.newestFirst(text[:min(len(text), sniffed)])
	if backwards {
		reversed := strings.Split(text, "\n")
		slices.Reverse(reversed)
		lines = slices.Values(reversed)
	}
	for line := range lines {
		line = logTidy(line)
		if m := logBoot.FindStringSubmatch(line); m != nil {
			if r.seen {
				r.begin()
			}
			if r.bootID = m[1]; backwards { // it stands above the lines of its boot, which is the one before
				r.bootID = ""
			}
			continue
		}
		if r.seen && !worthReading(line) {
			continue
		}
		if m := r.form.pattern.FindStringSubmatch(line); m != nil {
			r.line(m[1:])
		}
	}
	return r.capture()
}

// worthReading leaves out most lines of a log, those of programs that say nothing of a boot, before
// they are taken apart.
func worthReading(line string) bool {
	for _, word := range []string{"systemd", "init.scope", "kernel", "NetworkManager", linuxVersion} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return kubeletMark(line) != "" || runtimeMark(line) != "" || linkMark(line) != ""
}

// hosted tells whether a host stands before the program, as in all logs but dmesg and those of
// journalctl --no-hostname. One line that has both tells it.
func (f stampForm) hosted(head string) bool {
	bare := false
	for line := range strings.SplitSeq(head, "\n") {
		if m := f.pattern.FindStringSubmatch(logTidy(line)); m != nil {
			rest := m[len(m)-1]
			if hostedLine.MatchString(rest) {
				return true
			}
			bare = bare || dmesgSource.MatchString(rest) || strings.HasPrefix(rest, linuxVersion)
		}
	}
	return !bare
}

// linuxVersion begins the kernel's first line.
const linuxVersion = "Linux version "

// newestFirst tells whether a log's times mostly go back, as journalctl -r prints it.
func (f stampForm) newestFirst(head string) bool {
	var last time.Time
	back := 0
	for line := range strings.SplitSeq(head, "\n") {
		m := f.pattern.FindStringSubmatch(logTidy(line))
		if m == nil {
			continue
		}
		t, err := f.read(m[1:])
		if err != nil {
			continue
		}
		if !last.IsZero() {
			back += last.Compare(t)
		}
		last = t
	}
	return back > 0
}

// begin forgets an older boot.
func (r *textLog) begin() {
	r.former, _ = r.host()
	r.lines, r.bootID, r.seen, r.finished, r.down = nil, "", false, false, false
	r.boots++
}

// beginAt begins another boot at a moment that has lines already.
func (r *textLog) beginAt(at boot.Micros) {
	lines := r.lines
	r.begin()
	r.lines = slices.DeleteFunc(lines, func(l logLine) bool { return l.at < at })
	r.first, r.seen = max(at, 0), true
}

func (r *textLog) line(part []string) {
	t, err := r.form.read(part)
	at := boot.Micros(t.UnixMicro())
	if err != nil || at < 0 || at > boot.MaxStamp {
		return
	}
	l := logLine{at: at}
	if !r.source(&l, part[len(part)-1]) {
		return
	}
	if l.tag = strings.TrimSuffix(l.tag, ".service"); l.tag == "init.scope" { // journalctl -o with-unit
		l.tag = "systemd"
	}
	if m := kernelStamp.FindStringSubmatch(l.msg); m != nil && l.tag == "kernel" {
		if t, err := stampForms[0].read(m[1:]); err == nil {
			l.kernel = max(boot.Micros(t.UnixMicro()), 1)
		}
		l.msg = m[3]
	}
	if !r.form.mono && !r.form.year && r.seen && at < r.last-180*86400e6 { // New Year: the stamp has no year
		l.at += 366 * 86400e6
	}
	if r.seen && r.another(l) {
		r.begin()
	}
	if phases := finishedPhases(l); phases["kernel"] > 0 {
		if r.finished && !r.form.mono {
			r.beginAt(l.at - phases["kernel"] - phases["initrd"] - phases["userspace"])
		}
		r.finished = true
	}
	if !r.seen {
		r.first, r.seen = l.at, true
	}
	r.last = l.at
	if l.matters() {
		r.lines = append(r.lines, l)
	}
}

// matters tells whether a line can say something of a boot. Each container, and each person who logs
// in, is a unit for systemd.
func (l logLine) matters() bool {
	switch l.tag {
	case "kernel", "kubelet", "containerd", "crio", "systemd-networkd", "NetworkManager":
		return true
	case "systemd":
		return !strings.Contains(l.msg, " libcontainer container ") && !strings.Contains(strings.ToLower(l.msg), " of user ") &&
			!strings.Contains(l.msg, " Slice of UID ") && !strings.Contains(l.msg, " for UID ") && !strings.Contains(l.msg, " /run/user/")
	}
	return false
}

const (
	// clockBack is how far the kernel's clock goes back only with another boot: journald gets lines of
	// the kernel late.
	clockBack = boot.Micros(10 * 1000 * 1000)
	// sinceBoot is how long other lines of a boot may have been written when syslog gets the kernel's
	// first one.
	sinceBoot = boot.Micros(60 * 1000 * 1000)
)

// another tells whether a line begins another boot: the kernel's first line, or one of PID 1 after it
// went down, which a log has that holds its lines only.
func (r *textLog) another(l logLine) bool {
	kernel := l.beginsKernel()
	switch {
	case r.form.mono:
		return kernel && l.at < r.last || l.at+clockBack < r.last
	case kernel:
		return r.down || max(l.at-r.first, r.first-l.at) > sinceBoot
	case l.manager() && strings.Contains(l.msg, systemMode):
		return r.down
	}
	r.down = r.down || l.manager() && l.msg == "Shutting down."
	return false
}

func (l logLine) beginsKernel() bool {
	return l.tag == "kernel" && strings.HasPrefix(l.msg, linuxVersion)
}

// beginsBoot tells whether a line is one of a boot's first.
func (l logLine) beginsBoot() bool {
	return l.beginsKernel() || l.manager() && strings.Contains(l.msg, systemMode)
}

// systemMode is in what PID 1 says first.
const systemMode = " running in system mode"

// host is the machine whose boot the lines are of, by what PID 1 and the kernel's first line are marked
// with. The name may change in a boot, when the machine learns its own; one that comes again is another
// machine's, and so is another kernel's first line.
func (r *textLog) host() (name string, err error) {
	var names []string
	kernel := ""
	for _, l := range r.lines {
		h := boot.ShortName(l.host)
		if h == "" || !l.manager() && !l.beginsKernel() {
			continue
		}
		other := kernel != "" && kernel != h && l.beginsKernel()
		if h != name && slices.Contains(names, h) || other {
			return h, fmt.Errorf("two machines in one log, %q and %q; give the lines of one: grep ' %s ' FILE", name, h, h)
		}
		if l.beginsKernel() {
			kernel = h
		}
		if h != name {
			names = append(names, h)
		}
		name = h
	}
	return name, nil
}

// source divides what follows the stamp.
func (r *textLog) source(l *logLine, rest string) bool {
	if r.hosted {
		m := logSource.FindStringSubmatch(rest)
		if m == nil {
			return false
		}
		l.host, l.tag, l.pid, l.msg = m[1], m[2], m[3], m[4]
		if l.host == "-" { // RFC 5424: it is not known
			l.host = ""
		}
		return true
	}
	l.tag, l.msg = "kernel", strings.TrimPrefix(rest, "kernel: ")
	if m := dmesgSource.FindStringSubmatch(rest); m != nil {
		l.tag, l.pid, l.msg = m[1], m[2], m[3]
	}
	return true
}

// zero is the moment by the log's clock at which the kernel started, or userspace if that is all that
// is known.
func (r *textLog) zero() (zero boot.Micros, kernel bool) {
	if r.form.mono {
		return 0, true
	}
	var byKernel boot.Micros
	for _, l := range r.lines {
		if l.kernel > 0 && (byKernel == 0 || l.at-l.kernel < byKernel) { // syslog gets these lines late
			byKernel = l.at - l.kernel
		}
		if total, whole := finishedIn(l); total > 0 {
			return l.at - total, whole
		}
	}
	if byKernel > 0 {
		return byKernel, true
	}
	return r.first, false
}

// finishedIn is how long PID 1 says that startup took, and whether the kernel's time is part of that.
func finishedIn(l logLine) (total boot.Micros, whole bool) {
	phases := finishedPhases(l)
	return phases["kernel"] + phases["initrd"] + phases["userspace"], phases["kernel"] > 0
}

func finishedPhases(l logLine) map[string]boot.Micros {
	rest, ok := strings.CutPrefix(l.msg, "Startup finished in ")
	if !ok || !l.manager() {
		return nil
	}
	phases := map[string]boot.Micros{}
	for _, m := range phaseText.FindAllStringSubmatch(rest, -1) {
		phases[m[2]], _ = parseSpan(m[1])
	}
	if len(phases) == 0 { // a container's has one length
		phases["userspace"], _ = parseSpan(strings.TrimSuffix(rest, "."))
	}
	return phases
}

// manager tells whether PID 1 wrote the line; syslog of systemd 219 leaves the process out.
func (l logLine) manager() bool { return l.tag == "systemd" && (l.pid == "1" || l.pid == "") }

// capture makes entries of a journal of the lines.
func (r *textLog) capture() (*boot.Capture, error) {
	host, err := r.host()
	if err != nil {
		return nil, err
	}
	zero, known := r.zero()
	j := newJournal()
	units, left := map[string]bool{}, 0
	for _, l := range r.lines {
		at := l.at - zero
		if l.kernel > 0 {
			at = l.kernel
		}
		stamp := strconv.FormatInt(int64(max(at, 1)), 10)
		e := entry{"MESSAGE": l.msg, "SYSLOG_IDENTIFIER": l.tag, "_PID": cmp.Or(l.pid, "0"), "_HOSTNAME": l.host,
			"_SOURCE_MONOTONIC_TIMESTAMP": stamp}
		if r.form.year && l.kernel == 0 && at > 0 {
			e["__MONOTONIC_TIMESTAMP"], e["__REALTIME_TIMESTAMP"] = stamp, strconv.FormatInt(int64(l.at), 10)
		}
		switch {
		case l.tag == "kernel":
			e["_TRANSPORT"] = "kernel"
		case l.tag == "containerd" || l.tag == "crio":
			e["_SYSTEMD_UNIT"] = l.tag + ".service"
		case l.manager():
			e["_PID"] = "1"
			l.describe(e)
		}
		if id := e["UNIT"]; id != "" && !units[id] {
			if len(units) == maxLogUnits {
				left++
				continue
			}
			units[id] = true
		}
		j.add(e)
	}
	if len(units) == 0 {
		return nil, fmt.Errorf("%w: no message of systemd (PID 1) about a unit in it; %s", ErrUnknownFormat, fullJournal)
	}
	c, err := j.capture(nil)
	if err != nil {
		return nil, err
	}
	c.Host.BootID = r.bootID
	if !known && c.Manager.Userspace == 0 {
		c.Manager.FromUserspace = true
		c.NoStart = !slices.ContainsFunc(r.lines, logLine.beginsBoot)
		c.Note("nothing in this log says when the kernel started: times count from its first line, which may be later than the boot")
	}
	if r.boots > 1 {
		c.Note("the log holds %s; this is the last", boot.Count(r.boots, "boot"))
	}
	if r.former != "" && host != "" && r.former != host {
		c.Note("the boot before it is of another name, %q: is the log of two machines?", r.former)
	}
	if left > 0 {
		c.Note("units beyond the first %d were left out", maxLogUnits)
	}
	exact := "exact to 1 µs"
	if r.coarse() {
		exact = "in whole seconds"
		for i := range c.Units {
			c.Units[i].Coarse = true
		}
	}
	c.Note("read from the text of a log: times are %s, units have their description as name where the text has no other, and no dependencies; for all of it, %s", exact, fullJournal)
	return c, nil
}

// maxLogUnits bounds the units of a log: it may go on for weeks after the boot, and each container is
// a unit.
const maxLogUnits = 20000

// coarse tells whether no line has a fraction of a second.
func (r *textLog) coarse() bool {
	if !r.form.coarse {
		return false
	}
	for _, l := range r.lines {
		if l.at%1e6 != 0 {
			return false
		}
	}
	return true
}
