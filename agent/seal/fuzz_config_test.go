package seal

import (
	"os"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzConfig: a run's policy and a disk's configuration are read or refused, and a disk makes the policy only stricter.
// FuzzPolicy has the packing; no mutation of packed bytes reaches the document.
func FuzzConfig(f *testing.F) {
	const head = "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n"
	f.Add([]byte(head), []byte(head+"verify: {unknown: report}\n"))
	f.Add([]byte(head+"join: keep\nverify: {known: [{path: /x, why: y}]}\n"), []byte(head+"join: fresh\nsources: [file:///x]\nverify: {allow: [{path: /x, kind: jwt, why: y}]}\n"))
	f.Add([]byte(head+"rules: [{id: a, paths: [/x/*], action: remove, why: b}]\nstop: [a.service]\n"), []byte(head+"exceptions: [{rule: logs, why: y}]\nfreeSpace: none\n"))
	f.Fuzz(func(t *testing.T, policy, own []byte) {
		c, err := ParsePolicy(policy)
		if err != nil {
			return
		}
		if c.Policy == "" {
			t.Errorf("%q: a policy without a digest", policy)
		}
		disks, err := ParseConfig(own)
		if err != nil {
			return
		}
		_ = disks.Adapt(true)
		r, _, err := c.Restrict(disks)
		if err != nil {
			return
		}
		if c.Verify.Unknown == UnknownRefuse && r.Verify.Unknown != UnknownRefuse || c.Join == JoinFresh && r.Join != JoinFresh ||
			len(r.Exceptions) > len(c.Exceptions) || len(r.Verify.Allow) > len(c.Verify.Allow) || len(r.Verify.Known) > len(c.Verify.Known) || len(r.Rules) < len(c.Rules) {
			t.Errorf("%q is made less strict by %q: %+v", policy, own, r)
		}
	})
}

// FuzzSettings: whatever stands where a clone's settings are, they are read or refused.
func FuzzSettings(f *testing.F) {
	d := disktest.New(f, map[string]string{SettingsPath: ""})
	f.Add([]byte("apiVersion: kamino.dev/v1alpha1\nkind: AgentConfig\nfirstBoot: agent\njoin: fresh\nsources: [imds://userData]\n"))
	f.Add([]byte("sources: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(d.Host(SettingsPath), data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = ReadSettings(d)
	})
}
