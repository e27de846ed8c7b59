// Package emulator is a Region of AWS on this machine: an [http.Handler] that speaks the wire
// formats of EC2 (protocol ec2, 2016-11-15), Auto Scaling (query, 2011-01-01), SSM parameters
// (JSON 1.1) and STS (query, 2011-06-15) at one address, with state machines on an injected clock.
//
// The zero [Server] works: wall clock, assumed latencies, anybody may do anything. [Server.Seed]
// fills it, [Server.AddFault] makes it lie. An Auto Scaling group in it acts by itself: it keeps
// its desired capacity, replaces what is stopped in service, balances its zones, and launches from
// what its template says at that moment.
//
// It shares no code with the client under test, package aws, so that it cannot share its mistakes.
// Sources of what it does are the documentation and service models of AWS
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/,
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/). Where those are silent the comment
// says "assumed, unverified on real AWS"; no figure of [Latencies] was measured there.
package emulator
