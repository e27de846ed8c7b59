package seal

import (
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	const head = "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n"
	c, err := ParseConfig(nil)
	if err != nil || c.FirstBoot != FirstBootAgent || c.Join != JoinAuto || c.FreeSpace != FreeZero || c.Verify.Unknown != UnknownRefuse || len(c.Sources) != 2 {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	for text, want := range map[string]string{
		head: "", head + "rules: [{id: x, paths: [/srv/*], action: remove, why: y}]\n": "", head + "verify: {allow: [{path: /srv, kind: private-key, why: y}]}\n": "",
		head + "exceptions: [{rule: static-pods, paths: [/etc/kubernetes/manifests/m.yaml, /etc/kubernetes], kind: token-jwt, why: y}]\n": "",
		head + "exceptions: [{rule: other-logs, paths: [/var/log/app], why: y}, {rule: swap, paths: [/data/swap0], why: y}]\n":            "",
		head + "exceptions: [{rule: static-pods, paths: [/srv], kind: private-key, why: y}]\n":                                            "exceptions[0].paths: rule static-pods takes nothing at /srv",
		head + "exceptions: [{rule: static-pods, paths: [/etc/kubernetes/manifests/m, '/etc/kubernetes/pki/*'], why: y}]\n":               "takes nothing at /etc/kubernetes/pki/*",
		head + "exceptions: [{rule: swap, paths: [/srv], kind: private-key, why: y}]\n":                                                   "takes nothing at /srv",
		head + "exceptions: [{rule: static-pods, kind: privatekey, why: y}]\n":                                                            `exceptions[0].kind: "privatekey" is not one of`,
		head + "verify: {allow: [{path: /srv, kind: privatekey, why: y}]}\n":                                                              `verify.allow[0].kind: "privatekey" is not one of`,
		head + "verify: {allow: [{path: /srv, why: y}]}\n":                                                                                `verify.allow[0].kind: "" is not one of`,

		"kind: SealConfig\n":           "write kamino.dev/v1alpha1 and SealConfig",
		head + "firstboot: agent\n":    "line 3: unknown field firstboot",
		head + "firstBoot: ignition\n": `firstBoot: "ignition" is not one of agent, cloud-init`,
		head + "join: never\n":         "join: ",
		head + "freeSpace: wipe\n":     "freeSpace: ",
		head + "rules: [{id: kubelet-pki, paths: [/a], action: remove, why: y}]\n": `rules[0].id: "kubelet-pki"`,
		head + "rules: [{id: X Y, paths: [/a], action: remove, why: y}]\n":         "lower-case words",
		head + "rules: [{id: x, paths: [/a], action: remove}]\n":                   "paths and why are required",
		head + "rules: [{id: x, paths: [/a], action: edit, why: y}]\n":             "rules[0].action",
		head + "rules: [{id: x, paths: [a], action: remove, why: y}]\n":            "rules[0].paths",
		head + "rules: [{id: x, paths: [/a/../b], action: remove, why: y}]\n":      "rules[0].paths",
		head + "rules: [{id: x, paths: [/], action: remove, why: y}]\n":            "not the root",
		head + "rules: [{id: x, paths: ['/a/['], action: remove, why: y}]\n":       "syntax error in pattern",
		head + "exceptions: [{rule: nope, why: y}]\n":                              `there is no rule "nope"`,
		head + "exceptions: [{rule: hosts}]\n":                                     "exceptions[0] (hosts): why is required",
		head + "exceptions: [{rule: hosts, paths: [x], why: y}]\n":                 "exceptions[0].paths",
		head + "verify: {allow: [{path: /a}]}\n":                                   "verify.allow[0]: why is required",
		head + "verify: {allow: [{path: a, why: y}]}\n":                            "verify.allow[0].path",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseConfig([]byte(text))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		})
	}
}

func TestEdits(t *testing.T) {
	donor := Facts{Host: "n3.example"}
	for name, tt := range map[string]struct {
		change        func([]byte, Facts) []byte
		before, after string
	}{
		"node flags":                    {dropNodeFlags, "A=\"--node-ip=10.0.0.7 --v=2 --hostname-override n3\"\nEnvironment=\"PRIMARY_NIC_IP=10.0.0.7\"\n", "A=\" --v=2\"\n"},
		"node flags, spelled otherwise": {dropNodeFlags, "ExecStart=/k --node-ip \\\n  10.0.0.7 \\\n  --v=2 -node-ip=10.0.0.8 --node_ip 10.0.0.9 --hostname_override=n3 --not-node-ip=1\n", "ExecStart=/k \\\n  --v=2 --not-node-ip=1\n"},
		"node flags, idempotent":        {dropNodeFlags, "--node-ip--hostname-override 0 0\n", "--node-ip--hostname-override 0 0\n"},
		"provider id":                   {dropNodeFlags, "ExecStart=/k --provider-id='azure:///x' --node-labels=a=b \\\n  --node-ip=\"1.2.3.4\"\n", "ExecStart=/k --node-labels=a=b \\\n\n"},
		"fields":                        {dropNodeFields, "address: 10.0.0.7\nproviderID: x\nhealthz:\n  address: 10.0.0.7\n", "healthz:\n  address: 10.0.0.7\n"},
		"other addresses":               {dropNodeFields, "address: 0.0.0.0\n", "address: 0.0.0.0\n"},
		"hosts":                         {dropOwnHosts, "127.0.0.1 localhost\n127.0.1.1 x\n10.0.0.7 n3 # me\n10.0.0.8 n33\n# n3\n", "127.0.0.1 localhost\n10.0.0.8 n33\n# n3\n"},
		"resolver":                      {dropAzureSearch, "search a.internal.cloudapp.net\nsearch corp.example\nnameserver 1.1.1.1\n", "search corp.example\nnameserver 1.1.1.1\n"},
		"mounts":                        {dropDonorMounts, "UUID=1 / ext4 x 0 1\n/swap.img none swap sw 0 0\n/dev/sdc1 none swap sw 0 0\n# comment=cloudconfig is a comment\n/dev/b /mnt auto comment=cloudconfig 0 2\n", "UUID=1 / ext4 x 0 1\n/dev/sdc1 none swap sw 0 0\n# comment=cloudconfig is a comment\n"},
		"waagent":                       {disableProvisioning, "Provisioning.Agent=auto\nLogs=y", "Logs=y\nProvisioning.Agent=disabled\nProvisioning.Enabled=n\n"},
		"passwords":                     {lockPasswords, "root:*:1::\na:$6$s$h:1::\nb:!$y$x:1::\nc:aaaaaaaaaaaaa:1::\nd:!:1::\nbroken\n", "root:*:1::\na:*:1::\nb:*:1::\nc:*:1::\nd:!:1::\nbroken\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(tt.change([]byte(tt.before), donor)); got != tt.after {
				t.Errorf("%s: %q, want %q", name, got, tt.after)
			}
			if got := string(tt.change([]byte(tt.after), donor)); got != tt.after {
				t.Errorf("%s twice: %q", name, got)
			}
		})
	}
}
