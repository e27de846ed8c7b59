package scan

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"kamino.dev/kamino/agent/disk/disktest"
)

const token = "token: abcdef.0123456789abcdef\n"

// TestStreamChunks: a match is found once, at its offset, wherever chunks end and however little a
// reader returns.
func TestStreamChunks(t *testing.T) {
	m, _ := newMatcher(Facts{})
	for _, at := range []int{0, 1, chunk - 20, chunk - 1, chunk, chunk + overlap - 10, chunk + overlap, 2*chunk - 3, 3*chunk + 7} {
		data := bytes.Repeat([]byte("x "), 2*chunk)
		copy(data[at:], token)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(data), "half": iotest.HalfReader(bytes.NewReader(data))} {
			var offsets []int64
			n, err := m.stream(r, make([]byte, chunk+overlap), nil, 0, func(h hit) {
				if !h.prose {
					offsets = append(offsets, h.offset)
				}
			})
			if err != nil || n != int64(len(data)) || len(offsets) != 1 || offsets[0] != int64(at) {
				t.Errorf("at %d, %s reads: found at %v of %d bytes, %v", at, name, offsets, n, err)
			}
		}
	}
	_, err := m.stream(iotest.ErrReader(errors.New("bad sector")), make([]byte, chunk+overlap), nil, 0, func(hit) {})
	if err == nil {
		t.Error("a read error is no end of file")
	}
}

// TestHarmless: what looks like a secret and is none.
func TestHarmless(t *testing.T) {
	m, _ := newMatcher(Facts{})
	for _, text := range []string{
		"-----BEGIN CERTIFICATE-----\nMIIB\n", "-----BEGIN PUBLIC KEY-----\nMIIB\n", `strings.Contains(x, "-----BEGIN RSA PRIVATE KEY-----")`,
		"eyJhbGciOiJub25lIn0", "eyJub3QiOiJqd3QifQ.eyJhIjoxMjM0NTY3ODkwfQ.AAAAAAAAAAAAAAAAAAAA", "token: $TOKEN\n", "broken.0123456789abcdef",
		`"aadClientSecret": ""`, "client_secret=${SECRET_FROM_ENV}", "sig=short", "AKIA-not", "ghp_short", "root:*:19700:0:99999:7:::", "root:!:19700:::::: ",
		"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUI=", "Authorization: Bearer $T", `"auth": {"basic": true}`, "<UserPassword></UserPassword>",
	} {
		m.search([]byte(text+"   "), 0, len(text)+3, 0, func(h hit) { t.Errorf("%s in %q", h.kind, text) })
	}
}

func TestFacts(t *testing.T) {
	m, skipped := newMatcher(Facts{Host: "node", Addresses: []string{"10.0.0.7", "127.0.0.1", "fd00::17"}, VMID: "a1b2c3d4-e5f6-4711-8899-aabbccddeeff"})
	if len(skipped) != 1 || !strings.Contains(skipped[0], "too short or too common") {
		t.Errorf("skipped %q", skipped)
	}
	for text, want := range map[string]int{
		"at 10.0.0.7:80": 1, "at 10.0.0.70": 0, "at 110.0.0.7": 0, "at 10.0.0.7.8": 0, "at 10.0.0.7.": 1, "x[fd00::17]y": 1, "fd00::170": 0, "fd00::17:1": 0, "127.0.0.1": 0,
		"A1B2C3D4-E5F6-4711-8899-AABBCCDDEEFF": 1, "a1b2c3d4e5f647118899aabbccddeeff": 1, "d4c3b2a1-f6e5-1147-8899-aabbccddeeff": 1, "0a1b2c3d4e5f647118899aabbccddeeff": 0, "node": 0,
	} {
		t.Run(text, func(t *testing.T) {
			n := 0
			m.search([]byte(text+"   "), 0, len(text)+3, 0, func(hit) { n++ })
			if n != want {
				t.Errorf("%q: %d matches, want %d", text, n, want)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	d := disktest.New(t, map[string]string{"srv/a": token, "usr/share/a": token, "proc/a": token, "var/lib/kamino/aside/000001": token, "var/log/ancestry.log": "2026-11-21 donor-host-1\n",
		"srv/names": "donor-host-1 and DONOR-HOST-1\n", "root/.ssh/authorized_keys": "ssh-ed25519 AAAA\n", "etc/ssh/ssh_host_rsa_key": "", "tmp/x": "x", "srv/allowed": token})
	o := Options{Facts: Facts{Host: "donor-host-1.example"}, Allow: func(kind, name string) bool { return name == "srv/allowed" && kind == "token-bootstrap" }}
	for _, deep := range []bool{false, true} {
		o.Deep = deep
		r, err := Files(t.Context(), d, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Kind+" "+f.Path)
			if strings.Contains(f.String(), "abcdef") {
				t.Errorf("tells the secret: %s", f)
			}
		}
		want := "token-bootstrap proc/a, ssh-user-key root/.ssh/authorized_keys, token-bootstrap srv/a, donor-host srv/names, donor-host srv/names, sensitive-place tmp/x"
		if deep {
			want += ", token-bootstrap usr/share/a"
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("deep %v: %s", deep, strings.Join(got, ", "))
		}
	}
}

// TestAttachedMemory: on a disk that is looked at from outside, /run, /dev and /sys are directories
// of the disk like all others.
func TestAttachedMemory(t *testing.T) {
	files := map[string]string{"run/kubeadm-join-config.yaml": token, "dev/shm/key.pem": pemKey, "sys/x": token, "proc/x": token}
	r, err := Files(t.Context(), disktest.New(t, files), Options{})
	for _, f := range r.Findings {
		delete(files, f.Path)
	}
	if err != nil || len(files) > 0 {
		t.Errorf("not found: %v, %v", files, err)
	}
}

// TestRawExcuses: in raw bytes the keys that software brings and the genealogy's text are no
// findings; the same name elsewhere is.
func TestRawExcuses(t *testing.T) {
	d := disktest.New(t, map[string]string{"usr/share/doc/key": token, "var/log/ancestry.log": "2026-11-20 donor-host-0\n2026-11-21 donor-host-1\n"})
	device := filepath.Join(t.TempDir(), "disk")
	write := func(text string) []Finding {
		if err := os.WriteFile(device, []byte("........................"+text+"........................"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Raw(t.Context(), device, d, Options{Facts: Facts{Host: "donor-host-1"}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Findings
	}
	if found := write(token + "2026-11-20 donor-host-0\n2026-11-21 donor-host-1\n"); len(found) != 0 {
		t.Errorf("expected: %v", found)
	}
	if found := write("token: abcdef.0123456789abcdee\n"); len(found) != 1 {
		t.Errorf("another token: %v", found)
	}
	if found := write("name: donor-host-1\n"); len(found) != 1 {
		t.Errorf("the name elsewhere: %v", found)
	}
}

// TestRawBlocks: a file begins where a block does, whatever another file's block before it ends
// with.
func TestRawBlocks(t *testing.T) {
	const docker = "dckr_pat_vmwxOCebILpb6HYwtfEUDnMBUrt\n"
	for before, want := range map[int]int{1024: 1, 4096: 1, 40960: 1, 4095: 0, 1000: 0} {
		device := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(device, []byte(strings.Repeat("k", before)+docker+strings.Repeat("k", 5000)), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Raw(t.Context(), device, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) != want {
			t.Errorf("behind %d bytes: %v", before, r.Findings)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	m, _ := newMatcher(Facts{Host: "k8s-pool1-28346-vmss000003", Addresses: []string{"10.240.0.7"}})
	data := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. eyJ token KUBE "), 1<<14)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		m.search(data, 0, len(data), 0, func(hit) {})
	}
}
