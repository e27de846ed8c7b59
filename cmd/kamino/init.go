package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/charts"
	"kamino.dev/kamino/kube"
)

// initCommand prepares a cluster.
type initCommand struct {
	*app
	out     outputFlag
	dryRun  bool
	images  []string
	migrate bool
}

func newInitCommand(a *app) *cobra.Command {
	c := &initCommand{app: a}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Prepare a cluster: namespace, roles and admission policies",
		Long: `Make what every run needs, once per cluster, by server-side apply: the namespace
kamino-system for leases and seal pods, the roles that service accounts of runs
are bound to, and the policies that admit nothing but seal pods of one shape and
image there and limit what those accounts change of nodes. It is what the chart
kamino-base installs: use one or the other. Needs a cluster administrator.

The seal pod is privileged, so the images that it may run are named here, by
digest. Naming others replaces them.`,
		Example: `  kamino init --seal-image registry.example.com/kamino@sha256:DIGEST
  kamino init --dry-run
  kamino init -o yaml | kubectl diff -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.images, "seal-image", nil, "image that may seal disks, by digest; may be repeated (default that of --image)")
	f.BoolVar(&c.migrate, "migrate", true, "let runs look for leases of a former version in all namespaces")
	f.BoolVar(&c.dryRun, "dry-run", false, "let the API server check everything, and change nothing")
	c.out.add(cmd)
	f.Lookup("output").Usage = "table, json, or yaml: print the manifests, and ask no cluster"
	return cmd
}

var digest = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9.:/_]*@sha256:[0-9a-f]{64}$`)

// Run does it.
func (c *initCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	if known := firstOf(c.global.SealImage, c.env("POD_IMAGE"), builtinImage); len(c.images) == 0 && digest.MatchString(known) {
		c.images = []string{known}
	}
	for _, image := range c.images {
		if !digest.MatchString(image) {
			return kamino.WithHint(fmt.Errorf("--seal-image %q is no image by digest", image), "write REGISTRY/NAME@sha256:DIGEST; the digest is printed by: make image, or docker buildx imagetools inspect")
		}
	}
	manifests, err := charts.Base(charts.BaseValues{SealImages: c.images, Migrate: c.migrate})
	if err != nil {
		return err
	}
	if c.out.format == "yaml" {
		_, err := io.WriteString(c.Out, strings.Join(manifests, "---\n"))
		return err
	}
	applied, err := c.apply(ctx, manifests)
	if printErr := c.out.print(c.app, applied, func(w io.Writer) { printApplied(w, applied, c.dryRun) }); err == nil {
		err = printErr
	}
	if err == nil && len(c.images) == 0 {
		c.global.Log.Warn("no image may seal disks yet: runs end after their drain", "hint", "kamino init --seal-image REGISTRY/NAME@sha256:DIGEST")
	}
	return err
}

func (c *initCommand) apply(ctx context.Context, manifests []string) ([]kube.Applied, error) {
	cluster, err := c.cluster(ctx, c.app)
	if err != nil {
		return nil, err
	}
	applier, ok := cluster.(interface {
		Apply(ctx context.Context, manifest string, dryRun bool) (kube.Applied, error)
	})
	if !ok {
		return nil, fmt.Errorf("apply manifests: %w", kamino.ErrUnsupported)
	}
	applied := []kube.Applied{}
	for _, manifest := range manifests {
		did, err := applier.Apply(ctx, manifest, c.dryRun)
		if err != nil {
			return applied, err
		}
		applied = append(applied, did)
	}
	return applied, nil
}

func printApplied(w io.Writer, applied []kube.Applied, dryRun bool) {
	suffix := ""
	if dryRun {
		suffix = " (dry run)"
	}
	fmt.Fprintln(w, "KIND\tNAMESPACE\tNAME\tDONE")
	for _, a := range applied {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", a.Kind, shown(a.Namespace), a.Name, a.Did, suffix)
	}
}
