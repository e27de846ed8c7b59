package inventory

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// textLines are the lines of a file without comments and empty ones.
func textLines(data []byte) (out []string) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

func everyLine(data []byte, fits func(string) bool) bool {
	return !slices.ContainsFunc(textLines(data), func(line string) bool { return !fits(line) })
}

// onlyCertificates: PEM certificates, with what bundles write around them: names, in comments or lines of their own.
func onlyCertificates(_ *look, _ string, data []byte) bool {
	for rest := data; ; {
		i := bytes.Index(rest, []byte("-----BEGIN "))
		if i < 0 {
			return true
		}
		rest = rest[i+len("-----BEGIN "):]
		if !bytes.HasPrefix(rest, []byte("CERTIFICATE-----")) && !bytes.HasPrefix(rest, []byte("TRUSTED CERTIFICATE-----")) {
			return false
		}
	}
}

// noPasswords: the second field of every line is empty, a locked one, or the reference to the shadow file.
func noPasswords(_ *look, _ string, data []byte) bool {
	return everyLine(data, func(line string) bool {
		field := strings.Split(line, ":")
		return len(field) >= 3 && (field[1] == "" || field[1] == "x" || strings.Trim(field[1], "!*") == "")
	})
}

func onlyLoopback(_ *look, _ string, data []byte) bool {
	return everyLine(data, func(line string) bool {
		at, err := netip.ParseAddr(strings.Fields(line)[0])
		return err == nil && (at.IsLoopback() || at.IsMulticast() || at == netip.MustParseAddr("fe00::"))
	})
}

func onlyWords(words ...string) func(*look, string, []byte) bool {
	return func(_ *look, _ string, data []byte) bool {
		return everyLine(data, func(line string) bool { return slices.Contains(words, strings.Fields(line)[0]) })
	}
}

func onlySettings(names ...string) func(*look, string, []byte) bool {
	return func(_ *look, _ string, data []byte) bool {
		return everyLine(data, func(line string) bool {
			name, value, _ := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			return slices.Contains(names, name) && !strings.Contains(value, "@")
		})
	}
}

// localMounts: fstab(5) with devices and memory only; shares come with names of servers and of files with passwords.
func localMounts(_ *look, _ string, data []byte) bool {
	kinds := []string{"ext2", "ext3", "ext4", "xfs", "vfat", "auto", "swap", "none", "tmpfs", "proc", "sysfs", "devpts", "iso9660", "udf"}
	return everyLine(data, func(line string) bool {
		field := strings.Fields(line)
		return len(field) >= 3 && slices.Contains(kinds, strings.Split(field[2], ",")[0]) && !strings.Contains(line, "pass")
	})
}

func onlyNumbers(_ *look, _ string, data []byte) bool {
	return len(data) < 256 && strings.Trim(string(data), "0123456789.+-eE \n") == ""
}

// noCredentials: sources of packages of which no address holds a user (https://user:password@host) and which name no
// password or client key.
func noCredentials(_ *look, _ string, data []byte) bool {
	return everyLine(data, func(line string) bool {
		lower := strings.ToLower(line)
		return !strings.Contains(line, "@") && !strings.Contains(lower, "password") && !strings.Contains(lower, "token") &&
			!strings.Contains(lower, "sig=") && !strings.Contains(lower, "sslclientkey")
	})
}

// publicKeys: OpenPGP (RFC 9580) armored or binary, whose first packet is a public key: tag 6.
func publicKeys(_ *look, _ string, data []byte) bool {
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return false
	}
	if bytes.Contains(data, []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----")) {
		return true
	}
	return len(data) > 2 && (data[0]&0xfc == 0x98 || data[0] == 0xc6)
}

// compiledPython: PEP 552's header with the time and size of the source, which must be there.
func compiledPython(l *look, name string, data []byte) bool {
	module, _, _ := strings.Cut(path.Base(name), ".")
	info, err := l.disk.Lstat(path.Join(path.Dir(path.Dir(name)), module+".py"))
	if err != nil || len(data) < 16 || binary.LittleEndian.Uint32(data[4:]) != 0 {
		return false
	}
	return binary.LittleEndian.Uint32(data[8:]) == uint32(info.ModTime().Unix()) && binary.LittleEndian.Uint32(data[12:]) == uint32(info.Size())
}
