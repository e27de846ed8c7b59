package agent_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNotify: kubelet may start before the platform has been told, because a WireServer can be away
// for minutes.
func TestNotify(t *testing.T) {
	c := readCase(t, "boot-clone-token")
	w := newWorld(t, c)
	w.run("seal "+c.Sealed, 0)
	last := len(c.Steps) - 1 // the boot that tells
	for _, s := range c.Steps[:last] {
		w.step(s)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.env = append(w.env, "NOTIFY_SOCKET="+socket)
	hold := make(chan struct{})
	w.platform.mu.Lock()
	w.platform.hold = hold
	w.platform.mu.Unlock()
	said := make(chan string, 1)
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 64)
		n, _ := l.Read(b)
		said <- string(b[:n])
		close(hold)
	}()
	w.step(c.Steps[last])
	if got := <-said; got != "READY=1" || !strings.Contains(w.platform.said(), "<State>Ready</State>") {
		t.Errorf("systemd was told %q, the platform %q", got, w.platform.said())
	}
}
