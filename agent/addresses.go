package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ownAddresses are the addresses of the machine's own network cards, which are named e… or have a
// device, IP and MAC, and of what is made of them. The bridges and pairs of containers have
// addresses that other machines have as well.
func ownAddresses() (addresses, macs []string) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, nil
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 || !strings.HasPrefix(i.Name, "e") && !ownCard("/sys/class/net", i.Name) {
			continue
		}
		if len(i.HardwareAddr) > 0 {
			macs = append(macs, i.HardwareAddr.String())
		}
		all, _ := i.Addrs()
		for _, a := range all {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
				addresses = append(addresses, ip.IP.String())
			}
		}
	}
	return addresses, macs
}

// ownCard reports whether a network interface is a card, by its link "device", or is made of one,
// as a bond, team, VLAN or bridge is, by the links "lower_NAME"
// (Documentation/ABI/testing/sysfs-class-net of Linux).
func ownCard(class, name string) bool {
	dir := filepath.Join(class, name)
	if _, err := os.Stat(filepath.Join(dir, "device")); err == nil {
		return true
	}
	lower, _ := filepath.Glob(dir + "/lower_*") // no pattern of ours is malformed
	for _, l := range lower {
		// The kernel lets nothing be made of itself, so this ends.
		if ownCard(class, strings.TrimPrefix(filepath.Base(l), "lower_")) {
			return true
		}
	}
	return false
}
