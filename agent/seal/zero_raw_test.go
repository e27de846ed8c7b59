package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/scan"
)

// kinds of secrets, each made anew for every place: %h hexadecimal, %a letters and digits, %A
// capitals and digits, each with a length. %E is base64 of the whole text behind it.
var kinds = map[string]string{
	"PEM EC key":                "-----BEGIN EC PRIVATE KEY-----\n%a64\n%a64\n-----END EC PRIVATE KEY-----\n",
	"PEM RSA key":               "-----BEGIN RSA PRIVATE KEY-----\n%a64\n%a64\n-----END RSA PRIVATE KEY-----\n",
	"PEM PKCS#8 key":            "-----BEGIN PRIVATE KEY-----\n%a64\n-----END PRIVATE KEY-----\n",
	"PEM encrypted key":         "-----BEGIN ENCRYPTED PRIVATE KEY-----\n%a64\n-----END ENCRYPTED PRIVATE KEY-----\n",
	"PEM DSA key with headers":  "-----BEGIN DSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,%A32\n\n%a64\n",
	"PEM key in JSON":           `{"key":"-----BEGIN PRIVATE KEY-----\n%a64\n-----END PRIVATE KEY-----"}`,
	"OpenSSH key":               "-----BEGIN OPENSSH PRIVATE KEY-----\n%a64\n%a64\n",
	"PGP key":                   "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n%a64\n",
	"PuTTY key":                 "PuTTY-User-Key-File-3: ssh-ed25519 %a24\n",
	"PEM key in base64":         "tls.key: %E-----BEGIN EC PRIVATE KEY-----\n%a64\n%a64\n-----END EC PRIVATE KEY-----\n",
	"JWT RS256":                 "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.%a80.%a86",
	"JWT ES256":                 "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.%a40.%a86",
	"JWT HS256":                 "eyJhbGciOiJIUzI1NiJ9.%a40.%a43",
	"JWT kid first":             "eyJraWQiOiJhYmMiLCJhbGciOiJSUzI1NiJ9.%a60.%a86",
	"bootstrap token in YAML":   "    token: %h6.%h16\n",
	"bootstrap token in JSON":   `{"tlsBootstrapToken": "%h6.%h16"}`,
	"bootstrap token variable":  "export TLS_BOOTSTRAP_TOKEN=%h6.%h16\n",
	"bootstrap token argument":  "kubeadm join 10.0.0.1:6443 --token %h6.%h16 --x\n",
	"bearer header":             "Authorization: Bearer %a32\n",
	"basic header":              "authorization: Basic %a24\n",
	"kubeconfig key":            "    client-key-data: %a120\n",
	"SAS address":               "https://a.blob.core.windows.net/c?sv=2022-11-02&sr=c&sig=%a43%3D\n",
	"storage account key":       "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=%a86==\n",
	"service bus key":           "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=%a43=\n",
	"azure.json secret":         `{"aadClientSecret": "%a34"}`,
	"CLIENT_SECRET variable":    "AZURE_CLIENT_SECRET=%a34\n",
	"client_secret form":        "grant_type=client_credentials&client_secret=%a34&x=y",
	"clientSecret field":        `"clientSecret":"%a34"`,
	"AWS key id":                "AKIA%A16\n",
	"AWS session id":            "ASIA%A16\n",
	"AWS secret":                "aws_secret_access_key = %a40\n",
	"GitHub token":              "ghp_%a36\n",
	"GitHub OAuth token":        "gho_%a36\n",
	"GitHub app token":          "ghs_%a36\n",
	"GitLab token":              "glpat-%a20\n",
	"Slack token":               "xoxb-%a40\n",
	"Tailscale key":             "tskey-auth-%a30\n",
	"npm token":                 "//registry.npmjs.org/:_authToken=npm_%a36\n",
	"Docker Hub token":          "dckr_pat_%a27\n",
	"registry login":            `{"auths":{"r.io":{"auth":"%a40"}}}`,
	"registry identity":         `{"auths":{"r.io":{"identitytoken":"%a40"}}}`,
	"SHA-512 password hash":     "u:$6$%a8$%a86:19000:0:99999:7:::\n",
	"yescrypt password hash":    "u:$y$j9T$%a22$%a43:19000::::::\n",
	"bcrypt password hash":      "u:$2b$12$%a53:19000::::::\n",
	"provisioning password":     "<UserPassword>%a20</UserPassword>",
	"Windows password":          "<Password>%a20</Password>",
	"WireGuard key":             "PrivateKey = %a43=\n",
	"WireGuard shared key":      "PresharedKey = %a43=\n",
	"Tailscale node key":        "privkey:%h64",
	"donor's host name":         "node=" + donorHost + "\n",
	"donor's address":           "listen 10.240.0.7:80\n",
	"donor's VM id":             "vmId: " + donorVM + "\n",
	"donor's VM id, upper":      "UUID: " + strings.ToUpper(donorVM) + "\n",
	"donor's VM id, swapped":    "dmi: " + scan.Swapped(donorVM) + "\n",
	"donor's machine id":        "id " + donorMachine + "\n",
	"donor's machine id, bytes": "_MACHINE_ID=" + donorMachine,
}

var blank = regexp.MustCompile(`%([haA])(\d+)`)

// mint makes a secret of a kind.
func mint(kind string, random *rand.Rand) string {
	alphabet := map[string]string{"h": "0123456789abcdef", "A": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
		"a": "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"}
	text := blank.ReplaceAllStringFunc(kinds[kind], func(m string) string {
		letters := alphabet[m[1:2]]
		n, _ := strconv.Atoi(m[2:])
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	})
	if before, plain, ok := strings.Cut(text, "%E"); ok {
		return before + base64.StdEncoding.EncodeToString([]byte(plain)) + "\n"
	}
	return text
}

// livePlaces are where the rules look; each kind lies in one of them.
var livePlaces = []string{"var/log/pods/p/c/%d.log", "home/u/.ssh/k%d", "var/lib/waagent/s%d.xml", "var/lib/kubelet/pods/u/volumes/s/k%d", "tmp/x%d",
	"var/lib/cloud/instances/i/x%d", "etc/kubernetes/pki/k%d", "root/.azure/x%d", "etc/cni/net.d/x%d", "var/crash/x%d"}

// TestRaw: secrets of every kind, alive, deleted and behind a file's end in a real ext4 file
// system. The raw scan sees all of them. After a seal with freeSpace zero no byte is left of those
// that lived or were deleted; what lies behind the end of a living file stays, as docs/agent.md
// says.
func TestRaw(t *testing.T) {
	if len(kinds) < 40 {
		t.Fatalf("%d kinds", len(kinds))
	}
	image := newImage(t, 96)
	all, slack := plantAll(t, image)
	facts := planted(nil).Facts
	if missed := unseen(t, image, rawScan(t, image, facts), all); len(missed) > 0 {
		t.Errorf("the scan sees %d of %d secrets only; not %q", len(all)-len(missed), len(all), missed[:min(len(missed), 5)])
	}
	onDisk(t, image, func(d *disk.Disk) {
		if _, err := Seal(t.Context(), d, planted(nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := FreeSpace(t.Context(), d, FreeZero); err != nil {
			t.Fatal(err)
		}
	})
	data := readImage(t, image)
	behind := slices.Collect(maps.Values(slack))
	for _, text := range all {
		known := strings.Contains(text, donorHost) || strings.Contains(text, donorVM) || // receipt and genealogy name the donor
			slices.ContainsFunc(behind, func(s string) bool { return strings.TrimSpace(s) == text })
		if bytes.Contains(data, []byte(text)) && !known {
			t.Errorf("still there: %q", text)
		}
	}
	if out, err := exec.Command("e2fsck", "-fn", image).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
	onDisk(t, image, func(d *disk.Disk) { checkKept(t, d, slack) })
}

// plantAll puts every kind of secret into the image three times: alive, deleted, and behind the end
// of a harmless file.
func plantAll(t *testing.T, image string) (all []string, slack map[string]string) {
	t.Helper()
	random, slack := rand.New(rand.NewPCG(1, 2)), map[string]string{}
	note := func(kind string) string {
		text := mint(kind, random)
		all = append(all, strings.TrimSpace(text))
		return text
	}
	i := 0
	mounted(t, image, func(dir string) {
		for kind := range kinds {
			plantFile(t, dir, fmt.Sprintf(livePlaces[i%len(livePlaces)], i), note(kind))
			plantFile(t, dir, fmt.Sprintf("srv/deleted/%d", i), strings.Repeat(note(kind), 3))
			name := fmt.Sprintf("srv/slack/%d", i)
			plantFile(t, dir, name, "harmless\n")
			slack[name] = note(kind)
			i++
		}
		plantFile(t, dir, "usr/lib/kept", strings.Repeat("kept ", 5000))
		plantFile(t, dir, "etc/hostname", donorHost+"\n")
		syscall.Sync()
		if err := os.RemoveAll(filepath.Join(dir, "srv/deleted")); err != nil {
			t.Fatal(err)
		}
	})
	for name, text := range slack {
		writeSlack(t, image, name, text)
	}
	data := readImage(t, image)
	for _, text := range all {
		if !bytes.Contains(data, []byte(text)) {
			t.Fatalf("not planted: %q", text)
		}
	}
	return all, slack
}

func checkKept(t *testing.T, d *disk.Disk, slack map[string]string) {
	t.Helper()
	if got := d.Text("usr/lib/kept"); got != strings.TrimSpace(strings.Repeat("kept ", 5000)) {
		t.Error("a kept file has changed")
	}
	for name := range slack {
		if got := d.Text(name); got != "harmless" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestZeroFree: on a running donor filling the free space reaches what was deleted.
func TestZeroFree(t *testing.T) {
	image := newImage(t, 48)
	random := rand.New(rand.NewPCG(3, 4))
	var all []string
	onDisk(t, image, func(d *disk.Disk) {
		for kind := range kinds {
			text := mint(kind, random)
			all = append(all, strings.TrimSpace(text))
			plantFile(t, d.Dir(), "srv/deleted/"+strings.ReplaceAll(kind, " ", "-"), text)
		}
		syscall.Sync()
		if err := d.Remove("srv/deleted"); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(journal(t, image), []byte("OpenSSH-key")); n == 0 {
			t.Error("no name of a file in the journal to begin with")
		}
		if _, err := FreeSpace(t.Context(), d, FreeZero); err != nil {
			t.Fatal(err)
		}
		if d.Exists(zeroFiles[0]) || d.Exists(zeroFiles[1]) {
			t.Error("the file of zeros is still there")
		}
	})
	data := readImage(t, image)
	if n := bytes.Count(journal(t, image), []byte("OpenSSH-key")); n != 0 {
		t.Errorf("names of files are in the journal %d times", n)
	}
	for _, text := range all {
		if bytes.Contains(data, []byte(text)) {
			t.Errorf("still there: %q", text)
		}
	}
}

// journal is what ext4's journal holds.
func journal(t *testing.T, image string) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "journal")
	if out, err := exec.Command("debugfs", "-R", "dump <8> "+name, image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestZeroFreeReachesAll: no free block is left out, not even those that file systems keep from
// everybody, root included.
func TestZeroFreeReachesAll(t *testing.T) {
	stale := []byte("what was deleted years ago .. ")
	for _, kind := range []struct {
		name   string
		format []string
		// trimmed is how many 4 KiB blocks zeros alone may miss, left how many TRIM may then miss.
		// XFS keeps some for its trees in each of its four allocation groups, some on a list that
		// TRIM skips, as it does what was freed a moment ago.
		trimmed, left int
	}{
		{"ext4", mke2fs, 0, 0},
		{"xfs", []string{"mkfs.xfs", "-q", "-K", "--unsupported"}, 150, 64}, // unsupported: it is as small as ours
	} {
		t.Run(kind.name, func(t *testing.T) {
			image := formatted(t, 64, stale, kind.format...)
			left := func(work func(d *disk.Disk) error) int {
				onDisk(t, image, func(d *disk.Disk) {
					if err := work(d); err != nil {
						t.Fatal(err)
					}
				})
				return (bytes.Count(readImage(t, image), stale)*len(stale) + 4095) / 4096
			}
			if n := left(func(*disk.Disk) error { return nil }); n < 12000 {
				t.Fatalf("only %d stale blocks to begin with", n)
			}
			if n := left(func(d *disk.Disk) error { _, err := zeroFree(t.Context(), d, "."); return err }); n > kind.trimmed {
				t.Errorf("zeros leave %d stale blocks, want %d at most", n, kind.trimmed)
			}
			if n := left(func(d *disk.Disk) error { _, err := FreeSpace(t.Context(), d, FreeZero); return err }); n > kind.left {
				t.Errorf("%d stale blocks are left, want %d at most", n, kind.left)
			}
		})
	}
}

// TestFreeSpaceElsewhere: a root that is only a directory must not fill the file system around it.
func TestFreeSpaceElsewhere(t *testing.T) {
	d := plant(t)
	if n, err := FreeSpace(context.Background(), d, FreeZero); n != 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func unseen(t *testing.T, image string, findings []scan.Finding, all []string) (missed []string) {
	t.Helper()
	data := readImage(t, image)
	for _, text := range all {
		seen := false
		for from := 0; !seen; {
			at := bytes.Index(data[from:], []byte(text))
			if at < 0 {
				break
			}
			at += from
			for _, f := range findings {
				seen = seen || f.Offset >= int64(at) && f.Offset < int64(at+len(text))
			}
			from = at + 1
		}
		if !seen {
			missed = append(missed, text)
		}
	}
	return missed
}

func rawScan(t *testing.T, image string, facts Facts) []scan.Finding {
	t.Helper()
	r, err := scan.Raw(t.Context(), image, nil, scan.Options{Facts: scan.Facts(facts)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Findings
}

var mke2fs = []string{"mke2fs", "-q", "-t", "ext4", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0"}

// newImage makes an empty ext4 file system of so many megabytes, as Debian's installer would.
func newImage(t *testing.T, megabytes int) string {
	t.Helper()
	return formatted(t, megabytes, nil, mke2fs...)
}

// formatted makes a file system on a disk that held stale text from end to end.
func formatted(t *testing.T, megabytes int, stale []byte, format ...string) string {
	t.Helper()
	for _, tool := range []string{format[0], "debugfs", "e2fsck"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting an image needs root")
	}
	image, size := filepath.Join(t.TempDir(), "disk.img"), megabytes<<20
	var content []byte
	if len(stale) > 0 {
		content = bytes.Repeat(stale, size/len(stale))
	}
	if err := errors.Join(os.WriteFile(image, content, 0o600), os.Truncate(image, int64(size))); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(format[0], append(format[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return image
}

func mounted(t *testing.T, image string, work func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("loop devices cannot be mounted here: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	}()
	work(dir)
}

func onDisk(t *testing.T, image string, work func(d *disk.Disk)) {
	t.Helper()
	mounted(t, image, func(dir string) {
		d, err := disk.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		work(d)
	})
}

// writeSlack writes behind the end of a file, into the rest of its last block.
func writeSlack(t *testing.T, image, name, text string) {
	t.Helper()
	out, err := exec.Command("debugfs", "-R", "bmap /"+name+" 0", image).Output()
	if err != nil {
		t.Fatal(err)
	}
	block, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil || block == 0 {
		t.Fatalf("block of %s: %q, %v", name, out, err)
	}
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(text), block*4096+2048)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func readImage(t *testing.T, image string) []byte {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
