package machines

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// hardware is what a machine is made of.
type hardware struct {
	Name    string
	UUID    string // SMBIOS system UUID
	Disk    string // qcow2
	CD      string // ISO 9660, or ""
	Kernel  string
	Initrd  string
	Append  string // further kernel arguments
	Port    *port
	Memory  int // MiB
	CPUs    int
	Console string // file, appended to
	Dir     string // for the log
	QMP     string // socket
}

// azureTag is the chassis asset tag by which Linux knows that it runs on Azure
// (cloud-init's identify_platform, ds-identify).
const azureTag = "7783-7084-3265-9085-8269-3286-77"

// acceleration of every machine. KVM is used only where it runs a whole kernel: see Accelerator.
var acceleration = sync.OnceValue(func() string { return probe("/dev/kvm") })

// Accelerator is "kvm" or "tcg". A /dev/kvm that opens proves little (that of a
// guest with kvm_pvm opens and runs no ordinary kernel), so it is believed only
// where the processor itself shows VMX or SVM.
func Accelerator() string { return acceleration() }

func probe(device string) string {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	_ = file.Close() // only whether it opens is asked
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "tcg"
	}
	for _, flag := range strings.Fields(string(info)) {
		if flag == "vmx" || flag == "svm" {
			return "kvm"
		}
	}
	return "tcg"
}

func (h hardware) args() []string {
	// The mitigations are for flaws of the emulated model: a kernel on a current processor switches
	// no page tables at each system call, which with TCG costs it all translated addresses.
	cpu, accel, flaws := "Nehalem", "tcg,thread=multi,tb-size=512", "mitigations=off "
	if Accelerator() == "kvm" {
		cpu, accel, flaws = "host", "kvm", ""
	}
	args := []string{
		"-name", h.Name, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-accel", accel, "-cpu", cpu,
		"-m", strconv.Itoa(h.Memory), "-smp", strconv.Itoa(h.CPUs), "-uuid", h.UUID,
		"-smbios", "type=3,asset=" + azureTag, "-smbios", "type=1,manufacturer=Microsoft Corporation,product=Virtual Machine",
		"-kernel", h.Kernel, "-initrd", h.Initrd,
		// Interface names as on Azure; time limits of units for a processor that is emulated.
		"-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 " + flaws +
			"systemd.default_timeout_start_sec=600 systemd.default_device_timeout_sec=600 " + h.Append,
		"-drive", "if=none,id=os,file=" + h.Disk + ",format=qcow2,discard=unmap,cache=unsafe", "-device", "virtio-blk-pci,drive=os",
		"-device", "virtio-rng-pci", "-device", "vmgenid,guid=auto",
		"-netdev", "stream,id=net,server=off,addr.type=unix,addr.path=" + h.Port.Socket, "-device",
		"virtio-net-pci,netdev=net,mac=" + h.Port.MAC,
		"-chardev", "file,id=console,path=" + h.Console + ",append=on", "-serial", "chardev:console",
		"-qmp", "unix:" + h.QMP + ",server=on,wait=off",
	}
	if h.CD != "" {
		args = append(args, "-drive", "if=ide,media=cdrom,readonly=on,file="+h.CD)
	}
	return args
}

// guest is a machine with power.
type guest struct {
	hardware
	quiet int // bytes that the console had before
	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has ended and err is set
	err   error
}

// powerOn starts the process. It dies with this one, whatever kills this one.
func powerOn(h hardware) (*guest, error) {
	_ = os.Remove(h.QMP) // of the boot before
	log, err := os.OpenFile(filepath.Join(h.Dir, "qemu.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", h.Name, err)
	}
	g := &guest{hardware: h, done: make(chan struct{})}
	if console, err := os.Stat(h.Console); err == nil {
		g.quiet = int(console.Size())
	}
	// After the control plane, which elsewhere has machines of its own and here must answer while
	// processors are emulated.
	g.cmd = exec.Command("nice", append([]string{"-n", "5", "qemu-system-x86_64"}, h.args()...)...)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig comes when the thread that forked ends (prctl(2)): this one is kept as long as
		// the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			g.err = g.cmd.Wait()
			close(g.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", h.Name, err)
	}
	return g, nil
}

// cut takes the power away.
func (g *guest) cut() {
	_ = g.cmd.Process.Kill() // gone already: then done is closed
	<-g.done
}

// shutdown presses the power button and, when the guest does not react within
// patience, cuts.
func (g *guest) shutdown(ctx context.Context, patience time.Duration) error {
	if err := g.qmp(ctx, "system_powerdown"); err != nil {
		select {
		case <-g.done:
			return nil
		default:
			return err
		}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.done:
	case <-timer.C:
		g.cut()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// qmp runs commands without arguments
// (https://www.qemu.org/docs/master/interop/qmp-spec.html).
func (g *guest) qmp(ctx context.Context, commands ...string) error {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "unix", g.QMP)
	if err != nil {
		return fmt.Errorf("reach QEMU of %s: %w", g.Name, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for _, name := range append([]string{"qmp_capabilities"}, commands...) {
		if _, err := fmt.Fprintf(conn, "{\"execute\":%q}\n", name); err != nil {
			return fmt.Errorf("tell QEMU of %s to %s: %w", g.Name, name, err)
		}
		if err := qmpAnswer(lines); err != nil {
			return fmt.Errorf("tell QEMU of %s to %s: %w", g.Name, name, err)
		}
	}
	return nil
}

// qmpAnswer skips greeting and events.
func qmpAnswer(lines *bufio.Scanner) error {
	for lines.Scan() {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return err
		}
		if answer.Error != nil {
			return errors.New(answer.Error.Desc)
		}
		if answer.Return != nil {
			return nil
		}
	}
	return errors.Join(errors.New("no answer"), lines.Err())
}

// tail is the end of the console, for people.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(text), "?")), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
