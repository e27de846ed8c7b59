package kamino

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Signal is a place on a node where another program writes something that selection needs: an
// annotation, a condition or a label. Any program that patches nodes can be connected this way.
type Signal struct {
	Annotation string `json:"annotation,omitempty"`
	Condition  string `json:"condition,omitempty"` // type of a condition that is True
	Label      string `json:"label,omitempty"`     // below node-restriction.kubernetes.io
}

// The signals of kured, which the original script was validated with, and of kamino patch.
var (
	KaminoPatched      = Signal{Label: LabelPatched}
	KuredPendingReboot = Signal{Annotation: "weave.works/kured-reboot-in-progress"}
	KuredLastPatch     = Signal{Annotation: "weave.works/kured-most-recent-reboot-needed"}
)

const (
	conditionPrefix = "condition:"
	labelPrefix     = "label:"
)

var (
	annotationName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	conditionType  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_./]*$`)
)

// ParseSignal reads a signal as people write it: the name of an annotation, "condition:" and the
// type of a condition, or "label:" and a label that nodes cannot write.
func ParseSignal(s string) (Signal, error) {
	if c, ok := strings.CutPrefix(s, conditionPrefix); ok {
		if !conditionType.MatchString(c) || c == "Ready" {
			return Signal{}, WithHint(fmt.Errorf("invalid node condition type %q (Ready is not allowed)", c),
				"kubectl describe node lists the conditions")
		}
		return Signal{Condition: c}, nil
	}
	if key, ok := strings.CutPrefix(s, labelPrefix); ok {
		label, err := ParseLabelDemand(key)
		if err != nil || label.Value != "" {
			return Signal{}, WithHint(fmt.Errorf("invalid patch label %q", s), "for instance %s", KaminoPatched)
		}
		return Signal{Label: label.Key}, nil
	}
	if !annotationName.MatchString(s) {
		return Signal{}, WithHint(fmt.Errorf("invalid annotation name %q", s),
			"for instance %s, or condition:TYPE for a node's condition", KuredLastPatch.Annotation)
	}
	return Signal{Annotation: s}, nil
}

// String returns the text that ParseSignal reads.
func (s Signal) String() string {
	if s.Condition != "" {
		return conditionPrefix + s.Condition
	}
	if s.Label != "" {
		return labelPrefix + s.Label
	}
	return s.Annotation
}

// On reads the signal on a node. The value of a condition is the time since when it is True.
func (s Signal) On(n Node) (value string, ok bool) {
	if s.Label != "" {
		value, ok = n.Labels[s.Label]
		return value, ok
	}
	if s.Condition == "" {
		value, ok = n.Annotations[s.Annotation]
		return value, ok
	}
	for _, c := range n.Conditions {
		if c.Type == s.Condition && c.Status == "True" {
			return c.Since.UTC().Format(time.RFC3339), true
		}
	}
	return "", false
}

// Names of what a patch writes on a node.
const (
	// LabelPatched is when a node was patched, as PatchedFormat. A kubelet cannot write it on its
	// own node, nor register with it (admission plugin NodeRestriction,
	// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
	LabelPatched = "kamino.node-restriction.kubernetes.io/patched"
	// PatchedFormat is RFC 3339 without colons, which values of labels may not have.
	PatchedFormat = "2006-01-02T150405Z"
)
