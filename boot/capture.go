package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Schema names the version of the capture document. Readers refuse any other; a change that old
// readers would misunderstand gets a new number.
const Schema = "kamino.dev/boot-capture/v1"

// Capture is everything known about one boot. The JSON form is described in docs/boot-capture.md
// and docs/schemas/boot-capture.v1.json.
type Capture struct {
	Schema  string    `json:"schema"`
	TakenAt time.Time `json:"takenAt,omitzero"`
	// Sources names what the capture was made from: "systemd", "systemctl-show", "plot-svg",
	// "plot-json", "journal", "cloud-init-log", "cloud-init-dump", "sosreport"; of text
	// "critical-chain", "blame", "time", "cloud-init-show", "cloud-init-blame", "log".
	Sources []string `json:"sources,omitempty"`
	Host    Host     `json:"host"`
	Manager Manager  `json:"manager"`
	Units   []Unit   `json:"units,omitempty"`
	// Spans are stretches of work or waiting that are not units: cloud-init's stages and modules,
	// extension tasks, pauses.
	Spans []Span `json:"spans,omitempty"`
	// Marks are single moments: link changes, kubelet's milestones, clock jumps.
	Marks []Mark `json:"marks,omitempty"`
	// Lengths are how long units and tasks took of which the record does not say when.
	Lengths   []Length  `json:"lengths,omitempty"`
	CloudInit CloudInit `json:"cloudInit,omitzero"`
	// Notes say what a reader could not make sense of, in words for the operator.
	Notes []string `json:"notes,omitempty"`

	// Floating is the wall clock (µs since 1970) of this record's zero, when its spans are not tied
	// to the kernel's start, or [FloatNowhere]; zero when they are. [Capture.Merge] ties them; it is
	// not part of the document.
	Floating Micros `json:"-"`
	// NoStart tells that the record is a log without the beginning of a boot: its times count from its
	// first line, and [Capture.Merge] does not know where to put them. It is not part of the document.
	NoStart bool `json:"-"`
}

// FloatNowhere is the Floating of a record that does not know the wall clock either.
const FloatNowhere = Micros(1)

// Length is how long a unit or a task took.
type Length struct {
	Name string `json:"name"`
	Took Micros `json:"took"`
}

// Host says which machine booted, and from what.
type Host struct {
	Name           string `json:"name,omitempty"`
	BootID         string `json:"bootID,omitempty"`
	Kernel         string `json:"kernel,omitempty"`
	OS             string `json:"os,omitempty"`
	Architecture   string `json:"architecture,omitempty"`
	Virtualization string `json:"virtualization,omitempty"`
	VMID           string `json:"vmID,omitempty"`
	// Image is the image version the VM was made from, as IMDS tells
	// (compute.storageProfile.imageReference).
	Image string `json:"image,omitempty"`
}

// Manager holds systemd's own stamps: the properties of org.freedesktop.systemd1.Manager with the
// same names.
type Manager struct {
	Version string `json:"version,omitempty"`
	// Firmware and Loader are lengths of time before the kernel started, not stamps.
	Firmware Micros `json:"firmware,omitempty"`
	Loader   Micros `json:"loader,omitempty"`
	// KernelRealtime is the wall clock, in µs since 1970, when the kernel started, as the clock
	// stood at first.
	KernelRealtime Micros `json:"kernelRealtime,omitempty"`
	InitRD         Micros `json:"initrd,omitempty"`
	Userspace      Micros `json:"userspace,omitempty"`
	// Finish is the first moment with no queued jobs; zero while the boot goes on. It is not "ready
	// to use".
	Finish             Micros `json:"finish,omitempty"`
	SecurityStart      Micros `json:"securityStart,omitempty"`
	SecurityFinish     Micros `json:"securityFinish,omitempty"`
	GeneratorsStart    Micros `json:"generatorsStart,omitempty"`
	GeneratorsFinish   Micros `json:"generatorsFinish,omitempty"`
	UnitsLoadStart     Micros `json:"unitsLoadStart,omitempty"`
	UnitsLoadFinish    Micros `json:"unitsLoadFinish,omitempty"`
	InitRDSecurity     Micros `json:"initrdSecurityStart,omitempty"`
	InitRDSecurityEnd  Micros `json:"initrdSecurityFinish,omitempty"`
	InitRDUnitsLoad    Micros `json:"initrdUnitsLoadStart,omitempty"`
	InitRDUnitsLoadEnd Micros `json:"initrdUnitsLoadFinish,omitempty"`
	// ShutdownStart and SoftReboots are set after a soft reboot (systemd 254 and later): the stamps
	// before userspace then belong to an earlier boot.
	ShutdownStart Micros `json:"shutdownStart,omitempty"`
	SoftReboots   int    `json:"softReboots,omitempty"`
	// FromUserspace tells that all stamps count from the start of userspace, because the record does
	// not say how long the kernel took; Userspace is zero then.
	FromUserspace bool `json:"fromUserspace,omitempty"`
}

// Unit is one systemd unit with the stamps of its latest transitions.
type Unit struct {
	ID string `json:"id"`
	// Names lists aliases, for example default.target; ID itself is left out.
	Names []string `json:"names,omitempty"`
	Stamps
	// First holds the stamps of the first activation in this boot, when the journal or an early
	// capture showed that the unit was restarted since, or that systemd has forgotten it.
	First         *Stamps  `json:"first,omitempty"`
	Restarts      int      `json:"restarts,omitempty"`
	After         []string `json:"after,omitempty"`
	Wants         []string `json:"wants,omitempty"`
	Requires      []string `json:"requires,omitempty"`
	TriggeredBy   []string `json:"triggeredBy,omitempty"`
	ActiveState   string   `json:"activeState,omitempty"`
	Result        string   `json:"result,omitempty"`
	CPU           Micros   `json:"cpu,omitempty"`
	RemainsActive bool     `json:"remainsActive,omitempty"`

	// Coarse tells that the stamps are in whole seconds; [Capture.Merge] prefers others. It is not part
	// of the document.
	Coarse bool `json:"-"`
}

// Stamps are a unit's four transitions, named as systemd-analyze names them.
type Stamps struct {
	Activating   Micros `json:"activating,omitempty"`   // InactiveExitTimestampMonotonic
	Activated    Micros `json:"activated,omitempty"`    // ActiveEnterTimestampMonotonic
	Deactivating Micros `json:"deactivating,omitempty"` // ActiveExitTimestampMonotonic
	Deactivated  Micros `json:"deactivated,omitempty"`  // InactiveEnterTimestampMonotonic
}

// Took is the length that systemd-analyze gives a unit: until it was up, or for a oneshot until it
// was done; else zero.
func (s Stamps) Took() Micros {
	switch {
	case s.Activated >= s.Activating:
		return s.Activated - s.Activating
	case s.Deactivated >= s.Activating:
		return s.Deactivated - s.Activating
	}
	return 0
}

// Began is when the unit's job started to run; zero if it never did.
func (s Stamps) Began() Micros {
	if s.Activating == 0 {
		return s.Activated
	}
	return s.Activating
}

// Done is when those ordered after the unit could go on: it was up, or it was a oneshot that had
// finished. Zero if neither.
func (s Stamps) Done() Micros {
	switch {
	case s.Activated > 0 && s.Activated >= s.Activating:
		return s.Activated
	case s.Deactivated > 0 && s.Activating > 0 && s.Deactivated >= s.Activating:
		return s.Deactivated
	}
	return 0
}

// Restarted tells whether the unit started more than once in this boot.
func (u *Unit) Restarted() bool {
	return u.Restarts > 0 || u.First != nil && u.Began() > u.First.Began()
}

// FirstStamps are the stamps of the first activation that is known of.
func (u *Unit) FirstStamps() Stamps {
	if u.First != nil {
		return *u.First
	}
	return u.Stamps
}

// Kinds of spans.
const (
	SpanStage = "stage" // a cloud-init stage
	SpanTask  = "task"  // something inside a unit: a cloud-init module, a task of an extension
	SpanPause = "pause" // the platform held the machine: pre-provisioning
)

// Span is a stretch of time with a cause.
type Span struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Unit is the unit that the span ran in, when that is known.
	Unit   string `json:"unit,omitempty"`
	Start  Micros `json:"start"`
	End    Micros `json:"end,omitempty"` // zero: it had not ended when captured
	Result string `json:"result,omitempty"`
	Source string `json:"source,omitempty"`
}

// Names of marks that the analysis knows; others are kept and drawn.
const (
	MarkLinkDown   = "link-down"
	MarkLinkUp     = "link-up"
	MarkClockJump  = "clock-jump"
	MarkTimeout    = "job-timed-out" // systemd gave up waiting for the start of a unit, which Detail names
	MarkRuntime    = "runtime-serving"
	MarkCertIssued = "client-cert-issued"
	MarkRegistered = "node-registered"
	MarkCNIReady   = "cni-ready"
	MarkReady      = "node-ready"
	MarkContainer  = "first-container"
	MarkFirstPod   = "first-pod"
)

// SourceFileTime is the source of marks that are the time at which a file was written, wall clock.
// Of one name the earliest stays.
const SourceFileTime = "file time"

// Mark is a moment.
type Mark struct {
	Name   string `json:"name"`
	At     Micros `json:"at"`
	Detail string `json:"detail,omitempty"`
	Source string `json:"source,omitempty"`
}

// CloudInit is what cloud-init says about itself.
type CloudInit struct {
	Version    string   `json:"version,omitempty"`
	Datasource string   `json:"datasource,omitempty"`
	PPSType    string   `json:"ppsType,omitempty"`
	Status     string   `json:"status,omitempty"`
	Errors     []string `json:"errors,omitempty"`
}

// Unit finds a unit by its ID or one of its aliases.
func (c *Capture) Unit(name string) *Unit {
	for i := range c.Units {
		if c.Units[i].ID == name {
			return &c.Units[i]
		}
	}
	for i := range c.Units {
		if slices.Contains(c.Units[i].Names, name) {
			return &c.Units[i]
		}
	}
	return nil
}

// Mark finds the earliest mark of a name.
func (c *Capture) Mark(name string) (Mark, bool) {
	var found Mark
	for _, m := range c.Marks {
		if m.Name == name && (found.At == 0 || m.At < found.At) {
			found = m
		}
	}
	return found, found.At > 0
}

// Validate refuses what cannot be a boot. It makes no judgement on stamps that contradict each
// other: those are findings.
func (c *Capture) Validate() error {
	if c.Schema == "" {
		return errors.New("it has no schema, so it is not the record of a boot; the agent's are in /var/lib/kamino/boots")
	}
	if c.Schema != Schema {
		return fmt.Errorf("schema is %q, this program knows %q; use the version of kamino that wrote it", c.Schema, Schema)
	}
	if len(c.Units) > MaxUnits {
		return fmt.Errorf("%d units, more than systemd's own limit of %d", len(c.Units), MaxUnits)
	}
	m := &c.Manager
	for _, s := range []Micros{
		m.Firmware, m.Loader, m.KernelRealtime, m.InitRD, m.Userspace, m.Finish, m.SecurityStart, m.SecurityFinish,
		m.GeneratorsStart, m.GeneratorsFinish, m.UnitsLoadStart, m.UnitsLoadFinish, m.InitRDSecurity, m.InitRDSecurityEnd,
		m.InitRDUnitsLoad, m.InitRDUnitsLoadEnd, m.ShutdownStart,
	} {
		if !credible(s) {
			return fmt.Errorf("manager stamp %d µs is outside 0 to 2^53", s)
		}
	}
	for i := range c.Units {
		u := &c.Units[i]
		if u.ID == "" {
			return fmt.Errorf("unit %d has no id", i)
		}
		stamps := []Micros{u.Activating, u.Activated, u.Deactivating, u.Deactivated, u.CPU}
		if u.First != nil {
			stamps = append(stamps, u.First.Activating, u.First.Activated, u.First.Deactivating, u.First.Deactivated)
		}
		for _, s := range stamps {
			if !credible(s) {
				return fmt.Errorf("unit %s: stamp %d µs is outside 0 to 2^53", u.ID, s)
			}
		}
	}
	if len(c.Lengths) > MaxUnits {
		return fmt.Errorf("%d lengths, more than %d", len(c.Lengths), MaxUnits)
	}
	for _, l := range c.Lengths {
		if !credible(l.Took) {
			return fmt.Errorf("length of %s is outside 0 to 2^53 µs", l.Name)
		}
	}
	for _, s := range c.Spans {
		if !credible(s.Start) || !credible(s.End) {
			return fmt.Errorf("span %s: stamp is outside 0 to 2^53 µs", s.Name)
		}
	}
	for _, m := range c.Marks {
		if !credible(m.At) {
			return fmt.Errorf("mark %s: stamp is outside 0 to 2^53 µs", m.Name)
		}
	}
	return nil
}

func credible(m Micros) bool { return m >= 0 && m <= MaxStamp }

// Note adds a remark once.
func (c *Capture) Note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(c.Notes, n) {
		c.Notes = append(c.Notes, n)
	}
}

// Write writes the capture document, indented so that it can be read and compared by eye.
func (c *Capture) Write(w io.Writer) error {
	c.Schema = Schema
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
