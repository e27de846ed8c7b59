package fakesystemd

import (
	"path"
	"slices"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"kamino.dev/kamino/boot"
)

// unitRow is an element of ListUnits' reply.
type unitRow struct {
	ID, Description, Load, Active, Sub, Following string
	Path                                          dbus.ObjectPath
	Job                                           uint32
	JobType                                       string
	JobPath                                       dbus.ObjectPath
}

func (s *Server) list() []unitRow {
	rows := make([]unitRow, 0, len(s.boot.Units))
	for i := range s.boot.Units {
		u := &s.boot.Units[i]
		rows = append(rows, unitRow{ID: u.ID, Description: u.ID, Load: "loaded", Active: state(u), Sub: state(u),
			Path: dbus.ObjectPath(unitRoot + systemd.PathBusEscape(u.ID)), JobPath: "/"})
	}
	return rows
}

func state(u *boot.Unit) string {
	if u.ActiveState == "" {
		return "active"
	}
	return u.ActiveState
}

// properties are an object's; an empty interface means all of them, as systemctl asks.
func (s *Server) properties(p dbus.ObjectPath, iface string) (map[string]dbus.Variant, bool) {
	props := map[string]any{}
	if p == managerPath {
		s.manager(props)
		return variants(props), true
	}
	u, ok := s.paths[p]
	if !ok {
		return nil, false
	}
	if iface == "" || iface == unitIface {
		unitProperties(u, props)
	}
	if iface == "" || iface == serviceIface {
		props["Result"], props["NRestarts"], props["RemainAfterExit"] = u.Result, uint32(u.Restarts), u.RemainsActive
		props["CPUUsageNSec"] = uint64(u.CPU) * 1000
	}
	return variants(props), true
}

func variants(props map[string]any) map[string]dbus.Variant {
	out := make(map[string]dbus.Variant, len(props))
	for k, v := range props {
		out[k] = dbus.MakeVariant(v)
	}
	return out
}

func (s *Server) manager(props map[string]any) {
	m := s.boot.Manager
	for name, v := range map[string]boot.Micros{
		"FirmwareTimestampMonotonic": m.Firmware, "LoaderTimestampMonotonic": m.Loader, "KernelTimestamp": m.KernelRealtime,
		"InitRDTimestampMonotonic": m.InitRD, "UserspaceTimestampMonotonic": m.Userspace, "FinishTimestampMonotonic": m.Finish,
		"SecurityStartTimestampMonotonic": m.SecurityStart, "SecurityFinishTimestampMonotonic": m.SecurityFinish,
		"GeneratorsStartTimestampMonotonic": m.GeneratorsStart, "GeneratorsFinishTimestampMonotonic": m.GeneratorsFinish,
		"UnitsLoadStartTimestampMonotonic": m.UnitsLoadStart, "UnitsLoadFinishTimestampMonotonic": m.UnitsLoadFinish,
		"InitRDSecurityStartTimestampMonotonic": m.InitRDSecurity, "InitRDSecurityFinishTimestampMonotonic": m.InitRDSecurityEnd,
		"InitRDGeneratorsStartTimestampMonotonic": 0, "InitRDGeneratorsFinishTimestampMonotonic": 0,
		"InitRDUnitsLoadStartTimestampMonotonic": m.InitRDUnitsLoad, "InitRDUnitsLoadFinishTimestampMonotonic": m.InitRDUnitsLoadEnd,
	} {
		props[name] = uint64(v)
	}
	props["Version"], props["Virtualization"], props["Architecture"] = m.Version, s.boot.Host.Virtualization, s.boot.Host.Architecture
}

func unitProperties(u *boot.Unit, props map[string]any) {
	for name, v := range map[string]boot.Micros{
		"InactiveExit": u.Activating, "ActiveEnter": u.Activated, "ActiveExit": u.Deactivating, "InactiveEnter": u.Deactivated,
	} {
		props[name+"TimestampMonotonic"] = uint64(v)
		props[name+"Timestamp"] = uint64(0)
	}
	props["Id"], props["Names"] = u.ID, append([]string{u.ID}, u.Names...)
	for name, list := range map[string][]string{"After": u.After, "Wants": u.Wants, "Requires": u.Requires, "TriggeredBy": u.TriggeredBy} {
		props[name] = slices.Concat([]string{}, list)
		if list == nil {
			props[name] = []string{}
		}
	}
	props["ActiveState"], props["LoadState"], props["Description"] = state(u), "loaded", u.ID
	props["FragmentPath"] = path.Join("/usr/lib/systemd/system", u.ID)
}
