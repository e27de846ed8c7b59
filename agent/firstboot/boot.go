// Package firstboot decides at every boot whether the disk still belongs to this machine, and makes
// it this machine's when it does not. kubelet waits for its verdict (ReadyPath).
package firstboot

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
)

// What a boot leaves behind.
const (
	// ReadyPath is in memory: it says that in this boot the identity was confirmed. kubelet's unit
	// asserts it.
	ReadyPath = "run/kamino/identity-ok"
	// vmPath records the machine to which the disk belongs.
	vmPath = "etc/kamino/vm.json"
	// StatePath records the configuration in force.
	StatePath = "var/lib/kamino/config.json"
	mediaDir  = "run/kamino/media"
	// forgottenPath is in memory: it says that the former machine was forgotten in this boot, so
	// that what was made anew since then, such as sshd's keys, is not removed again.
	forgottenPath = "run/kamino/forgotten"
)

// Machine is everything that a boot touches.
type Machine struct {
	Disk     *disk.Disk
	Host     host.Host
	IMDS     platform.Service
	Wire     platform.WireServer
	Settings seal.Settings
	Log      *slog.Logger
	Now      func() time.Time
	// Patience is how long IMDS may take to answer, from the network's absence on.
	Patience time.Duration
}

// owner is the content of vmPath.
type owner struct {
	VMID      string    `json:"vmId"`
	Instance  string    `json:"instance,omitempty"` // EC2's i-…
	MachineID string    `json:"machineId,omitempty"`
	Since     time.Time `json:"since"`
}

// verdict is what is known about the disk before the network is.
type verdict struct {
	done    bool // the disk is this machine's
	sealed  bool
	receipt seal.Receipt
	owner   owner
	vm      string // this machine by SMBIOS, empty if unreadable
	// instance is EC2's name of this machine, by SMBIOS on Nitro, later by IMDS; empty elsewhere.
	instance string
}

// mine reports whether the disk's owner is this machine. EC2 gives an instance ID once, so it
// decides where both are known; that SMBIOS shows the same UUID there after a stop is unverified.
func (v verdict) mine() bool {
	if v.instance != "" && v.owner.Instance != "" {
		return v.instance == v.owner.Instance
	}
	return platform.Same(v.vm, v.owner.VMID)
}

// Early is the part that needs no network and runs before it: it recognises the machine, takes an
// interrupted seal back, finishes an interrupted purge, and forgets the former machine.
func (m *Machine) Early(ctx context.Context) error {
	v, err := m.judge(ctx)
	if err == nil && !v.done && v.vm+v.instance != "" { // without SMBIOS only IMDS can tell, and that needs the network
		err = m.forget(v)
	}
	m.sshKeys() // also after an error: somebody has to log in to fix it
	return err
}

// Boot is the whole: Early's part if it is still to do, then name, configuration and report. When
// it returns nil, kubelet may start; when it fails, the platform has been told why.
func (m *Machine) Boot(ctx context.Context) error {
	v, err := m.judge(ctx)
	if err == nil && v.done {
		return host.Notify()
	}
	if err == nil {
		err = m.become(ctx, v)
	}
	if err == nil {
		return nil
	}
	if m.Settings.FirstBoot == seal.FirstBootAgent {
		if rerr := m.Wire.Report(ctx, false, "kamino: "+err.Error()); rerr != nil {
			m.Log.Error("platform was not notified", "error", rerr)
		}
	}
	return fmt.Errorf("first boot: %w; kubelet does not start on this machine (docs/agent.md, \"When a node does not come up\")", err)
}

func (m *Machine) judge(ctx context.Context) (verdict, error) {
	v := verdict{vm: platform.SMBIOS(m.Disk), instance: platform.InstanceID(m.Disk)}
	if m.Disk.Exists(ReadyPath) {
		v.done = true
		return v, nil
	}
	if seal.Interrupted(m.Disk) {
		return v, m.unseal(ctx, &v)
	}
	receipt, sealed, err := seal.ReadReceipt(m.Disk)
	if err != nil {
		return v, err
	}
	v.receipt, v.sealed = receipt, sealed
	if sealed {
		return v, m.mend()
	}
	if err := m.readOwner(&v); err != nil {
		return v, err
	}
	if v.mine() {
		v.done = true
		return v, m.again(ctx)
	}
	return v, nil
}

// again is a new boot of the machine whose disk this is. Where the one before it ended while a new
// generation was on trial, kubelet starts with the former files: the trial may be what ended it.
func (m *Machine) again(ctx context.Context) error {
	if err := m.takeBack(ctx); err != nil {
		m.Log.Error("the former configuration was not restored; kamino-agent watch tries again", "error", err)
	}
	return m.ready()
}

func (m *Machine) takeBack(ctx context.Context) error {
	made, err := nodeconfig.Restore(m.Disk)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.reload(ctx, made.Reload); err != nil {
		return err
	}
	m.Log.Warn("this machine went down while a new configuration was on trial; the former one was restored")
	return nodeconfig.DropFormer(m.Disk)
}

// mend finishes what a seal left.
func (m *Machine) mend() error {
	left, err := seal.Mend(m.Disk)
	for _, l := range left {
		m.Log.Error("not everything that the seal removed could be wiped; no image was made of this disk", "error", l)
	}
	return err
}

func (m *Machine) readOwner(v *verdict) error {
	if data, err := m.Disk.ReadFile(vmPath, disk.Small); err == nil {
		if err := json.Unmarshal(data, &v.owner); err != nil {
			// A torn record proves nothing, and to take this for another machine is safe.
			m.Log.Warn("the record of the machine is unreadable; treating this as another one", "error", err)
			v.owner = owner{}
		}
	}
	return nil
}

// unseal brings the donor back from an interrupted seal: it is the machine it was. If the disk woke
// up on another machine, it is taken back as well, and then treated as that machine's unsealed
// disk.
func (m *Machine) unseal(ctx context.Context, v *verdict) error {
	by := seal.InterruptedBy(m.Disk)
	own := by == "" || v.vm == "" || platform.Same(by, v.vm)
	n, err := seal.Unseal(m.Disk)
	var left *seal.NotTakenBack
	if errors.As(err, &left) {
		for _, change := range left.Changes {
			m.Log.Error("a change of an interrupted seal was not undone; the next boot tries again", "change", change)
		}
		err = nil
		if !own { // what is left is another machine's, which would be forgotten
			err = m.mend()
		}
	}
	if err != nil {
		return err
	}
	m.Log.Warn("a seal was interrupted; its changes were undone", "changes", n)
	if own {
		v.done = true
		m.revive(ctx)
		return m.again(ctx)
	}
	if err := m.readOwner(v); err != nil {
		return err
	}
	v.owner.VMID = by
	return nil
}

// revive repeats what systemd did with the disk as it was before its files came back: the host's
// name, and netplan's generator, which found the seal's network configuration instead of the
// donor's.
func (m *Machine) revive(ctx context.Context) {
	if name := m.Disk.Text("etc/hostname"); name != "" {
		if _, err := m.Host.Run(ctx, "hostname", name); err != nil {
			m.Log.Warn("host name was not set", "error", err)
		}
	}
	if m.Disk.Exists("usr/sbin/netplan") {
		if _, err := m.Host.Run(ctx, "netplan", "generate"); err != nil {
			m.Log.Warn("network configuration was not generated", "error", err)
		}
	}
}

// forget removes what belongs to another machine. On a disk that was sealed only little can have
// come back; on one that was not, everything is still there.
func (m *Machine) forget(v verdict) error {
	if m.Disk.Exists(forgottenPath) {
		return nil
	}
	unsealed := !v.sealed && v.owner.VMID+v.owner.Instance != ""
	if unsealed {
		m.Log.Warn("this disk belongs to another machine and was never sealed", "owner", cmp.Or(v.owner.Instance, v.owner.VMID))
	}
	o := seal.Options{FirstBoot: m.Settings.FirstBoot, Join: m.Settings.Join, Facts: seal.Facts{VMID: v.owner.VMID}}
	counts, err := seal.Forget(m.Disk, o, unsealed)
	if err != nil {
		return err
	}
	for _, c := range counts {
		m.Log.Info("forgot", "rule", c.ID, "matched", c.Matched)
	}
	current := m.Disk.Text("etc/machine-id")
	if unsealed && (v.owner.MachineID == "" || current == v.owner.MachineID) || !m.Host.Live() && current == "" {
		// PID 1 made one from the empty file before this program ran; here it is the former
		// machine's, so it is replaced.
		if err := m.Disk.WriteFile("etc/machine-id", []byte(randomHex(16)+"\n"), 0o444); err != nil {
			return err
		}
	}
	return m.Disk.WriteFile(forgottenPath, []byte("ok\n"), 0o644)
}

// become makes the disk this machine's.
func (m *Machine) become(ctx context.Context, v verdict) error {
	about, err := m.identify(ctx, &v)
	if err != nil {
		return err
	}
	if v.done {
		return host.Notify()
	}
	// What fails here keeps kubelet from starting. The steps that give the machine its name, its
	// sshd keys and its operator's keys are taken all the same, so that somebody can log in to fix
	// it.
	err = m.forget(v)
	m.sshKeys()
	err = errors.Join(err, m.storageNames())
	if m.Settings.FirstBoot == seal.FirstBootAgent {
		err = errors.Join(err, m.personalise(ctx, about))
	}
	if err != nil {
		return err
	}
	state, err := m.configure(ctx)
	if err == nil && about.canary {
		err = m.apart(ctx)
	}
	if err != nil {
		return err
	}
	if err := m.record(v, state); err != nil {
		return err
	}
	if err := m.startKubelet(ctx); err != nil {
		return err
	}
	// From here on kubelet runs: a WireServer that does not answer must not hold it up.
	if err := host.Notify(); err != nil || m.Settings.FirstBoot != seal.FirstBootAgent {
		return err
	}
	if err := m.Wire.Report(ctx, true, ""); err != nil {
		// The node works; the platform will say that provisioning timed out.
		m.Log.Error("platform was not notified that this machine is ready", "error", err)
	}
	return nil
}

// cloudInitDone is there when all of cloud-init has run, the scripts of user data too.
const cloudInitDone = "run/cloud-init/result.json"

// startKubelet asks for kubelet, whose first start job failed if an earlier attempt of this boot
// did. EKS's nodeadm and its script configure kubelet before they start it, so they are asked, or,
// where the script has run, its kubelet.
func (m *Machine) startKubelet(ctx context.Context) error {
	unit := "kubelet.service"
	switch nodeconfig.Configurer(m.Disk) {
	case nodeconfig.Nodeadm:
		unit = nodeconfig.NodeadmUnit
	case nodeconfig.Bootstrap:
		if !m.Disk.Exists(cloudInitDone) {
			return nil
		}
		if m.Disk.Exists("etc/systemd/system/" + nodeconfig.SnapKubelet) {
			unit = nodeconfig.SnapKubelet
		}
	}
	if _, err := m.Host.Run(ctx, "systemctl", "start", "--no-block", unit); err != nil {
		return fmt.Errorf("start kubelet: %w", err)
	}
	return nil
}

// record makes the disk's new owner durable, last: an interruption before it repeats the whole.
func (m *Machine) record(v verdict, state State) error {
	if v.sealed {
		if err := seal.Retire(m.Disk, v.receipt); err != nil {
			return err
		}
	}
	if err := WriteState(m.Disk, state); err != nil {
		return err
	}
	data, err := json.Marshal(owner{v.vm, v.instance, m.Disk.Text("etc/machine-id"), m.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := m.Disk.WriteFile(vmPath, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return m.ready()
}

func (m *Machine) ready() error { return m.Disk.WriteFile(ReadyPath, []byte("ok\n"), 0o644) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails: crypto/rand.Read
	return hex.EncodeToString(b)
}
