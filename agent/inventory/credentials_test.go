package inventory

import "testing"

// TestRowsWithCredentials: files of the reviewed list, with credentials as people leave them there,
// are unknown.
func TestRowsWithCredentials(t *testing.T) {
	for name, text := range map[string]string{
		"usr/bin/kubelet-start":                       "#!/bin/sh\nexport DB_PASSWORD=S0mmerRegen1987\n",
		"usr/sbin/kubectl-login":                      "#!/bin/sh\ncurl -usvc:S0mmerRegen1987 https://portal.example/\n",
		"opt/cni/bin/agent.conf":                      "password=S0mmerRegen1987\n",
		"etc/cloud/cloud.cfg.d/50-accounts.cfg":       "#cloud-config\nchpasswd:\n  expire: false\n  list: |\n    root:S0mmerRegen1987\n",
		"etc/apt/sources.list.d/mirror.list":          "# deb https://svc:S0mmerRegen1987@mirror.example/debian any main\n",
		"boot/grub2/grub.cfg":                         "linux /vmlinuz netroot=iscsi:svc:S0mmerRegen1987@10.0.0.5::3260::iqn.x\n",
		"var/cache/debconf/config.dat":                "Name: agent/api_key\nTemplate: agent/api_key\nValue: S0mmerRegen1987\n",
		"etc/systemd/system/kubelet.service.d/a.conf": "[Service]\nExecStartPre=/usr/bin/curl -usvc:S0mmerRegen1987 https://portal.example/\n",
	} {
		if row := generatedRow(name); row == nil || row.check == nil || row.check(nil, name, []byte(text)) {
			t.Errorf("/%s is known, with %q", name, text)
		}
	}
	for name, text := range map[string]string{
		"usr/bin/kubelet-start":                 "#!/bin/sh\nexec /usr/bin/kubelet \"$@\"\n",
		"opt/cni/bin/loopback":                  "\x7fELF password=S0mmerRegen1987",
		"etc/cloud/cloud.cfg.d/50-accounts.cfg": "#cloud-config\nusers:\n  - default\nchpasswd: {expire: false}\n",
		"var/cache/debconf/config.dat":          "Name: keyboard-configuration/layout\nValue: German\n",
	} {
		if row := generatedRow(name); row == nil || !row.check(nil, name, []byte(text)) {
			t.Errorf("/%s is unknown, with %q", name, text)
		}
	}
}
