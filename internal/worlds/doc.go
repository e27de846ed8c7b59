// Package worlds is the one dictionary of the two worlds in which whole runs are played: package
// sim, in memory, and package crash of the lab, with a real API server and Azure's emulator. How a
// call goes wrong ([Fault]), what others do meanwhile ([Rivals]), what becomes of a machine
// ([Fate]) and how long donors were away ([Away]) stand here once, as data; what runs inside a
// machine, as a model ([Guest]). A world brings the verbs ([World]) and the transport ([Host]);
// package invariant judges both.
package worlds
