package read

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
	"kamino.dev/kamino/internal/hostile"
)

// TestHostileCapture: nothing that a terminal obeys comes out of a record, whichever text of it has
// that, and a picture of it is XML.
func TestHostileCapture(t *testing.T) {
	var c boot.Capture
	if err := json.Unmarshal([]byte(smallCapture), &c); err != nil {
		t.Fatal(err)
	}
	hostile.Fill(&c)
	kubelet, other := boot.Unit{ID: "kubelet.service", After: []string{hostile.Text}}, boot.Unit{ID: hostile.Text}
	kubelet.Activating, kubelet.Activated, other.Activating, other.Activated = 5, 9e6, 1e6, 5e6
	c.Units = append(c.Units, kubelet, other)
	c.Floating = 0
	data, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	dump := "UserspaceTimestampMonotonic=1822671\nFinishTimestampMonotonic=47522671\n\nId=EVIL\x1b[31m\u202e.service\nDescription=EVIL\x1b]0;x\x07\nInactiveExitTimestampMonotonic=2000000\nActiveEnterTimestampMonotonic=92000000\n"
	for name, text := range map[string]string{
		"record": string(data), "dump": dump,
		"log":              "Jan 14 08:00:00 EVIL\u202e\x1b[2J kernel: Linux version 6\nJan 14 08:00:03 EVIL\u202e\x1b]0;x\x07 systemd[1]: Starting EVIL\u202e\x9b\x1b]52;c;x\x07...\nJan 14 08:00:05 n systemd[1]: Timed out waiting for device EVIL\x1b]0;x\x07\u202e.\n",
		"cloud-init show":  "Starting stage: init-local\n|`->EVIL\u202e\x1b]0;x\x07 done @00.00500s +01.00000s\nFinished stage: (init-local) 01.82400 seconds\n",
		"cloud-init blame": "     01.00000s (EVIL\u202e\x1b]0;x\x07)\n",
	} {
		t.Run(name, func(t *testing.T) {
			read, err := Bytes([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if hostile.Reached(read) == 0 {
				t.Error("nothing of the hostile text arrived")
			}
			for _, bad := range hostile.Find(read) {
				t.Error(bad)
			}
			a, err := boot.Analyze(read, boot.Options{Fuzz: 5e6})
			if err != nil {
				t.Fatal(err)
			}
			var out, svg strings.Builder
			if err := errors.Join(a.WriteText(&out), a.WriteBlame(&out), a.WriteChain(&out), draw.SVG(&svg, read, a)); err != nil {
				t.Fatal(err)
			}
			if bad := hostile.InOutput(out.String()); bad != "" {
				t.Error(bad)
			}
			for d := xml.NewDecoder(strings.NewReader(svg.String())); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("the picture is not XML: %v", err)
				}
			}
		})
	}
}

// TestHostileReport: an unpacked sosreport is a stranger's. No link of it leads out of its folder,
// nothing but regular files is opened, and none is read without a bound.
func TestHostileReport(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "SECRET-PRIVATE-KEY\n")
	for name, plant := range map[string]func(at string) error{
		"link out of the folder": func(at string) error { return os.Symlink(outside, at) },
		"relative link":          func(at string) error { return os.Symlink("../../../secret", at) },
		"endless device":         func(at string) error { return os.Symlink("/dev/zero", at) },
		"pipe":                   func(at string) error { return syscall.Mkfifo(at, 0o600) },
		"folder":                 func(at string) error { return os.Mkdir(at, 0o700) },
		"file without end": func(at string) error {
			f, err := os.Create(at)
			return errors.Join(err, f.Truncate(1<<40), f.Close())
		},
	} {
		for _, file := range []string{"sos_commands/host/hostname", "sos_commands/kernel/uname_-a", "proc/sys/kernel/random/boot_id",
			"sos_commands/logs/journalctl_export", "sos_commands/systemd/systemctl_show_x", "var/log/cloud-init.log"} {
			t.Run(name+" at "+file, func(t *testing.T) {
				top := filepath.Join(t.TempDir(), "report")
				write(t, filepath.Join(top, "sos_commands/systemd/systemctl_show_--all"), smallDump)
				write(t, filepath.Join(top, "secret"), "INSIDE\n")
				at := filepath.Join(top, file)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := plant(at); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					c, err := Folder(top)
					if err == nil {
						text, _ := json.Marshal(c)
						if strings.Contains(string(text), "SECRET") {
							err = errors.New("the secret was read")
						}
					}
					done <- err
				}()
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(20 * time.Second):
					t.Fatal("it hangs")
				}
			})
		}
	}
}

func write(t *testing.T, at, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}
