package emulator

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"
)

var galleryName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.]{0,78}[A-Za-z0-9])?$`)

// create begins a resource from the request's body.
func (c *call) create() *resource {
	r := c.t.put(&resource{id: c.target.id, kind: c.target.kind, created: c.now, doc: clone(c.body), facts: object{}})
	r.doc["id"], r.doc["name"], r.doc["type"] = r.id, r.name(), r.kind.name
	if part(r.doc, "properties") == nil {
		r.doc["properties"] = object{}
	}
	return r
}

// settling is the operation of a write that only has to succeed.
func settling(r *resource, family string, latency time.Duration) *pending {
	id := r.id
	end := func(state string) func(t *tx) {
		return func(t *tx) {
			if r := t.edit(id); r != nil {
				r.setState(state)
			}
		}
	}
	return &pending{family: family, location: r.location(), holds: []string{id}, latency: latency,
		finish: func(t *tx) *apiError { end("Succeeded")(t); return nil },
		fail:   func(t *tx, _ *apiError) { end("Failed")(t) }}
}

// settle brings a resource into a state that its operation ends.
func (c *call) settle(r *resource, state string, latency time.Duration) *pending {
	r.setState(state)
	return settling(r, galleryFamily, latency)
}

// removal is the reply and the operation of a DELETE.
func (c *call) removal(r *resource, family string, latency time.Duration) reply {
	id := r.id
	c.t.edit(id).setState("Deleting")
	p := &pending{family: family, location: r.location(), holds: []string{id}, latency: latency}
	p.finish = func(t *tx) *apiError { t.remove(id); return nil }
	p.fail = func(t *tx, _ *apiError) {
		if r := t.edit(id); r != nil {
			r.setState("Failed")
		}
	}
	if m := c.s.Machines; m != nil && (r.kind.name == snapshots || r.kind.name == imageVersions) {
		p.work = func(ctx context.Context) error { return m.Remove(ctx, id) }
	}
	return reply{status: http.StatusAccepted, op: p}
}

// putGallery creates or updates a gallery; its name is unique in the subscription.
func putGallery(c *call) reply {
	name := c.rt.names[0]
	if !galleryName.MatchString(name) {
		return failed(http.StatusBadRequest, "InvalidParameter",
			"The entity name 'gallery.name' is invalid according to its validation rule: ^[^_\\W][\\w-._]{0,79}(?<![-.])$: '%s' may have letters, digits, '_' and '.' only.", name)
	}
	old := c.t.get(c.target.id)
	if old != nil {
		return c.updateOf(old, c.s.delays.Gallery, nil)
	}
	if text(c.body, "location") == "" {
		return failed(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	for _, other := range c.t.children("/subscriptions/"+c.rt.subscription, c.target.kind) {
		if fold(other.name(), name) {
			return failed(http.StatusConflict, "Conflict", "The gallery name '%s' is already used in this subscription by '%s'.",
				name, other.id)
		}
	}
	r := c.create()
	set(r.doc, object{"uniqueName": c.rt.subscription + "-" + strings.ToUpper(name)}, "properties", "identifier")
	return reply{status: http.StatusCreated, shows: r.id, op: c.settle(r, "Creating", c.s.delays.Gallery)}
}

// updateOf is a PUT or PATCH on an existing gallery resource; fixed names what may not change.
func (c *call) updateOf(old *resource, latency time.Duration, fixed []string) reply {
	if err := busy(old); err != nil {
		return reply{err: err}
	}
	prefix := strings.ToLower(old.kind.name[strings.LastIndexByte(old.kind.name, '/')+1:])
	for _, name := range fixed {
		sent, was := dig(c.body, "properties", name), dig(old.doc, "properties", name)
		if sent != nil && !covers(was, sent) {
			return failed(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property '%s.properties.%s' is not allowed.",
				map[string]string{
					"images": "galleryImage", "versions": "galleryImageVersion", "galleries": "gallery"}[prefix], name)
		}
	}
	r := c.t.edit(old.id)
	body := clone(c.body)
	stripReadOnly(body)
	delete(body, "location")
	if tags, ok := body["tags"].(object); ok {
		r.doc["tags"] = tags
		delete(body, "tags")
	}
	r.doc = merge(r.doc, body)
	return reply{status: http.StatusOK, shows: r.id, op: c.settle(r, "Updating", latency)}
}

// covers says whether everything sent is already so; strings compare without case.
func covers(was, sent any) bool {
	switch sent := sent.(type) {
	case object:
		inner, ok := was.(object)
		for name, value := range sent {
			if !ok || value != nil && !covers(inner[name], value) {
				return false
			}
		}
		return true
	case string:
		text, ok := was.(string)
		return ok && fold(text, sent)
	}
	return same(was, sent)
}

func patchOf(put func(*call) reply) func(*call) reply {
	return func(c *call) reply {
		if c.t.get(c.target.id) == nil {
			return notFound(c, c.target.id)
		}
		return put(c)
	}
}

// deleteNested deletes a gallery or definition that is empty.
func deleteNested(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil {
		return reply{status: http.StatusNoContent}
	}
	if err := busy(r); err != nil {
		return reply{err: err}
	}
	for _, inner := range []string{imageDefs, imageVersions} {
		if inner != r.kind.name && len(c.t.children(r.id, c.s.kinds[key(inner)])) > 0 {
			return failed(http.StatusConflict, "CannotDeleteResource", "Can not delete resource before nested resources are deleted.")
		}
	}
	return c.removal(r, galleryFamily, c.s.delays.Gallery)
}

var (
	definitionName = regexp.MustCompile(`^[^_\W][\w\-._]{0,79}$`)
	publisherName  = regexp.MustCompile(`^[\w\-.]{0,127}[\w\-]$`)
	offerName      = regexp.MustCompile(`^[\w\-.]{0,63}[\w\-]$`)
)

// putDefinition creates or updates an image definition.
func putDefinition(c *call) reply {
	gallery := c.t.get(parent(c.target.id))
	if gallery == nil {
		return notFound(c, parent(c.target.id))
	}
	if old := c.t.get(c.target.id); old != nil {
		return c.updateOf(old, c.s.delays.Definition, []string{"identifier", "osType", "osState", "hyperVGeneration", "architecture",
			"features", "purchasePlan"})
	}
	if err := c.checkDefinition(gallery); err != nil {
		return reply{err: err}
	}
	r := c.create()
	properties := r.doc["properties"].(object)
	if text(properties, "architecture") == "" {
		properties["architecture"] = "x64"
	}
	modern := c.r.URL.Query().Get("api-version") >= "2025-03-03"
	if text(properties, "hyperVGeneration") == "" {
		properties["hyperVGeneration"] = map[bool]string{true: "V2", false: "V1"}[modern]
	}
	// From 2025-03-03 on the default is Trusted Launch supported (azure-compute-docs,
	// azure-compute-gallery.md).
	if modern && feature(r, "SecurityType") == "" && properties["hyperVGeneration"] == "V2" {
		features, _ := properties["features"].([]any)
		properties["features"] = append(features, object{"name": "SecurityType", "value": "TrustedLaunchSupported"})
	}
	return reply{status: http.StatusCreated, shows: r.id, op: c.settle(r, "Creating", c.s.delays.Definition)}
}

func (c *call) checkDefinition(gallery *resource) *apiError {
	name := c.rt.names[1]
	publisher, offer, sku := text(c.body, "properties", "identifier", "publisher"), text(c.body, "properties", "identifier", "offer"),
		text(c.body, "properties", "identifier", "sku")
	bad := func(what, value string) *apiError {
		return refuse(http.StatusBadRequest, "InvalidParameter", "The value '%s' of parameter '%s' is invalid.", value, what)
	}
	switch {
	case !definitionName.MatchString(name) || strings.HasSuffix(name, ".") || strings.HasSuffix(name, "-"):
		return refuse(http.StatusBadRequest, "InvalidParameter",
			"The entity name 'galleryImage.name' is invalid according to its validation rule: ^[^_\\W][\\w-._]{0,79}(?<![-.])$.")
	case text(c.body, "location") == "":
		return refuse(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	case !publisherName.MatchString(publisher):
		return bad("galleryImage.properties.identifier.publisher", publisher)
	case !offerName.MatchString(offer):
		return bad("galleryImage.properties.identifier.offer", offer)
	case !offerName.MatchString(sku):
		return bad("galleryImage.properties.identifier.sku", sku)
	case text(c.body, "properties", "osType") == "":
		return bad("galleryImage.properties.osType", "")
	case text(c.body, "properties", "osState") == "":
		return bad("galleryImage.properties.osState", "")
	case text(c.body, "properties", "architecture") == "Arm64" && text(c.body, "properties", "hyperVGeneration") == "V1":
		return refuse(http.StatusBadRequest, "InvalidParameter", "Architecture 'Arm64' requires Hyper-V generation 'V2'.")
	}
	for _, other := range c.t.children(gallery.id, c.target.kind) {
		if fold(text(other.doc, "properties", "identifier", "publisher"), publisher) &&
			fold(text(other.doc, "properties", "identifier", "offer"), offer) &&
			fold(text(other.doc, "properties", "identifier", "sku"), sku) {
			return refuse(http.StatusConflict, "Conflict",
				"The gallery image identifier (publisher '%s', offer '%s', sku '%s') is already used by '%s' in the gallery.", publisher,
				offer, sku, other.name())
		}
	}
	return nil
}
