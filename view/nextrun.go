package view

import (
	"fmt"
	"time"

	"kamino.dev/kamino/poolstate"
)

// NextRuns describes the next runs, a line for each program that starts one.
func NextRuns(p poolstate.PoolStatus) (lines []string) {
	for _, n := range p.NextRuns {
		lines = append(lines, nextRun(n))
	}
	if p.NextRuns != nil && len(lines) == 0 {
		return []string{"nothing in the cluster starts one: no NodePrototype of the pool, no CronJob with kamino auto-update"}
	}
	return lines
}

func nextRun(n poolstate.NextRun) string {
	if n.By == "" {
		return "unknown: " + Cut(n.Why, 200)
	}
	text := fmt.Sprintf("by %s, %s", n.By, n.When)
	if n.At != nil {
		bound := "not before"
		if n.Latest {
			bound = "at the latest"
		}
		text = fmt.Sprintf("%s %s, %s", bound, n.At.Format(time.RFC3339), text)
	}
	if n.Why != "" {
		text += "; " + Cut(n.Why, 200)
	}
	return text
}
