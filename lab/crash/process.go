package crash

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/poolstate"
)

// processHeader tells the proxies which process calls. A real process has none.
const processHeader = "X-Kamino-Process"

// Process is one kamino that works on a world.
type Process struct {
	Name    string        // as it stands on leases
	Skew    time.Duration // by which its wall clock is wrong
	Calls   []*Call       // that it has made, in order
	Result  engine.Result
	Patched engine.PatchResult
	Left    []poolstate.Leftover // what a restore found
	Err     error                // of the command
	Killed  bool
	Started time.Time // on the world's clock
	Ended   time.Time

	world  *World
	strike *Strike
	cancel context.CancelFunc
	slay   func() // kills a real process and returns when it is gone; nil for a goroutine
	// located: a real process has asked the nodes for their cloud, which it does before it has an
	// engine. A goroutine does not, so that this call has no number.
	located bool

	mu     sync.Mutex
	doomed bool          // killed as soon as it does anything more
	slept  time.Duration // for which its machine was suspended
	slow   int           // how many times as long each call takes; 0 is once
	step   string
	seenVM map[string]string
	read   string // revision of the pool that the last call read, on a cloud without conditions
	done   chan struct{}
}

// stepName is the step of the pipeline that the process is in.
func (p *Process) stepName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// kill ends the process: from now on no call of it has any effect.
func (p *Process) kill() {
	p.mu.Lock()
	first := !p.Killed
	p.Killed = true
	p.mu.Unlock()
	if first && p.slay != nil {
		p.slay()
	}
}

// mortal kills a doomed process and tells whether it is dead.
func (p *Process) mortal() bool {
	p.mu.Lock()
	dead, doomed := p.Killed, p.doomed
	p.mu.Unlock()
	if doomed && !dead {
		p.kill()
	}
	return dead || doomed
}

// die ends the goroutine of a killed process where it stands. Deferred calls
// run; the engine has none that act.
func (p *Process) die() {
	if p.slay == nil && p.mortal() {
		runtime.Goexit()
	}
}

// Now is the time by the process's clock.
func (p *Process) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.world.clock.Now()
	return worlds.Reading(now.Add(p.Skew), now.Add(-p.slept))
}

// Sleep passes the turn to others.
func (p *Process) Sleep(ctx context.Context, d time.Duration) error {
	p.die()
	if err := ctx.Err(); err != nil {
		return err
	}
	p.world.clock.sleep(d)
	return ctx.Err()
}

// WithTimeout never runs out: time stands still while a process is busy, and the answer to a call
// in which it was frozen is there when it goes on.
func (p *Process) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// guard is the process's end of all connections: who was killed is gone before
// it learns of an answer.
type guard struct {
	p    *Process
	next http.RoundTripper
}

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	g.p.die()
	r = r.Clone(r.Context())
	r.Header.Set(processHeader, g.p.Name)
	resp, err := g.next.RoundTrip(r)
	g.p.mu.Lock()
	dead := g.p.Killed
	g.p.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
	return resp, err
}

// WrappedRoundTripper lets client-go cancel requests.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// Do makes a guard the transport of a cloud's SDK.
func (g guard) Do(r *http.Request) (*http.Response, error) {
	return (&http.Client{Transport: g, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
}

// PollInterval is the engine's shortest wait: few polls of everything that takes time, but some.
const PollInterval = 5 * time.Second

// engine joins the ports as the binary does.
func (p *Process) engine() (*engine.Engine, error) {
	s := p.world.station
	provider, err := p.world.provider(p)
	if err != nil {
		return nil, fmt.Errorf("make provider: %w", err)
	}
	cluster, err := kube.New(p.config(), kube.Options{SealImage: sealImage, Process: p.Name, Clock: p})
	if err != nil {
		return nil, fmt.Errorf("make cluster: %w", err)
	}
	e := &engine.Engine{
		Provider: provider, Cluster: cluster, Clock: p, Process: p.Name, MinPoll: PollInterval,
		NewID: p.world.newRunID, Report: p.hear,
	}
	if s.tamper != nil {
		s.tamper(e)
	}
	return e, nil
}

// config is how the process reaches Kubernetes.
func (p *Process) config() *rest.Config {
	config := &rest.Config{Host: p.world.station.kubeURL}
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return guard{p, p.world.station.toKube} })
	return config
}

// proveTime is for how long a canary is watched: a few looks.
const proveTime = 15 * time.Second

// options are those of every update.
func (w *World) options() kamino.Options {
	o := kamino.Defaults()
	o.Donor, o.NewNodes, o.Grace = w.donor, w.shape.NewNodes, 30*time.Second
	if o.Proof.Mode, o.Proof.For = kamino.ProveNone, proveTime; w.shape.Prove {
		o.Proof.Mode = kamino.ProveCanary
	}
	o.PendingReboot = []kamino.Signal{kamino.KuredPendingReboot}
	return o
}

// prepare makes a process without starting it.
func (w *World) prepare(strike *Strike) *Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &Process{Name: fmt.Sprintf("crash/%d", len(w.processes)+1), world: w, strike: strike,
		seenVM: map[string]string{}, done: make(chan struct{})}
	w.processes = append(w.processes, p)
	return p
}

// begin runs a command of a process in a goroutine, once all others sleep.
func (w *World) begin(p *Process, command func(context.Context, *engine.Engine) error) {
	ctx, cancel := context.WithCancel(w.ctx)
	p.cancel = cancel
	turn := w.clock.enqueue()
	go func() {
		defer close(p.done)
		<-turn
		defer w.clock.leave()
		p.Started = w.clock.Now()
		defer func() { cancel(); p.Ended = w.clock.Now() }()
		eng, err := p.engine()
		if err != nil {
			p.Err = err
			return
		}
		p.Err = command(ctx, eng)
	}()
}

// work begins the command that the world is about.
func (w *World) work(p *Process, o kamino.Options) *Process {
	switch {
	case w.shape.Kept:
		return w.keep(p)
	case w.shape.Command != "":
		return w.move(p, false)
	case w.shape.Patch:
		return w.patch(p, o)
	case w.shape.Named:
		return w.promote(p, o)
	}
	return w.update(p, o)
}

// promote begins `kamino promote` of the version of the world's first day, with a proof.
func (w *World) promote(p *Process, o kamino.Options) *Process {
	version := kamino.VersionName(w.start)
	if w.station.kamino != "" {
		return w.spawn(p, "promote", "--pool", poolName, "--version", version, "--prove", string(o.Proof.Mode), "--prove-for",
			o.Proof.For.String(), "--accept-unsealed", "-o", "json")
	}
	w.begin(p, func(ctx context.Context, e *engine.Engine) error {
		back, err := e.PromoteVersion(ctx, engine.PromoteOptions{Pool: poolName, Version: version, Proof: &o.Proof, AcceptUnsealed: true,
			PendingReboot: o.PendingReboot})
		p.Result.Warnings = back.Warnings
		return err
	})
	return p
}

// update begins `kamino update`.
func (w *World) update(p *Process, o kamino.Options) *Process {
	if w.station.kamino != "" {
		return w.spawn(p, "update", "--target-node", o.Donor, "--new-updated-nodes", strconv.Itoa(o.NewNodes), "--prove",
			string(o.Proof.Mode), "--prove-for", o.Proof.For.String(),
			"--again="+strconv.FormatBool(o.Today == kamino.TodayAgain), "--adopt-model="+strconv.FormatBool(o.AdoptModel),
			"--grace-period", o.Grace.String(), "--image", sealImage, "-o", "json")
	}
	w.begin(p, func(ctx context.Context, e *engine.Engine) (err error) {
		p.Result, err = e.Update(ctx, o)
		return err
	})
	return p
}

// restore begins `kamino restore`.
func (w *World) restore(p *Process) *Process {
	if w.station.kamino != "" {
		return w.spawn(p, "restore", "-o", "json")
	}
	w.begin(p, func(ctx context.Context, e *engine.Engine) (err error) {
		p.Left, err = e.Restore(ctx, engine.RestoreOptions{})
		return err
	})
	return p
}

// wait starts the processes that have begun and returns when all have ended.
func (w *World) wait() {
	w.clock.kick()
	for {
		w.mu.Lock()
		list := append([]*Process(nil), w.processes...)
		w.mu.Unlock()
		for _, p := range list {
			<-p.done
		}
		w.mu.Lock()
		same := len(list) == len(w.processes)
		w.mu.Unlock()
		if same {
			return
		}
	}
}
