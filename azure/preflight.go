package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"kamino.dev/kamino"
)

// action is a right that the role of docs/azure-role.json grants.
type action struct {
	name string
	// without is what stays unknown or impossible without it; "" means that no run can do without.
	without string
}

// actions are all of them. The two beginGetAccess are linked actions: Azure asks
// for them when a snapshot is made of a disk (the role of
// https://github.com/vmware-tanzu/velero-plugin-for-microsoft-azure;
// https://github.com/Azure/OpenShift/issues/186), and when something is made of a
// snapshot (https://github.com/kubernetes-sigs/azuredisk-csi-driver/issues/1711).
func actions() []action {
	const c, auth = "Microsoft.Compute/", "Microsoft.Authorization/"
	return []action{
		{name: c + "virtualMachineScaleSets/read"},
		{name: c + "virtualMachineScaleSets/write"},
		{name: c + "virtualMachineScaleSets/virtualMachines/read"},
		{name: c + "virtualMachineScaleSets/virtualMachines/start/action"},
		{name: c + "virtualMachineScaleSets/virtualMachines/powerOff/action"},
		{name: c + "disks/beginGetAccess/action"},
		{name: c + "snapshots/read"},
		{name: c + "snapshots/write"},
		{name: c + "snapshots/delete"},
		{name: c + "snapshots/beginGetAccess/action"},
		{name: c + "galleries/read"},
		{name: c + "galleries/write"},
		{name: c + "galleries/images/read"},
		{name: c + "galleries/images/write"},
		{name: c + "galleries/images/versions/read"},
		{name: c + "galleries/images/versions/write"},
		{name: c + "galleries/images/versions/delete"},
		{c + "diskEncryptionSets/read", "pools whose disks are encrypted with customer-managed keys are refused"},
		{auth + "permissions/read", "missing rights are noticed only when they are needed"},
		{auth + "locks/read", "management locks, which would keep snapshots and old image versions, are not checked"},
		{auth + "denyAssignments/read", "deny assignments are not checked"},
	}
}

// Actions are the rights that a run's identity must have, linked ones included;
// docs/azure-role.json grants them and no more.
func Actions() []string { return actionNames(actions()) }

// permission is one entry of what the caller may do at a scope
// (https://learn.microsoft.com/rest/api/authorization/permissions/list-for-resource-group).
type permission struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

// Preflight gets a token and, where the resource group is known, asks what the
// caller may do there; else that is asked once the pool is known.
func (p *Provider) Preflight(ctx context.Context) (doubts []kamino.Warning, err error) {
	rm := p.options.Cloud.Services[cloud.ResourceManager]
	// With the options of the SDK's own requests, which then find this token in
	// the credential's cache.
	token, err := p.cred.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{rm.Audience + "/.default"}, EnableCAE: true})
	if err != nil {
		return nil, translate(err, "get a token for %s", rm.Endpoint)
	}
	p.mu.Lock()
	p.caller = objectID(token.Token)
	p.mu.Unlock()
	if p.config.Subscription == "" || p.config.ResourceGroup == "" {
		return nil, nil
	}
	c, err := p.of(p.config.Subscription)
	if err != nil {
		return nil, err
	}
	return p.rights(ctx, c, p.config.Subscription, p.config.ResourceGroup)
}

// poolRights asks for the rights in the pool's resource group, where Preflight
// has asked in another one or in none.
func (p *Provider) poolRights(ctx context.Context, at place) ([]kamino.Warning, error) {
	p.mu.Lock()
	asked := p.asked[strings.ToLower(at.subscription+"/"+at.group)]
	p.mu.Unlock()
	if asked {
		return nil, nil
	}
	return p.rights(ctx, at.clients, at.subscription, at.group)
}

// rights asks what the caller may do in a resource group. What is needed and not
// allowed is an error; what is not known, or only sometimes needed, a doubt.
func (p *Provider) rights(ctx context.Context, c *clients, subscription, group string) ([]kamino.Warning, error) {
	scope := groupScope(subscription, group)
	granted, err := p.permissions(ctx, c, scope)
	if errors.Is(err, kamino.ErrNotFound) || errors.Is(err, kamino.ErrNotVisible) {
		return nil, kamino.WithHint(err,
			"name the group of the scale sets with --resource-group, and their subscription with --subscription: az vmss list --query '[].[name, resourceGroup, id]' -o table prints them")
	}
	var doubts []kamino.Warning
	if errors.Is(err, kamino.ErrForbidden) {
		doubts = append(doubts, doubt(group, action{"Microsoft.Authorization/permissions/read",
			"missing rights are noticed only when they are needed"}, runRole))
	} else if err != nil {
		return nil, err
	} else if doubts, err = missing(granted, group); err != nil {
		return nil, err
	}
	for _, probe := range []func(context.Context, *clients, string) error{p.lockedBy, p.deniedBy} {
		// What may not be asked was told above, or is part of not knowing the rights.
		if err := probe(ctx, c, scope); err != nil && !errors.Is(err, errUnknown) {
			return nil, err
		}
	}
	p.mu.Lock()
	p.asked[strings.ToLower(subscription+"/"+group)] = true
	p.mu.Unlock()
	return doubts, nil
}

// Files of the roles that grant a run's actions, and those of a canary.
const (
	runRole    = "docs/azure-role.json"
	canaryRole = "docs/azure-role-canary.json"
)

func doubt(group string, a action, role string) kamino.Warning {
	return kamino.Warning{Found: fmt.Sprintf("in resource group %s: %s is not allowed: %s", group, a.name, a.without),
		Do: fmt.Sprintf("az role definition update with %s, which has it", role)}
}

// missing names the actions that a list does not grant.
func missing(list []permission, group string) (doubts []kamino.Warning, err error) {
	var needed []string
	for _, a := range actions() {
		switch {
		case allowed(list, a.name):
		case a.without == "":
			needed = append(needed, a.name)
		default:
			doubts = append(doubts, doubt(group, a, runRole))
		}
	}
	if len(needed) == 0 {
		return doubts, nil
	}
	return nil, kamino.WithHint(fmt.Errorf("in resource group %s: %w: %s", group, kamino.ErrForbidden, strings.Join(needed, ", ")),
		"az role assignment create with the role of %s, at the resource group", runRole)
}

// allowed: any assignment grants the action and does not take it back; another
// may still grant what one takes back.
func allowed(list []permission, action string) bool {
	return slices.ContainsFunc(list, func(p permission) bool {
		return matchAny(p.Actions, action) && !matchAny(p.NotActions, action)
	})
}

func matchAny(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return matchAction(strings.ToLower(pattern), strings.ToLower(action))
	})
}

// matchAction understands "*" anywhere in a pattern, for any text.
func matchAction(pattern, action string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == action
	}
	if !strings.HasPrefix(action, head) {
		return false
	}
	action = action[len(head):]
	for i := 0; i <= len(action); i++ {
		if matchAction(rest, action[i:]) {
			return true
		}
	}
	return false
}
