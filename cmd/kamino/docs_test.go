package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/internal/golden"
)

// docs/cli.md is made from the commands themselves and must be current.
func TestCLIDocs(t *testing.T) {
	root := newRootCommand(newApp(ioStreams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, func(string) string { return "" }, func(int) {}))
	root.InitDefaultCompletionCmd("help") // as cobra does when it runs
	var b strings.Builder
	b.WriteString("# kamino\n\n<!-- Made from the commands: go test ./cmd/kamino -run CLIDocs -update -->\n\n")
	fmt.Fprintf(&b, "%s\n\n", fenced(root.Long))
	fmt.Fprintf(&b, "## Options of all commands\n\n%s\n\n", fenced(root.PersistentFlags().FlagUsagesWrapped(110)))
	b.WriteString("## Environment\n\n" + fenced(`NODE_ID        name of the node this process runs on; never taken as donor
POD_NAMESPACE  where a former version would have kept its leases, besides kube-system
POD_IMAGE      image of the seal pod, by digest, if --image is not given
SEAL_POLICY    text of the seal policy, if --seal-policy is not given
KUBECONFIG     as for kubectl; without one, the service account of the pod
AZURE_*        credentials, as for every program of the Azure SDK`) + "\n")
	describe(&b, root)
	golden.Check(t, filepath.Join("..", "..", "docs", "cli.md"), b.String())
}

// describe writes a section for each command below one.
func describe(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		use := c.UseLine()
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n%s\n", c.CommandPath(), c.Short, fenced(use))
		if c.Long != "" {
			fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(c.Long))
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\n%s\n", fenced(c.Example))
		}
		if flags := c.NonInheritedFlags().FlagUsagesWrapped(110); flags != "" {
			fmt.Fprintf(b, "\n%s\n", fenced(flags))
		}
		describe(b, c)
	}
}

func fenced(text string) string { return "```\n" + strings.Trim(text, "\n") + "\n```" }
