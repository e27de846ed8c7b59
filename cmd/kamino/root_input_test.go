package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
)

// Each row is something that a user may type wrong. The message names the thing
// and says what to type; nothing is written anywhere.
func TestBadInput(t *testing.T) {
	pool := []string{"--pool", pool1}
	tests := []struct {
		name  string
		args  []string
		world func(*fakeWorld)
		want  []string // in stderr
		code  int
	}{
		{name: "unknown command", args: []string{"updat"}, want: []string{`"updat"`, "kamino update"}},
		{name: "a command like no other", args: []string{"xyzzy"}, want: []string{`"xyzzy"`, "kamino --help"}},
		{name: "a typo before flags", args: []string{"upate", "--target-node", "n1"}, want: []string{`"upate"`, "kamino update"}},
		{name: "help for no command", args: []string{"select", "--help"}, want: []string{`"select"`, "kamino --help"}},
		{name: "help of no command", args: []string{"help", "select"}, want: []string{`"select"`, "kamino --help"}},
		{name: "a machine for a node", args: []string{"update", "--target-node", "azure:///subscriptions/x"}, want: []string{"azure:///subscriptions/x", "kubectl get nodes"}},
		{name: "a machine for a doctor", args: []string{"doctor", "--target-node", "azure:///subscriptions/x"}, want: []string{"azure:///subscriptions/x", "kubectl get nodes"}},
		{name: "an unknown pool by the other flag", args: []string{"plan", "--target-vmss", "nope"}, want: []string{`"nope"`, "the pools are " + pool1}},
		{name: "and the other way round", args: []string{"auto-update", "--pool", "nope"}, want: []string{`"nope"`, "the pools are " + pool1}},
		{name: "exit code of a rollback", args: append([]string{"rollback", "--detailed-exitcode"}, pool...), want: []string{"--detailed-exitcode", "--dry-run --detailed-exitcode"}},
		{name: "log format", args: []string{"status", "--log-format", "xml"}, want: []string{`"xml"`, "text or json"}},
		{name: "unknown flag", args: []string{"plan", "--poool", "x"}, want: []string{"--poool", "did you mean --pool?", "kamino plan --help"}},
		{name: "an unknown shell", args: []string{"completion", "zsh2"}, want: []string{`"zsh2"`, "did you mean: kamino completion zsh"}},
		{name: "two shells", args: []string{"completion", "bash", "zsh"}, want: []string{`"zsh"`, "kamino completion bash --help"}},
		{name: "a boot that is not there", args: []string{"boot", "show", "/nowhere"}, want: []string{"Error: /nowhere: no such file or directory\n", "kamino boot --help lists"}},
		{name: "a comparison with nothing", args: []string{"boot", "compare", "/nowhere", "/nowhere"}, want: []string{"Error: /nowhere: no such", "kamino boot --help lists"}},
		{name: "boots that are not there", args: []string{"boot", "pool", "/nowhere"}, want: []string{"Error: /nowhere: no such", "kamino boot --help lists"}},
		{name: "a budget without a unit that is known", args: []string{"boot", "compare", "--budget", "5w", "a", "b"}, want: []string{`"w"`, "s, m, h or d"}},
		{name: "half a flag", args: []string{"update", "--target-no", "n2"}, want: []string{"did you mean --target-node?"}},
		{name: "no flag at all", args: []string{"plan", "--colour", "x"}, want: []string{"Hint: kamino plan --help"}},
		{name: "unknown pool", args: []string{"plan", "--pool", "nope"}, want: []string{`"nope"`, "the pools are " + pool1}},
		{name: "unknown pool for auto-update", args: []string{"auto-update", "--target-vmss", "nope"}, want: []string{`"nope"`, "the pools are " + pool1}},
		{name: "a difference from no node", args: []string{"status", "--diff"}, want: []string{"--diff and --node", "--diff --node NODE"}},
		{name: "a difference as a page", args: []string{"status", "--diff", "--node", "n1", "-o", "html"}, want: []string{"-o html", "--diff"}},
		{name: "the history", args: []string{"history"}, want: []string{`"history"`, "kamino status"}},
		{name: "a node without a difference", args: []string{"status", "--node", "n1"}, want: []string{"--diff and --node"}},
		{name: "unknown pool for status", args: []string{"status", "--pool", "nope"}, want: []string{`"nope"`, pool1}},
		{name: "unknown pool for rollback", args: []string{"rollback", "--pool", "nope"}, want: []string{`"nope"`, pool1}},
		{name: "pool with no nodes", args: []string{"plan", "--pool", "k8s-empty-vmss"},
			world: func(w *fakeWorld) { w.cloud.addPool("k8s-empty-vmss") }, want: []string{"k8s-empty-vmss", "no node belongs to it"}},
		{name: "ALL and a pool", args: []string{"auto-update", "--target-vmss", "ALL", "--target-vmss", pool1}, want: []string{"ALL", pool1, "omit one"}},
		{name: "ALL and a pool in one list", args: []string{"plan", "--pool", "all," + pool1}, want: []string{"ALL", pool1}},
		{name: "a pool twice", args: []string{"plan", "--pool", pool1, "--pool", pool1}, want: []string{"twice", pool1}},
		{name: "stray argument", args: []string{"auto-update", pool1}, want: []string{pool1, "--target-vmss"}},
		{name: "no candidates wanted", args: []string{"plan", "--minimum-candidates", "0"}, want: []string{"invalid number of candidates 0", "--minimum-candidates 1"}},
		{name: "negative candidates", args: []string{"auto-update", "--minimum-candidates", "-2"}, want: []string{"-2", "--minimum-candidates 1"}},
		{name: "negative age", args: []string{"plan", "--maximum-image-age", "-1"}, want: []string{"negative", "--maximum-image-age 0"}},
		{name: "negative ready time", args: []string{"plan", "--minimum-ready-time", "-5m"}, want: []string{`"-5m"`, "s, m, h or d"}},
		{name: "unknown suffix", args: []string{"plan", "--minimum-ready-time", "5w"}, want: []string{`"w"`, "s, m, h or d"}},
		{name: "endless ready time", args: []string{"plan", "--minimum-ready-time", "99999999999999999999d"}, want: []string{"99999999999999999999d"}},
		{name: "no time to boot", args: []string{"patch", "--pool", pool1, "--return", "30s", "--min-ready", "7s"}, want: []string{"30s", "7s", "--return 1m", "--min-ready 0"}},
		{name: "no number", args: []string{"plan", "--minimum-candidates", "many"}, want: []string{"many", "whole number"}},
		{name: "history too short", args: []string{"update", "--target-node", "n2", "--max-history", "1"}, want: []string{"history 1", "--max-history 2"}},
		{name: "negative history", args: []string{"auto-update", "--max-history", "-3"}, want: []string{"-3", "--max-history 2"}},
		{name: "negative new nodes", args: []string{"auto-update", "--new-updated-nodes", "-1"}, want: []string{"-1", "--new-updated-nodes 0"}},
		{name: "a limit of no proof", args: []string{"promote", "--pool", pool1, "--version", "2026.11.10", "--prove-for", "1m"}, want: []string{"--prove-for has no effect", "--prove canary"}},
		{name: "another proof of what is named", args: []string{"promote", "--pool", pool1, "--version", "2026.11.10", "--prove", "pool"}, want: []string{`"pool"`, "--prove canary"}},
		{name: "a proof of nothing", args: []string{"promote", "--pool", pool1, "--prove", "canary"}, want: []string{"no version to prove is named", "--version"}},
		{name: "probe of no proof", args: []string{"update", "--target-node", "n2", "--prove", "none", "--probe", "/dev/null"}, want: []string{"--probe", "--prove canary"}},
		{name: "a budget of no history", args: []string{"update", "--target-node", "n2", "--boot-budget", "0.5x"}, want: []string{`"0.5x"`, "for instance 2x"}},
		{name: "no pools may be away", args: []string{"auto-update", "--max-unavailable-pools", "0"}, want: []string{`"0"`, "or all"}},
		{name: "some pools may be away", args: []string{"auto-update", "--max-unavailable-pools", "some"}, want: []string{`"some"`, "or all"}},
		{name: "negative NotReady", args: []string{"auto-update", "--max-not-ready", "-1"}, want: []string{"-1", "--max-not-ready 0"}},
		{name: "node ignored twice", args: []string{"plan", "--ignore-nodes", "n1", "--ignore-nodes", "n1"}, want: []string{`"n1"`, "twice"}},
		{name: "empty name", args: []string{"plan", "--ignore-nodes", ""}, want: []string{"empty name"}},
		{name: "signal is ignored too", args: []string{"plan", "--node-ignore-annotation", kamino.KuredLastPatch.Annotation},
			want: []string{kamino.KuredLastPatch.Annotation, "--node-ignore-annotation"}},
		{name: "one signal for both", args: []string{"plan", "--last-patch-annotation", "a", "--pending-reboot-annotation", "a"}, want: []string{"a is given for", "two different"}},
		{name: "condition is ignored too", args: []string{"plan", "--pending-reboot-annotation", "condition:X", "--ignore-condition", "X"}, want: []string{"condition X", "--ignore-condition"}},
		{name: "no annotation's name", args: []string{"plan", "--last-patch-annotation", "a b"}, want: []string{`"a b"`, "condition:TYPE"}},
		{name: "unknown output", args: []string{"status", "-o", "xml"}, want: []string{`"xml"`, "table, wide, json, yaml, html or openmetrics"}},
		{name: "bad extension rule", args: []string{"auto-update", "--keep-extension", "x"}, want: []string{`"x"`, "publisher/type"}},
		{name: "bad subscription", args: []string{"status", "-s", "mine"}, want: []string{`"mine"`}},
		{name: "bad log level", args: []string{"status", "--log-level", "LOUD"}, want: []string{`"LOUD"`, "DEBUG"}},
		{name: "bad log prefix", args: []string{"status", "--log-prefix", "a:b"}, want: []string{`"a:b"`}},
		{name: "no donor", args: []string{"update"}, want: []string{"--target-node", "kubectl get nodes"}},
		{name: "unknown donor", args: []string{"update", "--target-node", "nope"}, want: []string{`"nope"`, "kubectl get nodes"}, code: exitRefused},
		{name: "unknown donor of a plan", args: []string{"update", "--target-node", "nope", "--dry-run"}, want: []string{"node nope refused", "kubectl get nodes"}, code: exitRefused},
		{name: "a pool without its flag", args: []string{"plan", pool1}, want: []string{"unexpected argument", "--pool " + pool1}},
		{name: "a run that is at work", args: []string{"update", "--target-node", "n2"}, world: held,
			want: []string{"r9", "SIGTERM to process host/77", "kamino pause --reason", "after 1m0s"}, code: exitRefused},
		{name: "donor that this runs on", args: []string{"update", "--target-node", "n2"},
			world: func(w *fakeWorld) { w.env["NODE_ID"] = "n2" }, want: []string{"NODE_ID", `"n2"`, "choose another node"}, code: exitRefused},
		{name: "a version without its flag", args: append([]string{"withdraw", "--reason", "r", "2026.11.10"}, pool...), want: []string{`"2026.11.10"`, "if that is a version: --version 2026.11.10;"}},
		{name: "a target without its flag", args: append([]string{"rollback", "2026.11.10"}, pool...), want: []string{"if that is a version: --to 2026.11.10;"}},
		{name: "a node without its flag", args: []string{"patch", "n1"}, want: []string{"if that is a pool: --pool n1, a node: --target-node n1;"}},
		{name: "the flag of rollback", args: append([]string{"promote", "--to", "2026.11.10"}, pool...), want: []string{"--to", "did you mean --version?"}},
		{name: "the flag of promote", args: append([]string{"rollback", "--version", "2026.11.10"}, pool...), want: []string{"--version", "did you mean --to?"}},
		{name: "more pools", args: []string{"status", "--pools", pool1}, want: []string{"--pools", "did you mean --pool?"}},
		{name: "protected settings without a file", args: append([]string{"rollback", "--to", "original", "--protected-settings", "cse="}, pool...), want: []string{`"cse="`, "NAME=FILE"}},
		{name: "protected settings that are not there", args: append([]string{"rollback", "--to", "original", "--protected-settings", "cse=/nowhere"}, pool...), want: []string{"/nowhere", "cse=none"}},
		{name: "no time for a patch", args: append([]string{"patch", "--timeout", "0"}, pool...), want: []string{"invalid time limit 0s", "--timeout 1m to 4h"}},
		{name: "no room for a patch", args: append([]string{"patch", "--room", "-5"}, pool...), want: []string{"invalid room -5", "--room 1 or more, in MiB"}},
		{name: "rollback without a pool", args: []string{"rollback"}, want: []string{"--pool"}},
		{name: "rollback without a target", args: append([]string{"rollback"}, pool...), want: []string{"no earlier good version", "--to 2026.11.10"}},
		{name: "rollback of a model that is no prototype", args: append([]string{"rollback"}, pool...),
			world: func(w *fakeWorld) { w.cloud.pools[fakePool(pool1)].Model.Image = stock }, want: []string{"nothing to roll back", stock}},
		{name: "rollback to a missing version", args: append([]string{"rollback", "--to", "2026.01.01"}, pool...), want: []string{`"2026.01.01"`, "does not exist", "--to 2026.11.10"}},
		{name: "rollback to nonsense", args: append([]string{"rollback", "--to", "last tuesday"}, pool...), want: []string{`"last tuesday"`, "--to 2026.11.10"}},
		{name: "rollback to a failed version", args: append([]string{"rollback", "--to", "2026.11.09"}, pool...), world: failedVersion,
			want: []string{"2026.11.09", "Failed", "the disk was odd", "--to 2026.11.10"}},
		{name: "rollback to a model that was never saved", args: append([]string{"rollback", "--to", "original"}, pool...), want: []string{"original model is not saved", "--to 2026.11.10"}},
		{name: "custom data for a version", args: append([]string{"rollback", "--to", "2026.11.10", "--keep-custom-data"}, pool...), want: []string{"2026.11.10", "--to original"}},
		{name: "custom data that is not there", args: append([]string{"rollback", "--to", "original", "--custom-data", "/nowhere"}, pool...), want: []string{"/nowhere", "customData"}},
		{name: "protected settings without a name", args: append([]string{"rollback", "--to", "original", "--protected-settings", "x.json"}, pool...), want: []string{`"x.json"`, "NAME=FILE"}},
		{name: "rollback of a pool that is upgraded by itself", args: append([]string{"rollback", "--to", "2026.11.01"}, pool...), world: automatic,
			want: []string{"upgradePolicy.mode", `"Automatic"`, "Manual"}, code: exitRefused},
		{name: "rollback while a run is alive", args: append([]string{"rollback", "--to", "2026.11.01"}, pool...), world: held,
			want: []string{"r9", "host/77", "kamino status"}, code: exitRefused},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newFakeWorld()
			stale(w)
			if test.world != nil {
				test.world(w)
			}
			out, errs, code := w.kamino(t, test.args...)
			want := test.code
			if want == 0 {
				want = exitFailed
			}
			if code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			for _, s := range test.want {
				if !strings.Contains(errs, s) {
					t.Errorf("stderr lacks %q:\n%s", s, errs)
				}
			}
			if out != "" {
				t.Errorf("stdout is %q", out)
			}
			if wrote := w.writes(); len(wrote) > 0 {
				t.Errorf("something was written: %q", wrote)
			}
		})
	}
}

func failedVersion(w *fakeWorld) {
	v := w.cloud.put(w.cloud.pools[fakePool(pool1)], kamino.KindVersion, "2026.11.09", map[string]string{kamino.TagBuiltFrom: "n1"})
	v.State, v.Ready, v.Failure = kamino.Failed, false, "the disk was odd"
}

func automatic(w *fakeWorld) {
	p := w.cloud.pools[fakePool(pool1)]
	w.cloud.put(p, kamino.KindVersion, "2026.11.01", map[string]string{kamino.TagBuiltFrom: "n1"})
	p.Refusals = []kamino.Refusal{{Code: "upgrade-policy", Field: "properties.upgradePolicy.mode", Value: "Automatic",
		Why: "a change of the model would replace running nodes", Do: "set the mode to Manual"}}
}

// held makes a run hold the pool whose process renews the lease whenever it is
// looked at.
func held(w *fakeWorld) {
	p := w.cloud.pools[fakePool(pool1)]
	w.cloud.put(p, kamino.KindVersion, "2026.11.01", map[string]string{kamino.TagBuiltFrom: "n1"})
	w.cluster.alive = true
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Holder: "r9", Process: "host/77", Record: kamino.Record{Donor: "n3", Step: "drain"}}
}

// TestProbeRead: each command that has --probe reads the file, and finds out before any call what
// is wrong with it; also in $PROBE.
func TestProbeRead(t *testing.T) {
	pod, image := t.TempDir()+"/pod.yaml", t.TempDir()+"/image.yaml"
	for name, text := range map[string]string{pod: "kind: Pod\napiVersion: v1\n",
		image: "kind: Job\napiVersion: batch/v1\nmetadata: {namespace: default}\nspec: {template: {spec: {containers: [{name: main, image: 'My Image'}]}}}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{{"update", "--target-node", "n2"}, {"update", "--target-node", "n2", "--dry-run"}, {"plan"}, {"doctor"}, {"auto-update"}, {"auto-update", "--dry-run"}} {
		for _, tt := range []struct {
			file, env, want string
			code            int
		}{
			{file: "/nowhere/probe.yaml", want: "/nowhere/probe.yaml", code: exitFailed},
			{file: pod, want: "not a Job of batch/v1", code: exitFailed},
			{file: image, want: `"My Image"`, code: exitFailed},
			{env: "kind: Pod", want: "not a Job of batch/v1", code: exitFailed},
		} {
			t.Run(tt.file, func(t *testing.T) {
				w := newFakeWorld()
				stale(w)
				args := command
				if w.env["PROBE"] = tt.env; tt.file != "" {
					args = append(slices.Clone(command), "--probe", tt.file)
				}
				out, errs, code := w.kamino(t, args...)
				if out != "" || code != tt.code || !strings.Contains(errs, tt.want) || !strings.Contains(errs, "one Job of batch/v1") || len(w.writes()) > 0 {
					t.Errorf("%q: exit code %d, want %d and %q\n%s%s", args, code, tt.code, tt.want, out, errs)
				}
			})
		}
	}
}

// TestMistakesEndWithOne: what is wrong with a command line by itself, with its values, files or
// environment, is found before anything is written, ends with exit code 1 whichever command it is,
// and says what to type.
func TestMistakesEndWithOne(t *testing.T) {
	wrong := t.TempDir() + "/wrong"
	if err := os.WriteFile(wrong, []byte("kind: [not what is wanted"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := map[string][]string{"promote": {"--pool", pool1}, "withdraw": {"--pool", pool1, "--reason", "r"}, "rollback": {"--pool", pool1, "--to", "original"},
		"pause": {"--reason", "r"}, "patch": {"--pool", pool1}, "update": {"--target-node", "n2"}}
	values := map[string]string{"output": "xml", "log-level": "loud", "log-format": "xml", "log-prefix": "a:b", "subscription": "mine", "prove": "maybe", "promote": "maybe",
		"probe": wrong, "custom-data": wrong + ".none", "protected-settings": "cse=" + wrong, "seal-policy": wrong + ".none", "scope": "some", "manager": "yum", "phased": "maybe", "reboot": "maybe",
		"nodes": "9", "max-unavailable-pools": "some", "boot-budget": "0.5x", "prove-without": "nothing", "max-history": "1", "image": "kamino:latest"}
	tried := 0
	for _, cmd := range newRootCommand(newApp(ioStreams{}, os.Getenv, func(int) {})).Commands() {
		if cmd.Name() == "boot" || cmd.Name() == "controller" || !cmd.Runnable() {
			continue // one reads files, one runs until it is ended
		}
		lines := [][]string{{"--no-such-flag"}, {"--log-level", "loud"}}
		if cmd.Name() != "completion" && cmd.Name() != "help" {
			lines = append(lines, []string{"a-word"})
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if v, ok := values[f.Name]; ok {
				lines = append(lines, []string{"--" + f.Name, v})
			}
		})
		for _, line := range lines {
			w := newFakeWorld()
			stale(w)
			args := slices.Concat([]string{cmd.Name()}, base[cmd.Name()], line)
			_, errs, code := w.kamino(t, args...)
			if code != exitFailed || !strings.Contains(errs, "Hint: ") || len(w.writes()) > 0 {
				t.Errorf("%q: exit code %d, want %d and a hint; wrote %q\n%s", args, code, exitFailed, w.writes(), errs)
			}
			tried++
		}
	}
	if tried < 95 {
		t.Errorf("%d mistakes were tried", tried)
	}
}

// TestFlagsSayWhatTheyTake: whichever flag of whichever command is given a word that it does not
// take, the message says what to type, and not what a package of Go calls it.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	tried := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); strings.HasPrefix(kind, "string") || f.Name == "help" || f.Name == "version" {
				return
			}
			w := newFakeWorld()
			_, errs, code := w.kamino(t, append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"=1x1")...)
			hint, raw := strings.Contains(errs, "Hint: use "), regexp.MustCompile(`strconv|time: |parsing|syntax`).FindString(errs)
			if code != exitFailed || !hint || raw != "" {
				t.Errorf("%s --%s=1x1: exit code %d\n%s", cmd.CommandPath(), f.Name, code, errs)
			}
			tried++
		})
	}
	visit(newRootCommand(newApp(ioStreams{}, os.Getenv, func(int) {})))
	if tried < 80 {
		t.Errorf("only %d flags were tried", tried)
	}
}
