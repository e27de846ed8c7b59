package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/kube"
)

// optionsOf returns the options of auto-update: those of the spec, and the controller's defaults
// for the others. The Job of a probe is restricted, except in the trusted namespaces.
func optionsOf(base kamino.AutoOptions, trusted []string, spec v1alpha1.NodePrototypeSpec) (o kamino.AutoOptions, err error) {
	o = base
	length := func(field string, text *v1alpha1.Duration, into *time.Duration) {
		if text == nil {
			return
		}
		d, failed := time.ParseDuration(string(*text))
		if failed != nil && err == nil {
			err = fmt.Errorf("spec.%s: invalid duration %q", field, *text)
		}
		*into = d
	}
	length("maxImageAge", spec.MaxImageAge, &o.MaxImageAge)
	length("prove.bake", spec.Prove.Bake, &o.Proof.For)
	if spec.History > 0 {
		o.History = int(spec.History)
	}
	if spec.Prove.Mode != "" {
		o.Proof.Mode = kamino.ProveMode(strings.ToLower(string(spec.Prove.Mode)))
	}
	o.Proof.Promote = kamino.PromoteAuto
	if spec.Promote == v1alpha1.PromoteManual {
		o.Proof.Promote = kamino.PromoteManual
	}
	if spec.Prove.Probe != "" {
		o.Proof.Probe = []byte(spec.Prove.Probe)
		if namespace, failed := kube.ConfinedProbe(o.Proof.Probe); failed != nil && !slices.Contains(trusted, namespace) && err == nil {
			err = fmt.Errorf("spec.prove.probe: %w", failed)
			if namespace != "" {
				err = kamino.WithHint(err, "remove the field, or start the controller with --trust-probes-in %s", namespace)
			}
		}
	}
	if budget := spec.Prove.BootBudget; strings.HasSuffix(budget, "x") {
		times, failed := strconv.ParseFloat(strings.TrimSuffix(budget, "x"), 64)
		if failed != nil && err == nil {
			err = fmt.Errorf("spec.prove.bootBudget: invalid factor %q", budget)
		}
		o.Proof.Times = times
	} else if text := v1alpha1.Duration(budget); budget != "" {
		length("prove.bootBudget", &text, &o.Proof.Budget)
	}
	if s := spec.Select; s != nil {
		length("select.minReady", s.MinReady, &o.Rules.MinReady)
		if failed := selectOf(&o, *s); failed != nil && err == nil {
			err = failed
		}
	}
	if err == nil {
		err = o.Validate()
	}
	if p := spec.Patch; p != nil && err == nil {
		patch := kamino.PatchDefaults().In(o.Options)
		patch.Nodes, patch.Order.Reboot = int(p.Nodes), kamino.RebootMode(strings.ToLower(p.Reboot))
		patch.Order.Manager, patch.Order.Scope, patch.Order.Release = p.Manager, strings.ToLower(p.Scope), p.Release
		patch.MaxAway, patch.MaxNotReady = o.MaxAway, o.MaxNotReady
		o.Patch = &patch
	}
	return o, err
}

func selectOf(o *kamino.AutoOptions, s v1alpha1.Select) error {
	if s.MinCandidates != nil {
		o.MinCandidates = int(*s.MinCandidates)
	}
	if s.RejectTainted {
		o.Rules.RejectTainted = true
	}
	if len(s.IgnoreAnnotations) > 0 {
		o.Rules.IgnoreAnnotations = s.IgnoreAnnotations
	}
	// They are added to the controller's: a prototype cannot remove a demand.
	demands := slices.Clone(o.RequireLabels)
	for _, text := range s.RequireLabels {
		label, err := kamino.ParseLabelDemand(text)
		if err != nil {
			return fmt.Errorf("spec.select.requireLabels: %w", err)
		}
		if !slices.Contains(demands, label) {
			demands = append(demands, label)
		}
	}
	o.RequireLabels, o.Rules.RequireLabels = demands, demands
	for _, l := range []struct {
		field string
		texts []v1alpha1.Signal
		into  *[]kamino.Signal
	}{{"lastPatch", s.LastPatch, &o.Rules.LastPatch}, {"pendingReboot", s.PendingReboot, &o.Rules.PendingReboot}} {
		if len(l.texts) == 0 {
			continue
		}
		*l.into = nil
		for _, text := range l.texts {
			signal, err := kamino.ParseSignal(string(text))
			if err != nil {
				return fmt.Errorf("spec.select.%s: %w", l.field, err)
			}
			*l.into = append(*l.into, signal)
		}
	}
	o.PendingReboot = o.Rules.PendingReboot
	return nil
}
