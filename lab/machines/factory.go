package machines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino/azure/emulator"
)

// Factory makes the emulator's instances of QEMU and its disks of files.
// It is an [emulator.Machines] and [emulator.Networked].
type Factory struct {
	dir     string // disks and consoles
	sockets string // directory for sockets, whose names must be short
	base    *Base
	network *network
	doors   *doors
	logger  *slog.Logger
	memory  int
	cpus    int
	patient time.Duration // for a guest that is asked to shut down
	kernel  time.Duration // for a kernel that TCG may hang; see unhang
	// cloud is set before the first call: it answers for the platform, and hears of
	// guests that switch themselves off.
	cloud *emulator.Server
	// arguments of the kernel, by instance; nil adds none.
	arguments func(emulator.Instance) string
	// admin is the user that the model names.
	admin string

	mu       sync.Mutex
	machines map[string]*machine // by lower-case ARM ID
	closed   bool
	watchers sync.WaitGroup
}

// machine is one instance: a directory with its disk, and a process while it has power.
type machine struct {
	hardware

	mu      sync.Mutex
	guest   *guest // nil without power
	begun   time.Time
	expects bool // the end of the process was asked for
	hung    bool // the kernel was, since the power came, or QEMU crashed
	revived bool // after a crash of QEMU
}

// Create makes the disk and powers on.
func (f *Factory) Create(ctx context.Context, i emulator.Instance) error {
	image := f.base.Disk
	if i.ImageID != "" {
		image = f.artifact(i.ImageID)
		if !exists(image) {
			return fmt.Errorf("create %s: image version %s has no disk", i.Name, i.ImageID)
		}
	}
	if err := room(f.dir, 1<<30); err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	dir := filepath.Join(f.dir, "vms", strings.ToLower(i.Name)+"-"+i.VMID[:8])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	backing, err := f.hold(image)
	if err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	m := &machine{hardware: hardware{Name: i.Name, UUID: i.VMID, Disk: filepath.Join(dir, "os.qcow2"), CD: filepath.Join(dir, "cd.iso"),
		Kernel: f.base.Kernel, Initrd: f.base.Initrd, Memory: f.memory, CPUs: f.cpus, Console: filepath.Join(dir, "console.log"), Dir: dir,
		QMP: filepath.Join(f.sockets, "qmp-"+i.VMID)}}
	if err := overlay(ctx, backing, m.Disk); err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	if err := f.writeCD(m, i); err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	if f.arguments != nil {
		m.Append = f.arguments(i)
	}
	if m.Port, err = f.network.attach(f.platform(i.ID)); err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	if err := f.doors.add(i.Name, m.Port); err != nil {
		return fmt.Errorf("create %s: %w", i.Name, err)
	}
	f.mu.Lock()
	f.machines[strings.ToLower(i.ID)] = m
	f.mu.Unlock()
	return f.start(m, i.ID)
}

func (f *Factory) writeCD(m *machine, i emulator.Instance) error {
	file, err := os.OpenFile(m.CD, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // customData is secret
	if err != nil {
		return err
	}
	defer file.Close()
	if err := writeCD(file, "azure", "OVF-ENV.XML", ovfEnvironment(i, f.admin)); err != nil {
		return fmt.Errorf("write provisioning CD: %w", err)
	}
	return file.Close()
}

// Start powers on.
func (f *Factory) Start(_ context.Context, i emulator.Instance) error {
	m, err := f.find(i)
	if err != nil {
		return err
	}
	return f.start(m, i.ID)
}

func (f *Factory) start(m *machine, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guest != nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("the lab is being stopped")
	}
	g, err := powerOn(m.hardware)
	if err != nil {
		return err
	}
	m.guest, m.begun, m.expects, m.hung = g, time.Now(), false, false
	f.watchers.Go(func() { f.watch(m, g, id) })
	if Accelerator() == "tcg" {
		f.watchers.Go(func() { f.unhang(m, g) })
	}
	f.logger.Info("machine has power", "machine", m.Name, "address", m.Port.Address.Addr(), "accelerator", Accelerator())
	return nil
}

// watch waits for the end of a process and tells the platform when the guest ended by itself.
func (f *Factory) watch(m *machine, g *guest, id string) {
	<-g.done
	m.mu.Lock()
	asked := m.expects
	if m.guest == g {
		m.guest = nil
	}
	m.mu.Unlock()
	f.logger.Info("machine has no power", "machine", m.Name, "asked", asked)
	if asked || f.revive(m, g, id) {
		return
	}
	if g.err != nil {
		f.logger.Error("QEMU failed", "machine", m.Name, "error", g.err, "output", tail(filepath.Join(m.Dir, "qemu.log"), 5))
	}
	f.cloud.PowerOffFromGuest(id)
}

// Stop shuts the guest down, or cuts its power.
func (f *Factory) Stop(ctx context.Context, i emulator.Instance, skipShutdown bool) error {
	m, err := f.find(i)
	if err != nil {
		return err
	}
	m.mu.Lock()
	g := m.guest
	m.expects = true
	m.mu.Unlock()
	if g == nil {
		return nil
	}
	if skipShutdown {
		g.cut()
		return nil
	}
	return g.shutdown(ctx, f.patient)
}

// Delete removes the machine and its disk; its console stays.
func (f *Factory) Delete(_ context.Context, i emulator.Instance) error {
	f.mu.Lock()
	m := f.machines[strings.ToLower(i.ID)]
	delete(f.machines, strings.ToLower(i.ID))
	f.mu.Unlock()
	if m == nil {
		return nil
	}
	f.unplug(m)
	for _, file := range []string{m.Disk, m.CD} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("delete %s: %w", i.Name, err)
		}
	}
	return nil
}

func (f *Factory) unplug(m *machine) {
	m.mu.Lock()
	g := m.guest
	m.expects = true
	m.mu.Unlock()
	if g != nil {
		g.cut()
	}
	f.doors.remove(m.Name)
	f.network.detach(m.Port)
}

// Snapshot copies the disk. A machine with power is halted meanwhile, so that
// the copy is of one moment; as on Azure, nobody flushes the guest's own buffers.
func (f *Factory) Snapshot(ctx context.Context, i emulator.Instance, snapshotID string) error {
	m, err := f.find(i)
	if err != nil {
		return err
	}
	if err := f.prepare(snapshotID, m.Disk); err != nil {
		return fmt.Errorf("snapshot %s: %w", i.Name, err)
	}
	m.mu.Lock()
	g := m.guest
	m.mu.Unlock()
	if g != nil {
		if err := g.qmp(ctx, "stop"); err != nil {
			return fmt.Errorf("snapshot %s: %w", i.Name, err)
		}
		defer func() {
			if err := g.qmp(context.WithoutCancel(ctx), "cont"); err != nil {
				f.logger.Error("machine does not go on after its snapshot", "machine", m.Name, "error", err)
			}
		}()
	}
	to := f.artifact(snapshotID)
	if err := duplicate(ctx, m.Disk, to); err != nil {
		return fmt.Errorf("snapshot %s: %w", i.Name, err)
	}
	return check(ctx, to)
}

// Build makes an image version: one compressed file that needs no other.
func (f *Factory) Build(ctx context.Context, snapshotID, versionID string) error {
	from, to := f.artifact(snapshotID), f.artifact(versionID)
	if err := f.prepare(versionID, from); err != nil {
		return fmt.Errorf("build image version: %w", err)
	}
	if err := check(ctx, from); err != nil {
		return fmt.Errorf("build image version: %w", err)
	}
	began := time.Now()
	if err := flatten(ctx, from, to); err != nil {
		return fmt.Errorf("build image version: %w", err)
	}
	if err := check(ctx, to); err != nil {
		return fmt.Errorf("build image version: %w", err)
	}
	if info, err := os.Stat(to); err == nil {
		f.logger.Info("image version built", "version", filepath.Base(versionID), "bytes", info.Size(), "after",
			time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// hold gives an image a name that lasts as long as the lab. On Azure an OS disk is
// a copy of its image; here it shares what it did not change, and so do its snapshots.
func (f *Factory) hold(image string) (string, error) {
	info, err := os.Stat(image)
	if err != nil {
		return "", err
	}
	name := digest(image, fmt.Sprint(info.Size(), info.ModTime().UnixNano()))
	to := filepath.Join(f.dir, "images", name+".qcow2")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	err = os.Link(image, to)
	if err != nil && !os.IsExist(err) {
		err = os.Symlink(image, to) // the cache is on another file system, and stays
	}
	if os.IsExist(err) { // another instance of the image holds it, perhaps since a moment ago
		err = nil
	}
	return to, err
}

// Remove deletes what was kept for a snapshot or version. Disks made from it keep its content.
func (f *Factory) Remove(_ context.Context, artifactID string) error {
	if err := os.Remove(f.artifact(artifactID)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove %s: %w", artifactID, err)
	}
	return nil
}

// Interface is the network card of an instance.
func (f *Factory) Interface(i emulator.Instance) (string, netip.Prefix, bool) {
	m, err := f.find(i)
	if err != nil {
		return "", netip.Prefix{}, false
	}
	return m.Port.MAC, m.Port.Address, true
}

// artifact is the file of a snapshot or version.
func (f *Factory) artifact(id string) string {
	name := strings.ReplaceAll(strings.ToLower(strings.Trim(id, "/")), "/", "_")
	return filepath.Join(f.dir, "artifacts", digest(name)+"-"+filepath.Base(id)+".qcow2")
}

// prepare makes sure that there is room for a copy of a disk.
func (f *Factory) prepare(id, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.artifact(id))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return room(dir, info.Size()+512<<20)
}

func (f *Factory) find(i emulator.Instance) (*machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[strings.ToLower(i.ID)]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("instance %s has no machine", i.ID)
}

// platform is what a machine finds at Azure's two addresses: the emulator's, and
// the list of extensions, which our stand-in for the Azure agent asks for.
func (f *Factory) platform(id string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", f.cloud.Metadata(id))
	mux.HandleFunc("GET /extensions", func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range f.cloud.Extensions(id) {
			if text, ok := e.ProtectedSettings["commandToExecute"].(string); ok {
				fmt.Fprintf(w, "%s\t%s\n", e.Name, encode(text))
			}
		}
	})
	mux.HandleFunc("POST /extensions/{name}", func(w http.ResponseWriter, r *http.Request) {
		f.logger.Info("extension ended", "instance", filepath.Base(id), "extension", r.PathValue("name"))
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// close cuts every machine's power.
func (f *Factory) close() {
	f.mu.Lock()
	f.closed = true
	var all []*machine
	for _, m := range f.machines {
		all = append(all, m)
	}
	f.mu.Unlock()
	for _, m := range all {
		f.unplug(m)
	}
	f.watchers.Wait()
}
