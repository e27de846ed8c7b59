package inventory

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Where dpkg keeps what it knows: dpkg(1), deb-md5sums(5), deb-conffiles(5), dpkg-divert(1).
const (
	dpkgDir    = "var/lib/dpkg"
	dpkgStatus = dpkgDir + "/status"
)

// readDpkg reads dpkg's database. Lists name every path of a package, links and directories too;
// md5sums has the digests of all files but the configuration files, which are in the status file,
// as shipped.
func readDpkg(o *owners, d *disk.Disk, dirs *resolver) error {
	entries, err := d.ReadDir(dpkgDir + "/info")
	if err != nil {
		return fmt.Errorf("read dpkg's database: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	diverted, err := diversions(d)
	if err != nil {
		return fmt.Errorf("read dpkg's diversions: %w", err)
	}
	each := func(suffix string, visit func(line string, at func(string) string)) error {
		for _, e := range entries {
			pkg, ok := strings.CutSuffix(e.Name(), suffix)
			if !ok {
				continue
			}
			pkg, _, _ = strings.Cut(pkg, ":")
			at := func(listed string) string { return dirs.name(diverted.from(listed, pkg)) }
			if err := lines(d, dpkgDir+"/info/"+e.Name(), func(line string) { visit(line, at) }); err != nil {
				return fmt.Errorf("read dpkg's database: %w", err)
			}
		}
		return nil
	}
	err = each(".md5sums", func(line string, at func(string) string) {
		if sum, listed, ok := strings.Cut(line, "  "); ok {
			o.addHex(at("/"+listed), byMD5, false, sum)
		}
	})
	if err != nil {
		return err
	}
	if err := conffiles(o, d, dirs, diverted); err != nil {
		return fmt.Errorf("read dpkg's status: %w", err)
	}
	// The lists name all of it once more; what is new in them are links, and files of packages
	// without digests.
	o.sort()
	summed := &owners{files: o.files}
	return each(".list", func(line string, at func(string) string) {
		if name := at(line); !summed.has(name) {
			o.add(name, byNone, false, nil)
		}
	})
}

// conffiles are listed in the status file as " /etc/x MD5 [obsolete]".
func conffiles(o *owners, d *disk.Disk, dirs *resolver, diverted divert) error {
	pkg, inside := "", false
	return lines(d, dpkgStatus, func(line string) {
		if name, ok := strings.CutPrefix(line, "Package: "); ok {
			pkg = name
		}
		if !strings.HasPrefix(line, " ") {
			inside = line == "Conffiles:"
			return
		}
		if field := strings.Fields(line); inside && len(field) >= 2 {
			o.addHex(dirs.name(diverted.from(field[0], pkg)), byMD5, true, field[1])
		}
	})
}

// divert says where a path of all packages but one lies.
type divert map[string]struct{ to, by string }

func (d divert) from(name, pkg string) string {
	if v, ok := d[name]; ok && v.by != pkg {
		return v.to
	}
	return name
}

// diversions are three lines each: from, to, and the package that may use the name, or ":" for a
// local one.
func diversions(d *disk.Disk) (divert, error) {
	out := divert{}
	if !d.Exists(dpkgDir + "/diversions") {
		return out, nil
	}
	var three []string
	err := lines(d, dpkgDir+"/diversions", func(line string) {
		if three = append(three, line); len(three) == 3 {
			out[three[0]] = struct{ to, by string }{three[1], three[2]}
			three = nil
		}
	})
	return out, err
}

// readUCF reads the digests of configuration files that packages install by ucf(1): "MD5  /etc/x",
// as shipped.
func readUCF(o *owners, d *disk.Disk, dirs *resolver) error {
	const name = "var/lib/ucf/hashfile"
	if !d.Exists(name) {
		return nil
	}
	return lines(d, name, func(line string) {
		if field := strings.Fields(line); len(field) == 2 && path.IsAbs(field[1]) {
			o.addHex(dirs.name(field[1]), byMD5, true, field[0])
		}
	})
}

// lines calls visit for each line of a file, however large.
func lines(d *disk.Disk, name string, visit func(string)) error {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for s.Scan() {
		visit(s.Text())
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
