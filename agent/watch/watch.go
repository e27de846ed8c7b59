// Package watch applies new generations of a node's configuration in place, and takes them back
// when kubelet does not become healthy with them.
package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
)

// Annotation of the Node under which the state of the configuration is found.
const Annotation = "kamino.dev/config"

// Node is the node's own object.
type Node interface {
	Annotate(ctx context.Context, annotations map[string]string) error
	Label(ctx context.Context, labels map[string]string, remove []string) error
	Taint(ctx context.Context, set, remove []nodeapi.Taint) error
}

// Watcher polls for a new configuration. IMDS allows about five requests a second; one poll is one
// request.
type Watcher struct {
	Disk     *disk.Disk
	Host     host.Host
	IMDS     platform.Service
	Client   *http.Client // asks kubelet's health endpoint
	Settings seal.Settings
	// Node returns the client at the time of use: kubelet renews its certificate. Nil: no cluster.
	Node     func(ctx context.Context) (Node, error)
	Log      *slog.Logger
	Now      func() time.Time
	Wait     func(ctx context.Context, d time.Duration) error
	Interval time.Duration
	// Health is kubelet's health endpoint; Deadline how long it may take to answer ok after a
	// change; Settle how long it must go on answering.
	Health           string
	Deadline, Settle time.Duration

	told bool // the Node's annotation is that of the state in force
}

// backoffMost is the longest pause after errors.
const backoffMost = 15 * time.Minute

// Run polls until the context ends, at Interval with a fifth of jitter so that a pool's nodes do
// not ask at once, and with doubling pauses while there is an error.
func (w *Watcher) Run(ctx context.Context) error {
	if err := w.Recover(ctx); err != nil {
		return err
	}
	pause := w.Interval
	for {
		if err := w.Wait(ctx, pause*4/5+rand.N(pause*2/5+1)); err != nil {
			return nil // asked to stop
		}
		err := w.Once(ctx)
		if err == nil {
			pause = w.Interval
			continue
		}
		w.Log.Error("configuration not updated", "error", err)
		pause = min(pause*2, max(backoffMost, w.Interval))
	}
}

// Once looks once and applies what is new. An error is a source that could not be asked, or a
// machine that could not be changed; a document that is wrong or does not work is not an error here
// but a state.
func (w *Watcher) Once(ctx context.Context) error {
	state, err := firstboot.ReadState(w.Disk)
	if err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	doc, err := nodeconfig.Find(patience, w.Settings.Sources, w.Disk, w.IMDS.UserData)
	if errors.Is(err, nodeconfig.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	if doc.Hash() == state.Hash || doc.Hash() == state.Refused {
		if !w.told {
			w.tell(ctx, state) // the first boot's, or one that could not be reported
		}
		return nil
	}
	c, files, err := w.prepare(ctx, doc, state)
	if err != nil {
		return w.finish(ctx, state, doc, "Invalid", err)
	}
	w.Log.Info("new configuration", "generation", c.Generation, "source", doc.Source)
	if err := w.apply(ctx, files); err != nil {
		if rerr := w.Recover(ctx); rerr != nil {
			return w.finish(ctx, state, doc, "Broken", errors.Join(err, rerr))
		}
		return w.finish(ctx, state, doc, "RolledBack", err)
	}
	return w.adopt(ctx, state, doc, c)
}

func (w *Watcher) prepare(ctx context.Context, doc nodeconfig.Document, state firstboot.State) (*nodeconfig.NodeConfig, []nodeconfig.File, error) {
	c, err := nodeconfig.Parse(doc.Data)
	if err != nil {
		return nil, nil, err
	}
	if c.Generation <= state.Generation {
		return nil, nil, fmt.Errorf("generation %d is not newer than %d, which is in force", c.Generation, state.Generation)
	}
	files, err := nodeconfig.Render(ctx, w.Disk, w.Host, c, false)
	return c, files, err
}

// apply keeps the former files, writes the new, restarts what reads them and waits for kubelet.
func (w *Watcher) apply(ctx context.Context, files []nodeconfig.File) error {
	if err := keep(w.Disk, files); err != nil {
		return err
	}
	restart := w.restartKubelet(files)
	made, err := nodeconfig.Write(w.Disk, files)
	if err != nil {
		return err
	}
	if !restart {
		made.Units = slices.DeleteFunc(made.Units, func(u string) bool { return u == "kubelet.service" })
	}
	if err := w.restart(ctx, made.Units); err != nil {
		return err
	}
	if len(made.Units) == 0 {
		return drop(w.Disk)
	}
	if err := w.healthy(ctx); err != nil {
		return err
	}
	return drop(w.Disk)
}

// restartKubelet reports whether kubelet must be restarted: labels alone are changed on the Node,
// and kubelet reads the ones on its command line when it next registers.
func (w *Watcher) restartKubelet(files []nodeconfig.File) bool {
	for _, f := range files {
		former, _ := w.Disk.ReadFile(f.Path, disk.Small)
		if f.Unit != "kubelet.service" || string(former) == string(f.Data) {
			continue
		}
		if f.Path != nodeconfig.DropInPath || !slices.Equal(withoutLabels(nodeconfig.Command(w.Disk, former)), withoutLabels(nodeconfig.Command(w.Disk, f.Data))) {
			return true
		}
	}
	return false
}

func withoutLabels(command []string) []string {
	return slices.DeleteFunc(command, func(word string) bool { return strings.HasPrefix(word, "--node-labels=") })
}

func (w *Watcher) restart(ctx context.Context, units []string) error {
	if _, err := w.Host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return fmt.Errorf("reload units: %w", err)
	}
	for _, u := range units {
		if _, err := w.Host.Run(ctx, "systemctl", "restart", u); err != nil {
			return fmt.Errorf("restart %s: %w", u, err)
		}
	}
	return nil
}

// healthy waits until kubelet says ok, and goes on saying so for Settle.
func (w *Watcher) healthy(ctx context.Context) error {
	deadline, since := w.Now().Add(w.Deadline), time.Time{}
	last := errors.New("no answer yet")
	for {
		if err := w.probe(ctx); err != nil {
			since, last = time.Time{}, err
		} else if since.IsZero() {
			since = w.Now()
		}
		if !since.IsZero() && w.Now().Sub(since) >= w.Settle {
			return nil
		}
		if since.IsZero() && w.Now().After(deadline) {
			return fmt.Errorf("kubelet not healthy within %s: %w", w.Deadline, last)
		}
		if err := w.Wait(ctx, min(time.Second, max(w.Deadline/20, time.Millisecond))); err != nil {
			return err
		}
	}
}

func (w *Watcher) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Health, nil)
	if err != nil {
		return err
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("kubelet answers %d: %s", resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return nil
}

// adopt records the new generation, then changes the Node: an API server that is away must not undo
// a working configuration.
func (w *Watcher) adopt(ctx context.Context, former firstboot.State, doc nodeconfig.Document, c *nodeconfig.NodeConfig) error {
	state := firstboot.Applied(doc, c, w.Now())
	if err := w.change(ctx, former, c); err != nil {
		state.Error = err.Error()
		w.Log.Warn("the node's object was not changed", "error", err)
	}
	if err := firstboot.WriteState(w.Disk, state); err != nil {
		return err
	}
	w.tell(ctx, state)
	return nil
}

// change sets the document's labels and taints on the Node and removes those that only the former
// document had.
func (w *Watcher) change(ctx context.Context, former firstboot.State, c *nodeconfig.NodeConfig) error {
	gone := slices.DeleteFunc(slices.Clone(former.Labels), func(key string) bool { _, still := c.Kubelet.Labels[key]; return still })
	retained := func(t nodeconfig.Taint) bool { return slices.Contains(c.Kubelet.Taints, t) }
	lost := slices.DeleteFunc(slices.Clone(former.Taints), retained)
	taints := len(lost) > 0 || len(former.Taints) != len(c.Kubelet.Taints)
	if w.Node == nil || len(c.Kubelet.Labels)+len(gone) == 0 && !taints {
		return nil
	}
	node, err := w.Node(ctx)
	if err != nil {
		return err
	}
	if len(c.Kubelet.Labels)+len(gone) > 0 {
		if err := node.Label(ctx, c.Kubelet.Labels, gone); err != nil {
			return fmt.Errorf("labels were not changed: %w", err)
		}
	}
	if !taints {
		return nil
	}
	if err := node.Taint(ctx, c.Kubelet.Taints, lost); errors.Is(err, nodeapi.ErrForbidden) {
		return fmt.Errorf("taints were not changed, they take effect when the node registers again (kubectl taint node changes them now): %w", err)
	} else if err != nil {
		return fmt.Errorf("taints were not changed: %w", err)
	}
	return nil
}

// finish records a document that was refused, so that it is not tried again until it changes.
func (w *Watcher) finish(ctx context.Context, state firstboot.State, doc nodeconfig.Document, status string, cause error) error {
	w.Log.Error("configuration refused", "status", status, "error", cause)
	state.Status, state.Error, state.Refused, state.At = status, cause.Error(), doc.Hash(), w.Now().UTC()
	if err := firstboot.WriteState(w.Disk, state); err != nil {
		return err
	}
	w.tell(ctx, state)
	return nil
}

// tell writes the state to the Node's annotation; what fails is tried again at the next look.
func (w *Watcher) tell(ctx context.Context, state firstboot.State) {
	w.told = w.Node == nil
	if w.told {
		return
	}
	text, err := json.Marshal(map[string]any{"generation": state.Generation, "status": state.Status, "error": state.Error,
		"hash": state.Hash, "at": state.At.Format(time.RFC3339)})
	if err == nil {
		var node Node
		if node, err = w.Node(ctx); err == nil {
			err = node.Annotate(ctx, map[string]string{Annotation: string(text)})
		}
	}
	if w.told = err == nil; !w.told {
		w.Log.Warn("the node's annotation was not written", "error", err)
	}
}
