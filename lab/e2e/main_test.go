// Package e2e tests the whole product: the binary kamino as a user starts it,
// against a real API server with real controllers, and Azure's emulator over
// HTTPS, which the Azure SDK cannot tell from Azure.
package e2e

import (
	"context"
	"flag"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// speed is how many times faster than published Azure the shared lab works: a
// stop takes 0.2 s, the build of an image version 1.1 s.
const speed = 600

// One lab serves all tests. Each test has pools of its own in it.
var (
	shared    *lab.Lab
	binary    string // kamino
	labBinary string // kamino-lab

	mainContext context.Context // of TestMain
	mainDir     string
	awsStarted  atomic.Bool
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(ctx context.Context, dir, kaminoLab string) (stop func(), err error) {
		labBinary, mainContext, mainDir = kaminoLab, ctx, dir
		if err := labtest.SideBySide(16); err != nil {
			return nil, err
		}
		if binary, err = labtest.BuildKamino(ctx, dir, "50ms", "50ms"); err != nil || onlyBenches() {
			return nil, err
		}
		shared, err = lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Binary: labBinary, NodesPerPool: 3, Speed: speed, Configure: addFirstRole})
		if err == nil {
			shared.Nodes.Behave(canaryBehaviour)
		}
		return func() {
			shared.Stop()
			if awsStarted.Load() {
				if l, err := onAWS(); err == nil {
					l.Stop()
				}
			}
		}, err
	})
}

// onlyBenches: they have labs of their own, and measure better alone. That is told by -run, as
// .ci/bench gives it: other tests run where KAMINO_BENCH is set, too.
func onlyBenches() bool {
	chosen := flag.Lookup("test.run").Value.String()
	return bench.Measures() && strings.Contains(chosen, "Bench") && !strings.Contains(chosen, "|")
}

// firstRoleID is a principal that has the role of docs/azure-role.json alone: it makes no canary.
const firstRoleID = "44444444-4444-4444-4444-444444444444"

func addFirstRole(c *emulator.Server) {
	who := c.Identities[0]
	who.ClientID, who.Roles = firstRoleID, []emulator.Role{{Scope: who.Roles[0].Scope, Actions: azure.Actions()}}
	c.Identities = append(c.Identities, who)
}
