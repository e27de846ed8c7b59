package crash

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// limitName is the name of what keeps pods out of Kamino's namespace, and the label of a namespace
// whose pods the policy of that name changes.
const limitName = "no-pods"

// changePods makes a policy that adds a proxy's environment to the pods of each namespace with the
// label limitName. It is there from the beginning: an API server reads policies once a second, and
// labels of namespaces at once.
func (s *Station) changePods(ctx context.Context) error {
	policies, bindings := s.admin.AdmissionregistrationV1().MutatingAdmissionPolicies(),
		s.admin.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	made := metav1.ObjectMeta{Name: limitName}
	_, err := policies.Create(ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: made, Spec: admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{limitName: "true"}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/spec/containers/0/env/-", value: Object.spec.containers.env{name: "HTTPS_PROXY", value: "http://proxy:3128"}}]`}}},
	}}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = bindings.Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: made,
			Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: limitName}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make a policy that changes pods: %w", err)
	}
	return nil
}

// limitPods keeps new pods out of Kamino's namespace. The controller that counts for quotas is not
// here: the status is written as it would write it.
func (s *Station) limitPods(ctx context.Context, by worlds.PodLimit) error {
	made, err := metav1.ObjectMeta{Name: limitName}, error(nil)
	switch by {
	case worlds.LimitQuota:
		quotas := s.admin.CoreV1().ResourceQuotas(kamino.SystemNamespace)
		none := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
		var quota *corev1.ResourceQuota
		quota, err = quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: made, Spec: corev1.ResourceQuotaSpec{Hard: none}},
			metav1.CreateOptions{})
		if err == nil {
			quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
			_, err = quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		}
	case worlds.LimitRange:
		_, err = s.admin.CoreV1().LimitRanges(kamino.SystemNamespace).Create(ctx,
			&corev1.LimitRange{ObjectMeta: made, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
				{Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}},
			metav1.CreateOptions{})
	case worlds.LimitPolicy:
		err = s.labelNamespace(ctx, `"true"`)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// dropLimits lets pods into Kamino's namespace again.
func (s *Station) dropLimits(ctx context.Context) error {
	core, all := s.admin.CoreV1(), metav1.ListOptions{}
	return errors.Join(
		core.ResourceQuotas(kamino.SystemNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		core.LimitRanges(kamino.SystemNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		s.labelNamespace(ctx, "null"),
	)
}

// labelNamespace sets whether the policy changes pods of Kamino's namespace; value is JSON.
func (s *Station) labelNamespace(ctx context.Context, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, limitName, value)
	_, err := s.admin.CoreV1().Namespaces().Patch(ctx, kamino.SystemNamespace, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
