// Package sample makes boots of Kubernetes nodes as they are on Azure, for tests, benchmarks and
// the pictures in the documentation. The shape and the lengths of the slow steps are those of the
// original's description; the rest is made up, and the same for the same options.
package sample

import (
	"fmt"
	"math/rand/v2"

	"kamino.dev/kamino/boot"
)

// Options shape a boot.
type Options struct {
	Name string
	Seed uint64
	// Clone is a node that boots straight to kubelet: no cloud-init, no extension script.
	Clone bool
	// Parked is how long the platform held the machine inside cloud-init's local stage; zero means
	// not at all.
	Parked boot.Micros
	// Units is how many units there are at least; zero means 180.
	Units int
}

const (
	ms = boot.Micros(1000)
	s  = 1000 * ms
	// userspace is when PID 1 took over from the initrd.
	userspace = 1822671
)

type maker struct {
	c *boot.Capture
	r *rand.Rand
	// stretch is this machine's pace.
	stretch float64
}

// Node makes a boot.
func Node(o Options) *boot.Capture {
	m := &maker{r: rand.New(rand.NewPCG(o.Seed, 7)), c: &boot.Capture{Schema: boot.Schema, Sources: []string{"systemd"}}}
	m.stretch = 0.9 + 0.25*m.r.Float64()
	c := m.c
	c.Host = boot.Host{Name: o.Name, BootID: fmt.Sprintf("%016x%016x", m.r.Uint64(), m.r.Uint64()), Kernel: "6.1.0-23-cloud-amd64",
		OS:           "Debian GNU/Linux 12 (bookworm)",
		Architecture: "x86-64", Virtualization: "microsoft"}
	c.Manager = boot.Manager{Version: "252.39-1~deb12u2", KernelRealtime: 1767225600 * s, InitRD: 934112, Userspace: userspace,
		SecurityStart: userspace + 4211, SecurityFinish: userspace + 4987, GeneratorsStart: userspace + 20110,
		GeneratorsFinish: userspace + 71234, UnitsLoadStart: userspace + 71240, UnitsLoadFinish: userspace + 139002}
	m.early()
	var end boot.Micros
	if o.Clone {
		end = m.clone()
	} else {
		end = m.ordinary(o.Parked)
	}
	c.Manager.Finish = end
	m.fill(max(o.Units, 180), end)
	return c
}

// at scales a time by this machine's pace.
func (m *maker) at(t boot.Micros) boot.Micros {
	return boot.Micros(float64(t) * m.stretch)
}

// unit adds a unit that starts right after the latest of the units it is ordered after, plus a lag,
// and returns when it is up.
func (m *maker) unit(id string, lag, took boot.Micros, after ...string) boot.Micros {
	start := boot.Micros(userspace)
	for _, d := range after {
		if u := m.c.Unit(d); u != nil {
			start = max(start, u.Done())
		}
	}
	start += m.at(lag)
	done := start + m.at(took)
	m.c.Units = append(m.c.Units, boot.Unit{ID: id, After: after, ActiveState: "active",
		Stamps: boot.Stamps{Activating: start, Activated: done}})
	return done
}

func (m *maker) early() {
	m.unit("-.slice", 1359*ms, 0)
	m.unit("system.slice", 28*ms, 0, "-.slice")
	m.unit("systemd-journald.socket", 16*ms, 0, "system.slice")
	m.unit("systemd-remount-fs.service", 50*ms, 35*ms, "systemd-journald.socket")
	m.unit("systemd-journald.service", 12*ms, 120*ms, "systemd-journald.socket")
	m.unit("systemd-sysusers.service", 3*ms, 14*ms, "systemd-remount-fs.service")
	m.unit("systemd-tmpfiles-setup-dev.service", 2*ms, 22*ms, "systemd-sysusers.service")
	m.unit("systemd-udevd.service", 4*ms, 61*ms, "systemd-tmpfiles-setup-dev.service")
	m.unit(`sys-devices-virtual-misc-vmbus\x21hv_kvp.device`, 580*ms, 0, "systemd-udevd.service")
	m.unit("hv-kvp-daemon.service", 4*ms, 0, `sys-devices-virtual-misc-vmbus\x21hv_kvp.device`)
	m.unit("systemd-udev-trigger.service", 9*ms, 410*ms, "systemd-udevd.service")
	m.unit("dev-disk-by\\x2duuid-4fa1c7be.device", 300*ms, 0, "systemd-udev-trigger.service")
	m.unit("systemd-fsck@dev-disk-by\\x2duuid-4fa1c7be.service", 6*ms, 88*ms, "dev-disk-by\\x2duuid-4fa1c7be.device")
	m.unit("boot-efi.mount", 2*ms, 31*ms, "systemd-fsck@dev-disk-by\\x2duuid-4fa1c7be.service")
	m.unit("local-fs.target", ms, 0, "boot-efi.mount", "systemd-remount-fs.service")
	m.unit("apparmor.service", 3*ms, 340*ms, "local-fs.target")
	m.unit("systemd-random-seed.service", 2*ms, 18*ms, "systemd-remount-fs.service")
}

// ordinary is a node that cloud-init and the extension script set up; it returns when startup
// finished.
func (m *maker) ordinary(parked boot.Micros) boot.Micros {
	c := m.c
	m.unit("cloud-init-local.service", 4*ms, 6098*ms, "hv-kvp-daemon.service", "systemd-remount-fs.service")
	u := c.Unit("cloud-init-local.service")
	u.CPU = 1900 * ms
	if parked > 0 {
		from := u.Activating + m.at(2200*ms)
		u.Activated += parked
		c.CloudInit.PPSType = "Running"
		c.Spans = append(c.Spans, boot.Span{Name: "azure-ds/wait-for-media-disconnect-connect", Kind: boot.SpanPause, Unit: u.ID,
			Start: from, End: from + parked, Source: "cloud-init"})
		c.Marks = append(c.Marks, boot.Mark{Name: boot.MarkLinkDown, At: from + parked - 900*ms, Source: "journal"},
			boot.Mark{Name: boot.MarkLinkUp, At: from + parked, Source: "journal"})
	}
	c.CloudInit.Version, c.CloudInit.Datasource = "23.4.4", "DataSourceAzure"
	m.unit("network-pre.target", ms, 0, "cloud-init-local.service")
	m.unit("systemd-networkd.service", 40*ms, 210*ms, "network-pre.target", "systemd-udevd.service")
	m.unit("systemd-networkd-wait-online.service", 5*ms, 1980*ms, "systemd-networkd.service")
	m.unit("cloud-init.service", 42*ms, 20216*ms, "systemd-networkd-wait-online.service", "cloud-init-local.service")
	m.unit("network-online.target", ms, 0, "cloud-init.service", "systemd-networkd-wait-online.service")
	m.unit("sysinit.target", 18*ms, 0, "cloud-init.service", "local-fs.target", "apparmor.service", "systemd-random-seed.service")
	m.unit("update_certs.path", 39*ms, 0, "sysinit.target")
	m.unit("paths.target", 3*ms, 0, "update_certs.path")
	m.unit("basic.target", 16*ms, 0, "paths.target", "sysinit.target")
	m.unit("dbus.service", 20*ms, 34*ms, "basic.target")
	m.unit("containerd.service", 22*ms, 960*ms, "basic.target", "network-online.target")
	m.unit("walinuxagent.service", 181*ms, 0, "basic.target", "cloud-init.service")
	m.unit("cloud-config.service", 188*ms, 2499*ms, "basic.target", "network-online.target")
	m.unit("ephemeral-disk-warning.service", 5*ms, 29*ms, "cloud-config.service")
	m.unit("multi-user.target", 4*ms, 0, "ephemeral-disk-warning.service", "containerd.service", "dbus.service")
	m.unit("graphical.target", ms, 0, "multi-user.target")
	c.Unit("graphical.target").Names = []string{"default.target"}
	final := m.unit("cloud-final.service", 4*ms, 11703*ms, "multi-user.target")
	m.stages()
	kubelet := m.extension(final)
	c.Units = append(c.Units, boot.Unit{ID: "kubelet.service", After: []string{"containerd.service", "network-online.target"},
		ActiveState: "active",
		Stamps:      boot.Stamps{Activating: kubelet, Activated: kubelet + 24*ms}})
	m.kubelet(kubelet)
	return final + 60*ms
}

func (m *maker) stages() {
	c := m.c
	for _, st := range []struct{ stage, unit string }{
		{"init-local", "cloud-init-local.service"}, {"init-network", "cloud-init.service"}, {"modules-config", "cloud-config.service"},
		{"modules-final", "cloud-final.service"},
	} {
		u := c.Unit(st.unit)
		c.Spans = append(c.Spans, boot.Span{Name: st.stage, Kind: boot.SpanStage, Unit: u.ID, Start: u.Activating + 600*ms,
			End: u.Activated - 80*ms, Result: "SUCCESS", Source: "cloud-init"})
	}
	u := c.Unit("cloud-init.service")
	c.Spans = append(c.Spans, boot.Span{Name: "init-network/config-disk_setup", Kind: boot.SpanTask, Unit: u.ID, Start: u.Activating + 2*s,
		End: u.Activating + 9*s, Result: "SUCCESS", Source: "cloud-init"})
}

// extension adds the tasks of AKS's script and returns when it started kubelet.
func (m *maker) extension(final boot.Micros) boot.Micros {
	at := final + m.at(1420*ms)
	for _, t := range []struct {
		name string
		took boot.Micros
	}{
		{"AKS.CSE.holdWALinuxAgent", 490 * ms}, {"AKS.CSE.configureAdminUser", 130 * ms}, {"AKS.CSE.cleanUpContainerd", 220 * ms},
		{"AKS.CSE.installKubeletKubectl", 1480 * ms}, {"AKS.CSE.ensureContainerd", 940 * ms},
		{"AKS.CSE.configureKubeletAndKubectl", 6560 * ms},
		{"AKS.CSE.configureCNI", 1210 * ms}, {"AKS.CSE.configureK8s", 880 * ms}, {"AKS.CSE.ensureKubelet", 3270 * ms},
	} {
		m.c.Spans = append(m.c.Spans, boot.Span{Name: t.name, Kind: boot.SpanTask, Unit: "walinuxagent.service", Start: at,
			End: at + m.at(t.took), Source: "extension"})
		at += m.at(t.took) + m.at(40*ms)
	}
	return at - m.at(1200*ms)
}

// clone is a node that the agent brought up from a sealed disk.
func (m *maker) clone() boot.Micros {
	c := m.c
	m.unit("kamino-identity.service", 90*ms, 310*ms, "local-fs.target", "systemd-udevd.service")
	m.unit("network-pre.target", ms, 0, "kamino-identity.service")
	m.unit("systemd-networkd.service", 40*ms, 210*ms, "network-pre.target", "systemd-udevd.service")
	m.unit("systemd-networkd-wait-online.service", 5*ms, 1980*ms, "systemd-networkd.service")
	m.unit("network-online.target", ms, 0, "systemd-networkd-wait-online.service")
	m.unit("sysinit.target", 18*ms, 0, "local-fs.target", "apparmor.service", "systemd-random-seed.service")
	m.unit("basic.target", 16*ms, 0, "sysinit.target")
	m.unit("dbus.service", 20*ms, 34*ms, "basic.target")
	m.unit("containerd.service", 22*ms, 720*ms, "basic.target")
	m.unit("kamino-boot.service", 12*ms, 2160*ms, "kamino-identity.service", "systemd-networkd.service")
	kubelet := m.unit("kubelet.service", 6*ms, 24*ms, "containerd.service", "kamino-boot.service")
	m.unit("multi-user.target", 4*ms, 0, "kubelet.service", "containerd.service", "dbus.service")
	m.unit("graphical.target", ms, 0, "multi-user.target")
	c.Unit("graphical.target").Names = []string{"default.target"}
	c.Host.Image = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Compute/galleries/kamino/images/pool1/versions/2026.01.14"
	m.kubelet(kubelet)
	return kubelet + 90*ms
}

// kubelet adds the milestones from kubelet's start on.
func (m *maker) kubelet(at boot.Micros) {
	for _, k := range []struct {
		name string
		lag  boot.Micros
	}{
		{boot.MarkCertIssued, 1400 * ms}, {boot.MarkRegistered, 700 * ms}, {boot.MarkCNIReady, 2900 * ms}, {boot.MarkReady, 300 * ms},
		{boot.MarkFirstPod, 1900 * ms},
	} {
		at += m.at(k.lag)
		m.c.Marks = append(m.c.Marks, boot.Mark{Name: k.name, At: at, Source: "journal"})
	}
}

var daemons = []string{"ssh", "chrony", "rsyslog", "auditd", "polkit", "systemd-logind", "cron", "unattended-upgrades",
	"multipathd", "snapd", "irqbalance",
	"systemd-resolved", "node-exporter", "localdns", "iscsid", "rpcbind", "sysstat", "kmod-static-nodes", "modprobe@drm", "modprobe@fuse",
	"ModemManager", "udisks2"}

// fill adds the crowd: daemons, sockets, timers and devices that hold nobody up.
func (m *maker) fill(n int, end boot.Micros) {
	for i := 0; len(m.c.Units) < n; i++ {
		switch i % 5 {
		case 0:
			name := fmt.Sprintf("%s.service", daemons[(i/5)%len(daemons)])
			if i/5 >= len(daemons) {
				name = fmt.Sprintf("%s-%d.service", daemons[(i/5)%len(daemons)], i/5)
			}
			m.unit(name, boot.Micros(m.r.IntN(900))*ms, boot.Micros(3+m.r.IntN(420))*ms, "basic.target", "sysinit.target", "system.slice",
				"dbus.service", "systemd-journald.socket")
		case 1:
			m.unit(fmt.Sprintf("sys-devices-pci0000:00-0000:00:%02x.%d-block.device", i/8, i%8), boot.Micros(700+m.r.IntN(900))*ms, 0,
				"systemd-udevd.service")
		case 2:
			m.unit(fmt.Sprintf("listener-%d.socket", i), boot.Micros(m.r.IntN(60))*ms, boot.Micros(m.r.IntN(9))*ms, "sysinit.target",
				"system.slice", "-.slice")
		case 3:
			m.unit(fmt.Sprintf("job-%d.timer", i), boot.Micros(m.r.IntN(30))*ms, 0, "sysinit.target")
		case 4:
			m.unit(fmt.Sprintf(`run-credentials-unit\x2d%d.mount`, i), boot.Micros(m.r.IntN(200))*ms, boot.Micros(1+m.r.IntN(20))*ms,
				"-.slice", "systemd-journald.socket")
		}
	}
}
