package providertest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// protected lists the extensions of the pool's model that have protected settings.
func (c *cloud) protected() []string {
	for _, e := range c.server.State() {
		if strings.EqualFold(e.ID, c.scenario.PoolID(poolName)) {
			return e.Protected
		}
	}
	c.Fatal("no such scale set")
	return nil
}

// TestSettingsGivenLater: protected settings are written also where the image in
// the model is the wanted one already, once by one process; ARM shows nobody
// whether they are there.
func TestSettingsGivenLater(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), pool: emulator.Pool{Extensions: []emulator.Extension{
		{Name: "vmssCSE", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript"}, {Name: "other", Publisher: "p", Type: "t"}}}})
	if p := c.protected(); len(p) != 0 {
		t.Fatal(p)
	}
	pool := c.pool()
	model, err := c.ReadSaved(pool.Model.Saved)
	if err != nil || model.Image != pool.Model.Image || !slices.Equal(model.Extensions, pool.Model.Extensions) {
		t.Errorf("the saved model is read as %+v, the model is %+v: %v", model, pool.Model, err)
	}
	settings := map[string]json.RawMessage{"vmssCSE": json.RawMessage(`{"commandToExecute":"join"}`), "other": nil}
	want := kamino.ModelSpec{Saved: pool.Model.Saved, Secrets: kamino.ModelSecrets{Protected: settings}}
	diff, err := c.SetModel(t.Context(), pool, want, false)
	if err != nil || len(diff) != 1 || !strings.Contains(diff[0].Field, "vmssCSE") || strings.Contains(diff[0].To, "join") {
		t.Errorf("%+v, %v", diff, err)
	}
	for pool = c.pool(); pool.Updating; pool = c.pool() {
		c.clock.Advance(1e9)
	}
	if p := c.protected(); !slices.Equal(p, []string{"vmsscse"}) {
		t.Errorf("protected settings stand on %v", p)
	}
	if diff, err := c.SetModel(t.Context(), pool, want, true); err != nil || len(diff) != 0 {
		t.Errorf("once more: %+v, %v", diff, err)
	}
	settings["vmssCSE"] = json.RawMessage(`{"commandToExecute":"other"}`)
	if diff, err := c.SetModel(t.Context(), pool, want, true); err != nil || len(diff) != 1 {
		t.Errorf("other settings: %+v, %v", diff, err)
	}
	settings["nobody"] = nil
	if _, err := c.SetModel(t.Context(), pool, want, true); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an extension that is not there: %v", err)
	}
}
