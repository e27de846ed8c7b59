package emulator

import (
	"net/http"
	"slices"
	"strings"
)

// Policy is what an identity may do. What is denied is denied whatever is allowed.
type Policy struct {
	// Allow and Deny are patterns of actions, as ec2:Describe*, on whatever there is.
	Allow, Deny []string
	// Statements narrow actions by resources and conditions. See [ParsePolicy].
	Statements []Statement
	// Organization are the service control policies: they deny, and allow nothing.
	Organization []Statement
}

// administrator is what an identity has to which nobody gave a policy.
var administrator = Policy{Allow: []string{"*"}}

// refuses tells why an action on a target is not allowed; "" where it is. The words are those of
// https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html.
func (p Policy) refuses(action string, t target) string {
	fits := func(pattern string) bool { return like(strings.ToLower(pattern), strings.ToLower(action)) }
	says := func(all []Statement, effect string) bool {
		return slices.ContainsFunc(all, func(s Statement) bool { return s.Effect == effect && s.matches(action, t) })
	}
	switch {
	case says(p.Organization, "Deny"):
		return "with an explicit deny in a service control policy"
	case says(p.Statements, "Deny") || slices.ContainsFunc(p.Deny, fits):
		return "with an explicit deny in an identity-based policy"
	case says(p.Statements, "Allow") || slices.ContainsFunc(p.Allow, fits):
		return ""
	}
	return "because no identity-based policy allows the " + action + " action"
}

// SetPolicy replaces the policy of the identity with an access key; the zero policy: it may do
// nothing.
func (s *Server) SetPolicy(accessKey string, p Policy) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[accessKey] = p
}

// need refuses a call whose sender may not do an action that policies cannot narrow.
func (c *call) need(action string) *apiError { return c.needOn(action, anything) }

// needOn refuses a call whose sender may not do an action on each of its targets.
func (c *call) needOn(action string, all []target) *apiError {
	for _, t := range all {
		refused := c.policy().refuses(action, t)
		if action == "sts:GetCallerIdentity" || refused == "" {
			continue // nobody can be denied to ask who he is (STS API reference, GetCallerIdentity)
		}
		why := "User: " + c.who.ARN + " is not authorized to perform: " + action + " on resource: " + t.arn + " " + refused
		switch c.service {
		case ec2:
			return &apiError{Status: http.StatusForbidden, Code: "UnauthorizedOperation",
				Message: "You are not authorized to perform this operation. " + why}
		case ssm:
			return refuse("AccessDeniedException", "%s", why)
		}
		return &apiError{Status: http.StatusForbidden, Code: "AccessDenied", Message: why}
	}
	return nil
}

func (c *call) policy() Policy {
	if p, ok := c.s.policies[c.who.AccessKey]; ok {
		return p
	}
	if c.who.Policy == nil {
		return administrator
	}
	return *c.who.Policy
}
