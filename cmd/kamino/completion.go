package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// completionTime limits what a Tab asks the cluster and the cloud, because the shell waits for it.
const completionTime = 3 * time.Second

// refuseUnknownShells makes the completion command of cobra fail for an unknown shell. Cobra would
// print its help with exit code 0, which a script would take for the completion.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args, cmd.DisableFlagsInUseLine = commandOnly, true
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = noArguments
		}
	}
}

// completes adds shell completion of a flag by the results of list. What is not found in time is
// not offered, and no error is printed.
func (a *app) completes(cmd *cobra.Command, flag string, list func(context.Context, *engine.Engine) []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := a.clock.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a.global.logLevel = "CRITICAL"
		if err := a.global.complete(a); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		eng, err := a.engine(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var fits []string
		for _, word := range list(ctx, eng) {
			if strings.HasPrefix(word, begun) {
				fits = append(fits, word)
			}
		}
		return fits, cobra.ShellCompDirectiveNoFileComp
	})
}

// poolWords returns the names of the pools of the cluster's nodes.
func poolWords(ctx context.Context, e *engine.Engine) []string {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, n := range nodes {
		if pool, err := e.Provider.PoolOf(ctx, n.ProviderID); err == nil {
			names[pool.Name()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// nodeWords returns the nodes that belong to pools.
func nodeWords(ctx context.Context, e *engine.Engine) []string {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range nodes {
		if _, err := e.Provider.PoolOf(ctx, n.ProviderID); err == nil {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// versionWords returns the targets of a rollback of the pool that was typed already.
func versionWords(pool *string) func(context.Context, *engine.Engine) []string {
	return func(ctx context.Context, e *engine.Engine) []string {
		words := []string{poolstate.ToOriginal}
		if *pool == "" {
			return words
		}
		status, err := e.Status(ctx, []string{*pool}, nil)
		if err != nil || len(status) != 1 {
			return words
		}
		for _, v := range status[0].Versions {
			if v.State == kamino.Succeeded {
				words = append(words, v.Name)
			}
		}
		return words
	}
}
