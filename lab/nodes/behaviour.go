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
	NoKubelet bool                     // its kubelet never starts
	Console   string                   // what it writes to its serial console while it boots
	MachineID string                   // what is in /etc/machine-id
	Pressure  corev1.NodeConditionType // a condition that is True
	Clock     time.Duration            // by which its clock is ahead
	NoImages  bool                     // nothing is cached
	Daemons   string                   // the reason for which containers of DaemonSets wait; "": they run
	Jobs      string                   // Fails: containers of Jobs fail; "": they run to their end
	Units     []string                 // that have failed
	Bare      bool                     // its node registers without what tells it from the pool's
}

// Fails is what Jobs can do besides running to their end.
const Fails = "fails"

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

// differ puts what the machine does otherwise into the Node that its kubelet registers.
func (b Behaviour) differ(n *corev1.Node) {
	if b.Bare {
		n.Spec.Taints = nil
		delete(n.Labels, kamino.LabelCanary)
	}
}

// status puts what the machine does otherwise into its status.
func (b Behaviour) status(s *corev1.NodeStatus) {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == b.Pressure {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletHas"+string(b.Pressure), "kubelet has too little left"
		}
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
	m.provisioned(instance)
	if b.NoKubelet {
		<-ctx.Done()
	}
	return !b.NoKubelet
}
