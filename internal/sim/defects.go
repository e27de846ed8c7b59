package sim

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// portDefects are known bad behaviours that show in what the engine hears of the ports and what it
// tells them. The first are the original's, as far as they translate.
var portDefects = []Defect{
	{Name: "marks-ignored", Like: "O2", What: "donors of ended runs are not looked for",
		ports: func() *tampering {
			return &tampering{listed: func(n *kamino.Node) { delete(n.Annotations, kamino.AnnotationRun) }}
		}},
	{Name: "protection-forgotten", Like: "O7", What: "a person's own protection is removed",
		ports: func() *tampering { return &tampering{mark: func(m *kamino.Mark) { m.Protection = nil }} }},
	{Name: "replicating-is-failed", Like: "O9", What: "a version that is being replicated is taken for a failed one",
		ports: versions(func(v *kamino.Artifact) {
			if v.State == kamino.Succeeded && !v.Ready {
				v.State = kamino.Failed
			}
		})},
	{Name: "building-is-done", Like: "O10", What: "a version that is being built is taken for a finished one",
		ports: versions(func(v *kamino.Artifact) {
			if v.State == kamino.Creating {
				v.State, v.Ready = kamino.Succeeded, true
			}
		})},
	{Name: "versions-as-text", Like: "O12", What: "versions are sorted as text",
		ports: func() *tampering {
			return &tampering{found: func(kind kamino.Kind, list []kamino.Artifact) []kamino.Artifact {
				slices.SortFunc(list, func(a, b kamino.Artifact) int { return strings.Compare(b.Name, a.Name) })
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
		ports: func() *tampering { return &tampering{condition: func(p *kamino.Pool) { p.Revision = "" }} }},
	{Name: "force-unasked", Like: "O18", What: "pods are deleted past their budgets",
		ports: func() *tampering {
			return &tampering{drain: func(o *kamino.DrainOptions) { o.Force, o.Overdue = true, true }}
		}},
	{Name: "fence-ignored", By: "I9", What: "a lease that another process took is written over",
		ports: func() *tampering { return &tampering{overwrite: true} }},
	{Name: "no-intent", What: "what is about to be done is not written down",
		ports: func() *tampering {
			return &tampering{setLease: func(l *kamino.Lease) { l.Record.Intent, l.Record.Acts = "", nil }}
		}},
	{Name: "retry-after-ignored", What: "throttling is taken for a failure like others",
		ports: func() *tampering {
			return &tampering{failure: func(err error) error {
				if t := (*kamino.ThrottledError)(nil); errors.As(err, &t) {
					return kamino.ErrUnavailable
				}
				return err
			}}
		}},
	{Name: "clock-set", What: "time is read off a clock that somebody may set",
		ports: func() *tampering { return &tampering{wall: true} }},
	{Name: "forbidden-is-done", What: "what is not allowed is taken for done",
		ports: func() *tampering {
			return &tampering{failure: func(err error) error {
				if errors.Is(err, kamino.ErrForbidden) {
					return nil
				}
				return err
			}}
		}},
	{Name: "fit-unasked", What: "whether a disk fits its pool is not asked",
		ports: func() *tampering { return &tampering{fits: true} }},
	{Name: "withdrawn-shown", What: "a version that was rolled back is taken for a good one", Sim: true,
		ports: versions(func(v *kamino.Artifact) {
			v.Excluded, v.Tags = false, maps.Clone(v.Tags)
			delete(v.Tags, kamino.TagBad)
		})},
	{Name: "reboot-unseen", What: "a node that is about to be rebooted is taken", Sim: true,
		ports: func() *tampering {
			return &tampering{node: func(n *kamino.Node) { delete(n.Annotations, kamino.KuredPendingReboot.Annotation) }}
		}},
	{Name: "vm-by-name", What: "a machine of the same name is taken for the donor", ports: sameName},
	{Name: "boot-ignored", What: "a donor that has booted since is taken for sealed",
		ports: func() *tampering {
			boots := map[string]string{}
			return &tampering{node: func(n *kamino.Node) { n.BootID = first(boots, n.Name, n.BootID) }}
		}},
	{Name: "half-snapshot", What: "a snapshot that is being copied is taken for complete",
		ports: func() *tampering {
			return &tampering{found: func(kind kamino.Kind, list []kamino.Artifact) []kamino.Artifact {
				for i := range list {
					if s := &list[i]; kind == kamino.KindSnapshot && s.State != kamino.Failed && s.State != kamino.Deleting {
						s.State, s.Ready = kamino.Succeeded, true
					}
				}
				return list
			}}
		}},
	{Name: "person-overwritten", What: "an image that somebody chose during the run is replaced",
		ports: func() *tampering {
			images := map[string]string{}
			return &tampering{pool: func(p *kamino.Pool) { p.Model.Image = first(images, string(p.ID), p.Model.Image) }}
		}},
	{Name: "refusals-ignored", What: "a pool that must not be touched is",
		ports: func() *tampering { return &tampering{pool: func(p *kamino.Pool) { p.Refusals = nil }} }},
	{Name: "pulse-ignored", What: "a kubelet that stopped is taken for alive",
		ports: func() *tampering {
			beats := time.Unix(0, 0)
			return &tampering{pulse: func(time.Time) time.Time { beats = beats.Add(time.Second); return beats }}
		}},
	{Name: "seal-pod-forgotten", What: "a seal pod that has not started is not removed",
		ports: func() *tampering {
			return &tampering{keepPods: true, sealPod: func(p *kamino.AgentPod) { p.Exists = p.Exists && p.Started }}
		}},
	{Name: "scale-out-forgotten", What: "nobody remembers that new nodes were asked for",
		ports: func() *tampering { return &tampering{setLease: func(l *kamino.Lease) { l.Ledger.Owed = nil }} }},
	{Name: "sealing-unrecorded", What: "a donor that Kubernetes forgets is forgotten",
		ports: func() *tampering { return &tampering{setLease: func(l *kamino.Lease) { l.Record.Sealing = false }} }},
	{Name: "former-unsaved", What: "the model is replaced without being saved",
		ports: func() *tampering { return &tampering{setLease: func(l *kamino.Lease) { l.Ledger.Former = nil }} }},
	{Name: "canaries-unseen", What: "canaries are not looked for once they are asked for", Sim: true,
		ports: func() *tampering {
			return &tampering{canaries: func([]kamino.Canary) []kamino.Canary { return nil }}
		}},
	{Name: "owner-unseen", What: "who else writes a pool's recipe is not seen", Sim: true,
		ports: func() *tampering { return &tampering{pool: func(p *kamino.Pool) { p.Owner = nil }} }},
	{Name: "model-each-night", What: "the model is written for each version, also where it names the definition", Sim: true,
		ports: func() *tampering {
			return &tampering{target: func(t *kamino.Target) { t.Reference = kamino.ByVersion }}
		}},
	{Name: "not-held", By: "I31", What: "a donor that was asked out of service is taken for one that is", Sim: true,
		ports: func() *tampering { return &tampering{believes: true} }},
	{Name: "patch-in-own-way", What: "the pod of a patch holds up the drain of the process that adopts its run", Sim: true,
		ports: func() *tampering {
			return &tampering{drained: func(n *kamino.Node) {
				n.Annotations = maps.Clone(n.Annotations)
				delete(n.Annotations, kamino.AnnotationRun)
			}}
		}},
	{Name: "patch-of-another-unseen", By: "I32", What: "a node is sealed while another run upgrades its packages", Sim: true,
		ports: func() *tampering { return &tampering{unstuck: true} }},
	{Name: "machine-unnamed", What: "a pod of the agent works on whatever machine has the node's name", Sim: true,
		ports: func() *tampering { return &tampering{ordered: func(n *kamino.Node) { n.SystemUUID = "" }} }},
	{Name: "hold-remains", By: "I31", What: "what is left of a hold is not undone", Sim: true,
		ports: func() *tampering {
			return &tampering{holding: func(h *kamino.Holding) {
				if *h == kamino.Remains {
					*h = kamino.InService
				}
			}}
		}},
	{Name: "lease-kept", What: "a run that ends well keeps its lease",
		ports: func() *tampering {
			var holder, process string
			return &tampering{setLease: func(l *kamino.Lease) {
				if l.Holder == "" {
					l.Holder, l.Process = holder, process
				}
				holder, process = l.Holder, l.Process
			}}
		}},
}

func versions(f func(*kamino.Artifact)) func() *tampering {
	return func() *tampering {
		return &tampering{found: func(kind kamino.Kind, list []kamino.Artifact) []kamino.Artifact {
			for i := range list {
				if kind == kamino.KindVersion {
					f(&list[i])
				}
			}
			return list
		}}
	}
}

// sameName shows for every name the VM that was seen there first.
func sameName() *tampering {
	vms := map[string]string{}
	return &tampering{
		node:     func(n *kamino.Node) { n.SystemUUID = first(vms, string(n.ProviderID), n.SystemUUID) },
		instance: func(i *kamino.Instance) { i.VMID = first(vms, string(i.ID), i.VMID) },
	}
}

// first keeps what was seen first.
func first(seen map[string]string, key, value string) string {
	if _, ok := seen[key]; !ok {
		seen[key] = value
	}
	return seen[key]
}
