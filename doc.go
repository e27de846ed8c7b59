// Package kamino applies the Prototype Pattern to pools of Kubernetes nodes:
// take the best node running in a pool, make its OS disk the pool's image, and
// every new node is like it. Running nodes stay untouched.
//
// The package holds the words of the project, the two ports to the outside
// world, and the pipeline. It imports the standard library only.
//
//   - [Provider] is the port to a factory of VMs; package azure implements it.
//   - [Cluster] is the port to Kubernetes; package kube implements it.
//   - [Pipeline] is the list of steps of a run. The same list drives the
//     command line, the Job, the dry-run, the progress output and the docs.
//   - [Engine] runs steps: it looks at the world, acts, looks again, waits,
//     resumes what another process left, and gives back what was taken.
//
// A step never believes a reply. It is done only when a later read shows it,
// so a lost reply, a false failure and a false success all end the same way.
// Nothing is kept in files or databases: names can be computed, and what a run
// needs to be resumed stands on the pool's [Lease], on the donor's [Mark] and
// in the tags of what it made.
package kamino
