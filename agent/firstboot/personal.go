package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// A node's name is a DNS subdomain, and so is its host's name.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// personalise gives the machine what cloud-init would have given it, its operator's keys first: an
// invalid name must not lock out whoever is to fix it.
func (m *Machine) personalise(ctx context.Context, a about) error {
	for _, file := range slices.Sorted(maps.Keys(a.keys)) {
		if err := m.authorise(file, a.keys[file]); err != nil {
			// Access for people must not keep a node from working.
			m.Log.Warn("authorised keys were not written", "file", file, "error", err)
		}
	}
	if !hostName.MatchString(a.name) {
		return fmt.Errorf("set host name: %q (osProfile.computerName) is not a host name", a.name)
	}
	if err := m.Disk.WriteFile("etc/hostname", []byte(a.name+"\n"), 0o644); err != nil {
		return err
	}
	if _, err := m.Host.Run(ctx, "hostname", a.name); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return m.hosts(a.name)
}

// hosts lets the machine resolve its own name, as Debian's and Ubuntu's installations do.
func (m *Machine) hosts(name string) error {
	data, err := m.Disk.ReadFile("etc/hosts", disk.Small)
	if errors.Is(err, fs.ErrNotExist) {
		data = []byte("127.0.0.1 localhost\n")
	} else if err != nil {
		return err
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if field := strings.Fields(line); len(field) > 0 && field[0] == "127.0.1.1" {
			continue
		}
		out = append(out, strings.TrimRight(line, "\n"))
	}
	out = append(out, "127.0.1.1 "+name)
	return m.Disk.WriteFile("etc/hosts", []byte(strings.Join(out, "\n")+"\n"), 0o644)
}

// storageNames makes new initiator names where the programs that need them are installed.
func (m *Machine) storageNames() error {
	if m.Disk.Exists("etc/iscsi") && !m.Disk.Exists("etc/iscsi/initiatorname.iscsi") {
		// The form of Debian's iscsi-iname (open-iscsi, utils/iscsi-iname.c).
		if err := m.Disk.WriteFile("etc/iscsi/initiatorname.iscsi", []byte("InitiatorName=iqn.1993-08.org.debian:01:"+randomHex(6)+"\n"),
			0o600); err != nil {
			return err
		}
	}
	if m.Disk.Exists("etc/nvme") && !m.Disk.Exists("etc/nvme/hostnqn") {
		h := randomHex(16)
		// RFC 4122 version 4; the qualified name is that of the NVMe base specification, section
		// "NVMe Qualified Names".
		id := h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
		if err := m.Disk.WriteFile("etc/nvme/hostid", []byte(id+"\n"), 0o644); err != nil {
			return err
		}
		return m.Disk.WriteFile("etc/nvme/hostnqn", []byte("nqn.2014-08.org.nvmexpress:uuid:"+id+"\n"), 0o644)
	}
	return nil
}

// authorise writes the keys that the platform names, into a home that exists, owned by who owns the
// home.
func (m *Machine) authorise(file string, keys []string) error {
	home := path.Dir(path.Dir(file))
	info, err := m.Disk.Lstat(home)
	if err != nil {
		return err
	}
	if !info.IsDir() || !disk.Under(home, "home") && !disk.Under(home, "root") {
		return fmt.Errorf("%s is not a home directory", home)
	}
	former := m.Disk.Text(file)
	for _, k := range keys {
		if !strings.Contains(former, k) {
			former = strings.TrimLeft(former+"\n"+k, "\n")
		}
	}
	dir := path.Dir(file)
	if err := m.Disk.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := m.Disk.WriteFile(file, []byte(former+"\n"), 0o600); err != nil {
		return err
	}
	if err := m.Disk.GiveTo(dir, info); err != nil {
		return err
	}
	return m.Disk.GiveTo(file, info)
}
