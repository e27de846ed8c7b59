package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/userdata"
)

// decideJoin is whether kubelet's credential travels. The disk never decides that it does: what is
// not the node's own may be anybody's, an administrator's too (aks-engine gives its nodes
// O=system:masters), so somebody has to say it. What is the node's own never travels. Refused as
// well is a seal after which no clone, and not even the donor, could join.
func (v *sealVerb) decideJoin(ctx context.Context, d *disk.Disk, c seal.Config) (string, error) {
	if d.Exists(seal.ReceiptPath) { // it was decided
		settings, err := seal.ReadSettings(d)
		if c.Join != seal.JoinAuto {
			return c.Join, nil
		}
		return settings.Join, err
	}
	holders, err := nodeapi.Holders(d)
	switch {
	case c.Join == seal.JoinFresh:
	case err != nil && c.Join == seal.JoinKeep:
		return "", fmt.Errorf("seal: join: keep needs to know whose credential it keeps: %w; nothing was changed", err)
	default:
		for _, h := range holders {
			if err := mayTravel(h, c.Join); err != nil {
				return "", err
			}
		}
	}
	if c.Join == seal.JoinKeep {
		return seal.JoinKeep, nil
	}
	if !d.Live() && !v.onDonor {
		return seal.JoinFresh, nil
	}
	return seal.JoinFresh, v.joinable(ctx, d, c)
}

func mayTravel(h nodeapi.Holder, join string) error {
	switch {
	case join == seal.JoinKeep && h.Node:
		return fmt.Errorf("seal: join: keep, but the credential in /%s is this node's own (%s): every clone would be this node. Use join: fresh; nothing was changed", h.Path, h.Subject)
	case join == seal.JoinAuto && !h.Node:
		return fmt.Errorf("seal: the credential in /%s is not this node's own (%s). Use join: keep if all nodes share it and it may be in the image, join: fresh if every clone gets another, "+
			"in the run's seal policy or in /%s, or with --join; nothing was changed", h.Path, h.Subject, seal.ConfigPath)
	}
	return nil
}

// joinable is nil if there is a configuration that brings clones a credential.
func (v *sealVerb) joinable(ctx context.Context, d *disk.Disk, c seal.Config) error {
	patience, cancel := context.WithTimeout(ctx, min(v.patience, 30*time.Second))
	defer cancel()
	doc, err := nodeconfig.Find(patience, c.Sources, d, v.metadata(d).UserData)
	if by := nodeconfig.Configurer(d); by != "" && errors.Is(err, nodeconfig.ErrNone) {
		return nil // it joins by the instance's role, whose credential is on no disk
	} else if by != "" && err == nil {
		return fmt.Errorf("seal: no clone could join the cluster afterwards: %s of EKS configures this node, and %s also has a NodeConfig of Kamino's: remove that; nothing was changed", by, doc.Source)
	}
	if err == nil {
		var n *userdata.NodeConfig
		if n, err = userdata.Parse(doc.Data); err == nil && n.Join.Method == userdata.JoinKeep {
			err = errors.New("join.method is keep, but kubelet's credential is removed")
		}
	}
	if err != nil {
		return fmt.Errorf("seal: neither clones nor the donor could rejoin the cluster afterwards: %w. Give the pool a NodeConfig in userData (docs/userdata.md); nothing was changed", err)
	}
	return nil
}
