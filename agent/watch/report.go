package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// ReportAnnotation of a canary's Node under which the run that made it finds the report.
const ReportAnnotation = "kamino.dev/report"

// FreshnessAnnotation tells on every node of an image how far its disk is patched, as
// inventory.Facts in JSON; kamino.Freshness is its reader. It is a claim of the node's.
const FreshnessAnnotation = "kamino.dev/freshness"

// freshnessPause is how often a node looks whether it was patched.
const freshnessPause = 15 * time.Minute

// reportPause is how often a canary reports: a run looks at it for minutes.
const reportPause = 20 * time.Second

// report is what a canary's Node does not show by itself; kamino.NodeReport is its reader.
type report struct {
	Nonce         string         `json:"nonce"`
	At            time.Time      `json:"at"`
	MachineID     string         `json:"machineId"`
	SSHKeys       []string       `json:"sshKeys,omitempty"`
	FailedUnits   []string       `json:"failedUnits,omitempty"`
	Restarts      map[string]int `json:"restarts,omitempty"`
	RebootPending string         `json:"rebootPending,omitempty"`
	capture.Timing
	inventory.Facts
}

// Report tells the run that made a canary about it, until ctx ends. On a machine whose tags name no
// order it ends at once.
func (w *Watcher) Report(ctx context.Context) {
	if w.Node == nil {
		return
	}
	meta, err := w.IMDS.Instance(ctx)
	nonce := meta.Tag(platform.TagNonce)
	if err != nil || nonce == "" {
		return
	}
	r := report{Nonce: nonce}
	if _, r.Facts, err = inventory.Packages(w.Disk); err != nil {
		w.Log.Warn("the packages are not known", "error", err)
	}
	for {
		if err := w.report(ctx, r); err != nil {
			w.Log.Warn("the canary's report was not written", "error", err)
		}
		if w.Wait(ctx, reportPause) != nil {
			return
		}
	}
}

// Freshness tells how far the disk is patched, when it starts, whenever that has changed and once an
// hour, until ctx ends.
func (w *Watcher) Freshness(ctx context.Context) {
	var told inventory.Facts
	var at time.Time
	for w.Node != nil {
		if w.Now().Sub(at) >= tellAgain {
			told = inventory.Facts{}
		}
		facts, err := w.freshness(ctx, told)
		if err == nil && facts != told {
			told, at = facts, w.Now()
		} else if err != nil {
			w.Log.Warn("the patch state of this node was not reported", "error", err)
		}
		if w.Wait(ctx, freshnessPause) != nil {
			return
		}
	}
}

// freshness writes the annotation, unless it is up to date.
func (w *Watcher) freshness(ctx context.Context, told inventory.Facts) (inventory.Facts, error) {
	_, facts, err := inventory.Packages(w.Disk)
	if err != nil || facts == told {
		return facts, err
	}
	text, err := json.Marshal(facts)
	if err != nil {
		return facts, err
	}
	node, err := w.Node(ctx)
	if err != nil {
		return facts, err
	}
	return facts, node.Annotate(ctx, map[string]string{FreshnessAnnotation: string(text)})
}

func (w *Watcher) report(ctx context.Context, r report) error {
	r.MachineID, r.SSHKeys, r.Timing = w.Disk.Text("etc/machine-id"), inventory.SSHKeys(w.Disk), timing(w.Disk)
	out, err := w.Host.Run(ctx, "systemctl", host.ListFailed...)
	if err != nil {
		return fmt.Errorf("list failed units: %w", err)
	}
	r.FailedUnits = host.FailedUnits(out)
	if out, err = w.Host.Run(ctx, "systemctl", "show", "--property=Id,NRestarts", "*.service"); err != nil {
		return fmt.Errorf("count restarts: %w", err)
	}
	r.Restarts = restarts(out)
	for _, name := range []string{"run/reboot-required", "var/run/reboot-required"} { // update-notifier-common, unattended-upgrades
		if w.Disk.Exists(name) {
			r.RebootPending = "/" + name
		}
	}
	r.At = w.Now().UTC() // last: whoever reads it compares it with when the API server got it
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	node, err := w.Node(ctx)
	if err != nil {
		return err
	}
	return node.Annotate(ctx, map[string]string{ReportAnnotation: string(text)})
}

// restarts reads systemctl's blocks of Id and NRestarts (systemd.service(5), systemctl(1)).
func restarts(blocks string) map[string]int {
	counts := map[string]int{}
	for block := range strings.SplitSeq(blocks, "\n\n") {
		unit, n := "", 0
		for line := range strings.Lines(block) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch name {
			case "Id":
				unit = value
			case "NRestarts":
				n, _ = strconv.Atoi(value) // nothing: it never ran
			}
		}
		if unit != "" && n > 0 {
			counts[unit] = n
		}
	}
	return counts
}

// timing is that of this boot, as far as the record tells that kamino-agent capture writes of it;
// empty before there is one.
func timing(d *disk.Disk) capture.Timing {
	name := path.Join(strings.TrimPrefix(capture.DefaultDir, "/"), strings.ReplaceAll(d.Text("proc/sys/kernel/random/boot_id"), "-", "")+
		".json")
	data, err := d.ReadFile(name, boot.MaxDocument)
	if err != nil {
		return capture.Timing{}
	}
	record, err := read.Record(data)
	if err != nil {
		return capture.Timing{}
	}
	return capture.TimingOf(record)
}
