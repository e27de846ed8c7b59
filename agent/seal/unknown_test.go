package seal

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino/agent/inventory"
)

// policyOf is the policy for what is unknown on a planted disk now.
func policyOf(t *testing.T, o Options) (Config, []byte) {
	t.Helper()
	r, err := Inventory(t.Context(), plant(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return allowing(t, r)
}

// allowing is the policy that an inventory writes of what it found unknown.
func allowing(t *testing.T, r *inventory.Result) (Config, []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteAllow(&b); err != nil {
		t.Fatal(err)
	}
	c, err := ParsePolicy(b.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.Bytes())
	}
	return c, b.Bytes()
}

// TestUnknownRefused: a policy that allows what was there seals, and refuses one file more, before
// anything is changed.
func TestUnknownRefused(t *testing.T) {
	policy, text := policyOf(t, planted(nil))
	if n := policy.Unreviewed(); n == 0 || n != len(policy.Verify.Known) {
		t.Errorf("%d of %d entries say that nobody reviewed them", n, len(policy.Verify.Known))
	}
	if seen, err := ParsePolicy(bytes.ReplaceAll(text, []byte("reviewed: false, "), nil)); err != nil || seen.Unreviewed() != 0 || len(seen.Verify.Known) != len(policy.Verify.Known) {
		t.Errorf("reviewed: %d are left of %d, %v", seen.Unreviewed(), len(seen.Verify.Known), err)
	}
	d := plant(t)
	receipt, err := Seal(t.Context(), d, planted(func(o *Options) { o.Config = policy }))
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Policy != sumOf(text) || receipt.Unknown == nil || receipt.Unknown.Mode != UnknownRefuse || receipt.Unknown.Count != 0 {
		t.Errorf("receipt has policy %s and unknown %+v", receipt.Policy, receipt.Unknown)
	}
	info, err := os.Stat(filepath.Join(d.Dir(), UnknownListPath))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("list: %v %v", info, err)
	}
	for name, text := range map[string]string{
		"opt/newagent/identity": "c0ffee\n",  // nobody knows it
		"home/u/notes":          "another\n", // known with another content
		"etc/fstab":             "//server/share /mnt cifs username=u,sec=krb5 0 0\n/dev/x /mnt auto comment=cloudconfig 0 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := plant(t)
			plantFile(t, d.Dir(), name, text)
			before := read(t, d)
			_, err := Seal(t.Context(), d, planted(func(o *Options) { o.Config = policy }))
			var unexplained *Unexplained
			if !errors.As(err, &unexplained) || !strings.Contains(err.Error(), "/"+name) || !strings.Contains(err.Error(), "no earlier list") {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(before, read(t, d)); diff != "" {
				t.Errorf("%s: the refused seal changed\n%s", name, diff)
			}
		})
	}
}

// TestUnknownReported: where a configuration says so, the seal goes on and counts what nobody
// explains; a clone that is a donor names what is new.
func TestUnknownReported(t *testing.T) {
	d := plant(t)
	receipt, err := Seal(t.Context(), d, planted(nil))
	if err != nil {
		t.Fatal(err)
	}
	if u := receipt.Unknown; u == nil || u.Mode != UnknownReport || u.Count == 0 || !strings.HasPrefix(u.Digest, "sha256:") || receipt.Policy != "" {
		t.Errorf("receipt has unknown %+v and policy %q", u, receipt.Policy)
	}
	if err := Retire(d, receipt); err != nil { // it booted
		t.Fatal(err)
	}
	plantFile(t, d.Dir(), "opt/newagent/identity", "c0ffee\n")
	var log bytes.Buffer
	_, err = Seal(t.Context(), d, planted(func(o *Options) { o.Run, o.Log = "r2", slog.New(slog.NewTextHandler(&log, nil)) }))
	if err != nil {
		t.Fatal(err)
	}
	if want := "became unknown since the image of run r1: /opt/newagent/identity"; !strings.Contains(log.String(), want) {
		t.Errorf("no %q in\n%s", want, log.String())
	}
}

// TestUnknownAfterTheRules: what appears between the looks is refused, and everything taken back.
func TestUnknownAfterTheRules(t *testing.T) {
	policy, _ := policyOf(t, planted(nil))
	d := plant(t)
	o := planted(func(o *Options) { o.Config = policy })
	index, err := Survey(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	plantFile(t, d.Dir(), "var/lib/late/secret", "x\n")
	before := read(t, d)
	o.Earlier = index
	_, err = Seal(t.Context(), d, o)
	var unexplained *Unexplained
	if !errors.As(err, &unexplained) || !strings.Contains(err.Error(), "/var/lib/late/secret") {
		t.Errorf("sealed: %v", err)
	}
	if diff := cmp.Diff(before, read(t, d)); diff != "" {
		t.Errorf("the refused seal changed\n%s", diff)
	}
}

// TestExceptionAllowsOneKind: a key in an excepted manifest is found, unless the exception is for
// keys.
func TestExceptionAllowsOneKind(t *testing.T) {
	for _, c := range []struct{ kind, text, found string }{
		{"", "kind: Pod\n", ""},
		{"", "kind: Pod\n" + secret, "private-key"},
		{"", "token: abcdef.0123456789abcdef\n", "token-bootstrap"},
		{"private-key", "kind: Pod\n" + secret, "sensitive-place"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			d := plant(t)
			plantFile(t, d.Dir(), "etc/kubernetes/manifests/etcd.yaml", c.text)
			_, err := Seal(t.Context(), d, planted(func(o *Options) {
				o.Config.Exceptions = []Exception{{Rule: "static-pods", Kind: c.kind, Why: "test"}}
			}))
			var found *Found
			if c.found == "" && err == nil {
				return
			}
			if !errors.As(err, &found) || !strings.Contains(err.Error(), c.found+": etc/kubernetes/manifests/etcd.yaml") {
				t.Errorf("kind %q with %q: %v", c.kind, c.text, err)
			}
		})
	}
}

// TestRestrict: a disk makes the run's policy stricter, never laxer.
func TestRestrict(t *testing.T) {
	const head = "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n"
	for _, c := range []struct{ name, policy, own, refused, ignored string }{
		{"nothing of its own", "", "", "", ""},
		{"rules", "", "rules: [{id: mine, paths: [/x], action: remove, why: y}]\n", "", ""},
		{"same rule", "rules: [{id: mine, paths: [/x], action: remove, why: y}]\n", "rules: [{id: mine, paths: [/y], action: remove, why: y}]\n", "another id", ""},
		{"exceptions", "", "exceptions: [{rule: static-pods, why: y}]\n", "", "exception of rule static-pods"},
		{"allow", "", "verify: {allow: [{path: /srv, kind: secret, why: y}], known: [{path: /opt, why: y}]}\n", "", "verify.allow /srv,verify.known /opt"},
		{"report", "", "verify: {unknown: report}\n", "verify.unknown", ""},
		{"refuse", "verify: {unknown: report}\n", "verify: {unknown: refuse}\n", "", ""},
		{"keep", "", "join: keep\n", "join", ""},
		{"fresh", "join: keep\n", "join: fresh\n", "", ""},
		{"no zeros", "", "freeSpace: none\n", "freeSpace", ""},
		{"first boot", "", "firstBoot: cloud-init\n", "firstBoot", ""},
		{"the same", "firstBoot: cloud-init\n", "firstBoot: cloud-init\n", "", ""},
		{"sources", "", "sources: [file:///x]\n", "sources", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy, err := ParsePolicy([]byte(head + c.policy))
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if c.own != "" {
				text = head + c.own
			}
			own, err := ParseConfig([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			got, ignored, err := policy.Restrict(own)
			if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			if err != nil {
				return
			}
			if strings.Join(ignored, ",") != c.ignored || len(got.Exceptions)+len(got.Verify.Allow)+len(got.Verify.Known) > 0 {
				t.Errorf("%s: ignored %q; the policy is %+v", c.name, ignored, got)
			}
			if strings.Contains(c.own, "rules") && len(got.Rules) != 1 || c.name == "fresh" && got.Join != JoinFresh || got.Verify.Unknown != UnknownRefuse {
				t.Errorf("%s: the policy is %+v", c.name, got)
			}
		})
	}
}

func TestPolicyText(t *testing.T) {
	text := []byte("apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n")
	packed, err := EncodePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodePolicy(packed); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := DecodePolicy(""); got != nil || err != nil {
		t.Errorf("no policy: %q, %v", got, err)
	}
	bomb, err := EncodePolicy(bytes.Repeat([]byte("# 0123456789\n"), 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := DecodePolicy(bomb); err == nil {
		if _, err := ParsePolicy(data); err == nil || len(data) > PolicyMost+1 {
			t.Errorf("a policy of 13 MiB came out as %d bytes: %v", len(data), err)
		}
	}
	for _, bad := range []string{"%%%", "aGVsbG8="} {
		if _, err := DecodePolicy(bad); err == nil {
			t.Errorf("%s was decoded", bad)
		}
	}
	for _, bad := range []string{"", " \n", "kind: SealConfig\n", string(text) + "nonsense: 1\n", string(text) + "verify: {unknown: maybe}\n", string(text) + "verify: {known: [{path: /x}]}\n"} {
		if _, err := ParsePolicy([]byte(bad)); err == nil {
			t.Errorf("%q was parsed", bad)
		}
	}
}

// FuzzPolicy: whatever an environment variable brings is read or refused.
func FuzzPolicy(f *testing.F) {
	text, err := EncodePolicy([]byte("apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\nverify: {known: [{path: /x, why: y}]}\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		data, err := DecodePolicy(text)
		if err != nil || len(data) > PolicyMost {
			return
		}
		if c, err := ParsePolicy(data); err == nil && c.Policy == "" {
			t.Errorf("%q: a policy without a digest", data)
		}
	})
}
