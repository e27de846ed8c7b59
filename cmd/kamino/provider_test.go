package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestCloudOfNodes: the provider is what the nodes' IDs say, whatever the environment says; a flag
// goes before both, and what only another cloud knows is refused.
func TestCloudOfNodes(t *testing.T) {
	azureNode, awsNode := fakeNodeID("0"), kamino.InstanceID("aws:///us-gov-west-1b/i-0123456789abcdef0")
	for _, tt := range []struct {
		name          string
		nodes         []kamino.InstanceID
		env           string
		args          []string
		cloud, region string
		refused       []string
	}{
		{name: "azure", nodes: []kamino.InstanceID{azureNode, "", "metal://1"}, env: "AWS_REGION", cloud: "azure"},
		{name: "aws", nodes: []kamino.InstanceID{awsNode}, env: "AZURE_TENANT_ID", cloud: "aws", region: "us-gov-west-1"},
		{name: "local zone", nodes: []kamino.InstanceID{"aws:///us-west-2-lax-1a/i-0123456789abcdef0"}, cloud: "aws", region: "us-west-2"},
		{name: "region given", nodes: []kamino.InstanceID{awsNode}, args: []string{"--region", "us-gov-west-1"}, cloud: "aws", region: "us-gov-west-1"},
		{name: "region given without nodes", args: []string{"--provider", "aws", "--region", "eu-north-1"}, cloud: "aws", region: "eu-north-1"},
		{name: "the wrong region", nodes: []kamino.InstanceID{awsNode}, args: []string{"--region", "eu-north-1"}, refused: []string{"--region is eu-north-1, and the nodes of this cluster are in us-gov-west-1", "omit --region"}},
		{name: "azure on AWS", nodes: []kamino.InstanceID{awsNode}, args: []string{"--provider", "azure"}, refused: []string{"--provider is azure, and the nodes of this cluster are on AWS", "omit --provider"}},
		{name: "no node", env: "AWS_REGION", cloud: "aws"},
		{name: "nothing known", cloud: "azure"},
		{name: "mixed", nodes: []kamino.InstanceID{azureNode, awsNode}, refused: []string{"node n1 is on AWS", "node n0 on Azure", "--provider azure or aws"}},
		{name: "mixed, one named", nodes: []kamino.InstanceID{azureNode, awsNode}, args: []string{"--provider", "aws"}, cloud: "aws", region: "us-gov-west-1"},
		{name: "the wrong one", nodes: []kamino.InstanceID{azureNode}, args: []string{"--provider", "aws"}, refused: []string{"--provider is aws, and the nodes of this cluster are on Azure", "omit --provider"}},
		{name: "unknown", args: []string{"--provider", "gce"}, cloud: "gce"},
		{name: "gallery on AWS", nodes: []kamino.InstanceID{awsNode}, args: []string{"--gallery", "g"}, refused: []string{"--gallery is for clusters on Azure only", "omit --gallery"}},
		{name: "subscription on AWS", nodes: []kamino.InstanceID{awsNode}, args: []string{"-s", "00000000-0000-0000-0000-000000000001"}, refused: []string{"--subscription is for clusters on Azure"}},
		{name: "region on Azure", nodes: []kamino.InstanceID{azureNode}, args: []string{"--region", "eu-north-1"}, refused: []string{"--region is for clusters on AWS only"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFakeWorld()
			for i, id := range tt.nodes {
				w.addNode("pool1", "n"+string(rune('0'+i)), "").ProviderID = id
			}
			var errs bytes.Buffer
			var got globalOptions
			a := newApp(ioStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs}, func(k string) string { return map[string]string{tt.env: "set"}[k] }, func(int) {})
			a.clock, a.terminal = w, func(any) bool { return false }
			a.cluster = func(context.Context, *app) (kamino.Cluster, error) { return w.cluster, nil }
			a.provider = func(_ context.Context, g globalOptions) (kamino.Provider, error) { got = g; return w.cloud, nil }
			code := execute(t.Context(), a, append([]string{"status"}, tt.args...))
			for _, want := range tt.refused {
				if code == 0 || !strings.Contains(errs.String(), want) {
					t.Errorf("exit code %d, lacks %q:\n%s", code, want, errs.String())
				}
			}
			if got.Provider != tt.cloud || got.Region != tt.region {
				t.Errorf("provider %q in region %q, want %q in %q\n%s", got.Provider, got.Region, tt.cloud, tt.region, errs.String())
			}
		})
	}
}

func fakeNodeID(instance string) kamino.InstanceID {
	return kamino.InstanceID("azure://" + string(fakePool("pool1")) + "/virtualMachines/" + instance)
}

// TestNoProvider: an unknown cloud is refused, and a configuration that is wrong is no provider.
func TestNoProvider(t *testing.T) {
	if p, err := newProvider(t.Context(), globalOptions{Provider: "gce"}); p != nil || err == nil || !strings.Contains(kamino.Hint(err), "--provider azure or aws") {
		t.Errorf("%v, %v", p, err)
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_REGION", "")
	if p, err := newProvider(t.Context(), globalOptions{Provider: "aws"}); p != nil || err == nil || !strings.Contains(kamino.Hint(err), "AWS_REGION") {
		t.Errorf("%v, %v", p, err)
	}
}
