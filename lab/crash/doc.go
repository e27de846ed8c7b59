// Package crash tries to make Kamino lose something. A run of the product goes
// through two proxies, one before a real kube-apiserver with its etcd, one before
// Azure's emulator over HTTPS. The proxies number its calls and do harm at one of them:
// the process is killed there, the call is answered with a lie, or somebody else
// changes the world at that moment. Then the same command is run again, and all
// invariants must have held at every change of state, and the end must be that
// of a run that nobody disturbed.
//
// A [World] is one such run's Kubernetes objects, its cloud, its machines and its [Clock], which is
// virtual: time passes only while every process sleeps, so that a case of six hours takes a second
// and always makes the same calls. What kubelets, controllers and the autoscaler would do, the
// world does, before time moves on; its kubelets are those of lab/nodes. A [Station] is a control
// plane with its proxies, and takes one world after the other. [Enumerate] makes the cases from
// what an undisturbed run calls, and [Run] tries them.
//
// Processes are goroutines that end where a kill strikes, or real processes of
// the binary, which get SIGKILL; a test shows that both leave the same behind.
package crash
