package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// runningCluster is a cluster that knows what this pod runs.
type runningCluster struct {
	*fakeCluster
	image string
}

func (c runningCluster) RunningImage(_ context.Context, namespace, pod string) (string, error) {
	if namespace != "ns" || pod != "pod-1" {
		return "", errors.New("asked for " + namespace + "/" + pod)
	}
	return c.image, nil
}

func TestNeedImage(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	inPod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "ns", "POD_NAME": "pod-1"}
	tests := []struct {
		name, flag, builtin string
		env                 map[string]string
		dryRun              bool
		listed              []string
		want                string // image
		wrong               string // part of the error
	}{
		{name: "flag", flag: "a" + digest, env: map[string]string{"POD_IMAGE": "b" + digest}, want: "a" + digest},
		{name: "environment", env: map[string]string{"POD_IMAGE": "b" + digest}, builtin: "c" + digest, want: "b" + digest},
		{name: "release", builtin: "c" + digest, env: inPod, want: "c" + digest},
		{name: "running pod", env: inPod, want: "d" + digest},
		{name: "the only one listed", listed: []string{"e" + digest}, want: "e" + digest},
		{name: "two are listed", listed: []string{"e" + digest, "f" + digest}, wrong: "no image"},
		{name: "a tag is listed", listed: []string{"e:1"}, wrong: "not pinned"},
		{name: "none", wrong: "no image"},
		{name: "none, dry run", dryRun: true},
		{name: "tag", flag: "registry.example/kamino:1.0", wrong: `"registry.example/kamino:1.0" is not pinned`},
		{name: "tag, dry run", flag: "kamino:1.0", dryRun: true, wrong: "not pinned"},
		{name: "short digest", flag: "kamino@sha256:abc", wrong: "not pinned"},
		{name: "two digests", flag: "kamino" + digest + digest, wrong: "not pinned"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			builtinImage = tt.builtin
			defer func() { builtinImage = "" }()
			a := &app{env: func(name string) string { return tt.env[name] },
				cluster: func(context.Context, *app) (kamino.Cluster, error) {
					return runningCluster{&fakeCluster{images: tt.listed, noImages: tt.listed == nil}, "d" + digest}, nil
				}}
			a.global.SealImage = tt.flag
			err := a.needImage(t.Context(), tt.dryRun)
			if tt.wrong == "" {
				if err != nil || a.global.SealImage != tt.want {
					t.Errorf("got %q, %v; want %q", a.global.SealImage, err, tt.want)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.wrong) || !strings.Contains(err.Error()+kamino.Hint(err), "--image NAME@sha256:DIGEST") {
				t.Errorf("got %v, hint %q; want %q", err, kamino.Hint(err), tt.wrong)
			}
		})
	}
}

// TestNoImageGivesBack: a run that has no image to seal with gives back what an earlier one left,
// as every run that is refused does.
func TestNoImageGivesBack(t *testing.T) {
	for _, args := range [][]string{{"update", "--target-node", "n1"}, {"auto-update"}, {"update", "--target-node", "n1", "--image", "kamino:latest"}} {
		w := newFakeWorld()
		id := stale(w).ID
		w.cluster.leases[id] = kamino.Lease{Revision: "1", Holder: "r9x", Process: "host/1", Renewed: w.now.Add(-time.Hour), Record: kamino.Record{Donor: "n3", Step: "drain"}}
		delete(w.env, "POD_IMAGE")
		w.cluster.noImages = true
		_, errs, code := w.kamino(t, args...)
		want := exitRefused
		if len(args) > 3 {
			want = exitFailed // an option that is wrong by itself
		}
		if l := w.cluster.leases[id]; l.Holder != "" || code != want || !strings.Contains(errs, "--image NAME@sha256:DIGEST") {
			t.Errorf("%v: exit code %d, the lease is held by %q\n%s", args, code, l.Holder, errs)
		}
		// Beside a run that lives it is left alone.
		w.cluster.alive = true
		w.cluster.leases[id] = kamino.Lease{Revision: "1", Holder: "r9", Process: "host/1", Renewed: w.now, Record: kamino.Record{Donor: "n3", Step: "drain"}}
		if _, errs, code := w.kamino(t, args...); code != want || w.cluster.leases[id].Holder != "r9" {
			t.Errorf("%v beside a run that lives: exit code %d\n%s", args, code, errs)
		}
	}
}
