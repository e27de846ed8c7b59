// Package chart tests charts/vmss-prototype and charts/kamino: rendered by Helm's own library,
// checked by a real API server, and run.
package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// namespace is that of the release.
const namespace = "kamino"

const (
	// speed is how many times faster than published Azure the lab works.
	speed = 600
	// pools is how many scale sets there are: each run of a test takes one.
	pools = 60
)

var (
	shared *lab.Lab
	binary string // kamino
	// labs of their own are started with these.
	mainContext context.Context
	labProgram  string
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(ctx context.Context, dir, labBinary string) (stop func(), err error) {
		mainContext, labProgram = ctx, labBinary
		if err := labtest.SideBySide(8); err != nil {
			return nil, err
		}
		if binary, err = labtest.BuildKamino(ctx, dir, "50ms", "50ms"); err != nil {
			return nil, err
		}
		var scenario emulator.Scenario
		for n := range pools {
			scenario.Pools = append(scenario.Pools, emulator.Pool{Name: poolName(n), Count: 1})
		}
		if shared, err = lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Binary: labBinary, Scenario: scenario, Speed: speed}); err != nil {
			return nil, err
		}
		_, err = shared.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		return shared.Stop, err
	})
}

func poolName(n int) string { return fmt.Sprintf("k8s-p%02d-vmss", n) }
