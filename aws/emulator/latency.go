package emulator

import "time"

// Latencies says how long things take. A zero field means the figure given here, a negative one no
// time at all. All are divided by [Server.Speed]. AWS publishes none of them: all assumed,
// unverified on real AWS.
type Latencies struct {
	Visible    time.Duration // 3 s, until Describe calls know of what was made
	TagVisible time.Duration // 10 s, until filters by tag find it

	Launch    time.Duration // 30 s, pending to running
	Stop      time.Duration // 60 s
	ForceStop time.Duration // 15 s
	Start     time.Duration // 30 s
	Terminate time.Duration // 45 s
	Forget    time.Duration // 1 h, until a terminated instance is not shown any more

	Snapshot time.Duration // 150 s
	Image    time.Duration // 180 s, CreateImage, its snapshots included
	Register time.Duration // 10 s, RegisterImage

	EnterStandby time.Duration // 10 s
	ExitStandby  time.Duration // 15 s
	HealthCheck  time.Duration // 30 s, from stopped in service to Unhealthy
	Rebalance    time.Duration // 60 s, from zones out of balance to the launch
	RetryLaunch  time.Duration // 60 s, after a launch that failed

	Parameter time.Duration // 2 s, PutParameter of data type aws:ec2:image, its check
}

// NoLatency makes everything end within the request that begins it. Terminated instances are still
// shown for an hour.
func NoLatency() Latencies {
	const none = -1
	return Latencies{
		Visible: none, TagVisible: none, Launch: none, Stop: none, ForceStop: none, Start: none, Terminate: none, Snapshot: none,
		Image: none, Register: none, EnterStandby: none, ExitStandby: none, HealthCheck: none, Rebalance: none, Parameter: none,
	}
}

// assumed fills every zero field.
func (l Latencies) assumed() Latencies {
	for field, figure := range map[*time.Duration]time.Duration{
		&l.Visible: 3 * time.Second, &l.TagVisible: 10 * time.Second, &l.Launch: 30 * time.Second, &l.Stop: time.Minute,
		&l.ForceStop: 15 * time.Second, &l.Start: 30 * time.Second, &l.Terminate: 45 * time.Second, &l.Forget: time.Hour,
		&l.Snapshot: 150 * time.Second, &l.Image: 3 * time.Minute, &l.Register: 10 * time.Second,
		&l.EnterStandby: 10 * time.Second, &l.ExitStandby: 15 * time.Second, &l.HealthCheck: 30 * time.Second,
		&l.Rebalance: time.Minute, &l.RetryLaunch: time.Minute, &l.Parameter: 2 * time.Second,
	} {
		if *field == 0 {
			*field = figure
		}
		*field = max(*field, 0)
	}
	return l
}
