package emulator

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
)

// owned is a world whose pool belongs to CAPZ, with its controller.
func owned(t *testing.T, image string, change func(*Server)) (*world, *CAPZ) {
	t.Helper()
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 3, Tags: CAPZTags("c1")}}}, func(s *Server) {
		instant(s)
		if change != nil {
			change(s)
		}
	})
	z := &CAPZ{Pool: poolPath, Replicas: 3, MaxSurge: 1, Image: map[string]any{"id": image}}
	z.Call = func(method, path string, body map[string]any) (map[string]any, error) {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		a := w.do(method, path, string(raw))
		if a.status >= 300 {
			return nil, fmt.Errorf("%s %s: %d %s", method, path, a.status, a.message())
		}
		return a.body, nil
	}
	return w, z
}

func (z *CAPZ) run(t *testing.T, times int) (writes, deleted int) {
	t.Helper()
	for range times {
		did, err := z.Reconcile()
		if err != nil {
			t.Fatal(err)
		}
		if did.WroteModel {
			writes++
		}
		deleted += len(did.Deleted)
	}
	return writes, deleted
}

// TestCAPZPutsItsImageBack: a model that somebody writes by version is undone, and what booted from
// it goes.
func TestCAPZPutsItsImageBack(t *testing.T) {
	w, z := owned(t, definitionURL, nil)
	w.build("0", "1.0.0")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
	z.run(t, 10) // rolls the pool over to the definition
	w.must(201, http.MethodPut, definitionURL+"/versions/1.1.0", versionDoc("s-1.0.0"))
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL+"/versions/1.1.0"))
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":4}}`)
	z.Replicas = 4
	writes, deleted := z.run(t, 10)
	image := part(w.model(), "properties", "virtualMachineProfile", "storageProfile", "imageReference")
	if writes != 1 || deleted == 0 || text(image, "id") != definitionURL || len(w.s.Instances()) != 4 {
		t.Fatalf("%d writes, %d deleted, %d instances, image %v", writes, deleted, len(w.s.Instances()), image)
	}
}

// TestCAPZSeesNoDriftInAPointer moves the pointer of an owned pool in many ways: no node goes, no
// model is written. Where instances show the version they booted from, CAPZ rolls for ever.
func TestCAPZSeesNoDriftInAPointer(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 16))
		w, z := owned(t, definitionURL, nil)
		w.build("0", "1.0.0")
		w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
		w.must(200, http.MethodPost, poolPath+"/reimage", `{"instanceIds":["*"]}`)
		made := 0
		for range 8 {
			switch random.IntN(4) {
			case 0:
				made++
				w.must(201, http.MethodPut, fmt.Sprintf("%s/versions/1.0.%d", definitionURL, made), versionDoc("s-1.0.0"))
			case 1:
				if made > 0 {
					w.must(200, http.MethodPatch, fmt.Sprintf("%s/versions/1.0.%d", definitionURL, 1+random.IntN(made)),
						fmt.Sprintf(`{"properties":{"storageProfile":{},"publishingProfile":{"excludeFromLatest":%t}}}`, random.IntN(2) == 0))
				}
			case 2:
				z.Replicas++
			}
			if writes, deleted := z.run(t, 1); writes+deleted > 0 {
				t.Fatalf("seed %d: %d writes of the model, %d instances deleted", seed, writes, deleted)
			}
		}
	}
	for gate, rolls := range map[bool]bool{false: true, true: false} {
		w, z := owned(t, definitionURL, func(s *Server) { s.Pointer.Resolved = true })
		w.build("0", "1.0.0")
		w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
		z.SkipModelReconciliation = gate
		if _, deleted := z.run(t, 40); (deleted > 10) != rolls {
			t.Errorf("gate %t, instances show the version: %d deleted in 40 rounds", gate, deleted)
		}
	}
}

func TestCAPZDeletesAnInstanceThatFailed(t *testing.T) {
	w, z := owned(t, definitionURL, nil)
	w.build("0", "1.0.0")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
	z.SkipModelReconciliation = true
	w.s.Change(poolPath+"/virtualMachines/1", `{"properties":{"provisioningState":"Failed"}}`)
	did, err := z.Reconcile()
	if err != nil || len(did.Deleted) != 1 || did.Deleted[0] != "1" {
		t.Fatalf("did %+v, %v", did, err)
	}
	if did, err = z.Reconcile(); err != nil || did.Capacity != 3 || len(w.s.Instances()) != 3 {
		t.Fatalf("did %+v, %v; %d instances", did, err, len(w.s.Instances()))
	}
}
