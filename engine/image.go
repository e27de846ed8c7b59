package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// image is today's version, its image definition and the versions before it.
type image struct {
	*common
	donor *donor

	definition kamino.Artifact  // as last read
	formerHome bool             // the definition existed before the run began, so it may have versions
	readAt     time.Time        // when version was read whole; zero after a write to it
	version    kamino.Version   // as last read
	preBuilt   bool             // the version existed before the run began
	there      bool             // the build of this process was seen, or its request was acknowledged
	kept       []string         // old versions that turned out to be in use
	going      *kamino.Version  // the old version whose deletion was requested and not acknowledged
	listed     []kamino.Version // the versions as last listed
	listedAt   time.Time        // when listed was read; zero after an act that may have changed it
}

// OtherDonorError says that today's version or snapshot was made of another donor than the named one.
// Nothing was changed.
type OtherDonorError struct {
	Version   string
	BuiltFrom string // node name
	Donor     string // the named donor
}

// wanted reports whether the version is to be proved by a canary.
func (m *image) wanted() bool {
	return m.mode == kamino.ProveCanary && (!m.preBuilt || m.version.Unproved() || m.work() == kamino.WorkProve)
}

// promotes reports whether the run promotes its version once it has passed. No option lifts a
// decision that was made for the version, or for the adopted run, because a nightly Job has the
// same options as a person. Only a person who names the version does.
func (m *image) promotes() bool {
	return m.work() == kamino.WorkProve || m.opts.Proof.Promote != kamino.PromoteManual && m.held.Before.Promote != kamino.PromoteManual &&
		!m.version.Gated
}

// promoteMode is the PromoteMode of this run for its record; see promotes.
func (m *image) promoteMode() kamino.PromoteMode {
	if m.promotes() {
		return ""
	}
	return kamino.PromoteManual
}

// writeVersion is the act that writes the tags of a version.
func (m *image) writeVersion(what string, v kamino.Version) workflow.Next {
	return workflow.Act(kamino.ActMarkVersion, what, func(ctx context.Context) error {
		m.readAt = time.Time{}
		return m.engine.Provider.SetTags(ctx, m.pool, v.Artifact)
	}).Of(v.Name)
}

// missing reports whether today's version is not even begun.
func (m *image) missing() bool { return !m.preBuilt }

// unready reports whether today's version does not exist or is still being built, perhaps from
// the snapshot.
func (m *image) unready() bool {
	return !m.preBuilt || !m.version.Whole() || !m.version.Ready
}

func lateVersion(name string) string {
	return "version " + name + " (not found; confirming that it was deleted)"
}

func buildText(version string) string { return "build version " + version }

func cleanText(p kamino.Pool) string { return "delete snapshot " + kamino.SnapshotName(p.Name) }

// mayHaveSnapshot reports whether the run got as far as the snapshot, now or before it was adopted.
func (m *image) mayHaveSnapshot() bool { return m.held.Adopted || m.version.Name != "" }

func (e *OtherDonorError) Error() string {
	return fmt.Sprintf("version %s of today was built from node %s, not from %s", e.Version, e.BuiltFrom, e.Donor)
}

// inherits reports whether this run continues with the version of a run although another version of
// today was requested: that run was the pool's last, had the same donor, and was interrupted.
func (m *image) inherits(run string) bool {
	past := m.held.Lease.Ledger.Past
	return len(past) > 0 && past[0].Interrupted && past[0].Work == "" && past[0].Run == run && past[0].Donor == m.donor.node.Name
}

// carriesOn reports whether --again continues with a version, in place of making another.
func (m *image) carriesOn(v kamino.Version) bool {
	return m.opts.Today == kamino.TodayAgain && m.inherits(v.Run) && m.madeOf(v.Copy) && v.Bad == ""
}

// settled is done once the lease records the name of the version. A process that adopts the run
// continues with that name, also after midnight.
func (m *image) settled(name, what string) workflow.Next {
	if m.held.Run == "" || m.held.Lease.Holder != m.held.Run || m.held.Lease.Record.Version == name {
		return workflow.Done(what)
	}
	return workflow.Act(kamino.ActName, "continue with version "+name, func(context.Context) error { return nil }).
		Noting(func(l *kamino.Lease) { l.Record.Version = name })
}

func (m *image) gate(v kamino.Version) workflow.Next {
	return m.writeVersion("record on version "+v.Name+" that a person is to promote it", v.Gate())
}

// usable returns an error unless new nodes may be made of today's version: it is of a sealed disk,
// and of the named donor.
func (m *image) usable(v kamino.Version) error {
	switch {
	case m.work() == kamino.WorkProve && (v.Receipt != "" || m.opts.Unsealed):
		return nil // a person has named it
	case v.Receipt == "":
		return kamino.WithHint(fmt.Errorf("version %s of today has no seal receipt: %s", v.Name, v.Unsealed()), poolstate.HintAgain)
	case v.Run == m.held.Run, m.opts.Today == kamino.TodayOfAny, m.madeOf(v.Copy):
		return nil
	}
	return kamino.WithHint(&OtherDonorError{Version: v.Name, BuiltFrom: v.Donor, Donor: m.donor.node.Name},
		"to make another version of today from %s: --again; to use this one: --target-node %s", m.donor.node.Name, v.Donor)
}

// unswapped returns an error if a version is not the one that was seen or built before. Somebody
// may have deleted it and made another one with the same name.
func (m *image) unswapped(v kamino.Version) error {
	if then, now := m.version.Run, v.Run; len(m.version.Tags) > 0 && now != then {
		return kamino.WithHint(fmt.Errorf("version %s was replaced: run %s made it, not run %s; the model is not changed",
			v.Name, cmp.Or(now, "unknown"), cmp.Or(then, "unknown")), poolstate.HintAgain)
	}
	return m.usable(v)
}

// madeOf reports whether a version or a snapshot was made of the donor. A node of the same name on
// another VM is another donor.
func (m *image) madeOf(c kamino.Copy) bool {
	return c.Donor == m.donor.node.Name && (c.VM == "" || kamino.SameVM(c.VM, m.donor.instance.VMID))
}

// versions lists the versions of the pool, newest first.
func (m *image) versions(ctx context.Context) ([]kamino.Version, error) {
	versions, err := m.engine.listVersions(ctx, m.pool)
	if err == nil {
		m.listed, m.listedAt = append([]kamino.Version{}, versions...), m.engine.now()
	}
	return versions, err
}

// everListed returns the pool's versions from any earlier list of this run. An image that somebody
// writes into the model during the run is refused earlier.
func (m *image) everListed(ctx context.Context) ([]kamino.Version, error) {
	if m.listed == nil {
		return m.versions(ctx)
	}
	return m.listed, nil
}

// recentVersions returns a list of versions that was read within LookAge, if this process has
// changed no version since; otherwise it reads a new one. It is for choices that another read
// confirms. A person or a scale-out may have begun to use a version meanwhile;
// [kamino.Provider].Delete checks that itself.
func (m *image) recentVersions(ctx context.Context) ([]kamino.Version, error) {
	if kamino.Elapsed(m.listedAt, m.engine.now()) < kamino.LookAge {
		return slices.Clone(m.listed), nil
	}
	return m.versions(ctx)
}

// unlisted describes versions that are known to exist and that a list does not show: the model's
// image, the last one promoted or made, and those that this run has seen complete; "" if all are
// listed.
func (m *image) unlisted(versions []kamino.Version) string {
	l := m.held.Lease.Ledger
	last, known := l.LastMade(), []string{}
	home := "/galleries/" + strings.ToLower(m.pool.Gallery+"/images/"+kamino.DefinitionName(m.pool.Name)) + "/versions/"
	if strings.Contains(strings.ToLower(m.pool.Model.Image), home) {
		known = append(known, kamino.LastSegment(m.pool.Model.Image))
	}
	if l.Promoted != nil {
		known = append(known, l.Promoted.Version)
	}
	if last >= 0 {
		known = append(known, l.Past[last].Version)
	}
	if v := m.version; v.Whole() {
		known = append(known, v.Name)
	}
	// The name of a pool's first version is on the lease. Its definition was made by the adopted
	// run, or by one that failed before; a run that had sealed a donor would have waited.
	rec := m.held.Lease.Record
	first := m.held.Adopted && rec.Version != "" && (l.Past == nil || len(known) == 0 && !rec.Away().IsZero())
	if len(versions) == 0 && (m.formerHome && !first && !l.Empty || len(known) > 0) {
		return "the image versions of the pool, of which none is listed"
	}
	for _, name := range known {
		if kamino.IndexOf(versions, name) < 0 {
			return "version " + name + ", which is not listed"
		}
	}
	return ""
}

// omit records on a version, before its promotion, that it is promoted without the proof that it
// had to pass. Otherwise a later run would continue the proof, or take the version back.
func (m *image) omit(v kamino.Version) workflow.Next {
	v = v.WithProof(kamino.TagProofOmitted)
	return workflow.Act(kamino.ActMarkVersion, "record on version "+v.Name+" that it is accepted without a proof",
		func(ctx context.Context) error {
			return m.engine.Provider.SetTags(ctx, m.pool, v.Artifact)
		}).Of(v.Name)
}

// hide returns a version that the run creates hidden.
func (m *image) hide(v kamino.Version) kamino.Version {
	if v = v.Offering(kamino.TagOfferHidden); m.proves() {
		v = v.WithProof(kamino.TagProofWanted)
	}
	return v
}
