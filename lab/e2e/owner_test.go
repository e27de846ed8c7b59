package e2e

import (
	"strings"
	"testing"

	"kamino.dev/kamino/azure/emulator"
)

// TestOwnedPool: the model of a pool of cluster-api-provider-azure is never written. An image is
// made on request, with the lines for its owner, and hidden until it is promoted by its name; once
// the owner's spec names the definition, ordinary runs move the pointer only.
func TestOwnedPool(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1, func(s *emulator.Pool) { s.Tags = emulator.CAPZTags("prod-1") })
	model := p.model()
	if o := kaminoRun(t, updateArgs(p.node(0))...); o.code != 3 || !strings.Contains(o.log, "cluster prod-1") || !strings.Contains(o.log, "--image-only") {
		t.Errorf("an ordinary run: exit code %d\n%s", o.code, o.log)
	}
	r := kaminoRun(t, updateArgs(p.node(0), "--image-only")...).mustSucceed(t)
	definition := definitionOf(r.Image)
	if !r.Hidden || r.Owner == nil || !strings.Contains(r.Owner.Spec, "id: "+definition) || len(r.Extensions) == 0 {
		t.Errorf("with an image only: %+v", r.Result)
	}
	if o := kaminoRun(t, "promote", "--pool", p.name, "--version", r.Version); o.code != 0 || !strings.Contains(o.out, "once the owner of the model") {
		t.Errorf("promoted by its name: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	if now := p.model(); now != model {
		t.Fatalf("the model is %s, was %s", now, model)
	}
	p.lab.Cloud.Change(p.id, `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"`+definition+`"}}}}}`)
	model = p.model()
	next := kaminoRun(t, updateArgs(p.node(0), "--again")...).mustSucceed(t)
	if o := kaminoRun(t, "status", "--pool", p.name); !strings.Contains(o.out, "boots from "+next.Version) || next.Version == r.Version || p.model() != model {
		t.Errorf("an ordinary run then: version %s, model %s, status\n%s", next.Version, p.model(), o.out)
	}
}
