package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kamino.dev/kamino"
)

// canaryActions are the rights of docs/azure-role-canary.json, which are of use only together with
// those of docs/azure-role.json. Who has them may delete any scale set of the resource group.
func canaryActions() []action {
	const compute, network = "Microsoft.Compute/", "Microsoft.Network/"
	none := func(what string) string { return "no canary of a pool with " + what + " can be created" }
	return []action{
		{name: compute + "virtualMachineScaleSets/delete"},
		{compute + "virtualMachineScaleSets/virtualMachines/retrieveBootDiagnosticsData/action", "the console of a canary is not shown"},
		{compute + "capacityReservationGroups/deploy/action", none("a capacity reservation")},
		{compute + "hostGroups/read", none("dedicated hosts")},
		{compute + "proximityPlacementGroups/read", none("a proximity placement group")},
		{network + "virtualNetworks/subnets/join/action", none("a subnet of this resource group")},
		{network + "virtualNetworks/subnets/read", none("a load balancer for both outbound and inbound traffic")},
		{network + "networkSecurityGroups/join/action", none("a network security group")},
		{network + "applicationSecurityGroups/joinIpConfiguration/action", none("application security groups")},
		{network + "loadBalancers/read", none("a load balancer")},
		{network + "loadBalancers/backendAddressPools/join/action", none("a load balancer for outbound traffic")},
		{"Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", none("user-assigned identities")},
		{"Microsoft.KeyVault/vaults/deploy/action", none("certificates of a key vault")},
	}
}

// CanaryActions are the rights that only a canary needs; docs/azure-role-canary.json grants them
// and no more.
func CanaryActions() []string { return actionNames(canaryActions()) }

func actionNames(list []action) (names []string) {
	for _, a := range list {
		names = append(names, a.name)
	}
	return names
}

// CanaryRights is the role beside the first.
func (*Provider) CanaryRights() string { return canaryRole }

// PreflightCanary implements kamino.Prover, by what Preflight was told. What a canary joins may be
// in other resource groups, where CanaryFit asks.
func (p *Provider) PreflightCanary(ctx context.Context) ([]kamino.Warning, error) {
	if p.config.Subscription == "" || p.config.ResourceGroup == "" {
		return nil, nil
	}
	c, err := p.of(p.config.Subscription)
	if err != nil {
		return nil, err
	}
	group := p.config.ResourceGroup
	granted, err := p.known(ctx, c, groupScope(p.config.Subscription, group))
	if errors.Is(err, kamino.ErrForbidden) {
		return nil, nil // Preflight has told that rights are not known
	} else if err != nil {
		return nil, err
	}
	var lacking []action
	var needed bool
	for _, a := range canaryActions() {
		if !allowed(granted, a.name) {
			lacking, needed = append(lacking, a), needed || a.without == ""
		}
	}
	if needed {
		return nil, kamino.WithHint(fmt.Errorf("in resource group %s: %w: %s", group, kamino.ErrForbidden,
			strings.Join(actionNames(lacking), ", ")),
			"az role assignment create with the role of %s, at the resource group", canaryRole)
	}
	var doubts []kamino.Warning
	for _, a := range lacking {
		doubts = append(doubts, doubt(group, a, canaryRole))
	}
	return doubts, nil
}

func groupScope(subscription, group string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group
}

// known is what the caller may do at a scope, asked for once.
func (p *Provider) known(ctx context.Context, c *clients, scope string) ([]permission, error) {
	p.mu.Lock()
	granted, ok := p.granted[strings.ToLower(scope)]
	p.mu.Unlock()
	if ok {
		return granted, nil
	}
	return p.permissions(ctx, c, scope)
}

// permissions asks what the caller may do at a scope, and keeps the answer.
func (p *Provider) permissions(ctx context.Context, c *clients, scope string) ([]permission, error) {
	var body struct {
		Value []permission `json:"value"`
	}
	err := c.get(ctx, scope+"/providers/Microsoft.Authorization/permissions?api-version=2022-04-01", &body)
	if err != nil {
		return nil, translate(err, "list permissions at %s", lastSegment(scope))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted[strings.ToLower(scope)] = body.Value
	return body.Value, nil
}

// recipeRights refuses a canary whose document names what its writer may not use: in the resource
// group of each thing first, and, where the group does not grant it, at the thing itself.
func (p *Provider) recipeRights(ctx context.Context, at place, r *recipe) error {
	r.link("Microsoft.Compute/virtualMachineScaleSets/delete", at.path())
	for _, l := range r.links {
		ok, err := p.may(ctx, at.clients, l)
		if err != nil {
			return err
		}
		if !ok {
			r.refusals.add("rights", l.action, lastSegment(l.id), "these credentials may not do that, which a canary needs",
				"grant the actions of docs/azure-role-canary.json at "+l.id)
		}
	}
	return nil
}

// may says whether an action is allowed at a resource. Where the credentials may not ask, the write
// itself will tell.
func (p *Provider) may(ctx context.Context, c *clients, l link) (bool, error) {
	s := segments(l.id)
	for _, scope := range []string{groupScope(s["subscriptions"], s["resourcegroups"]), l.id} {
		granted, err := p.known(ctx, c, scope)
		if errors.Is(err, kamino.ErrForbidden) || errors.Is(err, kamino.ErrNotVisible) || errors.Is(err, kamino.ErrNotFound) {
			return true, nil
		} else if err != nil {
			return false, err
		}
		if allowed(granted, l.action) {
			return true, nil
		}
	}
	return false, nil
}
