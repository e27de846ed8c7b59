package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/seal"
)

// indexPath is where the look beside the running node leaves what it saw for the look in the
// donor's time away: memory of the host, gone with the boot that it tells of.
const indexPath = "run/kamino/inventory"

// indexMost bounds a saved index; a million files take 25 MB.
const indexMost = 256 << 20

// configure reads the run's policy and the disk's own configuration, which can only make it
// stricter.
func (v *sealVerb) configure(d *disk.Disk) (seal.Config, error) {
	var data []byte
	var err error
	if v.config != "" {
		data, err = os.ReadFile(v.config)
	} else if d.Exists(seal.ConfigPath) {
		data, err = d.ReadFile(seal.ConfigPath, disk.Small)
	}
	if err != nil {
		return seal.Config{}, fmt.Errorf("read SealConfig: %w", err)
	}
	own, err := seal.ParseConfig(data)
	if err != nil {
		return seal.Config{}, err
	}
	text, err := v.readPolicy()
	if err != nil || text == nil {
		return own, err
	}
	policy, err := seal.ParsePolicy(text)
	if err != nil {
		return seal.Config{}, err
	}
	config, ignored, err := policy.Restrict(own)
	if err != nil {
		return seal.Config{}, err
	}
	if n := config.Unreviewed(); n > 0 {
		v.log.Warn("entries of the seal policy say reviewed: false", "entries", n)
	}
	for _, what := range ignored {
		v.log.Warn("does not count beside the run's seal policy", "in", "/"+seal.ConfigPath, "what", what)
	}
	return config, nil
}

// readPolicy is the run's policy as YAML; nil where the run brings none.
func (v *sealVerb) readPolicy() ([]byte, error) {
	if v.policy == "" {
		return seal.DecodePolicy(os.Getenv(seal.PolicyEnv))
	}
	data, err := os.ReadFile(v.policy)
	if err != nil {
		return nil, fmt.Errorf("read seal policy: %w", err)
	}
	return data, nil
}

// policyProperty hands the policy on to the host's unit: systemd keeps a transient unit in /run,
// which is memory.
func (v *sealVerb) policyProperty() ([]string, error) {
	data, err := v.readPolicy()
	if err != nil || data == nil {
		return nil, err
	}
	text, err := seal.EncodePolicy(data)
	if err != nil {
		return nil, err
	}
	return []string{"--setenv=" + seal.PolicyEnv + "=" + text}, nil
}

// runInventory is what a run does before it drains its donor: everything that would end the seal is
// found out beside the node's pods, and what was seen of the disk is kept for the seal.
func runInventory(ctx context.Context, e *env, args []string) error {
	f, v := e.sealFlags("inventory")
	v.runFlags(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if v.run == "" {
		fmt.Fprintln(e.err, "inventory: --run is required: the inventory is that run's; `kamino-agent verify --inventory` prints one without a run")
		return errUsage
	}
	e.root, v.onDonor = cmp.Or(v.hostRoot, e.root), true
	d, _, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	return v.beside(ctx, d)
}

// surveyed looks at the disk before anything is stopped, unless that was done for this run in this
// boot: then the look after the rules sees what changed since. Of an earlier look in this boot only
// what changed is read again. On a host's own root the result is kept in its memory for the next.
func (v *sealVerb) surveyed(ctx context.Context, d *disk.Disk, o *seal.Options) error {
	earlier, err := loadIndex(d)
	if err != nil {
		v.log.Warn("the earlier inventory is not used", "error", err)
	}
	o.Earlier = earlier
	if earlier.Fits(d, o.Agent) && earlier.Run == v.orderID() {
		v.log.Info("the files were checked before the drain")
		return nil
	}
	defer sparing(besideNode)()
	index, err := seal.Survey(ctx, d, *o)
	if index == nil {
		return err
	}
	o.Earlier = index
	if err == nil {
		index.Run = v.orderID()
	}
	if serr := saveIndex(d, index); serr != nil {
		v.log.Warn("the inventory is not kept, the next one will take as long", "error", serr)
	}
	return err
}

// orderID is for whom an inventory was taken. No two orders have the same.
func (v *sealVerb) orderID() string { return v.run + " " + v.nonce }

func loadIndex(d *disk.Disk) (*inventory.Index, error) {
	data, err := d.ReadFile(indexPath, indexMost)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := inventory.ReadIndex(data)
	if err == nil && index.Boot != bootID() {
		err = errors.New("it was taken in another boot")
	}
	if err != nil {
		return nil, err
	}
	return index, nil
}

// bootID is the kernel's, also in a pod.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// saveIndex writes to memory only: an attached disk, or a test's, has none at /run.
func saveIndex(d *disk.Disk, index *inventory.Index) error {
	var where unix.Statfs_t
	if err := unix.Statfs(d.Host("run"), &where); err != nil || where.Type != unix.TMPFS_MAGIC {
		return nil
	}
	index.Boot = bootID()
	var b bytes.Buffer
	if err := index.Write(&b); err != nil {
		return err
	}
	if err := d.MkdirAll(path.Dir(indexPath), 0o700); err != nil {
		return err
	}
	return d.WriteFile(indexPath, b.Bytes(), 0o600)
}

// How much memory the collector keeps to, as far as it can: of the inventory beside a running node,
// whose indexes take some 20 MB for 200,000 files; of the seal, whose second look writes the list of
// unknown files, so that it stays below 128 MiB with 120,000 of them.
const (
	besideNode = 36 << 20
	ofSeal     = 80 << 20
)

// sparing has the collector work harder than it would by itself. The function that it returns ends
// that.
func sparing(most int64) func() {
	usual := debug.SetMemoryLimit(most)
	return func() { debug.SetMemoryLimit(usual) }
}

// verifyInventory is verify --inventory: it prints the unknown, and writes what a policy would have
// to allow.
func (v *sealVerb) verifyInventory(ctx context.Context, d *disk.Disk, o seal.Options, allow string) error {
	defer sparing(besideNode)()
	if d.Live() {
		v.yield()
	}
	earlier, err := loadIndex(d)
	if err != nil {
		v.log.Warn("the earlier inventory is not used", "error", err)
	}
	o.Earlier = earlier
	if o.Binary, err = os.Executable(); err != nil { // known where a former seal left it
		return err
	}
	r, err := seal.Inventory(ctx, d, o)
	if err != nil {
		return err
	}
	if err := saveIndex(d, r.Index); err != nil {
		return err
	}
	if allow != "" {
		if err := writeAllow(allow, r); err != nil {
			return err
		}
		v.log.Info("wrote a seal policy to review", "file", allow, "unknown files", len(r.Unknown))
	}
	if v.output == "json" {
		files := r.Unknown
		if files == nil {
			files = []inventory.File{}
		}
		text, err := json.MarshalIndent(map[string]any{"unknown": files, "digest": "sha256:" + r.Sum(), "mode": o.Config.Verify.Unknown,
			"notes": slices.Concat(r.Notes, r.Torn), "summary": r.Summary()}, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(v.out, string(text))
	} else {
		v.printInventory(d, o, r)
	}
	if allow == "" && o.Config.Verify.Unknown == seal.UnknownRefuse && len(r.Unknown) > 0 {
		return &seal.Unexplained{Result: r, Since: seal.Since(d, r)}
	}
	return nil
}

func (v *sealVerb) printInventory(d *disk.Disk, o seal.Options, r *inventory.Result) {
	for _, n := range slices.Concat(r.Notes, r.Torn) {
		fmt.Fprintln(v.err, "note:", n)
	}
	for _, g := range r.Groups() {
		fmt.Fprintln(v.out, g)
	}
	fmt.Fprintln(v.out, r.Summary())
	fmt.Fprintln(v.out, seal.Since(d, r))
	policy := "no policy"
	if o.Config.Policy != "" {
		policy = "policy sha256:" + o.Config.Policy
	}
	if len(r.Unknown) == 0 {
		policy = "no file is unknown; " + policy
	}
	fmt.Fprintln(v.out, policy+": unknown files are "+map[string]string{seal.UnknownRefuse: "refused",
		seal.UnknownReport: "reported"}[o.Config.Verify.Unknown])
}

// writable tries whether a file can be written, and changes none.
func writable(name string) error {
	if name == "" {
		return nil
	}
	_, err := os.Lstat(name)
	made := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write --write-allow: %w", err)
	}
	if err := f.Close(); err != nil || !made {
		return err
	}
	return os.Remove(name)
}

func writeAllow(name string, r *inventory.Result) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.WriteAllow(f)
}
