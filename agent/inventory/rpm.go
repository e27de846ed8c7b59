package inventory

import (
	"fmt"

	"kamino.dev/kamino/agent/disk"
)

// Where rpm keeps its database (rpm --eval %_dbpath), in the formats of rpm 4.16 and later, and of those before.
var rpmPaths = []string{"var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/rpm/Packages", "usr/lib/sysimage/rpm/Packages.db"}

// readRPM owns nothing yet: the files of rpm's packages are unknown.
func readRPM(_ *owners, d *disk.Disk, _ *resolver) error {
	for _, name := range rpmPaths {
		if d.Exists(name) {
			return fmt.Errorf("/%s: rpm's database is not read, the files of its packages are unknown", name)
		}
	}
	return nil
}
