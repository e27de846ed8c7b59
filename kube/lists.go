package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

var _ kamino.PackageStore = (*Cluster)(nil)

// packagesName is the label value of pods that list packages, and what names of lists begin with.
const packagesName = "kamino-packages"

// packagesTime is how long a pod that lists packages may take, so that one which nobody waits for
// any more ends.
const packagesTime = 5 * time.Minute

// listName is of the ConfigMap of a run: its keys are packages, a line each as the agent has it,
// and images, a line of bytes and name each.
func listName(run string) string { return packagesName + "-" + run }

// SaveList implements kamino.PackageStore: 1 request, and 1 more where a list of that name is there.
func (c *Cluster) SaveList(ctx context.Context, pool kamino.PoolID, run string, list kamino.DiskList) error {
	images := make([]string, len(list.Images))
	for i, image := range list.Images {
		images[i] = strconv.FormatInt(image.Bytes, 10) + " " + kamino.Plain(image.Name)
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: listName(run),
			Labels:      map[string]string{labelManagedBy: managedBy, labelName: packagesName, labelRun: run},
			Annotations: map[string]string{annotationPool: string(pool)}},
		Data: map[string]string{"packages": strings.Join(list.Packages, "\n"), "images": strings.Join(images, "\n")},
	}
	_, err := c.api.configMaps(kamino.SystemNamespace).Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return explain("create configmaps -n "+kamino.SystemNamespace, err)
	}
	there, err := c.api.configMaps(kamino.SystemNamespace).Get(ctx, object.Name, metav1.GetOptions{})
	if err != nil {
		return explain("get configmaps -n "+kamino.SystemNamespace, err)
	}
	// The packages of a run are those of its receipt; what a kubelet lists of images changes.
	if there.Data["packages"] != object.Data["packages"] || there.Annotations[annotationPool] != string(pool) {
		return kamino.WithHint(fmt.Errorf("ConfigMap %s/%s is not this run's: its packages or its pool are others",
			kamino.SystemNamespace, object.Name),
			"delete it with: kubectl delete configmap -n %s %s", kamino.SystemNamespace, object.Name)
	}
	return nil
}

// List implements kamino.PackageStore: 1 request.
func (c *Cluster) List(ctx context.Context, run string) (out kamino.DiskList, err error) {
	object, err := c.api.configMaps(kamino.SystemNamespace).Get(ctx, listName(run), metav1.GetOptions{})
	if err != nil {
		return out, explain("get configmaps/"+listName(run)+" -n "+kamino.SystemNamespace, err)
	}
	out.Packages = textLines(object.Data["packages"])
	for _, line := range textLines(object.Data["images"]) {
		bytes, name, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseInt(bytes, 10, 64) // shown only
		out.Images = append(out.Images, kamino.CachedImage{Name: name, Bytes: n})
	}
	kamino.PlainAll(&out)
	return out, nil
}

func textLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Lists implements kamino.PackageStore: 1 request for 200 lists. Only their metadata is kept.
func (c *Cluster) Lists(ctx context.Context, pool kamino.PoolID) (runs []string, err error) {
	opts := metav1.ListOptions{LabelSelector: labelManagedBy + "=" + managedBy + "," + labelName + "=" + packagesName}
	err = pages(ctx, c.api.configMaps(kamino.SystemNamespace), opts, "list configmaps -n "+kamino.SystemNamespace, func() { runs = nil },
		func(list *corev1.ConfigMapList) {
			for _, object := range list.Items {
				if run := object.Labels[labelRun]; object.Name == listName(run) &&
					strings.EqualFold(object.Annotations[annotationPool], string(pool)) {
					runs = append(runs, run)
				}
			}
		})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// DeleteList implements kamino.PackageStore: 1 request.
func (c *Cluster) DeleteList(ctx context.Context, run string) error {
	err := c.api.configMaps(kamino.SystemNamespace).Delete(ctx, listName(run), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return explain("delete configmaps -n "+kamino.SystemNamespace, err)
}

// AskPackages implements kamino.PackageStore: 2 requests. A pod of that run goes first.
func (c *Cluster) AskPackages(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	if c.opts.SealImage == "" {
		return ErrNoSealImage
	}
	if err := c.removePackagesPod(ctx, order.Run); err != nil {
		return err
	}
	pod, limit := c.surveyPod(node, order), int64(packagesTime/time.Second)
	pod.Name, pod.Labels[labelName] = podName(order.Run, kamino.TaskPackages), packagesName
	pod.Spec.ActiveDeadlineSeconds = &limit
	box := &pod.Spec.Containers[0]
	box.Name, box.Command[1] = "packages", string(kamino.TaskPackages)
	err := c.createPod(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsInvalid(err) {
		return c.notAdmitted(err)
	}
	return err
}

func (c *Cluster) removePackagesPod(ctx context.Context, run string) error {
	return c.deletePod(ctx, podName(run, kamino.TaskPackages))
}

// ForgetPackages implements kamino.PackageStore: 4 requests. What another process has asked for stays.
func (c *Cluster) ForgetPackages(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	pods := c.api.pods(kamino.SystemNamespace)
	pod, err := pods.Get(ctx, podName(order.Run, kamino.TaskPackages), metav1.GetOptions{})
	if err == nil && nonceOf(pod) == order.Nonce {
		err = pods.Delete(ctx, pod.Name, *onlyThis(pod, 0))
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return explain("get and delete pods -n "+kamino.SystemNamespace, err)
	}
	now, err := c.api.nodes.Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return explain("get nodes", err)
	}
	text := now.Annotations[kamino.AnnotationPackages]
	var answer struct{ Run, Nonce string }
	if json.Unmarshal([]byte(text), &answer) != nil || answer.Run != order.Run || answer.Nonce != order.Nonce {
		return nil
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(kamino.AnnotationPackages, "/", "~1")
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}})
	if err != nil {
		return fmt.Errorf("remove the list of packages from node %s: %w", node.Name, err)
	}
	_, err = c.api.nodes.Patch(ctx, node.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsInvalid(err) { // another list stands there by now
		return nil
	}
	return explain("patch nodes", err)
}
