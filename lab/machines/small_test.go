package machines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/template"
	"time"

	"gopkg.in/yaml.v3"

	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/userdata"
	"kamino.dev/kamino/azure/emulator"
)

// need skips a test where a program is not installed.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: apt-get install -y %s", program, tools[program])
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	err := preflight(func(program string) (string, error) {
		if strings.HasPrefix(program, "qemu") {
			return "", exec.ErrNotFound
		}
		return "/usr/bin/" + program, nil
	})
	var missing *MissingError
	if !errors.As(err, &missing) || missing.ExitCode() != 4 {
		t.Fatalf("%v", err)
	}
	if want := "qemu-img, qemu-system-x86_64 not found: apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils"; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if err := preflight(func(string) (string, error) { return "", nil }); err != nil {
		t.Error(err)
	}
}

// The CD as Linux's tools read it: the file is there under its name, whole.
func TestProvisioningCD(t *testing.T) {
	need(t, "debugfs")
	i := emulator.Instance{ComputerName: "pool1<000>", CustomData: "aGVsbG8="}
	var disc bytes.Buffer
	if err := writeCD(&disc, "azure", "OVF-ENV.XML", ovfEnvironment(i, "azureuser")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cd.iso")
	if err := os.WriteFile(file, disc.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("blkid", "-p", "-o", "export", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "TYPE=iso9660") || !strings.Contains(string(out), "LABEL=azure") {
		t.Errorf("blkid: %v %s", err, out)
	}
	for _, want := range []string{"<ns1:CustomData>aGVsbG8=</ns1:CustomData>", "<ns1:HostName>pool1&lt;000&gt;</ns1:HostName>", "<ns1:UserName>azureuser<"} {
		if !strings.Contains(disc.String(), want) {
			t.Errorf("no %s on the disc", want)
		}
	}
	if disc.Len()%sector != 0 {
		t.Errorf("%d bytes are no whole sectors", disc.Len())
	}
}

// dpkg reads the package, and two builds of the same content are the same.
func TestPackage(t *testing.T) {
	need(t, "dpkg-deb")
	dir := t.TempDir()
	if err := writeDeb(dir, labPackage("lab-tool", "2.0", true)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "lab-tool_2.0_amd64.deb")
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("dpkg-deb", "--extract", file, filepath.Join(dir, "x")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "x/usr/share/lab-tool/version")); err != nil || string(text) != "2.0\n" {
		t.Errorf("%q %v", text, err)
	}
	if out, err := exec.Command("dpkg-deb", "--info", file, "postinst").Output(); err != nil || !strings.Contains(string(out), "reboot-required") {
		t.Errorf("%q %v", out, err)
	}
	if err := writeDeb(dir, labPackage("lab-tool", "2.0", true)); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(file); err != nil || !bytes.Equal(first, second) {
		t.Error("a second build differs")
	}
	text, err := index(dir)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := sum(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Package: lab-tool\n", "Version: 2.0\n", "Filename: lab-tool_2.0_amd64.deb\n", "SHA256: " + digest} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in index:\n%s", want, text)
		}
	}
}

// Disks as snapshot and image versions go through them: content stays, and damage is found.
func TestDisks(t *testing.T) {
	need(t, "qemu-img")
	ctx, dir := t.Context(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	content := bytes.Repeat([]byte("kamino "), 1<<17)
	if err := os.WriteFile(at("raw"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := qemuImg(ctx, "convert", "-f", "raw", "-O", "qcow2", at("raw"), at("base")); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { return overlay(ctx, at("base"), at("os")) },
		func() error { return duplicate(ctx, at("os"), at("snapshot")) },
		func() error { return flatten(ctx, at("snapshot"), at("version")) },
		func() error { return check(ctx, at("version")) },
		func() error { return writeSum(at("version")) },
		func() error { return intact(at("version")) },
		func() error { return os.Remove(at("base")) }, // the version must need nothing else
		func() error { return qemuImg(ctx, "convert", "-O", "raw", at("version"), at("again")) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := os.ReadFile(at("again")); err != nil || !bytes.HasPrefix(again, content) {
		t.Errorf("content is another after the trip: %v", err)
	}
	image, err := os.ReadFile(at("version"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 100, 70_000} { // nothing, a torn header, torn tables
		if err := os.WriteFile(at("version"), image[:min(cut, len(image))], 0o600); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if err := intact(at("version")); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), at("version")) {
			t.Errorf("checksum of %d bytes: %v", cut, err)
		}
	}
	if err := check(ctx, at("version")); err == nil {
		t.Error("qemu-img check finds nothing wrong with a torn image")
	}
}

// TestHold: instances that are made at the same time hold the same image.
func TestHold(t *testing.T) {
	f := &Factory{dir: t.TempDir()}
	for image := range 50 {
		path := filepath.Join(f.dir, fmt.Sprint(image))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if to, err := f.hold(path); err != nil || !exists(to) {
					t.Errorf("%s: %v", to, err)
				}
			})
		}
		all.Wait()
	}
}

func TestFullDiskIsNamed(t *testing.T) {
	dir := t.TempDir()
	err := room(dir, 1<<60)
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("%v", err)
	}
	if err := room(dir, 1); err != nil {
		t.Error(err)
	}
	if err := command(t.Context(), "sh", "-c", "echo cannot write: No space left on device >&2; exit 1"); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if err := command(t.Context(), "sh", "-c", "cat /proc/cpuinfo >/dev/full"); !errors.Is(err, errFull) {
			t.Errorf("%v", err)
		}
	}
}

func TestUnfinishedFileHasNoName(t *testing.T) {
	to := filepath.Join(t.TempDir(), "file")
	broken := errors.New("broken")
	err := whole(to, func(temporary string) error {
		if err := os.WriteFile(temporary, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) || exists(to) || exists(to+".partial") {
		t.Errorf("%v, file %t, half %t", err, exists(to), exists(to+".partial"))
	}
}

// What machines are given is what the product and cloud-init accept.
func TestJoining(t *testing.T) {
	ca := []byte(testCA)
	j := joining{Endpoint: "https://10.1.0.254:6443", CA: ca, Token: "abcdef.0123456789abcdef"}
	text, err := base64.StdEncoding.DecodeString(j.userData(3, map[string]string{"lab": "yes"}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := userdata.Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if c.Generation != 3 || c.Cluster.Endpoint != j.Endpoint || c.Join.Token != j.Token || c.Kubelet.Labels["lab"] != "yes" {
		t.Errorf("%+v", c)
	}
	custom, err := j.customData()
	if err != nil {
		t.Fatal(err)
	}
	text, err = base64.StdEncoding.DecodeString(custom)
	if err != nil || !bytes.HasPrefix(text, []byte("#cloud-config\n")) {
		t.Fatalf("%v %.40q", err, text)
	}
	var config struct {
		WriteFiles []struct{ Path, Permissions, Encoding, Content string } `yaml:"write_files"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range config.WriteFiles {
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil || f.Encoding != "b64" {
			t.Errorf("%s: %s %v", f.Path, f.Encoding, err)
		}
		found[f.Path] = string(content)
	}
	if found["/etc/kamino/ca.crt"] != string(ca) || !strings.Contains(found["/var/lib/kubelet/bootstrap-kubeconfig"], j.Token) || found["/opt/lab/bootstrap.sh"] == "" {
		t.Errorf("files %v", found)
	}
}

// What containerd makes of the template for a node's network is a network configuration.
func TestNetworkTemplate(t *testing.T) {
	text, err := template.New("").ParseFS(files, "files/cni.template")
	if err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	if err := text.ExecuteTemplate(&made, "cni.template", struct{ PodCIDR string }{"10.244.7.0/24"}); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(made.Bytes()) || !strings.Contains(made.String(), `"subnet": "10.244.7.0/24"`) {
		t.Errorf("%s", &made)
	}
}

func TestAcceleratorIsTCGWithoutKVM(t *testing.T) {
	if got := probe(filepath.Join(t.TempDir(), "kvm")); got != "tcg" {
		t.Errorf("no device gives %s", got)
	}
}

// TestHungKernelIsReset: what the console said before this power on does not count.
func TestHungKernelIsReset(t *testing.T) {
	const before = "[ 4.5] " + handedOver + "252 running in system mode\n"
	for _, c := range []struct {
		name, console string
		resets        int
	}{
		{"hangs", before + "[ 1.6] sched_clock: Marking stable\n", 1},
		{"boots", before + "[ 1.6] sched_clock: Marking stable\n" + before, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			h := hardware{Name: "m", Console: filepath.Join(dir, "console.log"), QMP: filepath.Join(dir, "q")}
			if err := os.WriteFile(h.Console, []byte(c.console), 0o600); err != nil {
				t.Fatal(err)
			}
			monitor, err := net.Listen("unix", h.QMP)
			if err != nil {
				t.Fatal(err)
			}
			defer monitor.Close()
			var asked atomic.Int32
			go func() {
				for conn, err := monitor.Accept(); err == nil; conn, err = monitor.Accept() {
					for lines := bufio.NewScanner(conn); lines.Scan(); fmt.Fprintln(conn, `{"return": {}}`) {
						if strings.Contains(lines.Text(), "system_reset") {
							asked.Add(1)
						}
					}
				}
			}()
			m := &machine{hardware: h}
			f := &Factory{kernel: time.Nanosecond, logger: slog.New(slog.DiscardHandler)}
			f.unhang(m, &guest{hardware: h, quiet: len(before), done: make(chan struct{})})
			if got := int(asked.Load()); got != c.resets || m.hung != (c.resets > 0) {
				t.Errorf("reset %d times, hung %t; want %d resets", got, m.hung, c.resets)
			}
		})
	}
}

// TestCrashedQEMU: only a crash before the kernel has handed over is mended, and only one.
func TestCrashedQEMU(t *testing.T) {
	const before = "[ 4.5] " + handedOver + "252 running in system mode\n"
	for _, c := range []struct {
		name, console, script string
		crashes, revived      bool
	}{
		{"crashes", before + "[ 1.6] sched_clock\n", "kill -SEGV $$", true, true},
		{"crashes when it has booted", before + before, "kill -SEGV $$", true, false},
		{"is killed", before, "kill -KILL $$", false, false},
		{"ends", before, "exit 1", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			h := hardware{Name: "m", Console: filepath.Join(dir, "console.log"), QMP: filepath.Join(dir, "q"), Dir: dir, Port: &port{}}
			if err := os.WriteFile(h.Console, []byte(c.console), 0o600); err != nil {
				t.Fatal(err)
			}
			g := &guest{hardware: h, quiet: len(before), err: exec.Command("sh", "-c", c.script).Run()}
			if crashed(g.err) != c.crashes {
				t.Fatalf("%v is taken for the other kind of end", g.err)
			}
			t.Setenv("PATH", fakeQEMU(t))
			m := &machine{hardware: h}
			f := &Factory{kernel: time.Hour, logger: slog.New(slog.DiscardHandler)}
			if got := f.revive(m, g, "id"); got != c.revived || (m.guest != nil) != c.revived || m.hung != c.revived {
				t.Errorf("revived %t, running %t, hung %t; want %t", got, m.guest != nil, m.hung, c.revived)
			}
			if m.guest == nil {
				return
			}
			m.expects = true
			m.guest.cut()
			f.watchers.Wait()
			if f.revive(m, g, "id") {
				t.Error("it was revived twice")
			}
		})
	}
}

// fakeQEMU is a PATH on which nice runs something that waits.
func fakeQEMU(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nice"), []byte("#!/bin/sh\nexec /usr/bin/tail -f /dev/null\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEverySlotHasItsOwnNames(t *testing.T) {
	macs, addresses := map[string]bool{}, map[string]bool{}
	for n := firstSlot; n <= lastSlot; n++ {
		mac, address := slot(n)
		macs[mac], addresses[address.String()] = true, true
	}
	if want := lastSlot - firstSlot + 1; len(macs) != want || len(addresses) != want || addresses[hostAddress+"/24"] || addresses[gateway+"/24"] {
		t.Errorf("%d MAC addresses and %d IP addresses for %d slots", len(macs), len(addresses), want)
	}
}

func TestCommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := command(ctx, "sh", "-c", "read forever"); err == nil {
		t.Error("a command outlives its context")
	}
}

// testCA certifies nothing; its key is not kept.
const testCA = `-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUD/Q2b7DTH5w1CRxsF9Cah4riCY0wCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDbGFiMCAXDTI2MTEyMTExMzUyNVoYDzIxMjYxMDI4MTEzNTI1
WjAOMQwwCgYDVQQDDANsYWIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASaSUIp
JDTFPwhtBJbtSNqzfv+NqXOugReWO1xmnNtwGvzsB0u1s5HPqLwC8ZvbgiOSLKPg
6D0Nckx9y9G7JeUZo1MwUTAdBgNVHQ4EFgQUY5e8oDB75x6VMRlM8naeZRJAG9Yw
HwYDVR0jBBgwFoAUY5e8oDB75x6VMRlM8naeZRJAG9YwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNIADBFAiEAlg76TpJkk1Ma5Dae7wtcFH3Ao6YnuOcDBbaE
Haj+OZcCIHLoNxv4fCgsE0DxaScXwlBOTWBQpS6LYccu1Ugwq7Ul
-----END CERTIFICATE-----
`

func TestCountFindsWhatCrossesPieces(t *testing.T) {
	const piece = 4 << 20
	needle := []byte("needle-in-the-disk")
	data := make([]byte, 3*piece)
	for _, at := range []int{0, 100, piece - 5, 2*piece - len(needle), 3*piece - len(needle)} {
		copy(data[at:], needle)
	}
	found, err := count(bytes.NewReader(data), map[string][]byte{"it": needle, "other": []byte("not there at all")})
	if err != nil || found["it"] != 5 || found["other"] != 0 {
		t.Errorf("%v %v", found, err)
	}
	if _, err := count(bytes.NewReader(data), map[string][]byte{"short": []byte("a")}); err == nil {
		t.Error("a needle of one byte is taken")
	}
}

func TestTwins(t *testing.T) {
	a := Identity{MachineID: "1", HostKey: "1", Certificate: "1", HostName: "1", MAC: "1", Seed: "1", BootID: "1"}
	b := Identity{MachineID: "2", HostKey: "1", Certificate: "2", HostName: "2", MAC: "2", Seed: "", BootID: "2"}
	got := strings.Join(Twins([]string{"a", "b"}, []Identity{a, b}), "; ")
	if want := "a and b have the same ssh host key: 1; b has no random seed"; got != want {
		t.Errorf("%q", got)
	}
}

func TestPolicy(t *testing.T) {
	if _, err := seal.ParsePolicy([]byte(policy)); err != nil {
		t.Error(err)
	}
}
