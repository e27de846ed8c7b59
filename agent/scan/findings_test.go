package scan

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// bootstrapTokens are so many tokens, a line each.
func bootstrapTokens(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "token: abcdef.%016d\n", i)
	}
	return b.String()
}

// TestManyFindings: of a tree with more secrets than a scan lists the first are listed, sorted, and
// the others are counted.
func TestManyFindings(t *testing.T) {
	const files = 2*MostFindings + 1500
	tree := map[string]string{}
	for i := range files {
		tree[fmt.Sprintf("srv/%03d/%06d.conf", i%100, i)] = token
	}
	r, err := Files(t.Context(), disktest.New(t, tree), Options{})
	if err != nil || len(r.Findings) != MostFindings || r.More != files-MostFindings {
		t.Fatalf("%d findings and %d more of %d, %v", len(r.Findings), r.More, files, err)
	}
	want := slices.Sorted(func(yield func(string) bool) {
		for name := range tree {
			if !yield(name) {
				return
			}
		}
	})[:MostFindings]
	for i, f := range r.Findings {
		if f.Path != want[i] || f.Kind != "token-bootstrap" {
			t.Fatalf("%d: %v, want %s", i, f, want[i])
		}
	}
}

// TestManyInOne: a file with any number of secrets costs no more memory, and these hide no secret of
// another kind. The secrets stand in its text, in base64, in the members of an archive, or are allowed.
func TestManyInOne(t *testing.T) {
	const n = 20 * mostHits
	text := bootstrapTokens(n)
	members := []string{}
	for i := range n {
		members = append(members, fmt.Sprintf("%d.conf", i), token)
	}
	members = append(members, "key.pem", pemKey)
	for name, c := range map[string]struct {
		text    string
		allowed bool
	}{
		"srv/text": {text + pemKey, false}, "srv/allowed": {text + pemKey, true}, "srv/base64": {base64.StdEncoding.EncodeToString([]byte(text + pemKey)), false},
		"srv/a.tar": {tarsOf(t, members...), false}, "srv/a.tar.gz": {gzipOf(t, tarsOf(t, members...)), false}, "srv/b.tar.gz": {gzipOf(t, tarsOf(t, members...)), true},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Allow: func(kind, _ string) bool { return c.allowed && kind == "token-bootstrap" }}
			r, err := Files(t.Context(), disktest.New(t, map[string]string{name: c.text}), o)
			if err != nil || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == "private-key" }) {
				t.Errorf("the key is not among %d findings, %v", len(r.Findings), err)
			}
			if most := mostHits + 20; len(r.Findings) > most || !c.allowed && len(r.Findings)+r.More < n {
				t.Errorf("%d findings and %d more of %d", len(r.Findings), r.More, n)
			}
		})
	}
}

// TestUncovered: a password is found behind any number of others that something better covers, and
// that better thing is allowed there.
func TestUncovered(t *testing.T) {
	var b strings.Builder
	for i := range 4 * mostHits {
		fmt.Fprintf(&b, "{\"auth_token\": \"hvs.CAESIJlU02LQZq42Gh4KHGh2cy5%08d\"}\n", i)
	}
	o := Options{Allow: func(kind, _ string) bool { return kind == "vault-token" }}
	d := disktest.New(t, map[string]string{"srv/tokens.json": b.String() + "password = Pa55w0rd1234\n"})
	if r, err := Files(t.Context(), d, o); err != nil || len(r.Findings) == 0 {
		t.Errorf("%v, %v", r.Findings, err)
	}
}

// TestManyUnread: of the files that cannot be read in full a scan names mostSkipped, and counts the
// others.
func TestManyUnread(t *testing.T) {
	tree := map[string]string{}
	for i := range 3*mostSkipped + 7 {
		tree[fmt.Sprintf("srv/%06d.gz", i)] = "\x1f\x8b\x08 torn"
	}
	r, err := Files(t.Context(), disktest.New(t, tree), Options{})
	last := ""
	if n := len(r.Skipped); n > 0 {
		last = r.Skipped[n-1]
	}
	if err != nil || len(r.Skipped) != mostSkipped+1 || last != strconv.Itoa(2*mostSkipped+7)+" more, which are not listed" {
		t.Errorf("%d lines, the last %q, %v", len(r.Skipped), last, err)
	}
}

// TestHits: what is kept of one stream does not grow with it.
func TestHits(t *testing.T) {
	all := hits{digest: newDigest()}
	for i := range 100_000 {
		all.add(hit{kind: "secret", offset: int64(20 * i), text: []byte("password=x"), prose: i%2 == 0})
	}
	if len(all.list) != 2*(mostHits+1) || len(all.list)+all.more["secret"] != 100_000 {
		t.Errorf("%d are kept, and %v more", len(all.list), all.more)
	}
	for i := range 100_000 {
		all.add(hit{kind: fmt.Sprint(i % 3), text: []byte("x")})
	}
	if len(all.list) != 5*(mostHits+1) {
		t.Errorf("%d of four kinds are kept", len(all.list))
	}
}

// TestOrderOfFindings: in whatever order findings come, the same are listed, and all are counted.
func TestOrderOfFindings(t *testing.T) {
	for _, n := range []int{0, 3, MostFindings, MostFindings + 1, 5*MostFindings + 1} {
		all := make([]Finding, n)
		for i := range all {
			all[i] = Finding{Kind: "secret", Path: fmt.Sprintf("srv/%08d", i)}
		}
		want := slices.Clone(all[:min(n, MostFindings)])
		rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		var l findings
		l.add(all...)
		l.settle()
		if !slices.Equal(l.list, want) || len(l.list)+l.more != n {
			t.Errorf("%d of %d, and %d more", len(l.list), n, l.more)
		}
	}
}
