package lab

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kamino.dev/kamino"
)

// makeBase makes the namespace of leases and seal pods.
func makeBase(ctx context.Context, client kubernetes.Interface) error {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kamino.SystemNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", kamino.SystemNamespace, err)
	}
	return nil
}
