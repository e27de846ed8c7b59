package emulator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// The names of the resource types, as ARM spells them.
const (
	scaleSets       = "Microsoft.Compute/virtualMachineScaleSets"
	scaleSetVMs     = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
	extensions      = "Microsoft.Compute/virtualMachineScaleSets/extensions"
	virtualMachines = "Microsoft.Compute/virtualMachines"
	disks           = "Microsoft.Compute/disks"
	snapshots       = "Microsoft.Compute/snapshots"
	galleries       = "Microsoft.Compute/galleries"
	imageDefs       = "Microsoft.Compute/galleries/images"
	imageVersions   = "Microsoft.Compute/galleries/images/versions"
)

func getResource(c *call) reply {
	r := c.read(c.target.id)
	if r == nil || r.hidden {
		return notFound(c, c.target.id)
	}
	return reply{status: http.StatusOK, body: c.render(r)}
}

// viewScaleSet shows a scale set without what ARM never returns.
func viewScaleSet(c *call, r *resource, shown object) {
	if strings.Contains(strings.ToLower(c.r.URL.Query().Get("$expand")), "userdata") && r.user != "" {
		set(shown, r.user, "properties", "virtualMachineProfile", "userData")
	}
}

// preconditions checks If-Match and If-None-Match.
func preconditions(c *call, r *resource) *apiError {
	match, none := c.r.Header.Get("If-Match"), c.r.Header.Get("If-None-Match")
	if none == "*" && r != nil {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The resource '%s' already exists.", r.id)
	}
	if match == "" || match == "*" && r != nil {
		return nil
	}
	if r == nil {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The resource does not exist, and If-Match was given.")
	}
	if strings.Trim(match, `"`) != strconv.Itoa(r.etag) {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed",
			"Etag provided in if-match header %q does not match etag %q of resource.", strings.Trim(match, `"`), strconv.Itoa(r.etag))
	}
	return nil
}

// touch gives a resource its next etag.
func (r *resource) touch() {
	r.etag++
	r.doc["etag"] = fmt.Sprintf("%q", strconv.Itoa(r.etag))
}

func putScaleSet(c *call) reply {
	old := c.t.get(c.target.id)
	if err := preconditions(c, old); err != nil {
		return reply{err: err}
	}
	if err := c.identityValues(); err != nil {
		return reply{err: err}
	}
	if old == nil {
		return createScaleSet(c)
	}
	return updateScaleSet(c, mergePut)
}

func patchScaleSet(c *call) reply {
	old := c.t.get(c.target.id)
	if old == nil {
		return notFound(c, c.target.id)
	}
	if err := preconditions(c, old); err != nil {
		return reply{err: err}
	}
	return updateScaleSet(c, mergePatch)
}

// identityValues refuses read-only fields of user-assigned identities
// (kubernetes/autoscaler#1592).
func (c *call) identityValues() *apiError {
	for id := range part(c.body, "identity", "userAssignedIdentities") {
		value := part(c.body, "identity", "userAssignedIdentities", id)
		if (has(value, "clientId") || has(value, "principalId")) && !c.s.TolerateIdentityValues {
			return refuse(http.StatusBadRequest, "InvalidIdentityValues",
				"Invalid value for the identities '%s'. The 'UserAssignedIdentities' property keys should only be empty json objects, null or the resource exisiting property.", id)
		}
	}
	return nil
}

func createScaleSet(c *call) reply {
	if text(c.body, "location") == "" {
		return failed(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	if err := c.birth(); err != nil {
		return reply{err: err}
	}
	body := clone(c.body)
	pool := c.t.put(&resource{id: c.target.id, kind: c.target.kind, created: c.now, doc: object{}, secrets: map[string]object{},
		facts: object{"next": 0, "generation": "V2", "architecture": architectureOf(text(body, "sku", "name"))}})
	if err := pool.hide(body); err != nil {
		return reply{err: err}
	}
	pool.doc = body
	pool.doc["id"], pool.doc["name"], pool.doc["type"] = pool.id, pool.name(), scaleSets
	if text(pool.doc, "properties", "orchestrationMode") == "" {
		set(pool.doc, "Uniform", "properties", "orchestrationMode")
	}
	if text(pool.doc, "properties", "upgradePolicy", "mode") == "" && !isFlexible(pool) {
		set(pool.doc, "Manual", "properties", "upgradePolicy", "mode")
	}
	if strings.Contains(strings.ToLower(text(pool.doc, "identity", "type")), "systemassigned") {
		set(pool.doc, identifier(), "identity", "principalId") // another one, without roles
	}
	set(pool.doc, stamp(c.now), "properties", "timeCreated")
	set(pool.doc, identifier(), "properties", "uniqueId")
	capacity, _ := number(pool.doc, "sku", "capacity")
	pool.doc["etag"] = `"0"`
	pool.touch()
	c.t.remember(pool)
	born, err := c.t.grow(pool, capacity)
	if err != nil {
		return reply{err: err}
	}
	return c.modelOperation(pool, nil, born, http.StatusCreated)
}

// updateScaleSet writes a change of the model, by the rules of PUT or of PATCH.
func updateScaleSet(c *call, apply func(pool *resource, body object) *apiError) reply {
	if err := busy(c.t.get(c.target.id)); err != nil {
		return reply{err: err}
	}
	old := c.t.get(c.target.id)
	pool := c.t.edit(c.target.id)
	body := clone(c.body)
	if err := pool.hide(body); err != nil {
		return reply{err: err}
	}
	if err := apply(pool, body); err != nil {
		return reply{err: err}
	}
	if !same(imageOf(old), imageOf(pool)) {
		if _, err := c.t.resolveImage(pool); err != nil {
			return reply{err: err}
		}
	}
	pool.touch()
	if c.makesModel(old, pool) {
		if err := c.t.newModel(pool); err != nil {
			return reply{err: err}
		}
	}
	born, err := c.t.resize(old, pool)
	if err != nil {
		return reply{err: err}
	}
	return c.modelOperation(pool, old, born, http.StatusOK)
}

func imageOf(pool *resource) object {
	return part(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "imageReference")
}

// changedModel says whether instances made from now on differ from those made before.
func (r *resource) changedModel(old *resource) bool {
	return r.custom != old.custom || !same(part(r.doc, "properties", "virtualMachineProfile"),
		part(old.doc, "properties", "virtualMachineProfile"))
}

// modelOperation is the operation of a write on a scale set.
func (c *call) modelOperation(pool, old *resource, born []*resource, code int) reply {
	s, id := c.s, pool.id
	pool.setState("Updating")
	if old == nil {
		pool.setState("Creating")
	}
	capacity, _ := number(pool.doc, "sku", "capacity")
	if !isFlexible(pool) || capacity > 0 {
		set(pool.doc, capacity, "sku", "capacity")
	}
	p := &pending{family: computeFamily, location: pool.location(), holds: []string{id}, latency: s.delays.UpdateScaleSet}
	p.finish = func(t *tx) *apiError {
		if t.get(id) == nil {
			return nil
		}
		t.edit(id).setState("Succeeded")
		if old != nil && t.get(id).changedModel(old) {
			t.upgradeAutomatically(t.get(id))
		}
		return nil
	}
	p.fail = func(t *tx, _ *apiError) { t.restore(id, old) }
	s.accompany(p, pool, c.t, born)
	return reply{status: code, shows: id, op: p}
}

// restore puts back the model a failed update had changed.
func (t *tx) restore(id string, old *resource) {
	pool := t.edit(id)
	if pool == nil {
		return
	}
	if old != nil {
		pool.doc, pool.custom, pool.user, pool.secrets = clone(old.doc), old.custom, old.user, old.secrets
		for _, of := range []string{"model", "latest"} {
			pool.facts[of] = old.facts[of]
		}
		pool.touch()
	}
	living := 0
	for _, r := range t.instancesOf(pool) {
		if r.state() == "Creating" {
			t.discard(r)
			continue
		}
		living++
	}
	set(pool.doc, living, "sku", "capacity")
	pool.setState("Failed")
}

func listScaleSets(c *call) reply {
	parent := c.target.id
	if c.rt.group == "" {
		parent = "/subscriptions/" + c.rt.subscription
	}
	return c.page(c.readAll(parent, c.target.kind))
}

// page answers a list, cut into pages by $skiptoken.
func (c *call) page(all []*resource) reply {
	size := c.s.PageSize
	if size <= 0 {
		size = 100
	}
	from, _ := strconv.Atoi(c.r.URL.Query().Get("$skiptoken"))
	from = max(0, min(from, len(all)))
	to := min(from+size, len(all))
	shown := []any{}
	for _, r := range all[from:to] {
		if !r.hidden {
			shown = append(shown, c.render(r))
		}
	}
	body := object{"value": shown}
	if to < len(all) {
		next := *c.r.URL
		q := next.Query()
		q.Set("$skiptoken", strconv.Itoa(to))
		next.RawQuery = q.Encode()
		body["nextLink"] = c.s.base(c.r) + next.RequestURI()
	}
	return reply{status: http.StatusOK, body: body}
}

// instancesOf lists the instances of a scale set, of either mode.
func (t *tx) instancesOf(pool *resource) []*resource {
	if !isFlexible(pool) {
		return t.children(pool.id, t.s.kinds[key(scaleSetVMs)])
	}
	rt, _ := parse(pool.id)
	var found []*resource
	for _, r := range t.children(rt.groupID(), t.s.kinds[key(virtualMachines)]) {
		if fold(text(r.facts, "pool"), pool.id) {
			found = append(found, r)
		}
	}
	return found
}
