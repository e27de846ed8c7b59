package providertest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// TestPointerMoves: a pool whose model names the definition boots new machines from the version
// that is offered, whatever is hidden, and its model is not written again. The version that the
// definition stands for is in use.
func TestPointerMoves(t *testing.T) {
	c := imaged(t, "2026.1.1")
	ctx := t.Context()
	c.must(c.Promote(ctx, c.pool(), kamino.Target{Version: "2026.1.1", Reference: kamino.ByDefinition}))
	hidden := kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.1.2", Source: c.Address(c.pool(), kamino.KindSnapshot, kamino.SnapshotName(poolName)),
		Tags: versionTags, Excluded: true}
	c.must(c.Create(ctx, c.pool(), hidden))
	boots := func(want string) {
		t.Helper()
		pool := c.pool()
		c.must(c.SetCapacity(ctx, pool, pool.Capacity+1))
		if i := last(c); i.ExactVersion != want {
			t.Errorf("instance %s boots from %s, want %s", i.Name, i.ExactVersion, want)
		}
	}
	flag := func(name string, excluded bool) {
		t.Helper()
		if v := c.version(name); excluded {
			c.must(c.Withdraw(ctx, c.pool(), name, kamino.Bad{Reason: "a test"}))
		} else {
			c.must(c.Promote(ctx, c.pool(), kamino.Target{Version: name, Reference: kamino.ByDefinition, Seen: &v}))
		}
	}
	inUse := func(name string) {
		t.Helper()
		list, err := c.Find(ctx, c.pool(), kamino.KindVersion, "")
		c.must(err)
		for _, v := range list {
			if v.InModel != (v.Name == name) {
				t.Errorf("version %s is in the model: %t; the definition stands for %s", v.Name, v.InModel, name)
			}
		}
		if err := c.Delete(ctx, c.pool(), kamino.Artifact{Kind: kamino.KindVersion, Name: name}); !errors.Is(err, kamino.ErrInUse) {
			t.Errorf("delete of %s, which the definition stands for: %v", name, err)
		}
	}
	boots("2026.1.1")
	inUse("2026.1.1")
	flag("2026.1.2", false)
	inUse("2026.1.2")
	boots("2026.1.2")
	flag("2026.1.2", true)
	boots("2026.1.1")
	if models := models(c); models != 1 {
		t.Errorf("%d models were written, want one", models)
	}
}

// TestPointerSticky: where Azure does not resolve latest anew, the list of versions tells which
// instance booted from another version than the one offered, and when it was created.
func TestPointerSticky(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		c := imagedIn(t, setting{server: func(s *emulator.Server) { s.Pointer.Sticky = sticky }}, "2026.1.1", "2026.1.2")
		ctx := t.Context()
		c.must(c.Withdraw(ctx, c.pool(), "2026.1.2", kamino.Bad{Reason: "a test"}))
		c.must(c.Promote(ctx, c.pool(), kamino.Target{Version: "2026.1.1", Reference: kamino.ByDefinition}))
		v := c.version("2026.1.2")
		c.must(c.Promote(ctx, c.pool(), kamino.Target{Version: v.Name, Reference: kamino.ByDefinition, Seen: &v}))
		promoted := c.clock.Now()
		c.clock.Advance(11 * time.Minute)
		c.must(c.SetCapacity(ctx, c.pool(), c.pool().Capacity+1))
		list, err := c.Find(ctx, c.pool(), kamino.KindVersion, "")
		c.must(err)
		for _, v := range list {
			want := (v.Name == "2026.1.1") == sticky
			if got := len(v.Births) == 1 && v.Instances == 1 && v.Births[0].Sub(promoted) >= 11*time.Minute; got != want {
				t.Errorf("sticky %t: version %s has births %v, promoted at %s", sticky, v.Name, v.Births, promoted)
			}
		}
	}
}

// TestRivalInTheWindow: what somebody writes between Promote's read of a version and its write is
// overwritten, as versions have no ETag, and the next read shows whose write stands.
func TestRivalInTheWindow(t *testing.T) {
	var rival func()
	c := imagedIn(t, setting{front: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if act := rival; act != nil && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/versions/") {
				rival = nil
				act()
			}
			next.ServeHTTP(w, r)
		})
	}}, "2026.1.1", "2026.1.2")
	c.must(c.Withdraw(t.Context(), c.pool(), "2026.1.2", kamino.Bad{Reason: "mine"}))
	v := c.version("2026.1.2")
	rival = func() { c.server.Change(v.ID, `{"tags":{"owner":"a rival"}}`) }
	c.must(c.Promote(t.Context(), c.pool(), kamino.Target{Version: v.Name, Reference: kamino.ByDefinition, Seen: &v}))
	if now := c.version(v.Name); now.Excluded || now.Tags[kamino.TagOffer] != "offered" || now.Tags["owner"] != "" {
		t.Errorf("the version is %+v", now)
	}
}

// TestDisputedVersion: a region that keeps a version out of latest which is offered.
func TestDisputedVersion(t *testing.T) {
	c := imaged(t, "2026.1.1")
	v := c.version("2026.1.1")
	c.server.Change(v.ID, `{"properties":{"publishingProfile":{"targetRegions":[{"name":"westeurope","excludeFromLatest":true,"storageAccountType":"`+v.Storage+`"}]}}}`)
	if v = c.version("2026.1.1"); !v.Disputed || v.Excluded {
		t.Errorf("version %+v", v)
	}
}

// models counts the writes of the pool's model.
func models(c *cloud) (n int) {
	for _, e := range c.server.State() {
		if strings.EqualFold(e.ID, c.scenario.PoolID(poolName)) {
			n, _ = e.Facts["models"].(int)
		}
	}
	return n
}

// last is the newest instance of the pool.
func last(c *cloud) (newest emulator.Instance) {
	for _, i := range c.server.Instances() {
		if i.Pool == poolName {
			newest = i
		}
	}
	return newest
}

// TestHiddenIsNotMissed: a version that the definition does not stand for can be withdrawn, also
// where that stands for nothing.
func TestHiddenIsNotMissed(t *testing.T) {
	c := imaged(t, "2026.1.1")
	v := c.version("2026.1.1")
	c.must(c.Promote(t.Context(), c.pool(), kamino.Target{Version: v.Name, Reference: kamino.ByDefinition}))
	if err := c.Withdraw(t.Context(), c.pool(), v.Name, kamino.Bad{Reason: "a test"}); !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("the one that the definition stands for was withdrawn: %v", err)
	}
	c.server.Change(v.ID, `{"properties":{"publishingProfile":{"excludeFromLatest":true}}}`) // a person's doing
	if err := c.Withdraw(t.Context(), c.pool(), v.Name, kamino.Bad{Reason: "a test"}); err != nil || c.version(v.Name).Tags[kamino.TagBad] != "a test" {
		t.Errorf("a hidden one: %v, %v", err, c.version(v.Name).Tags)
	}
}

// TestNotFoundIsNotMade: where the gallery does not find a version that is to be written, before
// the write or in it, the answer is ErrNotFound, and no PUT makes it anew.
func TestNotFoundIsNotMade(t *testing.T) {
	lost, puts := "", 0
	c := imagedIn(t, setting{front: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			version := strings.Contains(r.URL.Path, "/versions/")
			if version && r.Method == http.MethodPut {
				puts++
			}
			if version && r.Method == lost {
				http.Error(w, `{"error":{"code":"ResourceNotFound","message":"not found"}}`, http.StatusNotFound)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}, "2026.1.1", "2026.1.2")
	c.must(c.Withdraw(t.Context(), c.pool(), "2026.1.2", kamino.Bad{Reason: "a test"}))
	v, pool := c.version("2026.1.2"), c.pool()
	puts = 0
	for _, lost = range []string{http.MethodGet, http.MethodPatch} {
		for name, err := range map[string]error{
			"promote":  c.Promote(t.Context(), pool, kamino.Target{Version: v.Name, Reference: kamino.ByDefinition, Seen: &v}),
			"withdraw": c.Withdraw(t.Context(), pool, v.Name, kamino.Bad{Reason: "a test"}),
			"tags":     c.SetTags(t.Context(), pool, v.Artifact),
		} {
			t.Run(name, func(t *testing.T) {
				if !errors.Is(err, kamino.ErrNotFound) || puts > 0 {
					t.Errorf("404 of %s: %s ended %v, with %d PUTs", lost, name, err, puts)
				}
			})
		}
	}
}
