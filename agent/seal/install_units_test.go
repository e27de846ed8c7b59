package seal

import (
	"strings"
	"testing"
)

// TestAzureAgentWaits: on an image with the Azure Linux Agent, whatever its unit is called, the
// agent starts behind the first boot, which names the machine.
func TestAzureAgentWaits(t *testing.T) {
	const dropIn = unitDir + "/waagent.service.d/00-kamino.conf"
	for _, mode := range []string{FirstBootAgent, FirstBootCloudInit} {
		d := plant(t)
		if err := d.WriteFile("usr/lib/systemd/system/waagent.service", []byte("[Service]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.FirstBoot = mode })); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(d.Text(dropIn), "After=kamino-boot.service"); got != (mode == FirstBootAgent) {
			t.Errorf("firstBoot %s: %q", mode, d.Text(dropIn))
		}
		if d.Exists(unitDir + "/walinuxagent.service.d") {
			t.Error("a drop-in for a unit that is not there")
		}
	}
}
