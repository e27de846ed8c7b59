// Package watch applies new generations of a node's configuration in place, and takes them back
// when the node does not become healthy with them.
package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"kamino.dev/kamino/agent/userdata"
)

// Annotation of the Node under which the state of the configuration is found.
const Annotation = "kamino.dev/config"

// annotation is its JSON; kamino.NodeConfig is its reader.
type annotation struct {
	Generation int64            `json:"generation"`
	Status     string           `json:"status"`
	Error      string           `json:"error"`
	Hash       string           `json:"hash"`
	Offered    *firstboot.Offer `json:"offered,omitempty"`
	At         string           `json:"at"`
}

// Node is the node's own object.
type Node interface {
	Annotate(ctx context.Context, annotations map[string]string) error
	Label(ctx context.Context, labels map[string]string, remove []string) error
	Taint(ctx context.Context, set, remove []userdata.Taint) error
	Ready(ctx context.Context) (nodeapi.Ready, error)
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
	Name     string // of the Node
	Log      *slog.Logger
	Now      func() time.Time
	Wait     func(ctx context.Context, d time.Duration) error
	Interval time.Duration
	// Health is kubelet's health endpoint; Deadline how long the node may take to be healthy after a
	// change; Settle how long it must stay so.
	Health           string
	Deadline, Settle time.Duration

	told   string // the annotation as it was written last
	toldAt time.Time
	// unread is since when the source cannot be read; zero: it can be.
	unread time.Time
}

// backoffMost is the longest pause after errors.
const backoffMost = 15 * time.Minute

// Bounds of the trials of one document: how often the agent or the machine may die in one, and how
// many may begin at all, since a document may also make the machine restart in an orderly way.
const (
	deathsMost = 2
	trialsMost = 10
)

// Run polls until the context ends, at Interval with a fifth of jitter so that a pool's nodes do
// not ask at once, and with doubling pauses while there is an error.
func (w *Watcher) Run(ctx context.Context) error {
	w.comeBack(ctx)
	pause := w.Interval
	for {
		if err := w.Wait(ctx, pause*4/5+rand.N(pause*2/5+1)); err != nil {
			return nil // asked to stop
		}
		err := w.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pause = w.Interval
			continue
		}
		w.Log.Error("configuration not updated", "error", err)
		pause = max(min(pause*2, max(backoffMost, w.Interval)), platform.RetryAfter(err)*5/4) // the jitter takes a fifth
	}
}

// Once looks once and applies what is new. An error is a source that could not be asked, or a
// machine that could not be changed; a document that is wrong or does not work is not an error here
// but a state.
func (w *Watcher) Once(ctx context.Context) error {
	state, err := firstboot.ReadState(w.Disk)
	if err != nil {
		w.reportUnread(ctx, state, err)
		return err
	}
	w.comeBack(ctx)
	doc, err := w.find(ctx)
	none := errors.Is(err, nodeconfig.ErrNone)
	if err != nil && !none {
		if ctx.Err() == nil {
			w.reportUnread(ctx, state, err)
		}
		return err
	}
	w.unread = time.Time{}
	if none || doc.Hash() == state.Hash {
		if !none && state.Pending {
			c, err := userdata.Parse(doc.Data)
			if err != nil {
				return err
			}
			return w.adopt(ctx, state, doc, c)
		}
		return w.settle(ctx, state)
	}
	if state.Refused(doc.Hash()) {
		w.tell(ctx, state)
		return nil
	}
	c, files, err := w.prepare(ctx, doc, state)
	if err != nil {
		return w.finish(ctx, state, doc, firstboot.StatusInvalid, err)
	}
	if !c.Takes(w.Name) {
		return w.leave(ctx, state, firstboot.Offer{Generation: c.Generation, Hash: doc.Hash()})
	}
	if state.Trial == nil || state.Trial.Hash != doc.Hash() {
		state.Trial = &firstboot.Trial{Hash: doc.Hash()}
	}
	if err := endless(*state.Trial); err != nil {
		return w.finish(ctx, state, doc, firstboot.StatusRolledBack, err)
	}
	w.Log.Info("new configuration", "generation", c.Generation, "source", doc.Source)
	w.sound(ctx, state.Trial)
	state.Trial.Begun++
	if err := firstboot.WriteState(w.Disk, state); err != nil {
		return err
	}
	err = w.apply(ctx, files, *state.Trial)
	if err == nil && ctx.Err() == nil {
		err = nodeconfig.DropFormer(w.Disk)
	}
	switch {
	case ctx.Err() != nil, err != nil && w.goesDown(ctx):
		return w.stopped(ctx, state, c.Generation)
	case err != nil:
		return w.takeBack(ctx, state, doc, err)
	}
	return w.adopt(ctx, state, doc, c)
}

// findMost bounds one look: a session token and the user data of EC2, each within the bound of one
// request, and a second try.
const findMost = 2 * time.Minute

func (w *Watcher) find(ctx context.Context) (nodeconfig.Document, error) {
	patience, cancel := context.WithTimeout(ctx, findMost)
	defer cancel()
	return nodeconfig.Find(patience, w.Settings.Sources, w.Disk, w.IMDS.UserData)
}

// settle is what follows where the source has the document in force, or none: nothing that was
// refused or on trial counts any more.
func (w *Watcher) settle(ctx context.Context, state firstboot.State) error {
	if state.Offered != nil || state.Trial != nil {
		if state.Offered != nil {
			state.Status, state.Error, state.At = firstboot.StatusApplied, "", w.Now().UTC()
			if state.Hash == "" {
				state.Status = firstboot.StatusImage
			}
		}
		state.Offered, state.Trial = nil, nil
		if err := firstboot.WriteState(w.Disk, state); err != nil {
			return err
		}
	}
	if state.Status != "" {
		w.tell(ctx, state)
	}
	return nil
}

// leave is what follows where the document is for other nodes so far.
func (w *Watcher) leave(ctx context.Context, state firstboot.State, offered firstboot.Offer) error {
	if state.Status != firstboot.StatusWaiting || *state.Offered != offered {
		w.Log.Info("a new configuration is for other nodes so far", "generation", offered.Generation)
		state.Status, state.Error, state.Offered, state.Trial, state.At = firstboot.StatusWaiting, "", &offered, nil, w.Now().UTC()
		if err := firstboot.WriteState(w.Disk, state); err != nil {
			return err
		}
	}
	w.tell(ctx, state)
	return nil
}

func (w *Watcher) prepare(ctx context.Context, doc nodeconfig.Document, state firstboot.State) (*userdata.NodeConfig,
	[]nodeconfig.File, error) {
	c, err := userdata.Parse(doc.Data)
	if err != nil {
		return nil, nil, err
	}
	if err := state.Newer(c); err != nil {
		return nil, nil, err
	}
	files, err := nodeconfig.Render(ctx, w.Disk, w.Host, c, false)
	return c, files, err
}

// endless is why a document is not tried once more; nil where it may be.
func endless(t firstboot.Trial) error {
	switch died := t.Begun - t.Stopped; {
	case died >= deathsMost:
		return fmt.Errorf("the machine or kamino-agent died %d times while this document was on trial", died)
	case t.Begun >= trialsMost:
		return fmt.Errorf("%d trials of this document were interrupted", t.Begun)
	}
	return nil
}

// stopped ends a trial without a verdict. The next start restores the former files and tries the
// document again.
func (w *Watcher) stopped(ctx context.Context, state firstboot.State, generation int64) error {
	w.Log.Warn("asked to stop during a trial; the document is tried again after the next start", "generation", generation)
	state.Trial.Stopped++
	return errors.Join(ctx.Err(), firstboot.WriteState(w.Disk, state))
}

// goesDown reports whether the machine goes down: systemd then refuses commands before it asks the
// agent to stop, and their errors say nothing about the document.
func (w *Watcher) goesDown(ctx context.Context) bool {
	state, _ := w.Host.Run(ctx, "systemctl", "is-system-running") // fails in every state but running
	return strings.TrimSpace(state) == "stopping" || ctx.Err() != nil
}

// takeBack goes back to the former generation and refuses the document.
func (w *Watcher) takeBack(ctx context.Context, state firstboot.State, doc nodeconfig.Document, cause error) error {
	restarted := w.Now()
	err := w.Recover(ctx)
	if err == nil {
		err = w.healthy(ctx, *state.Trial, restarted)
	}
	if err != nil && ctx.Err() == nil && !w.goesDown(ctx) {
		return w.finish(ctx, state, doc, firstboot.StatusBroken,
			errors.Join(cause, fmt.Errorf("back at the former configuration: %w", err)))
	}
	return w.finish(ctx, state, doc, firstboot.StatusRolledBack, cause)
}

// apply keeps the former files, writes the new, restarts what reads them and waits for the node to
// be healthy.
func (w *Watcher) apply(ctx context.Context, files []nodeconfig.File, t firstboot.Trial) error {
	if err := nodeconfig.KeepFormer(w.Disk, files); err != nil {
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
	var restarted time.Time
	if slices.Contains(made.Units, "kubelet.service") {
		restarted = w.Now()
	}
	if err := w.restart(ctx, made.Units); err != nil {
		return err
	}
	if len(made.Units) == 0 {
		return nil
	}
	return w.healthy(ctx, t, restarted)
}

// comeBack restores the former files where a trial was interrupted. A failure does not keep the
// watcher from reading the sources: a better document may be what the node needs.
func (w *Watcher) comeBack(ctx context.Context) {
	if err := w.Recover(ctx); err != nil && ctx.Err() == nil {
		w.Log.Error("the former configuration was not restored; it is tried again at the next check", "error", err)
	}
}

// Recover restores the former files of a generation that is on trial, and restarts what reads them.
func (w *Watcher) Recover(ctx context.Context) error {
	made, err := nodeconfig.Restore(w.Disk)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.restart(ctx, made.Units); err != nil {
		return err
	}
	return nodeconfig.DropFormer(w.Disk)
}

// restartKubelet reports whether kubelet must be restarted: labels alone are changed on the Node,
// and kubelet reads the ones on its command line when it next registers.
func (w *Watcher) restartKubelet(files []nodeconfig.File) bool {
	for _, f := range files {
		former, _ := w.Disk.ReadFile(f.Path, disk.Small)
		if f.Unit != "kubelet.service" || string(former) == string(f.Data) {
			continue
		}
		if f.Path != nodeconfig.DropInPath || !slices.Equal(withoutLabels(nodeconfig.Command(w.Disk, former)),
			withoutLabels(nodeconfig.Command(w.Disk, f.Data))) {
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

// adopt changes the Node and records the new generation: an API server that is away must not undo a
// working configuration. What could not be changed is tried again at the next look, unless it is
// forbidden.
func (w *Watcher) adopt(ctx context.Context, former firstboot.State, doc nodeconfig.Document, c *userdata.NodeConfig) error {
	state := firstboot.Applied(doc, c, w.Now())
	// Until the Node is changed, it may have the labels of both documents, and has the former taints.
	// The document is in force: the agent may die while the API server is asked.
	pending := state
	pending.Pending, pending.Taints = true, former.Taints
	pending.Labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(state.Labels, former.Labels))))
	if err := firstboot.WriteState(w.Disk, pending); err != nil {
		return err
	}
	if err := w.change(ctx, former, c); err != nil {
		w.Log.Warn("the node's object was not changed", "error", err)
		if !errors.Is(err, nodeapi.ErrForbidden) {
			state = pending
		}
		state.Error = err.Error()
	}
	if err := firstboot.WriteState(w.Disk, state); err != nil {
		return err
	}
	w.tell(ctx, state)
	return nil
}

// change sets the document's labels and taints on the Node and removes those that only the former
// document had.
func (w *Watcher) change(ctx context.Context, former firstboot.State, c *userdata.NodeConfig) error {
	gone := slices.DeleteFunc(slices.Clone(former.Labels), func(key string) bool { _, still := c.Kubelet.Labels[key]; return still })
	retained := func(t userdata.Taint) bool { return slices.Contains(c.Kubelet.Taints, t) }
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
	if status == firstboot.StatusInvalid && ctx.Err() != nil { // no verdict: what was asked did not end
		return ctx.Err()
	}
	offered := &firstboot.Offer{Generation: userdata.Generation(doc.Data), Hash: doc.Hash()}
	w.Log.Error("configuration refused", "status", status, "error", cause)
	state.Status, state.Error, state.Offered, state.Trial, state.At = status, cause.Error(), offered, nil, w.Now().UTC()
	if err := firstboot.WriteState(w.Disk, state); err != nil {
		return err
	}
	w.tell(ctx, state)
	return nil
}

// StatusUnreadable of the annotation: the agent cannot read the source, and so does not know what it
// offers, or cannot read the state on the disk.
const StatusUnreadable = "Unreadable"

// reportUnread writes to the Node's annotation that the source, or the state, cannot be read. The
// state on the disk stays: it is about documents.
func (w *Watcher) reportUnread(ctx context.Context, state firstboot.State, cause error) {
	if w.unread.IsZero() {
		w.unread = w.Now().UTC()
	}
	state.Status, state.Error, state.Offered, state.At = StatusUnreadable, cause.Error(), nil, w.unread
	w.tell(ctx, state)
}

// tellAgain is after how long the annotation is written again: the Node may be another, which kubelet
// registered after somebody had deleted it.
const tellAgain = time.Hour

// errorMost bounds the annotation's text of an error, in bytes.
const errorMost = 1 << 10

// tell writes the state to the Node's annotation, where it differs from what was written last. What
// fails is tried again at the next look.
func (w *Watcher) tell(ctx context.Context, state firstboot.State) {
	if w.Node == nil {
		return
	}
	cause := state.Error
	if len(cause) > errorMost {
		cause = strings.ToValidUTF8(cause[:errorMost], "") + "…"
	}
	data, err := json.Marshal(annotation{state.Generation, state.Status, cause, state.Hash, state.Offered, state.At.Format(time.RFC3339)})
	text := string(data)
	if err == nil && text == w.told && w.Now().Sub(w.toldAt) < tellAgain {
		return
	}
	if err == nil {
		var node Node
		if node, err = w.Node(ctx); err == nil {
			err = node.Annotate(ctx, map[string]string{Annotation: text})
		}
	}
	if err != nil {
		w.Log.Warn("the node's annotation was not written", "error", err)
		return
	}
	w.told, w.toldAt = text, w.Now()
}
