package firstboot

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/disk/disktest"
)

func sshd(t *testing.T, files map[string]string) (*disk.Disk, *Machine) {
	t.Helper()
	d := disktest.New(t, files)
	return d, &Machine{Disk: d, Log: slog.New(slog.DiscardHandler)}
}

// TestHostKeys: OpenSSH itself reads the keys, the public ones belong to the private ones, and no
// two disks have the same.
func TestHostKeys(t *testing.T) {
	seen := map[string]bool{}
	for range 40 { // a number with leading zeros, or with the first bit set, comes up in some of them
		d, m := sshd(t, map[string]string{"etc/ssh/sshd_config": "Port 22\n"})
		m.sshKeys()
		for _, k := range hostKeys {
			name := d.Host(sshDir + "/" + k.file)
			info, err := os.Stat(name)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("%s: %v, %v", k.file, info, err)
			}
			out, err := exec.Command("ssh-keygen", "-y", "-P", "", "-f", name).CombinedOutput()
			if err != nil {
				t.Fatalf("ssh-keygen does not read %s: %v: %s", k.file, err, out)
			}
			if public := d.Text(sshDir + "/" + k.file + ".pub"); public != strings.TrimSpace(string(out)) || !strings.HasPrefix(public, k.kind+" ") || seen[public] {
				t.Errorf("%s.pub is %q, the key's is %q", k.file, public, out)
			} else {
				seen[public] = true
			}
			if k.kind == "ssh-ed25519" {
				continue
			}
			// A signature that its public key confirms: the numbers belong together.
			text := d.Host("text")
			sign := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", "test", "-f", name, text)
			if err := os.WriteFile(text, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := sign.CombinedOutput(); err != nil {
				t.Errorf("sign with %s: %v: %s", k.file, err, out)
			}
			check := exec.Command("ssh-keygen", "-Y", "check-novalidate", "-n", "test", "-s", text+".sig")
			check.Stdin = strings.NewReader("x")
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("check %s: %v: %s", k.file, err, out)
			}
		}
	}
}

// TestWhichHostKeys: what is there stays, and ssh-keygen is asked for RSA at once only where sshd
// could not serve otherwise.
func TestWhichHostKeys(t *testing.T) {
	const all = "HostKey /etc/ssh/ssh_host_rsa_key\nHostKey /etc/ssh/ssh_host_ecdsa_key\nHostKey /etc/ssh/ssh_host_ed25519_key\n"
	for name, c := range map[string]struct {
		main, more string
		now        bool
	}{
		"Debian's":         {"#HostKey /etc/ssh/ssh_host_rsa_key\nPort 22\n", "", false},
		"none":             {"", "", false},
		"all, as on AKS":   {all, "", false},
		"RSA alone":        {"HostKey /etc/ssh/ssh_host_rsa_key\n", "", true},
		"RSA, ours beside": {"HostKey /etc/ssh/ssh_host_rsa_key\n", "HostKey /etc/ssh/ssh_host_ed25519_key\n", false},
		"in a fragment":    {"Port 22\n", "  hostkey=/etc/ssh/ssh_host_rsa_key\n", true},
		"elsewhere":        {"HostKey /srv/keys/ssh_host_ed25519_key\n", "", true},
		"types":            {"", "HostKeyAlgorithms rsa-sha2-512\n", true},
		"types with ours":  {"", "HostKeyAlgorithms rsa-sha2-512,ssh-ed25519\n", false},
		"types added":      {"", "HostKeyAlgorithms +ssh-rsa\n", false},
		"agent":            {"HostKeyAgent /run/agent\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d, m := sshd(t, map[string]string{"etc/ssh/sshd_config": c.main, "etc/ssh/sshd_config.d/50-ours.conf": c.more, "etc/ssh/ssh_host_ecdsa_key": "kept"})
			m.sshKeys()
			if d.Exists(sshNowPath) != c.now || d.Text("etc/ssh/ssh_host_ecdsa_key") != "kept" || !d.Exists("etc/ssh/ssh_host_ed25519_key") {
				t.Errorf("%s: ssh-keygen is asked: %t, want %t; ECDSA key %.8q", name, d.Exists(sshNowPath), c.now, d.Text("etc/ssh/ssh_host_ecdsa_key"))
			}
		})
	}
	d, m := sshd(t, map[string]string{"etc/hostname": "x"})
	if m.sshKeys(); d.Exists("etc/ssh") {
		t.Error("keys for an sshd that is not there")
	}
}
