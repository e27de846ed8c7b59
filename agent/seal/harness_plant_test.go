package seal

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"kamino.dev/kamino/agent/disk"
)

const (
	donorHost    = "k8s-pool1-28346-vmss000003"
	donorMachine = "0123456789abcdef0123456789abcdef"
	donorVM      = "a1b2c3d4-e5f6-4711-8899-aabbccddeeff"
	secret       = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIKiLpl1v5fakefakefakefakefakefakefake\n-----END EC PRIVATE KEY-----\n"
)

// plants holds for every rule of the table files that only this rule takes away. For a rule marked
// secret their content is a credential or their place and name are known to hold one, so that a
// scan must notice when the rule is missing.
var plants = map[string]map[string]string{
	"kubelet-pki":            {"var/lib/kubelet/pki/kubelet-client-current.pem": secret},
	"kubelet-kubeconfig":     {"etc/kubernetes/kubelet.conf": "users:\n- user: {client-key-data: TUhjQ0FRRUVJS2lMcGwxdjU=}\n"},
	"kubelet-bootstrap":      {"var/lib/kubelet/bootstrap-kubeconfig": "    token: abcdef.0123456789abcdef\n"},
	"kubernetes-certs":       {"etc/kubernetes/pki/apiserver.key": secret, "etc/kubernetes/pki/ca.crt": "public\n"},
	"kubernetes-admin":       {"root/.kube/config": "client-key-data: TUhjQ0FRRUVJS2lMcGwxdjU=\n"},
	"cloud-credentials":      {"etc/kubernetes/azure.json": `{"aadClientSecret":"0123456789abcdefghij"}`},
	"kubelet-flags":          {"etc/default/kubelet": "KUBELET_FLAGS=--node-ip=10.240.0.7 --v=2\n"},
	"kubelet-config":         {"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\nproviderID: azure:///x\n"},
	"kubelet-managers":       {"var/lib/kubelet/cpu_manager_state": "{}"},
	"kubelet-state":          {"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "{}"},
	"kubelet-pods":           {"var/lib/kubelet/pods/u/volumes/s/password": "hunter2\n"},
	"static-pods":            {"etc/kubernetes/manifests/etcd.yaml": "kind: Pod\n"},
	"pod-logs":               {"var/log/pods/default_web/web/0.log": "password is hunter2\n"},
	"cni-config":             {"etc/cni/net.d/calico-kubeconfig": "x\n", "etc/cni/net.d/10-azure.conflist": "{}\n"},
	"cni-state":              {"var/lib/cni/networks/cbr0/10.244.3.7": "u\n"},
	"cni-node":               {"var/lib/calico/nodename": donorHost},
	"firewall":               {"etc/iptables/rules.v4": "-A KUBE-SERVICES\n"},
	"netplan-mac":            {"etc/netplan/50-cloud-init.yaml": "macaddress: 00:0d:3a:11:22:33\n"},
	"networkd-mac":           {"etc/systemd/network/10-x.link": "[Match]\nMACAddress=00:0D:3A:11:22:33\n"},
	"networkmanager-mac":     {"etc/NetworkManager/system-connections/e": "mac-address=00:0D:3A:11:22:33\n"},
	"udev-net":               {"etc/udev/rules.d/70-persistent-net.rules": "x\n"},
	"dhcp-leases":            {"var/lib/dhcp/dhclient.leases": "lease {}\n"},
	"networkmanager-secret":  {"var/lib/NetworkManager/secret_key": "nm-key-1\n"},
	"resolv-conf":            {"etc/resolv.conf": "search x.internal.cloudapp.net\nnameserver 168.63.129.16\n"},
	"iscsi":                  {"etc/iscsi/initiatorname.iscsi": "InitiatorName=x\n"},
	"nvme":                   {"etc/nvme/hostid": "x\n"},
	"disks":                  {"etc/multipath/wwids": "x\n"},
	"fstab":                  {"etc/fstab": "/dev/x /mnt auto comment=cloudconfig 0 2\n"},
	"containers":             {"var/lib/containerd/io.containerd.grpc.v1.cri/containers/c/status": "{}\n"},
	"containerd-metadata":    {"var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db": ""}, // made by plant
	"docker-identity":        {"var/lib/docker/swarm/worker/key": "x\n"},
	"registry-credentials":   {"root/.docker/config.json": `{"auths":{"r":{"auth":"dXNlcjpwYXNzd29yZA=="}}}`},
	"hosts":                  {"etc/hosts": "127.0.0.1 localhost\n127.0.1.1 " + donorHost + "\n"},
	"hostname":               {"etc/hostname": donorHost + "\n"},
	"recorded-vm":            {"etc/kamino/vm.json": `{"vmId":"` + donorVM + `"}`},
	"agent-state":            {"var/lib/kamino/config.json": "{}"},
	"machine-id-dbus":        {"var/lib/dbus/machine-id": donorMachine + "\n"},
	"machine-id":             {"etc/machine-id": donorMachine + "\n"},
	"cloud-init":             {"var/lib/cloud/instances/i/user-data.txt": "#cloud-config\n", "var/lib/cloud/data/reported_ready": "x\n"},
	"waagent":                {"var/lib/waagent/ovf-env.xml": "<UserPassword>hunter2</UserPassword>", "var/lib/waagent/WALinuxAgent-2.9.1.1/agent": "program\n"},
	"extensions":             {"var/lib/waagent/Microsoft.X.Y-2.1.10/config/0.settings": `{"clientSecret":"0123456789abcdefghij"}`},
	"waagent-provisioning":   {"etc/waagent.conf": "Provisioning.Agent=auto\n"},
	"hyperv-kvp":             {"var/lib/hyperv/.kvp_pool_1": "vm_id\n"},
	"aks-sentinels":          {"opt/azure/containers/provision.complete": "\n"},
	"aks-state":              {"opt/azure/containers/imds_instance_metadata_cache.json": "{}"},
	"nodeadm-config":         {"etc/eks/kubelet/environment": "NODEADM_KUBELET_ARGS=--node-ip=10.0.12.34\n"},
	"bootstrap-config":       {"etc/kubernetes/kubelet/kubelet-config.json": `{"maxPods": 58, "providerID": "aws:///eu-central-1a/i-0abc1234def567890"}`},
	"nodeadm-disks":          {"etc/systemd/system/var-lib-kubelet.mount": "[Mount]\nWhat=/mnt/k8s-disks/0/kubelet\nWhere=/var/lib/kubelet\n"},
	"nodeadm-array":          {".aws/mdadm.conf": "ARRAY /dev/md/kubernetes UUID=1:2:3:4\n"},
	"ecr-cache":              {"root/.ecr/cache.json": secret},
	"cloudformation-helpers": {"var/lib/cfn-init/data/metadata.json": secret},
	"efs":                    {"etc/amazon/efs/privateKey.pem": secret},
	"aks-config":             {"opt/azure/containers/aks-node-controller-config.json": `{"token":"abcdef.0123456789abcdef"}`},
	"encrypted-credentials":  nil, // refuses
	"ssh-host-keys":          {"etc/ssh/ssh_host_ed25519_key": secret},
	"ssh-user-keys":          {"home/u/.ssh/id_ed25519": secret},
	"password-hashes":        {"etc/shadow": "u:$6$salt$" + strings.Repeat("a", 86) + ":1::::::\n"},
	"account-backups":        {"etc/shadow-": "u:$6$salt$" + strings.Repeat("b", 86) + ":1::::::\n"},
	"random-seed":            {"var/lib/systemd/random-seed": "seed\n"},
	"systemd-credential":     {"var/lib/systemd/credential.secret": "host key\n"},
	"self-signed":            {"etc/ssl/private/ssl-cert-snakeoil.key": secret},
	"kerberos":               {"etc/krb5.keytab": "keytab\n"},
	"directory-services":     {"var/lib/samba/private/secrets.tdb": "tdb\n"},
	"subscriptions":          {"etc/pki/consumer/key.pem": secret},
	"vpn":                    {"etc/wireguard/wg0.conf": "[Interface]\nPrivateKey = " + strings.Repeat("A", 43) + "=\n"},
	"configuration-management": {
		"etc/salt/pki/minion/minion.pem": secret},
	"monitoring":         {"etc/datadog-agent/auth_token": "0123456789abcdef\n"},
	"user-credentials":   {"root/.aws/credentials": "aws_secret_access_key = " + strings.Repeat("x", 40) + "\n"},
	"swap":               {"swapfile": "memory with " + secret},
	"pending-reboot":     nil, // refuses
	"journal":            {"var/log/journal/" + donorMachine + "/system.journal": "LPKSHHRH\n"},
	"logs":               {"var/log/syslog": "kubelet: Authorization: Bearer abcdefghijklmnop\n"},
	"logins":             {"var/log/wtmp": "x\n"},
	"histories":          {"root/.bash_history": "mysql -phunter2\n"},
	"spool":              {"var/spool/cron/crontabs/u": "* * * * * curl -u a:b\n"},
	"timers":             {"var/lib/systemd/timers/stamp-apt-daily.timer": "\n"},
	"crashes":            {"var/crash/_usr_bin_x.crash": "core\n"},
	"temporary":          {"tmp/left": "x\n"},
	"packages":           {"var/cache/apt/archives/x.deb": "x\n"},
	"k3s":                {"etc/rancher/node/password": "9f2c9f2c7a1b9f2c9f2c9f2c9f2c9f2c\n"},
	"ifcfg-mac":          {"etc/sysconfig/network-scripts/ifcfg-eth0": "DEVICE=eth0\nHWADDR=00:0d:3a:11:22:33\n"},
	"runtime-identity":   {"var/lib/containerd/io.containerd.grpc.v1.introspection/uuid": "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10"},
	"installer":          {"root/anaconda-ks.cfg": "rootpw --iscrypted $6$salt$" + strings.Repeat("c", 86) + "\n"},
	"amazon-agents":      {"var/lib/amazon/ssm/Vault/Store/RegistrationKey": secret},
	"azure-agents":       {"var/opt/azcmagent/certs/myCert": secret},
	"agent-identities":   {"opt/nessus_agent/var/nessus/uuid": "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10", "opt/splunkforwarder/etc/instance.cfg": "guid = 6F1D1C0E-2F3A-4A7B-9A55-0C2B7E8D9F10\n"},
	"secret-brokers":     {"var/lib/vault-agent/token": "hvs.CAESIJlU02LQZq42Gh4KHGh2cy5abcdefgh"},
	"build-agents":       {"home/u/actions-runner/.credentials": "{}"},
	"management-state":   {"opt/puppetlabs/puppet/cache/client_data/catalog/n.json": `{"password":"Pa55w0rd1234"}`},
	"storage-initiators": {"var/lib/iscsi/nodes/iqn.x/10.0.0.9,3260,1/default": "node.session.auth.password = Pa55w0rd1234\n"},
	"disk-records":       {"etc/lvm/archive/vg_00000.vg": "id = \"x\"\n"},
	"mdadm":              {"etc/mdadm/mdadm.conf": "HOMEHOST <system>\nARRAY /dev/md0 UUID=1:2:3:4\n"},
	"snapd-identity":     {"var/lib/snapd/state.json": `{"data":{"auth":{"last-id":1,"device":{"brand":"generic","serial":"6f1d1c0e","session-macaroon":"x","key-id":"k"},"users":[{"store-macaroon":"y","password":"Pa55w0rd1234"}]},"snaps":{"core":{}}},"changes":{}}`},
	"rotated-logs":       {"var/log/app/app.log.1.gz": gzipped("Authorization: Bearer abcdefghijklmnop\n")},
	"recorded-activity":  {"var/log/atop/atop_20261122": "processes\n"},
	"other-logs":         {"var/log/app/app.log": "token: abcdef.0123456789abcdef\n"},
	"records":            {"var/lib/plocate/plocate.db": "names\n"},
	"etc-history":        {"etc/.git/objects/aa/bb": "password = Pa55w0rd1234\n"},
	"control-plane":      nil, "workload-data": nil, "disk-keys": nil, "storage-credentials": nil, "fstab-credentials": nil, absentDisks: nil, "endpoint-protection": nil, "plain-credentials": nil, // refuse
	"kept": {"usr/bin/kubelet": "program\n", "home/u/notes": "plain\n", "etc/cloud/cloud.cfg": "x\n"}, // no rule's
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text)) // into memory
	_ = z.Close()
	return b.String()
}

// plant makes a disk with everything on it.
func plant(t *testing.T) *disk.Disk {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", "kamino-seal-")
	if err != nil {
		root = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	for _, files := range plants {
		for name, text := range files {
			plantFile(t, root, name, text)
		}
	}
	plantFile(t, root, "sys/class/dmi/id/product_uuid", donorVM+"\n")
	for name, mode := range map[string]fs.FileMode{"etc/shadow": 0o640, "var/lib/kubelet/pki": 0o700, "etc/machine-id": 0o444} {
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	plantDatabase(t, filepath.Join(root, "var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"))
	// An hour ago, so that a file which was rewritten shows it.
	then := time.Now().Add(-time.Hour).Truncate(time.Second)
	err = filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(name, then, then))
	})
	d, oerr := disk.Open(root)
	if err = errors.Join(err, oerr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func plantFile(t testing.TB, root, name, text string) {
	t.Helper()
	at := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// plantDatabase is a containerd metadata database with an image, and with a removed container in
// its free pages.
func plantDatabase(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(name, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	set := func(bucket, key, value string) {
		err = errors.Join(err, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			return errors.Join(err, b.Put([]byte(key), []byte(value)))
		}))
	}
	set("images", "pause", "sha256:1")
	set("containers", "c1", strings.Repeat("ENV "+secret, 40))
	err = errors.Join(err, db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("containers")) }), db.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// options of a seal of a planted disk.
func planted(change func(*Options)) Options {
	config, err := ParseConfig(nil)
	if err != nil {
		panic(err)
	}
	config.Verify.Unknown = UnknownReport // what is planted belongs to no package
	o := Options{Run: "r1", Donor: donorHost, Config: config, FirstBoot: FirstBootAgent, Join: JoinFresh, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Facts: Facts{Host: donorHost, Addresses: []string{"10.240.0.7"}, VMID: donorVM, MachineID: donorMachine}}
	if change != nil {
		change(&o)
	}
	return o
}

// state is everything about a file that a seal could change.
type state struct {
	Mode     fs.FileMode
	Modified int64
	Content  string
}

func read(t *testing.T, d *disk.Disk) map[string]state {
	t.Helper()
	all := map[string]state{}
	err := filepath.WalkDir(d.Dir(), func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(d.Dir(), name)
		s := state{Mode: info.Mode()}
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			s.Content, s.Modified = string(data), info.ModTime().UnixNano()
			all[rel] = s
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			s.Content, err = os.Readlink(name)
		}
		all[rel] = s
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
