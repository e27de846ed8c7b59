package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// beatsPerStatus is how many Lease renewals go by between two node status reports.
	beatsPerStatus = 5
	// lastWords is how long a kubelet that is being stopped tries to say so: as long as an API
	// server may take on a machine that does much else.
	lastWords = 30 * time.Second
)

// player is the simulated kubelet of one boot of one machine.
type player struct {
	fleet   *Fleet
	machine *machine
	*Kubelet

	mu    sync.Mutex
	ctx   context.Context // while it runs; carries its user
	work  sync.WaitGroup
	pods  map[types.UID]*podWorker
	units map[string]*unit // by run
}

func newPlayer(m *machine, k *Kubelet) *player {
	return &player{fleet: m.fleet, machine: m, Kubelet: k, pods: map[types.UID]*podWorker{}, units: map[string]*unit{}}
}

// run is the life of the kubelet, until ctx ends.
func (k *player) run(ctx context.Context) error {
	ctx = asNode(ctx, k.node)
	k.ctx = ctx
	err := k.live(ctx)
	if errors.Is(context.Cause(ctx), errShutdown) && !k.fleet.abrupt {
		k.sayGoodbye(ctx)
	}
	k.fleet.logger.Info("node is down", "node", k.node, "instance", k.Instance.Name, "why", context.Cause(ctx))
	return err
}

// live is all but the end, which may come at any place: a node is Ready before its kubelet has done
// all that it does once.
func (k *player) live(ctx context.Context) error {
	for _, once := range []func(context.Context) error{k.Register, k.label, k.started, k.certify, k.Introduce} {
		if err := k.retry(ctx, once); err != nil {
			return err
		}
	}
	k.fleet.logger.Info("node is up", "node", k.node, "instance", k.Instance.Name, "machineID", k.machineID)
	return k.serve(ctx)
}

// serve runs pods and heartbeats until ctx ends.
func (k *player) serve(ctx context.Context) error {
	defer k.endPods()
	if err := k.retry(ctx, k.adopt); err != nil {
		return err
	}
	release := k.fleet.claim(k)
	defer release()
	k.catchUp()
	k.heartbeats(ctx)
	return nil
}

// retry calls f until it succeeds or ctx ends: an API server that is away must not end a node.
func (k *player) retry(ctx context.Context, f func(context.Context) error) error {
	pause := 50 * time.Millisecond
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			k.fleet.logger.Debug("node tries again", "node", k.node, "after", pause, "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (last error: %w)", ctx.Err(), err)
		case <-timer.C:
			pause = min(2*pause, 2*time.Second)
		}
	}
}

// heartbeats renews the Lease and reports status until ctx ends.
func (k *player) heartbeats(ctx context.Context) {
	period := k.fleet.period()
	// Nodes that came up together must not beat together.
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(period))))
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := k.Beat(ctx)
		if err == nil && n%beatsPerStatus == 0 {
			err = errors.Join(k.Report(ctx), k.Introduce(ctx))
		}
		if err != nil && ctx.Err() == nil {
			k.fleet.logger.Debug("heartbeat failed", "node", k.node, "error", err)
		}
		timer.Reset(k.fleet.period())
	}
}

// sayGoodbye is the last that is heard of a node that shuts down, if anything.
func (k *player) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := k.Leave(ctx); err != nil {
		k.fleet.logger.Debug("node shut down without a word", "node", k.node, "error", err)
	}
}
