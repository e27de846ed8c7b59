package read

import (
	"strings"
	"testing"
)

// TestTimeoutFirst: what systemd waited for in vain before kubelet is what the verdict begins with, by
// the name that /etc/fstab has; and where nothing is known of what kubelet waited for, no chain is
// announced.
func TestTimeoutFirst(t *testing.T) {
	const log = `Nov 27 03:02:11 n1 systemd[1]: systemd 249.11 running in system mode
Nov 27 03:03:41 n1 systemd[1]: dev-disk-by\x2duuid-0f5d3a77\x1b.device: Job dev-disk-by\x2duuid-0f5d3a77\x1b.device/start timed out.
Nov 27 03:03:41 n1 systemd[1]: Timed out waiting for device dev-disk-by\x2duuid-0f5d3a77\x1b.device.
Nov 27 03:03:46 n1 systemd[1]: Started kubelet: The Kubernetes Node Agent.
Nov 27 03:03:47 n1 systemd[1]: Startup finished in 1.1s (kernel) + 1min 35.9s (userspace) = 1min 37.0s.
`
	a := analysed(t, parse(t, []byte(log)), "")
	if want := `systemd waited for /dev/disk/by-uuid/0f5d3a77\x1b and gave up at 1min 31s after the kernel.`; a.Verdict[0] != want {
		t.Errorf("the verdict begins with %q, want %q", a.Verdict[0], want)
	}
	var show, chain strings.Builder
	if err := a.WriteText(&show); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteChain(&chain); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{show.String(), chain.String()} {
		if strings.Contains(text, "Critical chain") || !strings.Contains(text, "What kubelet.service waited for is not known") {
			t.Errorf("a chain is announced:\n%s", text)
		}
	}
}
