package kamino

import "slices"

// bootSight compares the boot that a donor's node shows with the one that its mark names.
type bootSight int

const (
	bootMarked   bootSight = iota // the same: what Kubernetes shows is from before the donor was touched
	bootFresh                     // another one, and another than when the machine was seen off
	bootOther                     // another one than the marked, or the mark is gone
	bootUnmarked                  // the mark names none, as where only the taint is left of it
	bootUnknown                   // neither mark nor node name one, as where Kubernetes forgot the node
)

// sight is what giving back sees of a donor that may have been sealed or switched off.
type sight struct {
	power   Power
	ready   bool // its node is Ready, and is that of this machine
	boot    bootSight
	started bool // it was seen off, or this run asked it to start: only the boot is missing
	sealed  bool // a receipt of the run, or a seal pod that ran: the disk may be sealed
}

// wayBack is what brings a donor back.
type wayBack int

const (
	backNow       wayBack = iota // nothing: it is back
	switchOn                     // start the machine
	awaitPower                   // wait until it is on or off
	awaitBoot                    // wait for the node to show another boot
	awaitReady                   // wait for the node to be Ready
	hearNode                     // back, once its kubelet is heard of: Ready may be of the past
	hearKubelet                  // never went, if its kubelet is heard of for longer than a seal leaves it
	switchOffSoon                // sealed and hanging: off after two minutes, for the next boot mends the disk
	switchOffLate                // the same after a silence that no boot lasts, where nobody knows what was sealed
)

// backRow is a row of the table; what it leaves out is any.
type backRow struct {
	power   []Power
	ready   []bool
	boot    []bootSight
	started []bool
	sealed  []bool
	what    wayBack
}

func is[T any](values ...T) []T { return values }

// waysBack is the table. Exactly one row fits every sight. A start is waited for and never undone,
// or a slow boot would be ended again and again.
var waysBack = []backRow{
	{power: is(PowerOff), what: switchOn},
	{power: is(PowerBetween), what: awaitPower},

	{power: is(PowerOn), ready: is(true), boot: is(bootFresh), what: backNow},
	{power: is(PowerOn), ready: is(true), boot: is(bootOther, bootUnmarked), what: hearNode},
	// What is shown is the old boot: has the machine just been started, did it never go off, or is
	// it still going?
	{power: is(PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(true), what: awaitBoot},
	{power: is(PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(false), sealed: is(false), what: hearKubelet},
	{power: is(PowerOn), ready: is(true), boot: is(bootMarked), started: is(false), sealed: is(true), what: switchOffSoon},
	{power: is(PowerOn), ready: is(true), boot: is(bootUnknown), started: is(false), sealed: is(true), what: switchOffLate},

	{power: is(PowerOn), ready: is(false), started: is(true), what: awaitReady},
	{power: is(PowerOn), ready: is(false), boot: is(bootFresh, bootOther), started: is(false), what: awaitReady},
	// It was not seen to boot, and may hang half sealed: then only its next boot mends the disk.
	{power: is(PowerOn), ready: is(false), boot: is(bootMarked), started: is(false), what: switchOffSoon},
	{power: is(PowerOn), ready: is(false), boot: is(bootUnmarked, bootUnknown), started: is(false), what: switchOffLate},
}

// decide finds the row that fits. It is a pure function.
func (s sight) decide() wayBack {
	for _, row := range waysBack {
		if row.fits(s) {
			return row.what
		}
	}
	return awaitReady // a test keeps it from coming here
}

func (row backRow) fits(s sight) bool {
	return anyOr(row.power, s.power) && anyOr(row.ready, s.ready) && anyOr(row.boot, s.boot) &&
		anyOr(row.started, s.started) && anyOr(row.sealed, s.sealed)
}

func anyOr[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }
