package nodeapi

import (
	"fmt"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Holder is who a kubeconfig's client certificate says its user is.
type Holder struct {
	Path    string // of the kubeconfig
	Subject string // such as "CN=client,O=system:masters" (RFC 2253)
	// Node is whether it names one node, as kubelet's own credential does
	// (https://kubernetes.io/docs/reference/access-authn-authz/node/).
	Node bool
}

// Holders are those of every kubeconfig of Paths on the disk that has a client certificate. One
// that cannot be read is an error: nobody knows whose it is.
func Holders(d *disk.Disk) (all []Holder, err error) {
	for _, name := range pathsOf(d) {
		if !d.Exists(name) {
			continue
		}
		c, err := load(d, name)
		if err != nil {
			return nil, fmt.Errorf("read kubelet's credentials from /%s: %w", name, err)
		}
		if c.leaf != nil {
			all = append(all, Holder{name, c.leaf.Subject.String(), strings.HasPrefix(c.leaf.Subject.CommonName, "system:node:")})
		}
	}
	return all, nil
}
