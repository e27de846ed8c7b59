package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/notify"
)

// Older happenings are not reported: the API server keeps events for an hour, and nobody wants to
// be woken for something of this morning.
const (
	oldEvent = 50 * time.Minute
	oldNews  = 6 * time.Hour
)

// teller reports happenings: each as an event, whose name makes it unique, and to the services of
// --notify-file. What the services accepted is recorded in an annotation of the prototype, so that
// the next process does not send it again.
type teller struct {
	log   *slog.Logger
	patch func(ctx context.Context, name string, patch []byte) error // patches a prototype
	// record writes an event that may exist already.
	record func(ctx context.Context, about corev1.ObjectReference, key, reason, message string, at time.Time, warning bool) error
	send   func(context.Context, notify.Happening) error // nil: there are no services
	again  time.Duration                                 // wait after a service failed
	clock  kamino.Clock

	mu   sync.Mutex
	told map[string]*told // by prototype
}

// told is what this process knows of the happenings of a prototype.
type told struct {
	uid    types.UID
	events map[string]bool
	news   map[string]bool
	wait   time.Time // no service is tried before this time
	busy   bool
}

// news returns the happenings of a pass, and whether they are complete. While a run of this process
// is running, earlier failures are not reported, because the run may be the retry. If two
// prototypes have one pool, only present states are reported.
func news(w world) (all []notify.Happening, whole bool) {
	all = notify.Of(w.view.Status, w.now, notify.AwayLimit)
	switch own := w.own; {
	case own != nil && own.running, w.trouble != nil && w.trouble.reason == v1alpha1.ReasonConflict:
		return slices.DeleteFunc(all, func(h notify.Happening) bool { return !h.At.IsZero() }), false
	case own.failed() && !slices.ContainsFunc(w.view.Status.Runs, func(p kamino.PastRun) bool { return own.id != "" && p.Run == own.id }):
		all = append(all, notify.Failure(own.id, w.view.Status.Name, own.ended, own.err)) // it failed before it had a lease
	}
	return all, w.trouble == nil
}

// tell writes the missing events, and returns the happenings for the services, if they may be
// notified now; the caller must then call deliver. If all is whole, happenings that are not in it
// are forgotten.
func (t *teller) tell(ctx context.Context, p *v1alpha1.NodePrototype, all []notify.Happening, whole bool, now time.Time,
	may bool) (out []notify.Happening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.told[p.Name]
	if one == nil || one.uid != p.UID {
		one = &told{uid: p.UID, events: map[string]bool{}, news: map[string]bool{}}
		for _, key := range strings.Fields(p.Annotations[v1alpha1.AnnotationTold]) {
			one.news[key] = true
		}
		t.told[p.Name] = one
	}
	current := map[string]bool{}
	for _, h := range all {
		current[h.Key] = true
		if h.At.IsZero() {
			h.At = now
		}
		if h.At.Before(p.CreationTimestamp.Time) {
			continue
		}
		if !one.events[h.Key] && now.Sub(h.At) < oldEvent {
			about := corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodePrototype", Name: p.Name, UID: p.UID}
			if err := t.record(ctx, about, h.Key, h.Reason, h.Message(), h.At, h.Warning); err != nil {
				t.log.Warn("write event", "prototype", p.Name, "reason", h.Reason, "error", err)
			} else {
				one.events[h.Key] = true
			}
		}
		if may && t.send != nil && !h.Quiet && !one.news[h.Key] && !one.busy && !now.Before(one.wait) && now.Sub(h.At) < oldNews {
			out = append(out, h)
		}
	}
	if one.busy = one.busy || len(out) > 0; whole {
		gone := func(key string, _ bool) bool { return !current[key] }
		maps.DeleteFunc(one.events, gone)
		maps.DeleteFunc(one.news, gone)
	}
	return out
}

// deliver sends the happenings of tell, and records on the prototype what was sent. A later pass
// tries the others again.
func (t *teller) deliver(ctx context.Context, p *v1alpha1.NodePrototype, out []notify.Happening) {
	sent := map[string]bool{}
	for _, h := range out {
		if err := t.send(ctx, h); err != nil {
			if ctx.Err() == nil {
				t.log.Warn("a notification was not delivered", "prototype", p.Name, "reason", h.Reason, "error", err, "hint",
					kamino.Hint(err), "next_try_in", t.again)
			}
			continue
		}
		sent[h.Key] = true
	}
	t.mu.Lock()
	one := t.told[p.Name]
	if one == nil || one.uid != p.UID { // deleted meanwhile
		t.mu.Unlock()
		return
	}
	one.busy = false
	if len(sent) < len(out) {
		one.wait = t.clock.Now().Add(t.again)
	}
	maps.Copy(one.news, sent)
	keys := strings.Join(slices.Sorted(maps.Keys(one.news)), " ")
	t.mu.Unlock()
	if len(sent) == 0 {
		return
	}
	if err := t.note(ctx, p.Name, keys); err != nil {
		t.log.Warn("record what was notified: the next process repeats it", "prototype", p.Name, "error", err)
	}
}

// note writes the annotation, also at the end of the process.
func (t *teller) note(ctx context.Context, name, keys string) error {
	ctx, cancel := t.clock.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationTold: keys}}})
	if err != nil {
		return fmt.Errorf("make patch: %w", err)
	}
	if err := t.patch(ctx, name, patch); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (t *teller) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, name)
}
