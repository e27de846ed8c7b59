package read

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino/boot"
)

// maxDirFiles bounds how many files of a folder are looked at; a sosreport's own folders hold some
// hundreds.
const maxDirFiles = 20000

// maxReportFiles bounds how many files of one kind are merged.
const maxReportFiles = 1000

// maxLine bounds a file of one line, as that with the host's name.
const maxLine = 4096

// Folder reads one boot from a folder as Dir does. No link of the folder leads out of it: a sosreport
// is what somebody else sent.
func Folder(name string) (*boot.Capture, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return Dir(root.FS())
}

// Dir reads one boot from a folder: a sosreport (https://github.com/sosreport/sos, plugins systemd,
// logs and cloud_init), what eks-log-collector gathered (awslabs/amazon-eks-ami), or any folder with
// records of one boot, which are merged.
func Dir(fsys fs.FS) (*boot.Capture, error) {
	sos, eks := reportRoots(fsys, "sos_commands"), reportRoots(fsys, "var_log")
	roots := slices.Concat(sos, eks)
	switch {
	case len(roots) == 0:
		return readLoose(fsys)
	case slices.Contains(roots, "."): // folders in a report are its own
	case len(roots) > 1:
		return nil, fmt.Errorf("read folder: %d reports in it, %q and %q; give one of them, or use `kamino boot compare` or `kamino boot pool`", len(roots), roots[0], roots[1])
	}
	var c *boot.Capture
	var err error
	if len(sos) > 0 {
		c, err = readSOS(fsys, sos[0])
	} else {
		r := &report{fsys: fsys, root: eks[0]}
		r.add("var_log/messages", "var_log/syslog", "var_log/cloud-init.log")
		c, err = r.capture("eks-log-collector", "it has neither messages nor syslog nor cloud-init.log that can be read; "+fullJournal)
	}
	if err == nil && roots[0] != "." {
		noteBeside(fsys, roots[0], c)
	}
	return c, err
}

// noteBeside names the records that stand beside a report, which are not part of it.
func noteBeside(fsys fs.FS, root string, c *boot.Capture) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil || len(entries) > maxDirFiles {
		return
	}
	var names []string
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if _, err := readIn(fsys, e.Name()); err == nil {
			names = append(names, e.Name())
		}
	}
	if len(names) > 0 {
		c.Note("left out, because beside the report in %q: %s; of the same boot, name both", root, someNames(names))
	}
}

// someNames are the first of many names, and how many there are besides.
func someNames(names []string) string {
	var quoted []string
	for _, n := range names[:min(len(names), 3)] {
		quoted = append(quoted, strconv.Quote(n))
	}
	text := strings.Join(quoted, ", ")
	if more := len(names) - len(quoted); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// report is a folder with records at known places. One that cannot be read, or is of another boot,
// does not spoil the rest.
type report struct {
	fsys  fs.FS
	root  string
	c     *boot.Capture
	wrong []string
}

// add merges the files that match.
func (r *report) add(patterns ...string) {
	for _, pattern := range patterns {
		names, _ := fs.Glob(r.fsys, path.Join(r.root, pattern)) // the patterns are well formed
		if len(names) > maxReportFiles {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %d files, of which the first %d were read", pattern, len(names), maxReportFiles))
			names = names[:maxReportFiles]
		}
		for _, n := range names {
			more, err := readIn(r.fsys, n)
			if err == nil && r.c != nil {
				err = r.c.Merge(more)
			}
			if err != nil {
				r.wrong = append(r.wrong, fmt.Sprintf("%q was skipped: %v", n, err))
			} else if r.c == nil {
				r.c = more
			}
		}
	}
}

func (r *report) capture(source, nothing string) (*boot.Capture, error) {
	if r.c == nil {
		return nil, fmt.Errorf("read %s: %s %s", source, nothing, strings.Join(r.wrong, "; "))
	}
	for _, w := range r.wrong {
		r.c.Note("%s", w)
	}
	r.c.Sources = append([]string{source}, r.c.Sources...)
	sosHost(r.fsys, r.root, r.c)
	r.c.Tidy()
	return r.c, nil
}

func readSOS(fsys fs.FS, root string) (*boot.Capture, error) {
	r := &report{fsys: fsys, root: root}
	// The plain `systemctl show --all` is the manager; the plot is only for what the dumps lack, and
	// text for a report that has nothing else.
	r.add("sos_commands/systemd/systemctl_show_*", "sos_commands/logs/journalctl*export*", "sos_commands/logs/journalctl*json*",
		"var/log/cloud-init.log")
	if r.c == nil || r.c.Manager.Userspace == 0 {
		r.add("sos_commands/systemd/*plot*.svg")
	}
	if r.c == nil {
		r.add("sos_commands/logs/journalctl_--no-pager_--boot", "sos_commands/logs/journalctl_--no-pager_--catalog_--boot")
		if r.c == nil {
			r.add("var/log/syslog", "var/log/messages")
		}
		r.add("sos_commands/systemd/systemd-analyze", "sos_commands/systemd/systemd-analyze_blame")
	}
	return r.capture("sosreport", "it has neither systemctl dumps nor a plot nor a log that can be read; was sos run without the systemd plugin?")
}

// reportRoots finds the folders that have a report's mark in them: the one given, or those in it.
func reportRoots(fsys fs.FS, mark string) []string {
	var roots []string
	for _, pattern := range []string{mark, "*/" + mark} {
		found, _ := fs.Glob(fsys, pattern) // the patterns are well formed
		for _, f := range found {
			roots = append(roots, path.Dir(f))
		}
		if len(roots) > 0 {
			break
		}
	}
	return roots
}

func sosHost(fsys fs.FS, root string, c *boot.Capture) {
	line := func(names ...string) string {
		for _, n := range names {
			f, err := openRegular(fsys, path.Join(root, n))
			if err != nil {
				continue
			}
			data, err := io.ReadAll(io.LimitReader(f, maxLine))
			if err = errors.Join(err, f.Close()); err == nil && len(data) < maxLine {
				return strings.TrimSpace(string(data))
			}
		}
		return ""
	}
	if c.Host.Name == "" {
		c.Host.Name = line("sos_commands/host/hostname", "etc/hostname", "hostname")
	}
	if f := strings.Fields(line("sos_commands/kernel/uname_-a", "uname", "kernel/uname.txt")); c.Host.Kernel == "" && len(f) > 2 {
		c.Host.Kernel = f[2]
	}
	if c.Host.BootID == "" {
		c.Host.BootID = line("proc/sys/kernel/random/boot_id")
	}
}

// head is what tells of which boot a file is.
type head struct {
	name   string
	record boot.Capture
}

func headOf(name string, c *boot.Capture) head {
	h := head{name, *c}
	h.record.Units, h.record.Spans = nil, nil
	return h
}

// readLoose merges every file of a folder that is a record; the others do not matter, but at least
// one has to be.
func readLoose(fsys fs.FS) (*boot.Capture, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("read folder: %w", err)
	}
	if len(entries) > maxDirFiles {
		return nil, fmt.Errorf("read folder: %d files in it, more than %d", len(entries), maxDirFiles)
	}
	var c *boot.Capture
	var heads []head
	var empty, folders []string
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, e.Name())
		}
		if !e.Type().IsRegular() {
			continue
		}
		more, err := readIn(fsys, e.Name())
		if errors.Is(err, ErrUnknownFormat) {
			continue
		}
		if errors.Is(err, errEmpty) {
			empty = append(empty, e.Name())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read folder: %q: %w", e.Name(), err)
		}
		for _, h := range heads {
			if err := h.record.SameBoot(more); err != nil {
				return nil, fmt.Errorf("read folder: %q and %q: %w", h.name, e.Name(), err)
			}
		}
		heads = append(heads, headOf(e.Name(), more))
		if c == nil {
			c = more
		} else if err := c.Merge(more); err != nil {
			return nil, fmt.Errorf("read folder: %q: %w", e.Name(), err)
		}
	}
	if c == nil && len(folders) > 0 {
		return nil, fmt.Errorf("read folder: %w directly in it; its folders were not looked into: %s", ErrUnknownFormat, someNames(folders))
	}
	if c == nil {
		return nil, fmt.Errorf("read folder: %w", ErrUnknownFormat)
	}
	if len(empty) > 0 {
		c.Note("left out, because empty: %s", someNames(empty))
	}
	if len(folders) > 0 {
		c.Note("left out: what is in the folders %s; name what is of this boot as well", someNames(folders))
	}
	return c, nil
}

func readIn(fsys fs.FS, name string) (*boot.Capture, error) {
	f, err := openRegular(fsys, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return From(f)
}

// openRegular opens a regular file, also behind a link. To open a pipe would wait for its other end
// for ever, and a device may have no end.
func openRegular(fsys fs.FS, name string) (fs.File, error) {
	info, err := fs.Stat(fsys, name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil && info.Size() > boot.MaxDocument {
		err = fmt.Errorf("it has %d bytes, more than the limit of %d", info.Size(), boot.MaxDocument)
	}
	if err != nil {
		return nil, err
	}
	return fsys.Open(name)
}
