package kamino

import (
	"strings"
	"testing"
)

// TestReceiptNamesThePolicy: a receipt of another policy than the run brought, or of an agent that does not know
// policies, is none.
func TestReceiptNamesThePolicy(t *testing.T) {
	r := &Run{Options: Options{SealPolicy: []byte("x")}, id: "r1"}
	for _, c := range []struct{ brought, named string }{{"", ""}, {r.policySum(), r.policySum()}, {r.policySum(), ""}, {r.policySum(), "00"}, {"", "00"}} {
		r.lease = &Lease{Record: Record{Policy: c.brought}}
		r.instance.VMID = "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10"
		err := r.checkReceipt(Receipt{Run: "r1", VMID: r.instance.VMID, Policy: c.named})
		if (err == nil) != (c.brought == c.named) || err != nil && !strings.Contains(err.Error(), "seal policy") {
			t.Errorf("brought %q, named %q: %v", c.brought, c.named, err)
		}
	}
}

// TestUnknownFilesTravel: what the receipt says of them is on the image's tags, and status reads it there.
func TestUnknownFilesTravel(t *testing.T) {
	r := &Run{Engine: &Engine{}, id: "r1", lease: &Lease{}}
	r.Clock = WallClock{}
	unknown := UnknownFiles{Mode: "report", Count: 12, Digest: "sha256:aa"}
	got := versionStatus(Artifact{Kind: Version, Tags: r.tags(Receipt{Hash: "h", Policy: "p", Unknown: &unknown})})
	if got.Unknown == nil || *got.Unknown != unknown || got.Policy != "p" {
		t.Errorf("status says %+v and policy %q", got.Unknown, got.Policy)
	}
	if old := versionStatus(Artifact{Kind: Version, Tags: r.tags(Receipt{Hash: "h"})}); old.Unknown != nil || old.Policy != "" {
		t.Errorf("status of an image of a former version: %+v", old)
	}
}
