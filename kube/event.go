package kube

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

const (
	// eventTimeout bounds an event: nothing depends on it.
	eventTimeout = 5 * time.Second
	// maxMessage of events (k8s.io/kubernetes v1.36.3, pkg/apis/core/validation/events.go).
	maxMessage = 1024
)

// eventType is Warning for what somebody should look at.
func eventType(reason string) string {
	switch reason {
	case kamino.EventProofFailed, kamino.EventProofInconclusive, kamino.EventPatchFailed, kamino.EventRunFailed, kamino.EventDonorAway:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Record writes an event of the node. It waits for the answer, but not for
// long, and does not report whether it was written.
func (c *Cluster) Record(ctx context.Context, node kamino.Node, run, reason, message string) {
	// The name stands for the UID, as in the events of kubelet: kubectl
	// describe node looks for that.
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: types.UID(node.Name)}
	_ = c.record(ctx, about, eventName(node.Name, run, reason), reason, message, c.opts.Clock.Now(), eventType(reason))
}

// RecordOnce writes an event of an object that is not a node. Its name is made of a key, so that
// nobody writes it a second time as long as it is kept.
func (c *Cluster) RecordOnce(ctx context.Context, about corev1.ObjectReference, key, reason, message string,
	at time.Time, warning bool) error {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	return c.record(ctx, about, eventName(about.Name, string(about.UID), key), reason, message, at, kind)
}

func (c *Cluster) record(ctx context.Context, about corev1.ObjectReference, name, reason, message string, at time.Time, kind string) error {
	ctx, cancel := c.opts.Clock.WithTimeout(ctx, eventTimeout)
	defer cancel()
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	source := corev1.EventSource{Component: managedBy}
	if about.Kind == "Node" {
		source.Host = about.Name
	}
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault) // of what has none
	when := metav1.NewTime(at)
	_, err := c.api.events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: about, Reason: reason, Message: message, Type: kind,
		FirstTimestamp: when, LastTimestamp: when, Count: 1,
		Source:              source,
		ReportingController: managedBy,
		ReportingInstance:   c.opts.Process,
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// eventName is the same for who writes the same event again.
func eventName(object string, key ...string) string {
	sum := fnv.New64a()
	for _, k := range key {
		_, _ = sum.Write([]byte(k))
	}
	// A name may not have a dash or a dot before that dot.
	return fmt.Sprintf("%s.%016x", strings.TrimRight(object[:min(len(object), 200)], "-."), sum.Sum64())
}
