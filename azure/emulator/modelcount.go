package emulator

import "net/http"

// modelLimit is how many models the instances of a Uniform scale set may refer to
// (https://github.com/MicrosoftDocs/azure-docs/issues/103472, by a Microsoft author).
const modelLimit = 10

// Models says what counts as a model where it is not known. The zero value is what was reported;
// every field is assumed, unverified on real Azure.
type Models struct {
	// EqualWritesMakeNone lets a write of a profile that changes nothing make no model. Reported
	// is the opposite (https://github.com/Azure/azure-cli/issues/28008,
	// https://github.com/Azure/azure-sdk-for-java/issues/32223).
	EqualWritesMakeNone bool
	// WritesPassTheLimit lets a scale set whose instances refer to ten models take another, and
	// refuses only the instance that would refer to it.
	WritesPassTheLimit bool
}

// newModel counts a write of the model. Instances keep the one that they were made with; a
// Flexible scale set has no limit that anybody reported.
func (t *tx) newModel(pool *resource) *apiError {
	if len(t.modelsOf(pool)) >= modelLimit && !t.s.Models.WritesPassTheLimit {
		return tooManyModels(pool)
	}
	made, _ := number(pool.facts, "models")
	pool.facts["models"], pool.facts["model"] = made+1, made+1
	t.remember(pool)
	for _, r := range t.instancesOf(pool) {
		set(t.edit(r.id).doc, false, "properties", "latestModelApplied")
	}
	return nil
}

// roomForModel refuses an instance that would refer to an eleventh model.
func (t *tx) roomForModel(pool *resource) *apiError {
	referred := t.modelsOf(pool)
	current, _ := number(pool.facts, "model")
	if len(referred) >= modelLimit && !referred[current] {
		return tooManyModels(pool)
	}
	return nil
}

// modelsOf are the models that the instances of a scale set refer to, those being deleted included.
func (t *tx) modelsOf(pool *resource) map[int]bool {
	referred := map[int]bool{}
	if isFlexible(pool) {
		return referred
	}
	for _, r := range t.instancesOf(pool) {
		model, _ := number(r.facts, "model")
		referred[model] = true
	}
	return referred
}

// tooManyModels has the text of https://github.com/microsoft/onefuzz/issues/2318; status and code
// are assumed, unverified on real Azure.
func tooManyModels(pool *resource) *apiError {
	return refuse(http.StatusConflict, "OperationNotAllowed",
		"Virtual Machine Scale Set '%s' has reached its limit of %d models that may be referenced by one or more VMs belonging to the Virtual Machine Scale Set. Upgrade the VMs to the latest model of the Virtual Machine Scale Set before trying again.",
		pool.name(), modelLimit)
}

// follow makes an instance refer to the present model of its scale set.
func (r *resource) follow(pool *resource) {
	r.facts["model"], _ = number(pool.facts, "model")
	set(r.doc, true, "properties", "latestModelApplied")
}

// makesModel says whether a write of a scale set makes a model: one that brings a
// virtualMachineProfile does, capacity alone does not
// (https://github.com/Azure/azure-sdk-for-java/pull/33444).
func (c *call) makesModel(old, pool *resource) bool {
	if c.s.Models.EqualWritesMakeNone {
		return pool.changedModel(old)
	}
	return part(c.body, "properties", "virtualMachineProfile") != nil || pool.changedModel(old)
}
