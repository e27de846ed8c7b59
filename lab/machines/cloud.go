package machines

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"kamino.dev/kamino/azure/emulator"
)

// cloudController does what the cloud controller manager of a cluster on Azure
// does and kubelet does not: it gives new Nodes their provider ID and the labels
// of their instance, and removes the Nodes of instances that are gone
// (https://kubernetes.io/docs/concepts/architecture/cloud-controller/#node-controller).
type cloudController struct {
	client kubernetes.Interface
	cloud  *emulator.Server
	logger *slog.Logger
	end    context.CancelFunc
	work   sync.WaitGroup
}

func startCloudController(ctx context.Context, client kubernetes.Interface, cloud *emulator.Server, logger *slog.Logger) (*cloudController,
	error) {
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	c := &cloudController{client: client, cloud: cloud, logger: logger, end: end}
	nodes := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes().Informer()
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.adopt(living, object) },
		UpdateFunc: func(_, object any) { c.adopt(living, object) },
	}); err != nil {
		end()
		return nil, err
	}
	cancel := cloud.Subscribe(func(change emulator.Change) {
		if change.Kind == emulator.Deleted && strings.Contains(strings.ToLower(change.ID), "/virtualmachines/") {
			c.work.Go(func() { c.forget(living, change.ID) })
		}
	})
	context.AfterFunc(living, cancel)
	c.work.Go(func() { nodes.RunWithContext(living) })
	return c, nil
}

func (c *cloudController) stop() {
	c.end()
	c.work.Wait()
}

// adopt gives a Node that has none its provider ID.
func (c *cloudController) adopt(ctx context.Context, object any) {
	node, ok := object.(*corev1.Node)
	if !ok || node.Spec.ProviderID != "" {
		return
	}
	for _, i := range c.cloud.Instances() {
		if !strings.EqualFold(i.ComputerName, node.Name) {
			continue
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"labels": map[string]string{
				"agentpool": i.Pool, "kubernetes.azure.com/agentpool": i.Pool, "kubernetes.azure.com/role": "agent",
				corev1.LabelInstanceTypeStable: i.Size, corev1.LabelTopologyRegion: i.Location, corev1.LabelTopologyZone: "0",
			}},
			"spec": map[string]any{"providerID": "azure://" + i.ID},
		})
		if err == nil {
			_, err = c.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && ctx.Err() == nil {
			c.logger.Error("node has no provider ID", "node", node.Name, "error", err)
		}
		return
	}
}

// forget removes the Node of an instance.
func (c *cloudController) forget(ctx context.Context, instance string) {
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return // the lab ends
	}
	for _, n := range list.Items {
		if !strings.EqualFold(n.Spec.ProviderID, "azure://"+instance) {
			continue
		}
		if err := c.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) &&
			ctx.Err() == nil {
			c.logger.Error("node of a deleted instance stays", "node", n.Name, "error", err)
		}
	}
}
