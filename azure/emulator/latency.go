package emulator

import "time"

// Latencies says how long operations take. A zero field means the published
// figure, a negative one no time at all. All of them are divided by [Server.Speed].
//
// Stop, snapshot, version, snapshot delete, scale set update and extension delete
// were published for the original vmss-prototype
// (https://github.com/jackfrancis/kamino/tree/main/helm/vmss-prototype); the
// others are assumed, unverified on real Azure.
type Latencies struct {
	Stop           time.Duration // 120 s, powerOff with a shutdown of the guest
	Cut            time.Duration // 10 s, powerOff with skipShutdown=true or of a stopped guest
	Start          time.Duration // 120 s
	Deallocate     time.Duration // 150 s
	CreateInstance time.Duration // 60 s until the instance is powered on
	DeleteInstance time.Duration // 60 s
	Reimage        time.Duration // 120 s
	UpdateInstance time.Duration // 5 s, protection policy and tags

	Snapshot       time.Duration // 30 s
	DeleteSnapshot time.Duration // 20 s

	Gallery        time.Duration // 10 s, create, update or delete
	Definition     time.Duration // 5 s, create, update or delete
	Version        time.Duration // 660 s, three ZRS replicas
	ShallowVersion time.Duration // 120 s
	UpdateVersion  time.Duration // 15 s
	DeleteVersion  time.Duration // 60 s

	UpdateScaleSet  time.Duration // 25 s
	DeleteScaleSet  time.Duration // 60 s
	DeleteExtension time.Duration // 10 s

	// ProvisioningTimeout is how long a new machine may take to report ready
	// where [Server.RequireReady] is set: 40 min
	// (https://learn.microsoft.com/azure/virtual-machines/linux/no-agent).
	ProvisioningTimeout time.Duration
	// AutomaticUpgrade is how long after a new version the automatic OS upgrade begins: 300 s
	// (hours on real Azure).
	AutomaticUpgrade time.Duration
}

// NoLatency makes every operation end within the request that begins it.
func NoLatency() Latencies {
	const none = -1
	return Latencies{
		Stop: none, Cut: none, Start: none, Deallocate: none, CreateInstance: none, DeleteInstance: none, Reimage: none,
		UpdateInstance: none, Snapshot: none, DeleteSnapshot: none, Gallery: none, Definition: none, Version: none,
		ShallowVersion: none, UpdateVersion: none, DeleteVersion: none, UpdateScaleSet: none, DeleteScaleSet: none,
		DeleteExtension: none, AutomaticUpgrade: none,
	}
}

// published fills every zero field with its published figure.
func (l Latencies) published() Latencies {
	for field, figure := range map[*time.Duration]time.Duration{
		&l.Stop: 120 * time.Second, &l.Cut: 10 * time.Second, &l.Start: 120 * time.Second, &l.Deallocate: 150 * time.Second,
		&l.CreateInstance: time.Minute, &l.DeleteInstance: time.Minute, &l.Reimage: 120 * time.Second,
		&l.UpdateInstance: 5 * time.Second, &l.Snapshot: 30 * time.Second, &l.DeleteSnapshot: 20 * time.Second,
		&l.Gallery: 10 * time.Second, &l.Definition: 5 * time.Second, &l.Version: 660 * time.Second,
		&l.ShallowVersion: 120 * time.Second, &l.UpdateVersion: 15 * time.Second, &l.DeleteVersion: time.Minute,
		&l.UpdateScaleSet: 25 * time.Second, &l.DeleteScaleSet: time.Minute, &l.DeleteExtension: 10 * time.Second,
		&l.ProvisioningTimeout: 40 * time.Minute, &l.AutomaticUpgrade: 5 * time.Minute,
	} {
		if *field == 0 {
			*field = figure
		}
		*field = max(*field, 0)
	}
	return l
}

// scale turns a latency into time on the clock.
func (s *Server) scale(d time.Duration) time.Duration {
	if s.Speed > 0 {
		d = time.Duration(float64(d) / s.Speed)
	}
	return max(d, 0)
}
