package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

// markTries is how often a patch is written anew when the node changes between
// reading and writing, as it does with each status report of its kubelet.
const markTries = 5

// markTime is how long write tries by itself. A process that was frozen in its
// patch may have lost the run meanwhile: it must not write the node anew before
// the engine has looked at the lease.
const markTime = 10 * time.Second

// Mark writes our marks on a node. Nothing that is not ours is touched, not
// even the order of the taints, and spec.unschedulable least of all.
//
// What somebody else writes over AnnotationProtect while our mark is on the
// node stays as they wrote it. ErrConflict when the node was replaced, or is
// marked by another run than the one read. Asking again changes nothing.
func (c *Cluster) Mark(ctx context.Context, node kamino.Node, mark kamino.Mark) error {
	return c.mark(ctx, node, &mark)
}

// Unmark removes our marks from a node and restores what was there before, with the same care.
func (c *Cluster) Unmark(ctx context.Context, node kamino.Node) error { return c.mark(ctx, node, nil) }

// mark makes the marks on a node those given, nil for none.
func (c *Cluster) mark(ctx context.Context, node kamino.Node, mark *kamino.Mark) error {
	owner, err := ownerOf(node, mark)
	if err != nil {
		return err
	}
	return c.write(ctx, node, func(n kamino.Node) ([]byte, error) { return markPatch(n, owner, mark) })
}

// write patches a node, and writes the patch anew while others change the node; a nil patch says
// that there is nothing to do.
func (c *Cluster) write(ctx context.Context, node kamino.Node, patchOf func(kamino.Node) ([]byte, error)) error {
	current, began := node, c.opts.Clock.Now()
	for range markTries {
		patch, err := patchOf(current)
		if err != nil || patch == nil {
			return err
		}
		_, refused := c.api.nodes.Patch(ctx, node.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: fieldManager})
		// A JSON patch whose test fails is answered with 422, not with 409
		// (k8s.io/apiserver v0.36.3, pkg/endpoints/handlers/patch.go).
		if !apierrors.IsInvalid(refused) && !apierrors.IsConflict(refused) {
			return explain("patch nodes", refused)
		}
		if took := c.opts.Clock.Now().Sub(began); took > markTime {
			return fmt.Errorf("change node %s: its patch was refused after %s: %w", node.Name, took.Round(time.Second), kamino.ErrConflict)
		}
		revision := current.Revision
		if current, err = c.Node(ctx, node.Name); err != nil {
			return err
		}
		if current.UID != node.UID {
			return fmt.Errorf("node %s was replaced: %w", node.Name, kamino.ErrConflict)
		}
		if current.Revision == revision {
			// Not because of a change: it is the marks that are refused, or the
			// server was wrong.
			return explain("patch nodes", refused)
		}
	}
	return fmt.Errorf("change node %s: it changed %d times meanwhile: %w", node.Name, markTries, kamino.ErrConflict)
}

// ownerOf is the run whose marks may be changed.
func ownerOf(node kamino.Node, mark *kamino.Mark) (string, error) {
	if mark != nil {
		return mark.Run, nil
	}
	found, err := node.Mark()
	if err != nil || found == nil {
		return "", err
	}
	return found.Run, nil
}

// change is one operation of a JSON patch (RFC 6902).
type change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// markPatch is the JSON patch that marks the node as given, under the condition
// that the node still is as given; nil when there is nothing to do. Operations
// on single entries leave everything else as it is, known to us or not.
func markPatch(n kamino.Node, owner string, mark *kamino.Mark) ([]byte, error) {
	found, err := n.Mark()
	if err != nil {
		return nil, err
	}
	if found != nil && found.Run != owner {
		return nil, fmt.Errorf("node %s is marked by run %s: %w", n.Name, found.Run, kamino.ErrConflict)
	}
	var changes []change
	if mark != nil {
		if changes, err = put(n, found, *mark); err != nil {
			return nil, err
		}
	} else {
		changes = takeOff(n, found)
	}
	changes = append(changes, taintChanges(n, mark)...)
	if len(changes) == 0 {
		return nil, nil
	}
	return ifStill(n, changes)
}

// ifStill is a JSON patch that counts only while the node is as it was read.
func ifStill(n kamino.Node, changes []change) ([]byte, error) {
	if n.UID == "" || n.Revision == "" {
		return nil, errors.New("change node " + n.Name + ": it was not read from the cluster")
	}
	return json.Marshal(append([]change{
		{"test", "/metadata/uid", n.UID},
		{"test", "/metadata/resourceVersion", n.Revision},
	}, changes...))
}

func annotation(key string) string { return "/metadata/annotations/" + escaped(key) }

// escaped is a key in a path of a JSON patch (RFC 6901).
func escaped(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// put writes the annotations.
func put(n kamino.Node, found *kamino.Mark, mark kamino.Mark) ([]change, error) {
	text, err := json.Marshal(mark)
	if err != nil {
		return nil, fmt.Errorf("write mark of node %s: %w", n.Name, err)
	}
	if n.Annotations[kamino.AnnotationRun] == string(text) {
		return nil, nil
	}
	changes := append(withMap(n.Annotations, "/metadata/annotations"), change{"add", annotation(kamino.AnnotationRun), string(text)})
	// Both are written at once. What stands there later is somebody's decision.
	if found == nil {
		if now, ok := n.Annotations[kamino.AnnotationProtect]; ok != (mark.Protection != nil) || ok && now != *mark.Protection {
			return nil, fmt.Errorf("node %s: annotation %s has changed since the node was read: %w", n.Name, kamino.AnnotationProtect,
				kamino.ErrConflict)
		}
		changes = append(changes, change{"add", annotation(kamino.AnnotationProtect), "true"})
	}
	return changes, nil
}

// takeOff removes the annotations and gives AnnotationProtect its former value.
func takeOff(n kamino.Node, found *kamino.Mark) []change {
	var changes []change
	for _, key := range []string{kamino.AnnotationRun, kamino.AnnotationReceipt, kamino.AnnotationPackages, kamino.AnnotationSealFailure,
		kamino.AnnotationPatch, kamino.AnnotationPatchLook} {
		if _, ok := n.Annotations[key]; ok {
			changes = append(changes, change{Op: "remove", Path: annotation(key)})
		}
	}
	if found == nil || n.Annotations[kamino.AnnotationProtect] != "true" {
		return changes
	}
	switch was := found.Protection; {
	case was == nil:
		changes = append(changes, change{Op: "remove", Path: annotation(kamino.AnnotationProtect)})
	case *was != "true":
		changes = append(changes, change{"replace", annotation(kamino.AnnotationProtect), *was})
	}
	return changes
}

// taintChanges makes TaintBlock stand on the node exactly if the mark says so, and with no other
// effect: with any it would look like a mark.
func taintChanges(n kamino.Node, mark *kamino.Mark) []change {
	at := -1
	var others []change // from the end, so that those before keep their places
	for i, t := range slices.Backward(n.Taints) {
		switch {
		case t.Key != kamino.TaintBlock:
		case t.Effect == string(corev1.TaintEffectNoSchedule) && mark != nil && mark.Block:
			at = i
		default:
			others = append(others, change{Op: "remove", Path: fmt.Sprintf("/spec/taints/%d", i)})
		}
	}
	if mark == nil || !mark.Block {
		return others
	}
	return append(block(n, at, mark), others...)
}

// block makes the taint stand at that place, or anew where there is none.
func block(n kamino.Node, at int, mark *kamino.Mark) []change {
	path := fmt.Sprintf("/spec/taints/%d", at)
	want := corev1.Taint{Key: kamino.TaintBlock, Value: mark.Run, Effect: corev1.TaintEffectNoSchedule}
	switch {
	case at >= 0 && n.Taints[at].Value == want.Value:
		return nil
	case at >= 0:
		return []change{{"replace", path, want}}
	}
	return []change{withTaint(n, want)}
}

// withTaint adds a taint behind those that are there.
func withTaint(n kamino.Node, taint corev1.Taint) change {
	if len(n.Taints) == 0 {
		return change{"add", "/spec/taints", []corev1.Taint{taint}}
	}
	return change{"add", "/spec/taints/-", taint}
}

// untaint removes the taints of a key, from the end: the others keep their places.
func untaint(n kamino.Node, key string) (changes []change) {
	for i, t := range slices.Backward(n.Taints) {
		if t.Key == key {
			changes = append(changes, change{Op: "remove", Path: fmt.Sprintf("/spec/taints/%d", i)})
		}
	}
	return changes
}

// withMap adds a map where there is none yet.
func withMap(have map[string]string, path string) []change {
	if len(have) > 0 {
		return nil
	}
	return []change{{"add", path, map[string]string{}}}
}
