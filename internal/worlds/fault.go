package worlds

import (
	"maps"
	"slices"
	"time"
)

// Fault is how a call goes wrong. What "done" means: the call took effect.
type Fault string

// The faults.
const (
	KillBefore        Fault = "killed before it is sent"
	KillUnheard       Fault = "killed when done, before the reply"
	KillAfter         Fault = "killed after the reply"
	Interrupted       Fault = "told to stop"
	LostReply         Fault = "done, reply lost"
	FalseFailure      Fault = "done, failure reported"
	FalseSuccess      Fault = "not done, success reported"
	ServerError       Fault = "500, not done"
	Unknown           Fault = "an error that nobody knows"
	Conflict          Fault = "409"
	Precondition      Fault = "412"
	Throttled         Fault = "429 for 20 minutes"
	Forbidden         Fault = "403"
	OperationFailed   Fault = "operation Failed"
	OperationCanceled Fault = "operation Canceled"
	OperationLies     Fault = "operation Failed, though done"
	OperationGone     Fault = "operation's URL gone"
	PollForbidden     Fault = "403 on the poll"
	OperationEndless  Fault = "operation never ends"
	LateCreate        Fault = "404 for 30 s after the create"
	StaleRead         Fault = "stale read"
	Absent            Fault = "404, though it is there"
	Unread            Fault = "404 of an instance, though its pool lists it"
	Blind             Fault = "404 as to blind credentials until the step gives up"
	Empty             Fault = "an empty list, though there is something"
	Vanished          Fault = "404 and empty lists for two minutes"
	Quota             Fault = "quota exceeded"
	NoAnswer          Fault = "500 until the step gives up"
	RivalActs         Fault = "rival"
)

// Call is what decides which faults make sense for a call.
type Call struct {
	Write    bool // changes something
	Kube     bool // of Kubernetes; else of the cloud
	Lease    bool // reads or writes a pool's lease
	Create   bool // makes something
	Long     bool // begins an operation that ends later
	Start    bool // switches a machine on
	Instance bool // reads one instance
	List     bool // lists something
	Older    bool // reads what had another answer before
}

// facts tell of each fault the column of the fault matrix where it belongs, "" for none, and the
// calls for which it makes sense; nil is all.
var facts = map[Fault]struct {
	column string
	fits   func(Call) bool
}{
	KillBefore: {"7", nil}, KillUnheard: {"7", nil}, KillAfter: {"7", nil},
	Interrupted:  {"16", nil},
	LostReply:    {"4", Call.writes},
	FalseFailure: {"5a", Call.writes},
	// An API server does not acknowledge what etcd has not stored, and without that there is no
	// lock.
	FalseSuccess: {"5b", func(c Call) bool { return c.Write && !c.Lease }},
	ServerError:  {"3", nil},
	Unknown:      {"", func(c Call) bool { return c.Write || !c.Lease }},
	Conflict:     {"2", nil},
	Precondition: {"2", Call.writes},
	Throttled:    {"1", nil},
	Forbidden:    {"14", nil},

	OperationFailed: {"6", Call.lasts}, OperationCanceled: {"6", Call.lasts}, OperationLies: {"5a", Call.lasts},
	OperationGone: {"6", Call.lasts}, PollForbidden: {"6", Call.lasts}, OperationEndless: {"12", Call.lasts},

	LateCreate: {"10", func(c Call) bool { return c.Create && !c.Kube }},
	StaleRead:  {"10", func(c Call) bool { return c.Older }},
	Absent:     {"10", func(c Call) bool { return !c.Write && !c.Kube }},
	Unread:     {"", func(c Call) bool { return c.Instance }},
	Empty:      {"10", func(c Call) bool { return c.List && !c.Kube }},
	Vanished:   {"10", func(c Call) bool { return !c.Kube }},
	Blind:      {"14", func(c Call) bool { return !c.Kube }},
	Quota:      {"15", func(c Call) bool { return c.Create && !c.Kube || c.Start }},
	NoAnswer:   {"12", nil},
}

func (c Call) writes() bool { return c.Write }
func (c Call) lasts() bool  { return c.Long }

// Vanishing is how long Vanished lasts: less than a run watches before it gives a donor up.
const Vanishing = 2 * time.Minute

// Faults lists all but RivalActs, in a fixed order.
func Faults() []Fault { return slices.Sorted(maps.Keys(facts)) }

// Fits says whether a fault makes sense for a call.
func (f Fault) Fits(c Call) bool {
	fact, known := facts[f]
	return known && (fact.fits == nil || fact.fits(c))
}

// Column of the fault matrix, "" for none.
func (f Fault) Column() string { return facts[f].column }

// Kills tells the three positions at which a process dies.
func (f Fault) Kills() bool { return f == KillBefore || f == KillUnheard || f == KillAfter }
