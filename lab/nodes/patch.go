package nodes

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/patch"
)

// unit is the host's, which outlives the pod that has started it, and not the boot.
type unit struct {
	done   chan struct{}
	report patch.Report
}

// isPatch: the agent upgrades the node's packages in it, looks at it, or restarts it.
func isPatch(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Labels["app.kubernetes.io/name"], "kamino-patch")
}

// playPatch is the life of such a pod, with the exit codes of docs/agent.md.
func (k *player) playPatch(ctx context.Context, pod *corev1.Pod) error {
	err := k.patchVerb(ctx, pod)
	if ctx.Err() != nil {
		return nil // the pod or the machine ended first
	}
	var refused *patch.Refused
	switch {
	case errors.As(err, &refused):
		return k.post(ctx, pod, k.Ended(pod, 3, err.Error()))
	case err != nil:
		return k.post(ctx, pod, k.Ended(pod, 1, err.Error()))
	}
	return k.finish(ctx, pod, corev1.PodSucceeded, "")
}

// patchVerb does to the simulated disk what the agent's verb patch does to a real one.
func (k *player) patchVerb(ctx context.Context, pod *corev1.Pod) error {
	if err := k.meant(pod); err != nil {
		return err
	}
	run, nonce := pod.Labels["kamino.dev/run"], Nonce(pod)
	policy, err := patch.ParsePolicy(PodEnv(pod, patch.PolicyEnv))
	if err != nil {
		return err
	}
	switch policy.Task {
	case patch.TaskCheck:
		files, err := k.fleet.cloud.ReadDisk(k.Instance.ID)
		if err != nil {
			return err
		}
		return CheckUpgrade(files)
	case patch.TaskReboot:
		if policy.Boot == k.bootID {
			k.machine.restart(k.Instance)
		}
		return nil
	case patch.TaskLook:
		files, err := k.fleet.cloud.ReadDisk(k.Instance.ID)
		if err != nil {
			return err
		}
		r := k.Boot().Look(files)
		r.FailedUnits = append(r.FailedUnits, k.Behaviour.Units...)
		return k.tellPatch(ctx, kamino.AnnotationPatchLook, run, nonce, r)
	}
	u, err := k.patchUnit(run, nonce, policy)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-u.done:
		return k.tellPatch(ctx, kamino.AnnotationPatch, run, nonce, u.report)
	}
}

// patchUnit is the unit of a run: the one that works or has worked already, or a new one.
func (k *player) patchUnit(run, nonce string, p patch.Policy) (*unit, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.units[run]; u != nil {
		return u, nil
	}
	var refused error
	err := k.fleet.cloud.WriteDisk(k.Instance.ID, func(files map[string]string) { refused = BeginUpgrade(files, run) })
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	u := &unit{done: make(chan struct{})}
	k.units[run] = u
	k.work.Go(func() {
		defer close(u.done)
		if k.fleet.wait(k.ctx, k.fleet.latencies.Patch) != nil {
			return // the journal stays
		}
		if err := k.fleet.cloud.WriteDisk(k.Instance.ID, func(files map[string]string) {
			u.report = k.Boot().Upgrade(files, p)
			k.packages = packageDigest(files[packagesFile])
		}); err != nil {
			u.report.Failure = err.Error()
		}
		if err := k.tellPatch(k.ctx, kamino.AnnotationPatch, run, nonce, u.report); err != nil && k.ctx.Err() == nil {
			k.fleet.logger.Error("result of a patch is not told", "node", k.node, "error", err)
		}
	})
	return u, nil
}

// tellPatch writes a report on the node as agent/verb_patch.go does.
func (k *player) tellPatch(ctx context.Context, annotation, run, nonce string, r patch.Report) error {
	answer, err := PatchAnswer(run, nonce, r)
	if err != nil {
		return err
	}
	return k.retry(ctx, func(ctx context.Context) error {
		return k.Annotate(ctx, map[string]string{annotation: answer})
	})
}
