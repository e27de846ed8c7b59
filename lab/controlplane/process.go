package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long a component may take to end by itself: a drained API
// server needs less than a second, and nothing of a lab is worth waiting for.
const stopGrace = 4 * time.Second

// process is one child. It dies with its parent, whatever kills the parent.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the child is gone and err is set
	err  error
}

// startProcess runs `binary component name args…`, output to logDir/name.log.
func startProcess(binary, logDir, name string, args []string) (*process, error) {
	p := &process{name: name, log: filepath.Join(logDir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	p.cmd = exec.Command(binary, append([]string{"component", name}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = environment()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// Own group: Ctrl-C in the terminal must reach the parent alone, which stops the children
		// in order.
		Setpgid: true,
	}
	started := make(chan error, 1)
	go func() {
		// The kernel sends Pdeathsig when the thread that forked ends, not the
		// process (prctl(2)), so this thread is kept as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// stop ends the child: SIGTERM, and SIGKILL after the grace period.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // gone already: then done is closed
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
		return
	case <-grace.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// exited is the error of a child that should not have ended, with the last
// lines it wrote.
func (p *process) exited() error {
	return fmt.Errorf("run %s: ended unexpectedly (%v); see %s:\n%s", p.name, p.err, p.log, tail(p.log, 8))
}

func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// environment passes on what a program needs to run and nothing that could
// send its connections elsewhere (proxies, KUBECONFIG, AZURE_*).
func environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
