package kubetest

import (
	"context"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// TestPodsKeptOut: what keeps the seal pod out of Kamino's namespace is named, before anything is done
// to a node, with the words that the API server really uses.
func TestPodsKeptOut(t *testing.T) {
	const name, namespace = "kept-out", kamino.SystemNamespace
	made := metav1.ObjectMeta{Name: name}
	for field, keep := range map[string]func(context.Context) (undo func(context.Context) error, err error){
		"resourcequota": func(ctx context.Context) (func(context.Context) error, error) {
			quotas := admin.CoreV1().ResourceQuotas(namespace)
			none := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
			_, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: made, Spec: corev1.ResourceQuotaSpec{Hard: none}}, metav1.CreateOptions{})
			if err == nil { // the controller that counts may be slow
				_, err = quotas.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"hard":{"pods":"0"},"used":{"pods":"0"}}}`), metav1.PatchOptions{}, "status")
			}
			return func(ctx context.Context) error { return quotas.Delete(ctx, name, metav1.DeleteOptions{}) }, err
		},
		"limitrange": func(ctx context.Context) (func(context.Context) error, error) {
			ranges := admin.CoreV1().LimitRanges(namespace)
			_, err := ranges.Create(ctx, &corev1.LimitRange{ObjectMeta: made, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
				{Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}}, metav1.CreateOptions{})
			return func(ctx context.Context) error { return ranges.Delete(ctx, name, metav1.DeleteOptions{}) }, err
		},
		"namespace": func(ctx context.Context) (func(context.Context) error, error) {
			policies, bindings := admin.AdmissionregistrationV1().MutatingAdmissionPolicies(), admin.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
			never := admissionv1.NeverReinvocationPolicy
			_, err := policies.Create(ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: made, Spec: admissionv1.MutatingAdmissionPolicySpec{
				ReinvocationPolicy: never,
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}},
				Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
					Expression: `[JSONPatch{op: "add", path: "/spec/containers/0/env/-", value: Object.spec.containers.env{name: "HTTPS_PROXY", value: "http://proxy:3128"}}]`}}},
			}}, metav1.CreateOptions{})
			if err == nil {
				_, err = bindings.Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: made, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}, metav1.CreateOptions{})
			}
			return func(ctx context.Context) error {
				return errors.Join(bindings.Delete(ctx, name, metav1.DeleteOptions{}), policies.Delete(ctx, name, metav1.DeleteOptions{}))
			}, err
		},
	} {
		t.Run(field, func(t *testing.T) {
			s := newSubject(t, kube.Options{SealImage: sealImage})
			makeNode(t, cordoned("kept-out"))
			n, order := s.node(t, "kept-out"), kamino.SealOrder{Run: "r-kept-out", Nonce: "n"}
			eventually(t, "the seal pod to be admitted", func() bool { return s.RehearseSeal(t.Context(), n, order) == nil })
			undo, err := keep(t.Context())
			defer func() { // the API server forgets them a while after they were removed, and other tests make pods
				if err := undo(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
				eventually(t, "the seal pod to be admitted again", func() bool { return s.RehearseSeal(t.Context(), n, order) == nil })
			}()
			if err != nil {
				t.Fatal(err)
			}
			refused := (*kamino.RefusedError)(nil)
			eventually(t, "the seal pod to be refused", func() bool { // an API server reads policies and limits a while after they were made
				err = s.RehearseSeal(t.Context(), n, order)
				return err != nil
			})
			if !errors.As(err, &refused) || refused.Refusals[0].Field != field {
				t.Errorf("%v, want a refusal because of the %s", err, field)
			}
		})
	}
}
