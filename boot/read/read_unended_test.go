package read

import (
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// hungLog is a journal as people paste it; the lines given are its end.
func hungLog(end ...string) string {
	lines := []string{
		"10 n1 systemd[1]: systemd 249.11 running in system mode",
		"13 n1 systemd[1]: Starting Initial cloud-init job (pre-networking)...",
		"16 n1 systemd[1]: Finished Initial cloud-init job (pre-networking).",
	}
	var b strings.Builder
	for _, l := range append(lines, end...) {
		b.WriteString("Nov 27 03:02:" + l + "\n")
	}
	return b.String()
}

// TestHungBoot: what had begun and not ended when the log ended is what the verdict begins with, and
// nothing is said to be done by it, nor saved.
func TestHungBoot(t *testing.T) {
	const (
		waits = "16 n1 systemd[1]: Starting Wait for Network to be Configured..."
		final = "54 n1 systemd[1]: Starting Execute cloud user/final scripts..."
		ended = "58 n1 systemd[1]: Finished Execute cloud user/final scripts."
		whole = "59 n1 systemd[1]: Startup finished in 1.5s (kernel) + 49s (userspace) = 50.5s."
	)
	cloudInit := strings.Join([]string{
		"2026-11-27 03:02:14,000 - util.py[DEBUG]: Cloud-init v. 23.1 running 'init-local' at Fri, 27 Nov 2026 03:02:14 +0000. Up 6.00 seconds.",
		"2026-11-27 03:02:14,000 - handlers.py[DEBUG]: start: init-local/check-cache: attempting to read from cache [check]",
		"2026-11-27 03:02:16,000 - handlers.py[DEBUG]: finish: init-local: SUCCESS: searching for local datasources",
		"2026-11-27 03:03:10,000 - util.py[DEBUG]: Cloud-init v. 23.1 running 'modules:final' at Fri, 27 Nov 2026 03:03:10 +0000. Up 62.00 seconds.",
		"2026-11-27 03:03:10,000 - handlers.py[DEBUG]: start: modules-final/config-scripts-user: running config-scripts-user with frequency once-per-instance",
		"2026-11-27 03:03:31,000 - handlers.py[DEBUG]: finish: modules-final/config-scripts-user: SUCCESS: config-scripts-user ran successfully", "",
	}, "\n")
	for name, tc := range map[string]struct {
		text string
		want []string // how the verdict begins
	}{
		"the goal":            {hungLog(final), []string{"cloud-final.service began 44s after the start of userspace and had not ended when the record ended."}},
		"what nobody ordered": {hungLog(waits, final, ended), []string{"systemd-networkd-wait-online.service began 6s after the start of userspace and had not ended when the record ended.", "cloud-final.service was done 48s"}},
		"both":                {hungLog(waits, final), []string{"systemd-networkd-wait-online.service began 6s", "cloud-final.service began 44s"}},
		"a lost line":         {hungLog(waits, final, ended, whole), []string{"cloud-final.service was done 49.500s after the kernel"}},
		"cloud-init's log":    {cloudInit, []string{"cloud-final.service began 1min 2s after the kernel and had not ended when the record ended."}},
	} {
		t.Run(name, func(t *testing.T) {
			a := analysed(t, parse(t, []byte(tc.text)), "")
			for i, want := range tc.want {
				if i >= len(a.Verdict) || !strings.HasPrefix(a.Verdict[i], want) {
					t.Fatalf("line %d of the verdict does not begin with %q:\n%s", i+1, want, strings.Join(a.Verdict, "\n"))
				}
			}
			if !a.GoalEnded() && (strings.Contains(strings.Join(a.Verdict, "\n"), "was done") || len(a.Remedies) > 0) {
				t.Errorf("done, or mended, without an end:\n%s", strings.Join(a.Verdict, "\n"))
			}
			if hung := func(m boot.Milestone) bool { return m.Name == a.Goal }; a.GoalEnded() == slices.ContainsFunc(a.Unended, hung) {
				t.Errorf("the goal %s ended %t, unended are %v", a.Goal, a.GoalEnded(), a.Unended)
			}
		})
	}
}
