// Package emulator is Azure Resource Manager on this machine: an [http.Handler]
// over raw JSON documents with its own operation engine on an injected clock.
//
// The zero [Server] works: wall clock, published latencies, machines that are
// only simulated. [Server.Seed] fills it, [Server.Subscribe] watches it,
// [Server.AddFault] makes it lie. What stands behind its virtual machines can be
// replaced through [Machines]. [Server.Metadata] is what a virtual machine sees:
// the instance metadata service and the WireServer.
//
// Besides ARM it serves the token endpoints of Microsoft Entra ID (also below
// /adfs, where azure-cli logs in without asking the Internet), /metadata/endpoints,
// and back doors which ARM does not have:
//
//	GET             /_emulator/state    every document, hidden state included
//	GET             /_emulator/log      the requests it has seen (?since=SEQ)
//	GET POST DELETE /_emulator/faults   scripted faults (/ID for one of them)
//	GET PATCH       /_emulator/disks/ID content of a disk, snapshot, version or instance
//
// It shares no code with the client under test, package azure, so that it cannot
// share its mistakes. Where the behaviour of the real service is not documented
// the comment says "assumed, unverified on real Azure".
package emulator
