package read

import (
	"strconv"
	"strings"

	"kamino.dev/kamino/internal/lazyregexp"
)

// logVerbs are the words with which PID 1 begins a message about a unit, and the journal's message ID
// that such a message has (systemd, src/core/job.c and the units' status formats).
var logVerbs = []struct{ words, id string }{
	{"Starting ", msgUnitStarting}, {"Mounting ", msgUnitStarting}, {"Activating swap ", msgUnitStarting},
	{"Expecting device ", msgUnitStarting},
	{"Started ", msgUnitStarted}, {"Finished ", msgUnitStarted}, {"Reached target ", msgUnitStarted}, {"Mounted ", msgUnitStarted},
	{"Activated swap ", msgUnitStarted}, {"Listening on ", msgUnitStarted}, {"Found device ", msgUnitStarted},
	{"Created slice ", msgUnitStarted},
	{"Failed to start ", msgUnitFailed}, {"Failed to mount ", msgUnitFailed}, {"Failed to activate swap ", msgUnitFailed},
	{"Dependency failed for ", msgUnitFailed}, {"Timed out waiting for device ", msgUnitFailed},
	{"Stopped target ", msgUnitStopped}, {"Stopped ", msgUnitStopped}, {"Unmounted ", msgUnitStopped},
}

var (
	unitName   = lazyregexp.New(`^` + unitText + `$`)
	unitFirst  = lazyregexp.New(`^(` + unitText + `) - `)
	unitEnded  = lazyregexp.New(`^(` + unitText + `): (?:Deactivated successfully|Succeeded)\.$`)
	unitOfPath = lazyregexp.New(`^/dev/\S+$`)
)

// describe adds to an entry what PID 1's message is about, as the journal's own fields would.
func (l logLine) describe(e entry) {
	if phases := finishedPhases(l); phases != nil {
		e["MESSAGE_ID"] = msgUserspaceOnly
		if phases["kernel"] > 0 {
			e["MESSAGE_ID"] = msgStartupFinished
		}
		for field, phase := range map[string]string{"KERNEL_USEC": "kernel", "INITRD_USEC": "initrd", "USERSPACE_USEC": "userspace"} {
			e[field] = strconv.FormatInt(int64(phases[phase]), 10)
		}
		return
	}
	if m := unitEnded.FindStringSubmatch(l.msg); m != nil {
		e["MESSAGE_ID"], e["UNIT"] = msgUnitSuccess, m[1]
		return
	}
	for _, v := range logVerbs {
		what, ok := strings.CutPrefix(l.msg, v.words)
		if !ok {
			continue
		}
		what = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(what, "..."), "…"), ".")
		if what != "" {
			e["MESSAGE_ID"], e["UNIT"] = v.id, logUnit(what)
		}
		return
	}
}

// logUnit is the unit that a message calls by its name, by name and description, by the path of a
// device, or by a description that is known. Of others the description stands for the unit.
func logUnit(what string) string {
	if m := unitFirst.FindStringSubmatch(what); m != nil {
		return m[1]
	}
	if unitName.MatchString(what) {
		return what
	}
	if unitOfPath.MatchString(what) {
		return deviceUnit(what)
	}
	if id, ok := describedUnits[what]; ok {
		return id
	}
	return what
}

// deviceUnit is the unit of a device's path, escaped as systemd does (systemd.unit(5)).
func deviceUnit(path string) string {
	var b strings.Builder
	for _, c := range []byte(strings.TrimPrefix(path, "/")) {
		switch {
		case c == '/':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == ':' || c == '_' || c == '.':
			b.WriteByte(c)
		default:
			const digits = "0123456789abcdef"
			b.Write([]byte{'\\', 'x', digits[c>>4], digits[c&15]})
		}
	}
	return b.String() + ".device"
}

// describedUnits are descriptions in the unit files of systemd, cloud-init, kubelet's packages, the
// container runtimes, Azure's agent and amazon-eks-ami of the units that the analysis knows.
var describedUnits = map[string]string{
	"kubelet: The Kubernetes Node Agent": "kubelet.service", "Kubernetes Kubelet": "kubelet.service", "Kubelet": "kubelet.service",
	"Kubernetes Kubelet Server":    "kubelet.service",
	"containerd container runtime": "containerd.service", "Docker Application Container Engine": "docker.service",
	"Container Runtime Interface for OCI (CRI-O)":       "crio.service",
	"Initial cloud-init job (pre-networking)":           "cloud-init-local.service",
	"Cloud-init: Local Stage (pre-network)":             "cloud-init-local.service",
	"Initial cloud-init job (metadata service crawler)": "cloud-init.service", "Cloud-init: Network Stage": "cloud-init.service",
	"Apply the settings specified in cloud-config": "cloud-config.service", "Cloud-init: Config Stage": "cloud-config.service",
	"Execute cloud user/final scripts": "cloud-final.service", "Cloud-init: Final Stage": "cloud-final.service",
	"Wait for Network to be Configured": "systemd-networkd-wait-online.service",
	"Network Manager Wait Online":       "NetworkManager-wait-online.service",
	"Network is Online":                 "network-online.target", "Azure Linux Agent": "walinuxagent.service",
	"Wait until snapd is fully seeded": "snapd.seeded.service",
	"EKS Nodeadm Config":               "nodeadm-config.service", "EKS Nodeadm Run": "nodeadm-run.service",
	"Multi-User System": "multi-user.target", "Graphical Interface": "graphical.target", "Basic System": "basic.target",
	"System Initialization": "sysinit.target",
	"Local File Systems":    "local-fs.target", "Remote File Systems": "remote-fs.target", "Swap": "swap.target", "Swaps": "swap.target",
}
