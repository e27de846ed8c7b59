package scan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// carried are secrets as files hold them that something carries in base64. Tokens are put together
// here, so that no file of this repository holds one.
var carried = map[string]string{
	"jwt":        "ey" + "JhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzL3NlcnZpY2VhY2NvdW50In0.c2lnbmF0dXJlLXNpZ25hdHVyZS1zaWduYXR1cmU",
	"bootstrap":  "token: abcdef.0123456789abcdef\n",
	"bare-token": "abcdef.0123456789abcdef",
	"agent":      "q8Zr2LmT5vXw9BnCkD4sPf7g",
	"kubeconfig": "users:\n- name: x\n  user:\n    client-key-data: " + base64.StdEncoding.EncodeToString([]byte(pemKey)) + "\n",
	"azure.json": `{"cloud":"AzurePublicCloud","aadClientId":"x","aadClientSecret":"abcDEF~0123456789abcdefgh"}`,
	"docker":     `{"auths":{"registry.example.com":{"auth":"dXNlcjpQYTU1dzByZDEyMzQ="}}}`,
	"aws":        "[default]\naws_access_key_id = AK" + "IAIOSFODNN7ABCDEFG\naws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCYzzzzzzzzKEYq\n",
	"password":   "spring.datasource.password=Pa55w0rd1234\n",
	"pem":        pemKey,
	"pem+1":      "x" + pemKey,
	"pem+2":      "#!" + "\n" + pemKey,
	"pem+17":     "# the node's key\n" + pemKey,
}

func wrapped(text string, width int, end string) string {
	var b strings.Builder
	for len(text) > width {
		b.WriteString(text[:width] + end)
		text = text[width:]
	}
	return b.String() + text
}

// carriers are the ways in which something is carried in base64.
func carriers(t *testing.T) map[string]func(text string) string {
	std, raw := base64.StdEncoding.EncodeToString, base64.RawStdEncoding.EncodeToString
	of := func(f func([]byte) string) func(string) string {
		return func(text string) string { return f([]byte(text)) }
	}
	inJSON := func(text string) string {
		data, err := json.Marshal(map[string]any{"files": []any{map[string]string{"content": std([]byte(text)), "path": "/etc/x"}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	return map[string]func(string) string{
		"standard":        of(std),
		"URL":             of(base64.URLEncoding.EncodeToString),
		"no padding":      of(raw),
		"URL, no padding": of(base64.RawURLEncoding.EncodeToString),
		"echo":            func(text string) string { return "#!/bin/sh\necho " + std([]byte(text)) + " | base64 -d > /etc/x\n" },
		"here": func(text string) string {
			return "base64 --decode <<EOF >/etc/x\n" + wrapped(raw([]byte(text)), 76, "\n") + "\nEOF\n"
		},
		"python": func(text string) string {
			return `open("/etc/x", "wb").write(base64.b64decode("` + std([]byte(text)) + `"))`
		},
		"76 columns": func(text string) string { return wrapped(std([]byte(text)), 76, "\n") + "\n" },
		"64, CRLF":   func(text string) string { return wrapped(std([]byte(text)), 64, "\r\n") + "\r\n" },
		"b64": func(text string) string {
			return "#cloud-config\nwrite_files:\n- encoding: b64\n  content: " + std([]byte(text)) + "\n  path: /etc/x\n"
		},
		"b64 in block": func(text string) string {
			return "#cloud-config\nwrite_files:\n- encoding: b64\n  content: |\n    " + wrapped(std([]byte(text)), 60, "\n    ") + "\n  path: /etc/x\n"
		},
		"gz+b64": func(text string) string {
			return "#cloud-config\nwrite_files:\n- encoding: gz+b64\n  content: " + std([]byte(gzipOf(t, text))) + "\n  path: /etc/x\n"
		},
		"gz+b64, no padding": func(text string) string { return "- content: " + raw([]byte(gzipOf(t, text))) + "\n  path: /etc/x\n" },
		"gz+b64, 76":         func(text string) string { return wrapped(std([]byte(gzipOf(t, text))), 76, "\n") },
		"!!binary": func(text string) string {
			return "content: !!binary |\n  " + wrapped(std([]byte(gzipOf(t, text))), 70, "\n  ") + "\n"
		},
		"JSON":         inJSON,
		"JSON in JSON": func(text string) string { data, _ := json.Marshal(inJSON(text)); return string(data) },
		"JSON lines":   func(text string) string { return `{"content":"` + wrapped(std([]byte(text)), 64, `\n`) + `"}` },
		"JSON slashes": func(text string) string {
			return `{"content":"` + strings.ReplaceAll(std([]byte(gzipOf(t, text))), "/", `\/`) + `"}`
		},
		"JSON plus": func(text string) string {
			return `{"content":"` + strings.ReplaceAll(std([]byte(gzipOf(t, text))), "+", `\u002B`) + `"}`
		},
		"twice":     func(text string) string { return std([]byte(std([]byte(text)))) },
		"thrice":    func(text string) string { return std([]byte("x: " + std([]byte(std([]byte(text)))))) },
		"gz twice":  func(text string) string { return std([]byte(std([]byte(gzipOf(t, text))))) },
		"in gzip":   func(text string) string { return std([]byte(gzipOf(t, std([]byte(text))))) },
		"in tar.gz": func(text string) string { return "data: " + std([]byte(gzipOf(t, tarOf(t, "etc/x", text)))) },
		"in zip":    func(text string) string { return "data: " + std([]byte(zipOf(t, "etc/x.conf", text))) },
		"UTF-16": func(text string) string {
			return "powershell -EncodedCommand " + std([]byte(strings.Join(strings.Split(text, ""), "\x00")+"\x00"))
		},
		"data URL":    func(text string) string { return "source: data:;base64," + std([]byte(text)) + "\n" },
		"behind path": func(text string) string { return "x=/etc/app/data/" + std([]byte(text)) },
		"assignment":  func(text string) string { return "CONTENT=" + std([]byte(text)) },
		"in binary":   func(text string) string { return "\x00\x01\x02\xff" + std([]byte(text)) + "\x00\xfe" },
	}
}

// TestBase64: every secret is found in every way in which files carry it in base64.
func TestBase64(t *testing.T) {
	files, said := map[string]string{}, map[string]string{}
	for how, carry := range carriers(t) {
		for what, text := range carried {
			name := fmt.Sprintf("srv/%03d.plan", len(files))
			files[name], said[name] = carry(text), what+", "+how
		}
	}
	r, err := Files(t.Context(), disktest.New(t, files), Options{})
	for _, f := range r.Findings {
		delete(said, f.Path)
		for _, text := range carried {
			if strings.Contains(f.String(), text) {
				t.Errorf("it tells the secret: %s", f)
			}
		}
	}
	for name, what := range said {
		t.Errorf("%s: not found in %q", what, files[name])
	}
	if err != nil || len(r.Skipped) > 0 {
		t.Error(r.Skipped, err)
	}
}

// TestBase64Command: what a command line decodes is a password without being called so.
func TestBase64Command(t *testing.T) {
	password := base64.StdEncoding.EncodeToString([]byte("Tr0ub4dor3x-Regen"))
	for text, want := range map[string]bool{
		"echo " + password + " | base64 -d | docker login -u x --password-stdin registry\n": true, "echo '" + password + "' | openssl base64 -d -A": true,
		"x = base64.b64decode('" + password + "')": true, "echo " + password + " | tee x\n": false, "# echo " + password + " | base64 -d\n": false,
		"echo " + base64.StdEncoding.EncodeToString([]byte("hello beautiful world")) + " | base64 -d\n": false,
	} {
		r, err := Files(t.Context(), disktest.New(t, map[string]string{"srv/run": text}), Options{})
		if err != nil || (len(r.Findings) > 0) != want {
			t.Errorf("%q: %v, %v", text, r.Findings, err)
		}
	}
}

// TestBase64Bounds: texts within each other are read to the depth that is stated, and what is
// behind is told.
func TestBase64Bounds(t *testing.T) {
	text := strings.Repeat("# what this is for: nothing at all\n", 3) + carried["password"]
	for depth := 1; depth < deepest+3; depth++ {
		text = base64.StdEncoding.EncodeToString([]byte(text))
		r, err := Files(t.Context(), disktest.New(t, map[string]string{"srv/x": "x: " + text}), Options{})
		if err != nil || (len(r.Findings) > 0) != (depth <= deepest) || (len(r.Skipped) > 0) != (depth > deepest) {
			t.Errorf("%d times: %v, %q, %v", depth, r.Findings, r.Skipped, err)
		}
	}
	// V, of which all four readings are text, within itself: three readings for each reading.
	r, err := Files(t.Context(), disktest.New(t, map[string]string{"srv/x": strings.Repeat("VVVV", 4<<20)}), Options{})
	if err != nil || len(r.Findings) > 0 {
		t.Error(r.Findings, err)
	}
}

// TestBase64Windows: a text is found wherever the windows end in which a file is read. The text may
// be packed, or longer than a window.
func TestBase64Windows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		return string(b)
	}
	secret := base64.StdEncoding.EncodeToString([]byte("# a key\n" + pemKey))
	packed := base64.StdEncoding.EncodeToString([]byte(gzipOf(t, noise(300<<10)+pemKey)))
	long := func(at, size int) string { // a text of printable lines with the key at a place
		lines := strings.Repeat("a line of a log that goes on\n", size/29)
		return base64.StdEncoding.EncodeToString([]byte(lines[:at] + "\n" + pemKey + lines[at:]))
	}
	for name, text := range map[string]string{
		"first": secret + noise(3<<20), "last": noise(3<<20) + " " + secret, "at the end of a window": strings.Repeat(" ", chunk-40) + secret + noise(chunk),
		"over the end of a window": strings.Repeat(" ", chunk+overlap-40) + secret + strings.Repeat(" ", chunk), "packed": strings.Repeat(" ", chunk-100<<10) + packed + noise(chunk),
		"long, first": long(10, 3<<20), "long, end of a window": long((chunk+overlap)*3/4-100, 3<<20), "long, last": long(3<<20-100, 3<<20), "long, near the overlap": long(chunk*3/4-60, 3<<20),
		"wrapped": wrapped(long(chunk*3/4-60, 3<<20), 76, "\n"),
	} {
		r, err := Files(t.Context(), disktest.New(t, map[string]string{"srv/x": text}), Options{})
		if err != nil || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == "private-key" && strings.Contains(f.Detail, "base64") }) || len(r.Skipped) > 0 {
			t.Errorf("%s: %v, %q, %v", name, r.Findings, r.Skipped, err)
		}
	}
}

// TestBase64Harmless: text that is not base64, or holds no secret, is not a finding.
func TestBase64Harmless(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(random.IntN(256))
	}
	files := map[string]string{
		"srv/ca.pem":    "-----BEGIN CERTIFICATE-----\n" + wrapped(base64.StdEncoding.EncodeToString(append([]byte("\x30\x82\x03\xe8\x30\x82\x02\xd0\xa0\x03\x02\x01\x02"), noise[:900]...)), 64, "\n") + "\n-----END CERTIFICATE-----\n",
		"srv/digest":    "sha256-" + base64.StdEncoding.EncodeToString(noise[:32]) + " sha512-" + base64.StdEncoding.EncodeToString(noise[:64]) + "\n",
		"srv/RECORD":    "awscli/x.py,sha256=QlpoBcdEfGhIjKlMnOpQrStUvWxYz0123456789abcd,1234\nawscli/y.py,sha256=xQlpoBcdEfGhIjKlMnOpQrStUvWxYz0123456789abc,12\n",
		"srv/image":     "url(data:image/png;base64," + base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), noise...)) + ")",
		"srv/paths":     "/usr/lib/systemd/system/multi-user/target/wants\n/var/lib/containerd/some/where/else\nExecStartPreConditionIsSatisfiedAlways\n",
		"srv/hello":     "content: " + base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\nset -e\napt-get install -y jq\n# password = changeme\necho ${PASSWORD}\n")),
		"srv/sum":       "md5: " + base64.StdEncoding.EncodeToString([]byte("6f1d1c0e2f3a4a7b9a550c2b7e8d9f10")),
		"srv/lines":     strings.Repeat("-", 4096) + "\n" + strings.Repeat("A", 4096) + strings.Repeat("_/", 4096),
		"srv/script.sh": "echo aGVsbG8gd29ybGQsIGhvdyBhcmUgeW91Cg== | base64 -d\n",
	}
	for _, text := range harmless {
		files[fmt.Sprintf("srv/%d", len(files))] = "content: " + base64.StdEncoding.EncodeToString([]byte(text+"\n"))
	}
	r, err := Files(t.Context(), disktest.New(t, files), Options{})
	for _, f := range r.Findings {
		t.Errorf("%s: %q", f, files[f.Path][:min(len(files[f.Path]), 200)])
	}
	if err != nil || len(r.Skipped) > 0 {
		t.Error(r.Skipped, err)
	}
}

// TestBase64Raw: a deleted file's text in base64 is found in the raw bytes, and one that software
// brings is none.
func TestBase64Raw(t *testing.T) {
	text := "key: " + base64.StdEncoding.EncodeToString([]byte(pemKey))
	device := disktest.New(t, map[string]string{"disk": "................" + text + "\n................"})
	for name, want := range map[string]int{"usr/share/test/key": 0, "home/x/key": 1} {
		r, err := Raw(t.Context(), device.Host("disk"), disktest.New(t, map[string]string{name: text}), Options{})
		if err != nil || len(r.Findings) != want {
			t.Errorf("with /%s: %v, %v", name, r.Findings, err)
		}
	}
}

// hasText reports whether bytes contain a text: what encodesLine must say before they are decoded.
func hasText(data []byte) bool {
	for from := 0; from+textLeast <= len(data); {
		i := from + textLeast - 1
		for i >= from && printable(data[i]) {
			i--
		}
		if i < from {
			return true
		}
		from = i + 1
	}
	return false
}

// TestSextets: what is asked of a text before it is decoded is what is true of it decoded.
func TestSextets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		values := make([]byte, random.IntN(60))
		for i := range values {
			if values[i] = byte(random.IntN(64)); random.IntN(3) > 0 && i%4 == 0 {
				values[i] = 8 + values[i]%23 // the first of three letters
			}
		}
		plain := sextetBytes(values, nil)
		text, secret := hasText(plain), !slices.ContainsFunc(plain, func(c byte) bool { return !printable(c) })
		secret = secret || plain[0] == derSequence || plain[0] == 'o'
		if encodesLine(values) != text || mayBeSecret(values) != secret {
			t.Fatalf("%v is %q: a line %v, a secret %v", values, plain, !text, !secret)
		}
	}
}

// FuzzBase64: whatever is around a text in base64, it is found, and nothing breaks.
func FuzzBase64(f *testing.F) {
	for _, text := range carried {
		f.Add([]byte(base64.StdEncoding.EncodeToString([]byte(text))), []byte("\n"))
		f.Add([]byte(`"content":"`), []byte(base64.RawURLEncoding.EncodeToString([]byte(text))))
	}
	f.Add([]byte(strings.Repeat("VVVV", 300)), []byte(`\/AAAA\u002bAAAA\n`))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("\x1f\x8b\x08 torn by somebody or other"))), []byte("PK\x03\x04"))
	m, _ := newMatcher(Facts{})
	secret := base64.StdEncoding.EncodeToString([]byte(carried["password"]))
	r := &reader{matcher: m, buf: make([]byte, chunk+overlap), memory: &scratch{}, unpacking: &sync.Mutex{}}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if len(before)+len(after) > 1<<16 {
			return
		}
		data := slices.Concat(before, []byte(" "+secret+" "), after)
		in := &inside{reader: r, seen: &seen{}, left: decodedMost, zips: decodedMost, told: map[string]bool{}, memory: r.memory}
		n := 0
		_, err := m.stream(bytes.NewReader(data), r.buf, in, 0, func(h hit) {
			if h.offset < 0 || h.offset >= int64(len(data)) || len(h.text) == 0 {
				t.Errorf("%s of %d bytes at %d of %d", h.kind, len(h.text), h.offset, len(data))
			}
			if h.where != "" {
				n++
			}
		})
		if err != nil || n == 0 {
			t.Errorf("%d found in %q, %v", n, data, err)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	m, _ := newMatcher(Facts{Host: "k8s-pool1-28346-vmss000003", Addresses: []string{"10.240.0.7"}})
	noise := make([]byte, 3<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.IntN(256))
	}
	for name, text := range map[string]string{
		"text":   "The quick brown fox jumps over the lazy dog. ExecStart=/usr/lib/systemd/systemd-networkd eyJ token KUBE\n",
		"binary": string(noise), "base64": wrapped(base64.StdEncoding.EncodeToString(noise), 64, "\n"),
	} {
		data := bytes.Repeat([]byte(text), 4<<20/len(text))
		buf := make([]byte, chunk+overlap)
		for _, in := range []*inside{nil, ofRaw()} {
			b.Run(fmt.Sprintf("%s/decoded=%v", name, in != nil), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if _, err := m.stream(io.Reader(bytes.NewReader(data)), buf, in, 0, func(hit) {}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
