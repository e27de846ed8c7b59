package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
)

// twoImages is a pool whose model is at the later of two good versions.
func twoImages(w *fakeWorld) *kamino.Pool {
	p := stale(w)
	w.cloud.put(p, kamino.KindVersion, "2026.11.01", map[string]string{
		kamino.TagBuiltFrom: "n1", kamino.TagBuiltAt: "2026-11-01 00:42:10.000123", kamino.TagRun: "r0", kamino.TagReceipt: "sha256:1"})
	return p
}

// TestRollbackAsks: a person at a terminal is shown what would be done, and asked; nobody else is.
func TestRollbackAsks(t *testing.T) {
	for _, tt := range []struct {
		name, typed string
		args        []string
		done, asked bool
	}{
		{name: "no terminal", done: true},
		{name: "yes", typed: "y\n", asked: true, done: true},
		{name: "YES", typed: "YES\n", asked: true, done: true},
		{name: "no", typed: "n\n", asked: true},
		{name: "return", typed: "\n", asked: true},
		{name: "Ctrl-D", typed: " ", asked: true},
		{name: "--yes", typed: "n\n", args: []string{"--yes"}, done: true},
		{name: "dry run", typed: "n\n", args: []string{"--dry-run"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFakeWorld()
			p := twoImages(w)
			w.typed, w.env["TERM"] = tt.typed, "dumb"
			before := p.Model.Image
			_, errs, code := w.kamino(t, append([]string{"rollback", "--pool", pool1, "--to", "2026.11.01"}, tt.args...)...)
			if changed := w.cloud.pools[p.ID].Model.Image != before; changed != tt.done {
				t.Errorf("the model was changed: %v, want %v\n%s", changed, tt.done, errs)
			}
			if asked := strings.Contains(errs, "[y/N]"); asked != tt.asked || asked && !strings.Contains(errs, "2026.11.01") {
				t.Errorf("asked: %v, want %v\n%s", asked, tt.asked, errs)
			}
			if want := map[bool]int{true: exitRefused, false: exitFine}[tt.asked && !tt.done]; code != want {
				t.Errorf("exit code %d, want %d\n%s", code, want, errs)
			}
			if tt.asked && !tt.done && len(w.writes()) > 0 {
				t.Errorf("after a no: %v", w.writes())
			}
		})
	}
}

// TestWithdrawAsks: as a rollback does.
func TestWithdrawAsks(t *testing.T) {
	for typed, want := range map[string]int{"": exitFine, "y\n": exitFine, "n\n": exitRefused, "n\n--yes": exitFine} {
		t.Run(typed, func(t *testing.T) {
			w := newFakeWorld()
			p := twoImages(w)
			v := w.cloud.artifacts[w.cloud.Address(*p, kamino.KindVersion, "2026.11.01")]
			args := []string{"withdraw", "--pool", pool1, "--version", "2026.11.01", "--reason", "disk fills up"}
			typed, yes := strings.CutSuffix(typed, "--yes")
			if yes {
				args = append(args, "--yes")
			}
			w.typed, w.env["TERM"] = typed, "dumb"
			_, errs, code := w.kamino(t, args...)
			if asked := strings.Contains(errs, "[y/N]"); code != want || asked != (typed != "" && !yes) || asked && !strings.Contains(errs, "disk fills up") {
				t.Errorf("typed %q: exit code %d, want %d\n%s", typed, code, want, errs)
			}
			if done := v.Tags[kamino.TagBad] != ""; done != (want == exitFine) {
				t.Errorf("typed %q: withdrawn: %v\n%s", typed, done, errs)
			}
		})
	}
}

// TestCompletion: a Tab asks cluster and cloud, and is silent when they do not answer.
func TestCompletion(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
		cut  bool // the cloud fails
	}{
		{"pools", []string{"status", "--pool", ""}, pool1, false},
		{"pools of plan", []string{"plan", "--pool", "k8s"}, pool1, false},
		{"pools of auto-update", []string{"auto-update", "--target-vmss", ""}, pool1, false},
		{"pools of restore", []string{"restore", "--pool", ""}, pool1, false},
		{"none that begins so", []string{"rollback", "--pool", "x"}, "", false},
		{"nodes", []string{"update", "--target-node", ""}, "n1 n2 n3", false},
		{"a node", []string{"doctor", "--target-node", "n3"}, "n3", false},
		{"nodes to ignore", []string{"plan", "--ignore-nodes", ""}, "n1 n2 n3", false},
		{"versions", []string{"rollback", "--pool", pool1, "--to", ""}, "original 2026.11.10 2026.11.01", false},
		{"versions of no pool", []string{"rollback", "--to", ""}, "original", false},
		{"versions without a cloud", []string{"rollback", "--pool", pool1, "--to", ""}, "original", true},
		{"formats", []string{"status", "-o", ""}, "table wide json yaml html openmetrics", false},
		{"formats of boot", []string{"boot", "plot", "-o", ""}, "html svg trace", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFakeWorld()
			p := twoImages(w)
			if tt.cut {
				w.cloud.fails[p.ID] = errors.New("no answer")
			}
			out, errs, code := w.kamino(t, append([]string{"__complete"}, tt.args...)...)
			words := strings.Fields(out)
			if n := len(words); code != exitFine || n == 0 || words[n-1] != ":4" { // ShellCompDirectiveNoFileComp
				t.Fatalf("exit code %d: %s%s", code, out, errs)
			}
			if got := strings.Join(words[:len(words)-1], " "); got != tt.want {
				t.Errorf("offers %q, want %q", got, tt.want)
			}
			if done := w.writes(); len(done) > 0 {
				t.Errorf("written: %v", done)
			}
		})
	}
}

// TestTablesDoNotWrap: on a terminal a row is as wide as the terminal at most; sentences, files and
// -o wide are whole.
func TestTablesDoNotWrap(t *testing.T) {
	long := strings.Repeat("far too long ", 20)
	show := func(typed, format string) string {
		w := newFakeWorld()
		v := w.cloud.artifacts[w.cloud.Address(*twoImages(w), kamino.KindVersion, "2026.11.01")]
		v.State, v.Failure = kamino.Failed, long
		w.typed = typed
		out, errs, code := w.kamino(t, "status", "-o", format)
		if code != exitFine {
			t.Fatal(code, errs)
		}
		return out
	}
	row := func(out string) string {
		lines := strings.Split(out, "\n")
		return lines[slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "2026.11.01 ") })]
	}
	if got := row(show("x", "table")); len([]rune(got)) > 80 || !strings.HasSuffix(got, "…") {
		t.Errorf("on a terminal: %q", got)
	}
	if got := row(show("", "table")); len([]rune(got)) < 120 {
		t.Errorf("in a file: %q", got)
	}
	if got := row(show("x", "wide")); !strings.Contains(got, strings.TrimSpace(long)) {
		t.Errorf("wide: %q", got)
	}
	if out := show("", "wide"); !strings.Contains(out, "SEAL POLICY") || !strings.Contains(row(out), "r0") {
		t.Errorf("no more columns:\n%s", out)
	}
}

// TestColumnsOfTerminal: standard output, as main wraps it, is still known as a terminal with its
// width.
func TestColumnsOfTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 97}); err != nil {
		t.Fatal(err)
	}
	a := &app{terminal: isTerminal}
	if got := a.columns(wanted{terminal}); got != 97 {
		t.Errorf("%d columns, want 97", got)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := a.columns(wanted{file}); got != 0 {
		t.Errorf("a file has %d columns", got)
	}
}

// TestBootYAML: every boot verb that writes JSON writes the same as YAML.
func TestBootYAML(t *testing.T) {
	dir := t.TempDir()
	a, b := kubeletBoot(t, filepath.Join(dir, "a.json"), 20), kubeletBoot(t, filepath.Join(dir, "b.json"), 30)
	for _, args := range [][]string{{"show", a}, {"time", a}, {"chain", a}, {"blame", a}, {"compare", a, b}, {"pool", a, b}} {
		asJSON, _, code := bootRun(t, "", append(args, "-o", "json")...)
		asYAML, errs, yamlCode := bootRun(t, "", append(args, "-o", "yaml")...)
		var x, y any
		if err := json.Unmarshal([]byte(asJSON), &x); err != nil || code != exitFine || yamlCode != exitFine {
			t.Fatalf("%v: %v, exit codes %d and %d: %s", args, err, code, yamlCode, errs)
		}
		if err := yaml.Unmarshal([]byte(asYAML), &y); err != nil || strings.HasPrefix(asYAML, "{") {
			t.Fatalf("%v: %v\n%s", args, err, asYAML)
		}
		left, _ := json.Marshal(x)
		right, _ := json.Marshal(y)
		if string(left) != string(right) || len(left) < 10 {
			t.Errorf("%v: JSON and YAML differ:\n%s\n%s", args, left, right)
		}
	}
}

// TestPromoteTwice: the second time there is nothing to do, as with a version that is named; and
// where no version was ever made, no hint asks for the name of one.
func TestPromoteTwice(t *testing.T) {
	w := newFakeWorld()
	p := twoImages(w)
	w.cloud.artifacts[w.cloud.Address(*p, kamino.KindVersion, "2026.11.10")].Tags[kamino.TagReceipt] = "sha256:1"
	out, errs, code := w.kamino(t, "promote", "--pool", pool1)
	if code != exitFine || !strings.Contains(out, "Already promoted: the next node boots from 2026.11.10") || len(w.writes()) > 0 {
		t.Errorf("exit code %d, written %v\n%s%s", code, w.writes(), out, errs)
	}
	w = newFakeWorld()
	withoutImage(w)
	for _, args := range [][]string{{"promote", "--pool", pool1}, {"withdraw", "--pool", pool1, "--reason", "r"}} {
		if _, errs, code := w.kamino(t, args...); code != exitFailed || !strings.Contains(errs, "the pool has no version yet: kamino update") {
			t.Errorf("%v: exit code %d\n%s", args, code, errs)
		}
	}
}
