package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// starter is a program in the cluster that starts runs.
type starter struct {
	pools []string // their names or IDs; nil means every pool
	poolstate.NextRun
}

// starts reports whether it starts runs of a pool.
func (s starter) starts(p poolstate.PoolStatus) bool {
	return s.pools == nil || slices.ContainsFunc(s.pools, func(name string) bool {
		return strings.EqualFold(name, p.Name) || strings.EqualFold(name, string(p.Pool))
	})
}

// addNextRuns adds to the status of pools when their next runs start, as far as this user may read
// it.
func (a *app) addNextRuns(ctx context.Context, pools []poolstate.PoolStatus) {
	all := a.starters(ctx, a)
	for i := range pools {
		pools[i].NextRuns = []poolstate.NextRun{}
		for _, s := range all {
			if s.starts(pools[i]) {
				pools[i].NextRuns = append(pools[i].NextRuns, s.NextRun)
			}
		}
	}
}

// readStarters reads the NodePrototypes of a cluster and its CronJobs that run kamino auto-update.
// A kind that cannot be read is listed as such, so that nobody believes that nothing is planned.
func readStarters(ctx context.Context, a *app) []starter {
	config, err := restConfig(a)
	if err != nil {
		return []starter{unknownStarter(err)}
	}
	client, err := kube.New(config, kube.Options{Version: a.global.Version, Clock: a.clock})
	if err != nil {
		return []starter{unknownStarter(err)}
	}
	var out []starter
	var declared v1alpha1.NodePrototypeList
	raw, err := client.Raw(ctx, "/apis/"+v1alpha1.GroupVersion.String()+"/nodeprototypes")
	if err == nil {
		err = json.Unmarshal(raw, &declared)
	}
	if err != nil && !apierrors.IsNotFound(err) { // a cluster without the kind has none
		out = append(out, unknownStarter(fmt.Errorf("list NodePrototypes: %w", err)))
	}
	for _, p := range declared.Items {
		out = append(out, ofPrototype(p))
	}
	jobs, err := client.CronJobs(ctx)
	if err != nil {
		return append(out, unknownStarter(fmt.Errorf("list CronJobs: %w", err)))
	}
	for _, job := range jobs {
		for _, c := range job.Spec.JobTemplate.Spec.Template.Spec.Containers {
			pools, starts, err := startedBy(c.Command, c.Args)
			if !starts {
				continue
			}
			next := poolstate.NextRun{By: "CronJob " + job.Namespace + "/" + job.Name, When: fmt.Sprintf("schedule %q", job.Spec.Schedule)}
			if zone := job.Spec.TimeZone; zone != nil {
				next.When += " in " + *zone
			}
			switch last := job.Status.LastScheduleTime; {
			case job.Spec.Suspend != nil && *job.Spec.Suspend:
				next.Why = "suspended"
			case last != nil:
				next.Why = "last started " + view.Instant(last.Time)
			default:
				next.Why = "never started yet"
			}
			if err != nil {
				next.Why = fmt.Sprintf("may be for another pool: %v; %s", err, next.Why)
			}
			out = append(out, starter{pools, next})
		}
	}
	return out
}

func unknownStarter(err error) starter {
	return starter{NextRun: poolstate.NextRun{Why: err.Error()}}
}

// startedBy returns the pools of which a container's command line starts runs (nil for all of
// them), and whether it starts any. An error is why that is not known. The command itself parses
// the line, because it has two names for the flag and accepts lists with commas.
func startedBy(command, args []string) (pools []string, starts bool, err error) {
	words := slices.Concat(command, args)
	at := slices.IndexFunc(words, func(word string) bool { return path.Base(word) == "kamino" })
	switch shell := slices.ContainsFunc(words, isShellText); {
	case at < 0 && shell:
		return nil, true, errors.New("a shell starts kamino auto-update")
	case at < 0 && len(command) > 0:
		return nil, false, nil
	}
	root := newRootCommand(newApp(ioStreams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, func(string) string { return "" },
		func(int) {}))
	cmd, rest, err := root.Find(words[at+1:])
	if err != nil || cmd.Name() != "auto-update" {
		return nil, false, nil
	}
	cmd.FParseErrWhitelist.UnknownFlags = true // flags of another release
	if err := cmd.ParseFlags(rest); err != nil {
		return nil, true, err
	}
	if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
		return nil, false, nil
	}
	given, err := cmd.Flags().GetStringArray("target-vmss")
	if err != nil {
		return nil, true, err
	}
	given = append(given, cmd.Flags().Args()...)
	if i := slices.IndexFunc(given, func(name string) bool { return strings.Contains(name, "$(") }); i >= 0 {
		return nil, true, fmt.Errorf("the environment names pool %s", given[i])
	}
	pools, err = poolNames(given)
	return pools, true, err
}

// isShellText reports whether a word is a shell script that starts such runs.
func isShellText(word string) bool {
	words := strings.Fields(word)
	return len(words) > 1 && strings.Contains(word, "kamino") && slices.Contains(words, "auto-update")
}

// ofPrototype returns the starter of a NodePrototype.
func ofPrototype(p v1alpha1.NodePrototype) starter {
	s := starter{[]string{cmp.Or(p.Status.Pool, p.Spec.Pool)}, poolstate.NextRun{By: "NodePrototype " + p.Name, When: hours(p.Spec.Window)}}
	if next := p.Status.NextRun; next != nil {
		at := next.UTC()
		s.At = &at
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	s.Latest = s.At != nil && ready != nil && ready.Reason == v1alpha1.ReasonUpToDate // at that time its image is too old
	switch {
	case p.Spec.Suspend:
		s.At, s.Latest, s.Why = nil, false, "suspended"
	case ready == nil:
		s.Why = "no controller has looked at it yet"
	case ready.ObservedGeneration != p.Generation:
		s.Why = "no controller has looked at its newest spec yet"
	default:
		s.Why = strings.TrimSuffix(ready.Reason+": "+kamino.Plain(ready.Message), ": ")
	}
	return s
}

// hours describes when a window is open.
func hours(w *v1alpha1.Window) string {
	if w == nil {
		return "at any time"
	}
	days := "daily"
	if len(w.Days) > 0 {
		var names []string
		for _, day := range w.Days {
			names = append(names, string(day))
		}
		days = strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s %s to %s %s", days, w.Start, w.End, cmp.Or(w.TimeZone, "UTC"))
}
