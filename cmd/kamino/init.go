package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/charts"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/view"
)

// initCommand is kamino init, which prepares a cluster.
type initCommand struct {
	*app
	out    outputFlag
	dryRun bool
	images []string
	forget bool
}

func newInitCommand(a *app) *cobra.Command {
	c := &initCommand{app: a}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Prepare a cluster: namespace, roles and admission policies",
		Long: `Create what every run needs, once per cluster, by server-side apply: the namespace
kamino-system for leases and seal pods, the roles that service accounts of runs
are bound to, and the policies that admit nothing but seal pods of one shape and
image there and limit what those accounts change of nodes. It is what the chart
kamino-base installs: use one or the other. Needs a cluster administrator.

The seal pod is privileged, so the images that it may run are named here, by
digest. They are added to the images that are already allowed; --no-seal-image
removes those first. With -o json or yaml the manifests are printed, with only the
images that are named, and the cluster is not contacted.`,
		Example: `  kamino init --seal-image registry.example.com/kamino@sha256:DIGEST
  kamino init --no-seal-image --seal-image registry.example.com/kamino@sha256:DIGEST --dry-run
  kamino init -o yaml | kubectl diff -f -`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.images, "seal-image", nil,
		"additional image that may seal disks, by digest; may be repeated (default: the one of --image)")
	f.BoolVar(&c.forget, "no-seal-image", false, "remove the images that may seal disks so far")
	f.BoolVar(&c.dryRun, "dry-run", false, "submit everything as a server-side dry run, and change nothing")
	c.out.add(cmd)
	f.Lookup("output").Usage = "table; json or yaml print the manifests without contacting the cluster"
	return cmd
}

var digest = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9.:/_]*@sha256:[0-9a-f]{64}$`)

// Run runs the command.
func (c *initCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	if known := cmp.Or(c.global.SealImage, c.env("POD_IMAGE"), builtinImage); len(c.images) == 0 && digest.MatchString(known) {
		c.images = []string{known}
	}
	for _, image := range c.images {
		if !digest.MatchString(image) {
			return kamino.WithHint(fmt.Errorf("invalid --seal-image %q: not pinned by a digest", image),
				"write REGISTRY/NAME@sha256:DIGEST; the digest is printed by: make image, or docker buildx imagetools inspect")
		}
	}
	if c.out.format == "json" || c.out.format == "yaml" {
		return c.printManifests()
	}
	cluster, err := c.cluster(ctx, c.app)
	if err != nil {
		return err
	}
	p, ok := cluster.(preparer)
	if !ok {
		return fmt.Errorf("apply manifests: %w", kamino.ErrUnsupported)
	}
	before, release, err := p.SealImages(ctx)
	if err != nil {
		return err
	}
	if release != "" {
		c.global.Log.Warn("the chart kamino-base manages this cluster: its next upgrade replaces what is applied here", "release", release,
			"hint", "use one or the other: helm upgrade "+release+" with the images in its value sealImages")
	}
	after := c.wanted(before)
	manifests, err := charts.Base(after)
	if err != nil {
		return err
	}
	applied, err := c.apply(ctx, p, manifests)
	if printErr := c.out.print(c.app, applied, func(w io.Writer) {
		printApplied(w, applied, c.dryRun)
		printImages(w, before, after)
	}); err == nil {
		err = printErr
	}
	if err == nil && len(after) == 0 {
		c.global.Log.Warn("no image may seal disks: every run is refused before it touches a node", "hint",
			"kamino init --seal-image REGISTRY/NAME@sha256:DIGEST")
	}
	return err
}

// wanted returns the images that may seal disks afterwards.
func (c *initCommand) wanted(before []string) []string {
	var all []string
	if !c.forget {
		all = slices.Clone(before)
	}
	for _, image := range c.images {
		if !slices.Contains(all, image) {
			all = append(all, image)
		}
	}
	return all
}

// printManifests prints what would be applied to an unprepared cluster: in YAML as documents, in
// JSON as a List, both for "kubectl apply -f -".
func (c *initCommand) printManifests() error {
	manifests, err := charts.Base(c.images)
	if err != nil {
		return err
	}
	if c.out.format == "yaml" {
		_, err := io.WriteString(c.Out, strings.Join(manifests, "---\n"))
		return err
	}
	items := make([]json.RawMessage, len(manifests))
	for i, m := range manifests {
		if items[i], err = yaml.YAMLToJSON([]byte(m)); err != nil {
			return fmt.Errorf("write manifest as JSON: %w", err)
		}
	}
	return c.out.print(c.app, map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, nil)
}

// preparer is a cluster that can be prepared.
type preparer interface {
	SealImages(ctx context.Context) (images []string, release string, err error)
	Apply(ctx context.Context, manifest string, dryRun bool) (kube.Applied, error)
}

func (c *initCommand) apply(ctx context.Context, p preparer, manifests []string) ([]kube.Applied, error) {
	applied := []kube.Applied{}
	for _, manifest := range manifests {
		did, err := p.Apply(ctx, manifest, c.dryRun)
		if err != nil {
			return applied, err
		}
		applied = append(applied, did)
	}
	return applied, nil
}

// printImages prints which images may seal disks, before and afterwards.
func printImages(w io.Writer, before, after []string) {
	fmt.Fprintln(w, "\nMAY SEAL DISKS\tIMAGE")
	for _, image := range after {
		word := "as before"
		if !slices.Contains(before, image) {
			word = "from now on"
		}
		fmt.Fprintf(w, "%s\t%s\n", word, image)
	}
	for _, image := range before {
		if !slices.Contains(after, image) {
			fmt.Fprintf(w, "no more\t%s\n", image)
		}
	}
	if len(after) == 0 {
		fmt.Fprintln(w, "none\t-")
	}
}

func printApplied(w io.Writer, applied []kube.Applied, dryRun bool) {
	suffix := ""
	if dryRun {
		suffix = " (dry run)"
	}
	fmt.Fprintln(w, "KIND\tNAMESPACE\tNAME\tDONE")
	for _, a := range applied {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", a.Kind, view.Shown(a.Namespace), a.Name, a.Did, suffix)
	}
}
