package machines

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// kernelPatience is how long a kernel may take to hand over to systemd: with TCG
// on two cores it took 5 seconds, and 20 beside tests.
const kernelPatience = time.Minute

// What systemd says first, and the initrd where it finds no disk to start it from.
const handedOver, noDisk = "systemd[1]: systemd ", "(initramfs)"

// unhang resets a machine whose kernel does not hand over to systemd, once.
//
// With TCG of QEMU before 8.1 (Debian 12 has 7.2) a processor may keep the
// translation of an instruction that the kernel has replaced meanwhile. Two such
// machines were looked at, registers and memory: both processors of one ran for
// ever into a breakpoint which memory no longer had, where the kernel switches a
// static key and says "sched_clock: Marking stable"; one of the other's slept without having
// ended its timer's interrupt, and was never woken again (of that one the cause
// is assumed). QEMU mended it with deba78709ae8, "accel/tcg: Always lock pages
// before translation". Nothing has written to a disk by then, so a reset loses nothing.
// A second hang is left to those who wait for the machine.
func (f *Factory) unhang(m *machine, g *guest) {
	timer := time.NewTimer(f.kernel)
	defer timer.Stop()
	select {
	case <-g.done:
		return
	case <-timer.C:
	}
	if g.said(handedOver) || g.said(noDisk) {
		return
	}
	m.mu.Lock()
	m.hung = true
	m.mu.Unlock()
	f.logger.Warn("kernel hangs, as it may with TCG of QEMU before 8.1; the machine is reset", "machine", m.Name, "console", m.Console)
	if err := g.qmp(context.Background(), "system_reset"); err != nil {
		f.logger.Error("machine was not reset", "machine", m.Name, "error", err)
	}
}

// revive gives a machine power again whose QEMU crashed while it booted a kernel, once in its life,
// as a platform does when a host fails. QEMU 7.2 ended with SIGSEGV three seconds after power on
// (seen once in some 200 boots; that its cause is the one of unhang is assumed). As there, nothing
// has been written to the disk.
func (f *Factory) revive(m *machine, g *guest, id string) bool {
	if !crashed(g.err) || g.said(handedOver) || g.said(noDisk) {
		return false
	}
	m.mu.Lock()
	again := m.revived
	m.revived = true
	m.mu.Unlock()
	if again {
		return false
	}
	f.logger.Warn("QEMU crashed before its machine had booted; the machine is started again", "machine", m.Name, "error", g.err)
	if err := f.start(m, id); err != nil {
		f.logger.Error("machine was not started again", "machine", m.Name, "error", err)
		return false
	}
	m.mu.Lock()
	m.hung = true
	m.mu.Unlock()
	return true
}

// crashed tells a process that failed by itself from one that ended or that somebody killed.
func crashed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && slices.Contains([]syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL,
		syscall.SIGFPE}, status.Signal())
}

// said tells whether the console has had a text since power on.
func (g *guest) said(text string) bool {
	console, err := os.ReadFile(g.Console)
	return err == nil && bytes.Contains(console[min(g.quiet, len(console)):], []byte(text))
}
