package agent_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// al2023 is a node of EKS on Amazon Linux 2023. Synthetic: written from public sources (the AMI's
// recipes at github.com/awslabs/amazon-eks-ami, nodeadm's documentation), not taken from a node.
// Its packages' database is rpm's own.
var al2023 = map[string]string{
	"etc/os-release": "NAME=\"Amazon Linux\"\nVERSION=\"2023\"\nID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"\n",
	"etc/hostname":   "ip-10-0-12-34.eu-central-1.compute.internal\n",
	"etc/hosts":      "127.0.0.1 localhost localhost.localdomain\n::1 localhost6\n10.0.12.34 ip-10-0-12-34\n",
	"etc/machine-id": "ec2a1f0b6c3d4e5f8091a2b3c4d5e6f7\n",
	"etc/passwd":     "root:x:0:0:root:/root:/bin/bash\nec2-user:x:1000:1000:EC2 Default User:/home/ec2-user:/bin/bash\n",
	"etc/shadow":     "root:*LOCK*:14600::::::\nec2-user:!!:19000:0:99999:7:::\n",
	"etc/fstab":      "UUID=1b2c3d4e-0000-4000-8000-5e6f70819203 / xfs defaults,noatime 1 1\n",
	"etc/kubernetes/kubelet/config.json": `{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","authentication":{"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}},` +
		`"clusterDNS":["172.20.0.10"],"providerID":"aws:///eu-central-1a/i-0abc1234def567890"}` + "\n",
	"etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf": `{"maxPods":58}` + "\n",
	"etc/eks/image-credential-provider/config.json":        `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"ecr-credential-provider","matchImages":["*.dkr.ecr.*.amazonaws.com"]}]}` + "\n",
	"etc/eks/kubelet/environment":                          "NODEADM_KUBELET_ARGS=\"--config=/etc/kubernetes/kubelet/config.json --node-ip=10.0.12.34\"\n",
	"etc/containerd/config.toml":                           "version = 2\nroot = \"/var/lib/containerd\"\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"602401143452.dkr.ecr.eu-central-1.amazonaws.com/eks/pause:3.5\"\n",
	"etc/containerd/base-runtime-spec.json":                `{"ociVersion":"1.1.0","process":{"rlimits":[{"type":"RLIMIT_NOFILE","soft":65536,"hard":1048576}]}}` + "\n",
	"etc/cni/net.d/10-aws.conflist":                        `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"name":"aws-cni","type":"aws-cni","vethPrefix":"eni"}]}` + "\n",
	"etc/systemd/system/kubelet.service":                   "[Service]\nEnvironmentFile=/etc/eks/kubelet/environment\nExecStart=/usr/bin/kubelet $NODEADM_KUBELET_ARGS\n",
	"etc/sysctl.d/99-kubernetes-cri.conf":                  "net.ipv4.ip_forward = 1\n",
	"etc/yum.repos.d/amazonlinux.repo":                     "[amazonlinux]\nname=Amazon Linux 2023 repository\nmirrorlist=https://al2023-repos-$awsregion-de612dc2.s3.dualstack.$awsregion.$awsdomain/core/mirrors/$releasever/$basearch/mirror.list\n",
	"usr/bin/kubelet":                                      "\x7fELF kubelet",
	"usr/bin/nodeadm":                                      "\x7fELF nodeadm",
	"usr/bin/containerd":                                   "\x7fELF containerd",
	"opt/cni/bin/aws-cni":                                  "\x7fELF aws-cni",
	"opt/cni/bin/loopback":                                 "\x7fELF loopback",
	"var/lib/kubelet/kubeconfig": "apiVersion: v1\nkind: Config\nclusters:\n- name: kubernetes\n  cluster: {certificate-authority: /etc/kubernetes/pki/ca.crt, server: 'https://0A1B.gr7.eu-central-1.eks.amazonaws.com'}\n" +
		"users:\n- name: kubelet\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws-iam-authenticator, args: [token, -i, pool]}}\n",
	"var/lib/kubelet/cpu_manager_state":                                   `{"policyName":"none","checksum":1353318690}` + "\n",
	"var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~secret/db/password": "hunter2hunter2\n",
	"var/lib/amazon/ssm/Vault/Store/RegistrationKey":                      `{"instanceID":"i-0abc1234def567890","privateKey":"MIIEow"}` + "\n",
	"var/lib/amazon/ssm/i-0abc1234def567890/inventory/contenthash":        "c0ffee\n",
	"var/log/amazon/ssm/amazon-ssm-agent.log":                             "2026-03-01 INFO registered i-0abc1234def567890\n",
	"var/log/aws-routed-eni/ipamd.log":                                    `{"level":"info","msg":"node ip-10-0-12-34"}` + "\n",
	"var/log/cloud-init.log":                                              "2026-03-01 instance-id i-0abc1234def567890\n",
	"var/log/messages":                                                    "Mar  1 10:00:00 ip-10-0-12-34 systemd[1]: started\n",
	"var/log/dnf.log":                                                     "2026-03-01 DEBUG dnf\n",
	"var/lib/cloud/data/instance-id":                                      "i-0abc1234def567890\n",
	"var/lib/cloud/instances/i-0abc1234def567890/user-data.txt":           "MIME-Version: 1.0\n",
	"root/.bash_history":                                                  "kubectl get nodes\n",
}

// TestInventoryOfAL2023: an unplanted node of EKS seals with nothing found, with a policy and
// without one, and what is unknown reads in five minutes.
func TestInventoryOfAL2023(t *testing.T) {
	for _, name := range []string{"rpm", "rpmbuild"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: apt-get install rpm", name)
		}
	}
	top := inMemory(t)
	built := amazonRPM(t, top)
	fresh := func(name string) string {
		root := filepath.Join(top, name)
		for at, text := range al2023 {
			writeFile(t, filepath.Join(root, at), text)
		}
		aks := readTree(t, "testdata/bases/ubuntu2204-aks.txtar")
		writeFile(t, filepath.Join(root, "etc/kubernetes/pki/ca.crt"), aks.Text("etc/kubernetes/certs/ca.crt"))
		run(t, "rpm", "--root", root, "--dbpath", "/var/lib/rpm", "-i", "--nodeps", "--nosignature", "--noplugins", built)
		return root
	}
	seal := func(root string, more ...string) (string, int) {
		return agentRun(t, append([]string{"seal", "--root", root, "--run", "r1", "--free-space", "none", "--no-install"}, more...)...)
	}
	out, code := agentRun(t, "verify", "--inventory", "--root", fresh("list"))
	if code != 0 || strings.Contains(out, "\n/") {
		t.Fatalf("code %d:\n%s", code, out)
	}
	if out, code := seal(fresh("sealed")); code != 0 {
		t.Errorf("code %d:\n%s", code, out)
	}
	root := fresh("more")
	writeFile(t, filepath.Join(root, "usr/lib/amazon/tool/1"), "changed since\n")
	if out, code := seal(root); code != 3 || !strings.Contains(out, "usr/lib/amazon/tool/1") {
		t.Errorf("a package's file that was changed, code %d:\n%s", code, out)
	}
}

// amazonRPM builds a package, with a directory of files and a configuration file.
func amazonRPM(t *testing.T, top string) string {
	t.Helper()
	spec := filepath.Join(top, "tool.spec")
	writeFile(t, spec, "Name: amazon-tool\nVersion: 1\nRelease: 1.amzn2023\nSummary: a tool\nLicense: none\nBuildArch: noarch\n%description\nA tool.\n%install\n"+
		"mkdir -p %{buildroot}/usr/lib/amazon/tool %{buildroot}/etc\nfor i in 1 2 3; do echo $i > %{buildroot}/usr/lib/amazon/tool/$i; done\necho x > %{buildroot}/etc/amazon-tool.conf\n"+
		"%files\n/usr/lib/amazon/tool\n%config /etc/amazon-tool.conf\n")
	run(t, "rpmbuild", "--quiet", "-bb", "--define", "_topdir "+filepath.Join(top, "build"), spec)
	built, err := filepath.Glob(filepath.Join(top, "build/RPMS/noarch/*.rpm"))
	if err != nil || len(built) != 1 {
		t.Fatalf("built %v: %v", built, err)
	}
	return built[0]
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
