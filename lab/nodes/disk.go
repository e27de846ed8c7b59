package nodes

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// Files of a node's disk that matter here. The names are those of a real disk,
// the content is symbolic.
const (
	MachineIDFile  = "/etc/machine-id"
	hostnameFile   = "/etc/hostname"
	poolFile       = "/etc/default/kubelet"   // the label of the pool, which the bootstrap writes
	packagesFile   = "/var/lib/dpkg/packages" // a line "NAME VERSION ARCHITECTURE" each, as the agent lists what dpkg has
	imagesFile     = "/var/lib/containerd/images"
	sshKeyFile     = "/etc/ssh/ssh_host_ed25519_key.pub"
	kubeletPKI     = "/var/lib/kubelet/pki/"
	credentialFile = kubeletPKI + "kubelet-client-current.pem"
	ReceiptFile    = "/var/lib/kamino/receipt.json"
	lineageFile    = "/var/lib/kamino/lineage.jsonl"
	ancestryFile   = "/var/log/ancestry.log"
)

// KubeletUnit is a file of a disk, and Masked what systemctl mask makes of it: a link to nothing.
const (
	KubeletUnit = "/etc/systemd/system/kubelet.service"
	Masked      = "/dev/null"
)

// Generalize does to a disk what an image builder's script does at its end: the identity goes, and
// the bootstrap of a pool is put in place. Kamino's agent is on the image where the script installs
// it.
func Generalize(files map[string]string, pool string, agent bool) {
	for _, name := range []string{MachineIDFile, hostnameFile, sshKeyFile, credentialFile, ReceiptFile, lineageFile,
		ancestryFile, KubeletUnit} {
		delete(files, name)
	}
	if files[poolFile] = pool + "\n"; agent {
		files[lineageFile] = "installed by the image's builder\n"
	}
}

// identity is who a machine is after it booted.
type identity struct {
	node      string // the name in kubelet's credentials
	hostname  string
	machineID string
	bootID    string
	pool      string
	images    []string // that the container runtime has cached
	sshKey    string   // as the agent tells it
	packages  string
	agent     bool // of a disk that was sealed: Kamino's agent is on it
}

// isGeneric tells a disk that has never been a node, which must go through the
// whole bootstrap.
func isGeneric(files map[string]string) bool {
	_, credentials := files[credentialFile]
	_, receipt := files[ReceiptFile]
	return !credentials && !receipt
}

// firstBoot makes up what the disk lacks and returns who the machine is. What
// the disk has, it keeps: that is how an unsealed clone becomes its donor.
func firstBoot(files map[string]string, computerName, pool string) identity {
	if files[poolFile] == "" {
		files[poolFile] = pool + "\n"
	}
	if files[imagesFile] == "" {
		files[imagesFile] = "registry.k8s.io/pause:3.10\nregistry.k8s.io/kube-proxy:" + kubeletVersion + "\nregistry.k8s.io/cni:1.7\n"
	}
	if strings.TrimSpace(files[MachineIDFile]) == "" {
		files[MachineIDFile] = randomHex(16) + "\n"
	}
	if strings.TrimSpace(files[hostnameFile]) == "" {
		files[hostnameFile] = computerName + "\n"
	}
	if files[sshKeyFile] == "" {
		files[sshKeyFile] = randomHex(16) + "\n"
	}
	Booted(files)
	hostname := strings.TrimSpace(files[hostnameFile])
	if _, ok := files[credentialFile]; !ok {
		files[credentialFile] = fmt.Sprintf("subject=O = system:nodes, CN = system:node:%s\nserial=%s\n", hostname, randomHex(16))
	}
	if receipt, ok := files[ReceiptFile]; ok {
		files[lineageFile] += strings.TrimSpace(receipt) + "\n"
		delete(files, ReceiptFile)
	}
	packages := ""
	if files[packagesFile] != "" {
		packages = packageDigest(files[packagesFile])
	}
	return identity{
		node:      nodeName(files[credentialFile], hostname),
		hostname:  hostname,
		machineID: strings.TrimSpace(files[MachineIDFile]),
		bootID:    randomUUID(),
		pool:      strings.TrimSpace(files[poolFile]),
		images:    strings.Fields(files[imagesFile]),
		sshKey:    strings.TrimSpace(files[sshKeyFile]),
		packages:  packages,
		agent:     files[lineageFile] != "",
	}
}

// nodeName is the node that kubelet's credentials are for.
func nodeName(credential, hostname string) string {
	if _, after, ok := strings.Cut(credential, "system:node:"); ok {
		if end := strings.IndexAny(after, "\n\r ,/\"'"); end >= 0 {
			after = after[:end]
		}
		if after != "" {
			return strings.ToLower(after)
		}
	}
	return strings.ToLower(hostname)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

func randomUUID() string {
	h := randomHex(16)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
