package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// bootRead reads one boot from files and folders. Files of different boots are refused, by name.
func bootRead(in io.Reader, args []string) (*boot.Capture, error) {
	records := make([]*boot.Capture, len(args))
	for i, arg := range args {
		var err error
		if records[i], err = bootReadOne(in, arg); err != nil {
			return nil, err
		}
		for j, earlier := range records[:i] {
			if err := earlier.SameBoot(records[i]); err != nil {
				return nil, fmt.Errorf("%s and %s: %w", kamino.Plain(args[j]), kamino.Plain(arg), err)
			}
		}
	}
	c := records[0]
	for i, more := range records[1:] {
		if err := c.Merge(more); err != nil {
			return nil, fmt.Errorf("%s: %w", kamino.Plain(args[i+1]), err)
		}
	}
	return c, nil
}

func bootReadOne(in io.Reader, arg string) (*boot.Capture, error) {
	c, err := bootOpen(in, arg)
	if err != nil {
		return nil, bootUnread(arg, err)
	}
	return c, nil
}

// bootUnread is the error for a file or folder, with its name once.
func bootUnread(arg string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && path.Path == arg {
		err = path.Err
	}
	return kamino.WithHint(fmt.Errorf("%s: %w", kamino.Plain(arg), err), "kamino boot --help lists what can be read")
}

func bootOpen(in io.Reader, arg string) (*boot.Capture, error) {
	if arg == "-" {
		return read.From(in)
	}
	info, err := os.Stat(arg)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return read.Folder(arg)
	}
	f, err := os.Open(arg)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read.From(f)
}

// bootPoolFiles lists the boots in files and folders: every file of a folder is a boot, and so is
// every report in it.
func bootPoolFiles(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, bootUnread(arg, err)
		}
		if !info.IsDir() || bootIsReport(arg) {
			out = append(out, arg)
			continue
		}
		err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != arg && bootIsReport(path):
				out = append(out, path)
				return fs.SkipDir
			case d.Type().IsRegular():
				out = append(out, path)
			}
			return nil
		})
		if err != nil {
			return nil, bootUnread(arg, err)
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return nil, bootUnread(strings.Join(args, ", "), errors.New("no files found"))
	}
	return out, nil
}

// bootIsReport reports whether a folder is one report, or contains exactly one. Of several reports
// each is a boot.
func bootIsReport(dir string) bool {
	inside := 0
	for _, mark := range []string{"sos_commands", "var_log"} {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			return true
		}
		found, _ := filepath.Glob(filepath.Join(dir, "*", mark)) // a name with special characters finds nothing
		inside += len(found)
	}
	return inside == 1
}

// bootAnalyze reads one side of a comparison. A boot without a host name gets the name of its file.
func bootAnalyze(in io.Reader, arg, unit string) (*boot.Analysis, error) {
	c, err := bootReadOne(in, arg)
	if err != nil {
		return nil, err
	}
	c.Host.Name = cmp.Or(c.Host.Name, kamino.Plain(filepath.Base(arg)))
	a, err := boot.Analyze(c, boot.Options{Unit: unit})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	return a, nil
}
