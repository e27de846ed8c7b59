package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/api/v1alpha1"
)

// Alone runs the controller for one NodePrototype until its condition Ready has a reason. It does
// the same as Run without a manager: this process leads, nothing is watched, each pass follows the
// previous one when its run has ended, and every wait uses the engine's clock. So a harness can
// kill it at each of its calls, which are the same each time. It uses no addresses of o. If ctx
// ends first, the error has the last condition Ready.
func Alone(ctx context.Context, o Options, name, reason string) error {
	api, err := connect(o.Config)
	if err != nil {
		return err
	}
	r := newReconciler(api, prometheus.NewRegistry(), o)
	r.runs.wake = func(string) {}
	r.runs.on = ctx
	last := "nothing"
	for {
		r.census.stale.Store(true) // nothing reports changed nodes here
		before := r.runs.get(name)
		next, err := r.Reconcile(ctx, name)
		r.runs.busy.Wait()
		if ctx.Err() != nil {
			return fmt.Errorf("wait for Ready of %s to be %s, which is %s: %w", name, reason, last, context.Cause(ctx))
		}
		pause := max(next, time.Second)
		if err != nil {
			o.Log.Warn("pass", "prototype", name, "error", err)
		} else if after := r.runs.get(name); after != nil && (before == nil || !after.ended.Equal(before.ended)) {
			continue // the manager would start another pass
		} else if is, err := ready(ctx, api, name); err == nil && is.Reason == reason {
			return nil
		} else if err == nil {
			last = is.Reason + " (" + is.Message + ")"
		}
		_ = o.Engine.Clock.Sleep(ctx, pause) // the next pass notices that ctx has ended
	}
}

// ready returns a prototype's condition Ready; empty if it has none yet.
func ready(ctx context.Context, api objects, name string) (metav1.Condition, error) {
	p, err := api.Prototype(ctx, name)
	if err != nil {
		return metav1.Condition{}, err
	}
	if c := apimeta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c, nil
	}
	return metav1.Condition{}, nil
}
