package emulator

import (
	"net/http"
	"strings"
)

// viewInstance shows an instance as GET does: its view only when it is asked for.
func viewInstance(c *call, r *resource, shown object) {
	expand := strings.ToLower(c.r.URL.Query().Get("$expand"))
	if !strings.Contains(expand, "instanceview") {
		unset(shown, "properties", "instanceView")
	}
	if strings.Contains(expand, "userdata") && r.user != "" {
		set(shown, r.user, "properties", "userData")
	}
}

func listInstances(c *call) reply {
	pool := c.read(c.target.id)
	if pool == nil {
		return notFound(c, c.target.id)
	}
	if isFlexible(pool) {
		return notUniform(pool)
	}
	return c.page(c.readAll(pool.id, c.s.kinds[key(scaleSetVMs)]))
}

func notUniform(pool *resource) reply {
	return failed(http.StatusConflict, "OperationNotAllowed",
		"The operation is not supported on Virtual Machine Scale Set '%s' with Flexible orchestration mode. Use the Virtual Machines API for its instances.", pool.name())
}

// listVMs lists virtual machines, of one scale set if a filter names it.
func listVMs(c *call) reply {
	parent := c.target.id
	if c.rt.group == "" {
		parent = "/subscriptions/" + c.rt.subscription
	}
	all := c.readAll(parent, c.target.kind)
	filter := c.r.URL.Query().Get("$filter")
	if !strings.Contains(filter, "virtualMachineScaleSet/id") {
		return c.page(all)
	}
	var mine []*resource
	for _, r := range all {
		if strings.Contains(strings.ToLower(filter), "'"+key(text(r.facts, "pool"))+"'") {
			mine = append(mine, r)
		}
	}
	return c.page(mine)
}

func getInstanceView(c *call) reply {
	r := c.read(c.target.id)
	if r == nil {
		return notFound(c, c.target.id)
	}
	return reply{status: http.StatusOK, body: clone(part(r.doc, "properties", "instanceView"))}
}

// getSetView is the instance view of a scale set: how many instances are in which state.
func getSetView(c *call) reply {
	pool := c.read(c.target.id)
	if pool == nil {
		return notFound(c, c.target.id)
	}
	if isFlexible(pool) {
		return notUniform(pool)
	}
	counts := map[string]int{}
	var order []string
	for _, r := range c.t.instancesOf(pool) {
		for _, s := range items(r.doc, "properties", "instanceView", "statuses") {
			if counts[text(s, "code")] == 0 {
				order = append(order, text(s, "code"))
			}
			counts[text(s, "code")]++
		}
	}
	summary := []any{}
	for _, code := range order {
		summary = append(summary, object{"code": code, "count": counts[code]})
	}
	return reply{status: http.StatusOK, body: object{"virtualMachine": object{"statusesSummary": summary}, "extensions": []any{},
		"statuses": array(status("ProvisioningState/"+strings.ToLower(pool.state()), c.now)), "orchestrationServices": []any{}}}
}

// putInstance changes what may be changed of one instance: protection policy, tags, user data.
func putInstance(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil {
		return notFound(c, c.target.id)
	}
	if err := busy(r); err != nil {
		return reply{err: err}
	}
	if err := preconditions(c, r); err != nil {
		return reply{err: err}
	}
	r = c.t.edit(r.id)
	if policy, ok := dig(c.body, "properties", "protectionPolicy").(object); ok {
		set(r.doc, clone(policy), "properties", "protectionPolicy")
	} else if c.r.Method == http.MethodPut {
		unset(r.doc, "properties", "protectionPolicy")
	}
	if tags, ok := c.body["tags"].(object); ok {
		r.doc["tags"] = clone(tags)
	}
	if user, ok := dig(c.body, "properties", "userData").(string); ok {
		r.user = user
	}
	r.touch()
	r.setState("Updating")
	return reply{status: http.StatusOK, shows: r.id, op: settling(r, computeFamily, c.s.delays.UpdateInstance)}
}

func deleteInstance(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil {
		return reply{status: http.StatusNoContent}
	}
	return c.removeInstances([]*resource{r})
}

// deleteScaleSet ends whatever is done to the scale set: that a deletion need not wait for a
// creation whose machines never report is assumed, unverified on real Azure.
func deleteScaleSet(c *call) reply {
	pool := c.t.get(c.target.id)
	if pool == nil {
		return reply{status: http.StatusNoContent}
	}
	if pool.state() == "Deleting" {
		return reply{err: busy(pool)}
	}
	c.t.preempt(pool.id)
	pool = c.t.edit(pool.id)
	pool.setState("Deleting")
	rep := c.removeInstances(c.t.instancesOf(pool))
	finish, id := rep.op.finish, pool.id
	rep.op.location, rep.op.latency = pool.location(), c.s.delays.DeleteScaleSet
	rep.op.holds = append(rep.op.holds, id)
	rep.op.finish = func(t *tx) *apiError {
		t.remove(id)
		return finish(t)
	}
	fail := rep.op.fail
	rep.op.fail = func(t *tx, err *apiError) {
		if fail(t, err); t.get(id) != nil {
			t.edit(id).setState("Failed")
		}
	}
	return rep
}
