package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
)

// networkVersion is an API version of load balancers and subnets, of which only fields are read
// that they always had.
const networkVersion = "2024-05-01"

// network takes a canary out of everything that sends the pool its traffic: pools of load balancers
// and application gateways, NAT pools, public addresses. "Multiple scale sets cannot use the same
// application gateway" (armcompute). What carries its way out stays: a canary that cannot pull its
// images would convict a good one.
func (r *recipe) network(ctx context.Context, at place) error {
	balancers := map[string]*balancer{}
	for _, card := range parts(r.doc, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations") {
		r.link("Microsoft.Network/networkSecurityGroups/join/action", text(card, "properties", "networkSecurityGroup", "id"))
		for _, ip := range parts(card, "properties", "ipConfigurations") {
			if err := r.address(ctx, at, part(ip, "properties"), balancers); err != nil {
				return err
			}
		}
	}
	return nil
}

// address is network for one IP configuration.
func (r *recipe) address(ctx context.Context, at place, ip map[string]any, balancers map[string]*balancer) error {
	subnet := text(ip, "subnet", "id")
	r.link("Microsoft.Network/virtualNetworks/subnets/join/action", subnet)
	for _, group := range parts(ip, "applicationSecurityGroups") {
		r.link("Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action", text(group, "id"))
	}
	lost := ""
	if ip["publicIPAddressConfiguration"] != nil {
		lost = "its own public address"
	}
	for _, field := range []string{"publicIPAddressConfiguration", "loadBalancerInboundNatPools", "applicationGatewayBackendAddressPools"} {
		delete(ip, field)
	}
	kept := []any{}
	for _, pool := range parts(ip, "loadBalancerBackendAddressPools") {
		id := text(pool, "id")
		lb, err := at.balancer(ctx, id, balancers)
		if errors.Is(err, kamino.ErrForbidden) || errors.Is(err, kamino.ErrNotFound) {
			r.refusals.add("outbound", "loadBalancerBackendAddressPools", id,
				"cannot tell whether the pool's machines reach the internet through it: "+err.Error(),
				"grant the actions of docs/azure-role-canary.json at the load balancer")
			continue
		} else if err != nil {
			return err
		}
		switch out, in := lb.out(id), lb.in(id); {
		case out && !in:
			kept = append(kept, pool)
			r.kept = append(r.kept, fmt.Sprintf("pool %s of load balancer %s, for outbound traffic", lastSegment(id), lb.Name))
			r.link("Microsoft.Network/loadBalancers/backendAddressPools/join/action", id)
		case out || in && lb.implicit(id):
			lost = fmt.Sprintf("pool %s of load balancer %s, which would also send the canary traffic", lastSegment(id), lb.Name)
		}
	}
	delete(ip, "loadBalancerBackendAddressPools")
	if len(kept) > 0 {
		ip["loadBalancerBackendAddressPools"] = kept
		return nil
	}
	if lost == "" {
		return nil
	}
	way, err := at.wayOut(ctx, subnet)
	if err == nil && !way {
		r.refusals.add("outbound", "ipConfigurations", lastSegment(subnet), "the pool's machines reach the internet through "+lost+
			": a canary could not pull an image",
			"give the subnet a NAT gateway")
	}
	return err
}

// balancer is what of a load balancer says where traffic goes
// (https://learn.microsoft.com/azure/load-balancer/load-balancer-outbound-connections).
type balancer struct {
	Name       string `json:"name"`
	Properties struct {
		Frontends []struct {
			ID         string `json:"id"`
			Properties struct {
				Address *reference `json:"publicIPAddress"`
				Prefix  *reference `json:"publicIPPrefix"`
			} `json:"properties"`
		} `json:"frontendIPConfigurations"`
		Outbound []rule `json:"outboundRules"`
		Inbound  []rule `json:"loadBalancingRules"`
	} `json:"properties"`
}

type reference struct {
	ID string `json:"id"`
}

type rule struct {
	Properties struct {
		Pool     reference   `json:"backendAddressPool"`
		Pools    []reference `json:"backendAddressPools"`
		Frontend reference   `json:"frontendIPConfiguration"`
		NoSNAT   bool        `json:"disableOutboundSnat"`
	} `json:"properties"`
}

func (r rule) of(pool string) bool {
	return slices.ContainsFunc(append(r.Properties.Pools, r.Properties.Pool),
		func(p reference) bool { return strings.EqualFold(p.ID, pool) })
}

func (b *balancer) out(pool string) bool {
	return slices.ContainsFunc(b.Properties.Outbound, func(r rule) bool { return r.of(pool) })
}

func (b *balancer) in(pool string) bool {
	return slices.ContainsFunc(b.Properties.Inbound, func(r rule) bool { return r.of(pool) })
}

// implicit: a rule of a public load balancer is a way out as well, unless it says that it is not.
func (b *balancer) implicit(pool string) bool {
	for _, r := range b.Properties.Inbound {
		for _, f := range b.Properties.Frontends {
			public := f.Properties.Address != nil || f.Properties.Prefix != nil
			if r.of(pool) && !r.Properties.NoSNAT && public && strings.EqualFold(f.ID, r.Properties.Frontend.ID) {
				return true
			}
		}
	}
	return false
}

// balancer reads the load balancer of a backend pool, once.
func (at place) balancer(ctx context.Context, pool string, known map[string]*balancer) (*balancer, error) {
	id, _, _ := strings.Cut(strings.ToLower(pool), "/backendaddresspools/")
	id = pool[:len(id)]
	if b := known[strings.ToLower(id)]; b != nil {
		return b, nil
	}
	b := &balancer{}
	if err := at.get(ctx, id+"?api-version="+networkVersion, b); err != nil {
		return nil, translate(err, "read load balancer %s", lastSegment(id))
	}
	known[strings.ToLower(id)] = b
	return b, nil
}

// wayOut says whether machines of a subnet reach the world by the subnet itself: by a NAT gateway,
// or by a route table. That the table has a default route is assumed: who takes the trouble of one
// usually leads everything to a firewall.
func (at place) wayOut(ctx context.Context, subnet string) (bool, error) {
	if subnet == "" {
		return false, nil
	}
	var s struct {
		Properties struct {
			NAT    *reference `json:"natGateway"`
			Routes *reference `json:"routeTable"`
		} `json:"properties"`
	}
	err := translate(at.get(ctx, subnet+"?api-version="+networkVersion, &s), "read subnet %s", lastSegment(subnet))
	if errors.Is(err, kamino.ErrForbidden) || errors.Is(err, kamino.ErrNotFound) {
		return false, nil
	}
	return s.Properties.NAT != nil || s.Properties.Routes != nil, err
}
