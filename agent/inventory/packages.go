package inventory

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// PackageDigest is the SHA-256 in hex of the installed packages: a line "NAME VERSION ARCHITECTURE"
// each, sorted, of dpkg's status or rpm's database. Two disks that have the same are patched alike.
// "" where there is neither.
func PackageDigest(d *disk.Disk) (string, error) {
	var list []string
	if d.Exists(dpkgStatus) {
		installed, err := dpkgPackages(d)
		if err != nil {
			return "", fmt.Errorf("read dpkg's status: %w", err)
		}
		list = installed
	}
	for _, name := range rpmPaths {
		if !d.Exists(name) {
			continue
		}
		if err := rpmHeaders(d, name, func(h header) error { list = append(list, h.pkg()); return nil }); err != nil {
			return "", fmt.Errorf("read /%s: %w", name, err)
		}
	}
	if len(list) == 0 {
		return "", nil
	}
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(list, "\n") + "\n"))
	return hex.EncodeToString(sum[:]), nil
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
	rpmName, rpmVersion, rpmRelease, rpmEpoch, rpmArch = 1000, 1001, 1002, 1003, 1022

	rpmString = 6
)

// pkg is one package as dpkgPackages has it. A public key that rpm keeps as one has no
// architecture.
func (h header) pkg() string {
	version := h.word(rpmVersion) + "-" + h.word(rpmRelease)
	if raw, n := h.find(rpmEpoch, rpmInt32); n > 0 && len(raw) >= 4 {
		version = fmt.Sprint(binary.BigEndian.Uint32(raw)) + ":" + version
	}
	return h.word(rpmName) + " " + version + " " + h.word(rpmArch)
}

func (h header) word(tag uint32) string {
	raw, n := h.find(tag, rpmString)
	if n == 0 {
		return ""
	}
	word, _, _ := strings.Cut(string(raw[:min(len(raw), 256)]), "\x00")
	return word
}
