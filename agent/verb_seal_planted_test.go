package agent_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"kamino.dev/kamino/agent"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/scan"
)

// kind is one thing that a node may carry and an image must not: a file, and the base tree on which
// it is planted. In path and text, @HOST@ and @MID@ stand for the tree's host name and machine-id.
type kind struct {
	Group  string `json:"group"`
	Kind   string `json:"kind"`
	Path   string `json:"path"`
	Text   string `json:"text"`
	Base64 string `json:"base64"`
	Base   string `json:"base"`
	Size   int    `json:"size"` // text is a sample of what fills a file of this size
}

// What becomes of a planted file.
const (
	fateRemoved = "removed"
	fateEdited  = "edited"
	fateRefused = "refused" // the seal names it and takes everything back
	fateMissed  = "missed"  // it is in the image
)

// plantedSets are the files of testdata/planted, with how many must not be missed. The review's is
// every second row of a table whose other half nobody here has seen; own was written down before the
// rules and patterns; eks are what EKS's images and the agents on them leave; forms are those in
// which somebody who tried to get secrets past the scan wrote them, to files that nothing else gives
// away.
var plantedSets = []struct {
	name  string
	least int
}{{"review", 124}, {"own", 210}, {"forms", 41}, {"eks", 89}}

// TestPlanted plants the kinds of one base tree together, and asks the plan, the scan and the
// inventory about each: cheap enough for every run of the tests. TestPlantedEach seals once for each
// kind.
func TestPlanted(t *testing.T) {
	for _, set := range plantedSets {
		t.Run(set.name, func(t *testing.T) {
			kinds := readKinds(t, set.name)
			fates := make([]string, len(kinds))
			for _, base := range []string{"debian12-kubeadm", "ubuntu2204-aks", "al2023-eks", "ubuntu2404-eks"} {
				judgePlanted(t, base, kinds, fates)
			}
			tally(t, "together", set.name, kinds, fates, set.least)
		})
	}
}

// TestPlantedElsewhere: what the seal sees of the other sets on the trees that they were written
// for, it sees on those of EKS.
func TestPlantedElsewhere(t *testing.T) {
	for _, set := range plantedSets {
		kinds := readKinds(t, set.name)
		if set.name == "eks" {
			continue
		}
		home := make([]string, len(kinds))
		for _, base := range []string{"debian12-kubeadm", "ubuntu2204-aks"} {
			judgePlanted(t, base, kinds, home)
		}
		for _, base := range []string{"al2023-eks", "ubuntu2404-eks"} {
			moved, fates := slices.Clone(kinds), make([]string, len(kinds))
			for i := range moved {
				moved[i].Base = base
			}
			judgePlanted(t, base, moved, fates)
			for i, k := range kinds {
				if fates[i] == fateMissed && home[i] != fateMissed {
					t.Errorf("/%s (%s) is %s on %s, and missed on %s", k.Path, k.Kind, home[i], k.Base, base)
				}
			}
			tally(t, "on "+base, set.name, moved, fates, set.least)
		}
	}
}

// TestPlantedEach is `make seal-planted`: each kind by itself, planted and sealed without a policy.
func TestPlantedEach(t *testing.T) {
	if os.Getenv("KAMINO_PLANTED") == "" {
		t.Skip("seals 464 trees: make seal-planted")
	}
	for _, set := range plantedSets {
		t.Run(set.name, func(t *testing.T) {
			kinds := readKinds(t, set.name)
			fates := make([]string, len(kinds))
			var running sync.WaitGroup
			slots := make(chan struct{}, 4)
			for i, k := range kinds {
				running.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					fates[i] = sealPlanted(t, k)
				})
			}
			running.Wait()
			tally(t, "each", set.name, kinds, fates, set.least)
		})
	}
}

// TestPlantedDocs: docs/agent.md has the numbers of kinds, and the bounds, that these tests keep.
func TestPlantedDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	text, total := strings.Join(strings.Fields(string(page)), " "), 0
	var least []any
	for _, set := range plantedSets {
		n := len(readKinds(t, set.name))
		total += n
		least = append(least, set.least)
		if want := fmt.Sprintf("%d ", n); !strings.Contains(text, want) {
			t.Errorf("the %d kinds of %s are not among the documentation's", n, set.name)
		}
	}
	for _, want := range []string{fmt.Sprintf("each of %d kinds", total), fmt.Sprintf("a seal stops %d, %d, %d and %d of them at least", least...)} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/agent.md does not say %q", want)
		}
	}
}

func tally(t *testing.T, config, set string, kinds []kind, fates []string, least int) {
	t.Helper()
	count := map[string]int{}
	for i, k := range kinds {
		if count[fates[i]]++; fates[i] == fateMissed || testing.Verbose() {
			fmt.Printf("  %-8s %-9s /%-60s %s\n", fates[i], k.Group, k.Path, k.Kind)
		}
	}
	caught := len(kinds) - count[fateMissed]
	fmt.Printf("PLANTED %s %s: %d removed, %d edited, %d refused, %d missed; %d of %d, at least %d\n", config, set,
		count[fateRemoved], count[fateEdited], count[fateRefused], count[fateMissed], caught, len(kinds), least)
	if caught < least {
		t.Errorf("%d of %d kinds are removed, edited or refused, want %d", caught, len(kinds), least)
	}
}

// judgePlanted fills in the fates of the kinds of one base.
func judgePlanted(t *testing.T, base string, kinds []kind, fates []string) {
	root := filepath.Join(inMemory(t), "root")
	unpackBase(t, base, root)
	named := ownNames(t, root)
	for _, k := range kinds {
		if k.Base == base {
			plantKind(t, root, k, named)
		}
	}
	var plan []struct {
		Action string   `json:"action"`
		Paths  []string `json:"paths"`
	}
	ask(t, &plan, "seal", "--root", root, "--dry-run", "-o", "json")
	var r scan.Result
	ask(t, &r, "verify", "--root", root, "-o", "json")
	var inventory struct {
		Unknown []struct {
			Path string `json:"path"`
		} `json:"unknown"`
	}
	ask(t, &inventory, "verify", "--inventory", "--root", root, "-o", "json")
	for i, k := range kinds {
		if k.Base != base {
			continue
		}
		name := named.Replace(k.Path)
		fates[i] = fateMissed
		for _, f := range r.Findings {
			if disk.Under(name, f.Path) {
				fates[i] = fateRefused
			}
		}
		for _, f := range inventory.Unknown {
			if f.Path == name {
				fates[i] = fateRefused
			}
		}
		for _, s := range plan {
			if slices.ContainsFunc(s.Paths, func(p string) bool { return disk.Under(name, p) }) {
				fates[i] = map[string]string{"remove": fateRemoved, "check": fateRefused}[s.Action]
				if fates[i] == "" {
					fates[i] = fateEdited
				}
			}
		}
	}
}

func ask(t *testing.T, into any, args ...string) {
	t.Helper()
	var out, log bytes.Buffer
	agent.Main(t.Context(), append(args, "--imds", "http://127.0.0.1:1"), &out, &log)
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, log.String())
	}
}

// TestUnplanted: the trees as they are seal without a finding.
func TestUnplanted(t *testing.T) {
	bases := archives(t, "testdata/bases")
	if len(bases) < 4 {
		t.Fatalf("%d base trees", len(bases))
	}
	for _, base := range bases {
		root := filepath.Join(inMemory(t), "root")
		unpackBase(t, base, root)
		code, out := sealTree(t, root)
		if code != 0 {
			t.Errorf("%s: exit code %d\n%s", base, code, out)
		}
		fmt.Printf("UNPLANTED %s: exit code %d\n", base, code)
	}
}

func readKinds(t *testing.T, name string) (kinds []kind) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/planted", name+".json"))
	if err = errors.Join(err, json.Unmarshal(data, &kinds)); err != nil {
		t.Fatal(err)
	}
	return kinds
}

// ownNames puts a tree's own names into a kind.
func ownNames(t *testing.T, root string) *strings.Replacer {
	text := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(data))
	}
	return strings.NewReplacer("@HOST@", text("etc/hostname"), "@MID@", text("etc/machine-id"))
}

func plantKind(t *testing.T, root string, k kind, named *strings.Replacer) (name string, content []byte) {
	name = named.Replace(k.Path)
	content = []byte(named.Replace(k.Text))
	if k.Base64 != "" {
		plain, err := base64.StdEncoding.DecodeString(k.Base64)
		if err != nil {
			t.Errorf("%s: %v", k.Kind, err)
		}
		content = plain
	}
	for k.Size > len(content) {
		content = append(content, content...)
	}
	if err := os.Remove(filepath.Join(root, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err) // a link of the tree, which writing would follow
	}
	writeFile(t, filepath.Join(root, name), string(content))
	return name, content
}

func sealPlanted(t *testing.T, k kind) string {
	root := filepath.Join(inMemory(t), "root")
	unpackBase(t, k.Base, root)
	name, content := plantKind(t, root, k, ownNames(t, root))
	defer os.RemoveAll(filepath.Dir(root))
	code, out := sealTree(t, root)
	left, err := os.ReadFile(filepath.Join(root, name))
	switch {
	case code != 0 && names(out, name):
		return fateRefused
	case code != 0:
		t.Errorf("%s: refused for something else:\n%s", k.Kind, out)
		return fateMissed
	case errors.Is(err, os.ErrNotExist):
		return fateRemoved
	case err != nil:
		t.Errorf("%s: %v", k.Kind, err)
		return fateMissed
	case !bytes.Equal(left, content):
		return fateEdited
	}
	return fateMissed
}

// names tells whether a refusal names the file or a directory above it.
func names(out, name string) bool {
	for at := name; strings.Contains(at, "/"); at = filepath.Dir(at) {
		if regexp.MustCompile(`(?m)[ /]` + regexp.QuoteMeta(at) + `(?:[:, ]|$)`).MatchString(out) {
			return true
		}
	}
	return false
}

// joinOf is what an operator says of a tree's cluster: aks-engine gives its nodes one certificate.
func joinOf(root string) []string {
	if _, err := os.Stat(filepath.Join(root, "etc/kubernetes/certs/client.crt")); err != nil {
		return nil
	}
	return []string{"--join", "keep"}
}

// sealTree seals as the seal pod does, without the running system's parts.
func sealTree(t *testing.T, root string) (code int, out string) {
	var b bytes.Buffer
	args := []string{"seal", "--root", root, "--run", "planted", "--no-install", "--free-space", "none", "--imds", "http://127.0.0.1:1"}
	args = append(args, joinOf(root)...)
	code = agent.Main(t.Context(), args, &b, &b)
	return code, b.String()
}
