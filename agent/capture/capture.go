// Package capture records a boot of the machine it runs on, for package boot to analyse.
//
// It reads systemd's stamps and ordering edges over D-Bus, first activations and kubelet's
// milestones from the journal, cloud-init's log and results, the tasks of Azure's extensions, and
// from the instance metadata service which image version the VM came from. Every source but systemd
// may be missing: then the record says so in its notes.
//
// Linux only. Nothing is changed on the machine but the folder of records.
package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// Options say what is read and where the record goes. The zero value records the machine as it is
// now.
type Options struct {
	// Root is the root directory of the machine; empty means "/".
	Root string
	// Dir keeps the records, relative to Root; empty means DefaultDir.
	Dir string
	// Keep is how many boots are kept; zero means ten.
	Keep int
	// Wait is how long to go on looking until startup has finished and, where there is a kubelet,
	// its first pod runs or a container has run for a minute. The first record is written at once,
	// or after Delay, and then made better. Zero means not to wait.
	Wait time.Duration
	// Delay is how long to leave the machine alone before the first look. It is part of Wait.
	Delay time.Duration
	// Until bounds what is read of the journal, since the kernel's start; zero means all of it.
	Until time.Duration
	// Metadata is the base URL of the instance metadata service, for example
	// "http://169.254.169.254"; empty means not to ask.
	Metadata string
	// Clock tells the time and waits; nil means the wall clock.
	Clock Clock
	// Agent is the version of the program, for the record's source.
	Agent string
}

const (
	// DefaultDir is where the agent keeps its records: one file BOOT-ID.json a boot.
	DefaultDir  = "/var/lib/kamino/boots"
	defaultKeep = 10
	// A look costs a tenth of a second of processor time, on a machine that may be starting
	// kubelet. Early looks find units that systemd soon forgets; late ones only wait, for what the
	// journal keeps.
	firstPause, longestPause = 10 * time.Second, 30 * time.Second
	// kubelet tells of a pod's start seconds after its containers', or never: of pods that ran
	// before a reboot it does not (Kubernetes 1.36,
	// pkg/kubelet/util/pod_startup_latency_tracker.go, tracks those without a start time).
	afterContainer = time.Minute
)

// Clock is the time that Run goes by.
type Clock interface {
	Now() time.Time
	// Sleep waits, or returns the context's error if that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (o Options) complete() Options {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	return o
}

// Run records this boot into its file under Dir, says on w which one, and removes the records of
// the oldest boots. It is idempotent: what an earlier call saw of the same boot (units that systemd
// has since forgotten, first activations) stays. It is best called once, early after kubelet
// started, with a Wait.
func Run(ctx context.Context, o Options, w io.Writer) error {
	o = o.complete()
	began := o.Clock.Now()
	deadline := began.Add(o.Wait)
	if o.Delay > 0 {
		if err := o.Clock.Sleep(ctx, o.Delay); err != nil {
			return fmt.Errorf("wait before the first sample: %w (nothing is recorded)", err)
		}
	}
	var container time.Time // when one was first seen
	for {
		c, err := Live(ctx, o)
		if err != nil {
			return err
		}
		path, err := o.store(c)
		if err != nil {
			return err
		}
		now := o.Clock.Now()
		if _, ok := c.Mark(boot.MarkContainer); ok && container.IsZero() {
			container = now
		}
		pause := min(max(now.Sub(began)/3, firstPause), longestPause)
		runs := !container.IsZero() && now.Sub(container) >= afterContainer
		if settled(c, runs) || !now.Add(pause).Before(deadline) {
			if err := o.prune(path); err != nil {
				return err
			}
			_, err = fmt.Fprintln(w, path)
			return err
		}
		if err := o.Clock.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("wait for the end of startup: %w (what was seen is in %s)", err, path)
		}
	}
}

// settled tells that no later look could add something that belongs to the boot; runs, that a
// container has run for long.
func settled(c *boot.Capture, runs bool) bool {
	if c.Manager.Finish == 0 {
		return false
	}
	kubelet := c.Unit("kubelet.service")
	if kubelet == nil {
		return true
	}
	_, pod := c.Mark(boot.MarkFirstPod)
	return pod || runs
}

// Live looks at the running machine once and writes nothing.
func Live(ctx context.Context, o Options) (*boot.Capture, error) {
	o = o.complete()
	c, err := systemd(ctx, o.Root)
	if err != nil {
		return nil, err
	}
	c.TakenAt = o.Clock.Now().UTC()
	host(c, o.Root)
	o.journal(ctx, c)
	o.cloudInit(c)
	o.extensions(c)
	o.networkPlugin(c)
	o.metadata(ctx, c)
	c.Schema = boot.Schema
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("record boot: %w", err)
	}
	return c, nil
}

// store merges c with the record that is there and writes it, whole or not at all.
func (o Options) store(c *boot.Capture) (string, error) {
	id := c.Host.BootID
	if id == "" || strings.ContainsAny(id, "/.") {
		return "", fmt.Errorf("name record: boot ID is %q; is /proc mounted?", id)
	}
	dir := filepath.Join(o.Root, o.Dir)
	path := filepath.Join(dir, id+".json")
	if data, err := os.ReadFile(path); err == nil {
		if old, err := read.Record(data); err != nil {
			c.Notes = append(c.Notes, fmt.Sprintf("the record that was here could not be read and was replaced: %v", err))
		} else if err := c.MergeEarlier(old); err != nil {
			return "", err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read record: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder of records: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", fmt.Errorf("write record: %w", err)
	}
	defer os.Remove(tmp.Name())
	err = errors.Join(c.Write(tmp), tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("write record: %w", err)
	}
	return path, nil
}

// prune keeps the newest records, and the one just written in any case.
func (o Options) prune(current string) error {
	files, err := filepath.Glob(filepath.Join(o.Root, o.Dir, "*.json"))
	if err != nil {
		return fmt.Errorf("list records: %w", err)
	}
	age := func(path string) time.Time {
		var head struct{ TakenAt time.Time }
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &head) == nil {
			return head.TakenAt
		}
		return time.Time{} // not a record of ours that is whole: the first to go
	}
	taken := make(map[string]time.Time, len(files))
	for _, f := range files {
		taken[f] = age(f)
	}
	slices.SortFunc(files, func(a, b string) int { return taken[b].Compare(taken[a]) })
	for i, f := range files {
		if i < o.Keep || f == current {
			continue
		}
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old record: %w", err)
		}
	}
	return nil
}
