package emulator

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Pointer says how a scale set that names an image definition, and no version, finds "latest",
// where nobody has written it down. The zero value resolves anew at create, scale-out, reimage and
// repair, as users have seen it (https://github.com/Azure/azure-rest-api-specs/issues/4446).
// Every field is assumed, unverified on real Azure.
type Pointer struct {
	// Sticky lets scale-out keep what latest was when the model was written last, as one user
	// reported (https://github.com/Azure/azvmimagebuilder/issues/33).
	Sticky bool
	// Resolved lets instances show the version that they were made of as their image reference;
	// else they show the definition, as marketplace images show "latest".
	Resolved bool
	// Lag is for how long after its write excludeFromLatest resolves as before.
	Lag time.Duration
}

// noLatest is why a definition gives a location nothing
// (https://learn.microsoft.com/azure/virtual-machines/troubleshooting-shared-images).
func (t *tx) noLatest(definition, location string) *apiError {
	for _, v := range t.children(definition, t.s.kinds[key(imageVersions)]) {
		if !t.excluded(v, location) && provisioned(v) {
			return notInRegion(definition, location)
		}
	}
	return refuse(http.StatusNotFound, "GalleryImageNotFound", "There is no latest image version exists for \"%s\".", definition)
}

func notInRegion(id, location string) *apiError {
	return refuse(http.StatusNotFound, "GalleryImageNotFound",
		"The gallery image %s is not available in %s region. Please contact image owner to replicate to this region, or change your requested region.", id, location)
}

// latest is the version of a definition with the highest number among those that are
// provisioned, replicated to the location and not excluded.
func (t *tx) latest(definition, location string) *resource {
	var best *resource
	for _, v := range t.children(definition, t.s.kinds[key(imageVersions)]) {
		if t.excluded(v, location) || !provisioned(v) || !replicatedTo(v, location) {
			continue
		}
		if best == nil || newer(v.name(), best.name()) {
			best = v
		}
	}
	return best
}

// provisioned says whether latest may mean a version. While it is updated it may; that is
// assumed, unverified on real Azure. One that is soft-deleted is meant by its exact ID only
// (GalleryImageVersionStateSoftDeleted in armcompute).
func provisioned(v *resource) bool {
	return !v.hidden && (v.state() == "Succeeded" || v.state() == "Updating")
}

// excluded says whether a version is kept out of latest in a location: either flag does, which is
// assumed, unverified on real Azure.
func (t *tx) excluded(v *resource, location string) bool {
	if at, err := time.Parse(time.RFC3339Nano, text(v.facts, "flaggedAt")); err == nil && t.now.Before(at.Add(t.s.Pointer.Lag)) {
		return truth(v.facts, "excludedBefore")
	}
	for _, region := range items(v.doc, "properties", "publishingProfile", "targetRegions") {
		if sameRegion(text(region, "name"), location) && truth(region, "excludeFromLatest") {
			return true
		}
	}
	return truth(v.doc, "properties", "publishingProfile", "excludeFromLatest")
}

// flagged notes when the flag of a version was changed, for Pointer.Lag.
func (r *resource) flagged(old *resource, now time.Time) {
	before := truth(old.doc, "properties", "publishingProfile", "excludeFromLatest")
	if truth(r.doc, "properties", "publishingProfile", "excludeFromLatest") != before {
		r.facts["excludedBefore"], r.facts["flaggedAt"] = before, now.UTC().Format(time.RFC3339Nano)
	}
}

// birthImage is what a new instance of a scale set is made of.
func (t *tx) birthImage(pool *resource) (image, *apiError) {
	if id := text(pool.facts, "latest"); id != "" && t.s.Pointer.Sticky {
		return t.imageVersion(id, pool)
	}
	return t.resolveImage(pool)
}

// remember notes what latest is while a model is written, for Pointer.Sticky.
func (t *tx) remember(pool *resource) {
	delete(pool.facts, "latest")
	id := text(imageOf(pool), "id")
	if rt, ok := parse(id); !ok || len(rt.names) != 2 {
		return
	}
	if v := t.latest(id, pool.location()); v != nil {
		pool.facts["latest"] = v.id
	}
}

// newer compares Major.Minor.Patch as numbers.
func newer(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.ParseUint(as[i], 10, 32)
		y, _ := strconv.ParseUint(bs[i], 10, 32)
		if x != y {
			return x > y
		}
	}
	return false
}

// replicatedTo says whether a copy of a version is complete in a location.
func replicatedTo(v *resource, location string) bool {
	replicas, counted := v.facts["replicas"].([]any)
	for _, region := range items(v.doc, "properties", "publishingProfile", "targetRegions") {
		if !sameRegion(text(region, "name"), location) {
			continue
		}
		for _, done := range replicas {
			if name, _ := done.(string); sameRegion(name, location) {
				return true
			}
		}
		return !counted
	}
	return false
}

// replicated notes that every target region of a version has its copies.
func (r *resource) replicated() {
	replicas := []any{}
	for _, region := range items(r.doc, "properties", "publishingProfile", "targetRegions") {
		replicas = append(replicas, text(region, "name"))
	}
	r.facts["replicas"] = replicas
}
