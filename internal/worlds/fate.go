package worlds

import (
	"time"

	"kamino.dev/kamino"
)

// Fate is what goes wrong inside a machine.
type Fate int

// The fates.
const (
	Healthy       Fate = iota
	NeverBoots         // its kubelet does not come up
	SealFails          // the seal pod ends before it touches anything
	SealTakenBack      // the seal fails at work, takes everything back, starts the kubelet again, and tells
	SealHangs          // the seal stops the kubelet, and then hangs
	SealIsMute         // the machine is sealed and off, and no receipt was reported
	SealForged         // nothing is sealed; the node writes a receipt of its own and goes off
	NoImage            // an image that no registry has
	DiskIsRefused      // the inventory refuses the disk
	NoRoom             // the node takes no more pods
	Slow               // everything takes ten times as long
)

// Pace is how many times as long a machine takes.
func (f Fate) Pace() time.Duration {
	if f == Slow {
		return 10
	}
	return 1
}

// Failure is why a seal is taken back, as the node tells it.
const Failure = "2 things must not be in an image"

// End is how a pod of Kamino's ends, as its kubelet reports it.
type End struct {
	Refused  string // why the kubelet does not take the pod: its reason
	Waiting  string // why no container starts: the reason
	ExitCode int
	Message  string // of the container
}

// Starts is how a pod of the agent ends that the machine does not start; zero: it starts.
func (f Fate) Starts(task kamino.Task) End {
	switch {
	case f == NoRoom && task != kamino.TaskSeal: // which comes when the node is drained
		return End{Refused: "OutOfpods"}
	case f == NoImage:
		return End{Waiting: "ImagePullBackOff"}
	case f == SealFails && task == kamino.TaskSeal:
		return End{ExitCode: 1, Message: "no space left on device"}
	}
	return End{}
}

// Ends is how a pod ends that only looks.
func (f Fate) Ends(task kamino.Task) End {
	if f == DiskIsRefused && task == kamino.TaskInventory {
		return End{ExitCode: 3, Message: "nothing explains why 1 files are on the disk"}
	}
	return End{}
}
