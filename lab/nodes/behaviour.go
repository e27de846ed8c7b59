package nodes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// Behaviour is how a machine differs from an ordinary one. The zero value does not.
type Behaviour struct {
	NoKubelet bool          // its kubelet never starts
	Dead      bool          // its guest does not even tell the cloud that it is provisioned
	Late      time.Duration // by which it starts later, on the emulator's clock
	Console   string        // what it writes to its serial console while it boots
	Restless  bool          // its kubelet starts anew with every status report
	MachineID string        // what is in /etc/machine-id
	SSHKey    string        // the fingerprint of its host key
	Packages  string        // the digest of those on its disk
	Hostname  string        // whose name and credentials its kubelet uses
	Labels    map[string]string
	Taints    []corev1.Taint
	NotReady  string                   // the reason why its kubelet says that it is not Ready
	Pressure  corev1.NodeConditionType // a condition that is True
	Clock     time.Duration            // by which its clock is ahead
	Capacity  corev1.ResourceList      // instead of that of its size
	Reserved  bool                     // almost no CPU is left for pods
	NoImages  bool                     // nothing is cached
	Denied    bool                     // nobody approves its serving certificate
	Daemons   string                   // the reason for which containers of DaemonSets wait; "": they run
	Jobs      string                   // the same for those of Jobs; Fails and Hangs are others
	Units     []string                 // that have failed
	Unsteady  string                   // a service that systemd starts again between any two reports of its agent
	Reboot    string                   // the file that asks for a reboot
	Silent    bool                     // its agent reports nothing
	Bare      bool                     // its node registers without what tells it from the pool's
}

// What else Jobs can do than wait for a reason, or run to their end.
const (
	Fails = "fails"
	Hangs = "hangs"
)

// Behave lets machines that boot from now on behave as of says; nil: as ordinary ones.
func (f *Fleet) Behave(of func(emulator.Instance) Behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behave = of
}

func (f *Fleet) behaviour(i emulator.Instance) Behaviour {
	f.mu.Lock()
	of := f.behave
	f.mu.Unlock()
	if of == nil {
		return Behaviour{}
	}
	return of(i)
}

// Cut takes the way to the API server from all kubelets, or gives it back.
func (f *Fleet) Cut(away bool) { f.away.Store(away) }

// differ puts what the machine does otherwise into the Node that its kubelet registers.
func (b Behaviour) differ(n *corev1.Node) {
	for key, value := range b.Labels {
		n.Labels[key] = value
	}
	if b.Bare {
		n.Spec.Taints = nil
		delete(n.Labels, kamino.LabelCanary)
	}
	n.Spec.Taints = append(n.Spec.Taints, b.Taints...)
}

// status puts what the machine does otherwise into its status.
func (b Behaviour) status(s *corev1.NodeStatus) {
	for i := range s.Conditions {
		c := &s.Conditions[i]
		switch {
		case c.Type == corev1.NodeReady && b.NotReady != "":
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", b.NotReady
		case c.Type == b.Pressure:
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletHas"+string(b.Pressure), "kubelet has too little left"
		}
	}
	for name, quantity := range b.Capacity {
		s.Capacity[name], s.Allocatable[name] = quantity, quantity
	}
	if b.Reserved {
		s.Allocatable[corev1.ResourceCPU] = little
	}
	if b.NoImages {
		s.Images = nil
	}
}

// provisioned is the report of a guest to the WireServer, for which some clouds wait
// (https://learn.microsoft.com/azure/virtual-machines/linux/no-agent).
func (m *machine) provisioned(i emulator.Instance) {
	if azure, ok := m.fleet.cloud.(*emulator.Server); ok && azure.RequireReady {
		request := httptest.NewRequest(http.MethodPost, "http://168.63.129.16/provisioning/health", strings.NewReader(`{"state":"Ready"}`))
		request.Header.Set("x-ms-guest-agent-name", "kamino-lab")
		azure.Metadata(i.ID).ServeHTTP(httptest.NewRecorder(), request)
	}
}

// starts is what a machine shows of itself before its kubelet starts; false: it never does.
func (m *machine) starts(ctx context.Context, instance emulator.Instance, b Behaviour) bool {
	if b.Console != "" {
		m.fleet.cloud.WriteConsole(instance.ID, b.Console)
	}
	if !b.Dead {
		m.provisioned(instance)
	}
	if b.NoKubelet {
		<-ctx.Done()
		return false
	}
	return m.fleet.wait(ctx, b.Late) == nil
}
