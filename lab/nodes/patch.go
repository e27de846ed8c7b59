package nodes

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/patch"
)

// What a patch finds on a simulated disk and leaves there, besides the list of packages.
const (
	// UpgradesFile is what the package sources have: lines as those of the list of packages. A word
	// more tells what comes of a package: one of the constants below.
	UpgradesFile = "/etc/apt/upgrades"
	// HeldFile names the packages on hold.
	HeldFile    = "/var/lib/dpkg/held"
	journalFile = "/var/lib/dpkg/updates/0001" // there while packages are changed
	rebootFile  = "/run/reboot-required.pkgs"
	hangsFile   = "/boot/hangs"
)

// What comes of upgrading a package.
const (
	NeedsReboot = "reboot"   // it asks for one
	HangsOnce   = "hangs"    // it asks for one, from which the machine comes back by a power cycle only
	HangsAlways = "bricks"   // the same without a way back
	Breaks      = "breaks"   // dpkg fails
	FailsUnit   = "unit"     // its service has failed from then on
	brokenUnits = "/run/bad" // those
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
func (k *kubelet) playPatch(ctx context.Context, pod *corev1.Pod) error {
	err := k.patchVerb(ctx, pod)
	if ctx.Err() != nil {
		return nil // the pod or the machine ended first
	}
	var refused *patch.Refused
	switch {
	case errors.As(err, &refused):
		return k.ended(ctx, pod, 3, err.Error())
	case err != nil:
		return k.ended(ctx, pod, 1, err.Error())
	}
	return k.finish(ctx, pod, corev1.PodSucceeded, "")
}

// patchVerb does to the simulated disk what the agent's verb patch does to a real one.
func (k *kubelet) patchVerb(ctx context.Context, pod *corev1.Pod) error {
	run, nonce := pod.Labels["kamino.dev/run"], sealNonce(pod)
	policy, err := patch.ParsePolicy(sealEnv(pod, patch.PolicyEnv))
	if err != nil {
		return err
	}
	switch policy.Task {
	case patch.TaskReboot:
		if policy.Boot == k.bootID {
			k.machine.restart(k.instance)
		}
		return nil
	case patch.TaskLook:
		files, err := k.fleet.cloud.ReadDisk(k.instance.ID)
		if err != nil {
			return err
		}
		r := k.see(files)
		r.FailedUnits = append(strings.Fields(files[brokenUnits]), k.behaviour.Units...)
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
func (k *kubelet) patchUnit(run, nonce string, p patch.Policy) (*unit, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.units[run]; u != nil {
		return u, nil
	}
	var unfinished bool
	err := k.fleet.cloud.WriteDisk(k.instance.ID, func(files map[string]string) {
		_, unfinished = files[journalFile]
		files[journalFile] = run
	})
	if err != nil {
		return nil, err
	}
	if unfinished {
		return nil, &patch.Refused{Why: "an earlier change of packages was interrupted", Do: "on the node: dpkg --configure -a && apt-get -f install"}
	}
	u := &unit{done: make(chan struct{})}
	k.units[run] = u
	k.work.Go(func() {
		defer close(u.done)
		if k.fleet.wait(k.ctx, k.fleet.latencies.Patch) != nil {
			return // the journal stays
		}
		if err := k.fleet.cloud.WriteDisk(k.instance.ID, func(files map[string]string) { u.report = k.upgrade(files, p) }); err != nil {
			u.report.Failure = err.Error()
		}
		if err := k.tellPatch(k.ctx, kamino.AnnotationPatch, run, nonce, u.report); err != nil && k.ctx.Err() == nil {
			k.fleet.logger.Error("result of a patch is not told", "node", k.node, "error", err)
		}
	})
	return u, nil
}

// upgrade is what the package manager does to the disk.
func (k *kubelet) upgrade(files map[string]string, p patch.Policy) patch.Report {
	held, last, failure := strings.Fields(files[HeldFile]), "", ""
	lines := strings.Split(strings.TrimSpace(files[packagesFile]), "\n")
	var changed []patch.Change
	for line := range strings.Lines(files[UpgradesFile]) {
		word := append(strings.Fields(line), "")
		name, version, arch, comes := word[0], word[1], word[2], word[3]
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+" ") })
		if at < 0 || lines[at] == name+" "+version+" "+arch || p.Held == "" && slices.Contains(held, name) {
			continue
		}
		if comes == Breaks {
			failure, last = "apt-get: exit status 100", "dpkg: error processing package "+name+" (--configure)"
			break
		}
		changed = append(changed, patch.Change{Name: name, Arch: arch, From: strings.Fields(lines[at])[1], To: version})
		lines[at] = name + " " + version + " " + arch
		k.comes(files, name, comes)
	}
	files[packagesFile] = strings.Join(lines, "\n") + "\n"
	delete(files, journalFile)
	k.packages = packageDigest(files[packagesFile])
	r := k.see(files)
	r.Manager, r.Changed, r.Kept, r.Failure, r.Last = cmp.Or(p.Manager, patch.Unattended), changed, held, failure, last
	return r
}

// comes is what an upgraded package leaves.
func (k *kubelet) comes(files map[string]string, name, what string) {
	switch what {
	case NeedsReboot, HangsOnce, HangsAlways:
		files[rebootFile] += name + "\n"
	case FailsUnit:
		files[brokenUnits] += name + ".service\n"
	}
	if what == HangsOnce || what == HangsAlways {
		files[hangsFile] = what
	}
}

// see is how the machine stands.
func (k *kubelet) see(files map[string]string) patch.Report {
	r := patch.Report{Boot: k.bootID, Running: kernelOf(k.instance), Newest: kernelOf(k.instance)}
	if names := strings.Fields(files[rebootFile]); len(names) > 0 {
		r.Reboot = []string{"/run/reboot-required names " + strings.Join(names, ", ")}
	}
	return r
}

// tellPatch writes a report on the node as agent/verb_patch.go does.
func (k *kubelet) tellPatch(ctx context.Context, annotation, run, nonce string, r patch.Report) error {
	r.Run, r.Nonce = run, nonce
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	answer, err := json.Marshal(map[string]any{"run": run, "nonce": nonce, "report": packed.Bytes()})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return k.retry(ctx, func(ctx context.Context) error {
		return k.patchNode(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: string(answer)}}})
	})
}
