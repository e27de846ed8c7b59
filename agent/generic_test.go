package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// TestGenericBoot: the receipt contains the timing of the donor's boot where that is proved to be
// the first of a machine that came from no donor, and of no other boot. The record is a real one.
func TestGenericBoot(t *testing.T) {
	data, err := os.ReadFile("../boot/read/testdata/real/container.json")
	if err != nil {
		t.Fatal(err)
	}
	kernel := time.Date(2026, 11, 21, 10, 50, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		change func(root string, c *boot.Capture) error
		refuse string // "" where the boot is recorded
	}{
		{"first boot", func(string, *boot.Capture) error { return nil }, ""},
		{"an image builder's instance before it", func(root string, _ *boot.Capture) error {
			return ranAt(root, "i-builder", "config_ssh", kernel.Add(-90*24*time.Hour))
		}, ""},
		{"a clone", func(root string, _ *boot.Capture) error { return plant(root, seal.Ancestry) }, "clone: it has /var/log/ancestry.log"},
		{"a clone without its log", func(root string, _ *boot.Capture) error { return plant(root, seal.LineagePath) }, "clone: it has /var/lib/kamino/lineage.jsonl"},
		{"restarted since", func(root string, _ *boot.Capture) error {
			return ranAt(root, "i-1", "config_growpart", kernel.Add(-time.Hour))
		}, "first ran a module at 2026-11-21T09:50:00Z, and the kernel started at 2026-11-21T10:50:00Z"},
		{"its userspace restarted since", func(_ string, c *boot.Capture) error { c.Manager.SoftReboots = 1; return nil }, "not proved to be the first boot"},
		// A restarted donor: its RTC was three hours behind, which chrony mended later.
		{"its clock was behind", func(root string, c *boot.Capture) error {
			c.TakenAt = kernel.Add(5 * time.Hour)
			return ranAt(root, "i-1", "config_growpart", kernel.Add(time.Hour))
		}, "the clock was set by 3h0m0s since the kernel started"},
		{"systemd does not tell when the kernel started", func(_ string, c *boot.Capture) error { c.Manager.KernelRealtime = 0; return nil }, "not proved to be the first boot"},
		{"no cloud-init", func(root string, _ *boot.Capture) error { return os.RemoveAll(filepath.Join(root, "var/lib/cloud")) }, "does not tell when cloud-init first ran"},
		{"systemd does not answer", func(_ string, c *boot.Capture) error { c.Manager.Version = "silent"; return nil }, "connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node, h, events := apiServer(t, http.StatusOK)
			d := emptyDisk(t)
			c, err := read.Record(data)
			if err != nil {
				t.Fatal(err)
			}
			c.Manager.KernelRealtime, c.TakenAt = boot.Micros(kernel.UnixMicro()), kernel.Add(2*time.Hour)
			err = errors.Join(plantText(d.Dir(), "proc/uptime", "7200.12 14000.00\n"), ranAt(d.Dir(), "i-1", "consume_data", kernel.Add(9*time.Second)), ranAt(d.Dir(), "i-1", "config_ssh", kernel.Add(12*time.Second)),
				os.Symlink("/var/lib/cloud/instances/i-1", filepath.Join(d.Dir(), "var/lib/cloud/instance")), tt.change(d.Dir(), c))
			if err != nil {
				t.Fatal(err)
			}
			v := verbFor(t)
			v.look = func(_ context.Context, o capture.Options) (*boot.Capture, error) {
				if o.Root != d.Dir() || o.Metadata != "" || c.Manager.Version == "silent" {
					return nil, errors.New("connection refused")
				}
				return c, nil
			}
			if _, err := v.genericBoot(t.Context(), d); tt.refuse == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.refuse) {
				t.Errorf("%v, not %q", err, tt.refuse)
			}
			v.recordGeneric(t.Context(), d)
			if err := v.finish(t.Context(), d, h, node, seal.Receipt{Run: "r1", Hash: "sha256:1"}); err != nil {
				t.Fatal(err)
			}
			told := toldReceipt(t, events())
			if told.Run != "r1" || told.Hash != "sha256:1" {
				t.Errorf("the receipt is not whole: %+v", told)
			}
			if tt.refuse != "" {
				if len(told.Phases)+len(told.Starts) > 0 {
					t.Errorf("another boot is told as a generic one: %v", told.Phases)
				}
				return
			}
			if told.Phases["userspace"] != 5.920 || told.Starts["userspace"] > .001 || len(told.Phases) != len(told.Starts) {
				t.Errorf("%v, starts %v", told.Phases, told.Starts)
			}
		})
	}
}

// TestTimingOf: what began long after the boot is no part of it, and what is told is small.
func TestTimingOf(t *testing.T) {
	c := &boot.Capture{Manager: boot.Manager{SecurityStart: 1e6, Userspace: 3e6, Finish: 40e6}, Units: []boot.Unit{
		{ID: "containerd.service", Stamps: boot.Stamps{Activating: 9e6, Activated: 9.5e6}},
		{ID: "kubelet.service", Stamps: boot.Stamps{Activating: 4000e6, Activated: 4001e6}}}}
	got := capture.TimingOf(c)
	if len(got.Phases) != 3 || got.Phases["container runtime"] != .5 || got.Starts["container runtime"] != 9 || got.Starts["userspace"] != 3 {
		t.Errorf("%+v", got)
	}
}

type toldFields struct {
	Run, Hash      string
	Phases, Starts map[string]float64
}

func toldReceipt(t *testing.T, events string) (told toldFields) {
	t.Helper()
	for line := range strings.Lines(events) {
		var patch struct {
			Metadata struct{ Annotations map[string]string }
		}
		if json.Unmarshal([]byte(line), &patch) == nil && patch.Metadata.Annotations[receiptAnnotation] != "" {
			if err := json.Unmarshal([]byte(patch.Metadata.Annotations[receiptAnnotation]), &told); err != nil {
				t.Fatal(err)
			}
		}
	}
	return told
}

func plant(root, name string) error { return plantText(root, name, "x\n") }

func plantText(root, name, text string) error {
	name = filepath.Join(root, name)
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
}

// ranAt has cloud-init run a module for an instance at a time.
func ranAt(root, instance, module string, at time.Time) error {
	name := filepath.Join("var/lib/cloud/instances", instance, "sem", module)
	return errors.Join(plant(root, name), os.Chtimes(filepath.Join(root, name), at, at))
}
