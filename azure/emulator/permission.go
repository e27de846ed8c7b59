package emulator

import (
	"net/http"
	"regexp"
	"strings"
)

// Role is what an identity may do at a scope and below it, as an assignment of a
// role grants it. Actions are patterns of ARM's: Microsoft.Compute/snapshots/*,
// without regard to case. What one role takes back by NotActions another may
// still grant (https://learn.microsoft.com/azure/role-based-access-control/role-definitions).
type Role struct {
	Scope      string // ARM ID; "": everywhere
	Actions    []string
	NotActions []string
}

// owner is what an identity has to which nobody gave roles.
var owner = []Role{{Actions: []string{"*"}}}

func (r Role) grants(action, scope string) bool {
	return within(scope, r.Scope) && anyMatches(r.Actions, action) && !anyMatches(r.NotActions, action)
}

// DenyAssignment takes actions away from everybody but some, whatever their
// roles say. Azure makes them itself, for node resource groups that AKS locks
// down and for managed applications
// (https://learn.microsoft.com/azure/role-based-access-control/deny-assignments).
type DenyAssignment struct {
	Name       string
	Scope      string // ARM ID; "": everywhere
	Actions    []string
	NotActions []string
	Except     []string // object IDs
}

func (d DenyAssignment) denies(who Identity, action, scope string) bool {
	for _, id := range d.Except {
		if fold(id, who.ObjectID) {
			return false
		}
	}
	return within(scope, d.Scope) && anyMatches(d.Actions, action) && !anyMatches(d.NotActions, action)
}

// within says whether a scope is another one or below it.
func within(scope, outer string) bool {
	outer = key(outer)
	return outer == "" || key(scope) == outer || strings.HasPrefix(key(scope), outer+"/")
}

// SetRoles replaces the roles of the identity with a client ID; none at all:
// it may do nothing.
func (s *Server) SetRoles(clientID string, roles ...Role) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roles[key(clientID)] = append([]Role{}, roles...)
}

// rolesOf are the roles of who asks. The caller holds the lock.
func (s *Server) rolesOf(who Identity) []Role {
	if roles, ok := s.roles[key(who.ClientID)]; ok {
		return roles
	}
	if who.Roles == nil {
		return owner
	}
	return who.Roles
}

// authorize refuses a call whose action, or one that it needs on a resource
// which it refers to, is not granted to its sender.
func (c *call) authorize() *apiError {
	if c.target.kind.open {
		return nil
	}
	action, scope := c.target.action(c.r.Method), strings.TrimSuffix(c.r.URL.Path, "/")
	if !c.granted(action, scope) {
		return forbidden(c.who, action, c.r.URL.Path)
	}
	for _, d := range c.s.DenyAssignments {
		if d.denies(c.who, action, scope) {
			return refuse(http.StatusForbidden, "DenyAssignmentAuthorizationFailed",
				"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, the access is denied because of the deny assignment with name '%s' and Id '%s' at scope '%s'.",
				c.who.ClientID, c.who.ObjectID, action, c.r.URL.Path, d.Name, derived("deny", d.Name), d.Scope)
		}
	}
	for _, l := range c.linked() {
		if !c.granted(l.action, l.scope) {
			return refuse(http.StatusForbidden, "LinkedAuthorizationFailed",
				"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, it does not have permission to perform action '%s' on the linked scope(s) '%s' or the linked scope(s) are invalid.",
				c.who.ClientID, c.who.ObjectID, action, c.r.URL.Path, l.action, l.scope)
		}
	}
	if err := c.disallowed(scope); err != nil {
		return err
	}
	return c.locked(scope)
}

func (c *call) granted(action, scope string) bool {
	for _, r := range c.s.rolesOf(c.who) {
		if r.grants(action, scope) {
			return true
		}
	}
	return false
}

func forbidden(who Identity, action, scope string) *apiError {
	return refuse(http.StatusForbidden, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		who.ClientID, who.ObjectID, action, scope)
}

func anyMatches(patterns []string, action string) bool {
	for _, pattern := range patterns {
		expression := "(?i)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		if matched, err := regexp.MatchString(expression, action); err == nil && matched {
			return true
		}
	}
	return false
}

// need is an action on a resource that a request refers to.
type need struct{ action, scope string }

// linked are the actions that a write needs besides its own, where public sources
// tell: reading what a snapshot or an image version is made of
// (Microsoft.Compute/disks/beginGetAccess/action with snapshots/write: the role of
// https://github.com/vmware-tanzu/velero-plugin-for-microsoft-azure and
// https://github.com/Azure/OpenShift/issues/186; the same on a snapshot:
// https://github.com/kubernetes-sigs/azuredisk-csi-driver/issues/1711), to write a
// snapshot that a version is made of
// (https://learn.microsoft.com/azure/virtual-machines/image-version), and to read
// gallery images and disk encryption sets.
func (c *call) linked() []need {
	if c.r.Method != http.MethodPut && c.r.Method != http.MethodPatch {
		return nil
	}
	var needs []need
	add := func(action, scope string) {
		if scope != "" {
			needs = append(needs, need{action, scope})
		}
	}
	switch c.target.kind.name {
	case snapshots:
		source := text(c.body, "properties", "creationData", "sourceResourceId")
		add(typeOf(source)+"/beginGetAccess/action", source)
		add(encryptionSets+"/read", text(c.body, "properties", "encryption", "diskEncryptionSetId"))
	case imageVersions:
		source := text(c.body, "properties", "storageProfile", "osDiskImage", "source", "id")
		add(typeOf(source)+"/beginGetAccess/action", source)
		if typeOf(source) == snapshots {
			add(snapshots+"/write", source)
		}
		for _, region := range items(c.body, "properties", "publishingProfile", "targetRegions") {
			add(encryptionSets+"/read", text(region, "encryption", "osDiskImage", "diskEncryptionSetId"))
		}
	case scaleSets:
		needs = append(needs, c.joined()...)
	}
	return needs
}

// joined are those of a scale set: whatever its body names of other resources. That a PATCH which
// names none needs none is assumed, unverified on real Azure; so are the deploy actions. The others
// are in
// https://learn.microsoft.com/azure/role-based-access-control/permissions/networking,
// https://learn.microsoft.com/azure/role-based-access-control/permissions/compute and
// https://github.com/Azure/aad-pod-identity/issues/613.
func (c *call) joined() (needs []need) {
	add := func(action, scope string) {
		if scope != "" {
			needs = append(needs, need{action, scope})
		}
	}
	vm := part(c.body, "properties", "virtualMachineProfile")
	if image := text(vm, "storageProfile", "imageReference", "id"); image != "" {
		add(typeOf(image)+"/read", image)
	}
	add(encryptionSets+"/read", text(vm, "storageProfile", "osDisk", "managedDisk", "diskEncryptionSet", "id"))
	add("Microsoft.Compute/capacityReservationGroups/deploy/action", text(vm, "capacityReservation", "capacityReservationGroup", "id"))
	add("Microsoft.Compute/hostGroups/read", text(c.body, "properties", "hostGroup", "id"))
	add("Microsoft.Compute/proximityPlacementGroups/read", text(c.body, "properties", "proximityPlacementGroup", "id"))
	for id := range part(c.body, "identity", "userAssignedIdentities") {
		add("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", id)
	}
	for _, secret := range items(vm, "osProfile", "secrets") {
		add("Microsoft.KeyVault/vaults/deploy/action", text(secret, "sourceVault", "id"))
	}
	for _, card := range items(vm, "networkProfile", "networkInterfaceConfigurations") {
		add("Microsoft.Network/networkSecurityGroups/join/action", text(card, "properties", "networkSecurityGroup", "id"))
		for _, ip := range items(card, "properties", "ipConfigurations") {
			add(subnets+"/join/action", text(ip, "properties", "subnet", "id"))
			for _, group := range items(ip, "properties", "applicationSecurityGroups") {
				add("Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action", text(group, "id"))
			}
			for _, pool := range items(ip, "properties", "loadBalancerBackendAddressPools") {
				add(loadBalancers+"/backendAddressPools/join/action", text(pool, "id"))
			}
		}
	}
	return needs
}

// typeOf is the type of the resource with an ID, as the kinds spell it.
func typeOf(id string) string {
	rt, ok := parse(id)
	if !ok {
		return ""
	}
	chain := rt.namespace + "/" + strings.Join(rt.types, "/")
	for _, name := range []string{disks, snapshots, imageDefs, imageVersions, loadBalancers, subnets} {
		if fold(name, chain) {
			return name
		}
	}
	return chain
}

// listPermissions answers what the caller may do in a resource group or on a
// resource (https://learn.microsoft.com/rest/api/authorization/permissions).
// Deny assignments are not in it.
func listPermissions(c *call) reply {
	var listed []object
	for _, r := range c.s.rolesOf(c.who) {
		if within(c.target.id, r.Scope) {
			listed = append(listed, object{"actions": texts(r.Actions), "notActions": texts(r.NotActions), "dataActions": []any{},
				"notDataActions": []any{}})
		}
	}
	return reply{status: http.StatusOK, body: object{"value": array(listed...)}}
}

// listDenyAssignments answers those at and above a scope.
func listDenyAssignments(c *call) reply {
	var listed []object
	for _, d := range c.s.DenyAssignments {
		if !within(c.target.id, d.Scope) {
			continue
		}
		var except []object
		for _, id := range d.Except {
			except = append(except, object{"id": id, "type": "ServicePrincipal"})
		}
		name := derived("deny", d.Name)
		listed = append(listed, object{"id": d.Scope + "/providers/Microsoft.Authorization/denyAssignments/" + name, "name": name,
			"type": "Microsoft.Authorization/denyAssignments", "properties": object{
				"denyAssignmentName": d.Name, "scope": d.Scope, "isSystemProtected": true, "doNotApplyToChildScopes": false,
				"permissions": array(object{"actions": texts(d.Actions), "notActions": texts(d.NotActions), "dataActions": []any{},
					"notDataActions": []any{}}),
				"principals":        array(object{"id": "00000000-0000-0000-0000-000000000000", "type": "SystemDefined"}),
				"excludePrincipals": array(except...),
			}})
	}
	return reply{status: http.StatusOK, body: object{"value": array(listed...)}}
}

func texts(list []string) []any {
	made := make([]any, 0, len(list))
	for _, s := range list {
		made = append(made, s)
	}
	return made
}
