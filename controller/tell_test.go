package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/notify"
)

// town is where happenings are told.
type town struct {
	p      *v1alpha1.NodePrototype
	events []string
	news   []string
	fails  error
	log    bytes.Buffer
	now    time.Time
}

func newTown() *town {
	return &town{now: now, p: &v1alpha1.NodePrototype{ObjectMeta: metav1.ObjectMeta{Name: "blue", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour))}}}
}

// process is one that begins in the town.
func (w *town) process() *teller {
	return &teller{log: slog.New(slog.NewTextHandler(&w.log, nil)), told: map[string]*told{}, again: time.Minute, clock: townClock{w: w},
		record: func(_ context.Context, about corev1.ObjectReference, key, reason, _ string, _ time.Time, warning bool) error {
			w.events = append(w.events, key)
			return nil
		},
		send: func(_ context.Context, h notify.Happening) error {
			if w.fails == nil {
				w.news = append(w.news, h.Key)
			}
			return w.fails
		},
		patch: func(_ context.Context, name string, patch []byte) error {
			return json.Unmarshal(patch, w.p)
		}}
}

// townClock shows the town's time.
type townClock struct {
	kamino.WallClock
	w *town
}

func (c townClock) Now() time.Time { return c.w.now }

// pass is one pass of a process, and what it has told in the background.
func (w *town) pass(t *teller, all ...notify.Happening) {
	if out := t.tell(context.Background(), w.p, all, true, w.now, true); len(out) > 0 {
		t.deliver(context.Background(), w.p, out)
	}
}

func (w *town) expect(t *testing.T, when, events, news string) {
	t.Helper()
	if e, n := strings.Join(w.events, " "), strings.Join(w.news, " "); e != events || n != news {
		t.Errorf("%s: events %q, want %q; news %q, want %q", when, e, events, n, news)
	}
}

// TestToldOnce: services get a happening once, whoever leads.
func TestToldOnce(t *testing.T) {
	w := newTown()
	a, b := notify.Happening{Key: "a", At: now.Add(-time.Minute)}, notify.Happening{Key: "b"}
	first := w.process()
	w.pass(first, a)
	w.pass(first, a)
	w.expect(t, "one process", "a", "a")
	second := w.process()
	w.pass(second, a)
	w.pass(second, a, b)
	w.expect(t, "the next, whose event is the same by its name", "a a b", "a b")
	w.pass(w.process(), a, b)
	w.expect(t, "the third", "a a b a b", "a b")
	w.pass(second, b)
	c := notify.Happening{Key: "c"}
	w.pass(second, b, c)
	if w.p.Annotations[v1alpha1.AnnotationTold] != "b c" {
		t.Errorf("what is over is still noted: %q", w.p.Annotations)
	}
}

// TestToldOfOld: what happened before the prototype was made is not told, nor what is old; what
// is so now always is.
func TestToldOfOld(t *testing.T) {
	w := newTown()
	w.pass(w.process(), notify.Happening{Key: "before", At: now.Add(-25 * time.Hour)}, notify.Happening{Key: "morning", At: now.Add(-7 * time.Hour)},
		notify.Happening{Key: "hours", At: now.Add(-2 * time.Hour)}, notify.Happening{Key: "now"}, notify.Happening{Key: "quiet", Quiet: true})
	w.expect(t, "of old", "now quiet", "hours now")
}

// TestToldLater: what a service did not take is tried again, but not at once; and nothing is told
// by a process that does not lead.
func TestToldLater(t *testing.T) {
	w, a := newTown(), notify.Happening{Key: "a"}
	one := w.process()
	if out := one.tell(t.Context(), w.p, []notify.Happening{a}, true, now, false); len(out) > 0 {
		t.Errorf("told before it leads: %v", out)
	}
	w.fails = errors.New("service generic, line 1: no connection")
	w.pass(one, a)
	if !strings.Contains(w.log.String(), "a notification was not delivered") || w.p.Annotations != nil {
		t.Errorf("%s\n%v", w.log.String(), w.p.Annotations)
	}
	w.fails = nil
	w.pass(one, a)
	w.expect(t, "at once", "a", "")
	w.now = w.now.Add(time.Minute)
	out := one.tell(t.Context(), w.p, []notify.Happening{a}, true, w.now, true)
	if again := one.tell(t.Context(), w.p, []notify.Happening{a}, true, w.now, true); len(out) != 1 || len(again) != 0 {
		t.Errorf("a pass while it is being sent: %v, %v", out, again)
	}
	one.deliver(t.Context(), w.p, out)
	w.expect(t, "a minute later", "a", "a")
}

// TestNews: what a pass tells of, beside a run of this process.
func TestNews(t *testing.T) {
	w := due()
	w.view.Status.Runs = []kamino.PastRun{past(time.Minute, "x")}
	w.view.Status.Unfinished = &kamino.Unfinished{Run: "r2", Record: kamino.Record{Donor: "n", AwaySince: now.Add(-2 * time.Hour)}}
	for name, tt := range map[string]struct {
		own  *run
		want []string
	}{
		"none":                 {nil, []string{"failed/r", "away/r2/n"}},
		"at work":              {&run{running: true}, []string{"away/r2/n"}},
		"in the ledger":        {&run{id: "r", err: errors.New("x")}, []string{"failed/r", "away/r2/n"}},
		"before its lease":     {&run{ended: now, err: errors.New("x")}, []string{"failed/r", "away/r2/n", "failed/1795406400"}},
		"another process's":    {&run{err: &kamino.HeldError{}}, []string{"failed/r", "away/r2/n"}},
		"not in the ledger":    {&run{id: "r3", err: errors.New("x")}, []string{"failed/r", "away/r2/n", "failed/r3"}},
		"ended by the process": {&run{err: context.Canceled}, []string{"failed/r", "away/r2/n"}},
	} {
		t.Run(name, func(t *testing.T) {
			w.own = tt.own
			var got []string
			all, whole := news(w)
			for _, h := range all {
				got = append(got, h.Key)
			}
			if !slices.Equal(got, tt.want) || whole != (name != "at work") {
				t.Errorf("%s: %q, the whole: %t, want %q", name, got, whole, tt.want)
			}
		})
	}
}

// TestNewsOfTroubled: of two prototypes of a pool none tells what happened, which the other did;
// and what cannot be read now is not told again later.
func TestNewsOfTroubled(t *testing.T) {
	for reason, want := range map[string]string{v1alpha1.ReasonConflict: "away/r2/n", v1alpha1.ReasonInvalid: "failed/r away/r2/n", v1alpha1.ReasonUnreadable: "failed/r away/r2/n"} {
		w := due()
		w.trouble = &problem{reason, "x"}
		w.view.Status.Runs = []kamino.PastRun{past(time.Minute, "x")}
		w.view.Status.Unfinished = &kamino.Unfinished{Run: "r2", Record: kamino.Record{Donor: "n", AwaySince: now.Add(-2 * time.Hour)}}
		all, whole := news(w)
		var got []string
		for _, h := range all {
			got = append(got, h.Key)
		}
		if strings.Join(got, " ") != want || whole {
			t.Errorf("%s: %q, the whole: %t, want %q", reason, got, whole, want)
		}
	}
	town, was := newTown(), notify.Happening{Key: "promoted", At: now.Add(-time.Minute)}
	one := town.process()
	town.pass(one, was)
	one.deliver(t.Context(), town.p, one.tell(t.Context(), town.p, []notify.Happening{{Key: "away"}}, false, now, true))
	town.pass(one, was)
	town.expect(t, "after a pass that did not see it", "promoted away", "promoted away")
}
