package emulator

import (
	"net/http"
	"time"
)

// softDeleted is for how long a gallery keeps what was deleted from it, where its softDeletePolicy
// says so (https://learn.microsoft.com/azure/virtual-machines/soft-delete-gallery, a preview).
const softDeleted = 7 * 24 * time.Hour

// softDelete hides a version: its exact ID still resolves, latest does not mean it
// (GalleryImageVersionStateSoftDeleted in armcompute). That GET and lists do not show it is
// assumed, unverified on real Azure.
func (t *tx) softDelete(id string) {
	v := t.edit(id)
	if v == nil {
		return
	}
	v.hidden = true
	v.setState("Succeeded")
	t.after = append(t.after, &pending{latency: softDeleted, finish: func(t *tx) *apiError {
		if v := t.get(id); v != nil && v.hidden {
			t.remove(id)
		}
		return nil
	}})
}

// restoreVersion brings a soft-deleted version back, which PATCH {restore: true} asks for. That
// its name cannot be used meanwhile is assumed, unverified on real Azure.
func (c *call) restoreVersion(v *resource) reply {
	if c.r.Method != http.MethodPatch || !truth(c.body, "properties", "restore") {
		return failed(http.StatusConflict, "Conflict", "The image version '%s' is soft-deleted. Restore or delete it first.", v.id)
	}
	v = c.t.edit(v.id)
	v.hidden = false
	return reply{status: http.StatusOK, shows: v.id, op: c.settle(v, "Updating", c.s.delays.UpdateVersion)}
}
