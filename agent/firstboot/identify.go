package firstboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
)

// about is who this machine is.
type about struct {
	name string
	keys map[string][]string // file of authorised keys → keys
	// canary: it is to prove an image, and ordinary pods must not land on it.
	canary bool
}

// canaryName is what computers of canaries are called, whose scale set has kamino.CanaryName for a
// prefix. It tells one where IMDS does not answer: without its taint it would be one more node.
var canaryName = regexp.MustCompile(`^kamino-[0-9a-f]{8}[0-9a-z]{6}$`)

// identify asks IMDS, and the provisioning CD where IMDS does not answer. It settles v.vm.
func (m *Machine) identify(ctx context.Context, v *verdict) (about, error) {
	patience, cancel := context.WithTimeout(ctx, m.Patience)
	defer cancel()
	// The media is read while the network comes. EC2 has none.
	media := make(chan platform.Provisioning, 1)
	go func() {
		if platform.OnEC2(m.Disk) {
			media <- platform.Provisioning{}
			return
		}
		media <- m.media()
	}()
	meta, err := m.IMDS.Instance(patience)
	cd := <-media
	if err != nil {
		if v.vm == "" {
			return about{}, fmt.Errorf("cannot determine this machine's identity from SMBIOS (/sys/class/dmi/id/product_uuid) or IMDS: %w",
				err)
		}
		if cd.HostName == "" {
			return about{}, fmt.Errorf("read identity: %w", err)
		}
		m.Log.Warn("IMDS does not answer; the name comes from the provisioning media", "error", err)
	}
	if err := m.settle(ctx, v, meta); err != nil || v.done {
		return about{}, err
	}
	parked := meta.Extended.Compute.PPSType
	if !platform.Parked(parked) {
		parked = cd.PPSType
	}
	if m.Settings.FirstBoot == seal.FirstBootAgent && platform.Parked(parked) {
		return about{}, fmt.Errorf("pre-provisioned machine (ppsType %s): its owner's data comes later, by a protocol that only cloud-init speaks; "+
			"seal the donor with firstBoot: cloud-init", parked)
	}
	a := about{name: strings.ToLower(cmp.Or(meta.Compute.OSProfile.ComputerName, cd.HostName)), keys: map[string][]string{}}
	a.canary = meta.Tag(platform.TagCanary) != "" || canaryName.MatchString(a.name)
	for _, k := range meta.Compute.PublicKeys {
		if strings.HasSuffix(k.Path, "/.ssh/authorized_keys") && strings.TrimSpace(k.KeyData) != "" {
			a.keys[k.Path] = append(a.keys[k.Path], strings.Join(strings.Fields(k.KeyData), " "))
		}
	}
	return a, nil
}

// settle compares what SMBIOS and the metadata service say of the machine, and completes v by it.
func (m *Machine) settle(ctx context.Context, v *verdict, meta platform.Metadata) error {
	if meta.InstanceID != "" {
		if v.instance != "" && v.instance != meta.InstanceID {
			return fmt.Errorf("read identity: SMBIOS says %s, IMDS says %s", v.instance, meta.InstanceID)
		}
		v.instance = meta.InstanceID
		if v.done = !v.sealed && v.mine(); v.done {
			return m.again(ctx)
		}
		return nil
	}
	id := platform.VMID(meta.Compute.VMID)
	switch {
	case v.vm == "" && id == "":
		return errors.New("read identity: IMDS has no vmId and SMBIOS is unreadable")
	case v.vm == "":
		v.vm = id
		if v.done = !v.sealed && v.mine(); v.done {
			return m.again(ctx)
		}
	case id != "" && !platform.Same(id, v.vm):
		return fmt.Errorf("read identity: SMBIOS says %s, IMDS says %s", v.vm, id)
	case id != "":
		v.vm = id // the form that the cloud's API knows
	}
	return nil
}

// media reads the provisioning CD, if it is there.
func (m *Machine) media() platform.Provisioning {
	if m.Host.Live() && !m.Disk.Exists(mediaDir+"/ovf-env.xml") {
		if err := host.MountMedia("/" + mediaDir); err != nil {
			return platform.Provisioning{}
		}
		defer host.UnmountMedia("/" + mediaDir)
	}
	data, err := m.Disk.ReadFile(mediaDir+"/ovf-env.xml", disk.Small)
	if err != nil {
		return platform.Provisioning{}
	}
	p, err := platform.ParseOVF(data)
	if err != nil {
		m.Log.Warn("provisioning media", "error", err)
	}
	return p
}
