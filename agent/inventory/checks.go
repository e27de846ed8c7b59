package inventory

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/internal/lazyregexp"
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

// everyLine is text whose lines fit, and without a password: comments are text, too.
func everyLine(data []byte, fits func(string) bool) bool {
	return noPassword(nil, "", data) && !slices.ContainsFunc(textLines(data), func(line string) bool { return !fits(line) })
}

// onlyCertificates: PEM certificates, at least one, with what bundles write around them: names, in
// comments or lines of their own, and no password.
func onlyCertificates(l *look, name string, data []byte) bool {
	for rest := data; ; {
		i := bytes.Index(rest, []byte("-----BEGIN "))
		if i < 0 {
			return len(rest) < len(data) && noPassword(l, name, data)
		}
		rest = rest[i+len("-----BEGIN "):]
		if !bytes.HasPrefix(rest, []byte("CERTIFICATE-----")) && !bytes.HasPrefix(rest, []byte("TRUSTED CERTIFICATE-----")) {
			return false
		}
	}
}

// noPasswords: the second field of every line is a locked one or the reference to the shadow file.
// Amazon Linux locks with *LOCK*. An empty field means an account without a password, but in a list
// of groups that the group has none (shadow(5), gshadow(5)). There are no comments.
func noPasswords(_ *look, name string, data []byte) bool {
	groups := strings.HasPrefix(path.Base(name), "g")
	for line := range strings.Lines(string(data)) {
		field := strings.Split(strings.TrimSpace(line), ":")
		if len(field) < 3 || strings.HasPrefix(line, "#") || strings.Trim(field[1], "!*") != "" && field[1] != "x" &&
			field[1] != "*LOCK*" || field[1] == "" && !groups {
			return false
		}
	}
	return true
}

var answersSecret = lazyregexp.New(`passw|passphrase|secret|token|credential|api[-_]?key|(?:access|licen[cs]e|private)[-_]?key`)

// noAnsweredPassword: debconf's answers (debconf.conf(5), "Name:" and "Value:"), of which none is a
// password's.
func noAnsweredPassword(_ *look, _ string, data []byte) bool {
	asked := ""
	for line := range strings.Lines(string(data)) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.ToLower(strings.TrimSpace(value)); {
		case field == "Name":
			asked = path.Base(value) // behind the package's name
		case field == "Value" && value != "" && value != "true" && value != "false" && answersSecret.MatchString(asked):
			return false
		}
	}
	return true
}

// initiatorPassword is the login of an iSCSI root on the kernel's command line (dracut.cmdline(7)).
var initiatorPassword = lazyregexp.New(`netroot=iscsi:[^\s@]+@|iscsi\.(?:in\.)?password=`)

// noBootPassword: GRUB's commands password and password_pbkdf2 give a user a password, in the text
// or as a hash; the kernel's command line may have that of a disk.
func noBootPassword(_ *look, _ string, data []byte) bool {
	return !initiatorPassword.Match(data) && everyLine(data, func(line string) bool {
		return !slices.ContainsFunc(strings.Fields(line), func(w string) bool { return w == "password" || w == "password_pbkdf2" })
	})
}

// installedModules: lines of pam.d(5) whose modules are of the system's directory and execute
// nothing that a line names.
func installedModules(_ *look, _ string, data []byte) bool {
	executing := []string{"pam_exec.so", "pam_script.so", "pam_python.so"}
	return everyLine(data, func(line string) bool {
		for _, word := range strings.Fields(line) {
			dir, module := path.Split(word)
			if slices.Contains(executing, module) || strings.HasSuffix(module, ".so") && dir != "" && !strings.Contains(dir, "/lib") ||
				strings.Contains(word, "passwd=") || strings.Contains(word, "password=") {
				return false
			}
		}
		return true
	})
}

// onlyHosts: lines of hosts(5), an address and names. A rule removes the donor's own.
func onlyHosts(_ *look, _ string, data []byte) bool {
	return everyLine(data, func(line string) bool {
		field := strings.Fields(line)
		_, err := netip.ParseAddr(field[0])
		return err == nil && !slices.ContainsFunc(field[1:], func(name string) bool { return !hostName.MatchString(name) })
	})
}

// hostName is a name of hosts(5): its parts are not longer than names are, as keys may be.
var hostName = lazyregexp.New(`^[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?$`)

func onlyWords(words ...string) func(*look, string, []byte) bool {
	return func(_ *look, _ string, data []byte) bool {
		return everyLine(data, func(line string) bool {
			return slices.Contains(words, strings.Fields(line)[0]) && !strings.Contains(line, "#")
		})
	}
}

func onlySettings(names ...string) func(*look, string, []byte) bool {
	return func(_ *look, _ string, data []byte) bool {
		return everyLine(data, func(line string) bool {
			name, value, _ := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			known := slices.ContainsFunc(names, func(n string) bool { fits, _ := path.Match(n, name); return fits })
			return known && !strings.Contains(value, "@")
		})
	}
}

// localMounts: fstab(5) with devices and memory only; shares come with names of servers and of
// files with passwords.
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

// noCredentials: sources of packages of which no address holds a user (https://user:password@host)
// or a word that looks like a key, which name no password or client key, and which are believed for
// their signatures only.
func noCredentials(_ *look, _ string, data []byte) bool {
	never := []string{"@", "passw", "username", "token", "sig=", "sslclientkey", "trusted=yes", "trusted: yes", "allow-insecure"}
	if userInURL.Match(data) || slices.ContainsFunc(wordsOf(data), keyLike) {
		return false // also in a comment, by which somebody switched a source off
	}
	return everyLine(data, func(line string) bool {
		lower := strings.ToLower(line)
		return !slices.ContainsFunc(never, func(w string) bool { return strings.Contains(lower, w) }) && !longKey.MatchString(lower)
	})
}

// longKey is a part of an address in hexadecimal, as keys in it are.
var longKey = lazyregexp.New(`/[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12,}`)

// compiledPython: PEP 552's header with the time and size of the source, which must be there.
func compiledPython(l *look, name string, data []byte) bool {
	module, _, _ := strings.Cut(path.Base(name), ".")
	source, err := l.disk.Follow(path.Join(path.Dir(path.Dir(name)), module+".py"))
	if err != nil {
		return false
	}
	info, err := l.disk.Lstat(source)
	if err != nil || len(data) < 16 || binary.LittleEndian.Uint32(data[4:]) != 0 {
		return false
	}
	return binary.LittleEndian.Uint32(data[8:]) == uint32(info.ModTime().Unix()) &&
		binary.LittleEndian.Uint32(data[12:]) == uint32(info.Size())
}
