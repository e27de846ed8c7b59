package capture

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/boot"
)

// extensions adds what the Azure agent's extensions did: the tasks that they report as events (on
// AKS the steps of its script), the same tasks in that script's trace, because the agent deletes
// the events after it has uploaded them (assumed, unverified on real Azure), and from the agent's
// own log how long each extension's command ran.
func (o Options) extensions(c *boot.Capture) {
	offset := wallOffset(o.Clock.Now())
	unit := "walinuxagent.service"
	if c.Unit(unit) == nil && c.Unit("waagent.service") != nil {
		unit = "waagent.service"
	}
	var found []boot.Span
	files, _ := filepath.Glob(filepath.Join(o.Root, "var/log/azure/*/events/*.json")) // the pattern is well formed
	for _, f := range files {
		rel, err := filepath.Rel(o.Root, f)
		if err != nil {
			continue
		}
		if data, err := o.readFile(rel); err == nil {
			if s, ok := extensionTask(data, offset); ok {
				found = append(found, s)
			}
		}
	}
	if data, err := o.readFile("var/log/azure/cluster-provision.log"); err == nil {
		found = append(found, tracedTasks(data, offset)...)
	}
	if data, err := o.readFile("var/log/waagent.log"); err == nil {
		found = append(found, agentCommands(data, offset)...)
	}
	for _, s := range found {
		s.Unit = unit
		c.Spans = append(c.Spans, s)
	}
}

// extensionTask reads an event: Timestamp is the task's start, OperationId its end, both wall clock
// in UTC.
func extensionTask(data []byte, offset boot.Micros) (boot.Span, bool) {
	var raw map[string]any
	if json.Unmarshal(data, &raw) != nil {
		return boot.Span{}, false
	}
	start, _ := raw["Timestamp"].(string)
	end, _ := raw["OperationId"].(string)
	task, _ := raw["TaskName"].(string)
	return taskSpan(task, start, end, offset)
}

func taskSpan(name, from, to string, offset boot.Micros) (boot.Span, bool) {
	start, ok := eventTime(from, offset)
	end, ok2 := eventTime(to, offset)
	if !ok || !ok2 || end < start || name == "" {
		return boot.Span{}, false
	}
	return boot.Span{Name: name, Kind: boot.SpanTask, Start: start, End: end, Source: "extension"}, true
}

// tracedTask is the line that the shell's trace has of an event being written
// (https://github.com/Azure/AgentBaker, parts/linux/cloud-init/artifacts/cse_helpers.sh,
// logs_to_events).
var tracedTask = regexp.MustCompile(`--arg Timestamp '([^']+)' --arg OperationId '([^']+)'.* --arg TaskName '?([A-Za-z0-9_.-]+)`)

func tracedTasks(data []byte, offset boot.Micros) (out []boot.Span) {
	for line := range bytes.Lines(data) {
		if m := tracedTask.FindSubmatch(line); m != nil {
			if s, ok := taskSpan(string(m[3]), string(m[1]), string(m[2]), offset); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// agentCommand is a line of the Azure agent's log that begins or ends an extension's command
// (https://github.com/Azure/WALinuxAgent, azurelinuxagent/ga/exthandlers.py).
var agentCommand = regexp.MustCompile(`^(\S+Z) INFO \S+ \[([A-Za-z0-9.]+)-[0-9.]+\] (?:(Install|Enable) extension: \[(.+)\]|Command: (.+))$`)

// agentCommands pairs the start of an extension's command with the line that its output begins
// with, which comes at its end.
func agentCommands(data []byte, offset boot.Micros) (out []boot.Span) {
	type running struct{ verb, command, from string }
	open := map[string]running{}
	for line := range bytes.Lines(data) {
		m := agentCommand.FindSubmatch(bytes.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		at, name := string(m[1]), string(m[2])
		if len(m[3]) > 0 {
			open[name] = running{strings.ToLower(string(m[3])), string(m[4]), at}
			continue
		}
		r, ok := open[name]
		if !ok || r.command != string(m[5]) {
			continue
		}
		delete(open, name)
		if s, ok := taskSpan(name+" "+r.verb, r.from, at, offset); ok {
			s.Source = "waagent.log"
			out = append(out, s)
		}
	}
	return out
}

// eventTime reads a wall clock stamp. One before this boot does not count, and one that no boot can have would make
// the whole record invalid.
func eventTime(s string, offset boot.Micros) (boot.Micros, bool) {
	for _, layout := range []string{"2006-01-02 15:04:05.000", "2006-01-02 15:04:05", time.RFC3339Nano} {
		if t, err := time.Parse(layout, s); err == nil {
			at := boot.Micros(t.UnixMicro()) - offset
			return at, at > 0 && at <= boot.MaxStamp
		}
	}
	return 0, false
}

// wallOffset is the difference of the wall clock and the monotonic one now.
func wallOffset(now time.Time) boot.Micros {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return boot.Micros(now.UnixMicro()) - boot.Micros(ts.Nano()/1000)
}

// networkPlugin adds the moment at which the network plugin's configuration was last written: the
// runtime reports the network ready from then on. A configuration that is older than this boot says
// nothing, since it was there before its plugin was.
func (o Options) networkPlugin(c *boot.Capture) {
	if _, ok := c.Mark(boot.MarkCNIReady); ok {
		return
	}
	offset := wallOffset(o.Clock.Now())
	files, _ := filepath.Glob(filepath.Join(o.Root, "etc/cni/net.d/*.conf*"))
	var last boot.Micros
	name := ""
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil || info.Mode().Type()&fs.ModeType != 0 {
			continue
		}
		if at := boot.Micros(info.ModTime().UnixMicro()) - offset; at > last && at <= boot.MaxStamp {
			last, name = at, filepath.Base(f)
		}
	}
	if last > c.Manager.Userspace && last > 0 {
		c.Marks = append(c.Marks, boot.Mark{Name: boot.MarkCNIReady, At: last, Detail: name + " was written", Source: boot.SourceFileTime})
	}
}
