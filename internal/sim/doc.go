// Package sim plays whole runs of the engine in a simulated world, on a virtual clock: machines and
// their disks, nodes, pods, leases, galleries and pools, with processes that take turns. The same
// seed gives the same trace.
//
// Begin with the world (world.go) and with what can go wrong in it: faults.go, how a call goes
// wrong; rivals.go, what others do meanwhile; machine.go, what becomes of a seal. The tests tell
// stories (one file each), try every fault and rival at every call (TestSingleFaults,
// TestSingleRivals), and walk at random (TestWalks; SEEDS, WALK). Package invariant judges them
// all.
package sim
