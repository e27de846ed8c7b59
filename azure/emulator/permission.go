package emulator

import (
	"net/http"
	"regexp"
	"strings"
)

// SetDenied replaces the actions that are answered 403, for every identity.
// Patterns are ARM's: Microsoft.Compute/snapshots/*, case-insensitive.
func (s *Server) SetDenied(actions ...string) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = append([]string(nil), actions...)
}

// authorize refuses a call whose action is denied to its sender.
func (c *call) authorize() *apiError {
	action := c.target.action(c.r.Method)
	for _, pattern := range c.deniedActions() {
		if actionMatches(pattern, action) {
			return forbidden(c.who, action, c.r.URL.Path)
		}
	}
	return nil
}

func (c *call) deniedActions() []string {
	return append(append([]string(nil), c.s.denied...), c.who.Denied...)
}

func forbidden(who Identity, action, scope string) *apiError {
	return refuse(http.StatusForbidden, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		who.ClientID, who.ObjectID, action, scope)
}

func actionMatches(pattern, action string) bool {
	expression := "(?i)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
	matched, err := regexp.MatchString(expression, action)
	return err == nil && matched
}

// listPermissions answers what the caller may do in a resource group or on a resource
// (https://learn.microsoft.com/rest/api/authorization/permissions).
func listPermissions(c *call) reply {
	denied := []any{}
	for _, pattern := range c.deniedActions() {
		denied = append(denied, pattern)
	}
	return reply{status: http.StatusOK, body: object{"value": array(object{
		"actions": []any{"*"}, "notActions": denied, "dataActions": []any{}, "notDataActions": []any{},
	})}}
}
