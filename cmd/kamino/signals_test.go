//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestFirstSignalEnds: a command that has taken nothing ends with the first SIGTERM, also while it
// waits for the other end of a pipe.
func TestFirstSignalEnds(t *testing.T) {
	if pipe := os.Getenv("KAMINO_TEST_PIPE"); pipe != "" {
		a := newApp(ioStreams{In: os.Stdin, Out: io.Discard, Err: os.Stderr}, func(string) string { return "" }, os.Exit)
		os.Exit(execute(context.Background(), a, []string{"boot", "show", pipe}))
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestFirstSignalEnds$") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), "KAMINO_TEST_PIPE="+pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The pipe has a reader once the child waits in open: until then a writer is refused.
	for {
		w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			defer w.Close()
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the other process has its own clock
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // with which status it ends is the signal's
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("it goes on after SIGTERM")
	}
}
