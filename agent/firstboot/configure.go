package firstboot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/userdata"
)

// configure finds, checks and writes the node's configuration.
func (m *Machine) configure(ctx context.Context) (State, error) {
	patience, cancel := context.WithTimeout(ctx, m.Patience)
	defer cancel()
	doc, err := nodeconfig.Find(patience, m.Settings.Sources, m.Disk, m.IMDS.UserData)
	if by := nodeconfig.Configurer(m.Disk); errors.Is(err, nodeconfig.ErrNone) && by != "" {
		m.Log.Info("no NodeConfig of Kamino's: EKS's own program configures kubelet", "program", by)
		return State{Status: StatusImage, At: m.Now().UTC()}, nil
	}
	if errors.Is(err, nodeconfig.ErrNone) && m.Settings.Join == seal.JoinKeep {
		m.Log.Info("no NodeConfig: kubelet starts as the image has it, with the cluster's shared credential")
		return State{Status: StatusImage, At: m.Now().UTC()}, nil
	}
	if err != nil {
		return State{}, err
	}
	c, err := userdata.Parse(doc.Data)
	if err != nil {
		return State{}, fmt.Errorf("configuration from %s: %w", doc.Source, err)
	}
	if err := Joins(m.Settings, c); err != nil {
		return State{}, fmt.Errorf("configuration from %s: %w", doc.Source, err)
	}
	files, err := nodeconfig.Render(ctx, m.Disk, m.Host, c, true)
	if err != nil {
		return State{}, fmt.Errorf("configuration from %s: %w", doc.Source, err)
	}
	made, err := nodeconfig.Write(m.Disk, files)
	if err != nil {
		return State{}, err
	}
	if err := m.reload(ctx, made.Reload); err != nil {
		return State{}, err
	}
	if slices.Contains(made.Units, "containerd.service") {
		if _, err := m.Host.Run(ctx, "systemctl", "try-restart", "containerd.service"); err != nil {
			return State{}, fmt.Errorf("restart containerd: %w", err)
		}
	}
	return Applied(doc, c, m.Now()), nil
}

const (
	// canaryTaint is on a canary's node until the run that made it has taken the node over.
	canaryTaint = "kamino.dev/canary"
	// canaryLabel keeps cloud controllers from sending traffic to it, and cloud-provider-azure from
	// writing a backend pool into the model of its set
	// (https://kubernetes.io/docs/reference/labels-annotations-taints/). kubelets may set labels below
	// node.kubernetes.io themselves (admission plugin NodeRestriction).
	canaryLabel = "node.kubernetes.io/exclude-from-external-load-balancers=true"
)

// apart makes kubelet register a canary's node with a taint, and out of load balancers.
func (m *Machine) apart(ctx context.Context) error {
	file, err := nodeconfig.Registering(m.Disk, userdata.Taint{Key: canaryTaint, Effect: "NoSchedule"}, canaryLabel)
	if err != nil {
		return fmt.Errorf("taint the canary's node: %w", err)
	}
	made, err := nodeconfig.Write(m.Disk, []nodeconfig.File{file})
	if err != nil {
		return err
	}
	return m.reload(ctx, made.Reload)
}

// reload makes systemd read its units again, but only where they changed, in this attempt or in one
// before it that was interrupted. It is on kubelet's path, and took 7 s on a machine under TCG.
func (m *Machine) reload(ctx context.Context, changed bool) error {
	if !changed {
		out, err := m.Host.Run(ctx, "systemctl", "show", "--property=NeedDaemonReload", "--value", "kubelet.service")
		if err == nil && strings.TrimSpace(out) == "no" {
			return nil
		}
	}
	if _, err := m.Host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return fmt.Errorf("reload units: %w", err)
	}
	return nil
}
