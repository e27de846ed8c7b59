package machines

import (
	"bytes"
	"context"
	"os"
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

// said tells whether the console has had a text since power on.
func (g *guest) said(text string) bool {
	console, err := os.ReadFile(g.Console)
	return err == nil && bytes.Contains(console[min(g.quiet, len(console)):], []byte(text))
}
