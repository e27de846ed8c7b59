// Package machines puts real virtual machines behind Azure's emulator: QEMU with
// Debian, systemd, containerd and kubelet on qcow2 disks.
//
// What the scale set stops is a process, what it snapshots is a file, and what
// boots from an image version is a Linux that must find out by itself that it is
// not the donor. The product cannot tell: Microsoft's SDK and a real API server
// are in front, as with the simulated nodes of package lab/nodes.
//
//	base.go      the generic image, by mmdebstrap and mke2fs, cached by content
//	deb.go       Debian packages and the repository which generic machines install from
//	disk.go      overlays, copies, flattened images, and their check, by qemu-img
//	media.go     the provisioning CD with ovf-env.xml
//	network.go   one virtual network in this process: DHCP, IMDS, WireServer, registry, API server
//	qemu.go      one virtual machine: process, QMP, console
//	factory.go   emulator.Machines on these
//	cloud.go     what a cloud controller does: provider IDs, and the end of Node objects
//	join.go      bootstrap tokens, and what a pool's machines are given to join
//	registry.go  the container images: the product's own and the lab's
//	door.go      ssh from this machine, for people
//	ssh.go       ssh from this process, for tests
//	stage.go     the main job, step by step
//	circle.go    one node is patched, and the image renews the others
//	page.go      the circle as a picture
//	lab.go       all of it together
//
// Nothing here needs root except mmdebstrap in its root mode, and nothing a
// bridge, a tap device or a loop device.
package machines
