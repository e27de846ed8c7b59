package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSystem(t *testing.T) {
	var s System
	if out, err := s.Run(t.Context(), "echo", "a", "b"); err != nil || out != "a b\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err := s.Run(t.Context(), "sh", "-c", "echo why >&2; exit 7")
	if Code(err) != 7 || !strings.Contains(err.Error(), "exit code 7: why") {
		t.Errorf("%v", err)
	}
	if _, err := s.Run(t.Context(), "there-is-no-such-program"); !errors.Is(err, exec.ErrNotFound) || Code(err) != -1 {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx, "sleep", "60"); err == nil {
		t.Error("a cancelled command succeeded")
	}
}

// TestHangingCommand: a command that does not end is ended, also where nobody set a deadline.
func TestHangingCommand(t *testing.T) {
	_, err := System{Most: time.Millisecond}.Run(context.Background(), "sleep", "600")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "sleep 600") {
		t.Errorf("%v", err)
	}
}

func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	r := Recorder{Log: filepath.Join(dir, "log"), Replies: filepath.Join(dir, "replies")}
	if err := os.WriteFile(r.Replies, []byte("kubelet --version\t0\tKubernetes v1\\n\nsystemctl stop\t5\tno\nbroken line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := r.Run(t.Context(), "kubelet", "--version"); out != "Kubernetes v1\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := r.Run(t.Context(), "systemctl", "stop", "x"); Code(err) != 5 {
		t.Errorf("%v", err)
	}
	if out, err := r.Run(t.Context(), "other"); out != "" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if err := r.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(r.Log)
	if err != nil || string(log) != "kubelet --version\nsystemctl stop x\nother\npoweroff\n" {
		t.Errorf("%q, %v", log, err)
	}
	if _, err := (Recorder{}).Run(t.Context(), "x"); err != nil || (Recorder{}).Live() || !(System{}).Live() {
		t.Error("the zero value records nothing and is not live")
	}
}

func TestMountsBelow(t *testing.T) {
	const info = `24 1 8:1 / / rw - ext4 /dev/sda1 rw
30 24 0:40 / /var/lib/kubelet/pods/u/volumes/tmpfs rw - tmpfs tmpfs rw
31 24 0:41 / /var/lib/kubelet/pods/u/volumes/with\040space/deeper rw - tmpfs tmpfs rw
32 24 8:2 / /var/lib/kubelet rw - ext4 /dev/sda2 rw
33 24 0:42 / /var/lib/kubelet/pods2/x rw - tmpfs tmpfs rw
34 24 8:3 / /var/lib/docker/volumes rw - ext4 /dev/sdb1 rw
35 24 8:4 / /var/lib/kubelet/pods rw - ext4 /dev/sdc1 rw
36 24 0:43 / /var/lib/containerd/snapshotter.overlay/1/fs rw - overlay overlay rw
short
`
	got := mountsBelow(info, []string{"/var/lib/kubelet/pods", "/var/lib/containerd/snapshotter.*"})
	want := []string{"/var/lib/kubelet/pods/u/volumes/with space/deeper", "/var/lib/containerd/snapshotter.overlay/1/fs", "/var/lib/kubelet/pods/u/volumes/tmpfs"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
