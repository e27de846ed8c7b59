package nodeconfig

import (
	"os"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/userdata"
)

// FuzzEKS: whatever kubelet's unit, its drop-ins and its environment say on a disk of EKS, the
// command line, the node's name and a canary's drop-in come from them or an error does.
func FuzzEKS(f *testing.F) {
	const unit, extra = "etc/systemd/system/kubelet.service", "etc/eks/kubelet/environment"
	d := disktest.New(f, map[string]string{"usr/bin/kubelet": "x", nodeadmWanted: "x", unit: "", extra: "", DropInPath: ""})
	f.Add("[Service]\nEnvironmentFile=/etc/eks/kubelet/environment\nExecStart=/usr/bin/kubelet $NODEADM_KUBELET_ARGS\n", "NODEADM_KUBELET_ARGS=--hostname-override=ip-10-0-0-7 --register-with-taints=a=b:NoSchedule\n")
	f.Add("[Service]\nEnvironment='A=--hostname-override \"x\"'\nExecStart=\\\n", "--config=../x --register-with-taints=,:=\n")
	f.Add("EnvironmentFile=-/etc/systemd/system/kubelet.service\nExecStart=", "\x00")
	f.Fuzz(func(t *testing.T, text, environment string) {
		for name, data := range map[string]string{unit: text, extra: environment, DropInPath: environment} {
			if err := os.WriteFile(d.Host(name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_ = NodeName(d)
		_ = Command(d, []byte(environment))
		_, _ = Registering(d, userdata.Taint{Key: "a", Value: "b", Effect: "NoSchedule"}, "c=d")
	})
}
