package engine

import (
	"slices"

	"kamino.dev/kamino"
)

// Result is the result of a run.
type Result struct {
	Run         string               `json:"run"`
	Pool        kamino.PoolID        `json:"pool"`
	Donor       string               `json:"donor"`
	Version     string               `json:"version"`
	Image       string               `json:"image"` // ID of the version
	Changed     bool                 `json:"changed"`
	Adopted     bool                 `json:"adopted,omitempty"` // an interrupted run was adopted
	Steps       []kamino.StepTime    `json:"steps"`
	AwaySeconds float64              `json:"donorAwaySeconds"` // 0 if not known; of an adopted run since the seal of the disk began
	ModelDiff   []kamino.FieldChange `json:"modelDiff"`
	Pruned      []string             `json:"pruned"`
	// Hidden: the version is not offered. Waiting: only kamino promote promotes it. Owner manages
	// the model, and every new instance runs Extensions, if Kamino does not write the model.
	Hidden     bool               `json:"hidden,omitempty"`
	Waiting    bool               `json:"waiting,omitempty"`
	Next       string             `json:"next,omitempty"` // the version, if the pool's next node boots from it
	Proof      *kamino.Proved     `json:"proof,omitempty"`
	Owner      *kamino.Owner      `json:"owner,omitempty"`
	Extensions []kamino.Extension `json:"extensions,omitempty"`
	// Warnings are errors after the image was in use: leftovers that the next run cleans up.
	Warnings []string `json:"warnings,omitempty"`
}

// proofSeconds is how long the steps took that prove the version.
func (r Result) proofSeconds() (sum float64) {
	for _, s := range r.Steps {
		if slices.Contains([]string{kamino.StepLaunch, kamino.StepJoin, kamino.StepExamine, kamino.StepRetire}, s.Name) {
			sum += s.Seconds
		}
	}
	return sum
}
