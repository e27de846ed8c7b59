package nodes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// certify asks for the kubelet's serving certificate, as one with serverTLSBootstrap does
// (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/). Kubernetes
// approves none of these by itself: the fleet does, in the part of whoever does that in a cluster.
func (k *player) certify(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + k.node, Organization: []string{"system:nodes"}}, DNSNames: []string{k.hostname}},
		key)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	requests := k.fleet.client.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status.Conditions = append(made.Status.Conditions,
		certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue, Reason: "Approved", LastUpdateTime: metav1.Now()})
	_, err = requests.UpdateApproval(context.WithValue(ctx, userKey{}, nil), made.Name, made, metav1.UpdateOptions{})
	return err
}

// started is the event with which a kubelet says that it has started.
func (k *player) started(ctx context.Context) error {
	now := metav1.NewTime(k.Now())
	_, err := k.fleet.client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: k.node + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: k.node}, Reason: "Starting", Message: "Starting kubelet.",
		Type:   corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "kubelet", Host: k.node}, FirstTimestamp: now, LastTimestamp: now, Count: 1},
		metav1.CreateOptions{})
	return err
}

// label is what the cloud writes on a node, and no kubelet: which image it is of.
func (k *player) label(ctx context.Context) error {
	if strings.HasPrefix(k.Instance.ID, awsScheme) {
		return nil // AWS's writes none of the image
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"kubernetes.azure.com/node-image":%q}}}`, imageLabel(k.Instance))
	_, err := k.fleet.client.CoreV1().Nodes().Patch(context.WithValue(ctx, userKey{}, nil), k.node, "application/merge-patch+json", patch,
		metav1.PatchOptions{FieldManager: "cloud-node-manager"})
	if err != nil {
		return fmt.Errorf("label node %s: %w", k.node, err)
	}
	return nil
}
