//go:build defects

package kamino

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Defects are those that can be switched on. The first are the original's, as
// far as they translate.
var Defects = []Defect{
	{Name: "snapshot-skips-return", Like: "O1", What: "a run that finds its snapshot leaves the donor as it is",
		steps: change("start", "return")(func(s *Step) { s.When = (*Run).donorNeeded })},
	{Name: "marks-ignored", Like: "O2", What: "donors of ended runs are not looked for",
		ports: func() *tampering {
			return &tampering{listed: func(n *Node) { delete(n.Annotations, AnnotationRun) }}
		}},
	{Name: "unblock-without-start", Like: "O3", What: "giving back takes off the block and starts nothing",
		steps: whenBack(without("start"))},
	{Name: "start-asked-once", Like: "O4", What: "a start that was asked for counts as done",
		steps: change("start")(func(s *Step) {
			look := s.Look
			s.Look = func(r *Run, ctx context.Context) (Next, error) {
				if strings.HasPrefix(r.lease.Record.Intent, intentStart) {
					return done("asked for"), nil
				}
				return look(r, ctx)
			}
		})},
	{Name: "return-unread", Like: "O5", What: "nobody looks whether the marks went off",
		steps: change("return")(believeReply)},
	{Name: "start-unawaited", Like: "O6", What: "the donor counts as back before its node is",
		steps: change("start")(func(s *Step) {
			look := s.Look
			s.Look = func(r *Run, ctx context.Context) (Next, error) {
				next, err := look(r, ctx)
				if err == nil && next.kind == nextWait {
					next = done("starting")
				}
				return next, err
			}
		})},
	{Name: "protection-forgotten", Like: "O7", What: "a person's own protection is removed",
		ports: func() *tampering { return &tampering{mark: func(m *Mark) { m.Protection = nil }} }},
	{Name: "seal-unchecked", Like: "O8", What: "a seal that failed is as good as any",
		steps: unsealed},
	{Name: "replicating-is-failed", Like: "O9", What: "a version that is being replicated is taken for a failed one",
		ports: versions(func(v *Artifact) {
			if v.State == Succeeded && !v.Ready {
				v.State = Failed
			}
		})},
	{Name: "building-is-done", Like: "O10", What: "a version that is being built is taken for a finished one",
		ports: versions(func(v *Artifact) {
			if v.State == Creating {
				v.State, v.Ready = Succeeded, true
			}
		})},
	{Name: "prune-forgets-way-back", Like: "O11", What: "the version before the last write of the model is deleted",
		steps: change("prune")(pruneAll)},
	{Name: "versions-as-text", Like: "O12", What: "versions are sorted as text",
		ports: func() *tampering {
			return &tampering{found: func(kind Kind, list []Artifact) []Artifact {
				slices.SortFunc(list, func(a, b Artifact) int { return strings.Compare(b.Name, a.Name) })
				return list
			}}
		}},
	{Name: "local-date", Like: "O13", What: "the day is that of a clock 14 hours east",
		ports: func() *tampering { return &tampering{clock: 14 * time.Hour} }},
	{Name: "no-lock", Like: "O14", What: "the lease always looks free",
		ports: func() *tampering {
			return &tampering{overwrite: true, freed: true}
		}},
	{Name: "model-unconditional", Like: "O15", What: "pool and model are written whatever has changed",
		ports: func() *tampering { return &tampering{condition: func(p *Pool) { p.Revision = "" }} }},
	{Name: "model-reply-believed", Like: "O16", What: "a write of the model that was reported as done is never looked at",
		steps: change("model")(believeReply)},
	{Name: "force-unasked", Like: "O18", What: "pods are deleted past their budgets",
		ports: func() *tampering {
			return &tampering{drain: func(o *DrainOptions) { o.Force, o.Overdue = true, true }}
		}},
	{Name: "nothing-given-back", Like: "O20", What: "a run that fails or is told to end gives nothing back",
		steps: whenBack(func(s []Step) []Step { return nil })},

	{Name: "absence-believed", By: "I2", What: "one 404 of the donor's instance ends its rescue",
		steps: change("start")(func(s *Step) {
			look := s.Look
			s.Look = func(r *Run, ctx context.Context) (Next, error) {
				if _, err := r.Provider.Instance(ctx, r.instance.ID); errors.Is(err, ErrNotFound) {
					return done("the donor is gone"), nil
				}
				return look(r, ctx)
			}
		})},
	{Name: "fence-ignored", By: "I9", What: "a lease that another process took is written over",
		ports: func() *tampering { return &tampering{overwrite: true} }},
	{Name: "no-intent", What: "what is about to be done is not written down",
		ports: func() *tampering { return &tampering{setLease: func(l *Lease) { l.Record.Intent = "" }} }},
	{Name: "no-drain", By: "I4", What: "the donor is sealed unblocked and with its pods",
		steps: func(_ *Run, s []Step) []Step { return without("drain")(s) }},
	{Name: "retry-after-ignored", What: "throttling is taken for a failure like others",
		ports: func() *tampering {
			return &tampering{failure: func(err error) error {
				if t := (*ThrottledError)(nil); errors.As(err, &t) {
					return ErrUnavailable
				}
				return err
			}}
		}},
	{Name: "vm-by-name", What: "a machine of the same name is taken for the donor", ports: sameName},
	{Name: "boot-ignored", What: "a donor that has booted since is taken for sealed",
		ports: func() *tampering {
			boots := map[string]string{}
			return &tampering{node: func(n *Node) { n.BootID = first(boots, n.Name, n.BootID) }}
		}},
	{Name: "source-deleted", What: "a snapshot is deleted while a version is built from it", steps: deleteSources},
	{Name: "half-snapshot", What: "a snapshot that is being copied is taken for complete",
		ports: func() *tampering {
			return &tampering{found: func(kind Kind, list []Artifact) []Artifact {
				for i := range list {
					if s := &list[i]; kind == Snapshot && s.State != Failed && s.State != Deleting {
						s.State, s.Ready = Succeeded, true
					}
				}
				return list
			}}
		}},
	{Name: "unrested-snapshot", What: "nobody looks whether the donor was started while its snapshot was taken",
		steps: change("snapshot")(func(s *Step) {
			look := s.Look
			s.Look = func(r *Run, ctx context.Context) (Next, error) { r.rested = true; return look(r, ctx) }
		})},
	{Name: "person-overwritten", What: "an image that somebody chose during the run is replaced",
		ports: func() *tampering {
			images := map[string]string{}
			return &tampering{pool: func(p *Pool) { p.Model.Image = first(images, string(p.ID), p.Model.Image) }}
		}},
	{Name: "refusals-ignored", What: "a pool that must not be touched is",
		ports: func() *tampering { return &tampering{pool: func(p *Pool) { p.Refusals = nil }} }},
	{Name: "pulse-ignored", What: "a kubelet that stopped is taken for alive",
		ports: func() *tampering {
			beats := time.Unix(0, 0)
			return &tampering{pulse: func(time.Time) time.Time { beats = beats.Add(time.Second); return beats }}
		}},
	{Name: "seal-pod-forgotten", What: "a seal pod that has not started is not removed",
		ports: func() *tampering {
			return &tampering{keepPods: true, sealPod: func(p *SealPod) { p.Exists = p.Exists && p.Started }}
		}},
	{Name: "scale-out-forgotten", What: "nobody remembers that new nodes were asked for",
		ports: func() *tampering { return &tampering{setLease: func(l *Lease) { l.Ledger.Owed = nil }} }},
	{Name: "failed-version-left", What: "failed versions are never deleted",
		steps: func(_ *Run, s []Step) []Step { return without("failed-version")(s) }},
	{Name: "sealing-unrecorded", What: "a donor that Kubernetes forgets is forgotten",
		ports: func() *tampering { return &tampering{setLease: func(l *Lease) { l.Record.Sealing = false }} }},
	{Name: "day-ignored", By: "I19", What: "a donor is taken although the version of today is in use already",
		steps: change("version")(func(s *Step) {
			look := s.Look
			s.Look = func(r *Run, ctx context.Context) (Next, error) {
				next, err := look(r, ctx)
				r.preBuilt = false
				return next, err
			}
		})},
	{Name: "former-unsaved", What: "the model is replaced without being saved",
		ports: func() *tampering { return &tampering{setLease: func(l *Lease) { l.Ledger.Former = nil }} }},
	{Name: "lease-kept", What: "a run that ends well keeps its lease",
		ports: func() *tampering {
			var holder, process string
			return &tampering{setLease: func(l *Lease) {
				if l.Holder == "" {
					l.Holder, l.Process = holder, process
				}
				holder, process = l.Holder, l.Process
			}}
		}},
}

// change makes a defect of steps out of a change of those that are named.
func change(names ...string) func(func(*Step)) func(*Run, []Step) []Step {
	return func(f func(*Step)) func(*Run, []Step) []Step {
		return func(_ *Run, steps []Step) []Step {
			for i := range steps {
				if slices.Contains(names, steps[i].Name) {
					f(&steps[i])
				}
			}
			return steps
		}
	}
}

func without(name string) func([]Step) []Step {
	return func(steps []Step) []Step {
		return slices.DeleteFunc(steps, func(s Step) bool { return s.Name == name })
	}
}

// whenBack changes the steps of giving back only.
func whenBack(f func([]Step) []Step) func(*Run, []Step) []Step {
	return func(_ *Run, steps []Step) []Step {
		if len(steps) > 0 && steps[0].Name == "unseal" {
			return f(steps)
		}
		return steps
	}
}

// believeReply lets a step be done after its act, whatever has come of it.
func believeReply(s *Step) {
	look, acted := s.Look, false
	s.Look = func(r *Run, ctx context.Context) (Next, error) {
		if acted {
			return done("done"), nil
		}
		next, err := look(r, ctx)
		if err == nil && next.kind == nextAct {
			do := next.do
			next.do = func(ctx context.Context) error { acted = true; _ = do(ctx); return nil }
		}
		return next, err
	}
}

// unsealed goes on whatever became of the seal.
func unsealed(_ *Run, steps []Step) []Step {
	steps = change("seal")(func(s *Step) {
		look := s.Look
		s.Look = func(r *Run, ctx context.Context) (Next, error) {
			next, err := look(r, ctx)
			if err != nil && !transient(err) {
				return done("failed"), nil
			}
			return next, err
		}
	})(nil, steps)
	return change("snapshot")(func(s *Step) {
		look := s.Look
		s.Look = func(r *Run, ctx context.Context) (Next, error) {
			name := SnapshotName(r.pool.Name)
			found, err := r.Provider.Find(ctx, r.pool, Snapshot, name)
			if err != nil || len(found) > 0 {
				return look(r, ctx)
			}
			want := Artifact{Kind: Snapshot, Name: name, Source: r.instance.Disk, Tags: r.tags(Receipt{Hash: "none"})}
			return act("snapshot disk "+want.Source, func(ctx context.Context) error { return r.Provider.Create(ctx, r.pool, want) }), nil
		}
	})(nil, steps)
}

func versions(f func(*Artifact)) func() *tampering {
	return func() *tampering {
		return &tampering{found: func(kind Kind, list []Artifact) []Artifact {
			for i := range list {
				if kind == Version {
					f(&list[i])
				}
			}
			return list
		}}
	}
}

// pruneAll forgets what the ledger still needs.
func pruneAll(s *Step) {
	s.Look = func(r *Run, ctx context.Context) (Next, error) {
		list, err := r.Provider.Find(ctx, r.pool, Version, "")
		if err != nil {
			return Next{}, err
		}
		victims := Prunable(list, r.History, Ledger{})
		if len(victims) == 0 {
			return done("pruned"), nil
		}
		if victims[0].State == Deleting {
			return wait("a version to be deleted"), nil
		}
		return act("delete version "+victims[0].Name, func(ctx context.Context) error { return r.Provider.Delete(ctx, r.pool, victims[0]) }), nil
	}
}

func deleteSources(_ *Run, steps []Step) []Step {
	steps = without("failed-version")(steps)
	return change("reuse", "clean")(func(s *Step) {
		s.Look = func(r *Run, ctx context.Context) (Next, error) {
			name := SnapshotName(r.pool.Name)
			found, err := r.Provider.Find(ctx, r.pool, Snapshot, name)
			if err != nil || len(found) == 0 || found[0].State == Deleting {
				return done("none"), err
			}
			return act("delete snapshot "+name, func(ctx context.Context) error { return r.Provider.Delete(ctx, r.pool, found[0]) }), nil
		}
	})(nil, steps)
}

// sameName shows for every name the VM that was seen there first.
func sameName() *tampering {
	vms := map[string]string{}
	return &tampering{
		node:     func(n *Node) { n.SystemUUID = first(vms, string(n.ProviderID), n.SystemUUID) },
		instance: func(i *Instance) { i.VMID = first(vms, string(i.ID), i.VMID) },
	}
}

// first keeps what was seen first.
func first(seen map[string]string, key, value string) string {
	if _, ok := seen[key]; !ok {
		seen[key] = value
	}
	return seen[key]
}
