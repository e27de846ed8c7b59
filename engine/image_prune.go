package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// saveList stores the list of packages and images of the sealed disk. Without it the image is as
// good, but differences by name cannot be shown.
func (m *image) saveList(ctx context.Context, n kamino.Node, receipt kamino.Receipt) {
	shelf, ok := m.engine.Cluster.(kamino.PackageStore)
	list, told := n.Packages(receipt.Run, receipt.Nonce)
	if !ok || !told || poolstate.PackageDigest(list) != receipt.PackageDigest {
		return
	}
	if err := shelf.SaveList(ctx, m.pool.ID, receipt.Run, kamino.DiskList{Packages: list, Images: n.Software.Images}); err != nil {
		m.held.Warn("the package list of the image was not saved: " + err.Error())
	}
}

// pruneLists deletes the lists whose version does not exist any more.
func (m *image) pruneLists(ctx context.Context, versions []kamino.Version) (next workflow.Next, any bool) {
	shelf, ok := m.engine.Cluster.(kamino.PackageStore)
	if !ok {
		return workflow.Next{}, false
	}
	runs, err := shelf.Lists(ctx, m.pool.ID)
	if err != nil {
		m.held.Warn("old package lists were not deleted: " + err.Error())
		return workflow.Next{}, false
	}
	runs = slices.DeleteFunc(runs, func(run string) bool {
		return run == m.held.Run || slices.ContainsFunc(versions, func(v kamino.Version) bool { return v.Run == run })
	})
	if len(runs) == 0 {
		return workflow.Next{}, false
	}
	return workflow.Act(kamino.ActDeleteLists, "delete the package lists of versions that are gone", func(ctx context.Context) (err error) {
		for _, run := range runs {
			err = errors.Join(err, shelf.DeleteList(ctx, run))
		}
		return err
	}), true
}

// Prunable returns the versions that may be deleted, oldest first: versions of Kamino's that are
// older than the newest keep promoted ones, and that no model, no instance and no rollback needs.
// Withdrawn versions count separately, because their reason also rejects their donor, and so do
// versions that were never offered: of each the newest apart are kept, and every version that may
// still be promoted. A version is also kept if the pool may still boot from it (see Sticks), if
// only its name makes it old, or in any doubt.
func Prunable(newestFirst []kamino.Version, keep, apart int, ledger kamino.Ledger) []kamino.Version {
	var out []kamino.Version
	promoted, withdrawn, hidden := 0, 0, 0
	for _, v := range newestFirst {
		recent := false
		switch {
		case !v.Whole(), v.Foreign(), v.OfFormer:
		case !v.Good():
			recent = withdrawn < apart
			withdrawn++
		case v.Unused():
			recent = hidden < apart || promoted == 0
			hidden++
		default:
			recent = promoted < keep
			promoted++
		}
		target := ledger.Former != nil && strings.EqualFold(ledger.Former.Image, v.ID)
		switch {
		case recent,
			!v.Ours(), v.InModel, v.Instances > 0, target, v.State == kamino.Creating, ledger.Sticks(v.Name, newestFirst),
			v.Whole() && v.Outnumbered(newestFirst) != nil:
			continue
		}
		out = append(out, v)
	}
	slices.Reverse(out)
	return out
}

// lookPrune deletes one version at a time, the oldest first.
func (m *image) lookPrune(ctx context.Context) (workflow.Next, error) {
	versions, err := m.recentVersions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if missing := m.unlisted(versions); missing != "" && m.runner.Spent() < kamino.LookAge {
		m.listedAt = time.Time{} // its write is not waited for
		return workflow.Wait(missing + " (not listed; confirming that it was deleted)"), nil
	}
	versions = m.held.Lease.Ledger.Distrust(versions)
	victims := slices.DeleteFunc(Prunable(versions, m.opts.History, keepWithdrawn, m.held.Lease.Ledger),
		func(v kamino.Version) bool { return slices.Contains(m.kept, v.Name) })
	if g := m.going; g != nil && kamino.IndexOf(versions, g.Name) < 0 {
		victims = []kamino.Version{*g}
	}
	if len(victims) == 0 {
		if len(m.result.Pruned) > 0 || m.held.Adopted { // lists are deleted with their versions
			if next, any := m.pruneLists(ctx, versions); any {
				return next, nil
			}
		}
		return workflow.Done(fmt.Sprintf("versions kept: %d", len(versions))), nil
	}
	v := victims[0]
	if v.State == kamino.Deleting {
		return workflow.Wait("version " + v.Name + " to be deleted"), nil
	}
	next := workflow.Act(kamino.ActDeleteVersion, "delete version "+v.Name, func(ctx context.Context) error {
		m.going = &v
		err := m.engine.Provider.Delete(ctx, m.pool, v.Artifact)
		switch {
		case errors.Is(err, kamino.ErrInUse):
			m.going, m.kept = nil, append(m.kept, v.Name)
			return nil
		case err != nil:
			return err
		}
		m.going = nil
		m.result.Changed = true
		m.result.Pruned = append(m.result.Pruned, v.Name)
		return nil
	}).Of(v.Name)
	if v.Bad != "" && !v.Aside() {
		next = next.Noting(func(l *kamino.Lease) { l.Ledger.NotePruned(v) })
	}
	return next, nil
}

func (m *image) planPrune() string {
	if len(m.plan.Prune) == 0 {
		return "nothing: no version is old and unused"
	}
	return "delete " + strings.Join(m.plan.Prune, ", ")
}
