package emulator

import (
	"maps"
	"strconv"
)

// snapshot is a copy of a volume as it was when it was asked for.
type snapshot struct {
	meta
	Volume      string
	Description string
	State       string // pending, completed, error
	Why         string
	Done        float64 // of the way, 0 to 1, when it ends
	Ends        int64   // unix milliseconds at which a pending one is completed
	Size        int
	KMSKey      string
	Files       map[string]string
	Platform    string // of the instance whose volume it is of
}

func (sn *snapshot) fact(filter string) ([]string, bool) {
	facts := map[string]string{"snapshot-id": sn.ID, "status": sn.State, "volume-id": sn.Volume, "volume-size": strconv.Itoa(sn.Size),
		"description": sn.Description, "encrypted": strconv.FormatBool(sn.KMSKey != "")}
	value, ok := facts[filter]
	return []string{value}, ok
}

func noSnapshot(id string) *apiError {
	return refuse("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
}

// showSnapshot is a snapshot as DescribeSnapshots has it. Progress is empty at first.
func (c *call) showSnapshot(sn *snapshot) any {
	progress := ""
	switch begun, now := sn.Created.UnixMilli(), c.now.UnixMilli(); {
	case sn.State == "completed":
		progress = "100%"
	case sn.State == "pending" && now > begun && sn.Ends > begun:
		progress = strconv.FormatInt(min(99, 100*(now-begun)/(sn.Ends-begun)), 10) + "%"
	}
	return object{"snapshotId": sn.ID, "volumeId": sn.Volume, "status": sn.State, "statusMessage": sn.Why, "startTime": sn.Created,
		"progress": progress,
		"ownerId":  c.s.Account, "volumeSize": sn.Size, "description": sn.Description, "encrypted": sn.KMSKey != "", "kmsKeyId": sn.KMSKey,
		"tagSet": tagList(sn.Tags), "storageTier": "standard"}
}

func describeSnapshots(c *call) (object, *apiError) {
	return describe(c, c.s.store.Snapshots, texts(c.in, "SnapshotId"), noSnapshot, "snapshotSet",
		func(sn *snapshot) any { return c.showSnapshot(sn) })
}

// createSnapshot copies a volume. It knows no client token: called twice it makes two, but not
// within 15 s of one volume (EC2 error SnapshotCreationPerVolumeRateExceeded).
func createSnapshot(c *call) (object, *apiError) {
	v, ok := known(c, c.s.store.Volumes, text(c.in, "VolumeId"))
	if !ok {
		return nil, refuse("InvalidVolume.NotFound", "The volume '%s' does not exist.", text(c.in, "VolumeId"))
	}
	waiting := 0
	for _, other := range c.s.store.Snapshots {
		if other.Volume != v.ID {
			continue
		}
		if since := c.now.Sub(other.Created); since < c.s.scale(rateOfSnapshots) {
			return nil, refuse("SnapshotCreationPerVolumeRateExceeded",
				"The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.")
		}
		if other.State == "pending" {
			waiting++
		}
	}
	if waiting >= 5 { // of one gp2, gp3 or io volume (https://docs.aws.amazon.com/ebs/latest/userguide/ebs-resource-quotas.html)
		return nil, refuse("ConcurrentSnapshotLimitExceeded", "Maximum allowed in-progress snapshots for a single volume exceeded.")
	}
	sn := c.s.snap(v, text(c.in, "Description"), tagsFor(c.in, "snapshot"))
	c.complete(sn)
	return c.showSnapshot(sn).(object), nil
}

// snap begins a snapshot.
func (s *Server) snap(v *volume, description string, tags map[string]string) *snapshot {
	sn := &snapshot{meta: s.born("snap", tags), Volume: v.ID, Description: description, State: "pending", Size: v.Size, KMSKey: v.KMSKey,
		Files: maps.Clone(v.Files)}
	for _, i := range s.store.Instances {
		if root := s.rootVolume(i); root != nil && root.ID == v.ID {
			sn.Platform = i.Platform
		}
	}
	s.store.Snapshots[sn.ID] = sn
	return sn
}

// complete lets a snapshot come to its end.
func (c *call) complete(sn *snapshot) {
	s, id, bad := c.s, sn.ID, c.fails()
	latency := c.slow(s.delays.Snapshot)
	sn.Ends = c.now.Add(s.scale(latency)).UnixMilli()
	s.later(latency, func() {
		if sn := s.store.Snapshots[id]; sn != nil && bad {
			sn.State, sn.Why = "error", "Internal error"
		} else if sn != nil {
			sn.State = "completed"
		}
	})
}

func deleteSnapshot(c *call) (object, *apiError) {
	sn, ok := known(c, c.s.store.Snapshots, text(c.in, "SnapshotId"))
	if !ok {
		return nil, noSnapshot(text(c.in, "SnapshotId"))
	}
	for _, im := range inOrder(c.s.store.Images) {
		for _, m := range im.Mappings {
			if m.Snapshot == sn.ID {
				return nil, refuse("InvalidSnapshot.InUse", "The snapshot %s is currently in use by %s", sn.ID, im.ID)
			}
		}
	}
	delete(c.s.store.Snapshots, sn.ID)
	return nil, nil
}
