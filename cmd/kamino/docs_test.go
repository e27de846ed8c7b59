package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino/internal/golden"
	"kamino.dev/kamino/internal/wording"
)

// textsOf returns the strings in the source of a program.
func textsOf(t *testing.T, program string) []wording.Text {
	t.Helper()
	texts, err := wording.Of("../..", filepath.Join("..", program, "testdata", "packages.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 1000 {
		t.Fatalf("only %d strings of %s were found", len(texts), program)
	}
	return texts
}

// avoided returns the phrases of the left column of the table in CONTRIBUTING.md.
func avoided(t *testing.T) (phrases []string) {
	t.Helper()
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| not | but |\n| --- | --- |\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		phrases = append(phrases, strings.TrimSpace(cells[1]))
	}
	if len(phrases) < 10 {
		t.Fatalf("CONTRIBUTING.md: phrases to avoid: %q", phrases)
	}
	return phrases
}

// TestWords: no string in the source of a program has a phrase that CONTRIBUTING.md avoids.
func TestWords(t *testing.T) {
	phrases := avoided(t)
	for _, program := range []string{"kamino", "kamino-agent"} {
		for _, text := range textsOf(t, program) {
			for _, phrase := range phrases {
				if strings.Contains(strings.ToLower(text.Value), phrase) {
					t.Errorf("%s: %q is to be avoided: %s", text.At, phrase, text.Value)
				}
			}
		}
	}
}

// docs/cli.md is made from the commands themselves and must be current.
func TestCLIDocs(t *testing.T) {
	root := newRootCommand(newApp(ioStreams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, func(string) string { return "" }, func(int) {}))
	root.InitDefaultCompletionCmd("help") // as cobra does when it runs
	var b strings.Builder
	b.WriteString("# kamino\n\n<!-- Made from the commands: go test ./cmd/kamino -run CLIDocs -update -->\n\n")
	fmt.Fprintf(&b, "%s\n\n", fenced(root.Long))
	fmt.Fprintf(&b, "## Options of all commands\n\n%s\n\n", fenced(root.PersistentFlags().FlagUsagesWrapped(110)))
	b.WriteString("## Environment\n\n" + fenced(`NODE_ID        name of the node this process runs on; never taken as donor
POD_NAMESPACE  namespace of the pod this process runs in, set by the charts
POD_IMAGE      image of the seal pod, by digest, if --image is not given
SEAL_POLICY    text of the seal policy, if --seal-policy is not given
KUBECONFIG     as for kubectl; without one, the service account of the pod
AZURE_*        credentials, as for every program of the Azure SDK`) + "\n")
	describe(&b, root)
	golden.Check(t, filepath.Join("..", "..", "docs", "cli.md"), b.String())
}

// TestOptions: who adds an option to one of these takes another away, or finds it a reader in
// docs/notes/0040-which-options-stay.md.
func TestOptions(t *testing.T) {
	root := newRootCommand(newApp(ioStreams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, func(string) string { return "" }, func(int) {}))
	for name, most := range map[string]int{"update": 23, "auto-update": 34, "controller": 36} {
		c, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		own := 0
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				own++
			}
		})
		if own != most {
			t.Errorf("%s has %d options of its own, not %d", name, own, most)
		}
	}
}

// describe writes a section for each command below one.
func describe(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		use := c.UseLine()
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n%s\n", c.CommandPath(), c.Short, fenced(use))
		if c.Long != "" {
			fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(c.Long))
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\n%s\n", fenced(c.Example))
		}
		if flags := c.NonInheritedFlags().FlagUsagesWrapped(110); flags != "" {
			fmt.Fprintf(b, "\n%s\n", fenced(flags))
		}
		describe(b, c)
	}
}

func fenced(text string) string { return "```\n" + strings.Trim(text, "\n") + "\n```" }

// written finds commands of kamino in a page: lines of code, and code within a sentence.
var written = regexp.MustCompile("(?m)^    (?:.*&& |[A-Z_]+=[^ ]+ )*(?:bin/)?(kamino [^|\n]+)|`(?:bin/)?(kamino [^`]+)`|\"(?:bin/)?(kamino [^\"]+)\"")

// TestDocsCommands: every command that a page tells to type is one that there is, with its flags.
func TestDocsCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Glob("../../charts/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, page := range slices.Concat(pages, charts, []string{"../../README.md", "../../SCOPE.md"}) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range written.FindAllStringSubmatch(string(text), -1) {
			line := cmp.Or(m[1], m[2], m[3])
			if err := parses(line); err != nil {
				t.Errorf("%s: %q: %v", filepath.Base(page), line, err)
			}
			tried++
		}
	}
	if tried < 100 {
		t.Errorf("only %d commands were found", tried)
	}
}

// said finds what a page says that a program prints: the code in the first cells of such a table.
var (
	said  = regexp.MustCompile("(?m)^\\| (?:it says|message) \\|.*\n\\|.*\n((?:\\|.*\n)+)")
	holes = regexp.MustCompile(`…|: |\b[A-Z]\b`)
)

// TestDocsMessages: every message that a page explains is one that a program has. Who types it into
// the search of a browser must find it.
func TestDocsMessages(t *testing.T) {
	verb := regexp.MustCompile(`%(?:\[\d\])?[-+#0-9.]*[a-zA-Z]`)
	for page, program := range map[string]string{"operations.md": "kamino", "agent.md": "kamino-agent"} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, text := range textsOf(t, program) {
			all.WriteString(text.Value + "\n")
		}
		texts, tried := verb.ReplaceAllString(all.String(), "…"), 0
		for _, table := range said.FindAllStringSubmatch(string(text), -1) {
			for row := range strings.Lines(table[1]) {
				for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
					for _, part := range holes.Split(strings.TrimPrefix(m[1], "waiting for "), -1) {
						part = strings.Trim(part, " ,")
						if !strings.Contains(part, " ") {
							continue
						}
						if tried++; !strings.Contains(texts, part) {
							t.Errorf("%s explains %q, and %s has no text with %q", page, m[1], program, part)
						}
					}
				}
			}
		}
		if tried < 10 {
			t.Errorf("%s: only %d messages were found", page, tried)
		}
	}
}

// setting finds what a command sets of a chart.
var setting = regexp.MustCompile("--set(?:-file|-string)? '?([^ \\n`'\\\\]+)")

// TestDocsValues: every value of a chart that a page sets is one that a chart has.
func TestDocsValues(t *testing.T) {
	files, err := filepath.Glob("../../charts/*/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var charts []map[string]any
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := yaml.Unmarshal(text, &values); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		charts = append(charts, values)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	readmes, err := filepath.Glob("../../charts/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, page := range slices.Concat(pages, readmes, []string{"../../README.md"}) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range setting.FindAllStringSubmatch(string(text), -1) {
			for _, pair := range regexp.MustCompile(`(?:^|,)([A-Za-z][A-Za-z0-9.]*)=`).FindAllStringSubmatch(set[1], -1) {
				tried++
				if !slices.ContainsFunc(charts, func(values map[string]any) bool { return hasValue(values, strings.Split(pair[1], ".")) }) {
					t.Errorf("%s sets %s, which no chart has", filepath.Base(page), pair[1])
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d values were found", tried)
	}
}

// TestDocsWords: the pages, and what charts say of their values, have no phrase that
// CONTRIBUTING.md avoids.
func TestDocsWords(t *testing.T) {
	pages := []string{"../../README.md", "../../SCOPE.md", "../../SECURITY.md", "../../CHANGELOG.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../charts/*/README.md", "../../charts/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	phrases := avoided(t)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, phrase := range phrases {
			if strings.Contains(strings.ToLower(string(text)), phrase) {
				t.Errorf("%s: %q is to be avoided", page, phrase)
			}
		}
	}
}

// TestDocsLinks: each relative link of a page leads to a file, and its fragment to a heading there.
func TestDocsLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/notes/*.md", "../../charts/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	link, heading := regexp.MustCompile(`\]\(([^)# ]*)(?:#([^) ]+))?\)`), regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped, tried := regexp.MustCompile(`[^\p{L}\p{N} _-]`), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			tried++
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			there, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); err != nil && (statErr != nil || !info.IsDir()) {
				t.Errorf("%s: %s: %v", page, m[0], err)
				continue
			}
			if m[2] != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(string(there), -1), func(h []string) bool {
				return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == m[2] // as GitHub makes them
			}) {
				t.Errorf("%s: %s: no such heading", page, m[0])
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d links were found", tried)
	}
}

// TestReadmeInstall: what the README tells to type in production stands in docs/install.md too, of
// which the lab types each command (TestInstall).
func TestReadmeInstall(t *testing.T) {
	shells := func(page string) (lines []string) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
			if words := strings.Fields(line); strings.HasPrefix(line, "    ") && slices.Contains([]string{"az", "aws", "helm"}, words[0]) {
				lines = append(lines, strings.Join(words, " "))
			}
		}
		return lines
	}
	readme, install := shells("../../README.md"), shells("../../docs/install.md")
	if len(readme) != 6 { // three for each cloud
		t.Errorf("the README has %d commands for production: %q", len(readme), readme)
	}
	for _, line := range readme {
		if !slices.Contains(install, line) {
			t.Errorf("docs/install.md does not have the README's\n%s", line)
		}
	}
}

// TestRunbookExitCodes: each exit code that the help lists has its section in the runbook.
func TestRunbookExitCodes(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^  ([0-9]+) `).FindAllStringSubmatch(rootLong, -1)
	if len(codes) < 7 {
		t.Fatalf("the help lists %d exit codes", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(string(text), "\n### Exit code "+code[1]+"\n") {
			t.Errorf("the runbook has no section for exit code %s", code[1])
		}
	}
}

func hasValue(values map[string]any, path []string) bool {
	v, ok := values[path[0]]
	if below, isMap := v.(map[string]any); ok && isMap && len(path) > 1 && len(below) > 0 {
		return hasValue(below, path[1:])
	}
	return ok
}

// hinted finds commands in what the program says, with the flags that follow at once.
var hinted = regexp.MustCompile(`\bkamino (?:[a-z]+(?:-[a-z]+)*)(?: --?[a-z-]+(?:[ =](?:[A-Z][A-Z:0-9@]*|%[a-z]|NODE|[a-z]+))?)*`)

// TestHints: every command that a message tells to type is one that there is, with its flags.
func TestHints(t *testing.T) {
	root, tried := newRootCommand(&app{}), 0
	for _, text := range textsOf(t, "kamino") {
		for _, command := range hinted.FindAllString(text.Value, -1) {
			cmd, _, err := root.Find(strings.Fields(command)[1:])
			if err != nil || cmd == root {
				continue // "kamino finds …" is not a command
			}
			if err := parses(command); err != nil {
				t.Errorf("%s: %q: %v", text.At, command, err)
			}
			tried++
		}
	}
	if tried < 50 {
		t.Errorf("only %d commands were found", tried)
	}
}

// parses tells whether the program knows the command and the flags of a line, in which words in
// capitals stand for something, and … for more.
func parses(line string) error {
	line, _, _ = strings.Cut(line, "    ") // what a line of code says of its command
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " > ")
	line, _, _ = strings.Cut(line, " 2>")
	args := strings.Fields(strings.NewReplacer("…", " ", " ... ", " ", "[", " ", "]", " ", "\"", "", "'", "").Replace(line))[1:]
	root := newRootCommand(newApp(ioStreams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, func(string) string { return "" }, func(int) {}))
	if len(args) > 0 && strings.Contains(args[0], "|") { // kamino boot show|chain
		return nil
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd == root && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("%q is no command", args[0])
	}
	for i, word := range rest {
		name, value, given := strings.Cut(word, "=")
		if !strings.HasPrefix(name, "-") || name == "-" {
			continue
		}
		if name == "--help" || name == "-h" {
			continue
		}
		flag := cmd.Flags().Lookup(strings.TrimLeft(name, "-"))
		if flag == nil {
			flag = root.PersistentFlags().Lookup(strings.TrimLeft(name, "-"))
		}
		if flag == nil && len(name) == 2 {
			flag = cmd.Flags().ShorthandLookup(name[1:])
		}
		if flag == nil {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), name)
		}
		if !given && flag.NoOptDefVal == "" && i+1 < len(rest) {
			value = rest[i+1]
		}
		if value != "" && value != strings.ToUpper(value) && flag.Value.Type() != "stringArray" {
			if err := flag.Value.Set(strings.Split(value, "|")[0]); err != nil {
				return fmt.Errorf("%s %s: %w", name, value, err)
			}
		}
	}
	return nil
}
