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

// Actions are what a run does at Azure Resource Manager, and so what its
// identity must be allowed; docs/azure-role.json grants them and no more.
func Actions() []string {
	const c = "Microsoft.Compute/"
	return []string{
		c + "virtualMachineScaleSets/read",
		c + "virtualMachineScaleSets/write",
		c + "virtualMachineScaleSets/virtualMachines/read",
		c + "virtualMachineScaleSets/virtualMachines/start/action",
		c + "virtualMachineScaleSets/virtualMachines/powerOff/action",
		c + "snapshots/read",
		c + "snapshots/write",
		c + "snapshots/delete",
		c + "galleries/read",
		c + "galleries/write",
		c + "galleries/images/read",
		c + "galleries/images/write",
		c + "galleries/images/versions/read",
		c + "galleries/images/versions/write",
		c + "galleries/images/versions/delete",
	}
}

// permission is one entry of what the caller may do at a scope
// (https://learn.microsoft.com/rest/api/authorization/permissions/list-for-resource-group).
type permission struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

// Preflight gets a token and, where the resource group is known, asks what the
// caller may do there. That list shows role assignments, not deny assignments
// or policies, so a run may still meet a 403, which it reports by name.
func (p *Provider) Preflight(ctx context.Context) error {
	rm := p.options.Cloud.Services[cloud.ResourceManager]
	// With the options of the SDK's own requests, which then find this token in
	// the credential's cache.
	if _, err := p.cred.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{rm.Audience + "/.default"}, EnableCAE: true}); err != nil {
		return translate(err, "get a token for %s", rm.Endpoint)
	}
	if p.config.Subscription == "" || p.config.ResourceGroup == "" {
		return nil
	}
	list, err := p.permissions(ctx)
	if errors.Is(err, kamino.ErrForbidden) || errors.Is(err, kamino.ErrNotFound) {
		return nil // who may not ask can still be allowed the rest
	} else if err != nil {
		return err
	}
	var missing []string
	for _, a := range Actions() {
		if !allowed(list, a) {
			missing = append(missing, a)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return kamino.WithHint(fmt.Errorf("in resource group %s: %w: %s", p.config.ResourceGroup, kamino.ErrForbidden, strings.Join(missing, ", ")),
		"az role assignment create with the role of docs/azure-role.json, at the resource group")
}

func (p *Provider) permissions(ctx context.Context) ([]permission, error) {
	c, err := p.of(p.config.Subscription)
	if err != nil {
		return nil, err
	}
	var body struct {
		Value []permission `json:"value"`
	}
	err = c.get(ctx, "/subscriptions/"+p.config.Subscription+"/resourceGroups/"+p.config.ResourceGroup+
		"/providers/Microsoft.Authorization/permissions?api-version=2022-04-01", &body)
	return body.Value, translate(err, "ask for permissions in resource group %s", p.config.ResourceGroup)
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
