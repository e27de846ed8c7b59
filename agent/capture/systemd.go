package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"kamino.dev/kamino/boot"
)

// systemd reads the manager's and all units' stamps and edges. As root it talks to systemd's
// private socket, which works without a bus daemon and early in the boot; otherwise to the system
// bus.
func systemd(ctx context.Context, root string) (*boot.Capture, error) {
	var manager *dbus.Conn
	conn, err := systemdbus.NewConnection(func() (*dbus.Conn, error) {
		c, err := dial(ctx, root)
		if manager == nil {
			manager = c
		}
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	c := &boot.Capture{Sources: []string{"systemd"}}
	if err := readManager(ctx, manager, c); err != nil {
		return nil, err
	}
	units, err := conn.ListUnitsContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("list units: %w", err)
	}
	var clock [][2]boot.Micros
	for _, s := range units {
		props, err := conn.GetUnitPathPropertiesContext(ctx, s.Path)
		if err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("read unit %s: %w", s.Name, err)
			}
			continue // it was collected between the list and now
		}
		u := unitOf(s.Name, props)
		for _, event := range []string{"InactiveExit", "ActiveEnter"} {
			mono, real := number(props[event+"TimestampMonotonic"]), number(props[event+"Timestamp"])
			if mono > 0 && real > 0 {
				clock = append(clock, [2]boot.Micros{mono, real})
			}
		}
		if strings.HasSuffix(s.Name, ".service") && u.Activating > 0 {
			if more, err := conn.GetUnitTypePropertiesContext(ctx, s.Name, "Service"); err == nil {
				serviceOf(&u, more)
			}
		}
		c.Units = append(c.Units, u)
	}
	c.Marks = append(c.Marks, boot.ClockJumps(clock)...)
	return c, nil
}

func dial(ctx context.Context, root string) (*dbus.Conn, error) {
	private := filepath.Join(root, "run/systemd/private")
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(private), dbus.WithContext(ctx))
	if err != nil {
		bus, busErr := dbus.ConnectSystemBus(dbus.WithContext(ctx))
		if busErr != nil {
			return nil, errors.Join(err, busErr)
		}
		return bus, nil
	}
	// The uid as a number: looking up a name may need the network's user database, which a booting
	// machine does not have.
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("authenticate to %s: %w", private, err)
	}
	return conn, nil
}

func readManager(ctx context.Context, conn *dbus.Conn, c *boot.Capture) error {
	var props map[string]dbus.Variant
	call := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, "org.freedesktop.systemd1.Manager")
	if err := call.Store(&props); err != nil {
		return fmt.Errorf("read manager: %w", err)
	}
	m := &c.Manager
	for name, to := range map[string]*boot.Micros{
		"FirmwareTimestampMonotonic": &m.Firmware, "LoaderTimestampMonotonic": &m.Loader, "KernelTimestamp": &m.KernelRealtime,
		"InitRDTimestampMonotonic": &m.InitRD, "UserspaceTimestampMonotonic": &m.Userspace, "FinishTimestampMonotonic": &m.Finish,
		"SecurityStartTimestampMonotonic": &m.SecurityStart, "SecurityFinishTimestampMonotonic": &m.SecurityFinish,
		"GeneratorsStartTimestampMonotonic": &m.GeneratorsStart, "GeneratorsFinishTimestampMonotonic": &m.GeneratorsFinish,
		"UnitsLoadStartTimestampMonotonic": &m.UnitsLoadStart, "UnitsLoadFinishTimestampMonotonic": &m.UnitsLoadFinish,
		"InitRDSecurityStartTimestampMonotonic": &m.InitRDSecurity, "InitRDSecurityFinishTimestampMonotonic": &m.InitRDSecurityEnd,
		"InitRDUnitsLoadStartTimestampMonotonic": &m.InitRDUnitsLoad, "InitRDUnitsLoadFinishTimestampMonotonic": &m.InitRDUnitsLoadEnd,
		"ShutdownStartTimestampMonotonic": &m.ShutdownStart,
	} {
		*to = number(props[name].Value())
	}
	m.SoftReboots = int(number(props["SoftRebootsCount"].Value()))
	m.Version, _ = props["Version"].Value().(string)
	c.Host.Virtualization, _ = props["Virtualization"].Value().(string)
	c.Host.Architecture, _ = props["Architecture"].Value().(string)
	return nil
}

func unitOf(id string, props map[string]any) boot.Unit {
	u := boot.Unit{ID: id}
	u.Activating = number(props["InactiveExitTimestampMonotonic"])
	u.Activated = number(props["ActiveEnterTimestampMonotonic"])
	u.Deactivating = number(props["ActiveExitTimestampMonotonic"])
	u.Deactivated = number(props["InactiveEnterTimestampMonotonic"])
	u.ActiveState, _ = props["ActiveState"].(string)
	for name, to := range map[string]*[]string{"After": &u.After, "Wants": &u.Wants, "Requires": &u.Requires,
		"TriggeredBy": &u.TriggeredBy} {
		if list, ok := props[name].([]string); ok && len(list) > 0 {
			*to = list
		}
	}
	if names, ok := props["Names"].([]string); ok {
		for _, n := range names {
			if n != id {
				u.Names = append(u.Names, n)
			}
		}
	}
	return u
}

func serviceOf(u *boot.Unit, props map[string]any) {
	u.Restarts = int(number(props["NRestarts"]))
	u.CPU = number(props["CPUUsageNSec"]) / 1000
	u.RemainsActive, _ = props["RemainAfterExit"].(bool)
	if result, _ := props["Result"].(string); result != "success" {
		u.Result = result
	}
}

// number takes any of D-Bus's integers; what systemd means by "infinity" or cannot be is zero.
func number(v any) boot.Micros {
	var n uint64
	switch v := v.(type) {
	case uint64:
		n = v
	case uint32:
		n = uint64(v)
	case int64:
		n = uint64(max(v, 0))
	}
	if n > 1<<53 {
		return 0
	}
	return boot.Micros(n)
}
