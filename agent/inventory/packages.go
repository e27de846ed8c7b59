package inventory

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// Facts are how far a disk is patched. What is not known is left out.
type Facts struct {
	// PackageDigest is the SHA-256 in hex of the installed packages, a line each as of Packages,
	// each with its line feed. Two disks that have the same are patched alike.
	PackageDigest string `json:"packageDigest,omitempty"`
	PackageCount  int    `json:"packageCount,omitempty"`
	// PatchedAt is when the newest of the packages was put on the disk, by the node's clock, in
	// UTC.
	PatchedAt time.Time `json:"patchedAt,omitzero"`
	// Kernel is the version of the newest kernel in /boot, which boot loaders take unless they were
	// told otherwise; "" where none lies there, as on a machine whose kernel comes from outside.
	Kernel string `json:"kernel,omitempty"`
}

// Packages are the installed ones of dpkg's status or rpm's database: a line "NAME VERSION
// ARCHITECTURE" each, sorted. There are none where there is neither.
func Packages(d *disk.Disk) (list []string, f Facts, err error) {
	if f.Kernel, err = newestKernel(d); err != nil {
		return nil, f, err
	}
	if d.Exists(dpkgStatus) {
		if list, err = dpkgPackages(d); err != nil {
			return nil, f, fmt.Errorf("read dpkg's status: %w", err)
		}
		if f.PatchedAt, err = dpkgNewest(d); err != nil {
			return nil, f, fmt.Errorf("read dpkg's lists: %w", err)
		}
	}
	for _, name := range rpmPaths {
		if !d.Exists(name) {
			continue
		}
		visit := func(h header) error {
			list = append(list, h.pkg())
			if at := h.installed(); at.After(f.PatchedAt) {
				f.PatchedAt = at
			}
			return nil
		}
		if err := rpmHeaders(d, name, visit); err != nil {
			return nil, f, fmt.Errorf("read /%s: %w", name, err)
		}
	}
	if len(list) == 0 {
		return nil, f, nil
	}
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(list, "\n") + "\n"))
	f.PackageCount, f.PackageDigest = len(list), hex.EncodeToString(sum[:])
	return list, f, nil
}

// dpkgNewest is when the newest list of a package's files was written: dpkg writes it when it
// unpacks the package.
func dpkgNewest(d *disk.Disk) (newest time.Time, err error) {
	names, err := d.Glob(path.Dir(dpkgStatus) + "/info/*.list")
	for _, name := range names {
		info, lerr := d.Lstat(name)
		if lerr == nil && info.ModTime().After(newest) { // one that went meanwhile is of no package
			newest = info.ModTime().UTC().Truncate(time.Second)
		}
	}
	return newest, err
}

// newestKernel reads the names of /boot/vmlinuz-VERSION, as Debian and Fedora have them. A rescue
// kernel of dracut's is nobody's next.
func newestKernel(d *disk.Disk) (newest string, err error) {
	names, err := d.Glob("boot/vmlinuz-*")
	for _, name := range names {
		version := strings.TrimPrefix(path.Base(name), "vmlinuz-")
		if !strings.Contains(version, "rescue") && !strings.HasSuffix(version, ".old") && laterVersion(version, newest) {
			newest = version
		}
	}
	return newest, err
}

// laterVersion compares the numbers in two versions, and where those are the same the texts.
func laterVersion(a, b string) bool {
	return cmp.Or(slices.Compare(numbersIn(a), numbersIn(b)), strings.Compare(a, b)) > 0
}

func numbersIn(version string) (all []int) {
	for _, digits := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
		n, _ := strconv.Atoi(digits) // too many digits are the largest number
		all = append(all, n)
	}
	return all
}

// dpkgPackages reads the stanzas of the status file, which an empty line ends (dpkg(1)). What was
// removed and left its configuration behind is not installed.
func dpkgPackages(d *disk.Disk) (list []string, err error) {
	field := map[string]string{}
	end := func() {
		if strings.HasSuffix(field["Status"], " installed") {
			list = append(list, field["Package"]+" "+field["Version"]+" "+field["Architecture"])
		}
		clear(field)
	}
	err = lines(d, dpkgStatus, func(line string) {
		if line == "" {
			end()
		} else if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
			switch name {
			case "Package", "Status", "Version", "Architecture":
				field[name] = value
			}
		}
	})
	end()
	return list, err
}

// Tags of rpm's headers that name a package: rpmtag.h.
const (
	rpmName, rpmVersion, rpmRelease, rpmEpoch, rpmInstalled, rpmArch = 1000, 1001, 1002, 1003, 1008, 1022

	rpmString = 6
)

// pkg is one package as dpkgPackages has it. A public key that rpm keeps as one has no
// architecture.
func (h header) pkg() string {
	version := h.word(rpmVersion) + "-" + h.word(rpmRelease)
	if epoch, ok := h.number(rpmEpoch); ok {
		version = fmt.Sprint(epoch) + ":" + version
	}
	return h.word(rpmName) + " " + version + " " + h.word(rpmArch)
}

// installed is when the package was; zero where the header does not tell.
func (h header) installed() time.Time {
	if at, ok := h.number(rpmInstalled); ok {
		return time.Unix(int64(at), 0).UTC()
	}
	return time.Time{}
}

func (h header) number(tag uint32) (uint32, bool) {
	raw, n := h.find(tag, rpmInt32)
	if n == 0 || len(raw) < 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(raw), true
}

func (h header) word(tag uint32) string {
	raw, n := h.find(tag, rpmString)
	if n == 0 {
		return ""
	}
	word, _, _ := strings.Cut(string(raw[:min(len(raw), 256)]), "\x00")
	return word
}
