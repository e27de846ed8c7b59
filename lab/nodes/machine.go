package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
)

// Why a machine lost its power; the cause of its context's end.
var (
	errShutdown = errors.New("guest was asked to shut down")
	errPowerCut = errors.New("power was cut")
)

// machine is one instance: power, and what runs while there is power.
type machine struct {
	fleet *Fleet
	id    string // ARM ID, or provider ID on AWS

	mu     sync.Mutex
	cut    context.CancelCauseFunc // not nil while there is power
	disk   string                  // ARM ID of the disk it booted from
	boots  int
	before chan struct{} // closed when the last boot's work has ended
	node   string        // name it last registered under
}

// on gives power. A machine that has it already reboots if its disk was
// exchanged (reimage), else nothing happens.
func (m *machine) on(instance emulator.Instance, atOnce bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		if m.disk == instance.OSDiskID {
			return
		}
		m.cut(errPowerCut)
	}
	ctx, cut := context.WithCancelCause(m.fleet.ctx)
	before, ended := m.before, make(chan struct{})
	m.cut, m.disk, m.before = cut, instance.OSDiskID, ended
	m.boots++
	m.fleet.spawn(func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		if err := m.boot(ctx, instance, atOnce); err != nil && ctx.Err() == nil {
			m.fleet.logger.Error("node did not come up", "instance", instance.ID, "error", err)
		}
	})
}

func (m *machine) off(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		m.cut(why)
		m.cut = nil
	}
}

// restart is a reboot from inside, of which the cloud hears nothing.
func (m *machine) restart(instance emulator.Instance) {
	m.off(errShutdown)
	m.on(instance, false)
}

// hangs waits for the power to go where the disk does not boot; false: it boots.
func (m *machine) hangs(ctx context.Context, instance emulator.Instance) bool {
	stuck := false
	_ = m.fleet.cloud.WriteDisk(instance.ID, func(files map[string]string) { stuck = Stuck(files) }) // gone with its machine
	if stuck {
		<-ctx.Done()
	}
	return stuck
}

// boot runs from power on to power off.
func (m *machine) boot(ctx context.Context, instance emulator.Instance, atOnce bool) error {
	files, err := m.fleet.cloud.ReadDisk(instance.ID)
	if err != nil {
		return err
	}
	b := m.fleet.behaviour(instance)
	b.NoKubelet = b.NoKubelet || files[KubeletUnit] == Masked
	if m.hangs(ctx, instance) || !m.starts(ctx, instance, b) {
		return ctx.Err()
	}
	if !atOnce {
		delay := m.fleet.latencies.Boot
		if isGeneric(files) {
			delay = m.fleet.latencies.Bootstrap
		}
		if err := m.fleet.wait(ctx, delay); err != nil {
			return err
		}
	}
	on := Machine{Cloud: m.fleet.cloud, Instance: instance, Behaviour: b, Client: m.fleet.client, Network: &m.fleet.network,
		Now: func() time.Time { return m.fleet.clock.Now().Add(b.Clock) }}
	if err := on.Cloud.WriteDisk(instance.ID, FillPackages); err != nil {
		return err
	}
	who, err := on.Boot()
	if err != nil {
		return err
	}
	who.machineID = cmp.Or(b.MachineID, who.machineID)
	m.mu.Lock()
	m.node = who.node
	m.mu.Unlock()
	return newPlayer(m, who).run(ctx)
}

// forget removes the Node object of a deleted instance, unless another instance owns it.
func (m *machine) forget(ctx context.Context) {
	m.mu.Lock()
	node, before := m.node, m.before
	m.mu.Unlock()
	if before != nil {
		<-before
	}
	if node == "" {
		return
	}
	nodes := m.fleet.client.CoreV1().Nodes()
	object, err := nodes.Get(ctx, node, metav1.GetOptions{})
	if err == nil && strings.EqualFold(object.Spec.ProviderID, ProviderID(m.id)) {
		err = nodes.Delete(ctx, node, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(object.UID))})
	}
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		m.fleet.logger.Error("node of a deleted instance stays", "node", node, "error", err)
	}
}

// ProviderID is how Azure's cloud provider names an instance: the ARM ID behind a scheme
// (https://github.com/kubernetes-sigs/cloud-provider-azure/blob/master/pkg/provider/azure_instances.go).
// The resource group is in lower case there.
func ProviderID(instanceID string) string {
	if strings.HasPrefix(instanceID, awsScheme) {
		return instanceID
	}
	parts := strings.Split(instanceID, "/")
	for i := range parts {
		if strings.EqualFold(parts[i], "resourceGroups") && i+1 < len(parts) {
			parts[i+1] = strings.ToLower(parts[i+1])
		}
	}
	return "azure://" + strings.Join(parts, "/")
}

// Network is where machines and their pods are reached. The zero value hands out addresses, each
// machine's for good.
type Network struct {
	mu    sync.Mutex
	nodes map[string]string // by lower-case ID of the instance
	pods  int
}

func (n *Network) node(instance string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes == nil {
		n.nodes = map[string]string{}
	}
	key := strings.ToLower(instance)
	if n.nodes[key] == "" {
		host := len(n.nodes) + 4 // Azure keeps the first addresses of a subnet
		n.nodes[key] = fmt.Sprintf("10.240.%d.%d", host/256, host%256)
	}
	return n.nodes[key]
}

func (n *Network) pod() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods++
	return fmt.Sprintf("10.%d.%d.%d", 244+n.pods>>16%8, n.pods>>8%256, n.pods%256)
}
