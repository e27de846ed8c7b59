package seal

import "path"

// keeps are the units that go on while a donor is sealed; everything else is stopped, because what
// runs writes: logs, state, the donor's name. Patterns of path.Match. None of them writes to the
// disk of itself while nobody asks it to; what one does write after the scan is scanned again
// before the receipt is reported.
var keeps = []struct{ unit, why string }{
	{"kamino-seal-*.service", "the seal itself, and what systemd starts when it is killed"},
	{"init.scope", "systemd: whoever stops units needs it, and so does a seal that is given up"},
	{"systemd-journald*", "takes the output of systemd and of the seal; it is set to keep to memory (journalctl --relinquish-var)"},
	{"systemd-udevd*", "devices of the disk and the network card come and go through it; its database is in memory"},
	{"systemd-logind*", "ends sessions; what it keeps is in memory"},
	{"dbus.service", "network services end without it, and systemd refuses to stop it (RefuseManualStop)"},
	{"dbus-broker.service", "as dbus.service"},
	{"dbus.socket", "as dbus.service"},
	// The receipt is reported to the API server, over the network that the node has.
	{"systemd-networkd*", "the network: its leases are in memory"},
	{"systemd-resolved*", "names; it has no state on the disk"},
	{"NetworkManager.service", "the network; a lease that it renews after the scan is found by the second one"},
	{"networking.service", "the network of ifupdown, whose dhclient runs in this unit"},
	{"ifup@*.service", "as networking.service"},
	{"network.service", "the network of older Red Hat systems"},
	{"dhcpcd*.service", "the network"},
	{"wicked*.service", "the network of SUSE systems"},
	// Without them input and output of a root on such devices may hang.
	{"multipathd*", "paths to the disk"},
	{"iscsid*", "sessions of iSCSI disks"},
	{"dm-event*", "LVM's snapshots and mirrors"},
	{"lvm2-*", "LVM"},
	{"mdmon*", "metadata of RAID"},
}

// kept reports whether a unit goes on.
func kept(unit string) bool {
	for _, k := range keeps {
		if ok, err := path.Match(k.unit, unit); err == nil && ok {
			return true
		}
	}
	return false
}
