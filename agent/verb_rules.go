package agent

import (
	"context"
	"fmt"
	"text/tabwriter"

	"kamino.dev/kamino/agent/seal"
)

func runRules(_ context.Context, e *env, args []string) error {
	f := e.flags("rules")
	if err := parse(f, args); err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tACTION\tSECRET\tPHASE\tWHY")
	for _, r := range seal.Table() {
		secret := ""
		if r.Secret {
			secret = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Action, secret, r.Phase, r.Why)
	}
	return w.Flush()
}
