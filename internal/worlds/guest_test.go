package worlds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// room is a host without chance: it writes down what it is told, with the seconds since the begin.
type room struct {
	t      *testing.T
	g      *Guest
	now    time.Duration
	timers []func() bool // each acts once it is due
	heard  []string
	half   bool // packages are half-way
	boots  int
}

func newRoom(t *testing.T, fate Fate) *room {
	r := &room{t: t}
	r.g = &Guest{Host: r, Fate: fate, Boots: 1, Times: Times{Boot: 10 * time.Second, PodStart: time.Second, Survey: 5 * time.Second, Seal: 4 * time.Second, Upgrade: 20 * time.Second}}
	r.g.Booted()
	r.heard = nil
	return r
}

func (r *room) After(d time.Duration, do func()) {
	at := r.now + d
	r.timers = append(r.timers, func() bool {
		if r.now < at {
			return false
		}
		do()
		return true
	})
}

// pass lets time pass.
func (r *room) pass(d time.Duration) {
	for end := r.now + d; r.now < end; r.now += time.Second {
		for i := 0; i < len(r.timers); i++ {
			if fire := r.timers[i]; fire() {
				r.timers = slices.Delete(r.timers, i, i+1)
				i = -1
			}
		}
	}
}

func (r *room) hear(format string, args ...any) {
	r.heard = append(r.heard, fmt.Sprintf("%.0f ", r.now.Seconds())+fmt.Sprintf(format, args...))
}

func (r *room) Draw(int) int                      { return 0 }
func (r *room) Happened(string, ...any)           {}
func (r *room) Violate(id, f string, args ...any) { r.hear(id+" "+f, args...) }
func (r *room) Up() bool {
	r.boots++
	r.g.BootID = fmt.Sprint("b", r.boots)
	r.hear("up")
	return true
}
func (r *room) Shows(s Sign) { r.hear("%s", []string{"stopped", "leaves", "silent", "resumed"}[s]) }
func (r *room) Tell(key, text string) bool {
	r.hear("tells %s", strings.TrimPrefix(key, "kamino.dev/"))
	return true
}
func (r *room) SwitchesOff() { r.hear("off"); r.g.Cut(false) }
func (r *room) Stuck() bool  { return false }
func (r *room) VM() string   { return "" }
func (r *room) SealDisk(_ Order, forged bool) (map[string]string, bool) {
	return map[string]string{kamino.AnnotationReceipt: fmt.Sprint(forged)}, true
}
func (r *room) CheckPackages() error {
	if r.half {
		return errors.New("half-way")
	}
	return nil
}
func (r *room) BeginUpgrade(Order) error { err := r.CheckPackages(); r.half = true; return err }
func (r *room) Upgrade(Order) string     { r.half = false; return "upgraded" }
func (r *room) Look(Order) string        { return "looked" }

// podIn is a pod of a room.
type podIn struct {
	*room
	name string
	gone bool
}

func (p *podIn) There() bool { return !p.gone }
func (p *podIn) Starts()     { p.hear("%s runs", p.name) }
func (p *podIn) Ends(e End) {
	p.hear("%s ends %d %s%s%s", p.name, e.ExitCode, e.Refused, e.Waiting, e.Message)
}

func (r *room) play(task kamino.Task, run string) *podIn {
	p := &podIn{room: r, name: string(task)}
	r.g.Play(p, Order{Task: task, Run: run, Nonce: "n", Boot: r.g.BootID})
	return p
}

// TestGuestSeals: what is heard of a machine that is sealed, by its fate.
func TestGuestSeals(t *testing.T) {
	for fate, want := range map[Fate]string{
		Healthy:       "1 seal runs, 3 stopped, 6 tells receipt, 8 off, 43 silent, 90 up",
		SealFails:     "1 seal ends 1 no space left on device",
		SealTakenBack: "1 seal runs, 3 stopped, 6 resumed, 6 tells seal-failure",
		SealHangs:     "1 seal runs, 3 stopped, 43 silent",
		SealIsMute:    "1 seal runs, 3 stopped, 8 off, 43 silent, 90 up",
		NeverBoots:    "1 seal runs, 3 stopped, 6 tells receipt, 8 off, 43 silent",
		Slow:          "10 seal runs, 12 stopped, 51 tells receipt, 52 silent, 53 off",
		NoImage:       "1 seal ends 0 ImagePullBackOff",
	} {
		r := newRoom(t, fate)
		r.play(kamino.TaskSeal, "r")
		if r.pass(80 * time.Second); !r.g.Kubelet && fate != SealHangs {
			if r.g.Touched != "r" {
				t.Errorf("fate %d: touched by %q", fate, r.g.Touched)
			}
			r.g.On()
		}
		r.pass(20 * time.Second)
		if got := strings.Join(r.heard, ", "); got != want {
			t.Errorf("fate %d: %s, want %s", fate, got, want)
		}
	}
}

// TestGuestPatches: a unit outlives its pod and is found again; another run waits for it; what a
// reboot interrupts is left half-way, and refused.
func TestGuestPatches(t *testing.T) {
	r := newRoom(t, Healthy)
	r.play(kamino.TaskPatch, "r").gone = true
	r.pass(5 * time.Second)
	first := r.play(kamino.TaskPatch, "r")
	r.pass(2 * time.Second)
	first.gone = true
	r.play(kamino.TaskPatch, "r")
	r.play(kamino.TaskPatch, "s")
	r.pass(60 * time.Second)
	want := "6 patch runs, 8 patch runs, 8 patch runs, 26 tells patch, 26 patch ends 0 , 46 tells patch, 46 patch ends 0 "
	if got := strings.Join(r.heard, ", "); got != want || !r.g.Unseen {
		t.Errorf("%s, want %s", got, want)
	}

	r = newRoom(t, Healthy)
	r.play(kamino.TaskPatch, "r")
	r.pass(5 * time.Second)
	r.g.Restart(true)
	r.pass(15 * time.Second)
	r.play(kamino.TaskCheck, "r")
	r.pass(5 * time.Second)
	want = "1 patch runs, 5 leaves, 15 up, 15 patch ends 137 containers ended with the machine, 21 check runs, 21 check ends 3 half-way"
	if got := strings.Join(r.heard, ", "); got != want || r.g.Working() {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGuestRestarts: a restart is of the boot that it means, and of one run once.
func TestGuestRestarts(t *testing.T) {
	r := newRoom(t, Healthy)
	late := Order{Task: kamino.TaskReboot, Run: "r", Boot: "b0"}
	r.g.Play(&podIn{room: r, name: "late"}, late)
	r.play(kamino.TaskReboot, "r")
	r.pass(20 * time.Second)
	r.play(kamino.TaskLook, "r")
	r.play(kamino.TaskReboot, "r")
	r.pass(20 * time.Second)
	got := strings.Join(r.heard, ", ")
	for _, want := range []string{"1 late runs, 1 late ends 0 , 1 reboot runs, 1 leaves, 11 up", "21 look runs, 21 tells patch-look, 21 look ends 0 ", "21 I32 a machine is restarted 2 times by run r"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if r.g.Looked != "b2" {
		t.Errorf("looked at boot %s", r.g.Looked)
	}
}
