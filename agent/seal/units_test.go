package seal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSSHKeys runs the command of kamino-ssh-keys.service on a directory of its own, with an ssh-keygen that tells what it
// was asked for: RSA is made beside kubelet's start only where sshd's configuration may ask for it.
func TestSSHKeys(t *testing.T) {
	unit, err := unitFiles.ReadFile("units/kamino-ssh-keys.service")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(unit), "/bin/sh -c '")
	script, _, ok := strings.Cut(rest, "'\n")
	if !ok {
		t.Fatalf("the unit has no command of a shell:\n%s", unit)
	}
	// What systemd makes of it: systemd.syntax(7) and systemd.service(5), "Command lines".
	script = strings.NewReplacer("\\\n", " ", "$$", "$").Replace(script)
	const both = "-t ed25519 -N  -f ETC/ssh_host_ed25519_key\n-t ecdsa -N  -f ETC/ssh_host_ecdsa_key\n"
	for _, c := range []struct{ name, main, more, there, want string }{
		{"Debian's", "#HostKey /etc/ssh/ssh_host_rsa_key\nPort 22\n", "", "", both},
		{"none", "", "", "", both},
		{"one key is there", "Port 22\n", "", "ssh_host_ed25519_key", "-t ecdsa -N  -f ETC/ssh_host_ecdsa_key\n"},
		{"RSA alone", "HostKey /etc/ssh/ssh_host_rsa_key\n", "", "", "-A\n"},
		{"in a fragment", "Port 22\n", "  hostkey=/etc/ssh/ssh_host_rsa_key\n", "", "-A\n"},
		{"types", "", "HostKeyAlgorithms rsa-sha2-512\n", "", "-A\n"},
		{"agent", "HostKeyAgent /run/agent\n", "", "", both},
	} {
		t.Run(c.name, func(t *testing.T) {
			etc, programs := filepath.Join(t.TempDir(), "ssh"), t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			asked := filepath.Join(programs, "asked")
			write(filepath.Join(programs, "ssh-keygen"), "#!/bin/sh\n[ \"$1\" = -q ] && shift\necho \"$*\" >>"+asked+"\n")
			write(filepath.Join(etc, "sshd_config"), c.main)
			if c.more != "" {
				write(filepath.Join(etc, "sshd_config.d", "50-ours.conf"), c.more)
			}
			if c.there != "" {
				write(filepath.Join(etc, c.there), "")
			}
			cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(script, "/etc/ssh", etc))
			cmd.Env = []string{"PATH=" + programs + ":/usr/bin:/bin"}
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%v: %s", err, out)
			}
			got, err := os.ReadFile(asked)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.ReplaceAll(string(got), etc, "ETC"); text != c.want {
				t.Errorf("ssh-keygen was asked for\n%swant\n%s", text, c.want)
			}
		})
	}
}

// TestAzureAgentWaits: on an image with the Azure Linux Agent, whatever its unit is called, the agent starts behind the first
// boot, which names the machine.
func TestAzureAgentWaits(t *testing.T) {
	const dropIn = unitDir + "/waagent.service.d/00-kamino.conf"
	for _, mode := range []string{FirstBootAgent, FirstBootCloudInit} {
		d := plant(t)
		if err := d.WriteFile("usr/lib/systemd/system/waagent.service", []byte("[Service]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.FirstBoot = mode })); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(d.Text(dropIn), "After=kamino-boot.service"); got != (mode == FirstBootAgent) {
			t.Errorf("firstBoot %s: %q", mode, d.Text(dropIn))
		}
		if d.Exists(unitDir + "/walinuxagent.service.d") {
			t.Error("a drop-in for a unit that is not there")
		}
	}
}
