package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"kamino.dev/kamino/lab/pki"
)

var errPortTaken = errors.New("port taken by another process")

// layout is where one control plane keeps its files and on which ports it listens.
type layout struct {
	dir       string
	hosts     []string
	nodeGrace time.Duration
	podCIDR   string // "" gives nodes none
	ca        *pki.Authority

	apiPort, etcdPort, peerPort int
}

func (l *layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l *layout) url() string { return "https://127.0.0.1:" + strconv.Itoa(l.apiPort) }

// pickPorts asks the kernel for three ports that are free now. All three
// listeners are open at once, so the ports differ.
func (l *layout) pickPorts() error {
	for _, port := range []*int{&l.apiPort, &l.etcdPort, &l.peerPort} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("find free port: %w", err)
		}
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

// portTaken is the error of a component that ended while starting; it is
// errPortTaken when its log says so.
func portTaken(p *process) error {
	err := p.exited()
	if text, readErr := os.ReadFile(p.log); readErr == nil && bytes.Contains(text, []byte("address already in use")) {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// identities of the control plane. The names of users and groups are those the
// bootstrap RBAC policy binds
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#core-component-roles).
func (l *layout) identities() map[string]pki.Leaf {
	hosts := append([]string{
		"localhost", "127.0.0.1", "10.0.0.1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}, l.hosts...)
	return map[string]pki.Leaf{
		"apiserver":          {CommonName: "kube-apiserver", Hosts: hosts},
		"apiserver-kubelet":  {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		"service-account":    {CommonName: "service-accounts"},
		"admin":              {CommonName: "kamino-lab-admin", Organization: []string{"system:masters"}},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
	}
}

// writeIdentities makes the authority, the certificates and the kubeconfigs.
func (l *layout) writeIdentities() error {
	var err error
	if l.ca, err = pki.NewAuthority("kamino-lab-kubernetes"); err != nil {
		return err
	}
	files := map[string][]byte{
		l.path("pki", "ca.crt"): l.ca.PEM,
		l.path("pki", "ca.key"): l.ca.KeyPEM,
	}
	kubeconfigs := map[string]string{
		"admin":              l.path("kubeconfig"),
		"controller-manager": l.path("pki", "controller-manager.kubeconfig"),
		"scheduler":          l.path("pki", "scheduler.kubeconfig"),
	}
	for name, leaf := range l.identities() {
		pair, err := l.ca.Issue(leaf)
		if err != nil {
			return err
		}
		if path, ok := kubeconfigs[name]; ok {
			if files[path], err = l.kubeconfig(leaf.CommonName, pair); err != nil {
				return err
			}
			continue
		}
		files[l.path("pki", name+".crt")] = pair.Cert
		files[l.path("pki", name+".key")] = pair.Key
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

func (l *layout) kubeconfig(user string, pair pki.Pair) ([]byte, error) {
	const name = "kamino-lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: l.url(), CertificateAuthorityData: l.ca.PEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	return content, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	config.UserAgent = "kamino-lab"
	return config, nil
}
