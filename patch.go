package kamino

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// PatchFailure is why a node stays blocked after a patch.
type PatchFailure struct {
	Run    string    `json:"run"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// FailedPatch reports whether a node stays blocked after a run.
func (n Node) FailedPatch(run string) bool {
	b := n.Blocked()
	return b != nil && b.Run == run
}

// PatchReport is the agent's report of a patch, or of the node's state; package agent/patch writes
// it.
type PatchReport struct {
	Boot        string         `json:"boot"` // ID of the boot in which the report was made
	Manager     string         `json:"manager,omitempty"`
	Changed     []PackageMoved `json:"changed"`
	Kept        []string       `json:"kept,omitempty"`   // packages on hold
	Reboot      []string       `json:"reboot,omitempty"` // why the machine has to be restarted
	Running     string         `json:"runningKernel,omitempty"`
	Newest      string         `json:"newestKernel,omitempty"`
	FailedUnits []string       `json:"failedUnits,omitempty"`
	Failure     string         `json:"failure,omitempty"`
	Last        string         `json:"last,omitempty"` // the last lines of the package manager
	Seconds     float64        `json:"seconds,omitempty"`
}

// PackageMoved is a package whose version changed. Version "" means not installed.
type PackageMoved struct {
	Name string `json:"name"`
	Arch string `json:"architecture,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// reportMost is the greatest size of a report, in bytes.
const reportMost = 4 << 20

// PatchAnswer reads the report that the node wrote for an order of a run.
func (n Node) PatchAnswer(annotation, run, nonce string) *PatchReport {
	var answer struct {
		Run, Nonce string
		Report     []byte
	}
	if readPlain([]byte(n.Annotations[annotation]), &answer) != nil || answer.Run != run || answer.Nonce != nonce {
		return nil
	}
	text, err := unpack(answer.Report, reportMost)
	if err != nil {
		return nil
	}
	var report PatchReport
	if json.Unmarshal(text, &report) != nil {
		return nil
	}
	last := strings.Split(strings.TrimRight(report.Last, "\r\n"), "\n") // the only text with several lines
	PlainAll(&last)
	PlainAll(&report)
	report.Last = strings.Join(last, "\n")
	return &report
}

// Summary describes the report in one line, for people.
func (p *PatchReport) Summary() string {
	text := fmt.Sprintf("%d packages changed by %s", len(p.Changed), p.Manager)
	if len(p.Changed) == 0 {
		text = "nothing to upgrade, according to " + p.Manager
	}
	if len(p.Kept) > 0 {
		text += "; on hold: " + SomeOf(p.Kept)
	}
	if len(p.Reboot) > 0 {
		text += "; a reboot is needed: " + strings.Join(p.Reboot, "; ")
	}
	return text
}
