package machines

import (
	"bytes"
	"context"
	"os"
	"time"
)

// kernelPatience is how long a kernel may take to reach its initrd. With TCG on
// two busy cores it took 2 to 10 seconds.
const kernelPatience = time.Minute

// initrdReached is what a kernel says when it has (init/main.c).
const initrdReached = "Run /init as init process"

// unhang resets a machine whose kernel does not reach its initrd, once.
//
// With TCG of QEMU before 8.1 (Debian 12 has 7.2) a processor may keep the
// translation of an instruction that the kernel has replaced meanwhile: it runs
// for ever into a breakpoint which memory no longer has. Registers and memory of
// such a machine were looked at; its last word was "sched_clock: Marking stable",
// where a static key is switched that every processor goes by. QEMU mended it with
// deba78709ae8, "accel/tcg: Always lock pages before translation". No disk is
// mounted before the initrd, so a reset loses nothing. A second hang is
// left to those who wait for the machine.
func (f *Factory) unhang(m *machine, g *guest) {
	timer := time.NewTimer(f.kernel)
	defer timer.Stop()
	select {
	case <-g.done:
		return
	case <-timer.C:
	}
	if g.said(initrdReached) {
		return
	}
	m.mu.Lock()
	m.hung = true
	m.mu.Unlock()
	f.logger.Warn("kernel hangs before its initrd, as it may with TCG of QEMU before 8.1; the machine is reset", "machine", m.Name, "console", m.Console)
	if err := g.qmp(context.Background(), "system_reset"); err != nil {
		f.logger.Error("machine was not reset", "machine", m.Name, "error", err)
	}
}

// said tells whether the console has had a text since power on.
func (g *guest) said(text string) bool {
	console, err := os.ReadFile(g.Console)
	return err == nil && bytes.Contains(console[min(g.quiet, len(console)):], []byte(text))
}
