package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
)

// Applied is what became of an object: created, configured, unchanged, or would be.
type Applied struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Did       string `json:"did"`
}

// resources are the paths of the kinds that can be applied, with and without a namespace.
var resources = map[string]string{
	"v1/Namespace":                             "/api/v1/namespaces",
	"v1/ConfigMap":                             "/api/v1/namespaces/%s/configmaps",
	"rbac.authorization.k8s.io/v1/Role":        "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
	"rbac.authorization.k8s.io/v1/ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}

// Apply applies a manifest by server-side apply
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/), and takes over fields that
// others wrote. It is idempotent. With dryRun the API server checks it and keeps nothing; what
// lies in a namespace that does not exist yet is not checked then.
func (c *Cluster) Apply(ctx context.Context, manifest string, dryRun bool) (Applied, error) {
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(manifest), &meta); err != nil {
		return Applied{}, fmt.Errorf("read manifest: %w", err)
	}
	out := Applied{Kind: meta.Kind, Namespace: meta.Namespace, Name: meta.Name}
	path, known := resources[meta.APIVersion+"/"+meta.Kind]
	if !known {
		return out, fmt.Errorf("apply %s %s: kind %s/%[1]s is unknown here", meta.Kind, meta.Name, meta.APIVersion)
	}
	if meta.Namespace != "" {
		path = fmt.Sprintf(path, meta.Namespace)
	}
	path += "/" + meta.Name
	client := c.api.paths
	before, err := content(ctx, client.Get().AbsPath(path))
	if err = explain("get "+meta.Kind+"/"+meta.Name, err); err != nil && !errors.Is(err, kamino.ErrNotFound) {
		return out, fmt.Errorf("read %s %s: %w", meta.Kind, meta.Name, err)
	}
	apply := client.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", fieldManager).Param("force",
		"true").Body([]byte(manifest))
	if dryRun {
		apply = apply.Param("dryRun", metav1.DryRunAll)
	}
	after, err := content(ctx, apply)
	err = explain("patch "+meta.Kind+"/"+meta.Name, err)
	switch {
	case errors.Is(err, kamino.ErrNotFound) && dryRun && before == "":
		out.Did = "created" // once its namespace is there
	case err != nil:
		return out, fmt.Errorf("apply %s %s: %w", meta.Kind, meta.Name, err)
	case before == "":
		out.Did = "created"
	case before == after:
		out.Did = "unchanged"
	default:
		out.Did = "configured"
	}
	return out, nil
}

// content makes a request and returns what people wrote of the object in its answer.
func content(ctx context.Context, r *rest.Request) (string, error) {
	answer := r.SetHeader("Accept", "application/json").Do(ctx)
	if err := answer.Error(); err != nil {
		return "", err
	}
	text, err := answer.Raw()
	if err != nil {
		return "", err
	}
	var object struct {
		Metadata map[string]any `json:"metadata"`
		Data     any            `json:"data,omitempty"`
		Rules    any            `json:"rules,omitempty"`
		Spec     any            `json:"spec,omitempty"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	for _, noise := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		delete(object.Metadata, noise)
	}
	written, err := json.Marshal(object)
	return string(written), err
}
