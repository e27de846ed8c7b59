package kamino

import (
	"fmt"
	"regexp"
	"strings"
)

// restrictedDomain holds the labels that a kubelet cannot set on its own Node:
// the admission plugin NodeRestriction forbids it, for the domain and those below
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
const restrictedDomain = "node-restriction.kubernetes.io"

// LabelDemand is a label that a donor has to carry. Everything else that
// selection reads of a node can be written by that node's own kubelet, so a
// compromised node can make itself the best donor; with a label of this kind
// somebody else has to vouch for it.
type LabelDemand struct {
	Key   string `json:"key"`   // below node-restriction.kubernetes.io
	Value string `json:"value"` // empty: any
}

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// ParseLabelDemand reads KEY or KEY=VALUE. The key must be one that nodes cannot
// set on themselves.
func ParseLabelDemand(s string) (LabelDemand, error) {
	key, value, _ := strings.Cut(s, "=")
	domain, name, _ := strings.Cut(key, "/")
	switch {
	case domain != restrictedDomain && !strings.HasSuffix(domain, "."+restrictedDomain):
		return LabelDemand{}, WithHint(fmt.Errorf("label %q proves nothing: a node can set it on itself", key),
			"use a key below %s, for instance %s/donor=true; kubectl label node NODE %[2]s/donor=true sets it", restrictedDomain, restrictedDomain)
	case !labelName.MatchString(name) || !labelValue.MatchString(value):
		return LabelDemand{}, WithHint(fmt.Errorf("invalid label %q", s), "use %s/NAME or %[1]s/NAME=VALUE", restrictedDomain)
	}
	return LabelDemand{Key: key, Value: value}, nil
}

// String is what ParseLabelDemand reads.
func (l LabelDemand) String() string {
	if l.Value == "" {
		return l.Key
	}
	return l.Key + "=" + l.Value
}

func (l LabelDemand) on(n Node) bool {
	value, ok := n.Labels[l.Key]
	return ok && (l.Value == "" || value == l.Value)
}
