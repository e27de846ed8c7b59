package azure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
)

// errUnknown: these credentials may not ask.
var errUnknown = errors.New("not known")

// ask reads a list below a scope that not everybody may read.
func (c *clients) ask(ctx context.Context, link string, into any) error {
	path, _, _ := strings.Cut(link, "?")
	err := translate(c.get(ctx, link, into), "read %s", path[strings.LastIndexByte(path, '/')+1:])
	if errors.Is(err, kamino.ErrForbidden) || errors.Is(err, kamino.ErrNotFound) {
		return errUnknown
	}
	return err
}

// lockedBy returns ErrForbidden if a management lock at or above a resource group (CanNotDelete or
// ReadOnly) keeps a run from deleting its snapshot, or from writing at all
// (https://learn.microsoft.com/azure/azure-resource-manager/management/lock-resources;
// that $filter=atScope() shows locks of the subscription is unverified).
//
// CanNotDelete is refused although a run could build its image: each run would leave a snapshot,
// whose name blocks the next day's run. Whoever locks a group wants to be asked before something in
// it is deleted. A lock on one image version is no obstacle: the step prune skips that version.
func (p *Provider) lockedBy(ctx context.Context, c *clients, scope string) error {
	var body struct {
		Value []struct {
			ID         string `json:"id"`
			Name       string `json:"name"`
			Properties struct {
				Level string `json:"level"`
			} `json:"properties"`
		} `json:"value"`
	}
	if err := c.ask(ctx, scope+"/providers/Microsoft.Authorization/locks?api-version=2020-05-01&$filter=atScope()", &body); err != nil {
		return err
	}
	for _, l := range body.Value {
		at, _, ok := strings.Cut(strings.ToLower(l.ID), "/providers/microsoft.authorization/locks/")
		if !ok || !covers(at, scope) {
			continue
		}
		what := "snapshots and old image versions could not be deleted"
		if strings.EqualFold(l.Properties.Level, "ReadOnly") {
			what = "nothing could be made, written, switched off or started"
		}
		return kamino.WithHint(fmt.Errorf("%w: lock %s (%s) at %s: %s", kamino.ErrForbidden, l.Name, l.Properties.Level, at, what),
			"az lock delete --ids %s; image versions can be locked one by one instead", l.ID)
	}
	return nil
}

// covers says whether a scope is another one or above it.
func covers(outer, scope string) bool {
	outer, scope = strings.ToLower(strings.TrimSuffix(outer, "/")), strings.ToLower(scope)
	return outer == scope || strings.HasPrefix(scope, outer+"/")
}

// everyone is the principal of deny assignments that hold for all but those whom
// they except (https://learn.microsoft.com/azure/role-based-access-control/deny-assignments).
const everyone = "00000000-0000-0000-0000-000000000000"

type principal struct {
	ID string `json:"id"`
}

// deniedBy is an error where a deny assignment takes a needed action away. One
// that excepts a group is passed over: who is in it is not known here.
func (p *Provider) deniedBy(ctx context.Context, c *clients, scope string) error {
	var body struct {
		Value []struct {
			Properties struct {
				Name              string       `json:"denyAssignmentName"`
				Scope             string       `json:"scope"`
				Permissions       []permission `json:"permissions"`
				Principals        []principal  `json:"principals"`
				ExcludePrincipals []struct {
					principal
					Type string `json:"type"`
				} `json:"excludePrincipals"`
			} `json:"properties"`
		} `json:"value"`
	}
	if err := c.ask(ctx, scope+"/providers/Microsoft.Authorization/denyAssignments?api-version=2022-04-01&$filter=atScope()",
		&body); err != nil {
		return err
	}
	p.mu.Lock()
	me := p.caller
	p.mu.Unlock()
	for _, d := range body.Value {
		meant := slices.ContainsFunc(d.Properties.Principals,
			func(who principal) bool { return who.ID == everyone || strings.EqualFold(who.ID, me) })
		excepted := me == ""
		for _, e := range d.Properties.ExcludePrincipals {
			excepted = excepted || strings.EqualFold(e.ID, me) || strings.EqualFold(e.Type, "Group")
		}
		var denied []string
		for _, a := range actions() {
			if a.without == "" && allowed(d.Properties.Permissions, a.name) {
				denied = append(denied, a.name)
			}
		}
		if meant && !excepted && len(denied) > 0 {
			return kamino.WithHint(fmt.Errorf("%w: deny assignment %q at %s denies %s", kamino.ErrForbidden, d.Properties.Name,
				d.Properties.Scope, strings.Join(denied, ", ")),
				"such assignments are made by Azure for resource groups that it manages (AKS, managed applications): choose a pool elsewhere")
		}
	}
	return nil
}

// objectID is whose token it is, "" where the token does not tell. Tokens are
// opaque by contract; those of Entra ID and AD FS are JWTs with the claim oid.
func objectID(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		OID string `json:"oid"`
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	return claims.OID
}
