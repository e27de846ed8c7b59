package seal

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/lazyregexp"
)

// Facts are what identifies the donor. Seal collects them before it changes anything; the scan
// looks for them afterwards.
type Facts struct {
	Host      string   `json:"host,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	MACs      []string `json:"macs,omitempty"`
	VMID      string   `json:"vmId,omitempty"`
	MachineID string   `json:"machineId,omitempty"`
}

var mac = lazyregexp.New(`(?i)\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)

func mentionsMAC(data []byte) bool { return mac.Match(data) }

func mentionsKube(data []byte) bool {
	return bytes.Contains(data, []byte("KUBE-")) || bytes.Contains(data, []byte("CNI-")) || bytes.Contains(data, []byte("cali-"))
}

func ownMachineID(data []byte) bool { return len(bytes.TrimSpace(data)) > 0 }

func dropOwnHosts(data []byte, donor Facts) []byte {
	return withoutLines(data, func(line string) bool {
		text, _, _ := strings.Cut(line, "#")
		field := strings.Fields(text)
		if len(field) < 2 {
			return false
		}
		if field[0] == "127.0.1.1" {
			return true
		}
		short, _, _ := strings.Cut(donor.Host, ".")
		return slices.ContainsFunc(field[1:], func(name string) bool {
			host, _, _ := strings.Cut(name, ".")
			return donor.Host != "" && strings.EqualFold(host, short)
		})
	})
}

// The suffix that Azure's own DNS gives a virtual network; it names the donor's network, not the
// clone's.
// https://learn.microsoft.com/azure/virtual-network/virtual-networks-name-resolution-for-vms-and-role-instances
func dropAzureSearch(data []byte, _ Facts) []byte {
	return withoutLines(data, func(line string) bool {
		field := strings.Fields(line)
		return len(field) > 1 && (field[0] == "search" || field[0] == "domain") && strings.Contains(line, ".internal.cloudapp.")
	})
}

// cloud-init marks the mounts it added with comment=cloudconfig (cloudinit/config/cc_mounts.py).
func dropDonorMounts(data []byte, _ Facts) []byte {
	return withoutLines(data, func(line string) bool {
		field := strings.Fields(line)
		if len(field) < 3 || strings.HasPrefix(field[0], "#") {
			return false
		}
		return strings.Contains(line, "cloudconfig") || field[2] == "swap" && strings.HasPrefix(field[0], "/") &&
			!strings.HasPrefix(field[0], "/dev/")
	})
}

// nodeFlag is one of kubelet's flags that name the donor, with what stands before it: as kubelet
// reads them, with one dash or two, "_" for "-", and the value in the next word, which may be on
// the next line.
var nodeFlag = lazyregexp.New(`(^|[\n"'=]|[ \t]+)--?(node[-_]ip|hostname[-_]override|provider[-_]id)` + flagValue +
	`("[^"]*"|'[^']*'|[^\s"'\\]+)`)

const flagValue = `(?:=|[ \t]*\\\r?\n[ \t]*|[ \t]+)`

var hardwareLine = lazyregexp.New(`(?i)^\s*(?:HWADDR|LLADDR|MACADDR|UUID)\s*=`)

// HWADDR binds an interface to a card (initscripts, sysconfig.txt), LLADDR is SUSE's; UUID names
// NetworkManager's profile.
func dropHardwareLines(data []byte, _ Facts) []byte {
	return withoutLines(data, func(line string) bool { return hardwareLine.MatchString(line) })
}

// mdadm.conf(5): an ARRAY line identifies one array; devices assemble without.
func dropArrays(data []byte, _ Facts) []byte {
	return withoutLines(data, func(line string) bool {
		field := strings.Fields(line)
		return len(field) > 0 && strings.HasPrefix("ARRAY", strings.ToUpper(field[0])) && len(field[0]) >= 3
	})
}

var mountPassword = lazyregexp.New(`(?m)^[^#\n]*[\s,=](?:password|passwd|pass|account[_-]?key|secret)=[^\s,$]+`)

func mountsWithPassword(data []byte) bool { return mountPassword.Match(data) }

// dropSnapdIdentity takes the device's serial, key and sessions out of snapd's state
// (overlord/auth: AuthState), and leaves the rest as it is. Text that is not that state stays as it
// is.
func dropSnapdIdentity(data []byte, _ Facts) []byte {
	var state, parts, auth map[string]json.RawMessage
	if json.Unmarshal(data, &state) != nil || json.Unmarshal(state["data"], &parts) != nil || json.Unmarshal(parts["auth"], &auth) != nil {
		return data
	}
	var device map[string]json.RawMessage
	if json.Unmarshal(auth["device"], &device) != nil {
		device = map[string]json.RawMessage{}
	}
	before := len(device) + len(auth)
	for _, key := range []string{"serial", "session-macaroon", "key-id"} {
		delete(device, key)
	}
	for _, key := range []string{"users", "macaroon-key"} {
		delete(auth, key)
	}
	if len(device)+len(auth) == before {
		return data
	}
	for _, part := range []struct {
		in    map[string]json.RawMessage
		name  string
		value any
	}{{auth, "device", device}, {parts, "auth", auth}, {state, "data", parts}} {
		text, err := json.Marshal(part.value)
		if err != nil {
			return data
		}
		part.in[part.name] = text
	}
	text, err := json.Marshal(state)
	if err != nil {
		return data
	}
	return text
}

// Flags that name the donor; --node-labels and the rest are the pool's, and stay.
func dropNodeFlags(data []byte, _ Facts) []byte {
	data = withoutLines(data, func(line string) bool { return strings.Contains(line, "PRIMARY_NIC_IP=") })
	return nodeFlag.ReplaceAllFunc(data, func(found []byte) []byte {
		if found[0] == '-' || found[0] == ' ' || found[0] == '\t' {
			return nil
		}
		return found[:1] // a quote, an equals sign or a line's end
	})
}

func dropNodeFields(data []byte, _ Facts) []byte {
	return withoutLines(data, func(line string) bool {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "providerID":
			return true
		case "address":
			// Where kubelet listens: everywhere, on loopback, or on an address that only the donor
			// has.
			ip := net.ParseIP(strings.Trim(strings.TrimSpace(value), `"'`))
			return ip != nil && !ip.IsUnspecified() && !ip.IsLoopback()
		}
		return false
	})
}

// dropProviderID is dropNodeFields for a configuration in JSON. Text that is not JSON stays as it
// is.
func dropProviderID(data []byte, _ Facts) []byte {
	var config map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // as it stands there
	if d.Decode(&config) != nil || config["providerID"] == nil {
		return data
	}
	delete(config, "providerID")
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return data
	}
	return append(text, '\n')
}

// Addresses are the donor's as its disk knows them: from kubelet's flags and DHCP leases. On a
// running donor the network cards know better.
func Addresses(d *disk.Disk) (all []string) {
	var files []string
	for _, pattern := range []string{"etc/default/kubelet", "var/lib/kubelet/kubeadm-flags.env", "var/lib/dhcp/*.leases",
		"var/lib/dhclient/*.leases"} {
		found, _ := d.Glob(pattern) // a pattern of ours is never malformed
		files = append(files, found...)
	}
	for _, f := range files {
		for _, m := range ownAddress.FindAllStringSubmatch(d.Text(f), -1) {
			for _, a := range strings.Split(m[1], ",") {
				if ip := net.ParseIP(a); ip != nil && ip.IsGlobalUnicast() && !slices.Contains(all, a) {
					all = append(all, a)
				}
			}
		}
	}
	return all
}

var ownAddress = lazyregexp.New(`(?:--?node[-_]ip` + flagValue + `["']?|fixed-address )([0-9A-Fa-f.:,]+)`)

// MACs are those of the donor's network cards as its disk knows them. On a running donor the cards
// know better.
func MACs(d *disk.Disk) (all []string) {
	for _, pattern := range []string{"etc/netplan/*.yaml", "etc/systemd/network/*.link", "etc/systemd/network/*.network",
		"etc/sysconfig/network-scripts/ifcfg-e*", "etc/udev/rules.d/70-persistent-net.rules"} {
		found, _ := d.Glob(pattern) // a pattern of ours is never malformed
		for _, f := range found {
			for _, m := range mac.FindAllString(d.Text(f), -1) {
				if m = strings.ToLower(m); !slices.Contains(all, m) {
					all = append(all, m)
				}
			}
		}
	}
	return all
}

// waagent.conf: Provisioning.Agent chooses who provisions (auto, waagent, cloud-init, disabled),
// Provisioning.Enabled is its older spelling.
// https://github.com/Azure/WALinuxAgent#configuration-file-options
func disableProvisioning(data []byte, _ Facts) []byte {
	kept := withoutLines(data, func(line string) bool {
		key, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		return key == "Provisioning.Agent" || key == "Provisioning.Enabled"
	})
	if len(kept) > 0 && kept[len(kept)-1] != '\n' {
		kept = append(kept, '\n')
	}
	added := "Provisioning.Agent=disabled\nProvisioning.Enabled=n\n"
	if bytes.HasSuffix(data, []byte(added)) {
		return data
	}
	return append(kept, added...)
}

// A password hash can be attacked offline by whoever reads the image. crypt(5): hashes start with
// "$", old DES ones have 13 characters. "*" fits no password; "!" would make sshd without PAM
// refuse keys as well.
func lockPasswords(data []byte, _ Facts) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(data)) {
		field := strings.SplitN(line, ":", 3)
		if len(field) == 3 && (strings.HasPrefix(strings.TrimLeft(field[1], "!"), "$") || len(field[1]) == 13) {
			field[1] = "*"
			line = strings.Join(field, ":")
		}
		out.WriteString(line)
	}
	return out.Bytes()
}
