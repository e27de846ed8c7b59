package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"kamino.dev/kamino/azure/emulator"
)

// Identity is what no two machines may share, and a little more that is asked at
// the same time.
type Identity struct {
	MachineID   string `json:"machineId"`
	HostKey     string `json:"hostKey"`     // of sshd, ed25519, as the network shows it
	Certificate string `json:"certificate"` // serial number of kubelet's client certificate
	HostName    string `json:"hostName"`
	MAC         string `json:"mac"`
	DHCP        string `json:"dhcp"` // client identifier networkd derives from machine-id and MAC
	Seed        string `json:"seed"` // hash of systemd's random seed
	BootID      string `json:"bootId"`

	Ancestry    string `json:"ancestry"`
	Patch       string `json:"patch"`
	SystemState string `json:"systemState"` // systemctl is-system-running
	FailedUnits string `json:"failedUnits"`
	CloudInit   string `json:"cloudInit"`  // ActiveState of its four units
	Extensions  string `json:"extensions"` // what its agent said in this boot
	Images      string `json:"images"`     // of containers
	Pulled      string `json:"pulled"`     // image pulls in containerd's journal of this boot
}

// identityScript prints one field a line, name first. Multi-line values have their ends written as
// "|".
const identityScript = `
line() { printf '%s\t%s\n' "$1" "$(cat | tr '\n' '|' | sed 's/|*$//')"; }
line machineId </etc/machine-id
openssl x509 -noout -serial -in /var/lib/kubelet/pki/kubelet-client-current.pem 2>/dev/null | line certificate
hostname | line hostName
cat /sys/class/net/eth0/address | line mac
cat /run/systemd/netif/leases/* 2>/dev/null | grep CLIENTID | line dhcp
sha256sum </var/lib/systemd/random-seed | line seed
cat /proc/sys/kernel/random/boot_id | line bootId
cat /var/log/ancestry.log 2>/dev/null | line ancestry
cat /usr/share/lab-tool/version 2>/dev/null | line patch
systemctl is-system-running | line systemState
systemctl --failed --no-legend --plain | line failedUnits
systemctl show -p ActiveState --value cloud-init-local cloud-init cloud-config cloud-final | grep . | line cloudInit
journalctl -b -u lab-extensions -o cat 2>/dev/null | grep '^extension ' | line extensions
ctr -n k8s.io image ls -q 2>/dev/null | grep -v '^sha256:' | line images
journalctl -b -u containerd -o cat 2>/dev/null | grep 'PullImage' | line pulled
`

// Inspect asks an instance who it is.
func (l *Lab) Inspect(ctx context.Context, i emulator.Instance) (Identity, error) {
	out, hostKey, err := l.Run(ctx, i, identityScript)
	if err != nil {
		return Identity{}, err
	}
	fields := map[string]string{"hostKey": hostKey}
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			return Identity{}, fmt.Errorf("inspect %s: it printed %q", i.Name, line)
		}
		fields[name] = value
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return Identity{}, err
	}
	var id Identity
	return id, json.Unmarshal(text, &id)
}

// unique are the fields that tell machines apart, by name.
func (id Identity) unique() map[string]string {
	return map[string]string{"machine-id": id.MachineID, "ssh host key": id.HostKey, "kubelet's client certificate": id.Certificate,
		"host name":   id.HostName,
		"MAC address": id.MAC, "random seed": id.Seed, "boot id": id.BootID}
}

// Twins says what two machines share and must not, or lack.
func Twins(names []string, ids []Identity) []string {
	var found []string
	for a := range ids {
		for field, value := range ids[a].unique() {
			if value == "" {
				found = append(found, fmt.Sprintf("%s has no %s", names[a], field))
			}
			for b := a + 1; b < len(ids); b++ {
				if value != "" && value == ids[b].unique()[field] {
					found = append(found, fmt.Sprintf("%s and %s have the same %s: %s", names[a], names[b], field, value))
				}
			}
		}
	}
	return found
}
