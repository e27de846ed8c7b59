package machines

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// model is the image that the pool's next machine boots from: the newest version that is offered,
// where the model names the definition.
func (s *Stage) model() string {
	type document struct {
		VirtualMachineProfile struct {
			StorageProfile struct{ ImageReference struct{ ID string } }
		}
		PublishingProfile struct{ ExcludeFromLatest bool }
	}
	properties := func(doc map[string]any) (d document) {
		raw, _ := json.Marshal(doc["properties"])
		_ = json.Unmarshal(raw, &d) // "" where there is none
		return d
	}
	image := properties(s.Cloud.Document(s.Scenario.PoolID(PoolName))).VirtualMachineProfile.StorageProfile.ImageReference.ID
	next := image
	for _, e := range s.Cloud.State() {
		at := strings.LastIndexByte(e.ID, '/')
		if at < 0 || !strings.EqualFold(e.ID[:at], image+"/versions") || properties(e.Document).PublishingProfile.ExcludeFromLatest {
			continue
		}
		if next == image || kamino.CompareVersions(e.ID[at+1:], path.Base(next)) > 0 {
			next = e.ID
		}
	}
	return next
}

// provingArgs are those of an update whose version a canary has to prove.
func (s *Stage) provingArgs() []string {
	return append(s.UpdateArgs(0), "--again", "--prove", "canary", "--prove-for", "1m", "--boot-budget", "10m")
}

// noCanary makes sure that nothing of a canary is left.
func noCanary(ctx context.Context, t *testing.T, s *Stage) {
	t.Helper()
	for _, i := range s.Cloud.Instances() {
		if i.Pool != PoolName {
			t.Errorf("machine %s of %s is left", i.Name, i.Pool)
		}
	}
	list, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if strings.HasPrefix(n.Name, "kamino-") {
			t.Errorf("Node object %s is left", n.Name)
		}
	}
}

// proveGood: a canary that really boots joins, is examined and goes, and its version is promoted.
func proveGood(ctx context.Context, t *testing.T, s *Stage) {
	before, machines := s.model(), len(s.Cloud.Instances())
	cmd := s.Command(ctx, s.provingArgs()...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var u Update
	if err != nil || json.Unmarshal(out, &u) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if now := s.model(); now == before || !strings.HasSuffix(now, "/"+u.Version) {
		t.Errorf("the next machine boots from %s, before from %s; the version is %s", now, before, u.Version)
	}
	if now := len(s.Cloud.Instances()); now != machines {
		t.Errorf("there were %d machines and are %d", machines, now)
	}
	noCanary(ctx, t, s)
	awaitDonor(ctx, t, s)
}

// sabotage keeps kubelet from starting on every machine but this one, without its name, which a
// seal would find.
const sabotage = `
sum=$(hostname | sha256sum | cut -c1-16)
mkdir -p /etc/systemd/system/kubelet.service.d
printf '[Service]\nExecStartPre=/bin/sh -c "hostname | sha256sum | grep -q ^%s"\n' "$sum" >/etc/systemd/system/kubelet.service.d/99-only-here.conf
systemctl daemon-reload
`

// proveBad: an image on whose machines no kubelet starts stays out of the pool.
func proveBad(ctx context.Context, t *testing.T, s *Stage) {
	before := s.model()
	if _, _, err := s.Run(ctx, s.Donor, sabotage); err != nil {
		t.Fatal(err)
	}
	cmd := s.Command(ctx, s.provingArgs()...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var u Update
	if err == nil || json.Unmarshal(out, &u) != nil || !strings.Contains(u.Error, "failed its proof: ready: ") {
		t.Errorf("%v: %s", err, out)
	}
	if now := s.model(); now != before {
		t.Errorf("the next machine boots from %s, before from %s", now, before)
	}
	noCanary(ctx, t, s)
	awaitDonor(ctx, t, s)
}
