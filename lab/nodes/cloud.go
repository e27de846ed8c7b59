package nodes

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"

	"kamino.dev/kamino"
	aws "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure/emulator"
)

// Cloud is what a fleet follows, in the words of Azure's emulator, which is one.
type Cloud interface {
	Instances() []emulator.Instance
	Instance(id string) (emulator.Instance, bool)
	// Subscribe calls f with every change of an instance, until it is cancelled. f must not block.
	Subscribe(f func(emulator.Change)) (cancel func())
	ReadDisk(id string) (map[string]string, error)
	WriteDisk(id string, change func(files map[string]string)) error
	WriteConsole(id, text string)
	PowerOffFromGuest(id string)
}

// AWS is an emulated Region as a cloud. Its instances have their provider IDs as IDs.
func AWS(server *aws.Server) Cloud { return region{server} }

type region struct{ *aws.Server }

const awsScheme = "aws:///"

// machineOf is the instance ID in a provider ID.
func machineOf(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// awsStates are the states of instances in Azure's words; what is not in it is gone.
var awsStates = map[string]string{"pending": emulator.PowerStarting, "running": emulator.PowerRunning, "stopping": emulator.PowerStopping,
	"shutting-down": emulator.PowerStopping, "stopped": emulator.PowerStopped}

// What the user data of a canary tells its guest: AWS shows that no tags.
var (
	canaryTaint = "register-with-taints=" + kamino.TaintCanary
	canaryNonce = regexp.MustCompile(`(?m)^# kamino-canary-nonce: (\S+)`)
)

func fromAWS(m aws.Machine) emulator.Instance {
	i := emulator.Instance{
		ID: awsScheme + m.Zone + "/" + m.ID, VMID: systemUUID(m.ID), Pool: m.Group, Name: m.ID, ComputerName: m.Hostname,
		Location: strings.TrimRight(m.Zone, "abc"),
		Size:     m.Type, OSDiskID: m.Volume, PowerState: awsStates[m.State], State: "Succeeded", Architecture: "x64",
		Tags: map[string]string{},
	}
	if m.Arch == "arm64" {
		i.Architecture = "Arm64"
	}
	if m.Tags[kamino.TagPool] != "" { // a canary is in no group
		i.Pool = m.Tags[kamino.TagPool]
	}
	i.ImageID = m.Image
	if strings.Contains(m.UserData, canaryTaint) {
		i.Tags[kamino.TagCanary] = m.Image
		if found := canaryNonce.FindStringSubmatch(m.UserData); found != nil {
			i.Tags[kamino.TagNonce] = found[1]
		}
		i.Tags[kamino.TagPool] = i.Pool
	}
	return i
}

// systemUUID is the UUID that a guest reads in SMBIOS: it begins with ec2
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html).
func systemUUID(instance string) string {
	sum := fmt.Sprintf("ec2%x", sha256.Sum256([]byte(instance)))
	return strings.Join([]string{sum[:8], sum[8:12], sum[12:16], sum[16:20], sum[20:32]}, "-")
}

func (c region) Instances() (all []emulator.Instance) {
	for _, m := range c.Machines() {
		if awsStates[m.State] != "" {
			all = append(all, fromAWS(m))
		}
	}
	return all
}

func (c region) Instance(id string) (emulator.Instance, bool) {
	m, ok := c.Machine(machineOf(id))
	return fromAWS(m), ok && awsStates[m.State] != ""
}

func (c region) Subscribe(f func(emulator.Change)) (cancel func()) {
	return c.Server.Subscribe(func(m aws.Machine) {
		i := fromAWS(m)
		change := emulator.Change{ID: i.ID, Kind: emulator.Updated, New: map[string]any{"properties": map[string]any{
			"provisioningState": i.State, "instanceView": map[string]any{"statuses": []any{map[string]any{"code": i.PowerState}}}}}}
		if i.PowerState == "" {
			change.Kind = emulator.Deleted
		}
		f(change)
	})
}

func (c region) ReadDisk(id string) (map[string]string, error) {
	return c.Server.ReadDisk(machineOf(id))
}

func (c region) WriteDisk(id string, change func(map[string]string)) error {
	return c.Server.WriteDisk(machineOf(id), change)
}

func (c region) WriteConsole(id, text string) { c.Server.WriteConsole(machineOf(id), text) }

func (c region) PowerOffFromGuest(id string) { c.PowerOff(machineOf(id)) }
