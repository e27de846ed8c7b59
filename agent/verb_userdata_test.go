package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/seal"
)

// TestUserDataRefusesAsTheAgent: who checks a document on a disk hears what the agent of that disk would
// say of it, before its trial.
func TestUserDataRefusesAsTheAgent(t *testing.T) {
	const head = "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 4\njoin: {method: keep}\n"
	hash := nodeconfig.Document{Data: []byte(head)}.Hash()
	state := func(s firstboot.State) func(d *disk.Disk) error {
		return func(d *disk.Disk) error { return firstboot.WriteState(d, s) }
	}
	file := func(name, text string) func(d *disk.Disk) error {
		return func(d *disk.Disk) error { return d.WriteFile(name, []byte(text), 0o644) }
	}
	ec2 := file("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
	part := "--B\nContent-Type: application/node.kamino.dev\n" + head
	message := func(parts string) string {
		return "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n" + parts
	}
	for name, tt := range map[string]struct {
		text    string
		prepare func(d *disk.Disk) error
		want    string // empty: accepted
	}{
		"right":                 {head, nil, ""},
		"a field of the agent":  {head + "kubelet: {config: {registerWithTaints: []}}\n", nil, "kubelet.config.registerWithTaints: not allowed here"},
		"a config that is none": {head + "kubelet: {config: 5}\n", nil, "of the wrong kind"},
		"a version":             {head + "kubelet: {version: '1.36'}\n", nil, "kubelet.version"},
		"an argument":           {head + "kubelet: {args: [--config=/x]}\n", nil, "--config is the agent's"},
		"a label":               {head + "kubelet: {labels: {node-role.kubernetes.io/x: y}}\n", nil, "kubelet may not set this label"},
		"a taint":               {head + "kubelet: {taints: [{key: a, effect: No}]}\n", nil, "kubelet.taints[0].effect"},
		"newer":                 {head, state(firstboot.State{Generation: 3, Hash: "x", Status: firstboot.StatusApplied}), ""},
		"not newer":             {head, state(firstboot.State{Generation: 4, Hash: "x", Status: firstboot.StatusApplied}), "generation 4 is not newer than 4, which is in force"},
		"in force":              {head, state(firstboot.State{Generation: 4, Hash: hash, Status: firstboot.StatusApplied}), ""},
		"refused": {head, state(firstboot.State{Generation: 3, Hash: "x", Status: firstboot.StatusRolledBack, Error: "kubelet not healthy", Offered: &firstboot.Offer{Generation: 4, Hash: hash}}),
			"this node has refused the document (RolledBack): kubelet not healthy; correct it, and raise generation"},
		"no clone could join":     {head, file(seal.SettingsPath, "join: fresh\n"), "join.method keep, but the donor's own credential was removed"},
		"each clone could":        {head, file(seal.SettingsPath, "join: keep\n"), ""},
		"a MIME message":          {message(part), ec2, ""},
		"two of ours in it":       {message(part + part), ec2, "two parts are of type"},
		"none of ours in it":      {message("--B\n\n#!/bin/sh\n"), ec2, "decode NodeConfig"},
		"a MIME message on Azure": {message(part), nil, "decode NodeConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			d, h := donor(t)
			if tt.prepare != nil {
				if err := tt.prepare(d); err != nil {
					t.Fatal(err)
				}
			}
			at := filepath.Join(t.TempDir(), "nodeconfig.yaml")
			if err := os.WriteFile(at, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{nil, {"--encode"}} {
				var out bytes.Buffer
				code := MainOn(t.Context(), h, append([]string{"userdata", "--root", d.Dir(), "--file", at}, args...), &out, &out)
				if (code == 0) != (tt.want == "") || !strings.Contains(out.String(), tt.want) {
					t.Errorf("userdata %v: exit code %d, want %q:\n%s", args, code, tt.want, out.String())
				}
			}
		})
	}
}

// TestNoSealInTrial: the files of a document on trial are no image's.
func TestNoSealInTrial(t *testing.T) {
	for _, args := range [][]string{{"--dry-run"}, {"--run", "r1"}} {
		d, h := donor(t)
		if err := d.WriteFile(nodeconfig.FormerPath, []byte("[]"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := MainOn(t.Context(), h, append([]string{"seal", "--root", d.Dir(), "--join", "fresh"}, args...), &out, &out)
		if code != 1 || !strings.Contains(out.String(), "a configuration is on trial") || !d.Exists(nodeconfig.FormerPath) || !d.Exists("etc/machine-id") {
			t.Errorf("seal %v: exit code %d: %s", args, code, out.String())
		}
	}
}
