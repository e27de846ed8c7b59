package kamino

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestNames: what Azure names is short enough, of characters that it allows, and
// of no two resource groups the same. Names that were right stay.
func TestNames(t *testing.T) {
	long := strings.Repeat("g", 90)
	gallery := regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.]{0,78}[0-9A-Za-z_]$`)
	seen := map[string]string{}
	for group, want := range map[string]string{
		"rg": "SIG_rg", "kamino-lab": "SIG_kamino_lab", "a-b": "SIG_a_b", "v1.2": "SIG_v1.2",
		"a_b": "", "a-b_c": "", "a_b-c": "", "a_b_c": "", "rg(old)": "", "rg_old_": "", long: "", long[:89] + "-": "",
	} {
		t.Run(group, func(t *testing.T) {
			name := GalleryName(group)
			if !gallery.MatchString(name) || want != "" && name != want || seen[strings.ToLower(name)] != "" {
				t.Errorf("group %s: %s, as %s", group, name, seen[name])
			}
			seen[strings.ToLower(name)] = group
			if former := FormerGalleryName(group); (former == "") != (want != "" || strings.ContainsAny(group, "()") || len(group) > 76) ||
				former != "" && former != "SIG_"+strings.ReplaceAll(group, "-", "_") {
				t.Errorf("group %s: the former name is %q", group, former)
			}
			if o := OfferName(group); len(o) > 64 || len(group) <= 64 && o != group {
				t.Errorf("group %s: the offer is %s", group, o)
			}
		})
	}
	a, b := strings.Repeat("p", 64), strings.Repeat("p", 63)+"q"
	for _, pool := range []string{"k8s-pool1-vmss", a, b} {
		if n := DefinitionName(pool); len(n) > 80 || pool == "k8s-pool1-vmss" && n != "kamino-k8s-pool1-vmss-prototype" {
			t.Error(n)
		}
	}
	if DefinitionName(a) == DefinitionName(b) {
		t.Error("two pools, one definition")
	}
}

func named(names ...string) (out []Artifact) {
	for _, n := range names {
		out = append(out, Artifact{Kind: Version, Name: n, State: Succeeded, Tags: map[string]string{TagBuiltFrom: "n"}})
	}
	slices.SortStableFunc(out, func(a, b Artifact) int { return CompareVersions(b.Name, a.Name) })
	return out
}

func TestNextVersion(t *testing.T) {
	for _, c := range []struct{ day, existing, want string }{
		{"2026-11-22", "", "2026.11.22"},
		{"2026-11-22", "2026.11.21 2026.10.3101", "2026.11.22"},
		{"2026-11-22", "2026.11.22", "2026.11.2201"},
		{"2026-11-22", "2026.11.22 2026.11.2201", "2026.11.2202"},
		{"2026-11-22", "2026.11.2209 2026.11.22", "2026.11.2210"},
		{"2026-11-23", "2026.11.22 2026.11.2201", "2026.11.2300"},
		{"2026-11-23", "2026.11.2201 2026.11.2300", "2026.11.2301"},
		{"2026-11-23", "2026.11.2201 2026.11.23", "2026.11.2301"}, // the 23rd by a program that knows no NN
		{"2026-12-01", "2026.11.3099", "2026.12.01"},
		{"2026-12-02", "2026.12.0101", "2026.12.0200"},
		{"2026-03-09", "2026.3.9", "2026.03.0901"},
		{"2026-11-22", "2026.11.99 latest 1.2.3 2026.13.2201", "2026.11.22"}, // names of others
		{"2026-11-22", "2026.11.2299", ""},
	} {
		t.Run(c.day, func(t *testing.T) {
			day, _ := time.Parse(time.DateOnly, c.day)
			got, err := NextVersion(named(strings.Fields(c.existing)...), day.Add(23*time.Hour))
			if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, errNamesOver) {
				t.Errorf("on %s, with %q: %q, %v; want %q", c.day, c.existing, got, err, c.want)
			}
		})
	}
}

// TestVersionCalendars makes images on random days, several on some, while a
// program that knows one a day makes others and old ones are pruned: names only
// grow, tell their day, are taken once, and fit into 32 bits.
func TestVersionCalendars(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		day := time.Date(2023+rng.IntN(6), time.Month(1+rng.IntN(12)), 1+rng.IntN(28), rng.IntN(24), 0, 0, 0, time.UTC)
		var have []Artifact
		ever, newest := map[string]bool{}, ""
		foreign := rng.IntN(3) == 0
		for range 40 {
			day = day.Add(time.Duration(rng.IntN(5*24)) * time.Hour / 2)
			if foreign && rng.IntN(6) == 0 && newestOfDay(have, day) == nil && !ever[VersionName(day)] {
				ever[VersionName(day)] = true
				have = named(append(names(have), VersionName(day))...)
				if CompareVersions(VersionName(day), newest) > 0 {
					newest = VersionName(day)
				}
				continue
			}
			next, err := NextVersion(have, day)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			at, err := VersionDate(next)
			if err != nil || VersionName(at) != VersionName(day) || ever[next] || CompareVersions(next, newest) <= 0 {
				t.Fatalf("seed %d: on %s, after %s with %v, the next is %s (%v, taken %v)", seed, day, newest, names(have), next, err, ever[next])
			}
			third := next[strings.LastIndexByte(next, '.')+1:]
			if n, err := strconv.ParseInt(third, 10, 32); err != nil || n < 1 {
				t.Fatalf("seed %d: %s is no version of a gallery", seed, next)
			}
			ever[next], newest = true, next
			have = named(append(names(have), next)...)
			if have[0].Name != next {
				t.Fatalf("seed %d: %s is not the latest of %v", seed, next, names(have))
			}
			for _, v := range Prunable(have, 2+rng.IntN(3), rng.IntN(2), Ledger{}) {
				if v.outnumbered(have) != nil {
					t.Fatalf("seed %d: %s would be pruned, it is newer than %v", seed, v.Name, names(have))
				}
				if rng.IntN(3) > 0 {
					have = slices.DeleteFunc(have, func(o Artifact) bool { return o.Name == v.Name })
				}
			}
		}
	}
}

func names(list []Artifact) (out []string) {
	for _, v := range list {
		out = append(out, v.Name)
	}
	return out
}

// TestOutnumbered: a version that was made later than one which counts as later
// is told, and is not deleted as an old one.
func TestOutnumbered(t *testing.T) {
	have := named("2026.11.2301", "2026.11.2300", "2026.11.2201", "2026.11.24", "2026.11.22")
	for _, v := range have {
		if by := v.outnumbered(have); (by != nil) != (v.Name == "2026.11.24") || by != nil && by.Name != "2026.11.2301" {
			t.Errorf("%s is outnumbered by %v", v.Name, by)
		}
	}
	if got := fmt.Sprint(names(Prunable(have, 2, 1, Ledger{}))); got != "[2026.11.22 2026.11.2201]" {
		t.Errorf("would be pruned: %s", got)
	}
}

// TestHiddenVersions: what was never offered pushes nothing out that was, and is what comes next.
func TestHiddenVersions(t *testing.T) {
	var have []Artifact
	for i := 5; i > 0; i-- {
		v := Artifact{Kind: Version, Name: fmt.Sprintf("2026.11.0%d", i), ID: fmt.Sprintf("/d/versions/2026.11.0%d", i), State: Succeeded,
			Tags: map[string]string{TagBuiltFrom: "n"}}
		state := offerOffered
		if i > 3 {
			state = offerHidden
		}
		have = append(have, v.offering(state))
	}
	if got := fmt.Sprint(names(Prunable(have, 2, 1, Ledger{}))); got != "[2026.11.01]" {
		t.Errorf("prunable %s", got)
	}
	if p, l := promotable(have, Proving{Mode: ProveNone}), latest(have); p.Name != "2026.11.05" || l.Name != "2026.11.03" {
		t.Errorf("promotable %s, latest %s", p.Name, l.Name)
	}
	if pin := movedPin("/D", have); pin != nil {
		t.Errorf("nobody moved the pointer: %+v", pin)
	}
	have[2].Excluded = true // by a person
	if pin := movedPin("/D", have); pin == nil || pin.Image != have[3].ID || pin.Wrote != have[2].ID {
		t.Errorf("pin %+v", pin)
	}
	if pin := movedPin(have[2].ID, have); pin != nil {
		t.Errorf("a pool that goes by version: %+v", pin)
	}
}

// TestWithdrawnVersions: what was promoted, withdrawn, or never offered counts apart, so that a
// version which waits takes no other's place; what may yet be promoted stays, and what an instance
// or a definition needs.
func TestWithdrawnVersions(t *testing.T) {
	var have []Artifact
	for i := 9; i > 0; i-- {
		v := Artifact{Kind: Version, Name: fmt.Sprintf("2026.11.0%d", i), ID: fmt.Sprintf("/d/versions/2026.11.0%d", i), State: Succeeded,
			Tags: map[string]string{TagBuiltFrom: "n"}}
		switch i {
		case 9, 4:
			v = v.offering(offerHidden)
		case 8, 7, 6, 3:
			v = v.Withdrawn(Bad{Reason: "a test"})
		default:
			v = v.Offered()
		}
		have = append(have, v)
	}
	for _, tt := range []struct {
		keep, apart int
		change      func()
		want        string
	}{
		{2, 1, func() {}, "[2026.11.01 2026.11.03 2026.11.04 2026.11.06 2026.11.07]"}, // 9 may yet be promoted, 8 tells why it was withdrawn
		{2, 3, func() {}, "[2026.11.01 2026.11.03]"},
		{3, 0, func() { have[2].Instances = 1 }, "[2026.11.03 2026.11.04 2026.11.06 2026.11.08]"},
		{3, 0, func() { have[5].InModel = true }, "[2026.11.01 2026.11.03 2026.11.06 2026.11.08]"}, // 4 was promoted by name
	} {
		t.Run(tt.want, func(t *testing.T) {
			tt.change()
			if got := fmt.Sprint(names(Prunable(have, tt.keep, tt.apart, Ledger{}))); got != tt.want {
				t.Errorf("keep %d and %d: prunable %s, want %s", tt.keep, tt.apart, got, tt.want)
			}
		})
	}
}

// TestModels: instances count by the write of the model that they were made after, and those from
// before the first that is known by their version.
// TestAfterDay: the second version of a day is not one of a later day.
func TestAfterDay(t *testing.T) {
	day := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	for name, want := range map[string]bool{"2026.11.2301": false, "2026.11.23": false, "2026.11.24": false, "2026.11.2401": false, "2026.11.25": true, "2026.12.01": true, "2027.01.01": true} {
		if got := (Artifact{Name: name, Tags: map[string]string{TagRun: "r"}}).afterDay(day); got != want {
			t.Errorf("version %s is of a later day: %t, want %t", name, got, want)
		}
	}
}

func TestModels(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	at := func(name string, births ...time.Time) Artifact {
		return Artifact{Kind: Version, Name: name, ID: "/d/versions/" + name, State: Succeeded, Use: Use{Instances: len(births), Births: births}}
	}
	o := overview{pool: Pool{MostModels: 10, Capacity: 6, Model: Model{Image: "/d/versions/2026.11.06"}}, versions: []Artifact{
		at("2026.11.06", day(8), day(9)), at("2026.11.02", day(3)), at("2026.11.01", day(2), day(2))}}
	if m := o.models(); m.Known != 4 || m.Warning() != "" { // three versions, and what was there before
		t.Errorf("by version: %+v", m)
	}
	o.lease.Ledger.Writes = []time.Time{day(7), day(6)}
	o.pool.Model.Image = "/d"
	if m := o.models(); m.Known != 4 {
		t.Errorf("after two writes: %+v", m)
	}
	o.lease.Ledger.Writes = []time.Time{day(1)}
	if m := o.models(); m.Known != 2 {
		t.Errorf("all after one write: %+v", m)
	}
	o.lease.Ledger.Writes = nil
	if m := o.models(); m != nil {
		t.Errorf("a pool that points, and nothing is known of its writes: %+v", m)
	}
	for known, warns := range map[int]bool{7: false, 8: true, 11: true} {
		if m := (&Models{Known: known, Most: 10}); (m.Warning() != "") != warns {
			t.Errorf("%d of 10: %q", known, m.Warning())
		}
	}
}

// TestFreshTags: what a version tells of its disk fits into tags, whatever a node writes.
func TestFreshTags(t *testing.T) {
	f := Freshness{PackageDigest: strings.Repeat("a", 64), PackageCount: 876, PatchedAt: selectNow, Kernel: "6.8.0-12"}
	s := Software{Kernel: "6.8.0-9", OS: "Ubuntu\x1b[2J 24.04", Kubelet: "v1.36.3", Runtime: strings.Repeat("ü", 1000), Images: []CachedImage{{"a", 5}, {"b", 7}, {"c", -9}}}
	got := f.tags(s)
	for tag, want := range map[string]string{TagPackages: f.PackageDigest, TagPackageCount: "876", TagPatched: "2026-11-20T12:00:00Z", TagKernel: "6.8.0-12",
		TagOS: "Ubuntu[2J 24.04", TagKubelet: "v1.36.3", TagImages: "3", TagImageBytes: "12"} {
		t.Run(tag, func(t *testing.T) {
			if got[tag] != want {
				t.Errorf("%s = %q, want %q", tag, got[tag], want)
			}
		})
	}
	for tag, value := range got {
		if utf8.RuneCountInString(value) > 256 || value == "" {
			t.Errorf("%s has %d characters", tag, utf8.RuneCountInString(value))
		}
	}
	r := (&Engine{Clock: &turnWorld{now: selectNow}}).newRun(Options{})
	r.held.lease = &Lease{}
	r.donor.node.Software = s
	all := r.tags(Receipt{Freshness: f, Policy: "p", Unknown: &UnknownFiles{}})
	if len(all) > 50-3 { // TagOffer, TagProof and TagBad come later
		t.Errorf("%d tags; Azure and AWS take 50", len(all))
	}
	if got := (Freshness{}).tags(Software{}); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// TestBehind: the next node is compared with the Ready one that was patched last.
func TestBehind(t *testing.T) {
	node := func(name, kernel, patched, digest string) Node {
		text := fmt.Sprintf(`{"patchedAt":%q,"packageDigest":%q}`, patched, digest)
		return Node{Name: name, Ready: true, Software: Software{Kernel: kernel, OS: "Debian 12", Kubelet: "v1.36.3"}, Annotations: map[string]string{AnnotationFreshness: text}}
	}
	old, best := node("old", "6.9.0-1", "2026-11-01T00:00:00Z", "00"), node("best", "6.8.0-12", "2026-11-18T12:00:00Z", "11")
	unready, future := node("unready", "7.0", "2026-11-19T00:00:00Z", "22"), node("future", "6.1", "2027-01-01T00:00:00Z", "33")
	unready.Ready = false
	signalled := Node{Name: "kured", Ready: true, Software: Software{Kernel: "6.8.0-12"}, Annotations: map[string]string{KuredLastPatch.Annotation: "2026-11-19T12:00:00Z"}}
	garbled := Node{Name: "garbled", Ready: true, Annotations: map[string]string{AnnotationFreshness: "{"}, Software: Software{Kernel: "6.8.0-10"}}
	plain := Node{Name: "plain", Ready: true, Software: Software{Kernel: "6.8.0-9"}}
	tags := map[string]string{TagKernel: "6.8.0-9", TagOS: "Debian 12", TagPackages: "00", TagPatched: "2026-11-10T12:00:00Z"}
	for _, tt := range []struct {
		name  string
		nodes []Node
		tags  map[string]string
		want  string
	}{
		{"patched later", []Node{old, best, unready, future}, tags, "node best by 8.0 days: kernel 6.8.0-9 (there 6.8.0-12), packages differ"},
		{"by its signal", []Node{best, signalled}, tags, "node kured by 9.0 days: kernel 6.8.0-9 (there 6.8.0-12), packages not compared"},
		{"the newer kernel", []Node{plain, garbled}, tags, "node garbled: kernel 6.8.0-9 (there 6.8.0-10), packages not compared"},
		{"nothing", []Node{node("n", "6.8.0-9", "2026-11-10T12:00:00Z", "00")}, tags, "node n: the same kernel, OS, kubelet, runtime and packages"},
		{"patched before", []Node{old}, tags, "node old: kernel 6.8.0-9 (there 6.9.0-1), packages the same"},
		{"no node is Ready", []Node{unready}, tags, "<nil>"},
		{"a version that tells no kernel", []Node{best}, map[string]string{TagPackages: "00"}, "<nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := fmt.Sprint(overview{nodes: tt.nodes}.behind(Artifact{Name: "2026.11.10", Tags: tt.tags}, selectNow, []Signal{KuredLastPatch}))
			if got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		})
	}
}

// shelf keeps lists in memory.
type shelf struct {
	Cluster
	Shelf
	kept map[string]DiskList
}

func (s *shelf) SaveList(_ context.Context, _ PoolID, run string, l DiskList) error {
	s.kept[run] = l
	return nil
}

func (s *shelf) Lists(context.Context, PoolID) (runs []string, err error) {
	return slices.Sorted(maps.Keys(s.kept)), nil
}

func (s *shelf) DeleteList(_ context.Context, run string) error {
	delete(s.kept, run)
	return nil
}

// told is what the agent writes on a node for an order.
func told(run, nonce string, lines ...string) Node {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, line := range lines {
		fmt.Fprintln(z, line)
	}
	_ = z.Close()
	text, _ := json.Marshal(map[string]any{"run": run, "nonce": nonce, "list": packed.Bytes()})
	return Node{Annotations: map[string]string{AnnotationPackages: string(text)}}
}

// TestLists: a list is kept if the receipt has its digest, and as long as there is a version.
func TestLists(t *testing.T) {
	lines := []string{"a 1 amd64", "b 2 all"}
	s := &shelf{kept: map[string]DiskList{}}
	r := (&Engine{Cluster: s}).newRun(Options{})
	r.held.run, r.held.lease = "r1", &Lease{}
	receipt := Receipt{Run: "r1", Nonce: "n", Freshness: Freshness{PackageDigest: packageDigest(lines)}}
	for name, n := range map[string]Node{"another list": told("r1", "n", "a 2 amd64", "b 2 all"), "another run's": told("r0", "n", lines...),
		"another nonce": told("r1", "m", lines...), "none": {}, "too long": told("r1", "n", strings.Repeat("a", packagesMost+1))} {
		t.Run(name, func(t *testing.T) {
			if r.saveList(t.Context(), n, receipt); len(s.kept) > 0 {
				t.Errorf("%s is kept: %v", name, s.kept)
			}
		})
	}
	n := told("r1", "n", lines...)
	n.Software.Images = []CachedImage{{"i", 1}}
	r.saveList(t.Context(), n, receipt)
	if got := s.kept["r1"]; !slices.Equal(got.Packages, lines) || len(got.Images) != 1 {
		t.Errorf("kept %+v", s.kept)
	}
	s.kept["r0"], s.kept["gone"] = DiskList{}, DiskList{}
	versions := []Artifact{{Tags: map[string]string{TagRun: "r0"}}}
	next, any := r.pruneLists(t.Context(), versions)
	if !any || next.act != ActDeleteLists {
		t.Fatalf("%+v", next)
	}
	if err := next.do(t.Context()); err != nil || len(s.kept) != 2 || s.kept["r1"].Packages == nil {
		t.Errorf("left %v, %v", s.kept, err)
	}
	if _, any := r.pruneLists(t.Context(), versions); any {
		t.Error("there is always one to delete")
	}
}

// TestComparePackages: by name and architecture, with every version of each.
func TestComparePackages(t *testing.T) {
	same, got := comparePackages([]string{"a 1 amd64", "a 1 i386", "gone 1 all", "kernel 5 x86_64", "kernel 6 x86_64", "z 1 all"},
		[]string{"a 1 amd64", "a 2 i386", "kernel 6 x86_64", "kernel 7 x86_64", "new 1 all", "z 1 all"})
	want := []PackageDrift{{"a", "i386", "1", "2"}, {"gone", "all", "1", ""}, {"kernel", "x86_64", "5,6", "6,7"}, {"new", "all", "", "1"}}
	if same != 2 || !slices.Equal(got, want) {
		t.Errorf("%d the same, %+v", same, got)
	}
}

// TestAcquittal: a definition that was followed once and then no more is not acquitted by what came
// before.
func TestAcquittal(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const def = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/galleries/g/images/kamino-a-prototype"
	v := func(name string, births ...time.Duration) Artifact {
		a := Artifact{Kind: Version, Name: name, ID: def + "/versions/" + name, State: Succeeded, Ready: true, Tags: map[string]string{TagRun: "r", TagOffer: offerOffered}}
		for _, b := range births {
			a.Births = append(a.Births, at.Add(b))
		}
		return a
	}
	l := Ledger{Promoted: &Promotion{Version: "2026.03.01", At: at}}
	versions := []Artifact{v("2026.03.01", 20*time.Minute), v("2026.02.01", 26*time.Hour, 27*time.Hour, 28*time.Hour)}
	if s := l.astray(def, versions); s == nil {
		t.Error("the first instance followed, and the three that came a day later did not: the definition is believed")
	}
}

// zones puts a canary into another zone than its sibling, which labels itself with its own.
func (s *Sight) zones(own string) {
	const zone, label = "topology.kubernetes.io/zone", "example.com/zone"
	s.Sibling.Labels, s.Sibling.Own = map[string]string{zone: "eu-1a"}, map[string]string{label: "eu-1a"}
	s.Node.Labels[zone], s.Node.Labels[label] = "eu-1b", own
}

// TestUnlike: only what is known to differ keeps an image from a machine.
func TestUnlike(t *testing.T) {
	v2 := Machine{Architecture: "x64", Generation: "V2"}
	for _, tt := range []struct {
		image Machine
		want  string // part of why
	}{
		{v2, ""}, {Machine{}, ""}, {Machine{Architecture: "X64", Generation: "v2"}, ""}, {Machine{Architecture: "x64"}, ""},
		{Machine{Architecture: "x64", Generation: "V1"}, "generation"}, {Machine{Architecture: "Arm64", Generation: "V2"}, "architecture"},
	} {
		if got := tt.image.Unlike(v2); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.image, got, tt.want)
		}
	}
}

// TestTagsFit: no node and no person can make a tag that Azure or AWS refuses by its length, or more
// tags than they take.
func TestTagsFit(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	r := (&Engine{Clock: WallClock{}}).newRun(Options{})
	r.held.run, r.held.lease = "run", &Lease{}
	r.donor.node = Node{Name: strings.Repeat("n", 253), Software: Software{Kernel: long, OS: long, Kubelet: long, Runtime: long, Images: []CachedImage{{Name: long}}}}
	r.donor.instance = Instance{Image: "a/" + long + "/" + long, VMID: long}
	tags := r.tags(Receipt{Hash: long, Policy: long, SSHKeys: []string{long, long}, Unknown: &UnknownFiles{Mode: long, Digest: long},
		Freshness: Freshness{PackageDigest: long, PackageCount: 7, PatchedAt: time.Now(), Kernel: long}})
	a := Artifact{Tags: tags}.Withdrawn(Bad{Reason: long, Nodes: true})
	for _, tag := range []string{TagPromote, TagBootstrap, TagPointer, TagPool, TagPoolUID} { // that others of the program add
		a = a.with(tag, "x")
	}
	for tag, value := range a.Tags {
		if n := utf8.RuneCountInString(value); n > 256 || len(tag) > 128 {
			t.Errorf("tag %s has %d characters", tag, n)
		}
	}
	if n := len(a.Tags); n > 40 {
		t.Errorf("%d tags leave no place for those of others", n)
	}
}
