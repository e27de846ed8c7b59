package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/seal"
)

const (
	// perInstance has a file for each module that cloud-init ran for this instance, once, written
	// when it ran (cloudinit/helpers.py, FileSemaphores; unverified on images of clouds).
	perInstance = "var/lib/cloud/instance/sem"
	// recordGenericWithin bounds how long the donor's seal waits for a record that no image needs.
	// A run that gives back takes a donor whose kubelet is heard after a minute (settleTime in
	// engine/donor_return.go) for one that is not being sealed.
	recordGenericWithin = 10 * time.Second
	// clockMost is how far the clock may have been set since the kernel started: with a clock that
	// was hours behind, any boot looks like the first.
	clockMost = time.Minute
)

// recordGeneric notes the timing of this boot for the receipt, before the seal stops anything, if
// it is the boot of a generic machine: with that clones are compared. The seal does not depend on
// it.
func (v *sealVerb) recordGeneric(ctx context.Context, d *disk.Disk) {
	ctx, cancel := context.WithTimeout(ctx, recordGenericWithin)
	defer cancel()
	t, err := v.genericBoot(ctx, d)
	if err != nil {
		v.log.Info("the receipt does not contain this boot as one of a generic machine", "reason", err)
		return
	}
	v.generic = t
}

// genericBoot is the timing of this boot; an error where it is not proved that the disk came from
// no donor's, and boots for the first time.
func (v *sealVerb) genericBoot(ctx context.Context, d *disk.Disk) (t capture.Timing, err error) {
	for _, name := range []string{seal.Ancestry, seal.LineagePath} {
		if d.Exists(name) {
			return t, fmt.Errorf("this machine is a clone: it has /%s", name)
		}
	}
	began, err := firstModule(d)
	if err != nil {
		return t, err
	}
	c, err := v.look(ctx, capture.Options{Root: d.Dir(), Until: capture.TimingMost, Agent: Version})
	if err != nil {
		return t, err
	}
	kernel := time.UnixMicro(int64(c.Manager.KernelRealtime))
	if c.Manager.KernelRealtime == 0 || c.Manager.SoftReboots > 0 || began.Before(kernel) {
		return t, fmt.Errorf("it is not proved to be the first boot: cloud-init first ran a module at %s, and the kernel started at %s",
			began.UTC().Format(time.RFC3339), kernel.UTC().Format(time.RFC3339))
	}
	up, _, _ := strings.Cut(d.Text("proc/uptime"), " ") // seconds, also those of a suspended machine: proc_uptime(5)
	uptime, err := time.ParseDuration(up + "s")
	if err != nil {
		return t, fmt.Errorf("read /proc/uptime: %w", err)
	}
	if set := c.TakenAt.Add(-uptime).Sub(kernel); set.Abs() > clockMost {
		return t, fmt.Errorf("it is not proved to be the first boot: the clock was set by %s since the kernel started",
			set.Round(time.Second))
	}
	return capture.TimingOf(c), nil
}

// firstModule is when cloud-init first ran a module for this instance.
func firstModule(d *disk.Disk) (first time.Time, err error) {
	entries, err := d.ReadDir(perInstance)
	if err != nil {
		return first, err
	}
	for _, e := range entries {
		info, err := d.Lstat(path.Join(perInstance, e.Name()))
		if err != nil {
			return first, err
		}
		if first.IsZero() || info.ModTime().Before(first) {
			first = info.ModTime()
		}
	}
	if first.IsZero() {
		return first, errors.New("/" + perInstance + " does not tell when cloud-init first ran here")
	}
	return first, nil
}
