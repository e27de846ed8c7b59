// Package nodeapi changes one object of the cluster, the node's own, with kubelet's own
// credentials: two requests over plain HTTP, for which a Kubernetes client library would weigh more
// than the rest of the agent.
package nodeapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// Paths are where kubelet's kubeconfig is on the distributions we know: kubeadm's, AKS's and
// aks-engine's. A kubelet with another root has it there (package roots).
var Paths = []string{"etc/kubernetes/kubelet.conf", "var/lib/kubelet/kubeconfig", "etc/kubernetes/kubelet-kubeconfig"}

// Credentials are kubelet's way to the API server, wholly in memory.
type Credentials struct {
	Server string
	Token  string
	Path   string // the kubeconfig they came from
	// Insecure is what the kubeconfig says of TLS (insecure-skip-tls-verify). It is not honoured:
	// Client refuses.
	Insecure bool
	tls      *tls.Config
	leaf     *x509.Certificate
	plugin   *plugin
}

type cluster struct {
	Server   string `yaml:"server"`
	CA       string `yaml:"certificate-authority"`
	CAData   string `yaml:"certificate-authority-data"`
	Insecure bool   `yaml:"insecure-skip-tls-verify"`
	Name     string `yaml:"tls-server-name"`
}

type user struct {
	Cert      string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	Key       string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`

	Exec *plugin `yaml:"exec"`
}

type kubeconfig struct {
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Current string `yaml:"current-context"`
}

// pathsOf are Paths, with the roots of the disk's kubelets.
func pathsOf(d *disk.Disk) []string { return roots.Of(d).Expand(Paths) }

// Load reads the first kubeconfig of Paths that exists on the disk, with the files it refers to.
func Load(d *disk.Disk) (*Credentials, error) {
	for _, name := range pathsOf(d) {
		if d.Exists(name) {
			c, err := load(d, name)
			if err != nil {
				return nil, fmt.Errorf("read kubelet's credentials from /%s: %w", name, err)
			}
			return c, nil
		}
	}
	return nil, errors.New("read kubelet's credentials: no kubeconfig at /" + strings.Join(Paths, ", /"))
}

// current is the cluster and the user of the current context, or the first ones.
func (k kubeconfig) current() (cluster, user) {
	cluster, user := k.Clusters[0].Cluster, k.Users[0].User
	for _, c := range k.Contexts {
		if c.Name != k.Current {
			continue
		}
		for _, entry := range k.Clusters {
			if entry.Name == c.Context.Cluster {
				cluster = entry.Cluster
			}
		}
		for _, entry := range k.Users {
			if entry.Name == c.Context.User {
				user = entry.User
			}
		}
	}
	return cluster, user
}

func load(d *disk.Disk, name string) (*Credentials, error) {
	data, err := d.ReadFile(name, disk.Small)
	if err != nil {
		return nil, err
	}
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if len(k.Clusters) == 0 || len(k.Users) == 0 {
		return nil, errors.New("decode: no cluster or no user")
	}
	cluster, user := k.current()
	if u, err := url.Parse(cluster.Server); err != nil || u.Host == "" {
		return nil, fmt.Errorf("server %q is not a URL", cluster.Server)
	}
	get := func(inline, file string) ([]byte, error) {
		if inline != "" || file == "" {
			return base64.StdEncoding.DecodeString(inline)
		}
		if !strings.HasPrefix(file, "/") {
			file = path.Join(path.Dir(name), file)
		}
		return d.ReadFile(file, disk.Small)
	}
	c := &Credentials{Server: strings.TrimSuffix(cluster.Server, "/"), Token: user.Token, Path: name,
		Insecure: cluster.Insecure, tls: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.Name}}
	ca, err := get(cluster.CAData, cluster.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate-authority: %w", err)
	}
	if len(ca) > 0 {
		c.tls.RootCAs = x509.NewCertPool()
		if !c.tls.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("certificate-authority: no certificate in it")
		}
	}
	if user.TokenFile != "" {
		token, err := get("", user.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("tokenFile: %w", err)
		}
		c.Token = strings.TrimSpace(string(token))
	}
	if c.plugin = user.Exec; c.plugin != nil {
		return c, c.plugin.check(d, name)
	}
	return c, c.pair(get, user.CertData, user.Cert, user.KeyData, user.Key)
}

func (c *Credentials) pair(get func(inline, file string) ([]byte, error), certData, cert, keyData, key string) error {
	certPEM, err := get(certData, cert)
	if err != nil {
		return fmt.Errorf("client-certificate: %w", err)
	}
	keyPEM, err := get(keyData, key)
	if err != nil {
		return fmt.Errorf("client-key: %w", err)
	}
	if len(certPEM) == 0 {
		if c.Token == "" {
			return errors.New("neither a client certificate nor a token nor a program that gives one (exec)")
		}
		return nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("client-certificate: %w", err)
	}
	c.tls.Certificates = []tls.Certificate{pair}
	if block, _ := pem.Decode(certPEM); block != nil {
		c.leaf, _ = x509.ParseCertificate(block.Bytes)
	}
	return nil
}
