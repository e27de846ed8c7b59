package emulator

import "net/http"

// What is served of Microsoft.Network: only read, and put there by Server.Put.
const (
	loadBalancers = "Microsoft.Network/loadBalancers"
	subnets       = "Microsoft.Network/virtualNetworks/subnets"
)

// birth refuses the document of a new scale set that cannot make machines. The first text is from
// https://learn.microsoft.com/troubleshoot/azure/virtual-machine-scale-sets; the others and all
// codes are assumed, unverified on real Azure.
func (c *call) birth() *apiError {
	vm := part(c.body, "properties", "virtualMachineProfile")
	if vm == nil {
		return nil
	}
	os := part(vm, "osProfile")
	linux := part(os, "linuxConfiguration")
	zones, _ := c.body["zones"].([]any)
	switch {
	case os == nil:
		return refuse(http.StatusBadRequest, "InvalidParameter", "Required parameter 'osProfile' is missing (null).")
	case linux != nil && !truth(linux, "disablePasswordAuthentication") && text(os, "adminPassword") == "":
		return refuse(http.StatusBadRequest, "InvalidParameter",
			"Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	case text(os, "computerNamePrefix") == "":
		return refuse(http.StatusBadRequest, "InvalidParameter", "Required parameter 'osProfile.computerNamePrefix' is missing (null).")
	case has(c.body, "properties", "zoneBalance") && len(zones) < 2:
		return refuse(http.StatusBadRequest, "InvalidParameter",
			"The property 'zoneBalance' can be set only where several zones are given.")
	}
	return c.shared(vm)
}

// shared refuses a second scale set behind an application gateway ("Multiple scale sets cannot use
// the same application gateway", armcompute).
func (c *call) shared(vm object) *apiError {
	gateways := map[string]string{}
	for _, r := range c.t.s.store.current {
		if r.kind.name == scaleSets && !fold(r.id, c.target.id) {
			for _, id := range gatewayPools(part(r.doc, "properties", "virtualMachineProfile")) {
				gateways[key(id)] = r.name()
			}
		}
	}
	for _, id := range gatewayPools(vm) {
		if other := gateways[key(id)]; other != "" {
			return refuse(http.StatusBadRequest, "InvalidParameter",
				"Multiple scale sets cannot use the same application gateway: '%s' uses it.", other)
		}
	}
	return nil
}

func gatewayPools(vm object) (ids []string) {
	for _, card := range items(vm, "networkProfile", "networkInterfaceConfigurations") {
		for _, ip := range items(card, "properties", "ipConfigurations") {
			for _, pool := range items(ip, "properties", "applicationGatewayBackendAddressPools") {
				ids = append(ids, text(pool, "id"))
			}
		}
	}
	return ids
}

// WriteConsole adds to what an instance has written to its serial console.
func (s *Server) WriteConsole(instanceID, text string) {
	s.start()
	s.alter(func(t *tx) {
		if r := t.edit(instanceID); isInstance(r) {
			former, _ := r.facts["console"].(string)
			r.facts["console"] = former + text
		}
	})
}

// console is what an instance has written to its serial console.
func (s *Server) console(instanceID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.store.current[key(instanceID)]; r != nil {
		return text(r.facts, "console")
	}
	return ""
}

// bootDiagnostics answers where the log of an instance's console is. The URL needs no token, as one
// with a SAS does not.
func bootDiagnostics(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil {
		return notFound(c, c.target.id)
	}
	if !truth(r.doc, "properties", "diagnosticsProfile", "bootDiagnostics", "enabled") {
		return failed(http.StatusConflict, "OperationNotAllowed", "Boot diagnostics is not enabled on VM '%s'.", r.name())
	}
	return reply{status: http.StatusOK, body: object{"serialConsoleLogBlobUri": c.s.base(c.r) + "/_emulator/console" + r.id}}
}
