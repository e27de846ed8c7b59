package emulator

import (
	"encoding/json"
	"net/http"
)

// Policy is an assignment of Azure Policy with effect deny
// (https://learn.microsoft.com/azure/governance/policy/concepts/effect-deny).
type Policy struct {
	Name  string
	Scope string // ARM ID; "": everywhere
	Type  string // glob of resource types, as Microsoft.Compute/galleries/**; "": all
	// Denies looks at the resource as the write would leave it; nil denies every write.
	Denies func(resource map[string]any) bool
}

// SetPolicies replaces what Azure Policy denies from now on.
func (s *Server) SetPolicies(policies ...Policy) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Policies = append([]Policy{}, policies...)
}

// disallowed refuses a write that a policy denies. Deletes and actions are not looked at.
func (c *call) disallowed(scope string) *apiError {
	if c.r.Method != http.MethodPut && c.r.Method != http.MethodPatch {
		return nil
	}
	for _, p := range c.s.Policies {
		if !within(scope, p.Scope) || !glob(p.Type, c.target.kind.name) {
			continue
		}
		after := object{}
		if old := c.t.get(c.target.id); old != nil {
			after = clone(old.doc)
		}
		if p.Denies != nil && !p.Denies(merge(after, clone(c.body))) {
			continue
		}
		assignment := p.Scope + "/providers/Microsoft.Authorization/policyAssignments/" + derived("policy", p.Name)
		named, err := json.Marshal([]object{{"policyAssignment": object{"name": p.Name, "id": assignment}}})
		if err != nil {
			return machineError(err)
		}
		name := nameOf(c.target.id)
		e := refuse(http.StatusForbidden, "RequestDisallowedByPolicy", "Resource '%s' was disallowed by policy. Policy identifiers: '%s'.",
			name, named)
		e.Target = name
		return e
	}
	return nil
}
