package sim

import (
	"slices"
	"testing"

	"kamino.dev/kamino/internal/worlds"
)

// classes are the kinds of harm that came from outside: what plays each, in both worlds where it is
// of the dictionary, and the defects that bring it back. TestDefects sees that each defect is
// caught. Forged marks of other machines are in this world only: a pure function judges them before
// anything is called, and an API server stores them like any annotation.
var classes = []struct {
	what    string
	faults  []worlds.Fault
	rivals  []string
	plays   []any // where it is neither: a test or a world
	defects []string
}{
	{"a transient 404 on any read", []worlds.Fault{worlds.Absent, worlds.Unread, worlds.LateCreate}, nil, nil, []string{"absence-believed", "absence-once"}},
	{"blindness", []worlds.Fault{worlds.Blind, worlds.Vanished, worlds.Empty}, nil, nil, []string{"blindness-believed", "list-believed"}},
	{"rights taken away in the middle", []worlds.Fault{worlds.Forbidden, worlds.PollForbidden}, []string{"every right at the cloud is taken away"}, nil, []string{"forbidden-is-done"}},
	{"delete locks and deny policies", nil, []string{"nothing can be deleted in the cloud", "a policy denies what makes an image"}, nil, []string{"cleaning-needed"}},
	{"a foreign owner", nil, []string{"the pool's recipe gets an owner", "the pool becomes one that must not be touched"}, nil, []string{"owner-unseen", "refusals-ignored", "late-refusal-ignored"}},
	{"a pin by a person", nil, []string{"a person takes the newest version out of latest", "a person changes the model's image"}, nil, []string{"pin-unseen", "person-overwritten"}},
	{"kured", nil, []string{"kured reboots the donor"}, nil, []string{"reboot-unseen", "boot-ignored"}},
	{"the pod of a patch, in a drain", nil, nil, []any{TestStories}, []string{"patch-in-own-way", "patch-of-another-unseen"}},
	{"the original script", nil, []string{"the original script takes another donor", "the original script has a snapshot of the donor"}, nil, []string{"receipt-unasked"}},
	{"forged and copied marks", nil, []string{"a node forges a mark", "the node forges its receipt"}, nil, []string{"claim-unchecked", "witness-unasked"}},
	{"a lease deleted", nil, []string{"a person deletes the lease"}, nil, []string{"lease-not-remade"}},
	{"etcd restored from a backup", nil, []string{"etcd is restored from a backup of before the run", "a restore after etcd was restored from a backup", "etcd is restored from a backup while this process is frozen"},
		[]any{TestEtcdRestoredAfterKill}, []string{"restored-lease-lost"}},
	{"another machine under the node's name", nil, []string{"the instance is replaced under the same name", "the instance is replaced while this process is frozen"},
		[]any{TestReplacedAtPod}, []string{"machine-unnamed"}},
	{"another OS disk in the same VM", nil, []string{"the OS disk of a donor that is off is replaced"}, []any{TestDiskSwapped}, []string{"disk-unnamed"}},
	{"a donor that may not reboot", nil, nil, []any{TestStories}, []string{"finish-refused"}},
	{"the model limit", nil, nil, []any{TestYear}, []string{"model-each-night"}},
	{"NVMe-only sizes, disks with keys of their own", nil, nil, []any{TestStories, TestFitRefusesBeforeAnythingIsTouched}, []string{"fit-unasked"}},
	{"lists with foreign, hidden and withdrawn versions", nil, nil, []any{aged}, []string{"foreign-counted", "foreign-pruned", "withdrawn-shown", "offered-at-birth", "fallback-unsealed"}},
	{"a slow machine", nil, []string{"this machine is slow", "the donor is slow"}, nil, []string{"slow-given-up"}},
	{"clocks that jump", nil, []string{"this machine's clock is set forward an hour", "this machine's clock is set back an hour", "this machine is suspended"}, nil,
		[]string{"clock-set", "renewed-by-wall", "suspension-unseen"}},
}

// TestClasses: what plays a class and what brings it back has the name that stands here.
func TestClasses(t *testing.T) {
	var rivals, defects []string
	for _, r := range worlds.Rivals() {
		rivals = append(rivals, r.Name)
	}
	for _, d := range Defects() {
		defects = append(defects, d.Name)
	}
	for _, c := range classes {
		if len(c.faults)+len(c.rivals)+len(c.plays) == 0 || len(c.defects) == 0 {
			t.Errorf("%s: nothing plays it, or brings it back", c.what)
		}
		for _, f := range c.faults {
			if !slices.Contains(worlds.Faults(), f) {
				t.Errorf("%s: no fault %q", c.what, f)
			}
		}
		for _, r := range c.rivals {
			if !slices.Contains(rivals, r) {
				t.Errorf("%s: no rival %q", c.what, r)
			}
		}
		for _, d := range c.defects {
			if !slices.Contains(defects, d) {
				t.Errorf("%s: no defect %q", c.what, d)
			}
		}
	}
}
