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
	settings := map[string]json.RawMessage{"vmssCSE": json.RawMessage(`{"commandToExecute":"join"}`), "other": nil}
	want := kamino.Target{Former: pool.Model.Saved, Secrets: kamino.Secrets{Protected: settings}}
	next, err := c.NextImage(t.Context(), pool, want)
	if diff := next.Diff; err != nil || len(diff) != 1 || !strings.Contains(diff[0].Field, "vmssCSE") || strings.Contains(diff[0].To, "join") {
		t.Errorf("%+v, %v", diff, err)
	}
	c.must(c.Promote(t.Context(), pool, want))
	for pool = c.pool(); pool.Updating; pool = c.pool() {
		c.clock.Advance(1e9)
	}
	if p := c.protected(); !slices.Equal(p, []string{"vmsscse"}) {
		t.Errorf("protected settings stand on %v", p)
	}
	if next, err := c.NextImage(t.Context(), pool, want); err != nil || len(next.Diff) != 0 {
		t.Errorf("once more: %+v, %v", next, err)
	}
	settings["vmssCSE"] = json.RawMessage(`{"commandToExecute":"other"}`)
	if next, err := c.NextImage(t.Context(), pool, want); err != nil || len(next.Diff) != 1 {
		t.Errorf("other settings: %+v, %v", next, err)
	}
	settings["nobody"] = nil
	if _, err := c.NextImage(t.Context(), pool, want); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an extension that is not there: %v", err)
	}
}

// TestSecretsNeeded: an extension that comes back needs its settings, unless something was said of
// them. One of the same name and another program is another one.
func TestSecretsNeeded(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), pool: emulator.Pool{Extensions: []emulator.Extension{
		{Name: "vmssCSE", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript"}}}})
	former, none := c.pool(), map[string]json.RawMessage{"VMSScse": nil}
	other := former
	other.Model.Extensions = []kamino.Extension{{Name: "vmssCSE", Publisher: "Other", Type: "Other"}}
	for name, tt := range map[string]struct {
		pool  kamino.Pool
		said  map[string]json.RawMessage
		needs []string
	}{
		"it is there":                  {pool: former},
		"another program is there":     {pool: other, needs: []string{"vmssCSE"}},
		"it is said to have no secret": {pool: other, said: none},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := c.NextImage(t.Context(), tt.pool, kamino.Target{Former: former.Model.Saved, Secrets: kamino.Secrets{Protected: tt.said}})
			if err != nil || !slices.Equal(next.Needs, tt.needs) || next.Image != former.Model.Image {
				t.Errorf("%s: %+v, %v", name, next, err)
			}
		})
	}
}
