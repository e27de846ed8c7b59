package scan

import (
	"io/fs"
	"path"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// tree is a directory in which only some names may hold data. What nobody thought of lands in such
// a place first.
type tree struct {
	dir   string
	allow []string
}

var trees = []tree{
	{"etc/kubernetes", []string{"etc/kubernetes/certs/ca.crt", "etc/kubernetes/pki/ca.crt", "etc/kubernetes/kubelet-config.yaml",
		"etc/kubernetes/kubelet/*.yaml",
		// EKS: nodeadm writes them anew at every boot (github.com/awslabs/amazon-eks-ami, nodeadm;
		// read, not tried on a node).
		"etc/kubernetes/kubelet/config.json", "etc/kubernetes/kubelet/config.json.d/*.conf", "etc/kubernetes/kubelet/kubelet-config.json"}},
	{"etc/apt/auth.conf.d", nil}, {"etc/cni/net.d", []string{"etc/cni/net.d/10-azure.conflist"}},
	{"var/lib/kubelet/pki", nil}, {"var/lib/kubelet/pods", nil}, {"var/lib/kubelet/image_manager", nil},
	{"var/lib/cloud/data", nil}, {"var/lib/cloud/instances", nil}, {"var/lib/cloud/handlers", nil},
	{"var/log/pods", nil}, {"var/log/containers", nil}, {"var/log/journal", nil}, {"var/log/audit", nil}, {"var/log/azure", nil},
	{"var/spool/cron/crontabs", nil}, {"var/spool/cron/atjobs", nil}, {"var/spool/at", nil}, {"var/spool/mail", nil}, {"var/mail", nil},
	{"var/crash", nil}, {"var/lib/systemd/coredump", nil}, {"tmp", nil}, {"var/tmp", nil}, {"var/backups", nil},
	{"var/lib/containerd/io.containerd.grpc.v1.cri/containers", nil}, {"var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes", nil},
	{"var/lib/docker/containers", nil}, {"var/lib/docker/swarm", nil},
	{"etc/wireguard", nil}, {"var/lib/tailscale", nil}, {"etc/pki/consumer", nil}, {"etc/pki/entitlement", nil}, {"var/lib/rhsm", nil},
	{"var/lib/ubuntu-advantage/private", nil}, {"var/lib/ubuntu-pro/private", nil}, {"var/lib/snapd/device", nil},
	{"var/lib/samba/private", nil}, {"var/lib/sss/db", nil}, {"var/lib/sss/secrets", nil},
	{"etc/.git", nil}, {"etc/.hg", nil}, {"var/lib/docker/volumes",
		[]string{"var/lib/docker/volumes/metadata.db", "var/lib/docker/volumes/backingFsBlockDev"}},
	{"var/lib/containers/storage/volumes", nil}, {"var/lib/containers/storage/overlay-containers",
		[]string{"var/lib/containers/storage/overlay-containers/*containers.json",
			"var/lib/containers/storage/overlay-containers/containers.lock"}}, {"var/lib/nerdctl", nil},
	{"var/spool/postfix/deferred", nil},
	{"etc/salt/pki/minion", nil}, {"etc/puppetlabs/puppet/ssl", nil}, {"var/lib/puppet/ssl", nil},
}

// names mean a credential wherever they are.
var names = []struct{ kind, pattern string }{
	{"ssh-host-key", "ssh_host_*_key"},
	{"ssh-user-key", "id_rsa"}, {"ssh-user-key", "id_ed25519"}, {"ssh-user-key", "id_ecdsa"}, {"ssh-user-key", "id_dsa"},
	{"ssh-user-key", "authorized_keys*"},
	{"platform-key", "*.prv"}, {"platform-key", "TransportPrivate.pem"},
	{"provisioning-data", "ovf-env.xml"}, {"provisioning-data", "CustomData"}, {"provisioning-data", "user-data.txt*"},
	{"provisioning-data", "aks-node-controller-config.json"},
	{"history", ".*_history"}, {"seed", "random-seed"}, {"seed", "credential.secret"}, {"seed", "secret_key"},
	{"keytab", "*.keytab"}, {"keytab", "krb5.keytab*"}, {"account-backup", "shadow-"}, {"account-backup", "gshadow-"},
	{"user-credential", ".netrc"}, {"user-credential", ".git-credentials"}, {"user-credential", ".pgpass"},
	{"user-credential", ".vault-token"},
	{"user-credential", "*.kdbx"}, {"user-credential", "accessTokens.json"}, {"user-credential", "msal_token_cache*"},
	{"cloud-credential", "azure.json"}, {"cloud-credential", "sp.txt"},
	{"container-credential", ".dockercfg"}, {"engine-identity", "engine-id"}, {"monitoring-identity", "auth_token"},
	{"monitoring-identity", "mdatp_onboard.json"},
	{"private-key", "*.p12"}, {"private-key", "*.pfx"}, {"private-key", "*_key.pem"}, {"private-key", "*.jks"}, {"private-key", "*.ppk"},
	{"ssh-host-key", "dropbear_*_host_key"}, {"history", "fish_history"}, {"history", ".*history"}, {"history", ".lesshst"},
	{"history", ".viminfo"},
	{"user-credential", ".my.cnf"}, {"user-credential", ".mylogin.cnf"}, {"user-credential", ".s3cfg"}, {"user-credential", ".boto"},
	{"user-credential", ".passwd-s3fs"},
	{"user-credential", "passwd-s3fs"}, {"user-credential", ".vault_pass*"}, {"user-credential", ".google_authenticator"},
	{"user-credential", ".erlang.cookie"},
	{"user-credential", ".pypirc"}, {"user-credential", ".htpasswd"}, {"user-credential", ".credentials"},
	{"user-credential", ".credentials_rsaparams"}, {"user-credential", ".smbcredentials"},
	{"user-credential", "rclone.conf"},
	{"user-credential", "ldap.secret"},
	{"user-credential", "secret-id"}, {"user-credential", "role-id"}, {"user-credential", "enroll.secret"},
	{"user-credential", "enrollment_secret"}, {"user-credential", "*.psk"},
	{"seed", "identity.secret"}, {"seed", "secrets.tdb"}, {"seed", "splunk.secret"}, {"seed", "rndc.key"},
	{"monitoring-identity", "client.keys"}, {"monitoring-identity", "host_uuid"}, {"monitoring-identity", "machine_id*"},
	{"monitoring-identity", "*.unique.id"},
	{"installer", "anaconda-ks.cfg"}, {"installer", "original-ks.cfg"}, {"installer", "preseed.cfg"},
	{"installer", "autoinstall-user-data"},
	{"account-backup", "shadow.*"}, {"account-backup", "gshadow.*"}, {"account-backup", "passwd.bak"},
}

// byName judges a file by where it is, with its runtime's usual root, and what it is called. Empty
// files hold nothing.
func byName(name, usual string, info fs.FileInfo) (Finding, bool) {
	if info.IsDir() || info.Mode().IsRegular() && info.Size() == 0 {
		return Finding{}, false
	}
	for _, t := range trees {
		if usual == t.dir && info.Mode()&fs.ModeSymlink != 0 {
			break // the place is elsewhere; the link itself tells nothing
		}
		if disk.Under(usual, t.dir) && !allowed(usual, t.allow) {
			return Finding{Kind: "sensitive-place", Path: name, Detail: "nothing may be left in /" + t.dir +
				" but what is known to be harmless"}, true
		}
	}
	if !info.Mode().IsRegular() {
		return Finding{}, false
	}
	base := path.Base(name)
	if kind := called(base); kind != "" {
		return Finding{Kind: kind, Path: name, Detail: "by its name"}, true
	}
	if strings.HasPrefix(base, "core.") && info.Size() > 1<<20 {
		return Finding{Kind: "core-dump", Path: name, Detail: "by its name"}, true
	}
	return Finding{}, false
}

// called is the kind that a file's name alone means; empty: none.
func called(base string) string {
	for _, n := range names {
		if ok, _ := path.Match(n.pattern, base); ok {
			return n.kind
		}
	}
	return ""
}

func allowed(name string, patterns []string) bool {
	for _, p := range patterns {
		if Pattern(p, name) {
			return true
		}
	}
	return false
}
