package choose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

const day = 24 * time.Hour

// autoReport is what auto-update prints.
type autoReport struct {
	OK     bool                   `json:"ok"`
	Pools  []engine.PoolResult    `json:"pools"`
	Status []poolstate.PoolStatus `json:"status"`
}

func byName[T any](list []T, pool string, name func(T) string) (out T) {
	for _, p := range list {
		if name(p) == pool {
			return p
		}
	}
	return out
}

func (r autoReport) pool(name string) engine.PoolResult {
	return byName(r.Pools, name, func(p engine.PoolResult) string { return p.Name })
}

var targets = []string{"--target-vmss", "k8s-stale-vmss", "--target-vmss", "k8s-fresh-vmss", "--target-vmss", "k8s-none-vmss"}

// Three pools: one stale, one fresh, one without candidates. Only the stale one
// is updated, a rollback returns it, and the bad version is never chosen again.
func TestThreePools(t *testing.T) {
	prototype(t, "k8s-stale-vmss", 10*day)
	prototype(t, "k8s-fresh-vmss", 1*day)
	patch(t, "k8s-stale-vmss", 2*day)
	patch(t, "k8s-fresh-vmss", 2*day)
	stale, fresh, none := nextOf(t, "k8s-stale-vmss"), nextOf(t, "k8s-fresh-vmss"), nextOf(t, "k8s-none-vmss")
	today := kamino.VersionName(time.Now())

	updated := autoUpdateOnce(t, today)
	if now := nextOf(t, "k8s-stale-vmss"); !strings.HasSuffix(now, "/versions/"+today) {
		t.Errorf("the next image of the stale pool is %s", now)
	}
	unchanged(t, "k8s-fresh-vmss", fresh)
	unchanged(t, "k8s-none-vmss", none)

	rollBack(t, stale, today)

	var again autoReport
	log, code := kaminoRun(t, &again, append([]string{"auto-update"}, targets...)...)
	if p := again.pool("k8s-stale-vmss"); code != 0 || p.Action != poolstate.DoNothing || p.Result != nil {
		t.Errorf("exit code %d; after the rollback the stale pool is %+v\n%s", code, p, log)
	}
	unchanged(t, "k8s-stale-vmss", stale)
	tomorrow(t, updated.Donor, today)
}

func unchanged(t *testing.T, pool, image string) {
	t.Helper()
	if now := nextOf(t, pool); now != image {
		t.Errorf("the next image of %s is %s, was %s", pool, now, image)
	}
}

func autoUpdateOnce(t *testing.T, today string) engine.PoolResult {
	t.Helper()
	var report autoReport
	log, code := kaminoRun(t, &report, append([]string{"auto-update"}, targets...)...)
	if code != 0 || !report.OK || len(report.Pools) != 3 {
		t.Fatalf("exit code %d, report %+v\n%s", code, report, log)
	}
	p := report.pool("k8s-stale-vmss")
	if p.Action != poolstate.DoUpdate || p.Result == nil || p.Result.Version != today || !kamino.Has(p.Why, "patches") {
		t.Errorf("the stale pool: %+v", p)
	}
	if p := report.pool("k8s-fresh-vmss"); p.Action != poolstate.DoNothing || !kamino.Has(p.Why, "nothing") {
		t.Errorf("the fresh pool: %+v", p)
	}
	if p := report.pool("k8s-none-vmss"); p.Action != poolstate.DoNothing || !kamino.Has(p.Held, "too-few-candidates") {
		t.Errorf("the pool without candidates: %+v", p)
	}
	status := byName(report.Status, "k8s-stale-vmss", func(s poolstate.PoolStatus) string { return s.Name })
	if len(report.Status) != 3 || status.Next != today || len(status.Versions) != 2 || status.RollbackTarget == "" {
		t.Errorf("it ends with the status %+v", report.Status)
	}
	return p
}

func rollBack(t *testing.T, to, bad string) {
	t.Helper()
	var back engine.Rollback
	if log, code := kaminoRun(t, &back, "rollback", "--pool", "k8s-stale-vmss"); code != 0 || !back.Changed {
		t.Fatalf("rollback: exit code %d, %+v\n%s", code, back, log)
	}
	unchanged(t, "k8s-stale-vmss", to)
	var status []poolstate.PoolStatus
	kaminoRun(t, &status, "status", "--pool", "k8s-stale-vmss")
	for _, v := range status[0].Versions {
		if is := v.Name == bad; v.Excluded != is || (v.Bad != "") != is {
			t.Errorf("after the rollback version %s is excluded: %t, bad: %q", v.Name, v.Excluded, v.Bad)
		}
	}
}

// tomorrow looks at the same pool a day later: it stays at the version that it
// was returned to until a node is patched anew, and then takes that node.
func tomorrow(t *testing.T, badDonor, bad string) {
	t.Helper()
	e := newEngine(t, day)
	opts := kamino.AutoDefaults()
	opts.Pools, opts.Rules.MinReady = []string{"k8s-stale-vmss"}, 0
	plan := func() poolstate.PoolPlan {
		t.Helper()
		plans, err := e.PlanPools(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return plans[0]
	}
	if p := plan(); p.Action != poolstate.DoNothing {
		t.Errorf("a day later: %+v", p)
	}
	other := ""
	for _, n := range nodesOf(t, "k8s-stale-vmss") {
		if n != badDonor {
			other = n
		}
	}
	annotate(t, other, kamino.KuredLastPatch.Annotation, e.Clock.Now().Add(-time.Hour).Format(time.RFC3339))
	if p := plan(); p.Action != poolstate.DoUpdate || p.Donor != other || p.Run.Version == bad {
		t.Errorf("a day later, %s patched: %+v", other, p)
	}
	// Even when the age asks for an image without newer patches.
	opts.MaxImageAge = time.Minute
	annotate(t, other, kamino.KuredLastPatch.Annotation, "")
	for _, c := range plan().Candidates {
		if c.Node == badDonor && !kamino.Has(c.Reasons, "bad-image") {
			t.Errorf("the donor of the bad version, not patched since: %+v", c)
		}
	}
}

// A pool goes back to the model before its first prototype, whole, and forward.
func TestRollbackToOriginal(t *testing.T) {
	const pool = "k8s-c-vmss"
	id := shared.Scenario.PoolID(pool)
	profile := func() map[string]any {
		return shared.Cloud.Document(id)["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
	}
	extensions := func() (names []string) {
		list, _ := profile()["extensionProfile"].(map[string]any)["extensions"].([]any)
		for _, e := range list {
			names = append(names, e.(map[string]any)["name"].(string))
		}
		return names
	}
	// secret is what ARM keeps and never shows.
	secret := func() string {
		for _, e := range shared.Cloud.State() {
			if strings.EqualFold(e.ID, id) {
				return fmt.Sprint(e.CustomDataHash, e.Protected)
			}
		}
		return ""
	}
	image, had, kept := nextOf(t, pool), extensions(), secret()
	prototype(t, pool, 3*day)
	if now := extensions(); len(now) >= len(had) {
		t.Fatalf("the prototype kept extensions %q", now)
	}
	var back engine.Rollback
	if log, code := kaminoRun(t, &back, "rollback", "--pool", pool, "--to", "original"); code != 1 || !strings.Contains(log, "--to original --custom-data FILE --protected-settings "+had[0]+"=FILE") {
		t.Fatalf("without the custom data: exit code %d\n%s", code, log)
	}
	dir := t.TempDir()
	custom, protected := filepath.Join(dir, "custom"), filepath.Join(dir, "cse.json")
	for file, text := range map[string]string{custom: "#cloud-config\nruncmd: [/opt/bootstrap.sh]\n", protected: `{"commandToExecute": "/opt/bootstrap.sh"}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if log, code := kaminoRun(t, &back, "rollback", "--pool", pool, "--to", "original", "--custom-data", custom, "--protected-settings", had[0]+"="+protected); code != 0 {
		t.Fatalf("exit code %d\n%s", code, log)
	}
	unchanged(t, pool, image)
	if now := extensions(); strings.Join(now, " ") != strings.Join(had, " ") {
		t.Errorf("extensions are %q, were %q before the first prototype", now, had)
	}
	if now := secret(); now != kept {
		t.Errorf("what ARM does not show is %s, was %s", now, kept)
	}
	if len(back.Bad) != 1 {
		t.Errorf("marked bad: %q", back.Bad)
	}
	var forward engine.Rollback
	if log, code := kaminoRun(t, &forward, "rollback", "--pool", pool, "--to", back.Bad[0]); code != 0 || len(forward.Good) != 1 {
		t.Fatalf("forward: exit code %d, %+v\n%s", code, forward, log)
	}
	if now := nextOf(t, pool); !strings.HasSuffix(now, "/versions/"+back.Bad[0]) {
		t.Errorf("the next image is %s", now)
	}
}
