package aws_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/userdata"
	"kamino.dev/kamino/aws/emulator"
)

// codes are those of refusals, joined.
func codes(list []kamino.Refusal) string {
	var out []string
	for _, r := range list {
		out = append(out, string(r.Code))
	}
	return strings.Join(out, " ")
}

func data(name string, value any) map[string]any { return map[string]any{name: value} }

func TestRefusePool(t *testing.T) {
	for _, tt := range []struct {
		name  string
		group emulator.Group
		want  string
	}{
		{"ordinary", emulator.Group{}, ""},
		{"mixed", emulator.Group{Mixed: true, Version: "1"}, ""},
		{"EKS", emulator.Group{Tags: map[string]string{"eks:nodegroup-name": "ng"}}, "owner"},
		{"EKS, with a parameter", emulator.Group{Tags: map[string]string{"eks:nodegroup-name": "ng"}, Parameter: "/p"}, "owner"},
		{"Cluster API", emulator.Group{Tags: map[string]string{"sigs.k8s.io/cluster-api-provider-aws/cluster/c": "owned"}}, "owner"},
		{"kOps", emulator.Group{Tags: map[string]string{"kops.k8s.io/instancegroup": "nodes"}}, "owner"},
		{"kOps, with a parameter", emulator.Group{Tags: map[string]string{"kops.k8s.io/instancegroup": "nodes"}, Parameter: "/p"}, "owner"}, // kOps writes an AMI ID at its next update
		{"kOps, as it is made", emulator.Group{Tags: map[string]string{"kops.k8s.io/instancegroup": "nodes"}, Version: "$Latest"}, "owner latest"},
		{"CloudFormation", emulator.Group{Tags: map[string]string{"aws:cloudformation:stack-name": "s"}}, "owner"},
		{"CloudFormation, with a parameter", emulator.Group{Tags: map[string]string{"aws:cloudformation:stack-name": "s"}, Parameter: "/p"}, ""},
		{"latest", emulator.Group{Version: "$Latest"}, "latest"},
		{"latest, with a parameter", emulator.Group{Version: "$Latest", Parameter: "/p"}, ""},
		{"override with an image", emulator.Group{Mixed: true, Version: "1", Override: data("ImageId", "ami-0123456789abcdef0")}, "override"},
		{"override with a template", emulator.Group{Mixed: true, Version: "1", Override: data("LaunchTemplateSpecification", map[string]any{"LaunchTemplateName": "blue"})}, "override"},
		{"warm pool", emulator.Group{Warm: 2}, "warm-pool"},
		{"warm pool that is empty", emulator.Group{WarmPool: true}, ""},
		{"refresh", emulator.Group{Refresh: "Baking"}, "refresh"},
		{"refresh that ended", emulator.Group{Refresh: "RollbackSuccessful"}, ""},
		{"launch configuration", emulator.Group{Configuration: "lc"}, "launch-configuration"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			since := len(c.server.Requests(0))
			refusals := c.pool().Refusals
			if got := codes(refusals); got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
			for _, r := range refusals {
				if r.Field == "" || r.Value == "" || r.Why == "" || r.Do == "" {
					t.Errorf("%+v does not say what is where, why not, or what to do", r)
				}
			}
			if wrote := c.actions(since); len(wrote) != 0 {
				t.Errorf("wrote %v", wrote)
			}
		})
	}
}

// TestImageOnlyForOwnedPools: where another program writes the recipe, an image may be made without
// writing it, and each refusal says so. No advice names what the owner cannot do.
func TestImageOnlyForOwnedPools(t *testing.T) {
	for name, tt := range map[string]struct {
		group emulator.Group
		want  string // in what to do
	}{
		"kOps":           {emulator.Group{Tags: map[string]string{"kops.k8s.io/instancegroup": "nodes"}, Version: "$Latest"}, "kops update cluster --yes"},
		"Cluster API":    {emulator.Group{Tags: map[string]string{"sigs.k8s.io/cluster-api-provider-aws/cluster/c": "owned"}, Version: "$Latest"}, "AWSMachinePool"},
		"CloudFormation": {emulator.Group{Tags: map[string]string{"aws:cloudformation:stack-name": "s"}}, "aws ssm put-parameter --type String --data-type aws:ec2:image --name NAME --value AMI"},
		"latest":         {emulator.Group{Version: "$Latest"}, "aws ssm put-parameter --type String --data-type aws:ec2:image --name NAME --value AMI"},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			refusals, do := c.pool().Refusals, ""
			for _, r := range refusals {
				if do += r.Do + "\n"; r.Allow != "image-only" || !strings.Contains(r.Do, "kamino update --target-node NODE --image-only") {
					t.Errorf("%s: --image-only does not lift it, or nothing says so: %s", r.Code, r.Do)
				}
			}
			if len(refusals) == 0 || !strings.Contains(do, tt.want) || name == "kOps" && strings.Contains(do, "ssm:") {
				t.Errorf("what to do: %s", do)
			}
		})
	}
	managed := begin(t, setting{group: emulator.Group{Tags: map[string]string{"eks:nodegroup-name": "ng"}}})
	if r := managed.pool().Refusals[0]; r.Allow != "" {
		t.Errorf("a managed node group is not Kamino's to take a donor from: %+v", r)
	}
}

func TestRefuseInstance(t *testing.T) {
	for _, tt := range []struct {
		name  string
		group emulator.Group
		want  string
	}{
		{"ordinary", emulator.Group{}, ""},
		{"arm64, encrypted", emulator.Group{Arch: "arm64", KMSKey: "arn:aws:kms:key"}, ""},
		{"Spot", emulator.Group{Data: data("InstanceMarketOptions", map[string]any{"MarketType": "spot"})}, "spot"},
		{"instance store", emulator.Group{InstanceStore: true}, "ephemeral"},
		{"terminates", emulator.Group{Data: data("InstanceInitiatedShutdownBehavior", "terminate")}, "shutdown-behavior"},
		{"hibernates", emulator.Group{Data: data("HibernationOptions", map[string]any{"Configured": "true"})}, "hibernation"},
		{"Windows", emulator.Group{Platform: "Windows"}, "windows"},
		{"Marketplace", emulator.Group{ProductCode: "abc"}, "product-code"},
		{"EKS Auto Mode", emulator.Group{Operator: "eks.amazonaws.com"}, "owner"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			in, err := c.Instance(t.Context(), c.donor())
			c.must(err)
			if got := codes(in.Refusals); got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
			if tt.group.KMSKey != in.Encryption || tt.group.Arch == "arm64" && in.Architecture != "Arm64" {
				t.Errorf("%+v", in)
			}
		})
	}
}

// TestCanaryUserData: a canary is launched with the pool's user data and one part more, or not at
// all.
func TestCanaryUserData(t *testing.T) {
	nonce := strings.Repeat("0f", 32)
	const part = "--B\nContent-Type: application/node.eks.aws\n\n"
	const packed = "--B\nContent-Type: application/node.eks.aws\nContent-Transfer-Encoding: base64\n\n"
	multi := func(body string) string {
		return "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n" + body + "--B--\n"
	}
	gzipped := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	raw := func(encoded string) []byte {
		plain, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		return plain
	}
	const agents = "# {cluster: {name: lab}}\napiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\njoin: {method: keep}\n"
	const eks = "---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {cluster: {name: lab}}\n"
	for _, tt := range []struct{ name, user, why string }{
		{"NodeConfig", multi(part + "kind: NodeConfig\nspec: {cluster: {name: lab}}\n"), ""},
		{"the agent's part", multi("--B\nContent-Type: application/node.kamino.dev; charset=utf-8\n\n" + agents), ""},
		{"the agent's document", agents, ""},
		{"NodeConfig alone", eks, ""},
		{"NodeConfig alone, in gzip", string(raw(gzipped(eks))), ""},
		{"NodeConfig alone, in gzip in base64", gzipped(eks), ""},
		{"NodeConfig in a multipart in gzip", string(raw(gzipped(multi(part + "kind: NodeConfig\nspec: {cluster: {name: lab}}\n")))), ""},
		{"own taints in a NodeConfig alone", eks + "  kubelet: {flags: [--register-with-taints=a=b:NoSchedule]}\n", "taints of its own"},
		{"a script that writes EKS's document", "#!/bin/sh\ncat >/etc/eks/nodeconfig.yaml <<EOF\n" + eks + "EOF\n", "readable MIME multipart"},
		{"gzip that is broken off", string(raw(gzipped(eks))[:40]), "readable MIME multipart"},
		{"a script that speaks of it", multi("--B\nContent-Type: text/x-shellscript\n\n# not application/node.eks.aws\n"), "no NodeConfig"},
		{"script", "#!/bin/sh\n", "readable MIME multipart"},
		{"no NodeConfig", multi("--B\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n"), "no NodeConfig"},
		{"own taints", multi(part + "flags: [--register-with-taints=a=b:NoSchedule]\n"), "taints of its own"},
		{"own taints in kubelet's configuration", multi(part + "kubelet: {config: {registerWithTaints: [{key: a, effect: NoSchedule}]}}\n"), "taints of its own"},
		{"a script that writes them", multi(part + "kind: NodeConfig\n--B\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n" +
			base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\necho '{\"registerWithTaints\":[{\"key\":\"a\"}]}' >/etc/kubernetes/kubelet/config.json.d/50-taints.conf\n")) + "\n"), "taints of its own"},
		{"own taints in gzip in base64", multi(packed + gzipped("kubelet: {config: {registerWithTaints: [{key: a, effect: NoSchedule}]}}\n") + "\n"), "taints of its own"},
		{"own taints in gzip in base64 that the part does not tell", multi(part + gzipped("flags: [--register-with-taints=a=b:NoSchedule]\n") + "\n"), "taints of its own"},
		{"own taints in base64 that the part does not tell", multi(part + base64.StdEncoding.EncodeToString([]byte("flags: [--register-with-taints=a=b:NoSchedule]\n")) + "\n"), "taints of its own"},
		{"own taints in quoted-printable", multi("--B\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: quoted-printable\n\n#!/bin/sh\necho --register-with-tai=\nnts=3Da:NoSchedule\n" + part + "kind: NodeConfig\n"), "taints of its own"},
		{"a part of an unknown encoding", multi(part + "kind: NodeConfig\n--B\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: x-uuencode\n\nx\n"), "cannot be read"},
		{"a part that is no whole gzip", multi(packed + gzipped("kind: NodeConfig\n")[:24] + "\n"), "cannot be read"},
		{"parts in a part", multi(part + "kind: NodeConfig\n--B\nContent-Type: multipart/mixed; boundary=C\n\n--C--\n"), "cannot be read"},
		{"a script that writes the agent's document", "#!/bin/sh\ncat >/etc/kamino/nodeconfig.yaml <<EOF\napiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\nEOF\n", "readable MIME multipart"},
		{"too long", multi(part + strings.Repeat("# 16 bytes here\n", 1015)), "at most 16384"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{UserData: tt.user}})
			v := c.build("2026.1.1")
			fit, err := c.CanaryFit(t.Context(), c.pool())
			c.must(err)
			since := len(c.server.Requests(0))
			err = c.LaunchCanary(t.Context(), c.pool(), kamino.CanaryOrder{Name: "kamino-0a0b0c0d", Version: v[0].ID, Run: "run-1", Nonce: nonce})
			if tt.why != "" {
				if err == nil || len(fit.Refusals) != 1 || !strings.Contains(fit.Refusals[0].Why, tt.why) || len(c.actions(since)) != 0 {
					t.Errorf("%v, %+v, wrote %v", err, fit, c.actions(since))
				}
				return
			}
			c.must(err)
			log := c.server.Requests(since)
			sent, _ := log[len(log)-1].Parameters["UserData"].(string)
			raw, err := base64.StdEncoding.DecodeString(sent)
			c.must(err)
			parts, err := userdata.Read(raw)
			c.must(err)
			if parts.Nonce() != nonce {
				t.Errorf("the agent reads nonce %q", parts.Nonce())
			}
			more := "--register-with-taints=kamino.dev/canary=:NoSchedule"
			if !strings.HasPrefix(tt.name, "NodeConfig") { // the agent asks for the taint by itself
				more = "application/canary.kamino.dev"
				if config, err := parts.NodeConfig(); err != nil || !strings.Contains(string(config), "kind: NodeConfig") {
					t.Errorf("the agent reads %q, %v", config, err)
				}
			}
			if got := string(raw); !strings.Contains(got, "{cluster: {name: lab}}") || strings.Count(got, more) != 1 || strings.Count(got, "Content-Type: application/") != 2 {
				t.Errorf("user data %s", got)
			}
		})
	}
}
