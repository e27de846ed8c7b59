package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/labtest"
)

// rights: without any one right of the chart's own roles the controller's log names what is
// forbidden.
func (k *keeper) rights(pod corev1.Pod) {
	own := namespace + ":" + keeperRelease + "-kamino"
	rbac := k.lab.Client.RbacV1()
	cluster, err := rbac.ClusterRoles().Get(k.Context(), own, metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	k.each(cluster.Rules, func(rules []rbacv1.PolicyRule) error {
		role := cluster.DeepCopy()
		role.Rules, role.ResourceVersion = rules, ""
		_, err := rbac.ClusterRoles().Update(k.Context(), role, metav1.UpdateOptions{})
		return err
	}, pod)
	system, err := rbac.Roles("kamino-system").Get(k.Context(), own, metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	k.each(system.Rules, func(rules []rbacv1.PolicyRule) error {
		role := system.DeepCopy()
		role.Rules, role.ResourceVersion = rules, ""
		_, err := rbac.Roles("kamino-system").Update(k.Context(), role, metav1.UpdateOptions{})
		return err
	}, pod)
}

// ends: without any one right of the role in the release's namespace, what "helm uninstall" begins
// with cannot end the controller.
func (k *keeper) ends(pod corev1.Pod) {
	roles := k.lab.Client.RbacV1().Roles(namespace)
	role, err := roles.Get(k.Context(), namespace+":"+keeperRelease+"-kamino", metav1.GetOptions{})
	if err != nil || len(role.Rules) != 1 {
		k.Fatal(role, err)
	}
	ending := pod.DeepCopy()
	ending.Spec.Containers[0].Args = []string{"--in-cluster", "restore", "--end-controller-of", keeperRelease}
	rule := role.Rules[0]
	for i, verb := range rule.Verbs {
		k.Run(verb+"_"+rule.Resources[0], func(t *testing.T) {
			less := role.DeepCopy()
			less.ResourceVersion, less.Rules[0].Verbs = "", slices.Delete(slices.Clone(rule.Verbs), i, i+1)
			if _, err := roles.Update(t.Context(), less, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			c := k.at(t).start(*ending)
			<-c.ended
			if want := fmt.Sprintf("cannot %s resource %q", verb, rule.Resources[0]); c.ProcessState.Success() || !strings.Contains(strings.ReplaceAll(c.says(), `\`, ""), want) {
				t.Errorf("it ended well: %t; want that it %s:\n%s", c.ProcessState.Success(), want, tail(c.says()))
			}
		})
	}
	role.ResourceVersion = ""
	if _, err := roles.Update(k.Context(), role, metav1.UpdateOptions{}); err != nil {
		k.Fatal(err)
	}
}

// bindings: a run of a pool without any one binding to a role of kamino-base is refused, before it
// changes anything, and says what lacks.
func (k *keeper) bindings(pod corev1.Pod) {
	rbac, ours, n := k.lab.Client.RbacV1(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + keeperRelease}, 0
	k.apply("green", `{pool: green, prove: {bake: 0s}}`)
	wide, err := rbac.ClusterRoleBindings().List(k.Context(), ours)
	if err != nil {
		k.Fatal(err)
	}
	for _, b := range wide.Items {
		if !strings.HasPrefix(b.RoleRef.Name, "kamino-") {
			continue
		}
		n++
		k.Run(b.RoleRef.Name, func(t *testing.T) {
			if err := rbac.ClusterRoleBindings().Delete(t.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			k.at(t).lacks(pod)
			b.ResourceVersion = ""
			if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &b, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	narrow, err := rbac.RoleBindings("").List(k.Context(), ours)
	if err != nil {
		k.Fatal(err)
	}
	for _, b := range narrow.Items {
		// Without events a run goes on; TestController checks that they are written.
		if !strings.HasPrefix(b.RoleRef.Name, "kamino-") || b.Namespace == metav1.NamespaceDefault && b.RoleRef.Name == "kamino-run" {
			continue
		}
		n++
		k.Run(b.RoleRef.Name+"_in_"+b.Namespace, func(t *testing.T) {
			if err := rbac.RoleBindings(b.Namespace).Delete(t.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			k.at(t).lacks(pod)
			b.ResourceVersion = ""
			if _, err := rbac.RoleBindings(b.Namespace).Create(t.Context(), &b, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n < 6 {
		k.Errorf("only %d bindings to roles of kamino-base", n)
	}
	if err := k.protos.Delete(k.Context(), "green", metav1.DeleteOptions{}); err != nil {
		k.Error(err)
	}
}

// lacks: no run starts, and the log says why.
func (k *keeper) lacks(pod corev1.Pod) {
	k.Helper()
	c := k.start(pod)
	labtest.Await(k, time.Minute, "the log tells of rights that lack", func() string {
		if strings.Contains(c.says(), "lacks rights that a run uses") || strings.Contains(c.says(), "forbidden") {
			return ""
		}
		return "its log is:\n" + tail(c.says())
	})
	c.stop(k.T)
	for _, in := range k.lab.Cloud.Instances() {
		if in.PowerState != emulator.PowerRunning {
			k.Errorf("%s is %s", in.ComputerName, in.PowerState)
		}
	}
}

// each takes each verb away in turn; put writes the rules.
func (k *keeper) each(rules []rbacv1.PolicyRule, put func([]rbacv1.PolicyRule) error, pod corev1.Pod) {
	k.Helper()
	for i, rule := range rules {
		for j, verb := range rule.Verbs {
			k.Run(verb+"_"+strings.ReplaceAll(rule.Resources[0], "/", "_"), func(t *testing.T) {
				less := slices.Clone(rules)
				less[i].Verbs = slices.Delete(slices.Clone(rule.Verbs), j, j+1)
				if len(less[i].Verbs) == 0 {
					less[i].Verbs = []string{"nothing"}
				}
				if err := put(less); err != nil {
					t.Fatal(err)
				}
				k.at(t).missed(pod, verb, rule.Resources[0])
				if err := put(rules); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// missed: a controller without the right says so.
func (k *keeper) missed(pod corev1.Pod, verb, resource string) {
	k.Helper()
	if _, err := k.protos.Patch(k.Context(), "blue", types.MergePatchType, []byte(`{"status":null}`), metav1.PatchOptions{}, "status"); err != nil {
		k.Fatal(err)
	}
	token := k.token("stranger")
	c := k.start(pod)
	if verb == "patch" && resource == "nodeprototypes" {
		if _, err := k.protos.Patch(k.Context(), "grey", types.MergePatchType, []byte(`{"metadata":{"annotations":{"kamino.dev/promote":""}}}`), metav1.PatchOptions{}); err != nil {
			k.Fatal(err)
		}
	}
	want := fmt.Sprintf("cannot %s resource %q", verb, resource)
	labtest.Await(k, 30*time.Second, "the log says "+want, func() string {
		if strings.HasSuffix(resource, "reviews") {
			_, _, _ = c.get(k.Context(), token) // it fails: the log tells
		}
		if strings.Contains(strings.ReplaceAll(c.says(), `\`, ""), want) {
			return ""
		}
		return "its log is:\n" + tail(c.says())
	})
	c.stop(k.T)
}
