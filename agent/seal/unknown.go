package seal

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/roots"
	"kamino.dev/kamino/agent/runtimes"
	"kamino.dev/kamino/agent/scan"
)

// What is done about files that nothing explains.
const (
	// UnknownRefuse: the seal is refused. The default.
	UnknownRefuse = "refuse"
	// UnknownReport: they travel, and are counted in the receipt.
	UnknownReport = "report"
)

// UnknownListPath is where the list of what nothing explains travels: names and digests, for root
// only.
const UnknownListPath = StateDir + "/unknown.list"

// Unknown is what the receipt says of files that nothing explains. Count is theirs; Digest is over
// their names and contents (inventory.Result.Sum).
type Unknown struct {
	Mode   string `json:"mode"`
	Count  int    `json:"count"`
	Digest string `json:"digest,omitempty"`
}

// Unexplained refuses a seal for files that nothing explains.
type Unexplained struct {
	Result *inventory.Result
	// Since tells what of it is new; see Since.
	Since string
}

func (u *Unexplained) Error() string {
	const most = 10
	groups := u.Result.Groups()
	var lines []string
	for _, g := range groups[:min(len(groups), most)] {
		lines = append(lines, "  "+g.String())
	}
	if n := len(groups) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more places", n))
	}
	count := fmt.Sprintf("%d files are unknown", len(u.Result.Unknown))
	if len(u.Result.Unknown) == 1 {
		count = "1 file is unknown"
	}
	return fmt.Sprintf("%s:\n%s\n%s\nDelete what must not be in an image. Allow the rest in a seal policy:\n"+
		"  1. on the node: kamino-agent verify --inventory --write-allow policy.yaml\n"+
		"  2. review each entry of policy.yaml\n"+
		"  3. give the file to the run: --seal-policy policy.yaml\n"+
		"With verify: {unknown: report} in the policy all unknown files travel.", count, strings.Join(lines, "\n"), u.Since)
}

// Inventory classifies every file of a disk that is not sealed yet: what the rules will do to it is
// taken into account. It changes nothing and needs no service stopped. Options.Earlier makes it
// quick.
func Inventory(ctx context.Context, d *disk.Disk, o Options) (r *inventory.Result, err error) {
	err = within(d, func(own *disk.Disk) error {
		r, err = inventoryOf(ctx, own, o)
		return err
	})
	return r, err
}

func inventoryOf(ctx context.Context, d *disk.Disk, o Options) (*inventory.Result, error) {
	look, err := o.looking(d)
	if err != nil {
		return nil, err
	}
	o.Estimate = true
	plan, err := planOf(d, o)
	if err != nil {
		return nil, err
	}
	for _, s := range plan {
		for _, m := range s.matches {
			switch {
			case s.Action == Edit && m.New != nil:
				look.Becomes[m.Path] = m.New.Data
			case s.Action != Edit && s.Action != Check:
				look.Gone[m.Path] = true
			}
		}
	}
	// They go when the containers are removed, which the seal makes sure of.
	left, err := runtimes.Containers(d)
	if err != nil {
		return nil, err
	}
	for _, name := range runtimes.Writable(left) {
		look.Gone[name] = true
	}
	return inventory.Look(ctx, d, look)
}

// left classifies what is left on the disk when the rules are applied.
func left(ctx context.Context, d *disk.Disk, o Options) (*inventory.Result, error) {
	look, err := o.looking(d)
	if err != nil {
		return nil, err
	}
	look.Last = true
	return inventory.Look(ctx, d, look)
}

// looking is what both looks have in common.
func (o Options) looking(d *disk.Disk) (inventory.Options, error) {
	look := inventory.Options{Gone: map[string]bool{}, Becomes: map[string][]byte{}, Shipped: map[string][32]byte{},
		Known: slices.Clone(o.Config.Verify.Known), Earlier: o.Earlier, Agent: o.Agent}
	found := roots.Of(d)
	look.Note = func(name string) bool { return scan.Software(found, name) }
	dirs, err := asides(d)
	if err != nil {
		return look, err
	}
	for _, dir := range dirs {
		look.Gone[dir] = true
	}
	files, err := wanted(d, o)
	if err != nil {
		return look, err
	}
	for _, f := range files {
		look.Shipped[f.Path] = sha256.Sum256(f.New.Data)
	}
	if data, err := d.ReadFile(ConfigPath, disk.Small); err == nil {
		look.Shipped[ConfigPath] = sha256.Sum256(data) // it was read, strictly
	}
	if o.Binary != "" {
		if look.Shipped[BinaryPath], err = digestOf(o.Binary); err != nil {
			return look, err
		}
	}
	for _, k := range o.keeps(d) {
		look.Known = append(look.Known, inventory.Known{Path: k.Path, Why: k.Why})
	}
	return look, nil
}

func digestOf(name string) (sum [32]byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err = io.Copy(h, f); err != nil {
		return sum, err
	}
	return [32]byte(h.Sum(nil)), nil
}

// survey is the first of a seal's two looks, unless the caller made it, and refuses what the policy
// does not allow before anything is changed.
func survey(ctx context.Context, d *disk.Disk, o *Options) error {
	if o.Earlier != nil {
		return nil
	}
	r, err := Inventory(ctx, d, *o)
	if err != nil {
		return err
	}
	o.Earlier = r.Index
	return o.judge(d, r)
}

// Survey is Inventory for a caller that will seal: it returns what Options.Earlier takes, or
// *Unexplained where the policy refuses what was found.
func Survey(ctx context.Context, d *disk.Disk, o Options) (*inventory.Index, error) {
	r, err := Inventory(ctx, d, o)
	if err != nil {
		return nil, err
	}
	return r.Index, o.judge(d, r)
}

func (o Options) judge(d *disk.Disk, r *inventory.Result) error {
	for _, n := range r.Notes {
		o.Log.Warn("inventory", "note", n)
	}
	if n := len(r.Torn); n > 0 {
		return refusal("on the donor: rpm -Va or dpkg -V names the packages; install them again (dnf reinstall, apt-get install --reinstall), remove what rpm left under names with a semicolon",
			"%d files of packages are not whole: %s", n, strings.Join(r.Torn[:min(n, 5)], ", "))
	}
	since := Since(d, r)
	o.Log.Info("inventory", "files", r.Summary(), "read", r.Read, "unknown", o.Config.Verify.Unknown, "news", since)
	if o.Config.Verify.Unknown == UnknownRefuse && len(r.Unknown) > 0 {
		return &Unexplained{r, since}
	}
	return nil
}

// explain is the second look, after the rules: it refuses, or puts the list on the disk and the
// count in the receipt. The scan learns from it what it would pass over and has to read.
func explain(ctx context.Context, s *stage, d *disk.Disk, o *Options, receipt *Receipt) error {
	r, err := left(ctx, d, *o)
	if err != nil {
		return err
	}
	if err := o.judge(d, r); err != nil {
		return err
	}
	o.unvouched, o.vouched = r.Noted, r.Index.Vouched()
	o.Earlier.Forget() // its memory is the scan's now
	receipt.Policy = o.Config.Policy
	receipt.Unknown = &Unknown{Mode: o.Config.Verify.Unknown, Count: len(r.Unknown), Digest: "sha256:" + r.Sum()}
	var list bytes.Buffer
	list.Grow(listSize(r.Unexplained))
	fmt.Fprintf(&list, "# run %s\n", o.Run)
	for _, f := range r.Unexplained {
		list.WriteString(listed(f))
		list.WriteByte('\n')
	}
	return s.apply("inventory", []Match{{Path: UnknownListPath, New: &Content{Data: list.Bytes(), Mode: 0o600}}})
}

// listSize is about how large the list of files becomes.
func listSize(files []inventory.File) int {
	n := 256
	for _, f := range files {
		n += 2*len(f.Digest) + len(f.Path) + 8
	}
	return n
}

// Since says which of the unknown files were not unknown, or had another content, when the image
// was made from which this disk came; by name, for people.
func Since(d *disk.Disk, r *inventory.Result) string {
	const most = 20
	list, err := d.OpenFile(UnknownListPath, os.O_RDONLY, 0)
	if err != nil {
		return "no earlier list: this disk did not boot from an image of Kamino"
	}
	defer list.Close()
	former, head := map[uint64]bool{}, ""
	seed := maphash.MakeSeed() // lines of strangers cannot be made alike
	for lines := bufio.NewScanner(io.LimitReader(list, 64<<20)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "# "); ok {
			head = text
		}
		former[maphash.Bytes(seed, lines.Bytes())] = true
	}
	var news []string
	more := 0
	for _, f := range r.Unknown {
		switch {
		case former[maphash.String(seed, listed(f))]:
		case len(news) < most:
			news = append(news, shown("/"+f.Path))
		default:
			more++
		}
	}
	if len(news) == 0 {
		return "nothing became unknown since the image of " + head
	}
	text := fmt.Sprintf("became unknown since the image of %s: %s", head, strings.Join(news, ", "))
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// listed is a file's line in the list that travels.
func listed(f inventory.File) string { return f.Digest.String() + "  " + shown("/"+f.Path) }

// shown is a name as it is where it is printable text, and otherwise quoted as in Go: none has a
// line break.
func shown(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// sumOf is a policy's digest.
func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
