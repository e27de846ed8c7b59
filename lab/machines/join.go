package machines

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// joining is what a machine needs to know to become a node.
type joining struct {
	Endpoint string // https URL of the API server as machines see it
	CA       []byte // PEM
	Token    string
}

// userData is the NodeConfig of the pool: what clones are given to join.
func (j joining) userData(generation int, labels map[string]string) string {
	return encode(j.document(generation, labels))
}

// document is userData in clear text. With labels it ends within kubelet's part.
func (j joining) document(generation int, labels map[string]string) string {
	text := fmt.Sprintf("apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: %d\ncluster:\n  endpoint: %s\n  ca: %s\n"+
		"join:\n  method: bootstrapToken\n  token: %s\n", generation, j.Endpoint, base64.StdEncoding.EncodeToString(j.CA), j.Token)
	if len(labels) > 0 {
		text += "kubelet:\n  labels:\n"
		for key, value := range labels {
			text += fmt.Sprintf("    %s: %q\n", key, value)
		}
	}
	return text
}

// customData is the cloud-config of generic machines: files, and no more, since
// the extension does the work.
func (j joining) customData() (string, error) {
	text := "#cloud-config\nwrite_files:\n"
	for _, f := range []struct{ path, embedded, mode string }{
		{"/etc/containerd/config.toml", "containerd.toml", "0644"},
		{"/etc/containerd/cni.template", "cni.template", "0644"},
		{"/var/lib/kubelet/config.yaml", "kubelet-config.yaml", "0644"},
		{"/opt/lab/bootstrap.sh", "bootstrap.sh", "0755"},
	} {
		content, err := files.ReadFile("files/" + f.embedded)
		if err != nil {
			return "", err
		}
		text += writeFile(f.path, f.mode, content)
	}
	text += writeFile("/etc/kamino/ca.crt", "0644", j.CA)
	text += writeFile("/var/lib/kubelet/bootstrap-kubeconfig", "0600", j.kubeconfig())
	return encode(text), nil
}

func writeFile(path, mode string, content []byte) string {
	return fmt.Sprintf("- path: %s\n  permissions: %q\n  encoding: b64\n  content: %s\n", path, mode,
		base64.StdEncoding.EncodeToString(content))
}

// command of the extension.
func (j joining) command() string {
	return "IMAGES='" + GuestImage + "' /opt/lab/bootstrap.sh"
}

func (j joining) kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: bootstrap, user: {token: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: bootstrap}}]
current-context: lab
`, j.Endpoint, base64.StdEncoding.EncodeToString(j.CA), j.Token)
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// admit lets machines with the token join: the token itself, and the three
// bindings of kubelet's TLS bootstrap
// (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/).
func admit(ctx context.Context, client kubernetes.Interface) (token string, err error) {
	random := make([]byte, 11)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	id, secret := hex.EncodeToString(random[:3]), hex.EncodeToString(random[3:])
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": "system:bootstrappers:lab"},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create bootstrap token: %w", err)
	}
	for role, group := range map[string]string{
		"system:node-bootstrapper": "system:bootstrappers:lab",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     "system:bootstrappers:lab",
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes",
	} {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "lab:" + role[strings.LastIndexByte(role, ':')+1:]},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("bind %s: %w", role, err)
		}
	}
	return id + "." + secret, nil
}
