package kamino

import "testing"

// TestWaysBack: a row of the table for each.
func TestWaysBack(t *testing.T) {
	tests := []struct {
		name string
		see  sight
		want wayBack
	}{
		{"a machine that is off is started", sight{power: PowerOff, boot: bootMarked}, switchOn},
		{"also when its node is still called Ready", sight{power: PowerOff, ready: true, boot: bootMarked, sealed: true}, switchOn},
		{"a machine that starts or stops is left alone", sight{power: PowerBetween, ready: true, boot: bootOther, started: true}, awaitPower},
		{"Ready in a boot after it was off: back", sight{power: PowerOn, ready: true, boot: bootFresh, started: true, sealed: true}, backNow},
		{"Ready in another boot, which may be over: heard first", sight{power: PowerOn, ready: true, boot: bootOther, sealed: true}, hearNode},
		{"Ready, and only the taint is left of the mark: heard first", sight{power: PowerOn, ready: true, boot: bootUnmarked, started: true}, hearNode},
		{"started, and the node shows the old boot", sight{power: PowerOn, ready: true, boot: bootMarked, started: true, sealed: true}, awaitBoot},
		{"never sealed: the kubelet tells whether it went", sight{power: PowerOn, ready: true, boot: bootMarked}, hearKubelet},
		{"sealed, and still Ready: about to go off, or hanging", sight{power: PowerOn, ready: true, boot: bootMarked, sealed: true}, switchOffSoon},
		{"sealed, and nobody knows in which boot", sight{power: PowerOn, ready: true, boot: bootUnknown, sealed: true}, switchOffLate},
		{"a slow boot is not ended", sight{power: PowerOn, boot: bootMarked, started: true, sealed: true}, awaitReady},
		{"nor one that somebody else began", sight{power: PowerOn, boot: bootOther, sealed: true}, awaitReady},
		{"silent since it was marked: it may hang half sealed", sight{power: PowerOn, boot: bootMarked}, switchOffSoon},
		{"silent, and Kubernetes forgot the node", sight{power: PowerOn, boot: bootUnknown}, switchOffLate},
		{"silent, and the mark names no boot", sight{power: PowerOn, boot: bootUnmarked, sealed: true}, switchOffLate},
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
	for _, power := range []Power{PowerOn, PowerOff, PowerBetween} {
		for boot := bootMarked; boot <= bootUnknown; boot++ {
			for bits := range 8 {
				s := sight{power: power, boot: boot, ready: bits&1 > 0, started: bits&2 > 0, sealed: bits&4 > 0}
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

// TestSight: what is read becomes what the table knows.
func TestSight(t *testing.T) {
	mark := func(boot string) *Mark { return &Mark{Run: "r", BootID: boot} }
	node := func(boot string) Node { return Node{Name: "n", UID: "u", BootID: boot, Ready: true, SystemUUID: "vm"} }
	for _, tt := range []struct {
		name string
		run  Run
		mark *Mark
		want bootSight
	}{
		{"the marked boot", Run{node: node("1")}, mark("1"), bootMarked},
		{"the marked boot, although it was off", Run{node: node("1"), offSeen: true, bootThen: "0"}, mark("1"), bootMarked},
		{"another boot since it was off", Run{node: node("2"), offSeen: true, bootThen: "1"}, mark("1"), bootFresh},
		{"another boot since it was off, without a mark", Run{node: node("2"), offSeen: true, bootThen: "1"}, nil, bootFresh},
		{"another boot, from before it was off", Run{node: node("2"), offSeen: true, bootThen: "2"}, mark("1"), bootOther},
		{"another boot", Run{node: node("2")}, mark("1"), bootOther},
		{"no mark", Run{node: node("1")}, nil, bootOther},
		{"a mark without a boot", Run{node: node("1")}, mark(""), bootUnmarked},
		{"no boot anywhere", Run{node: node("")}, mark(""), bootUnknown},
		{"no node", Run{node: Node{Name: "n"}}, nil, bootUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.run.id, tt.run.Engine = "r", &Engine{}
			if got := tt.run.sight(tt.mark, Instance{Power: PowerOn, VMID: "vm"}); got.boot != tt.want || got.started != tt.run.offSeen {
				t.Errorf("%+v, want boot %d", got, tt.want)
			}
		})
	}
}
