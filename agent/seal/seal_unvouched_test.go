package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/disk/disktest"
)

// nodeWith is a small donor with the files given.
func nodeWith(t *testing.T, files map[string]string) *disk.Disk {
	t.Helper()
	all := map[string]string{"etc/hostname": donorHost + "\n", "etc/machine-id": donorMachine + "\n", "usr/bin/kubelet": "program\n"}
	for name, text := range files {
		all[name] = text
	}
	return disktest.New(t, all)
}

// foundAt seals, and wants the scan to find something there.
func foundAt(t *testing.T, d *disk.Disk, o Options, kind, name string) {
	t.Helper()
	_, err := Seal(t.Context(), d, o)
	var found *Found
	if !errors.As(err, &found) {
		t.Errorf("/%s: %v", name, err)
		return
	}
	for _, f := range found.Result.Findings {
		if f.Kind == kind && f.Path == name {
			return
		}
	}
	t.Errorf("%s of /%s is not among %v", kind, name, found.Result.Findings)
}

// TestNobodyVouches: places of software, of package databases and of image stores hold a key of
// which no package and no image says that it is theirs.
func TestNobodyVouches(t *testing.T) {
	for _, name := range []string{"var/lib/dpkg/info/backup.key", "var/lib/dpkg/info/backup.list", "var/lib/dpkg/status.bak", "usr/lib/locale/C.UTF-8/key.pem", "usr/share/mime/key",
		"usr/share/vim/vim90/doc/tags", "usr/lib/modules/6.8.0/modules.key", "var/lib/docker/image/overlay2/layerdb/sha256/x/key.pem", "var/lib/docker/image/overlay2/distribution/key.pem",
		"var/lib/rpm/rpmdb.sqlite.key", "usr/lib/sysimage/dnf/key.pem", "usr/bin/tool", "opt/kamino/id", "lib/firmware/x",
		"var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/77/fs/root/id", "var/lib/docker/overlay2/dead/diff/root/id"} {
		foundAt(t, nodeWith(t, map[string]string{name: secret}), planted(nil), "private-key", name)
	}
}

// TestNoPlaceVouches: passwords and random keys in places of software that packages' scripts write to.
func TestNoPlaceVouches(t *testing.T) {
	random := make([]byte, 64)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(random) // never fails
	const password = "#!/bin/sh\nexport DB_PASSWORD=S0mmerRegen1987\n"
	for _, name := range []string{"var/lib/dpkg/info/agent.postinst", "var/lib/dpkg/info/agent.config", "var/lib/dpkg/triggers/agent", "usr/share/mime/agent", "usr/lib/modules/6.1.0/modules.agent",
		"usr/lib/sysimage/dnf/agent.toml"} {
		foundAt(t, nodeWith(t, map[string]string{name: password}), planted(nil), "secret", name)
	}
	for _, name := range []string{"var/lib/dpkg/triggers/agent", "usr/share/mime/agent", "usr/lib/sysimage/dnf/agent", "var/cache/man/agent", "boot/grub/x86-64/agent.img"} {
		foundAt(t, nodeWith(t, map[string]string{name: string(random)}), planted(nil), "secret", name)
	}
	// dpkg's own digest of a file that is called as a password is.
	known := map[string]string{"var/lib/dpkg/status": "Package: passwd\nConffiles:\n /etc/pam.d/passwd eaf2ad85b5ccd06cceb19a3e75f40c63\n"}
	if _, err := Seal(t.Context(), nodeWith(t, known), planted(nil)); err != nil {
		t.Error(err)
	}
}

// TestLayerOfNoImage: a directory is a layer if an image has it, not because layerdb says so.
func TestLayerOfNoImage(t *testing.T) {
	const key = "var/lib/docker/overlay2/backup/diff/key"
	foundAt(t, nodeWith(t, map[string]string{"var/lib/docker/image/overlay2/layerdb/sha256/x/cache-id": "backup", key: secret}), planted(nil), "private-key", key)

	diff := "sha256:" + strings.Repeat("ab", 32)
	config := fmt.Sprintf(`{"rootfs":{"type":"layers","diff_ids":[%q]}}`, diff)
	d := nodeWith(t, map[string]string{"var/lib/docker/image/overlay2/layerdb/sha256/" + strings.Repeat("ab", 32) + "/cache-id": "layer",
		"var/lib/docker/image/overlay2/imagedb/content/sha256/" + sumOf([]byte(config)): config, "var/lib/docker/overlay2/layer/diff/usr/share/test/key": secret})
	if _, err := Seal(t.Context(), d, planted(nil)); err != nil {
		t.Errorf("an image's layer: %v", err)
	}
}

func cpio(files ...string) string {
	pad := func(s string) string { return s + strings.Repeat("\x00", -len(s)&3) }
	all := ""
	for i := 0; i < len(files); i += 2 {
		head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 1, 0o100600, 0, 0, 1, 0, len(files[i+1]), 0, 0, 0, 0, len(files[i])+1, 0)
		all += pad(head+files[i]+"\x00") + pad(files[i+1])
	}
	return all
}

// TestInitialFileSystem: what is compressed behind microcode is looked into.
func TestInitialFileSystem(t *testing.T) {
	early := cpio("kernel/x86/microcode/GenuineIntel.bin", "microcode", "TRAILER!!!", "")
	early += strings.Repeat("\x00", -len(early)&511)
	const name = "boot/initrd.img-6.8.0-1021-azure"
	for kind, file := range map[string]string{"private-key": secret, "donor-machine-id": donorMachine + "\n"} {
		initrd := early + zstdOf(t, cpio("etc/some/file", file, "TRAILER!!!", ""))
		foundAt(t, nodeWith(t, map[string]string{name: initrd}), planted(nil), kind, name)
	}
}

func zstdOf(t *testing.T, text string, options ...zstd.EOption) string {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, options...)
	if err != nil {
		t.Fatal(err)
	}
	half := len(text) / 2 // two blocks: a frame of one says its size and not its window
	for _, part := range []string{text[:half], text[half:]} {
		if _, err := z.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestUndecodableIsTold: nobody is left to believe that what could not be decoded was scanned.
func TestUndecodableIsTold(t *testing.T) {
	for name, text := range map[string]string{"srv/window.zst": zstdOf(t, strings.Repeat("a line of a log\n", 4096), zstd.WithWindowSize(128<<20)), "srv/torn.xz": "\xfd7zXZ\x00 torn",
		"srv/torn.zip": "PK\x03\x04torn", "boot/initrd.img-1": cpio("a", "b", "TRAILER!!!", "") + "\x28\xb5\x2f\xfdtorn"} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			_, err := Seal(t.Context(), nodeWith(t, map[string]string{name: text}), planted(func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }))
			if err != nil || !strings.Contains(log.String(), "/"+name) {
				t.Errorf("/%s: %v: %s", name, err, log.String())
			}
		})
	}
}

// TestCompiledPython: bytecode that belongs to the source above it holds that source's texts, which
// are judged there; any other file of that name is read.
func TestCompiledPython(t *testing.T) {
	const source, compiled = "usr/lib/python3/dist-packages/m/x.py", "usr/lib/python3/dist-packages/m/__pycache__/x.cpython-311.pyc"
	d := nodeWith(t, map[string]string{source: "k = 1\n"})
	info, err := d.Lstat(source)
	if err != nil {
		t.Fatal(err)
	}
	header := binary.LittleEndian.AppendUint32([]byte("\xa7\r\r\n\x00\x00\x00\x00"), uint32(info.ModTime().Unix()))
	header = binary.LittleEndian.AppendUint32(header, uint32(info.Size()))
	if err := d.WriteFile(compiled, append(header, secret...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(t.Context(), d, planted(nil)); err != nil {
		t.Errorf("compiled from its source: %v", err)
	}
	foundAt(t, nodeWith(t, map[string]string{source: "k = 1\n", compiled: "\xa7\r\r\n" + strings.Repeat("\x00", 12) + secret}), planted(nil), "private-key", compiled)
}

// TestKeysInInitialFileSystem: keys that are no texts, in what the initial file system opens the
// root's disk and lets people in with.
func TestKeysInInitialFileSystem(t *testing.T) {
	random := make([]byte, 512)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random) // never fails
	ed25519 := "\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20" + string(random[:32])
	for _, c := range []struct{ kind, member, content string }{
		{"private-key", "cryptroot/keyfiles/root.key", string(random)},
		{"secret", "./crypto_keyfile.bin", string(random)},
		{"ssh-host-key", "etc/dropbear/dropbear_ed25519_host_key", "\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x40" + string(random[:64])},
		{"keytab", "etc/krb5.keytab", "\x05\x02" + string(random[:60])},
		{"private-key", "etc/pki/client.der", ed25519},
	} {
		all := cpio("init", "#!/bin/sh\n", c.member, c.content, "TRAILER!!!", "")
		foundAt(t, nodeWith(t, map[string]string{"boot/initrd.img-6.1.0-42-amd64": gzipped(all)}), planted(nil), c.kind, "boot/initrd.img-6.1.0-42-amd64")
	}
}
