package emulator

import (
	"net/http"
	"slices"
	"strings"
)

// Policy is what an identity may do: patterns of actions, as ec2:Describe*. What is denied is
// denied whatever is allowed. Resources and conditions of policies are not looked at.
type Policy struct {
	Allow []string
	Deny  []string
}

// administrator is what an identity has to which nobody gave a policy.
var administrator = Policy{Allow: []string{"*"}}

func (p Policy) grants(action string) bool {
	fits := func(pattern string) bool { return like(strings.ToLower(pattern), strings.ToLower(action)) }
	return slices.ContainsFunc(p.Allow, fits) && !slices.ContainsFunc(p.Deny, fits)
}

// SetPolicy replaces the policy of the identity with an access key; the zero policy: it may do
// nothing.
func (s *Server) SetPolicy(accessKey string, p Policy) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[accessKey] = p
}

// need refuses a call one of whose actions its sender may not do.
func (c *call) need(actions ...string) *apiError {
	for _, action := range actions {
		if action == "sts:GetCallerIdentity" || c.policy().grants(action) {
			continue // nobody can be denied to ask who he is (STS API reference, GetCallerIdentity)
		}
		why := "User: " + c.who.ARN + " is not authorized to perform: " + action + " because no identity-based policy allows the " + action + " action"
		switch c.service {
		case ec2:
			return &apiError{Status: http.StatusForbidden, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation. " + why}
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

// needTemplate asks for what a caller needs to give a group a launch template: to launch from it,
// to pass its role, to tag, and to read its parameter
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-launch-template-permissions.html).
func (c *call) needTemplate(data object) *apiError {
	actions := []string{"ec2:RunInstances"}
	if len(items(data, "TagSpecification")) > 0 {
		actions = append(actions, "ec2:CreateTags")
	}
	if part(data, "IamInstanceProfile") != nil {
		actions = append(actions, "iam:PassRole")
	}
	if strings.HasPrefix(text(data, "ImageId"), resolvePrefix) {
		actions = append(actions, "ssm:GetParameters")
	}
	return c.need(actions...)
}
