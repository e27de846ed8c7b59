package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// right is a verb on a resource that a run uses, and the role of charts/kamino-base that grants it.
type right struct {
	verb, group, resource string
	name                  string // of the object; "" means any
	namespace             string // "" means all of them, or a resource that has none
	role                  string
}

// runRights are what every run uses, whatever becomes of it: a missing one would be noticed only
// after the donor was touched, or on the way back. Events are not among them: a run does without.
var runRights = []right{
	{verb: "get", resource: "namespaces", name: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "list", resource: "nodes", role: "kamino-status"},
	{verb: "get", resource: "nodes", role: "kamino-run"},
	{verb: "patch", resource: "nodes", role: "kamino-run"},
	{verb: "list", resource: "pods", role: "kamino-run"},
	{verb: "list", resource: "persistentvolumes", role: "kamino-run"},
	{verb: "create", resource: "pods/eviction", role: "kamino-run"},
	{verb: "list", group: groupLeases, resource: "leases", namespace: kamino.SystemNamespace, role: "kamino-status"},
	{verb: "create", group: groupLeases, resource: "leases", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "patch", group: groupLeases, resource: "leases", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "get", resource: "pods", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "create", resource: "pods", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "delete", resource: "pods", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "get", resource: "configmaps", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "list", resource: "configmaps", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "create", resource: "configmaps", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "delete", resource: "configmaps", namespace: kamino.SystemNamespace, role: "kamino-run"},
	{verb: "get", group: groupLeases, resource: "leases", namespace: corev1.NamespaceNodeLease, role: "kamino-run"},
}

const groupLeases = "coordination.k8s.io"

// forceRight is what a drain with force uses besides.
var forceRight = right{verb: "delete", resource: "pods", role: "kamino-force"}

// pauseRight is what the stop switch uses besides.
var pauseRight = right{verb: "patch", resource: "namespaces", name: kamino.SystemNamespace, role: "kamino-pause"}

// grant tells how a permission, as String writes it, is granted to an account, "" if its name is
// not known: by the role of the chart kamino-base that has it, if there is one.
func grant(what, user string) string {
	by := "a cluster administrator grants it with: "
	if user == "" {
		user, by = "USER", "a cluster administrator grants it to USER, which kubectl auth whoami prints, with: "
	}
	all := slices.Concat(runRights, proveRights, []right{forceRight, pauseRight})
	if i := slices.IndexFunc(all, func(r right) bool { return r.String() == what }); i >= 0 {
		if all[i].role != "kamino-status" {
			return by + all[i].binding(user)
		}
		acting := slices.DeleteFunc(slices.Clone(runRights), func(r right) bool { return r.role == "kamino-status" })
		// Who changes something reads first, and would meet each further right as another failure.
		return by + all[i].binding(user) +
			"; restore and update also need: " + strings.Join(bindings(user, acting), " && ")
	}
	return "allow it in a role of this account"
}

// String is as kubectl auth can-i takes it.
func (r right) String() string {
	words := r.verb + " " + r.resource
	if r.group != "" {
		words += "." + r.group
	}
	if r.name != "" {
		words += "/" + r.name
	}
	switch {
	case r.namespace != "":
		words += " -n " + r.namespace
	case r.resource == "pods" || strings.HasPrefix(r.resource, "pods/"):
		words += " --all-namespaces"
	}
	return words
}

// in says whether rules grant the right. Rules for objects of certain names grant it where the
// right names none: which objects a run will use is not known yet.
func (r right) in(rules []authorizationv1.ResourceRule) bool {
	_, sub, _ := strings.Cut(r.resource, "/")
	return slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
		has := func(list []string, want ...string) bool {
			return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(list, w) })
		}
		return has(rule.Verbs, r.verb, "*") && has(rule.APIGroups, r.group, "*") &&
			(has(rule.Resources, r.resource, "*") || sub != "" && has(rule.Resources, "*/"+sub)) &&
			(len(rule.ResourceNames) == 0 || r.name == "" || has(rule.ResourceNames, r.name))
	})
}

// checkRights asks what these credentials may do in each namespace that a run uses, and tells
// every right at once that is missing. Where an authorizer cannot list rights, what was not listed
// is a doubt
// (https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/self-subject-rules-review-v1/):
// the rehearsal and the run itself try it. Nobody lists what holds in all namespaces; what is
// listed in each of those asked for counts as that.
func (c *Cluster) checkRights(ctx context.Context, opts kamino.DrainOptions) (doubts []kamino.Warning, err error) {
	rules := map[string][]authorizationv1.ResourceRule{}
	unlisted := ""
	for _, namespace := range []string{kamino.SystemNamespace, corev1.NamespaceNodeLease} {
		review, err := c.api.reviewRules.Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		err = explain("create selfsubjectrulesreviews.authorization.k8s.io", err)
		switch {
		case errors.Is(err, kamino.ErrForbidden), errors.Is(err, kamino.ErrNotFound):
			return []kamino.Warning{{Found: "cannot determine the rights of these credentials in the cluster: " + err.Error()}}, nil
		case err != nil:
			return nil, err
		case review.Status.Incomplete:
			unlisted = "the API server cannot list the rights of these credentials"
			if why := review.Status.EvaluationError; why != "" {
				unlisted += " (" + why + ")"
			}
		}
		rules[namespace] = review.Status.ResourceRules
	}
	wanted := runRights
	if opts.Force {
		wanted = append(slices.Clone(wanted), forceRight)
	}
	var missing []right
	for _, r := range wanted {
		for namespace, rules := range rules {
			if (r.namespace == "" || r.namespace == namespace) && !r.in(rules) {
				missing = append(missing, r)
				break
			}
		}
	}
	switch {
	case len(missing) == 0:
		return nil, nil
	case unlisted != "":
		return []kamino.Warning{{Found: unlisted + "; not certain: " + list(missing)}}, nil
	}
	return nil, c.lacking(ctx, missing)
}

func list(rights []right) string {
	words := make([]string, len(rights))
	for i, r := range rights {
		words[i] = r.String()
	}
	return strings.Join(words, ", ")
}

// lacking is the error for rights that are missing, with the commands that grant them.
func (c *Cluster) lacking(ctx context.Context, missing []right) error {
	user := "USER"
	self, err := c.api.reviewSelf.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && self.Status.UserInfo.Username != "" {
		user = self.Status.UserInfo.Username
	}
	commands := append([]string{"kamino init"}, bindings(user, missing)...) // roles of another version may lack a verb
	err = &fault{kamino.ErrForbidden, fmt.Errorf("%s lacks rights that a run uses: %s", user, list(missing))}
	return kamino.WithHint(err, "a cluster administrator grants them with: %s", strings.Join(commands, " && "))
}

// has asks whether these credentials have a right.
func (c *Cluster) has(ctx context.Context, r right) (bool, error) {
	review, err := c.api.reviewOne.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace}}}, metav1.CreateOptions{})
	if err != nil {
		return false, explain("create selfsubjectaccessreviews.authorization.k8s.io", err)
	}
	return review.Status.Allowed, nil
}

var notInBindings = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

// bindings are the commands that bind the roles of rights to a user, each once.
func bindings(user string, rights []right) (commands []string) {
	for _, r := range rights {
		if bind := r.binding(user); !slices.Contains(commands, bind) {
			commands = append(commands, bind)
		}
	}
	return commands
}

// binding is the command that binds the right's role to a user.
func (r right) binding(user string) string {
	name := r.role + "-" + strings.Trim(notInBindings.ReplaceAllString(user, "-"), "-")
	quoted := "'" + strings.ReplaceAll(user, "'", `'\''`) + "'"
	if r.namespace == "" || r.role == "kamino-status" {
		return fmt.Sprintf("kubectl create clusterrolebinding %s --clusterrole=%s --user=%s", name, r.role, quoted)
	}
	return fmt.Sprintf("kubectl create rolebinding %s -n %s --role=%s --user=%s", name, r.namespace, r.role, quoted)
}
