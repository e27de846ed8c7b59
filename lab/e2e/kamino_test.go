package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/lab"
)

// call is one start of kamino.
type call struct {
	lab *lab.Lab // nil: the shared one
	env map[string]string
	// binary is the program; "": the one that is tested.
	binary string
	// onLine sees each line of the log as it is written.
	onLine func(line logLine, process *os.Process)
}

// outcome is how it ended.
type outcome struct {
	code  int
	out   string // standard output
	log   string // standard error
	lines []logLine
}

// logLine is what is read of a line of the log.
type logLine struct{ text, kind, step string }

var (
	kindField = regexp.MustCompile(` kind=(\S+)`)
	stepField = regexp.MustCompile(` step=(\S+)`)
)

func parseLine(text string) logLine {
	field := func(r *regexp.Regexp) string {
		if found := r.FindStringSubmatch(text); found != nil {
			return found[1]
		}
		return ""
	}
	return logLine{text, field(kindField), field(stepField)}
}

// kamino runs the product to its end in the shared lab.
func kaminoRun(t *testing.T, args ...string) outcome {
	t.Helper()
	return call{}.run(t, args...)
}

func (c call) run(t *testing.T, args ...string) outcome {
	t.Helper()
	if c.lab == nil {
		c.lab = shared
	}
	cmd := exec.CommandContext(t.Context(), cmp.Or(c.binary, binary), args...)
	cmd.Env = environment(c.lab, c.env)
	var out bytes.Buffer
	cmd.Stdout = &out
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var o outcome
	reader := bufio.NewReader(log)
	for {
		text, err := reader.ReadString('\n')
		if text != "" {
			o.log += text
			line := parseLine(strings.TrimSuffix(text, "\n"))
			o.lines = append(o.lines, line)
			if c.onLine != nil {
				c.onLine(line, cmd.Process)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o.code, o.out = cmd.ProcessState.ExitCode(), out.String()
	return o
}

// environment is that of the lab with changes; a variable changed to "" is left out.
func environment(l *lab.Lab, change map[string]string) []string {
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME")}
	maps.Copy(all, l.Environment())
	maps.Copy(all, change)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			list = append(list, name+"="+all[name])
		}
	}
	return list
}

// updateArgs are those of an update which waits no longer than the lab makes it, and watches its
// canary no longer than until it is Ready.
func updateArgs(node string, more ...string) []string {
	return append(plainArgs(node), append([]string{"--prove-for", "0s"}, more...)...)
}

// plainArgs are those of an update that waits no longer than the lab makes it.
func plainArgs(node string) []string {
	return []string{"update", "--target-node", node, "--grace-period", "20",
		"--image", lab.SealImage, "-o", "json"}
}

// report is the JSON that an update prints.
type report struct {
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	engine.Result
}

func (o outcome) report(t *testing.T) report {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("exit code %d; standard output is no JSON: %v\n%s\n%s", o.code, err, o.out, o.log)
	}
	return r
}

// mustSucceed returns the report of an update that must have worked.
func (o outcome) mustSucceed(t *testing.T) report {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	r := o.report(t)
	if !r.OK || r.Error != "" {
		t.Fatalf("exit code 0, but the report says ok=%t error=%q", r.OK, r.Error)
	}
	return r
}
