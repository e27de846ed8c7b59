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

// completionTime bounds what a Tab asks the cluster and the cloud: a shell waits for it.
const completionTime = 3 * time.Second

// refuseUnknownShells makes cobra's command refuse what it would print help for, with exit code 0:
// a script that reads its output would take that for the completion.
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

// completes lets the shell offer what list finds for a flag. What cannot be found in time, or at
// all, is not offered; nothing is told, as a prompt is no place for errors.
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

// poolWords are the names of the pools that nodes belong to.
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

// nodeWords are the nodes that belong to pools.
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

// versionWords are what the pool that was typed already can be rolled back to.
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
