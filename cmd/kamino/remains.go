package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/engine"
)

// remainder is something of Kamino's that no run removes: it remains when Kamino is uninstalled,
// until somebody types Remove.
type remainder struct {
	Pool   kamino.PoolID `json:"pool,omitempty"` // "": of the whole cluster
	What   string        `json:"what"`
	ID     string        `json:"id,omitempty"`     // at the cloud
	Needed string        `json:"needed,omitempty"` // who needs it: it has to stay until that is over
	Remove string        `json:"remove,omitempty"`

	kind kamino.Kind // of an artifact at the cloud
}

// remains reads what would remain of Kamino in the cluster and at the cloud, in the order in which
// it can be removed. A pool that is gone has none. Reads that failed are the error beside the list.
func (c *restoreCommand) remains(ctx context.Context, eng *engine.Engine) ([]remainder, error) {
	ctx = kamino.Looking(ctx)
	nodes, err := eng.Cluster.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	leases, err := eng.Cluster.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	out, homes, errs := []remainder{}, map[string]remainder{}, []error(nil)
	original := len(c.opts.Pools) == 0 // whether each pool that was read has its original model again
	for _, id := range poolsOf(ctx, eng.Provider, nodes, leases) {
		if len(c.opts.Pools) > 0 && !slices.ContainsFunc(c.opts.Pools, func(name string) bool {
			return strings.EqualFold(name, id.Name()) || strings.EqualFold(name, string(id))
		}) {
			continue
		}
		pool, err := eng.Provider.Pool(ctx, id)
		switch {
		case errors.Is(err, kamino.ErrNotFound):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("read pool %s: %w", id.Name(), err))
			continue
		}
		found, err := remainsOf(ctx, eng.Provider, pool, homes)
		out, errs = append(out, found...), append(errs, err)
	}
	boots := func(r remainder) bool { return strings.HasPrefix(r.Needed, nextBoots) }
	original = original && errors.Join(errs...) == nil && !slices.ContainsFunc(append(slices.Collect(maps.Values(homes)), out...), boots)
	// Containers of versions come after them, innermost first, and stay while a version in them is
	// needed.
	holds := ""
	if slices.ContainsFunc(out, func(r remainder) bool { return r.Needed != "" }) {
		holds = "it holds what is still needed"
	}
	kinds := eng.Provider.Homes()
	slices.Reverse(kinds)
	for _, kind := range kinds {
		for _, id := range slices.Sorted(maps.Keys(homes)) {
			if home := homes[id]; home.kind == kind {
				home.Needed = cmp.Or(home.Needed, holds)
				out = append(out, home)
			}
		}
	}
	return append(out, inCluster(nodes, leases, original)...), errors.Join(errs...)
}

// poolsOf returns the pools that nodes or leases name, sorted.
func poolsOf(ctx context.Context, provider kamino.Provider, nodes []kamino.Node, leases []kamino.Lease) []kamino.PoolID {
	var out []kamino.PoolID
	for _, l := range leases {
		out = append(out, l.Pool)
	}
	for _, n := range nodes {
		if id, err := provider.PoolOf(ctx, n.ProviderID); err == nil { // a node without a pool is ignored
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// remainsOf returns what a pool has at the cloud. Containers of versions go into homes, because
// pools share them.
func remainsOf(ctx context.Context, provider kamino.Provider, pool kamino.Pool, homes map[string]remainder) ([]remainder, error) {
	var out []remainder
	var errs []error
	names := map[kamino.Kind]string{kamino.KindSnapshot: kamino.SnapshotName(pool.Name),
		kamino.KindDefinition: kamino.DefinitionName(pool.Name), kamino.KindGallery: pool.Gallery}
	for _, kind := range append([]kamino.Kind{kamino.KindVersion, kamino.KindSnapshot, kamino.KindParameter}, provider.Homes()...) {
		found, err := provider.Find(ctx, pool, kind, names[kind])
		if err != nil {
			errs = append(errs, fmt.Errorf("read each %s of pool %s: %w", kind, pool.Name, err))
		}
		for _, a := range found {
			r := remainder{Pool: pool.ID, What: string(kind) + " " + a.Name, ID: a.ID, Needed: needed(pool, a),
				Remove: removal(kind, a.ID), kind: kind}
			switch {
			case slices.Contains(provider.Homes(), kind):
				r.Pool = ""
				homes[a.ID] = r
			case a.OfFormer:
				r.Needed = "an earlier pool of this name made it: make sure that no other cluster uses it"
				out = append(out, r)
			case kamino.ParseCopy(a).Ours() || kind == kamino.KindParameter:
				out = append(out, r)
			}
		}
	}
	return out, errors.Join(errs...)
}

const nextBoots = "the next node boots from it: "

// needed returns who needs an artifact.
func needed(pool kamino.Pool, a kamino.Artifact) string {
	var by []string
	if a.InModel || strings.EqualFold(pool.Model.Image, a.ID) {
		by = append(by, nextBoots+"kamino rollback --pool "+pool.Name+" --to original, with --dry-run to see what that needs")
	}
	if a.Instances > 0 {
		by = append(by, boot.Count(a.Instances, "instance")+" booted from it")
	}
	return strings.Join(by, "; ")
}

// removal returns the cloud's command that deletes an artifact; "" if none is known.
func removal(kind kamino.Kind, id string) string {
	switch {
	case cloudOf(id) == onAzure:
		return "az resource delete --ids " + id
	case kind == kamino.KindParameter:
		return "aws ssm delete-parameter --name " + id
	case strings.HasPrefix(id, "ami-"):
		return "aws ec2 deregister-image --delete-associated-snapshots --image-id " + id
	case strings.HasPrefix(id, "snap-"):
		return "aws ec2 delete-snapshot --snapshot-id " + id
	}
	return ""
}

// inCluster returns what is in the cluster: on nodes, and in the namespace kamino-system. The
// leases hold the former models, which nobody needs once all pools have their original models
// again.
func inCluster(nodes []kamino.Node, leases []kamino.Lease, original bool) []remainder {
	labels, annotations := map[string]int{}, map[string]int{}
	var out []remainder
	for _, n := range nodes {
		for key := range n.Labels {
			if key == kamino.LabelPatched {
				labels[key]++
			}
		}
		for key := range n.Annotations {
			if strings.HasPrefix(key, "kamino.dev/") && key != kamino.AnnotationRun {
				annotations[key]++
			}
		}
		for _, t := range n.Taints {
			if t.Key == kamino.TaintPatchFailed {
				out = append(out, remainder{What: "taint " + t.Key + " on node " + n.Name, Needed: "its patch failed: check the node first",
					Remove: "kubectl taint nodes " + n.Name + " " + t.Key + "-"})
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, remainder{What: "label " + key + " on " + boot.Count(labels[key], "node"), Remove: "kubectl label nodes -l " +
			key + " " + key + "-"})
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		out = append(out, remainder{What: "annotation " + key + " on " + boot.Count(annotations[key], "node"),
			Remove: "kubectl annotate nodes --all " + key + "-"})
	}
	// kubernetes#130887, see notAdmitted in kube/.
	last, rollback := "unless Kamino is never installed again: an API server that saw the last binding of such a policy go refuses every seal pod until it is restarted", ""
	if len(leases) > 0 {
		if !original {
			last, rollback = "it holds the leases",
				"kamino rollback needs them until each pool is back at its original model, or keeps its image for good"
		}
		out = append(out, remainder{What: "the leases of " + boot.Count(len(leases), "pool") + ", with the former models", Needed: rollback,
			Remove: "kubectl delete lease -n " + kamino.SystemNamespace + " -l app.kubernetes.io/managed-by=kamino"})
	}
	return append(out,
		remainder{What: "lists of packages of versions", Remove: "kubectl delete configmap -n " + kamino.SystemNamespace +
			" -l app.kubernetes.io/name=kamino-packages"},
		remainder{What: "the kind NodePrototype and its objects, which helm uninstall leaves",
			Remove: "kubectl delete crd --ignore-not-found nodeprototypes.kamino.dev"},
		remainder{What: "namespace " + kamino.SystemNamespace +
			", roles and admission policies of kamino init; those of the chart go with helm uninstall kamino-base", Needed: last,
			Remove: "kamino init -o yaml | kubectl delete --ignore-not-found -f -"},
		remainder{What: "namespace " + kamino.SystemNamespace + " of the chart", Needed: last,
			Remove: "kubectl delete namespace --ignore-not-found " + kamino.SystemNamespace})
}

// printRemains writes the list as a script that skips what is still needed.
func printRemains(w io.Writer, all []remainder) {
	fmt.Fprint(w, "\n# What remains of Kamino, in the order in which it can be removed. What is still needed is commented out.\n")
	for _, r := range all {
		about := r.What
		if r.Pool != "" {
			about = "pool " + r.Pool.Name() + ": " + about
		}
		fmt.Fprintf(w, "\n# %s\n", about)
		if r.Needed != "" {
			fmt.Fprintf(w, "# needed: %s\n", r.Needed)
			r.Remove = "# " + r.Remove
		}
		fmt.Fprintln(w, r.Remove)
	}
}
