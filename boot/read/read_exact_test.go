package read

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExactTimesWin: a log in whole seconds adds to an exact record of the same boot and changes
// nothing of it, in whatever order the records are named.
func TestExactTimesWin(t *testing.T) {
	const (
		chain = "multi-user.target @44.309s\n└─kubelet.service @43.902s\n  └─cloud-final.service @40.113s +3.780s\n    └─network-online.target @39.980s\n      └─systemd-networkd-wait-online.service @9.871s +30.102s\n"
		again = "multi-user.target @44.309s\n└─snapd.seeded.service @42.902s +902ms\n"
		log   = `Nov 27 03:02:10 n1 kernel: Linux version 5.15.0
Nov 27 03:02:22 n1 systemd[1]: Starting Wait for Network to be Configured...
Nov 27 03:02:52 n1 systemd[1]: Finished Wait for Network to be Configured.
Nov 27 03:02:52 n1 systemd[1]: Reached target Network is Online.
Nov 27 03:02:53 n1 systemd[1]: Starting Execute cloud user/final scripts...
Nov 27 03:02:56 n1 systemd[1]: Finished Execute cloud user/final scripts.
Nov 27 03:02:56 n1 systemd[1]: Starting Wait until snapd is fully seeded...
Nov 27 03:02:56 n1 systemd[1]: Finished Wait until snapd is fully seeded.
Nov 27 03:02:56 n1 systemd[1]: Started kubelet: The Kubernetes Node Agent.
Nov 27 03:02:57 n1 systemd[1]: Startup finished in 2.110s (kernel) + 44.400s (userspace) = 46.510s.
`
	)
	want := steps(analysed(t, parse(t, []byte(chain)), ""))
	for _, order := range [][]string{{chain, log}, {log, chain}, {log, again, chain}, {chain, log, again}, {again, log, chain}} {
		t.Run(fmt.Sprint(len(order), order[0] == log, order[1] == log), func(t *testing.T) {
			c := parse(t, []byte(order[0]))
			for _, more := range order[1:] {
				if err := c.Merge(parse(t, []byte(more))); err != nil {
					t.Fatal(err)
				}
			}
			a := analysed(t, c, "")
			if diff := cmp.Diff(want, steps(a)); diff != "" || a.Since != "kernel" {
				t.Errorf("since %s\n%s", a.Since, diff)
			}
			if u := c.Unit("snapd.seeded.service"); slices.Contains(order, again) && (u == nil || u.Began()-a.Zero != 42902000) {
				t.Errorf("snapd is %+v", u)
			}
		})
	}
}
