package capture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino/agent/capture/internal/fakesystemd"
	"kamino.dev/kamino/boot"
)

// oracleBoots is how many random boots are compared. KAMINO_ORACLE_BOOTS says otherwise; with SEEDS
// set, as `make test` does, it is a fifth of that: 2,000 of 10,000.
const oracleBoots = 160

const (
	oracleEnv   = "KAMINO_ORACLE_CHILD" // "FROM-TO": this process is inside the namespace and compares these seeds
	oracleCount = "KAMINO_ORACLE_BOOTS"

	oracleReaders = "readers" // instead of FROM-TO: compare what our readers read of real tools' output
	oracleEdges   = "edges"   // instead of FROM-TO: compare the edge cases
)

func TestMain(m *testing.M) {
	if span := os.Getenv(oracleEnv); span != "" {
		os.Exit(oracleChild(span))
	}
	os.Exit(m.Run())
}

// TestOracle compares the compat output with that of the real systemd-analyze, which talks to a
// fake systemd in a mount namespace of its own.
func TestOracle(t *testing.T) {
	requireNamespace(t)
	n := oracleBoots
	for _, from := range []struct {
		env  string
		part int
	}{{"SEEDS", 5}, {oracleCount, 1}} {
		t.Run(from.env, func(t *testing.T) {
			if v := os.Getenv(from.env); v != "" {
				if _, _, span := strings.Cut(v, "-"); span {
					return // the walks' FROM-TO
				}
				count, err := strconv.Atoi(v)
				if err != nil {
					t.Fatalf("%s=%q: %v", from.env, v, err)
				}
				n = max(count/from.part, 1)
			}
		})
	}
	const workers = 2
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			out, err := inNamespace(fmt.Sprintf("%d-%d", w*n/workers, (w+1)*n/workers))
			if err != nil {
				t.Errorf("worker %d: %v\n%s", w, err, out)
			}
		})
	}
	wg.Wait()
	t.Logf("%d boots compared with the real systemd-analyze", n)
}

// TestOracleEdges compares the edge cases, each by its name.
func TestOracleEdges(t *testing.T) {
	requireNamespace(t)
	out, err := inNamespace(oracleEdges)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if want := fmt.Sprintf("%d edge cases compared", len(edges())); !strings.Contains(string(out), want) {
		t.Errorf("the comparison did not come to its end, which is %q:\n%s", want, out)
	}
}

func edgesChild(s *fakesystemd.Server) int {
	failed := 0
	for _, e := range edges() {
		s.Set(e.boot)
		if diff := askAll(e.boot, e.questions()); diff != "" {
			failed++
			fmt.Printf("%s: %s\n", e.name, diff)
		}
	}
	fmt.Printf("%d edge cases compared\n", len(edges()))
	return min(failed, 1)
}

func requireNamespace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: the oracle is not there to ask")
	}
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespace here (needs root and unshare): %v %s", err, out)
	}
}

// inNamespace runs this test binary again with a mount namespace of its own.
func inNamespace(span string) ([]byte, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), oracleEnv+"="+span)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return cmd.CombinedOutput()
}

func oracleChild(span string) int {
	server, err := ownSystemd()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	switch span {
	case oracleReaders:
		return readersChild(server)
	case oracleEdges:
		return edgesChild(server)
	}
	from, to, _ := strings.Cut(span, "-")
	first, _ := strconv.Atoi(from)
	last, _ := strconv.Atoi(to)
	failed := 0
	for seed := first; seed < last; seed++ {
		c := randomBoot(uint64(seed))
		server.Set(c)
		if diff := compareBoot(c, seed); diff != "" {
			failed++
			fmt.Printf("boot of seed %d: %s\n", seed, diff)
			if failed == 3 {
				break
			}
		}
	}
	if failed > 0 {
		return 1
	}
	return 0
}

// ownSystemd gives this namespace a /run with nothing in it but a fake systemd.
func ownSystemd() (*fakesystemd.Server, error) {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount an empty /run: %w", err)
	}
	if err := os.MkdirAll("/run/systemd/system", 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", "/run/systemd/private")
	if err != nil {
		return nil, err
	}
	s := &fakesystemd.Server{}
	go func() { _ = s.Serve(l) }() // ends with the process
	return s, nil
}

// question is one command line of systemd-analyze and our answer to it.
type question struct {
	args []string
	ours func(*bytes.Buffer) error
}

func compareBoot(c *boot.Capture, seed int) string {
	fuzz := ""
	switch seed % 4 {
	case 1:
		fuzz = "1500us"
	case 2:
		fuzz = "3s"
	}
	var units []string
	if seed%3 > 0 {
		for i := 0; i < len(c.Units); i += 7 {
			units = append(units, c.Units[i].ID)
		}
		units = append(units, "no-such.service")
	}
	return askAll(c, boots(c, fuzz, units...))
}

// boots are the three questions about a boot.
func boots(c *boot.Capture, fuzz string, units ...string) []question {
	units = slices.DeleteFunc(units, func(u string) bool { return u == "" })
	args := []string{"critical-chain"}
	width := boot.Micros(0)
	if fuzz != "" {
		args = append(args, "--fuzz="+fuzz)
		d, err := time.ParseDuration(fuzz)
		if err != nil {
			panic(err)
		}
		width = boot.Micros(d.Microseconds())
	}
	return []question{
		{[]string{"time"}, func(b *bytes.Buffer) error { return boot.CompatTime(b, c) }},
		{[]string{"blame"}, func(b *bytes.Buffer) error { return boot.CompatBlame(b, c) }},
		{append(args, units...), func(b *bytes.Buffer) error { _, err := boot.CompatChain(b, c, width, units...); return err }},
	}
}

func askAll(c *boot.Capture, questions []question) string {
	for _, q := range questions {
		if diff := ask(q); diff != "" {
			doc, _ := json.Marshal(c)
			return fmt.Sprintf("systemd-analyze %s:\n%s\nthe boot: %.4000s", strings.Join(q.args, " "), diff, doc)
		}
	}
	return ""
}

// ask compares standard output. Where systemd-analyze refuses or aborts we must refuse, too.
func ask(q question) string {
	cmd := exec.Command("systemd-analyze", append([]string{"--no-pager"}, q.args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
	var theirs, stderr, ours bytes.Buffer
	cmd.Stdout, cmd.Stderr = &theirs, &stderr
	theirErr := cmd.Run()
	var exit *exec.ExitError
	if theirErr != nil && !errors.As(theirErr, &exit) {
		return theirErr.Error()
	}
	ourErr := q.ours(&ours)
	if (theirErr != nil) != (ourErr != nil) {
		return fmt.Sprintf("systemd-analyze: %v (%s); we: %v", theirErr, stderr.String(), ourErr)
	}
	if theirErr != nil {
		return ""
	}
	return cmp.Diff(theirs.String(), ours.String())
}
