package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestLongWaits: a wait is told at once with its limit, and again every half minute; not at each
// look.
func TestLongWaits(t *testing.T) {
	var out bytes.Buffer
	l := newEventLog(t.Context(), newLogger(&out, slog.LevelInfo, &globalOptions{logFormat: "text"}))
	begun := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for at := time.Duration(0); at <= 2*time.Minute; at += 5 * time.Second {
		l.event(kamino.Event{Time: begun.Add(at), Pool: "p", Kind: kamino.EventWaiting, Step: "drain", Elapsed: at, Limit: 45 * time.Minute, Percent: -1, Message: "pods to leave"})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || !strings.Contains(lines[0], "limit=45m0s") || !strings.Contains(lines[2], "elapsed=1m0s") {
		t.Errorf("%d lines:\n%s", len(lines), &out)
	}
}

// TestAllHeldReasons: auto-update tells every reason why it leaves a pool alone that needs an
// image, in table and log.
func TestAllHeldReasons(t *testing.T) {
	w := newFakeWorld()
	p := stale(w)
	w.cloud.put(p, kamino.KindVersion, "2026.11.20", map[string]string{kamino.TagBuiltFrom: "n3", kamino.TagBuiltAt: "2026-11-20 02:00:00.000000", kamino.TagRun: "r2",
		kamino.TagBad: "rolled back"}).Excluded = true
	w.cluster.nodes["n2"].Annotations[kamino.KuredLastPatch.Annotation] = "2026-11-20T05:00:00Z"
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Ledger: kamino.Ledger{Wrote: &kamino.WrittenModel{Image: "/other", Seen: true}}}
	out, errs, code := w.kamino(t, "auto-update")
	for _, text := range []string{out, errs} {
		if code != exitFine || !strings.Contains(text, "only one is made per day") || !strings.Contains(text, "somebody pinned the model") {
			t.Errorf("exit code %d, not all reasons:\n%s", code, text)
		}
	}
	if !strings.Contains(errs, "level=WARNING") || !strings.Contains(errs, "kamino plan --pool") {
		t.Errorf("no word in the log:\n%s", errs)
	}
}

// TestRollbackTexts: rollbacks are among the runs, what is given is not asked for, and a plan says
// which image was withdrawn.
func TestRollbackTexts(t *testing.T) {
	w := newFakeWorld()
	p := twoImages(w)
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Ledger: kamino.Ledger{Original: &kamino.SavedModel{Image: stock, Saved: p.Model.Saved}}}
	if _, errs, code := w.kamino(t, "rollback", "--pool", pool1, "--to", "2026.11.01"); code != exitFine {
		t.Fatal(errs)
	}
	if out, _, _ := w.kamino(t, "status"); !strings.Contains(out, "rolled back to 2026.11.01") {
		t.Errorf("status:\n%s", out)
	}
	for _, n := range w.cluster.nodes {
		n.Annotations[kamino.KuredLastPatch.Annotation] = "2026-10-01"
	}
	if out, _, _ := w.kamino(t, "plan"); !strings.Contains(out, "no node was patched after image 2026.11.10, which was withdrawn") {
		t.Errorf("plan:\n%s", out)
	}
	for arg, asked := range map[string]bool{"--keep-custom-data": false, "": true} {
		out, _, _ := w.kamino(t, strings.Fields("rollback --pool "+pool1+" --to original --dry-run "+arg)...)
		if strings.Contains(out, "Needed: --custom-data FILE") != asked {
			t.Errorf("%q:\n%s", arg, out)
		}
	}
}

// TestUnreviewedPolicy: a policy as an inventory wrote it counts, and whoever gives it to a run is
// told that nobody has looked at it.
func TestUnreviewedPolicy(t *testing.T) {
	const head = "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\nverify:\n  known:\n  - {path: /etc/app, "
	for text, want := range map[string]bool{"reviewed: false, why: unknown}": true, "reviewed: true, why: ours}": false, "why: ours}": false} {
		t.Run(text, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(file, []byte(head+text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, errs, code := newFakeWorld().kamino(t, "plan", "--seal-policy", file)
			if code == exitFailed || strings.Contains(errs, "nobody has reviewed") != want {
				t.Errorf("%s: exit code %d, warned %t:\n%s", text, code, !want, errs)
			}
		})
	}
}
