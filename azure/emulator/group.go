package emulator

import (
	"net/http"
	"strings"
)

func listSubscriptions(c *call) reply {
	var found []*resource
	for _, r := range c.s.store.current {
		if r.kind == c.target.kind {
			found = append(found, r)
		}
	}
	sortResources(found)
	return c.page(found)
}

func listGroups(c *call) reply {
	return c.page(c.readAll("/subscriptions/"+c.rt.subscription, c.target.kind))
}

// putGroup creates or updates a resource group.
func putGroup(c *call) reply {
	if old := c.t.get(c.target.id); old != nil {
		r := c.t.edit(old.id)
		if tags, ok := c.body["tags"].(object); ok {
			r.doc["tags"] = clone(tags)
		}
		return reply{status: http.StatusOK, shows: r.id}
	}
	if text(c.body, "location") == "" {
		return failed(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	r := c.t.put(&resource{id: c.target.id, kind: c.target.kind, created: c.now, doc: clone(c.body), facts: object{}})
	r.doc["id"], r.doc["name"], r.doc["type"] = r.id, r.name(), "Microsoft.Resources/resourceGroups"
	set(r.doc, "Succeeded", "properties", "provisioningState")
	return reply{status: http.StatusCreated, shows: r.id}
}

// deleteGroup deletes an empty resource group; others are refused, which ARM would not do.
func deleteGroup(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil {
		return failed(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", c.rt.group)
	}
	for path := range c.s.store.current {
		if strings.HasPrefix(path, key(r.id)+"/") {
			return failed(http.StatusConflict, "OperationNotAllowed", "This emulator deletes only empty resource groups.")
		}
	}
	c.t.remove(r.id)
	return reply{status: http.StatusOK}
}

func getGroup(c *call) reply {
	if c.read(c.target.id) == nil {
		return failed(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", c.rt.group)
	}
	if c.r.Method == http.MethodHead { // the one HEAD of ARM: does it exist
		return reply{status: http.StatusNoContent}
	}
	return getResource(c)
}
