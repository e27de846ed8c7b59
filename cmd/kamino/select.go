package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
)

// selectFlags are the options of choosing donors, for plan and auto-update.
type selectFlags struct {
	run          runFlags
	opts         kamino.AutoOptions
	pools        []string
	pending      []string
	patch        []string
	minReady     durationValue
	maxAge       int
	maxAway      string
	maxNotReady  int
	clusterFlags bool
}

func (s *selectFlags) add(a *app, f *pflag.FlagSet, poolFlag string) {
	s.addRules(a, f)
	bothNames(f, poolFlag)
	f.StringArrayVar(&s.pools, poolFlag, nil, "only this pool, by name or ID; ALL or none means all; may be repeated")
}

// addRules adds the rules for each pool.
func (s *selectFlags) addRules(a *app, f *pflag.FlagSet) {
	s.opts = kamino.AutoDefaults()
	s.run.add(a, f)
	r := &s.opts.Rules
	s.minReady.d = r.MinReady
	addPendingReboot(f, &s.pending)
	f.StringArrayVar(&s.patch, "last-patch-annotation", []string{kamino.KuredLastPatch.String(), kamino.KaminoPatched.String()},
		"annotation, condition:TYPE or label:KEY that says when a node was patched (RFC 3339, or text with a date); may be repeated")
	f.StringArrayVar(&r.IgnoreAnnotations, "node-ignore-annotation", nil, "ignore nodes that carry this annotation; may be repeated")
	f.StringArrayVar(&r.Ignore, "ignore-nodes", nil, "ignore the node with this name; may be repeated")
	f.StringArrayVar(&r.FineConditions, "ignore-condition", nil, "ignore this node condition when a donor is selected; may be repeated")
	f.BoolVar(&r.RejectTainted, "reject-tainted", false, "reject nodes with NoSchedule or NoExecute taints")
	f.Var(&s.minReady, "minimum-ready-time", "how long a candidate must have been Ready; suffix s, m, h or d")
	f.IntVar(&s.opts.MinCandidates, "minimum-candidates", s.opts.MinCandidates, "skip a pool with fewer candidates")
	f.IntVar(&s.maxAge, "maximum-image-age", 0, "days after which an image is renewed even without newer patches; 0 means never")
}

// bothNames lets a command accept its flag for pools by the name in other commands as well.
func bothNames(f *pflag.FlagSet, poolFlag string) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "pool" || name == "target-vmss" {
			name = poolFlag
		}
		return pflag.NormalizedName(name)
	})
}

func (s *selectFlags) completes(a *app, cmd *cobra.Command, poolFlag string) {
	a.completes(cmd, poolFlag, poolWords)
	a.completes(cmd, "ignore-nodes", nodeWords)
}

func addPendingReboot(f *pflag.FlagSet, signals *[]string) {
	f.StringArrayVar(signals, "pending-reboot-annotation", []string{kamino.KuredPendingReboot.Annotation},
		"annotation, or condition:TYPE, that marks nodes with a pending reboot; may be repeated")
}

// addCluster adds the limits of the runs of a whole cluster.
func (s *selectFlags) addCluster(f *pflag.FlagSet) {
	s.clusterFlags = true
	f.StringVar(&s.maxAway, "max-unavailable-pools", "1", "maximum number of donors away in the cluster at the same time, or all")
	f.IntVar(&s.maxNotReady, "max-not-ready", s.opts.MaxNotReady, "take no donor while more than this many other nodes are NotReady")
}

// options returns the options of auto-update, checked.
func (s *selectFlags) options(a *app) (kamino.AutoOptions, error) {
	o := s.opts
	if err := s.run.check(a, "to be chosen"); err != nil {
		return o, err
	}
	o.Options = s.run.options(a)
	o.Rules.Self, o.Rules.MinReady = a.global.Self, s.minReady.d
	o.Rules.RequireLabels = o.Options.RequireLabels
	o.MaxImageAge = time.Duration(s.maxAge) * 24 * time.Hour
	var err error
	if o.Pools, err = poolNames(s.pools); err != nil {
		return o, err
	}
	if o.Rules.PendingReboot, err = parseSignals(s.pending); err != nil {
		return o, err
	}
	if o.Rules.LastPatch, err = parseSignals(s.patch); err != nil {
		return o, err
	}
	o.PendingReboot = o.Rules.PendingReboot
	if s.clusterFlags {
		o.MaxNotReady = s.maxNotReady
		if o.MaxAway, err = parseMaxAway(s.maxAway); err != nil {
			return o, err
		}
	}
	return o, o.Validate()
}

// poolNames accepts ALL, and lists with commas as the original script's chart writes them.
func poolNames(given []string) ([]string, error) {
	var names []string
	all := false
	for _, g := range given {
		for name := range strings.SplitSeq(g, ",") {
			if strings.EqualFold(name, "ALL") {
				all = true
				continue
			}
			names = append(names, strings.TrimSpace(name))
		}
	}
	if all && len(names) > 0 {
		return nil, kamino.WithHint(fmt.Errorf("--target-vmss ALL and %s are mutually exclusive", names[0]), "omit one of them")
	}
	return names, nil
}

func parseMaxAway(s string) (int, error) {
	if strings.EqualFold(s, "all") {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, kamino.WithHint(fmt.Errorf("invalid number of pools %q", s), "use --max-unavailable-pools 1 or more, or all")
	}
	return n, nil
}
