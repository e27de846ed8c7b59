package boot

import (
	"regexp"
	"strings"
)

var (
	hexRun    = regexp.MustCompile(`\b[0-9a-f]{8,}\b`)
	uuidRun   = regexp.MustCompile(`[0-9a-f]{8}(?:-|\\x2d)[0-9a-f]{4}(?:-|\\x2d)[0-9a-f]{4}(?:-|\\x2d)[0-9a-f]{4}(?:-|\\x2d)[0-9a-f]{12}`)
	diskByAny = regexp.MustCompile(`^dev-disk-by\\x2d([a-z]+)-.*\.device$`)
	// digitRun also matches systemd's escapes, which are characters and stay.
	digitRun = regexp.MustCompile(`\\x[0-9a-f]{2}|[0-9]+`)
)

func starDigits(run string) string {
	if run[0] == '\\' {
		return run
	}
	return "*"
}

// Normalize gives units that are the same thing on two machines one name: identifiers of disks,
// mounts and instances become "*", and cloud-init's network stage has one name before and after its
// renaming in 24.3.
func Normalize(id string) string {
	switch id {
	case "cloud-init-network.service":
		return "cloud-init.service"
	case "crio.service", "cri-o.service":
		return "crio.service"
	}
	if strings.HasPrefix(id, "waagent.") {
		return "walinuxagent" + strings.TrimPrefix(id, "waagent")
	}
	if m := diskByAny.FindStringSubmatch(id); m != nil {
		return `dev-disk-by\x2d` + m[1] + "-*.device"
	}
	id = uuidRun.ReplaceAllString(id, "*")
	id = hexRun.ReplaceAllString(id, "*")
	if strings.HasSuffix(id, ".device") || strings.HasPrefix(id, "run-") || strings.HasPrefix(id, "user-") ||
		strings.HasPrefix(id, "session-") {
		id = digitRun.ReplaceAllStringFunc(id, starDigits)
	}
	if name, rest, ok := strings.Cut(id, "@"); ok { // a template's instance
		if digitRun.MatchString(rest) || strings.Contains(rest, `\x2d`) {
			if dot := strings.LastIndexByte(rest, '.'); dot >= 0 {
				id = name + "@*" + rest[dot:]
			}
		}
	}
	return id
}
