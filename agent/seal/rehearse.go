package seal

import (
	"context"
	"fmt"
	"slices"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/runtimes"
	"kamino.dev/kamino/agent/scan"
)

// Rehearse fails as Seal would, were it made now: it asks all that is asked before the first
// change, looks at every file, and scans what the rules would leave. What a rule edits is scanned
// by the seal alone, after the edit. It changes nothing and needs no service stopped.
func Rehearse(ctx context.Context, d *disk.Disk, o Options) error {
	if old, ok, _ := ReadReceipt(d); ok {
		if old.Run == o.Run {
			return nil
		}
		return fmt.Errorf("seal: this disk was sealed by run %s and has not booted since", old.Run)
	}
	live := d.Live()
	return within(d, func(d *disk.Disk) error {
		if err := permit(d, o, Unmounted(d)); err != nil {
			return err
		}
		if !live { // on a running node they are removed by their runtimes first
			if err := noContainers(d); err != nil {
				return err
			}
		}
		r, err := inventoryOf(ctx, d, o)
		if err != nil {
			return err
		}
		if err := o.judge(d, r); err != nil {
			return err
		}
		o.unvouched, o.vouched = r.Noted, r.Index.Vouched()
		return rehearseScan(ctx, d, o)
	})
}

// rehearseScan is the scan without what is in files that rules take away or edit, and without what
// containers wrote: they are removed first, which the seal makes sure of.
func rehearseScan(ctx context.Context, d *disk.Disk, o Options) error {
	plan, err := planOf(d, o)
	if err != nil {
		return err
	}
	left, err := runtimes.Containers(d)
	if err != nil {
		return err
	}
	changed := runtimes.Writable(left)
	for _, s := range plan {
		for _, m := range s.matches {
			changed = append(changed, m.Path)
		}
	}
	look := o.Scan(d)
	allowed := look.Allow
	look.Allow = func(kind, name string) bool {
		return allowed(kind, name) || slices.ContainsFunc(changed, func(p string) bool { return disk.Under(name, p) })
	}
	return clean(ctx, d, o, look)
}

// clean scans; *Found if there is anything.
func clean(ctx context.Context, d *disk.Disk, o Options, look scan.Options) error {
	r, err := scan.Files(ctx, d, look)
	if err != nil {
		return fmt.Errorf("scan the disk: %w", err)
	}
	for _, s := range r.Skipped {
		o.Log.Warn("skipped", "what", s)
	}
	if len(r.Findings) > 0 {
		return &Found{r}
	}
	return nil
}
