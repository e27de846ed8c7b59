package kamino

import (
	"testing"

	"kamino.dev/kamino/internal/hostile"
)

func TestParseLabelDemand(t *testing.T) {
	tests := map[string]string{ // text -> what String makes of it; "" is an error
		"node-restriction.kubernetes.io/a":          "node-restriction.kubernetes.io/a",
		"node-restriction.kubernetes.io/a=b":        "node-restriction.kubernetes.io/a=b",
		"kamino.node-restriction.kubernetes.io/a=":  "kamino.node-restriction.kubernetes.io/a",
		"xnode-restriction.kubernetes.io/a":         "",
		"kubernetes.io/hostname=a":                  "",
		"a":                                         "",
		"":                                          "",
		"node-restriction.kubernetes.io/":           "",
		"node-restriction.kubernetes.io/a=b c":      "",
		"node-restriction.kubernetes.io/a/b":        "",
		"a=node-restriction.kubernetes.io/a":        "",
		"node-restriction.kubernetes.io.evil.com/a": "",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseLabelDemand(text)
			if (err != nil) != (want == "") || got.String() != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
			if err != nil && Hint(err) == "" {
				t.Errorf("no hint with %v", err)
			}
		})
	}
}

// FuzzAnnotations: whatever a node writes into its annotations, reading it ends, and gives nothing
// that a terminal obeys.
func FuzzAnnotations(f *testing.F) {
	for _, seed := range []string{
		`{"format":1,"run":"r1","epoch":3,"pool":"/p","instance":"azure:///p/virtualMachines/0","vmId":"v","bootID":"b","block":true,"work":"patch","protection":"x"}`,
		`{"run":"r1","donor":"n1","sealedAt":"2026-11-20T00:00:00Z","hash":"00","nonce":"n","packageDigest":"11","sshKeys":["a"],"unknown":{"mode":"refuse","count":1},"phases":{"kernel":2.1}}`,
		`{"run":"r1","nonce":"n","list":"H4sIAAAAAAAA/0tUMFRIzE0xAQBPPPcZCQAAAA==","report":"H4sIAAAAAAAA/6tWKkotLsksS1WyUgKySxJLMvPzlGoBc7rJxBUAAAA="}`,
		`{"nonce":"n","units":[{"name":"a.service","restarts":3}],"error":"x\u001b"}`, `[]`, "\x1b", "null",
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		n := Node{Name: "n1", ProviderID: "azure:///p/virtualMachines/0", Taints: []Taint{{Key: TaintPatchFailed}}, Annotations: map[string]string{
			AnnotationRun: one, AnnotationReceipt: two, AnnotationFreshness: one, AnnotationReport: two, AnnotationPatch: one,
			AnnotationPackages: two, AnnotationPatchFailed: one, AnnotationSealFailure: two}}
		mark, _ := n.Mark()
		receipt, _ := n.Receipt()
		report, _ := n.Report("n")
		list, _ := n.Packages("r1", "n")
		patched := n.PatchAnswer(AnnotationPatch, "r1", "n")
		if patched != nil {
			_ = patched.Summary()
			patched.Last = ""
		}
		_, _ = n.Claimed("/p")
		_ = receipt.Timing.bounded()
		_ = receipt.Freshness.Tags(Software{})
		for _, read := range []any{mark, receipt, report, list, patched, n.Freshness(), n.Blocked(), n.SealFailure("r1")} {
			for _, bad := range hostile.Find(read) {
				t.Errorf("%T%s", read, bad)
			}
		}
	})
}
