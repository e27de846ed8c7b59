package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/charts"
)

// granted is what an API server says of an account, by namespace.
type granted struct {
	rules      map[string][]authorizationv1.ResourceRule
	incomplete bool
	err        error
}

var reviewed = []string{kamino.SystemNamespace, corev1.NamespaceNodeLease}

// grant adds a rule: to one namespace, or with "" to all.
func (g *granted) grant(namespace string, rule rbacv1.PolicyRule) {
	for _, n := range reviewed {
		if namespace == "" || namespace == n {
			g.rules[n] = append(g.rules[n], authorizationv1.ResourceRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups,
				Resources: rule.Resources, ResourceNames: rule.ResourceNames})
		}
	}
}

// account is granted the roles of charts/kamino-base that a release which acts is bound to.
func account(t *testing.T, without func(namespace, verb, resource string) bool, roles ...string) *granted {
	t.Helper()
	g := &granted{rules: map[string][]authorizationv1.ResourceRule{}}
	manifests, err := charts.Base(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range manifests {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(text), &role); err != nil || !slices.Contains(roles, role.Name) {
			continue
		}
		for _, rule := range role.Rules {
			if without != nil {
				rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return without(role.Namespace, verb, rule.Resources[0]) })
			}
			g.grant(role.Namespace, rule)
		}
	}
	return g
}

func (g *granted) cluster() *Cluster {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kamino.SystemNamespace, Labels: map[string]string{labelBase: "1"}}})
	client.PrependReactor("create", "selfsubjectrulesreviews", func(action k8stesting.Action) (bool, runtime.Object, error) {
		review := action.(k8stesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectRulesReview)
		review.Status = authorizationv1.SubjectRulesReviewStatus{ResourceRules: g.rules[review.Spec.Namespace], Incomplete: g.incomplete}
		if g.incomplete {
			review.Status.EvaluationError = "webhook authorizer does not support user rule resolution"
		}
		return true, review, g.err
	})
	client.PrependReactor("create", "selfsubjectreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:ops:web"}}}, nil
	})
	return NewForClient(client, Options{})
}

var acting = []string{"kamino-status", "kamino-run"}

// TestShippedRolesSuffice: nothing is missing that the roles of the chart grant, and nothing is
// asked for that only --force uses.
func TestShippedRolesSuffice(t *testing.T) {
	force := kamino.DrainOptions{Force: true}
	if doubts, err := account(t, nil, acting...).cluster().Preflight(t.Context(), kamino.DrainOptions{}); err != nil || len(doubts) > 0 {
		t.Errorf("%q, %v", doubts, err)
	}
	_, err := account(t, nil, acting...).cluster().Preflight(t.Context(), force)
	if !errors.Is(err, kamino.ErrForbidden) || !strings.HasSuffix(err.Error(), ": delete pods --all-namespaces") || !strings.Contains(kamino.Hint(err), "--clusterrole=kamino-force") {
		t.Errorf("--force: %v, hint %q", err, kamino.Hint(err))
	}
	if _, err := account(t, nil, append(acting, "kamino-force")...).cluster().Preflight(t.Context(), force); err != nil {
		t.Errorf("--force with its role: %v", err)
	}
}

// TestMissingRights: each right of the roles that is taken away is named, alone, with the command
// that grants it; without any role all are named at once.
func TestMissingRights(t *testing.T) {
	taken := 0
	for _, want := range runRights {
		g := account(t, func(namespace, verb, resource string) bool {
			gone := verb == want.verb && resource == want.resource && (namespace == want.namespace || namespace == "")
			if gone {
				taken++
			}
			return gone
		}, acting...)
		_, err := g.cluster().Preflight(t.Context(), kamino.DrainOptions{})
		if !errors.Is(err, kamino.ErrForbidden) || !strings.HasSuffix(err.Error(), "uses: "+want.String()) {
			t.Errorf("without %s: %v", want, err)
		}
		if hint := kamino.Hint(err); !strings.Contains(hint, "kamino init && kubectl create ") || !strings.Contains(hint, "role="+want.role+" --user='system:serviceaccount:ops:web'") {
			t.Errorf("without %s: hint %q", want, hint)
		}
	}
	if taken < len(runRights) {
		t.Errorf("%d rights were taken away, want %d", taken, len(runRights))
	}
	_, err := (&granted{}).cluster().Preflight(t.Context(), kamino.DrainOptions{Force: true})
	for _, r := range append(slices.Clone(runRights), forceRight) {
		if err == nil || !strings.Contains(err.Error()+",", " "+r.String()+",") {
			t.Errorf("an account without rights: %v does not name %s", err, r)
		}
	}
}

// TestRules: what a rule of a review grants.
func TestRules(t *testing.T) {
	evict := right{verb: "create", resource: "pods/eviction"}
	patch := right{verb: "patch", group: groupLeases, resource: "leases", namespace: kamino.SystemNamespace}
	space := right{verb: "get", resource: "namespaces", name: kamino.SystemNamespace}
	rule := func(verb, group, resource string, names ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
	}
	for _, tt := range []struct {
		right right
		rule  authorizationv1.ResourceRule
		want  bool
	}{
		{evict, rule("create", "", "pods/eviction"), true},
		{evict, rule("*", "*", "*"), true},
		{evict, rule("create", "", "*/eviction"), true},
		{evict, rule("create", "", "pods"), false},
		{evict, rule("create", "", "pods/*"), false},
		{evict, rule("create", "policy", "pods/eviction"), false},
		{evict, rule("get", "", "pods/eviction"), false},
		{patch, rule("patch", groupLeases, "leases", "kamino-a-1"), true},
		{patch, rule("patch", "", "leases"), false},
		{space, rule("get", "", "namespaces", kamino.SystemNamespace), true},
		{space, rule("get", "", "namespaces", "default"), false},
	} {
		if got := tt.right.in([]authorizationv1.ResourceRule{tt.rule}); got != tt.want {
			t.Errorf("%s in %v: %v", tt.right, tt.rule, got)
		}
	}
}

// TestUnlistedRights: where no one can list rights a run is not refused, and hears what is not
// certain.
func TestUnlistedRights(t *testing.T) {
	g := account(t, func(_, _, resource string) bool { return resource == "pods/eviction" }, acting...)
	g.incomplete = true
	doubts, err := g.cluster().Preflight(t.Context(), kamino.DrainOptions{})
	if err != nil || len(doubts) != 1 || !strings.HasSuffix(doubts[0].Found, "(webhook authorizer does not support user rule resolution); not certain: create pods/eviction --all-namespaces") {
		t.Errorf("%q, %v", doubts, err)
	}
	g = account(t, nil, acting...)
	g.incomplete = true
	if doubts, err := g.cluster().Preflight(t.Context(), kamino.DrainOptions{}); err != nil || len(doubts) > 0 {
		t.Errorf("all listed in an incomplete list: %q, %v", doubts, err)
	}
	g.err = apierrors.NewForbidden(schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}, "", fmt.Errorf("no"))
	if doubts, err := g.cluster().Preflight(t.Context(), kamino.DrainOptions{}); err != nil || len(doubts) != 1 {
		t.Errorf("the review is forbidden: %q, %v", doubts, err)
	}
}

// TestDrainRights: who may not list or evict pods is told how to ask for that, and the role that
// grants it.
func TestDrainRights(t *testing.T) {
	for verb, right := range map[string]string{"list": "list pods --all-namespaces", "create": "create pods/eviction --all-namespaces"} {
		t.Run(verb, func(t *testing.T) {
			client := fake.NewClientset(pod("a"))
			client.PrependReactor(verb, "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(podsResource, "a", errors.New("User \"u\" cannot create resource"))
			})
			_, err := NewForClient(client, Options{}).Evict(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{})
			if hint := kamino.Hint(err); !strings.HasSuffix(hint, "kubectl auth can-i "+right) || !strings.Contains(hint, "--clusterrole=kamino-run") {
				t.Errorf("%v: hint %q", err, hint)
			}
		})
	}
}
