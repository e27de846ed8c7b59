package agent_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/agent"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/internal/treefile"
)

var update = flag.Bool("update", false, "write what the cases do to the files below want/ in their archives")

// binary is this test's own program, which is the agent when it finds agentEnv in its environment:
// the real program, but for commands, which it only records.
var binary = os.Args[0]

// agentEnv makes this program the agent; logEnv and repliesEnv are of its host.Recorder.
const (
	agentEnv   = "KAMINO_TEST_AGENT"
	logEnv     = "KAMINO_TEST_COMMANDS_LOG"
	repliesEnv = "KAMINO_TEST_COMMANDS_REPLIES"
)

func TestMain(m *testing.M) {
	if os.Getenv(agentEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := agent.MainOn(ctx, host.Recorder{Log: os.Getenv(logEnv), Replies: os.Getenv(repliesEnv)}, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// testCase is an archive of testdata/cases (package treefile has the format). Its comment is a config; root/
// is laid over the base, imds/ and imds2/ are what a fakePlatform answers, want/ is what the commands do.
type testCase struct {
	config
	path string
	tree treefile.Tree
}

// config is a tree from testdata/bases, changes that an archive cannot hold, and commands.
type config struct {
	About   string   `yaml:"about"`
	Base    string   `yaml:"base"`
	Prepare []string `yaml:"prepare"` // link NAME TARGET | dir NAME | mode NAME OCTAL | remove NAME | fill NAME BYTES
	Mount   []string `yaml:"mount"`   // readonly NAME | full . BYTES; needs root
	Replies []string `yaml:"replies"` // of commands, for host.Recorder: COMMAND PREFIX|CODE|OUTPUT
	Sealed  string   `yaml:"sealed"`  // the tree is sealed with these flags before the case begins; what that did is not the case's
	Steps   []step   `yaml:"steps"`
}

// step is one command, or what happens between commands.
type step struct {
	Run     string `yaml:"run"`
	Exit    int    `yaml:"exit"`
	Machine string `yaml:"machine"` // the disk wakes up on this machine: memory is empty, SMBIOS shows this UUID ("none": nothing), on EC2 this instance
	IMDS    string `yaml:"imds"`    // folder of the archive that answers from now on, or "gone"
	Edit    string `yaml:"edit"`    // NAME: CONTENT written into the root
	Order   string `yaml:"order"`   // "UUID" or "UUID BOOT" of the machine that the pods that follow are for
}

// TestCases runs every archive of testdata/cases. With -update it writes what they hold below want/.
func TestCases(t *testing.T) {
	names := archives(t, "testdata/cases")
	if len(names) < 40 {
		t.Fatalf("%d cases", len(names))
	}
	t.Run("reference", func(t *testing.T) { runCase(t, reference) }) // first: the others are compared with it
	for _, name := range names {
		if name == reference {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runCase(t, name)
		})
	}
}

// reference shows every file that a seal writes; other cases show what differs from it.
const reference = "seal-debian12-kubeadm"

type world struct {
	t        *testing.T
	tree     treefile.Tree // of the case
	root     string
	platform *fakePlatform
	env      []string
	out      bytes.Buffer
}

func runCase(t *testing.T, name string) {
	c := readCase(t, name)
	w := newWorld(t, c)
	if c.Sealed != "" {
		w.run("seal "+c.Sealed, 0)
		w.forget()
	}
	before := listTree(t, w.root)
	for _, s := range c.Steps {
		w.step(s)
	}
	after := listTree(t, w.root)
	commands, err := os.ReadFile(filepath.Join(filepath.Dir(w.root), "commands"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	got := map[string]string{"out": w.out.String(), "commands": string(commands), "platform": w.platform.said(), "tree": diffTrees(before, after)}
	for name, text := range got {
		got[name] = w.normal(text)
	}
	var known map[string]string
	if name != reference {
		known = readCase(t, reference).tree.Below("want/root").Texts()
	}
	for name, e := range after {
		text := w.normal(generated(e.content))
		if name == "var/lib/kamino/unknown.list" {
			continue // a line for each file that nothing explains, which agent/seal tests
		}
		if e.interesting(before[name]) && text != known[name] {
			got["root/"+name] = text
		}
	}
	c.compareWant(t, got)
}

func readCase(t *testing.T, name string) testCase {
	t.Helper()
	c := testCase{path: filepath.Join("testdata/cases", name+".txtar")}
	c.tree = readTree(t, c.path)
	dec := yaml.NewDecoder(strings.NewReader(c.tree.Comment))
	dec.KnownFields(true)
	if err := dec.Decode(&c.config); err != nil {
		t.Fatalf("%s: %v", c.path, err)
	}
	if c.About == "" || len(c.Steps) == 0 {
		t.Fatalf("%s: about and steps are required", c.path)
	}
	return c
}

func newWorld(t *testing.T, c testCase) *world {
	t.Helper()
	top := inMemory(t)
	w := &world{t: t, tree: c.tree, root: filepath.Join(top, "root"), platform: servePlatform(t, c.tree.Below("imds").Texts())}
	w.platform.root = w.root
	unpackBase(t, c.Base, w.root)
	unpack(t, c.tree.Below("root"), w.root)
	for _, p := range c.Prepare {
		w.prepare(strings.Fields(p))
	}
	replies := strings.ReplaceAll(strings.Join(c.Replies, "\n"), "|", "\t") + "\n"
	writeFile(t, filepath.Join(top, "replies"), replies)
	w.env = append(os.Environ(), "KAMINO_IMDS="+w.platform.url, "KAMINO_WIRESERVER="+w.platform.url,
		agentEnv+"=1", logEnv+"="+filepath.Join(top, "commands"), repliesEnv+"="+filepath.Join(top, "replies"),
		"KAMINO_KUBELET_HEALTH="+w.platform.url+"/healthz")
	for _, m := range c.Mount {
		w.mount(strings.Fields(m))
	}
	return w
}

// forget drops what was said and recorded so far.
func (w *world) forget() {
	w.out.Reset()
	w.platform.forget()
	if err := os.Remove(filepath.Join(filepath.Dir(w.root), "commands")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
}

func (w *world) step(s step) {
	w.t.Helper()
	switch {
	case s.Machine != "":
		for _, gone := range []string{"run", "sys"} {
			if err := os.RemoveAll(filepath.Join(w.root, gone)); err != nil {
				w.t.Fatal(err)
			}
		}
		if s.Machine != "none" {
			w.smbios(strings.Fields(s.Machine))
		}
	case s.Order != "":
		vm, boot, _ := strings.Cut(s.Order, " ")
		w.env = append(w.env, "KAMINO_MACHINE="+vm, "KAMINO_BOOT="+boot)
	case s.IMDS == "gone":
		w.platform.leave()
	case s.IMDS != "":
		w.platform.answerFrom(w.tree.Below(s.IMDS).Texts())
	case s.Edit != "":
		name, content, _ := strings.Cut(s.Edit, ": ")
		writeFile(w.t, filepath.Join(w.root, name), strings.ReplaceAll(content, `\n`, "\n"))
	default:
		w.run(s.Run, s.Exit)
	}
}

// run executes one verb; --root and what keeps a test small are added.
func (w *world) run(line string, exit int) {
	w.t.Helper()
	args := append(strings.Fields(line), "--root", w.root)
	verb := args[0]
	if verb == "seal" && !slices.Contains(args, "--install") {
		args = append(args, "--free-space", "none")
		if !slices.Contains(args, "--detach") {
			args = append(args, "--no-install")
		}
	}
	args = slices.DeleteFunc(args, func(a string) bool { return a == "--install" })
	if (verb == "boot" || verb == "watch" || verb == "userdata") && !strings.Contains(line, "--imds-timeout") {
		args = append(args, "--imds-timeout", "2s")
	}
	cmd := exec.Command(binary, args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, &out, &out
	err := cmd.Run()
	var failed *exec.ExitError
	code := 0
	if errors.As(err, &failed) {
		code = failed.ExitCode()
	} else if err != nil {
		w.t.Fatal(err)
	}
	if code != exit {
		w.t.Errorf("%s: exit code %d, want %d\n%s", line, code, exit, out.String())
	}
	fmt.Fprintf(&w.out, "$ kamino-agent %s\n%s", line, out.String())
	if code != 0 {
		fmt.Fprintf(&w.out, "exit code %d\n", code)
	}
}

// normal replaces what differs from run to run.
func (w *world) normal(text string) string {
	text = strings.ReplaceAll(text, filepath.Dir(w.root), "<TMP>")
	text = strings.ReplaceAll(text, w.platform.url, "http://<PLATFORM>")
	for _, r := range []struct{ re, by string }{
		{`time=\S+ `, ""},
		{`ask IMDS: [^;]*; last: [^;]*;`, "ask IMDS: <NO ANSWER>;"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "<TIME>"},
		{`sha256:[0-9a-f]{64}`, "<SHA256>"},
		{`(\d+ bytes, )digest [0-9a-f]{8}`, "${1}digest <KEYED>"},
		{`(?m)^(\d{4}-\d\d-\d\d) (\S+)$`, "<DATE> $2"},
		{`127\.0\.0\.1:\d+`, "<PLATFORM>"},
		{`(\d+ files), \d+ bytes`, "$1, <N> bytes"},
		{`(msg=inventory) files="[^"]*" read=\d+`, `$1 files=<CLASSES> read=<N>`}, // each rule changes them; agent/inventory tests them
		{`"machineId":"[0-9a-f]{32}"`, `"machineId":"<MACHINE-ID>"`},
	} {
		text = regexp.MustCompile(r.re).ReplaceAllString(text, r.by)
	}
	return text
}

func (c testCase) compareWant(t *testing.T, got map[string]string) {
	t.Helper()
	if *update {
		c.tree.Files = slices.DeleteFunc(c.tree.Files, func(f treefile.File) bool { return strings.HasPrefix(f.Name, "want/") })
		for name, text := range got {
			if text != "" {
				c.tree.Files = append(c.tree.Files, treefile.File{Name: "want/" + name, Content: text})
			}
		}
		if err := c.tree.Write(c.path); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := c.tree.Below("want").Texts()
	for name, text := range got {
		if diff := cmp.Diff(want[name], text); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is wanted and was not written", name)
	}
}
