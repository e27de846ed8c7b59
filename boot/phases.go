package boot

import (
	"cmp"
	"slices"
	"strings"
)

// Phase is a named stretch of a boot. Phases overlap: containerd starts while cloud-init still
// works.
type Phase struct {
	Name   string `json:"name"`
	Start  Micros `json:"start"` // firmware and loader have negative ones
	End    Micros `json:"end"`
	Gross  Micros `json:"gross"`
	Net    Micros `json:"net"` // without parked time
	Source string `json:"source"`
}

// Milestone is a moment that is compared between boots.
type Milestone struct {
	Name string `json:"name"`
	At   Micros `json:"at"`
	// Net is the time from the kernel's start without parked time.
	Net    Micros `json:"net"`
	Source string `json:"source"`
}

// Names of milestones, in the order in which they usually come.
const (
	AtUserspace  = "userspace"
	AtNetwork    = "network online"
	AtIdentity   = "identity done"
	AtConfigured = "configuration done"
	AtRuntime    = "container runtime"
	AtKubelet    = "kubelet started"
	AtCert       = "client certificate"
	AtRegistered = "node registered"
	AtCNI        = "network plugin ready"
	AtReady      = "node Ready"
	AtContainer  = "first container"
	AtFirstPod   = "first pod"
	AtDefault    = "default target"
	AtFinish     = "startup finished"
)

var (
	runtimeUnits  = []string{"containerd.service", "crio.service", "cri-o.service", "docker.service"}
	identityUnits = []string{"kamino-identity.service"}
	agentUnits    = []string{"kamino-boot.service"}
	networkUnits  = []string{"network-online.target", "systemd-networkd-wait-online.service", "NetworkManager-wait-online.service"}
	agentNames    = []string{"walinuxagent.service", "waagent.service"}                                          // of Azure
	hyperV        = []string{"ephemeral-disk-warning.service", "hv-kvp-daemon.service", "hv_kvp_daemon.service"} // of images for Azure
	networkStage  = []string{"cloud-init-network.service", "cloud-init.service"}
)

// milestones are the known moments, in the order of time.
func (x *index) milestones() []Milestone {
	var out []Milestone
	add := func(name string, at Micros, source string) {
		if at > 0 {
			out = append(out, Milestone{name, at, x.net(0, at), source})
		}
	}
	unit := func(name string, done bool, units ...string) {
		if i, ok := x.started(units...); ok {
			at := x.first[i].Began()
			if done {
				at = x.first[i].Done()
			}
			add(name, at, x.c.Units[i].ID)
		}
	}
	if x.since == sinceKernel {
		add(AtUserspace, x.c.Manager.Userspace, "systemd")
	}
	add(AtFinish, x.c.Manager.Finish, "systemd")
	unit(AtNetwork, true, networkUnits...)
	unit(AtIdentity, true, identityUnits...)
	unit(AtConfigured, true, agentUnits...)
	unit(AtRuntime, true, runtimeUnits...)
	if found, ok := x.c.Mark(MarkRuntime); ok && !slices.ContainsFunc(out, func(m Milestone) bool { return m.Name == AtRuntime }) {
		add(AtRuntime, found.At, found.Source)
	}
	unit(AtKubelet, false, "kubelet.service")
	unit(AtDefault, true, "default.target")
	for _, m := range []struct{ mark, name string }{
		{MarkCertIssued, AtCert}, {MarkRegistered, AtRegistered}, {MarkCNIReady, AtCNI}, {MarkReady, AtReady},
		{MarkContainer, AtContainer}, {MarkFirstPod, AtFirstPod},
	} {
		if found, ok := x.c.Mark(m.mark); ok {
			add(m.name, found.At, cmp.Or(found.Source, "mark"))
		}
	}
	slices.SortStableFunc(out, func(a, b Milestone) int { return cmp.Compare(a.At, b.At) })
	return out
}

func milestone(list []Milestone, name string) (Milestone, bool) {
	i := slices.IndexFunc(list, func(m Milestone) bool { return m.Name == name })
	if i < 0 {
		return Milestone{}, false
	}
	return list[i], true
}

// phases are the stretches that are known, in the order in which people think of them.
func (x *index) phases(marks []Milestone) []Phase {
	var out []Phase
	add := func(name string, from, to Micros, source string) {
		if to > from {
			out = append(out, Phase{name, from, to, to - from, x.net(from, to), source})
		}
	}
	m := x.c.Manager
	if x.since == sinceKernel && (m.SecurityStart > 0 || m.InitRD > 0) {
		add("firmware", -m.Firmware, -m.Loader, "systemd")
		add("loader", -m.Loader, 0, "systemd")
		kernelDone := m.Userspace
		if m.InitRD > 0 && m.InitRD < m.Userspace {
			kernelDone = m.InitRD
		}
		add("kernel", 0, kernelDone, "systemd")
		add("initrd", kernelDone, m.Userspace, "systemd")
	}
	add("userspace", m.Userspace, m.Finish, "systemd")
	unit := func(name string, units ...string) {
		if i, ok := x.started(units...); ok {
			add(name, x.first[i].Began(), x.first[i].Done(), x.c.Units[i].ID)
		}
	}
	unit("cloud-init local", "cloud-init-local.service")
	unit("cloud-init network", networkStage...)
	unit("cloud-init config", "cloud-config.service")
	unit("cloud-init final", "cloud-final.service")
	unit("agent identity", identityUnits...)
	unit("agent", agentUnits...)
	if from, to := x.extension(); to > 0 {
		add("extensions", from, to, "extension events")
	}
	unit("container runtime", runtimeUnits...)
	unit("kubelet", "kubelet.service")
	for _, step := range [][3]string{{"registered", AtKubelet, AtRegistered}, {"Ready", AtRegistered, AtReady},
		{"first pod", AtReady, AtFirstPod}} {
		from, ok := milestone(marks, step[1])
		to, ok2 := milestone(marks, step[2])
		if ok && ok2 {
			add(step[0], from.At, to.At, to.Source)
		}
	}
	return out
}

// extension is from the first to the last extension task that is known.
func (x *index) extension() (from, to Micros) {
	for _, s := range x.c.Spans {
		if s.Kind == SpanTask && isAgentUnit(s.Unit) && s.End > 0 {
			if from == 0 || s.Start < from {
				from = s.Start
			}
			to = max(to, s.End)
		}
	}
	return from, to
}

// isAgentUnit tells the Azure Linux agent's unit, which has another name on every distribution.
func isAgentUnit(id string) bool {
	return strings.HasPrefix(id, "walinuxagent") || strings.HasPrefix(id, "waagent")
}
