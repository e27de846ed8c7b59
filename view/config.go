package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/poolstate"
)

// shownConfigs is how many nodes with a failed configuration are named. -o wide and the other
// formats name all.
const shownConfigs = 5

// ranConfigs describes which generations of the NodeConfig the pool's nodes use, and which are for
// a share of them.
func ranConfigs(p poolstate.PoolStatus) string {
	run, wait := map[int64]int{}, map[int64]int{}
	for _, c := range p.Configs {
		run[c.Generation]++
		if c.Status == kamino.ConfigWaiting {
			wait[c.Offered]++
		}
	}
	var texts []string
	for _, generation := range newestFirst(run) {
		what := fmt.Sprintf("generation %d", generation)
		if generation == 0 {
			what = "the image's own"
		}
		texts = append(texts, fmt.Sprintf("%s on %s", what, boot.Count(run[generation], "node")))
	}
	for _, generation := range newestFirst(wait) {
		texts = append(texts, fmt.Sprintf("generation %d is not yet for %s", generation, boot.Count(wait[generation], "node")))
	}
	return strings.Join(texts, ", ")
}

// printConfigs prints which NodeConfigs are in use, and which nodes refused one.
func printConfigs(w io.Writer, p poolstate.PoolStatus, wide bool) {
	if len(p.Configs) == 0 {
		return
	}
	fmt.Fprintf(w, "Config:\t%s\n", ranConfigs(p))
	failed, most := p.FailedConfigs(), shownConfigs
	if wide {
		most = len(failed)
	}
	for _, c := range failed[:min(len(failed), most)] {
		fmt.Fprintf(w, "\t%s\n", c)
	}
	if more := len(failed) - most; more > 0 {
		fmt.Fprintf(w, "\t%d more: kamino status -o wide\n", more)
	}
}

// printConfigTable prints a line for each node that reports its configuration.
func printConfigTable(w io.Writer, all []kamino.NodeConfig) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nNODE\tGENERATION\tCONFIG\tSINCE\tOFFERED")
	for _, c := range all {
		offered := "-"
		if c.Offered != 0 {
			offered = fmt.Sprint(c.Offered)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", c.Node, c.Generation, c.Status, Instant(c.Since), offered)
	}
}

func newestFirst(of map[int64]int) []int64 {
	all := slices.Sorted(maps.Keys(of))
	slices.Reverse(all)
	return all
}
