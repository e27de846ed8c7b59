package nodeconfig

import (
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/userdata"
)

func TestConfigurer(t *testing.T) {
	const stub, unit = "etc/eks/bootstrap.sh", "etc/systemd/system/nodeadm-run.service"
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nodeadm, with the stub of the script": {map[string]string{stub: "#!/bin/sh\n", nodeadmWanted: "[Service]\n"}, Nodeadm},
		"nodeadm that is not enabled":          {map[string]string{unit: "[Service]\n"}, ""},
		"the script":                           {map[string]string{stub: "#!/bin/sh\n"}, Bootstrap},
		"neither":                              {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := disktest.New(t, tt.files)
			if got := Configurer(d); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			_, err := Render(t.Context(), d, host.Recorder{}, &userdata.NodeConfig{Join: userdata.Join{Method: userdata.JoinKeep}}, true)
			if (tt.want == "") == (err != nil && strings.Contains(err.Error(), "of EKS configures")) {
				t.Errorf("a NodeConfig of ours: %v", err)
			}
		})
	}
}

func TestNodeName(t *testing.T) {
	const unit = "[Service]\nEnvironmentFile=/etc/eks/kubelet/environment\nExecStart=/usr/bin/kubelet $NODEADM_KUBELET_ARGS\n"
	for name, tt := range map[string]struct{ arguments, want string }{
		"nodeadm's": {"NODEADM_KUBELET_ARGS=--node-ip=10.0.0.4 --hostname-override=ip-10-0-0-4.ec2.internal --v=2\n", "ip-10-0-0-4.ec2.internal"},
		"the last":  {"A=--hostname-override=a --hostname-override=i-0123456789abcdef0\n", "i-0123456789abcdef0"},
		"none":      {"A=--v=2\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := disktest.New(t, map[string]string{"etc/systemd/system/kubelet.service": unit, "etc/eks/kubelet/environment": tt.arguments})
			if got := NodeName(d); got != tt.want {
				t.Errorf("%q", got)
			}
		})
	}
}
