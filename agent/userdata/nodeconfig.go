package userdata

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/agent/strict"
	"kamino.dev/kamino/internal/lazyregexp"
)

// The document's type.
const (
	APIVersion = "kamino.dev/v1alpha1"
	Kind       = "NodeConfig"
)

// Most is the largest document: Azure's limit of userData (64 KiB) before base64.
const Most = 64 << 10

// Join methods.
const (
	JoinKeep    = "keep"
	JoinToken   = "bootstrapToken"
	JoinFile    = "file"
	JoinCommand = "command"
)

// NodeConfig is the configuration of a node. Documented in docs/userdata.md, as a schema in
// docs/schemas/nodeconfig.v1alpha1.json.
type NodeConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	// Generation grows with every change; a running node ignores a document that is not newer than
	// its own.
	Generation int64 `yaml:"generation"`
	// Share is the percentage of running nodes that take this generation now; nil: all. It is not a
	// part of what the document configures, so it can be raised without a new generation. Only the
	// operator raises it: a controller that stops by itself would need an API server, which a bad
	// configuration may take away, and waves by time would reach all nodes while nobody looks.
	Share      *int       `yaml:"share,omitempty"`
	Cluster    Cluster    `yaml:"cluster,omitempty"`
	Join       Join       `yaml:"join"`
	Kubelet    Kubelet    `yaml:"kubelet,omitempty"`
	Containerd Containerd `yaml:"containerd,omitempty"`
}

// Cluster is what the node joins. Not used with join method keep.
type Cluster struct {
	Endpoint string   `yaml:"endpoint,omitempty"` // https URL of the API server
	CA       string   `yaml:"ca,omitempty"`       // PEM, or PEM in base64
	DNS      []string `yaml:"dns,omitempty"`      // addresses of the cluster's DNS
	Domain   string   `yaml:"domain,omitempty"`   // cluster.local unless given
}

// Join is how the node obtains its client credential.
type Join struct {
	Method  string   `yaml:"method"`
	Token   string   `yaml:"token,omitempty"`   // bootstrapToken: ID.SECRET
	File    string   `yaml:"file,omitempty"`    // file: absolute path of a token or a bootstrap kubeconfig
	Command []string `yaml:"command,omitempty"` // command: prints a token or a bootstrap kubeconfig
}

// Kubelet is kubelet's part.
type Kubelet struct {
	Version string            `yaml:"version,omitempty"` // vX.Y.Z, of those that the image holds
	Config  map[string]any    `yaml:"config,omitempty"`  // fragment of a KubeletConfiguration
	Args    []string          `yaml:"args,omitempty"`    // further command line arguments
	Labels  map[string]string `yaml:"labels,omitempty"`
	Taints  []Taint           `yaml:"taints,omitempty"`
}

// Taint is one taint of a node, set when the node registers. On a running node it is changed where
// kubelet's credential may do that.
type Taint struct {
	Key    string `json:"key" yaml:"key"`
	Value  string `json:"value,omitempty" yaml:"value,omitempty"`
	Effect string `json:"effect" yaml:"effect"`
}

// Containerd is the container runtime's part.
type Containerd struct {
	Config string `yaml:"config,omitempty"` // TOML, imported by containerd's own configuration
}

// Parse decodes strictly and validates: an unknown or repeated field, a second document and a wrong
// value are errors that name the line or the field.
func Parse(data []byte) (*NodeConfig, error) {
	if len(data) > Most {
		return nil, fmt.Errorf("decode NodeConfig: %d bytes are more than %d", len(data), Most)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("decode NodeConfig: not UTF-8 text (is it base64 twice, or compressed?)")
	}
	var c NodeConfig
	if err := strict.Decode(data, &c); err != nil {
		return nil, fmt.Errorf("decode NodeConfig: %w", err)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("validate NodeConfig: %w", err)
	}
	return &c, nil
}

// Takes reports whether a node is in the share that takes this generation. Each node decides alone,
// by a hash of the generation and its name: a node in a share is in every larger one, and each
// generation begins with other nodes.
func (c *NodeConfig) Takes(node string) bool {
	if c.Share == nil {
		return true
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", c.Generation, node))
	return binary.BigEndian.Uint64(sum[:])%100 < uint64(*c.Share)
}

// Generation is the document's generation as far as it can be read; 0 where it cannot.
func Generation(data []byte) int64 {
	var c struct {
		Generation int64 `yaml:"generation"`
	}
	if len(data) > Most || yaml.Unmarshal(data, &c) != nil {
		return 0
	}
	return c.Generation
}

var (
	versionText  = lazyregexp.New(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	tokenText    = lazyregexp.New(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	nameText     = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	dnsName      = lazyregexp.New(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	argumentText = lazyregexp.New(`^--[a-z][a-z0-9-]*(=[^\s"'\\$%]*)?$`)
)

func (c *NodeConfig) validate() error {
	if c.APIVersion != APIVersion || c.Kind != Kind {
		return fmt.Errorf("apiVersion and kind are %q and %q, not %s and %s", c.APIVersion, c.Kind, APIVersion, Kind)
	}
	if c.Generation < 1 {
		return fmt.Errorf("generation: %d is not positive", c.Generation)
	}
	if c.Share != nil && (*c.Share < 0 || *c.Share > 100) {
		return fmt.Errorf("share: %d is not a percentage from 0 to 100", *c.Share)
	}
	if err := c.Join.validate(); err != nil {
		return err
	}
	if err := c.Cluster.validate(c.Join.Method != JoinKeep); err != nil {
		return err
	}
	return c.Kubelet.validate()
}

func (j Join) validate() error {
	if !slices.Contains([]string{JoinKeep, JoinToken, JoinFile, JoinCommand}, j.Method) {
		return fmt.Errorf("join.method: %q is not one of keep, bootstrapToken, file, command", j.Method)
	}
	for _, m := range []struct {
		method, field string
		given         bool
	}{{JoinToken, "token", j.Token != ""}, {JoinFile, "file", j.File != ""}, {JoinCommand, "command", len(j.Command) > 0}} {
		if m.given && m.method != j.Method {
			return fmt.Errorf("join.%s: belongs to method %s, but the method is %s", m.field, m.method, j.Method)
		}
		if !m.given && m.method == j.Method {
			return fmt.Errorf("join.%s: required with method %s", m.field, m.method)
		}
	}
	switch {
	case j.Token != "" && !tokenText.MatchString(j.Token):
		return errors.New("join.token: not of the form abcdef.0123456789abcdef")
	case j.File != "" && (!path.IsAbs(j.File) || path.Clean(j.File) != j.File):
		return fmt.Errorf("join.file: %q is not an absolute path", j.File)
	case len(j.Command) > 0 && !path.IsAbs(j.Command[0]):
		return fmt.Errorf("join.command[0]: %q is not an absolute path", j.Command[0])
	}
	return nil
}

func (c Cluster) validate(required bool) error {
	if !required && c.Endpoint == "" && c.CA == "" {
		return c.validateDNS()
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("cluster.endpoint: %q is not of the form https://HOST[:PORT]", c.Endpoint)
	}
	if _, err := c.Certificates(); err != nil {
		return err
	}
	return c.validateDNS()
}

func (c Cluster) validateDNS() error {
	for i, a := range c.DNS {
		if net.ParseIP(a) == nil {
			return fmt.Errorf("cluster.dns[%d]: %q is not an IP address", i, a)
		}
	}
	if c.Domain != "" && !dnsName.MatchString(c.Domain) {
		return fmt.Errorf("cluster.domain: %q is not a domain name", c.Domain)
	}
	return nil
}

// Certificates is the cluster's CA as PEM.
func (c Cluster) Certificates() ([]byte, error) {
	text := []byte(strings.TrimSpace(c.CA))
	if !bytes.HasPrefix(text, []byte("-----BEGIN")) {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil || len(decoded) == 0 {
			return nil, errors.New("cluster.ca: neither PEM nor PEM in base64")
		}
		text = decoded
	}
	rest, n := text, 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("cluster.ca: contains a %s; only certificates belong here", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("cluster.ca: certificate %d: %w", n+1, err)
		}
		n++
	}
	if n == 0 {
		return nil, errors.New("cluster.ca: no certificate in it")
	}
	return append(bytes.TrimSpace(text), '\n'), nil
}

// owned are fields of KubeletConfiguration that the agent sets itself, from other parts of the
// document or the machine.
var owned = [][2]string{
	{"apiVersion", "the agent writes it"}, {"kind", "the agent writes it"}, {"providerID", "the cloud provider sets it"},
	{"clusterDNS", "write cluster.dns"}, {"clusterDomain", "write cluster.domain"}, {"registerWithTaints", "write kubelet.taints"},
}

func (k Kubelet) validate() error {
	if k.Version != "" && !versionText.MatchString(k.Version) {
		return fmt.Errorf("kubelet.version: %q is not of the form v1.36.3", k.Version)
	}
	for _, field := range owned {
		if _, is := k.Config[field[0]]; is {
			return fmt.Errorf("kubelet.config.%s: not allowed here; %s", field[0], field[1])
		}
	}
	for i, a := range k.Args {
		name, _, _ := strings.Cut(a, "=")
		switch {
		case !argumentText.MatchString(a):
			return fmt.Errorf("kubelet.args[%d]: %q is not of the form --name=value without spaces, quotes, $ and %%", i, a)
		case name == "--config" || name == "--kubeconfig" || name == "--bootstrap-kubeconfig" || name == "--node-labels" ||
			name == "--hostname-override":
			return fmt.Errorf("kubelet.args[%d]: %s is the agent's", i, name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.Labels)) {
		value := k.Labels[key]
		if err := labelKey(key); err != nil {
			return fmt.Errorf("kubelet.labels: %q: %w", key, err)
		}
		if value != "" && !nameText.MatchString(value) {
			return fmt.Errorf("kubelet.labels: value %q of %s: not letters, digits and ._- of at most 63", value, key)
		}
	}
	for i, t := range k.Taints {
		if err := qualified(t.Key); err != nil {
			return fmt.Errorf("kubelet.taints[%d].key: %q: %w", i, t.Key, err)
		}
		if t.Value != "" && !nameText.MatchString(t.Value) {
			return fmt.Errorf("kubelet.taints[%d].value: %q: not letters, digits and ._- of at most 63", i, t.Value)
		}
		if t.Effect != "NoSchedule" && t.Effect != "PreferNoSchedule" && t.Effect != "NoExecute" {
			return fmt.Errorf("kubelet.taints[%d].effect: %q is not one of NoSchedule, PreferNoSchedule, NoExecute", i, t.Effect)
		}
	}
	return nil
}

func qualified(key string) error {
	prefix, name, has := strings.Cut(key, "/")
	if !has {
		prefix, name = "", key
	}
	if !nameText.MatchString(name) || has && (!dnsName.MatchString(prefix) || len(prefix) > 253) {
		return errors.New("not of the form [DOMAIN/]NAME")
	}
	return nil
}

// Labels that kubelet may set on itself in the kubernetes.io domains; others make it refuse to
// start (k8s.io/kubernetes pkg/util/... KubeletLabels,
// https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/ --node-labels).
var ownLabels = map[string]bool{
	"kubernetes.io/hostname": true, "kubernetes.io/os": true, "kubernetes.io/arch": true, "node.kubernetes.io/instance-type": true,
	"beta.kubernetes.io/instance-type": true, "beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true,
	"topology.kubernetes.io/region": true, "topology.kubernetes.io/zone": true,
	"failure-domain.beta.kubernetes.io/region": true, "failure-domain.beta.kubernetes.io/zone": true,
}

func labelKey(key string) error {
	if err := qualified(key); err != nil {
		return err
	}
	prefix, _, has := strings.Cut(key, "/")
	if !has || ownLabels[key] {
		return nil
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if prefix != domain && !strings.HasSuffix(prefix, "."+domain) {
			continue
		}
		for _, free := range []string{"kubelet.kubernetes.io", "node.kubernetes.io"} {
			if prefix == free || strings.HasSuffix(prefix, "."+free) {
				return nil
			}
		}
		return errors.New("kubelet may not set this label on its own node")
	}
	return nil
}
