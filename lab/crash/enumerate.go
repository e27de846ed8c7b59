package crash

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// Shapes are the worlds whose undisturbed runs are disturbed: the first day of a
// pool, which makes everything; machines that the cloud must switch off; and a
// pool that has more versions than are kept.
func Shapes() []Shape {
	return append([]Shape{
		{Name: "first day", NewNodes: 1},
		{Name: "machine stays on", NewNodes: 1, Mute: true},
		{Name: "fifth day", NewNodes: 1, Old: 4},
		{Name: "with a canary", NewNodes: 1, Prove: true},
		{Name: "a version made elsewhere", Named: true, Prove: true, Old: 4, Points: true},
		{Name: "owned", Owned: true, Old: 4, Points: true},
		{Name: "fifth day of a pool that points", NewNodes: 1, Old: 4, Points: true},
		patchShape(),
		keptShape(),
	}, moveShapes(nil)...)
}

// scope tells the rows whose calls are disturbed: all of the first day, of the
// others what the first day does not have.
func (g *Golden) scope(row string) bool {
	switch {
	case g.Shape.Patch, g.Shape.Kept, g.Shape.Command != "":
		return true
	case g.Shape.Owned:
		return row == "S14"
	case g.Shape.Named:
		return row == "S14" || row == "S18" || row == "S19" || row == "S20"
	case g.Shape.Points:
		return row == "S13" || row == "S14" || row == "S16" && g.Shape.Old > 0
	case g.Shape.Prove:
		return row == "S18" || row == "S19" || row == "S20"
	case g.Shape.Mute:
		return row == "S6"
	case g.Shape.Old > 0:
		return row == "S16"
	}
	return true
}

// Enumerate makes every case from the undisturbed runs.
func Enumerate(goldens []*Golden) []*Case {
	e := &enumeration{}
	for _, g := range goldens {
		seen := map[string]bool{}
		for i, c := range g.Calls {
			row := g.Rows[i]
			if !g.scope(row) || g.Shape.Named && !c.Write { // with a canary, the same steps are disturbed at each read
				continue
			}
			e.kills(g, i, row)
			if g.Shape.Command != "" {
				continue
			}
			if g.Shape.Kept { // what lies to the engine does so to commands alike
				if last := i == len(g.Calls)-1 || !slices.Contains(g.Rows[i+1:], row); !seen[row] || last {
					e.rivals(g, i, row, !seen[row])
				}
				seen[row] = true
				continue
			}
			for _, kind := range lies(c, row) {
				if g.Shape.Group != nil && slices.Contains(operations, kind) {
					continue
				}
				// What is built after its run has ended stays, hidden, and is nobody's next
				// image. What is not listed is pruned by another run.
				e.add(g, Cell{row, kind.Column()}, Strike{At: c.N, Kind: kind}, "").Loose = c.loses(kind) ||
					kind == worlds.OperationEndless && c.means.Verb == invariant.CreateVersion || kind == worlds.Empty && row == "S16"
			}
			if g.Shape.Named { // it has no donor to whom anybody could do something
				continue
			}
			last := i == len(g.Calls)-1 || !slices.Contains(g.Rows[i+1:], row)
			if !seen[row] {
				e.once(g, i, row)
				e.rivals(g, i, row, true)
			} else if last {
				e.rivals(g, i, row, false)
			}
			seen[row] = true
			if !g.Shape.Patch {
				e.pins(g, i, row)
			}
		}
	}
	switch first := goldens[0]; {
	case first.Shape.Patch, first.Shape.Kept, first.Shape.Command != "":
	case first.Shape.Group != nil:
		e.onAWS(first)
	default:
		e.extras(first)
	}
	for i, g := range goldens {
		if g.Shape.Patch {
			e.alone(g)
		}
		if i == 0 && !g.Shape.Kept && g.Shape.Command == "" || g.Shape.Patch {
			e.before(g)
		}
	}
	return e.cases
}

// loses says whether a fault costs a run something that it can do without. Who may not read what a
// region offers is told, and keeps the version in the storage that every region has.
func (c *Call) loses(kind worlds.Fault) bool {
	return kind == worlds.Forbidden && strings.HasSuffix(c.Path, "/Microsoft.Compute/skus")
}

type enumeration struct{ cases []*Case }

func (e *enumeration) add(g *Golden, cell Cell, s Strike, note string) *Case {
	c := &Case{Cell: cell, Golden: g, Strike: s}
	what := string(s.Kind)
	if s.Rival != nil {
		what = s.Rival.Name
	}
	c.Name = fmt.Sprintf("%s %s%s", cell, what, note)
	if s.At > 0 {
		c.Name += fmt.Sprintf(" at call %d %s", s.At, g.Calls[s.At-1])
	}
	if g.Shape.Name != "first day" {
		c.Name += " (" + g.Shape.Name + ")"
	}
	e.cases = append(e.cases, c)
	return c
}

// kills are the three positions of a call, and for writes one more where
// kamino restore is run before the command.
func (e *enumeration) kills(g *Golden, i int, row string) {
	c := g.Calls[i]
	cell := Cell{row, "7"}
	e.add(g, cell, Strike{At: c.N, Kind: worlds.KillBefore}, "")
	e.add(g, cell, Strike{At: c.N, Kind: worlds.KillUnheard}, "")
	if i < len(g.Calls)-1 {
		e.add(g, cell, Strike{At: c.N, Kind: worlds.KillAfter}, "")
	}
	if c.Write {
		healed := e.add(g, cell, Strike{At: c.N, Kind: worlds.KillUnheard}, ", then kamino restore")
		healed.Heal = true
	}
}

// lies are what can be answered to a call. What is tried once a row, or kills, has a place of its
// own.
func lies(c *Call, row string) []worlds.Fault {
	is := c.is()
	is.Lease = is.Lease && row != "S1" // where nothing was taken yet, the next write of the lease finds out
	return slices.DeleteFunc(worlds.Faults(), func(f worlds.Fault) bool {
		switch f {
		case worlds.NoAnswer, worlds.Blind, worlds.Vanished:
			return true
		case worlds.Interrupted:
			return !c.Write
		}
		return f.Kills() || f.Column() == "" || !f.Fits(is)
	})
}

// is tells what the dictionary asks of a call.
func (c *Call) is() worlds.Call {
	return worlds.Call{
		Write: c.Write, Kube: c.Side == Kubernetes, Lease: c.means.Verb == invariant.SetLease, Create: c.Side == Cloud &&
			(c.Method == http.MethodPut || c.creates),
		List: c.List, Long: c.Long, Start: c.means.Verb == invariant.PowerOn, Older: c.Older,
	}
}

// once is what is tried at the first call of a row.
func (e *enumeration) once(g *Golden, i int, row string) {
	c := g.Calls[i]
	e.add(g, Cell{row, "12"}, Strike{At: c.N, Kind: worlds.NoAnswer}, "")
	if j := slices.IndexFunc(g.Calls[i:], func(c *Call) bool { return c.Side == Cloud && !c.token }); j >= 0 && g.Rows[i+j] == row {
		for _, kind := range []worlds.Fault{worlds.Blind, worlds.Vanished} {
			// What is not seen is neither pruned nor kept as others described it.
			e.add(g, Cell{row, kind.Column()}, Strike{At: g.Calls[i+j].N, Kind: kind}, "").Loose = kind == worlds.Vanished
		}
	}
	if !c.Write { // lies has it for writes
		e.add(g, Cell{row, "16"}, Strike{At: c.N, Kind: worlds.Interrupted}, "")
	}
	midnight := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).Add(-g.at[i])
	past := e.add(g, Cell{row, "13"}, Strike{At: c.N, Kind: worlds.KillUnheard}, " as midnight passes")
	past.Start, past.Loose = midnight, i == len(g.Calls)-1 // who gave up the lease has ended: the next day's run is another
	e.add(g, Cell{row, "13"}, Strike{}, "midnight passes").Start = midnight
	for note, skew := range map[string]time.Duration{", run again by a clock one day ahead,": 24 * time.Hour,
		", run again by a clock one day behind,": -24 * time.Hour} {
		e.add(g, Cell{row, "13"}, Strike{At: c.N, Kind: worlds.KillUnheard}, note).Skew = skew
	}
}

// operations are what Azure's own operations can come to.
var operations = []worlds.Fault{worlds.OperationCanceled, worlds.OperationLies, worlds.OperationGone, worlds.PollForbidden}

// rivalsOn are those of a cloud.
func rivalsOn(s Shape) []worlds.Rival {
	if s.Patch {
		return rivalsOfPatch()
	}
	if s.Kept {
		return keptRivals()
	}
	if s.Group != nil {
		return slices.Concat(worlds.Rivals(), awsRivals)
	}
	return worlds.Rivals()
}

// rivals act at the first and at the last call of each row.
func (e *enumeration) rivals(g *Golden, i int, row string, first bool) {
	for _, r := range rivalsOn(g.Shape) {
		if r.Column == "" {
			continue
		}
		if r.Rows != nil && !slices.Contains(r.Rows, row) {
			continue
		}
		if r.Rows != nil && !first {
			continue
		}
		e.add(g, Cell{row, r.Column}, Strike{At: g.Calls[i].N, Kind: worlds.RivalActs, Rival: &r}, "")
	}
}

// pinned are the rivals that choose an image by hand.
var pinned = []string{"a person changes the model's image", "a person takes the newest version out of latest"}

// pins are made between any two calls; rivals has those at the first and at the last of a row.
func (e *enumeration) pins(g *Golden, i int, row string) {
	if first, last := i == slices.Index(g.Rows, row), !slices.Contains(g.Rows[i+1:], row); first || last {
		return
	}
	for _, r := range rivalsOn(g.Shape) {
		if slices.Contains(pinned, r.Name) {
			e.add(g, Cell{row, r.Column}, Strike{At: g.Calls[i].N, Kind: worlds.RivalActs, Rival: &r}, "")
		}
	}
}

// before is for rows that read nothing themselves: what they do was decided on
// the last read before them, which is stale once more here.
func (e *enumeration) before(g *Golden) {
	for _, r := range rows {
		cell := Cell{r.Key, worlds.StaleRead.Column()}
		first := slices.Index(g.Rows, r.Key)
		if cell.wants() == "-" || !cell.on(g.Shape.Group != nil) || first < 0 ||
			slices.ContainsFunc(e.cases, func(c *Case) bool { return c.Cell == cell }) {
			continue
		}
		for i := first - 1; i >= 0; i-- {
			if c := g.Calls[i]; c.reads() && c.Older {
				e.add(g, cell, Strike{At: c.N, Kind: worlds.StaleRead}, " of what was read before")
				break
			}
		}
	}
}

const encryptionSet = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/kamino-lab/providers/Microsoft.Compute/diskEncryptionSets/keys"

// extras are cases that are no call's.
func (e *enumeration) extras(g *Golden) {
	e.cases = append(e.cases, &Case{Name: "S2/6 protection begins no operation that could fail", Cell: Cell{"S2", "6"}, Golden: g,
		Check: func(g *Golden) []string {
			for i, c := range g.Calls {
				if g.Rows[i] == "S2" && c.Side == Cloud && c.Write {
					return []string{fmt.Sprintf("step protect calls Azure: %s", c)}
				}
			}
			return nil
		}})
	for name, change := range map[string]func(*emulator.Pool){
		"a disk whose key cannot be read": func(p *emulator.Pool) {
			p.DiskEncryptionSet = encryptionSet
		},
		"CAPZ's pool":              func(p *emulator.Pool) { p.Tags = emulator.CAPZTags("blue") },
		"upgrade policy Automatic": func(p *emulator.Pool) { p.UpgradePolicy = "Automatic" },
		"upgrade policy Rolling":   func(p *emulator.Pool) { p.UpgradePolicy = "Rolling" },
		"automatic OS upgrade":     func(p *emulator.Pool) { p.AutomaticOSUpgrade = true },
		"ephemeral OS disk":        func(p *emulator.Pool) { p.Ephemeral = true },
		"spot instances":           func(p *emulator.Pool) { p.Spot = true },
		"Windows":                  func(p *emulator.Pool) { p.Windows = true },
		"Confidential VMs":         func(p *emulator.Pool) { p.SecurityType = "ConfidentialVM" },
	} {
		shape := g.Shape
		shape.Pool = change
		e.cases = append(e.cases, &Case{Name: "S0/15 " + name + " is refused", Cell: Cell{"S0", "15"}, Refused: true,
			Golden: &Golden{Shape: shape, Digest: g.Digest}})
	}
	for name, change := range map[string]func(*emulator.Pool){
		"a size with NVMe only":             func(p *emulator.Pool) { p.Size, p.DiskController = "Standard_D2s_v6", "NVMe" },
		"disks with keys of the customer's": func(p *emulator.Pool) { p.DiskEncryptionSet = encryptionSet },
	} {
		shape := g.Shape
		shape.Pool = change
		shape.Configure = func(s *emulator.Server) {
			s.Put(encryptionSet, map[string]any{"location": "westeurope",
				"properties": map[string]any{"encryptionType": "EncryptionAtRestWithCustomerKey"}})
		}
		e.cases = append(e.cases, &Case{Name: "S13/15 " + name, Cell: Cell{"S13", "15"},
			Golden: &Golden{Shape: shape, Calls: g.Calls, Rows: g.Rows}, Loose: true})
	}
	e.models(g)
	shape := g.Shape
	shape.Configure = func(s *emulator.Server) { s.NoZRS = []string{"westeurope"} }
	e.cases = append(e.cases, &Case{Name: "S13/15 the region has no zone-redundant storage", Cell: Cell{"S13", "15"},
		Golden: &Golden{Shape: shape, Calls: g.Calls, Rows: g.Rows}, Loose: true})
}

// alone is a pool of one node, which is not patched.
func (e *enumeration) alone(g *Golden) {
	shape := g.Shape
	shape.Pool = func(p *emulator.Pool) { p.Count = 1 }
	e.cases = append(e.cases, &Case{Name: "P1/15 the last node that serves is not taken (patch)", Cell: Cell{"P1", "15"}, Refused: true,
		Golden: &Golden{Shape: shape}})
}

// models are pools whose instances refer to as many models as Azure takes: one whose model has to
// be written, where the run fails and gives all back, and one that points already, where nothing is
// written.
func (e *enumeration) models(g *Golden) {
	full := Shape{Models: 9}
	e.cases = append(e.cases, &Case{Name: "S14/15 ten models", Cell: Cell{"S14", "15"}, Golden: &Golden{Shape: full}, Loose: true,
		Fails: "limit of 10 models", Mend: (*World).renew})
	full.Old, full.Points = 4, true
	full.Pool = func(p *emulator.Pool) { p.NoExtensions = true } // as Kamino left it
	e.cases = append(e.cases, &Case{Name: "S14/15 ten models of a pool that points", Cell: Cell{"S14", "15"},
		Golden: &Golden{Shape: full}, Loose: true})
}

// renew is a person who lets the instances of old models go, but donor and spare.
func (w *World) renew() {
	for _, in := range w.fleet.Instances()[2:] {
		w.deleteMachine(&machine{id: in.ID})
	}
}
