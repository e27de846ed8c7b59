package engine

import (
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestWaysBack: a row of the table for each.
func TestWaysBack(t *testing.T) {
	tests := []struct {
		name string
		see  recoveryObservation
		want recoveryAction
	}{
		{"a machine that is off is started", recoveryObservation{power: kamino.PowerOff, boot: bootMarked}, switchOn},
		{"also when its node is still called Ready", recoveryObservation{power: kamino.PowerOff, ready: true, boot: bootMarked, sealed: true}, switchOn},
		{"a machine that starts or stops is left alone", recoveryObservation{power: kamino.PowerBetween, ready: true, boot: bootOther, started: true}, awaitPower},
		{"Ready in a boot after it was off: back", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootFresh, started: true, sealed: true}, backNow},
		{"Ready in another boot, which may be over: heard first", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootOther, sealed: true}, hearNode},
		{"Ready, and only the taint is left of the mark: heard first", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootUnmarked, started: true}, hearNode},
		{"started, and the node shows the old boot", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootMarked, started: true, sealed: true}, awaitBoot},
		{"never sealed: the kubelet tells whether it went", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootMarked}, hearKubelet},
		{"sealed, and still Ready: about to go off, or hanging", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootMarked, sealed: true}, switchOffSoon},
		{"sealed, and nobody knows in which boot", recoveryObservation{power: kamino.PowerOn, ready: true, boot: bootUnknown, sealed: true}, switchOffLate},
		{"a slow boot is not ended", recoveryObservation{power: kamino.PowerOn, boot: bootMarked, started: true, sealed: true}, awaitReady},
		{"nor one that somebody else began", recoveryObservation{power: kamino.PowerOn, boot: bootOther, sealed: true}, awaitReady},
		{"silent since it was marked: it may hang half sealed", recoveryObservation{power: kamino.PowerOn, boot: bootMarked}, switchOffSoon},
		{"silent, and Kubernetes forgot the node", recoveryObservation{power: kamino.PowerOn, boot: bootUnknown}, switchOffLate},
		{"silent, and the mark names no boot", recoveryObservation{power: kamino.PowerOn, boot: bootUnmarked, sealed: true}, switchOffLate},
	}
	tried := make([]bool, len(waysBack))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.see.decide(); got != tt.want {
				t.Errorf("%+v: %d, want %d", tt.see, got, tt.want)
			}
		})
		for i, row := range waysBack {
			tried[i] = tried[i] || row.fits(tt.see)
		}
	}
	for i, row := range waysBack {
		if !tried[i] {
			t.Errorf("no test for row %+v", row)
		}
	}
}

// TestWaysBackAreComplete: whatever is seen, exactly one row fits.
func TestWaysBackAreComplete(t *testing.T) {
	sights := 0
	for _, power := range []kamino.Power{kamino.PowerOn, kamino.PowerOff, kamino.PowerBetween} {
		for boot := bootMarked; boot <= bootUnknown; boot++ {
			for bits := range 8 {
				s := recoveryObservation{power: power, boot: boot, ready: bits&1 > 0, started: bits&2 > 0, sealed: bits&4 > 0}
				fit := 0
				for _, row := range waysBack {
					if row.fits(s) {
						fit++
					}
				}
				if sights++; fit != 1 {
					t.Errorf("%d rows fit %+v", fit, s)
				}
			}
		}
	}
	if sights != 120 {
		t.Errorf("%d sights were tried", sights)
	}
}

// TestBootSight: what is read becomes what the table knows.
func TestBootSight(t *testing.T) {
	mark := func(boot string) *kamino.Mark { return &kamino.Mark{Run: "r", BootID: boot} }
	node := func(boot string) kamino.Node { return kamino.Node{Name: "n", UID: "u", BootID: boot} }
	off := func(boot string) (c recovery) { c.sawPower(kamino.PowerOff, node(boot)); return c }
	for name, tt := range map[string]struct {
		seen recovery
		node kamino.Node
		mark *kamino.Mark
		want bootSight
	}{
		"the marked boot":                               {node: node("1"), mark: mark("1"), want: bootMarked},
		"the marked boot, although it was off":          {seen: off("0"), node: node("1"), mark: mark("1"), want: bootMarked},
		"another boot since it was off":                 {seen: off("1"), node: node("2"), mark: mark("1"), want: bootFresh},
		"another boot since it was off, without a mark": {seen: off("1"), node: node("2"), want: bootFresh},
		"another boot, from before it was off":          {seen: off("2"), node: node("2"), mark: mark("1"), want: bootOther},
		"another boot":                                  {node: node("2"), mark: mark("1"), want: bootOther},
		"no mark":                                       {node: node("1"), want: bootUnmarked},
		"a mark without a boot":                         {node: node("1"), mark: mark(""), want: bootUnmarked},
		"no boot anywhere":                              {node: node(""), mark: mark(""), want: bootUnknown},
		"no node":                                       {node: kamino.Node{Name: "n"}, want: bootUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			tt.seen.sawPower(kamino.PowerOn, node("9")) // does not count
			if got := tt.seen.boot(tt.node, tt.mark); got != tt.want {
				t.Errorf("boot %d, want %d", got, tt.want)
			}
		})
	}
}

// TestAlive: a kubelet counts as alive once its pulse has moved after the settling.
func TestAlive(t *testing.T) {
	var c recovery
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for i, tt := range []struct {
		ready bool
		pulse int
		spent time.Duration
		want  bool
	}{
		{true, 1, 0, false},
		{true, 2, settleTime, false}, // a last beat of what is going off
		{true, 2, settleTime + 1, false},
		{true, 2, settleTime + 2, false},
		{false, 3, settleTime + 3, false},
		{true, 3, settleTime + 4, true},
	} {
		if got := c.alive(tt.ready, at(tt.pulse), tt.spent); got != tt.want {
			t.Errorf("look %d: alive %v", i, got)
		}
	}
}
