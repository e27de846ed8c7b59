package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debianPackages are what people put on nodes, with their dependencies some 300 packages.
var debianPackages = []string{
	"linux-image-cloud-amd64", "initramfs-tools", "grub-pc-bin", "grub2-common", "systemd-sysv", "systemd-resolved", "udev", "dbus", "libpam-systemd", "cloud-init", "openssh-server", "sudo", "iproute2", "iptables", "nftables",
	"conntrack", "ethtool", "containerd", "nginx", "postgresql-client", "python3-pip", "git", "vim", "curl", "wget", "tcpdump", "chrony", "cron", "logrotate", "rsyslog", "unattended-upgrades",
	"ca-certificates", "ca-certificates-java", "jq", "nfs-common", "lvm2", "open-iscsi", "multipath-tools", "nvme-cli", "man-db", "apparmor", "auditd", "ssl-cert", "snmpd", "bind9-dnsutils", "socat", "tmux", "rsync", "locales",
}

// debianKnown is what the build of the test's tree leaves, and no node has.
const debianKnown = `apiVersion: kamino.dev/v1alpha1
kind: SealConfig
verify:
  known:
  - {path: /etc/apt/apt.conf.d/99mmdebstrap, why: how the tree was built}
  - {path: /etc/dpkg/dpkg.cfg.d/99mmdebstrap, why: how the tree was built}
`

// TestDebianNode is a part of `make seal-planted`: of a Debian with many ordinary packages no file is
// unknown, and nothing is a finding.
func TestDebianNode(t *testing.T) {
	if os.Getenv("KAMINO_PLANTED") == "" {
		t.Skip("installs 400 MB of packages from Debian's mirror: make seal-planted")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root, and mmdebstrap: apt-get install mmdebstrap")
	}
	root := filepath.Join(t.TempDir(), "root")
	build := exec.Command("mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", "--include="+strings.Join(debianPackages, ","), "bookworm", root)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a Debian: %v\n%s", err, out)
	}
	writeFile(t, filepath.Join(root, "etc/hostname"), "debian-node-000007\n")
	writeFile(t, filepath.Join(root, "etc/machine-id"), "0a1b2c3d4e5f60718293a4b5c6d7e8f9\n")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, debianKnown)

	out, _ := agentRun(t, "verify", "--inventory", "--root", root, "--policy", policy, "--imds", "http://127.0.0.1:1", "-o", "json")
	var inventory struct {
		Unknown []struct{ Path, Why string }
		Summary string
	}
	if err := json.NewDecoder(strings.NewReader(out[strings.Index(out, "\n{")+1:])).Decode(&inventory); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range inventory.Unknown {
		t.Errorf("unknown: /%s: %s", f.Path, f.Why)
	}
	fmt.Printf("DEBIAN %d packages asked for: %s\n", len(debianPackages), inventory.Summary)
	if t.Failed() { // and the findings, too
		policy += ".report"
		writeFile(t, policy, debianKnown+"  unknown: report\n")
	}
	sealed, code := agentRun(t, "seal", "--root", root, "--policy", policy, "--run", "debian", "--no-install", "--free-space", "none", "--imds", "http://127.0.0.1:1")
	if code != 0 {
		t.Errorf("seal: exit code %d\n%s", code, sealed)
	}
	found, code := agentRun(t, "verify", "--root", root, "--policy", policy, "--imds", "http://127.0.0.1:1")
	if code != 0 || strings.Contains(found, "skipped:") {
		t.Errorf("verify: exit code %d\n%s", code, found)
	}
	fmt.Printf("DEBIAN %s\n", strings.TrimSpace(found))
}
