package emulator

import (
	"net/http"
	"strings"
)

const (
	locks          = "Microsoft.Authorization/locks"
	encryptionSets = "Microsoft.Compute/diskEncryptionSets"
)

// lockKind is a management lock at a subscription or a resource group
// (https://learn.microsoft.com/azure/azure-resource-manager/management/lock-resources).
func lockKind() *kind {
	return &kind{name: locks, get: getResource, list: listLocks, put: putLock, delete: deleteLock}
}

// Lock puts a lock on a resource, a resource group or a subscription: level is CanNotDelete,
// ReadOnly, or "" to take it away. ARM has locks on resources too, which here nobody can write by
// HTTP.
func (s *Server) Lock(scope, name, level string) {
	s.start()
	s.alter(func(t *tx) {
		id := scope + "/providers/" + locks + "/" + name
		if level == "" {
			t.remove(id)
			return
		}
		t.put(&resource{id: id, kind: s.kinds[key(locks)], created: t.now, facts: object{},
			doc: object{"id": id, "name": name, "type": locks, "properties": object{"level": level}}})
	})
}

func putLock(c *call) reply {
	level := text(c.body, "properties", "level")
	if !fold(level, "CanNotDelete") && !fold(level, "ReadOnly") {
		return failed(http.StatusBadRequest, "LockLevelInvalid", "The lock level '%s' is invalid; use CanNotDelete or ReadOnly.", level)
	}
	status := http.StatusOK
	if c.t.get(c.target.id) == nil {
		status = http.StatusCreated
	}
	r := c.create()
	return reply{status: status, shows: r.id}
}

func deleteLock(c *call) reply {
	if c.t.get(c.target.id) == nil {
		return reply{status: http.StatusNoContent}
	}
	c.t.remove(c.target.id)
	return reply{status: http.StatusOK}
}

// listLocks lists the locks of a scope; with $filter=atScope() those above it too
// (https://learn.microsoft.com/rest/api/resources/management-locks/list-at-resource-group-level:
// that the filter lets those of the subscription through is assumed, unverified on
// real Azure).
func listLocks(c *call) reply {
	scope := "/subscriptions/" + c.rt.subscription
	if c.rt.group != "" {
		scope = c.rt.groupID()
	}
	inherited := strings.Contains(c.r.URL.Query().Get("$filter"), "atScope")
	listed := []any{}
	for _, r := range c.readAll("/subscriptions/"+c.rt.subscription, c.target.kind) {
		if fold(lockScope(r), scope) || inherited && within(scope, lockScope(r)) {
			listed = append(listed, c.render(r))
		}
	}
	return reply{status: http.StatusOK, body: object{"value": listed}}
}

func lockScope(lock *resource) string {
	return lock.id[:strings.LastIndex(lock.id, "/providers/"+locks+"/")]
}

// locked refuses what a lock at a scope or above forbids: CanNotDelete every
// DELETE, ReadOnly everything that is no read, POSTs included.
func (c *call) locked(scope string) *apiError {
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	if reads || strings.HasPrefix(c.target.kind.name, "Microsoft.Authorization/") {
		return nil
	}
	for _, r := range c.t.children("/subscriptions/"+c.rt.subscription, c.s.kinds[key(locks)]) {
		readOnly := fold(text(r.doc, "properties", "level"), "ReadOnly")
		if !within(scope, lockScope(r)) || !readOnly && c.r.Method != http.MethodDelete {
			continue
		}
		what := map[bool]string{true: "write", false: "delete"}[c.r.Method != http.MethodDelete]
		return refuse(http.StatusConflict, "ScopeLocked",
			"The scope '%s' cannot perform %s operation because following scope(s) are locked: '%s'. Please remove the lock and try again.",
			scope, what, lockScope(r))
	}
	return nil
}

// putEncryptionSet keeps a disk encryption set as it is sent: nothing here encrypts.
func putEncryptionSet(c *call) reply {
	if text(c.body, "location") == "" {
		return failed(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	r := c.create()
	r.setState("Succeeded")
	return reply{status: http.StatusOK, shows: r.id}
}
