package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// checkProof makes sure that the run may read from the cluster what a proof observes.
func (c *canary) checkProof(ctx context.Context) error {
	examiner, looks := c.engine.Cluster.(kamino.Examiner)
	if !looks || c.opts.Proof.Mode == kamino.ProveNone {
		return nil
	}
	if err := examiner.PreflightProof(ctx, c.opts.Proof.Probe); err != nil {
		return fmt.Errorf("check the rights of a proof: %w", err)
	}
	return nil
}

// chooseProof refuses, by reading only, a run that has to prove its version where no canary can be
// created.
func (c *canary) chooseProof(ctx context.Context) error {
	if c.mode = c.opts.Proof.Mode; c.mode != kamino.ProveCanary {
		return nil
	}
	prover, _, ok := c.engine.prover()
	if !ok {
		return c.refuse(kamino.Refusal{Why: "this provider cannot create canaries"})
	}
	doubts, err := prover.PreflightCanary(ctx)
	if errors.Is(err, kamino.ErrForbidden) {
		return c.refuse(kamino.Refusal{Why: err.Error(), Do: "grant the rights of " + prover.CanaryRights()})
	} else if err != nil {
		return fmt.Errorf("check the rights of a canary: %w", err)
	}
	c.doubtAll(kamino.StepValidate, doubts)
	if c.fit.Size == "" {
		if c.fit, err = prover.CanaryFit(ctx, c.pool); err != nil {
			return fmt.Errorf("compare pool %s with a canary: %w", c.pool.Name, err)
		}
	}
	return c.refuse(c.fit.Refusals...)
}

// refuse is the refusal of a proof by canary, with the given reasons; nil without any.
func (c *canary) refuse(reasons ...kamino.Refusal) error {
	if len(reasons) == 0 {
		return nil
	}
	accept := "use --prove none to accept the version unproved"
	if c.work() == kamino.WorkProve {
		accept = "omit --prove to accept the version unproved"
	}
	refused := &kamino.RefusedError{Subject: "a canary of pool " + c.pool.Name}
	for _, f := range reasons {
		f.Code = kamino.CodeNoCanary
		if f.Do != "" {
			f.Do += ", or "
		}
		f.Do += accept
		refused.Refusals = append(refused.Refusals, f)
	}
	return refused
}

// planProbe checks the operator's Job as connect does. Credentials that only read may not create
// it, not even without effect.
func (c *canary) planProbe(ctx context.Context) error {
	if c.opts.Proof.Probe == nil {
		return nil
	}
	err := c.checkProof(ctx)
	if errors.Is(err, kamino.ErrForbidden) {
		c.doubt(kamino.StepConnect, "whether the probe would be admitted: "+err.Error())
		return nil
	}
	return err
}

// makesCanaries reports whether the provider can make canaries, so that there may be some.
func (c *canary) makesCanaries() bool { _, _, ok := c.engine.prover(); return ok }

// leftCanaries lists the canaries of a pool that runs left, by reading only.
func (c *canary) leftCanaries(ctx context.Context) ([]poolstate.Leftover, error) {
	if !c.makesCanaries() {
		return nil, nil
	}
	list, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	left := make([]poolstate.Leftover, len(list))
	for i, one := range list {
		left[i] = poolstate.Leftover{Pool: c.pool.ID, Run: one.Run, Node: one.Hostname, What: "canary " + one.Name, Kept: one.Name}
	}
	return left, nil
}

// proofExpected is the expected duration of a version's proof.
func (c *canary) proofExpected() time.Duration {
	boot := 5 * time.Minute
	if usual := kamino.Usually(c.held.Lease.Ledger.Boots); usual > 0 {
		boot = usual
	}
	return boot + c.opts.Proof.For
}
