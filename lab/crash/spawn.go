package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// BuildKamino builds the user's program from the product's module at root. Only its clock, its poll interval and the
// limit of its waits for cluster-autoscaler (0: no limit) are the lab's.
func BuildKamino(ctx context.Context, root, output string, poll, settle time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags=labclock", "-ldflags=-s -w -X main.pollInterval="+poll.String()+
		" -X main.settleLimit="+settle.String(), "-o", output, "./cmd/kamino")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build kamino: %w\n%s", err, text)
	}
	return nil
}

// UseProcesses makes the station run a program of BuildKamino from now on; ""
// returns to goroutines.
func (s *Station) UseProcesses(program string) { s.kamino = program }

// serveClock answers a real process that asks for the time, or wants to sleep.
func (s *Station) serveClock() error {
	path := filepath.Join(s.dir, "clock.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for the clock: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/now", func(rw http.ResponseWriter, _ *http.Request) {
		if w := s.world.Load(); w != nil {
			fmt.Fprint(rw, w.clock.Now().Format(time.RFC3339Nano))
		}
	})
	mux.HandleFunc("/sleep", func(_ http.ResponseWriter, r *http.Request) {
		w := s.world.Load()
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if w == nil || err != nil {
			panic(http.ErrAbortHandler)
		}
		if p := w.process(""); p == nil || p.mortal() {
			panic(http.ErrAbortHandler)
		}
		w.clock.sleep(d)
	})
	server := &http.Server{Handler: mux}
	s.servers = append(s.servers, server)
	go func() { _ = server.Serve(listener) }() // ends with Close
	return nil
}

// over tells whether the process has ended.
func (p *Process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.Killed
	}
}

// spawn runs the program as a process of its own.
func (w *World) spawn(p *Process, args ...string) *Process {
	turn := w.clock.enqueue()
	go func() {
		defer close(p.done)
		<-turn
		defer w.clock.leave()
		p.Started = w.clock.Now()
		p.Err = w.run(p, args)
		p.Ended = w.clock.Now()
	}()
	return p
}

// run starts the program and returns when it has ended.
func (w *World) run(p *Process, args []string) error {
	// With the provider named it makes the calls of the engine, and none to find out.
	more, environment := w.command()
	cmd := exec.CommandContext(w.ctx, w.station.kamino, append(args, more...)...)
	cmd.Env = append(append(os.Environ(), environment...), "KAMINO_LAB_CLOCK="+filepath.Join(w.station.dir, "clock.sock"))
	for name, value := range w.station.environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	gone := make(chan struct{})
	// No call of it may arrive before the world knows it.
	w.mu.Lock()
	if err := cmd.Start(); err != nil {
		w.mu.Unlock()
		return fmt.Errorf("start %s: %w", w.station.kamino, err)
	}
	p.Name = fmt.Sprintf("%s/%d", host, cmd.Process.Pid)
	p.slay = func() {
		_ = cmd.Process.Kill() // SIGKILL; it may have ended just now
		<-gone
	}
	w.mu.Unlock()
	err = cmd.Wait()
	close(gone)
	if err != nil && !p.over() {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
