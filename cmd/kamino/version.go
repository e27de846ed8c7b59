package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the build (-ldflags "-X main.version=v1.2.3"), version as in
// cmd/kamino-agent.
var version, commit string

// libraries are the modules whose versions determine the clouds and clusters that this program
// supports.
var libraries = []string{
	"k8s.io/client-go",
	"github.com/Azure/azure-sdk-for-go/sdk/azcore",
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8",
	"github.com/aws/aws-sdk-go-v2",
	"github.com/aws/aws-sdk-go-v2/service/autoscaling",
	"github.com/aws/aws-sdk-go-v2/service/ec2",
}

// build is the output of "kamino version -o json".
type build struct {
	Version    string            `json:"version"`
	Commit     string            `json:"commit,omitempty"`
	Go         string            `json:"go,omitempty"`
	AgentImage string            `json:"agentImage,omitempty"` // image that seals disks, built in by a release, by digest
	Libraries  map[string]string `json:"libraries,omitempty"`  // versions by module
}

func thisBuild() build {
	b := build{Version: buildVersion(), Commit: commit, AgentImage: builtinImage, Libraries: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	used := map[string]string{}
	for _, d := range info.Deps {
		used[d.Path] = d.Version
	}
	for _, path := range libraries {
		if v, ok := used[path]; ok {
			b.Libraries[path] = v
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && b.Commit == "" {
			b.Commit = s.Value
		}
	}
	return b
}

// buildVersion returns the version that the build set, or the module's version or revision.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func newVersionCommand(a *app) *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version; with -o json also commit, agent image and libraries", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := out.check(); err != nil {
				return err
			}
			b := thisBuild()
			return out.print(a, b, func(w io.Writer) { fmt.Fprintln(w, "kamino", b.Version) })
		},
	}
	out.add(cmd)
	return cmd
}
