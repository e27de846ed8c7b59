package agent_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/internal/bench"
)

// scanToGrep is the bound of the scan's processor time, in times of a grep for tokens over the same files:
// 1.3 times the 5.0 that the scan took before it decoded base64 and judged files that are nothing but a
// token.
const scanToGrep = 6.5

// TestBenchScan measures the scan of 200,000 files, 6 GB in all, that no package brought: texts,
// programs, archives, and texts with base64. Beside it grep reads the same files, twice each, so that
// the figure does not depend on the machine.
func TestBenchScan(t *testing.T) {
	bench.Need(t)
	program, root := buildAgent(t), t.TempDir()
	scanTree(t, root, program, 200_000, 30_000)
	measure := func(name string, args ...string) bench.Cost {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		cost, err := bench.Run(cmd)
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 3)) { // nothing, or something, was found
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: %.1f s, processor %.1f s, %.1f MiB", name, cost.Wall.Seconds(), cost.CPU.Seconds(), cost.Megabytes)
		return cost
	}
	var grep, scan bench.Cost
	for i := range 2 {
		g := measure("grep", "-rcE", `(gh[opsur]_|glpat-|xox[abprs]-|hv[bsr]\.)[A-Za-z0-9_-]{20,}`, root)
		s := measure(program, "verify", "--root", root)
		if i == 0 || g.CPU < grep.CPU {
			grep = g
		}
		s.Megabytes = max(s.Megabytes, scan.Megabytes)
		if i == 0 || s.CPU < scan.CPU {
			scan = s
		}
	}
	bench.Figure("agent-scan-200k-files-6gb", scan.Wall.Seconds(), "s", 60)
	bench.Figure("agent-scan-processor", scan.CPU.Seconds(), "s", 90)
	bench.Figure("agent-scan-to-grep", scan.CPU.Seconds()/max(grep.CPU.Seconds(), 0.01), "times", scanToGrep)
	bench.Figure("agent-scan-memory", scan.Megabytes, "MiB", 128)
}

// TestBenchFindings measures the scan of a million secrets.
func TestBenchFindings(t *testing.T) {
	bench.Need(t)
	program, root := buildAgent(t), t.TempDir()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "token: abcdef.%016d\n", i)
	}
	for i := range 1000 {
		writeFile(t, filepath.Join(root, fmt.Sprintf("srv/%d/tokens.conf", i)), text.String())
	}
	writeFile(t, filepath.Join(root, "srv/tokens.conf"), strings.Repeat(text.String(), 1000))
	started := time.Now()
	cost, err := bench.Run(exec.Command(program, "verify", "--root", root))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("two million secrets: %v", err)
	}
	bench.Figure("agent-scan-two-million-secrets", time.Since(started).Seconds(), "s", 60)
	bench.Figure("agent-scan-two-million-secrets-memory", cost.Megabytes, "MiB", 128)
}

// scanTree writes files of so many bytes on average.
func scanTree(t *testing.T, root, program string, files, size int) {
	t.Helper()
	texts, programs := sources(t), readAll(t, program)
	random := rand.New(rand.NewPCG(1, 2))
	chacha := rand.NewChaCha8([32]byte{1})
	cut := func(from []byte, n int) []byte {
		n = min(n, len(from))
		at := random.IntN(len(from) - n + 1)
		return from[at : at+n]
	}
	var archives [][]byte
	for range 32 {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(cut(texts, 4*size))
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		archives = append(archives, b.Bytes())
	}
	shares := []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.35, 2, 3.5} // of the average
	for i := range files {
		n := int(float64(size) * shares[random.IntN(len(shares))])
		name, data := "", []byte(nil)
		switch kind := i % 10; {
		case kind < 4:
			name, data = "opt/app/%d/%d.txt", cut(texts, n)
		case kind < 6:
			name, data = "var/lib/app/%d/%d.log", logLines(random, n)
		case kind == 6:
			name, data = "srv/app/%d/%d.yaml", encodedLines(chacha, cut(texts, n/2), n/4)
		case kind < 9:
			name, data = "usr/local/lib/app/%d/%d.so", append([]byte("\x7fELF\x02\x01\x01\x00"), cut(programs, n)...)
		default:
			name, data = "home/user/%d/%d.gz", archives[random.IntN(len(archives))]
		}
		name = filepath.Join(root, fmt.Sprintf(name, i/200, i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	syscall.Sync()
}

// sources are the texts of Go's own library, without its tests and what is about keys.
func sources(t *testing.T) []byte {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	err = filepath.WalkDir(src, func(name string, d fs.DirEntry, err error) error {
		const most = 32 << 20
		switch {
		case err != nil:
			return err
		case all.Len() > most:
			return fs.SkipAll
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "crypto"):
			return fs.SkipDir
		case filepath.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go"):
			all.Write(readAll(t, name))
		}
		return nil
	})
	if err != nil || all.Len() == 0 {
		t.Fatalf("no sources in %s: %v", src, err)
	}
	return all.Bytes()
}

func readAll(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// logLines are n bytes as services log them.
func logLines(random *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "2026-11-27T12:%02d:%02d.%06dZ INFO request id=%08x-%04x-4%03x-8%03x-%012x method=GET path=/api/v1/namespaces/default/pods/web-%d status=200 bytes=%d peer=10.%d.%d.%d\n",
			random.IntN(60), random.IntN(60), random.IntN(1e6), random.Uint32(), random.IntN(1<<16), random.IntN(1<<12), random.IntN(1<<12), random.Int64N(1<<48), random.IntN(1e4), random.IntN(1e5), random.IntN(256), random.IntN(256), random.IntN(256))
	}
	return b.Bytes()[:n]
}

// encodedLines are a document with a certificate, broken into lines, and a text, in base64.
func encodedLines(random *rand.ChaCha8, text []byte, n int) []byte {
	content := make([]byte, n)
	_, _ = random.Read(content) // never fails
	var b bytes.Buffer
	b.WriteString("kind: ConfigMap\nbinaryData:\n  text: " + base64.StdEncoding.EncodeToString(text) + "\ndata:\n  ca.crt: |\n    -----BEGIN CERTIFICATE-----\n")
	for encoded := base64.StdEncoding.EncodeToString(content); encoded != ""; {
		line := encoded[:min(len(encoded), 64)]
		encoded = encoded[len(line):]
		b.WriteString("    " + line + "\n")
	}
	b.WriteString("    -----END CERTIFICATE-----\n")
	return b.Bytes()
}
