package read

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"kamino.dev/kamino/boot"
)

// Message IDs of PID 1's journal entries (systemd, src/systemd/sd-messages.h).
const (
	msgStartupFinished = "b07a249cd024414a82dd00cd181378ff"
	msgUserspaceOnly   = "eed00a68ffd84e31882105fd973abdd1"
	msgUnitStarting    = "7d4958e842da4a758f6c1cdc7b36dcc5"
	msgUnitStarted     = "39f53479d3a045ac8e11786248231fbf"
	msgUnitFailed      = "be02cf6855d2428ba40df7e9d022f03d"
	msgUnitSuccess     = "7ad2d189f7e94e70a38c781354912448"
	msgUnitStopped     = "9d1aaa27d60140bd96365438aad20286"
	msgTimeChange      = "c7a787079b354eaaa9e77b371893cd27"
	msgSleepStart      = "6bbd95ee977941e497c48be27c254128"
)

func sniffJournalJSON(head []byte) bool {
	return (head[0] == '{' || head[0] == '[') && (bytes.Contains(head, []byte(`"__MONOTONIC_TIMESTAMP"`)) ||
		bytes.Contains(head, []byte(`"__REALTIME_TIMESTAMP"`)))
}

func sniffJournalExport(head []byte) bool {
	return bytes.HasPrefix(head, []byte("__CURSOR=")) || bytes.HasPrefix(head, []byte("__REALTIME_TIMESTAMP="))
}

// entry holds the fields of a journal entry that matter here.
type entry map[string]string

// journalField says whether a field is one of those; all others are skipped while reading.
func journalField(name string) bool {
	switch name {
	case "MESSAGE", "MESSAGE_ID", "UNIT", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "_TRANSPORT", "_PID", "_BOOT_ID", "_HOSTNAME",
		"__MONOTONIC_TIMESTAMP", "_SOURCE_MONOTONIC_TIMESTAMP", "__REALTIME_TIMESTAMP", "KERNEL_USEC", "INITRD_USEC", "USERSPACE_USEC",
		"JOB_RESULT", "RESULT":
		return true
	}
	return false
}

// readJournalJSON reads `journalctl -o json`, one object a line, or the same in an array. A last
// line that was cut off is noted, not refused: logs are copied from machines that die.
func readJournalJSON(data []byte) (*boot.Capture, error) {
	j := newJournal()
	dec := json.NewDecoder(bytes.NewReader(data))
	if bytes.TrimLeft(data, " \t\r\n")[0] == '[' {
		if _, err := dec.Token(); err != nil {
			return nil, jsonError(err)
		}
	}
	var cut error
	for dec.More() {
		var raw map[string]json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			cut = jsonError(err)
			break
		}
		e := entry{}
		for k, v := range raw {
			if journalField(k) {
				e[k] = journalValue(v)
			}
		}
		j.add(e)
	}
	return j.capture(cut)
}

// journalValue takes a field: a string, an array of byte values if it was binary, or an array of
// strings if it was repeated.
func journalValue(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return ""
	}
	if json.Unmarshal(list[0], &s) == nil {
		return s
	}
	out := make([]byte, 0, len(list))
	for _, v := range list {
		n, err := strconv.Atoi(string(v))
		if err != nil {
			return ""
		}
		out = append(out, byte(n))
	}
	return string(out)
}

// readJournalExport reads the journal export format (https://systemd.io/JOURNAL_EXPORT_FORMATS/):
// lines of FIELD=value, or FIELD, eight bytes of little-endian length, the value and a newline;
// entries end with an empty line.
func readJournalExport(data []byte) (*boot.Capture, error) {
	j := newJournal()
	e := entry{}
	var cut error
	if first, _, _ := bytes.Cut(data, []byte("\n")); bytes.HasSuffix(first, []byte("\r")) { // written on Windows
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	}
	for len(data) > 0 {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			j.add(e)
			e, data = entry{}, rest
			continue
		}
		name, value, text := bytes.Cut(line, []byte("="))
		if !text {
			if !found || len(rest) < 8 {
				cut = errors.New("the last entry is cut off")
				break
			}
			size := binary.LittleEndian.Uint64(rest)
			if size > uint64(len(rest)-8) {
				cut = errors.New("the last entry is cut off")
				break
			}
			value, rest = rest[8:8+size], bytes.TrimPrefix(rest[8+size:], []byte("\n"))
		}
		if journalField(string(name)) {
			e[string(name)] = string(value)
		}
		data = rest
	}
	if len(e) > 0 && cut == nil {
		j.add(e)
	}
	return j.capture(cut)
}

// journal collects entries by boot.
type journal struct {
	boots map[string]*journalBoot
	last  string
}

type journalBoot struct {
	c        *boot.Capture
	units    map[string]int // index in c.Units
	clock    [][2]boot.Micros
	entries  int
	lastLink string
}

func newJournal() *journal { return &journal{boots: map[string]*journalBoot{}} }

// capture is the record of the last boot in the journal.
func (j *journal) capture(cut error) (*boot.Capture, error) {
	b := j.boots[j.last]
	if b == nil {
		if cut != nil {
			return nil, cut
		}
		return nil, errors.New("no entry with a monotonic stamp; export with `journalctl -b -o export`")
	}
	if cut != nil {
		b.c.Note("the journal ends early: %v", cut)
	}
	if len(j.boots) > 1 {
		b.c.Note("the journal holds %s; this is the last (%s)", boot.Count(len(j.boots), "boot"), b.c.Host.BootID)
	}
	for _, m := range boot.ClockJumps(b.clock) {
		m.Source = "journal"
		b.c.Marks = append(b.c.Marks, m)
	}
	if b.c.Manager.Finish == 0 {
		b.c.Note("the journal has no \"Startup finished\" entry: the boot had not finished, or the entry was rotated away")
	}
	return b.c, nil
}

func (j *journal) add(e entry) {
	at := e.stamp("_SOURCE_MONOTONIC_TIMESTAMP")
	if at == 0 {
		at = e.stamp("__MONOTONIC_TIMESTAMP")
	}
	if at == 0 {
		return
	}
	id := e["_BOOT_ID"]
	b := j.boots[id]
	if b == nil {
		b = &journalBoot{c: &boot.Capture{Host: boot.Host{BootID: id}}, units: map[string]int{}}
		j.boots[id] = b
	}
	j.last = id
	b.entries++
	if name := e["_HOSTNAME"]; name != "" { // the last counts: a new machine gets its own in its boot
		b.c.Host.Name = name
	}
	mono, real := e.stamp("__MONOTONIC_TIMESTAMP"), e.stamp("__REALTIME_TIMESTAMP")
	if mono > 0 && real > mono {
		if b.c.Manager.KernelRealtime == 0 {
			b.c.Manager.KernelRealtime = real - mono
		}
		b.clock = append(b.clock, [2]boot.Micros{mono, real})
	}
	if e["MESSAGE_ID"] != "" && (e["_PID"] == "1" || e["_PID"] == "" || e["SYSLOG_IDENTIFIER"] == "systemd") {
		b.manager(e, at)
	}
	b.message(e, at)
}

func (e entry) stamp(key string) boot.Micros {
	n, err := strconv.ParseUint(e[key], 10, 64)
	if err != nil || n > uint64(boot.MaxStamp) {
		return 0
	}
	return boot.Micros(n)
}

// timedOut tells whether PID 1 gave up a job, which is not to say that the unit's own start timed out
// (systemd, src/core/job.c; the field was called RESULT before 230).
func (e entry) timedOut() bool {
	return e["JOB_RESULT"] == "timeout" || e["RESULT"] == "timeout" || strings.HasPrefix(e["MESSAGE"], "Timed out waiting for device ")
}

// manager takes what PID 1 says of units and of the boot.
func (b *journalBoot) manager(e entry, at boot.Micros) {
	switch e["MESSAGE_ID"] {
	case msgStartupFinished, msgUserspaceOnly:
		m := &b.c.Manager
		if m.Finish > 0 {
			return
		}
		kernel, initrd, user := e.stamp("KERNEL_USEC"), e.stamp("INITRD_USEC"), e.stamp("USERSPACE_USEC")
		if e["MESSAGE_ID"] == msgUserspaceOnly {
			m.Userspace, m.Finish = max(at-user, 1), at
			return
		}
		if initrd > 0 {
			m.InitRD = kernel
		}
		m.Userspace = kernel + initrd
		m.Finish = m.Userspace + user
		m.SecurityStart = m.Userspace // says "not a container"; the true stamp is not in the journal
	case msgUnitStarting:
		b.starting(e["UNIT"], at)
	case msgUnitStarted:
		if u := b.unit(e["UNIT"]); u != nil {
			if u.ActiveState != "activating" { // what starts at once is not said to be starting
				b.starting(e["UNIT"], at)
			}
			u.Activated, u.ActiveState = at, "active"
		}
	case msgUnitFailed:
		if u := b.unit(e["UNIT"]); u != nil {
			u.Deactivated, u.ActiveState, u.Result = at, "failed", "failed"
			if e.timedOut() {
				u.Result = "timeout"
				b.mark(boot.MarkTimeout, at, u.ID)
			}
		}
	case msgUnitSuccess:
		if u := b.unit(e["UNIT"]); u != nil {
			u.Deactivated, u.ActiveState = at, "inactive"
		}
	case msgUnitStopped:
		if u := b.unit(e["UNIT"]); u != nil && u.Deactivated < u.Activated {
			u.Deactivated, u.ActiveState = at, "inactive"
		}
	case msgTimeChange:
		b.mark(boot.MarkClockJump, at, e["MESSAGE"])
	case msgSleepStart:
		b.mark("suspend", at, e["MESSAGE"])
	}
}

// starting begins an activation; the first one is kept when another follows.
func (b *journalBoot) starting(id string, at boot.Micros) {
	u := b.unit(id)
	if u == nil {
		return
	}
	if u.Activating > 0 {
		u.Restarts++
		if u.First == nil {
			first := u.Stamps
			u.First = &first
		}
	}
	u.Stamps = boot.Stamps{Activating: at}
	u.ActiveState = "activating"
}

func (b *journalBoot) unit(id string) *boot.Unit {
	if id == "" {
		return nil
	}
	i, ok := b.units[id]
	if !ok {
		i = len(b.c.Units)
		b.units[id] = i
		b.c.Units = append(b.c.Units, boot.Unit{ID: id})
	}
	return &b.c.Units[i]
}

func (b *journalBoot) mark(name string, at boot.Micros, detail string) {
	if len(detail) > 200 {
		detail = detail[:200]
	}
	b.c.Marks = append(b.c.Marks, boot.Mark{Name: name, At: at, Detail: strings.ToValidUTF8(detail, "?"), Source: "journal"})
}

// markFirst is mark for a moment of which only the first counts, as who said it. Most messages have
// no name.
func (b *journalBoot) markFirst(name string, at boot.Micros, who, msg string) {
	if name == "" {
		return
	}
	if _, known := b.c.Mark(name); !known {
		b.mark(name, at, who+msg)
	}
}

// message takes milestones out of what kubelet, the kernel and the network say.
func (b *journalBoot) message(e entry, at boot.Micros) {
	msg := e["MESSAGE"]
	switch {
	case e["SYSLOG_IDENTIFIER"] == "kubelet" || e["_SYSTEMD_UNIT"] == "kubelet.service":
		b.markFirst(kubeletMark(msg), at, "kubelet: ", msg)
	case e["_SYSTEMD_UNIT"] == "containerd.service" || e["_SYSTEMD_UNIT"] == "crio.service":
		b.markFirst(runtimeMark(msg), at, "", msg)
	case e["_TRANSPORT"] == "kernel" || e["SYSLOG_IDENTIFIER"] == "kernel" || e["SYSLOG_IDENTIFIER"] == "systemd-networkd":
		if name := linkMark(msg); name != "" && name != b.lastLink {
			b.lastLink = name
			b.mark(name, at, msg)
		}
	}
}

// kubeletMark recognises kubelet's own words (pkg/kubelet: kubelet_node_status.go, kubelet.go,
// util/pod_startup_latency_tracker.go) and the event NodeReady.
func kubeletMark(msg string) string {
	switch {
	case strings.Contains(msg, "Successfully registered node"):
		return boot.MarkRegistered
	case strings.Contains(msg, "Fast updating node status as it just became ready"), strings.Contains(msg, "NodeReady"):
		return boot.MarkReady
	case strings.Contains(msg, "Observed pod startup duration"):
		return boot.MarkFirstPod
	case strings.Contains(msg, "kubelet-client-current.pem") && strings.Contains(msg, "Loading cert/key pair"):
		return boot.MarkCertIssued
	}
	return ""
}

// runtimeMark recognises the words of containerd (cmd/containerd/command, pkg/cri/instrument) and
// of CRI-O (server/container_start.go). A container that starts is told by the runtime on every
// boot; kubelet speaks of a pod's start only if it had not run before.
func runtimeMark(msg string) string {
	switch {
	case strings.Contains(msg, "containerd successfully booted"):
		return boot.MarkRuntime
	case strings.Contains(msg, "StartContainer for") && strings.Contains(msg, "returns successfully"),
		strings.Contains(msg, "Started container"):
		return boot.MarkContainer
	}
	return ""
}

// linkMark recognises an interface that lost or regained its link, as systemd-networkd and the
// kernel's drivers say it.
func linkMark(msg string) string {
	if strings.HasPrefix(msg, "lo:") {
		return ""
	}
	switch {
	case strings.Contains(msg, ": Lost carrier"), strings.Contains(msg, "Link is Down"):
		return boot.MarkLinkDown
	case strings.Contains(msg, ": Gained carrier"), strings.Contains(msg, "Link is Up"), strings.Contains(msg, "link becomes ready"):
		return boot.MarkLinkUp
	}
	return ""
}
