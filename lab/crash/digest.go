package crash

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"kamino.dev/kamino"
)

// masks take names and times out of a state, so that two runs can be compared.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.0-9]*(Z|[+-]\d\d:\d\d)?`), "<time>"},
	{regexp.MustCompile(`[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "<hash>"},
	{regexp.MustCompile(`\b(run-\d+|\d{8}-\d{6}-[0-9a-f]{6})\b`), "<run>"},
	{regexp.MustCompile(`"etag": ?"[^,}]*`), `"etag":<etag>`},
	{regexp.MustCompile(`"kamino-epoch": ?"\d+"`), `"kamino-epoch":"<epoch>"`},
	{regexp.MustCompile(`kamino-epoch:\d+`), "kamino-epoch:<epoch>"},
	{regexp.MustCompile(`2026\.1[12]\.\d\d`), "<day>"},
	{regexp.MustCompile(`([Nn]once[\\": ]+)[A-Z2-7]{20,}`), "${1}<nonce>"},
	{regexp.MustCompile(`boot \d+ of`), "boot of"},
	// New instances: one that is asked for twice has another number.
	{regexp.MustCompile(`(virtualMachines/|k8s[-_]pool1[-_]vmss_|k8s-pool1-vmss00000|"instanceId": ?")[2-9]`), "${1}<new>"},
	{regexp.MustCompile(`\b(ami|snap|vol|i|lt)-[0-9a-f]{17}`), "${1}-<id>"},
	{regexp.MustCompile(`ip-10-0-0-(1[3-9]|[2-9]\d|\d{3})`), "ip-<new>"},
	{regexp.MustCompile(`_OsDisk_\d+_[0-9a-zA-Z]+`), "_OsDisk_<id>"},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.with)
	}
	return text
}

// Digest is the state that matters in the end, a line a thing, names and times
// masked: what the cloud has, how the machines stand, what is on nodes and
// leases, and which pods are left.
func (w *World) Digest() ([]string, error) {
	out, err := w.lines()
	if err != nil {
		return nil, err
	}
	if w.shape.Patch {
		out = append(out, w.patchLines()...)
	}
	nodes, err := w.station.admin.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		out = append(out, masked(fmt.Sprintf("node %s ready=%v unschedulable=%v patched=%v taints=%v annotations=%v", n.Name,
			nodeutil.IsNodeReady(n),
			n.Spec.Unschedulable, n.Labels[kamino.LabelPatched] != "", n.Spec.Taints, n.Annotations)))
	}
	pods, err := w.station.admin.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		out = append(out, masked("pod "+pods.Items[i].Namespace+"/"+pods.Items[i].Name+" on "+pods.Items[i].Spec.NodeName))
	}
	leases, err := w.station.leases.Leases(w.ctx)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	for _, l := range leases {
		// How long past runs took is told by whoever saw their ends.
		former, original := "", ""
		if l.Ledger.Former != nil {
			former = l.Ledger.Former.Image
		}
		if l.Ledger.Original != nil {
			original = l.Ledger.Original.Image
		}
		out = append(out, masked(fmt.Sprintf("lease %s holder=%q record=%+v former=%s original=%s", l.Pool, l.Holder, l.Record,
			former, original)))
	}
	sort.Strings(out)
	return out, nil
}

// differences are the lines that only one of two digests has.
func differences(want, have []string) []string {
	var out []string
	for _, line := range want {
		if !slices.Contains(have, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range have {
		if !slices.Contains(want, line) {
			out = append(out, "+ "+line)
		}
	}
	return out
}

// lines are what the cloud has.
func (w *onAzure) lines() (out []string, err error) {
	for _, e := range w.cloud.State() {
		if strings.Contains(strings.ToLower(e.ID), "/disks/") {
			continue // an instance's line tells its disk's content
		}
		doc, err := json.Marshal(e.Document)
		if err != nil {
			return nil, fmt.Errorf("encode state: %w", err)
		}
		out = append(out, masked(fmt.Sprintf("%s %s %s", e.ID, doc, e.CustomDataHash)))
	}
	return out, nil
}
