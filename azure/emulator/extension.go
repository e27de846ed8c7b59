package emulator

import (
	"net/http"
	"strings"
)

const profileKeys = "properties/virtualMachineProfile/extensionProfile/extensions"

func extensionsOf(pool *resource) []object {
	return items(pool.doc, strings.Split(profileKeys, "/")...)
}

// showExtension is an element of the model as its own resource.
func showExtension(c *call, pool *resource, e object) object {
	shown := clone(e)
	shown["id"], shown["type"] = c.render(pool)["id"].(string)+"/extensions/"+text(e, "name"), extensions
	set(shown, "Succeeded", "properties", "provisioningState")
	return shown
}

func listExtensions(c *call) reply {
	pool := c.read(c.target.id)
	if pool == nil {
		return notFound(c, c.target.id)
	}
	shown := []any{}
	for _, e := range extensionsOf(pool) {
		shown = append(shown, showExtension(c, pool, e))
	}
	return reply{status: http.StatusOK, body: object{"value": shown}}
}

func getExtension(c *call) reply {
	pool := c.read(parent(c.target.id))
	if pool == nil {
		return notFound(c, parent(c.target.id))
	}
	for _, e := range extensionsOf(pool) {
		if fold(text(e, "name"), c.rt.names[1]) {
			return reply{status: http.StatusOK, body: showExtension(c, pool, e)}
		}
	}
	return notFound(c, c.target.id)
}

// changeExtensions rewrites the extensions of a model; the write is one on the model.
func (c *call) changeExtensions(change func([]object) []object, code int) reply {
	pool := c.t.get(parent(c.target.id))
	if pool == nil {
		return notFound(c, parent(c.target.id))
	}
	if err := busy(pool); err != nil {
		return reply{err: err}
	}
	old := pool
	pool = c.t.edit(old.id)
	kept := change(extensionsOf(pool))
	set(pool.doc, array(kept...), strings.Split(profileKeys, "/")...)
	if err := checkModel(pool); err != nil {
		return reply{err: err}
	}
	pool.touch()
	if err := c.t.newModel(pool); err != nil {
		return reply{err: err}
	}
	rep := c.modelOperation(pool, old, nil, code)
	rep.shows = ""
	rep.op.latency = c.s.delays.DeleteExtension
	return rep
}

func putExtension(c *call) reply {
	name := c.rt.names[1]
	body := clone(c.body)
	code := http.StatusCreated
	rep := c.changeExtensions(func(all []object) []object {
		added := object{"name": name, "properties": part(body, "properties")}
		if pool := c.t.edit(parent(c.target.id)); pool.secrets == nil {
			pool.secrets = map[string]object{}
		}
		c.t.edit(parent(c.target.id)).hideSettings(added)
		unset(added, "properties", "provisioningState")
		var kept []object
		for _, e := range all {
			if fold(text(e, "name"), name) {
				code = http.StatusOK
				continue
			}
			kept = append(kept, e)
		}
		return append(kept, added)
	}, http.StatusCreated)
	if rep.err != nil {
		return rep
	}
	rep.status = code
	rep.body = showExtension(c, c.t.get(parent(c.target.id)), object{"name": name, "properties": part(body, "properties")})
	unset(rep.body.(object), "properties", "protectedSettings")
	return rep
}

func deleteExtension(c *call) reply {
	if rep := getExtension(c); rep.err != nil {
		return reply{status: http.StatusNoContent}
	}
	return c.changeExtensions(func(all []object) []object {
		var kept []object
		for _, e := range all {
			if !fold(text(e, "name"), c.rt.names[1]) {
				kept = append(kept, e)
			}
		}
		return kept
	}, http.StatusAccepted)
}
