// Package choose tests how donors are chosen, and the way back, with the real
// program against a real API server and Azure's emulator.
package choose

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// speed is how many times faster than published Azure the lab works.
const speed = 400

var (
	shared *lab.Lab
	binary string // kamino

	benchBinary string // kamino-lab, for the bench
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(ctx context.Context, dir, labBinary string) (stop func(), err error) {
		if binary, err = labtest.BuildKamino(ctx, dir, "50ms", "50ms"); err != nil {
			return nil, err
		}
		if bench.Measures() { // the bench has a lab of its own; run it with -run Bench
			benchBinary = labBinary
			return nil, nil
		}
		var pools []emulator.Pool
		for _, p := range []struct {
			name  string
			nodes int
		}{{"k8s-stale-vmss", 3}, {"k8s-fresh-vmss", 2}, {"k8s-none-vmss", 2}, {"k8s-a-vmss", 2}, {"k8s-b-vmss", 2}, {"k8s-c-vmss", 2}} {
			pools = append(pools, emulator.Pool{Name: p.name, Count: p.nodes})
		}
		shared, err = lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Binary: labBinary,
			Scenario: emulator.Scenario{Pools: pools}, Speed: speed})
		return shared.Stop, err
	})
}

// kaminoRun runs the program as a user does, and reads the JSON it prints.
func kaminoRun(t *testing.T, into any, args ...string) (stderr string, code int) {
	t.Helper()
	args = append(args, "-o", "json")
	switch args[0] {
	case "auto-update":
		args = append(args, "--grace-period", "1",
			"--minimum-ready-time", "0", "--prove-for", "0s", "--image", lab.SealImage)
	case "plan":
		args = append(args, "--minimum-ready-time", "0")
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = os.Environ()
	for name, value := range shared.Environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			t.Fatalf("kamino %s: %v\n%s\n%s", strings.Join(args, " "), err, out.String(), errs.String())
		}
	}
	return errs.String(), cmd.ProcessState.ExitCode()
}

// labTransport trusts the lab.
func labTransport(t *testing.T) *http.Transport {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(shared.Dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}

// engine is the product inside this process, with a clock that is ahead.
func newEngine(t *testing.T, ahead time.Duration) *engine.Engine {
	t.Helper()
	environment := shared.Environment()
	provider, err := azure.New(azure.Config{
		Subscription: shared.Scenario.Subscription, ResourceGroup: shared.Scenario.ResourceGroup,
		Transport: &http.Client{Transport: labTransport(t)},
		Getenv:    func(name string) string { return environment[name] },
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.New(shared.RESTConfig(), kube.Options{SealImage: lab.SealImage})
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Engine{Provider: provider, Cluster: cluster, Clock: shifted{by: ahead}, Process: "test/1",
		NewID: func() string { return fmt.Sprintf("run-%d", time.Now().UnixNano()) }, MinPoll: 50 * time.Millisecond, MaxPoll: 200 * time.Millisecond, SettleLimit: 100 * time.Millisecond}
}

// shifted is the wall clock, so much ahead.
type shifted struct {
	kamino.WallClock
	by time.Duration
}

func (c shifted) Now() time.Time { return c.WallClock.Now().Add(c.by) }

// annotate sets annotations of a node; an empty value removes one.
func annotate(t *testing.T, node, name, value string) {
	t.Helper()
	var v any = value
	if value == "" {
		v = nil
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: v}}})
	if _, err := shared.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// nodesOf lists the names of a pool's nodes.
func nodesOf(t *testing.T, pool string) []string {
	t.Helper()
	list, err := shared.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		if strings.Contains(strings.ToLower(n.Spec.ProviderID), "/"+pool+"/") {
			names = append(names, n.Name)
		}
	}
	return names
}

// patch makes every node of a pool tell that it was patched so long ago.
func patch(t *testing.T, pool string, ago time.Duration) {
	t.Helper()
	for _, n := range nodesOf(t, pool) {
		annotate(t, n, kamino.KuredLastPatch.Annotation, time.Now().UTC().Add(-ago).Format(time.RFC3339))
	}
}

// nextOf is the image that a pool's next instance boots from: the one that its model refers to, or
// the version that the definition stands for which the model refers to.
func nextOf(t *testing.T, pool string) string {
	t.Helper()
	provider := newEngine(t, 0).Provider
	p, err := provider.Pool(t.Context(), kamino.PoolID(strings.ToLower(shared.Scenario.PoolID(pool))))
	if err != nil {
		t.Fatal(err)
	}
	versions, err := provider.Find(t.Context(), p, kamino.KindVersion, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if v.InModel {
			return v.ID
		}
	}
	return p.Model.Image
}

// prototype gives a pool an image that was made so long ago, by the product
// itself with its clock put back.
func prototype(t *testing.T, pool string, ago time.Duration) {
	t.Helper()
	opts := kamino.Defaults()
	opts.Proof.Mode = kamino.ProveNone // no canary lives in another time than its cluster
	opts.Donor, opts.Grace = nodesOf(t, pool)[0], time.Second
	if _, err := newEngine(t, -ago).Update(t.Context(), opts); err != nil {
		t.Fatalf("make the earlier prototype of %s: %v", pool, err)
	}
}
