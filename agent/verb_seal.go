package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/scan"
	"kamino.dev/kamino/agent/seal"
)

// Annotations of the donor's Node.
const (
	receiptAnnotation = "kamino.dev/receipt"
	// failureAnnotation says why which run's seal was given up, as {"run": ID, "error": TEXT}.
	failureAnnotation = "kamino.dev/seal-failure"
)

// nonceEnv is where a run's order to the seal pod holds its nonce.
const nonceEnv = "KAMINO_SEAL_NONCE"

// giveBack bounds how long the donor's services may take to start again.
const giveBack = 5 * time.Minute

type sealVerb struct {
	*env
	hostRoot, config, policy, output  string
	run, donor, nonce                 string
	host, addresses, join, free       string
	dryRun, detach, powerOff, noAgent bool
	onDonor                           bool // in a pod of a run
	generic                           capture.Timing
	given                             *flag.FlagSet
}

func (e *env) sealFlags(name string) (*flag.FlagSet, *sealVerb) {
	f := e.flags(name)
	v := &sealVerb{env: e, given: f}
	e.platformFlags(f)
	f.StringVar(&v.config, "config", "", "SealConfig `file` (default /"+seal.ConfigPath+" on the disk, if it is there)")
	f.StringVar(&v.policy, "policy", "", "seal policy `file` of the run, a SealConfig (default the environment variable "+seal.PolicyEnv+
		", as a run sets it); beside it the configuration on the disk can only make things stricter")
	f.StringVar(&v.donor, "donor", "", "the donor's node `name`")
	f.StringVar(&v.host, "host-name", "", "the donor's host `name` to look for (default from the disk)")
	f.StringVar(&v.addresses, "addresses", "", "the donor's IP `addresses` to look for, joined by commas (default with --root / the machine's, else those that the disk names)")
	f.Var(&choice{&v.join, []string{seal.JoinKeep, seal.JoinFresh, seal.JoinAuto}}, "join",
		"keep, fresh or auto: whether kubelet's credential is the cluster's (default from the configuration)")
	return f, v
}

// outputFlag is of the verbs that have a result to print.
func (v *sealVerb) outputFlag(f *flag.FlagSet) {
	f.Var(&choice{&v.output, []string{"json"}}, "o", "json: print the result as JSON")
}

// choice is a flag that takes one of a few words: a misspelt one must not stand for the default,
// and least of all in a seal.
type choice struct {
	value *string
	words []string
}

func (c *choice) String() string {
	if c.value == nil { // the flag package asks a zero value for its default
		return ""
	}
	return *c.value
}

// Set is flag.Value's.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("not one of %s", strings.Join(c.words, ", "))
	}
	*c.value = word
	return nil
}

// runFlags are of the verbs that a run executes.
func (v *sealVerb) runFlags(f *flag.FlagSet) {
	f.StringVar(&v.hostRoot, "host-root", "", "root `directory` of the host, seen from a pod; the same as --root, and what --detach leaves")
	f.StringVar(&v.run, "run", "", "`ID` of the run, for the receipt")
	f.StringVar(&v.nonce, "nonce", os.Getenv(nonceEnv), "`text` that the receipt repeats, so that the run can match it to its request")
}

func runSeal(ctx context.Context, e *env, args []string) error {
	f, v := e.sealFlags("seal")
	v.runFlags(f)
	v.outputFlag(f)
	f.Var(&choice{&v.free, []string{seal.FreeAuto, seal.FreeTrim, seal.FreeZero, seal.FreeNone}}, "free-space",
		"auto, trim, zero or none: what to do with free blocks (default from the configuration: zero)")
	f.BoolVar(&v.dryRun, "dry-run", false, "print what would be done, with bytes, and change nothing; exit with the code that the seal would have")
	f.BoolVar(&v.detach, "detach", false, "install the agent on the host and go on as a transient unit of the host's systemd")
	f.BoolVar(&v.powerOff, "poweroff", false, "switch the machine off at once when the disk is sealed")
	f.BoolVar(&v.noAgent, "no-install", false, "do not copy this program to the disk")
	if err := parse(f, args); err != nil {
		return err
	}
	if v.hostRoot != "" {
		e.root = v.hostRoot
	}
	if v.run == "" && !v.dryRun {
		fmt.Fprintln(e.err, "seal: --run is required, it goes into the receipt; --dry-run shows what would be done")
		return errUsage
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if v.onDonor = v.detach; v.detach {
		return v.detached(ctx, d)
	}
	return v.seal(ctx, d, h)
}

// options collects the configuration and what identifies the donor.
func (v *sealVerb) options(ctx context.Context, d *disk.Disk) (seal.Options, error) {
	if d.Exists(nodeconfig.FormerPath) {
		return seal.Options{}, fmt.Errorf("seal: a configuration is on trial on this node, or could not be taken back (/%s): it would be in the image; wait, and see journalctl -u kamino-watch; nothing was changed", nodeconfig.FormerPath)
	}
	config, err := v.configure(d)
	if err != nil {
		return seal.Options{}, err
	}
	if err := config.Adapt(platform.OnEC2(d) || nodeconfig.Configurer(d) != ""); err != nil {
		return seal.Options{}, fmt.Errorf("seal: %w; nothing was changed", err)
	}
	config.Join = cmp.Or(v.join, config.Join)
	config.FreeSpace = cmp.Or(v.free, config.FreeSpace)
	o := seal.Options{Run: v.run, Nonce: v.nonce, Donor: v.donor, Config: config, FirstBoot: config.FirstBoot, Join: config.Join,
		Agent: Version, Now: time.Now, Log: v.log, InterruptAfter: v.interruptAfter}
	o.Facts = seal.Facts{Host: cmp.Or(v.host, d.Text("etc/hostname")), VMID: platform.SMBIOS(d), MachineID: d.Text("etc/machine-id")}
	if receipt, ok, _ := seal.ReadReceipt(d); ok {
		// A sealed disk has lost them; its receipt has them.
		o.Facts.Host, o.Facts.VMID = cmp.Or(o.Facts.Host, receipt.Donor), cmp.Or(receipt.VMID, o.Facts.VMID)
	}
	if o.Swaps, err = d.Swaps(); err != nil {
		return o, err
	}
	o.Facts.Host = cmp.Or(o.Facts.Host, hostName(d))
	switch {
	case v.addresses != "":
		o.Facts.Addresses = strings.Split(v.addresses, ",")
	case d.Live():
		o.Facts.Addresses, o.Facts.MACs = ownAddresses()
	default:
		o.Facts.Addresses, o.Facts.MACs = seal.Addresses(d), seal.MACs(d)
	}
	if !v.noAgent {
		if o.Binary, err = os.Executable(); err != nil {
			return o, err
		}
	}
	o.Join, err = v.decideJoin(ctx, d, config)
	return o, err
}

// hostName is the machine's. Of a disk that is attached to another machine it says nothing.
func hostName(d *disk.Disk) string {
	if !d.Live() {
		return ""
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

func (v *sealVerb) seal(ctx context.Context, d *disk.Disk, h host.Host) error {
	defer sparing(ofSeal)()
	o, err := v.options(ctx, d)
	if err != nil {
		return err
	}
	if v.dryRun {
		return v.rehearse(ctx, d, o)
	}
	if session := host.Session(); d.Live() && session != "" {
		return fmt.Errorf("seal: this process runs in %s, and a seal ends all sessions: add --detach; nothing was changed", session)
	}
	var node *nodeapi.Client
	if d.Live() && v.donor != "" && !d.Exists(seal.ReceiptPath) {
		// Into memory before the rules take them from the disk.
		credentials, err := nodeapi.Load(d)
		if err != nil {
			return fmt.Errorf("seal: without kubelet's credentials the receipt cannot be reported: %w; nothing was changed", err)
		}
		if node, err = credentials.Client(ctx, v.donor, platform.Sleep); err != nil {
			return fmt.Errorf("seal: the receipt cannot be reported safely: %w; nothing was changed", err)
		}
	}
	if d.Live() && !d.Exists(seal.ReceiptPath) {
		v.recordGeneric(ctx, d)
	}
	services := &seal.Services{Host: h, Log: v.log, Extra: o.Config.Stop}
	if d.Live() {
		services.Disk = d
		services.EndOthers = func(ctx context.Context, keep func(string) bool) ([]host.Process, error) {
			return host.EndOthers(ctx, 5*time.Second, keep)
		}
	}
	o.Seen = new(scan.Seen)
	receipt, err := v.work(ctx, d, node, services, o)
	if errors.Is(err, seal.ErrInterrupted) {
		return err
	}
	var boot *seal.NeedsBoot
	switch {
	case errors.As(err, &boot):
		return v.lost(ctx, h, node, err)
	case err != nil:
		// Also after a signal, which has ended ctx.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
		defer cancel()
		err = errors.Join(err, services.Restart(back))
		v.tell(back, node, err)
		return err
	}
	covered, err := seal.FreeSpace(ctx, d, o.Config.FreeSpace)
	if err != nil {
		return v.lost(ctx, h, node, err)
	}
	// What was written since the scan, by whatever outlived the stop, is looked at before anybody
	// relies on the seal.
	if err := seal.Clean(ctx, d, o); err != nil {
		return v.lost(ctx, h, node, fmt.Errorf("written to the sealed disk since it was scanned: %w", err))
	}
	v.log.Info("sealed", "run", receipt.Run, "rules", len(receipt.Rules), "free_space", o.Config.FreeSpace, "bytes", covered)
	return v.finish(ctx, d, h, node, receipt)
}

func (v *sealVerb) work(ctx context.Context, d *disk.Disk, node *nodeapi.Client, services *seal.Services,
	o seal.Options) (seal.Receipt, error) {
	if !d.Exists(seal.ReceiptPath) {
		if err := seal.Permit(d, o); err != nil {
			return seal.Receipt{}, err
		}
		if err := reach(ctx, node); err != nil {
			return seal.Receipt{}, fmt.Errorf("seal: %w; nothing was changed", err)
		}
		if err := v.surveyed(ctx, d, &o); err != nil {
			return seal.Receipt{}, err
		}
		if err := services.Stop(ctx); err != nil {
			return seal.Receipt{}, err
		}
		// A proxy or a tunnel that was stopped may have been the way there.
		if err := reach(ctx, node); err != nil {
			return seal.Receipt{}, fmt.Errorf("seal: with the donor's services stopped: %w", err)
		}
		if d.Live() {
			if err := host.UnmountBelow(seal.Unmounted(d)...); err != nil {
				return seal.Receipt{}, err
			}
		}
	}
	return seal.Seal(ctx, d, o)
}

// reach checks, before there is a receipt, that it can be reported.
func reach(ctx context.Context, node *nodeapi.Client) error {
	if node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := node.Reach(ctx); err != nil {
		return fmt.Errorf("the API server cannot be reached, so the receipt could not be reported: %w", err)
	}
	return nil
}

func (v *sealVerb) finish(ctx context.Context, d *disk.Disk, h host.Host, node *nodeapi.Client, r seal.Receipt) error {
	short, err := json.Marshal(struct {
		seal.Receipt
		capture.Timing
	}{r.Short(), v.generic})
	if err != nil {
		return err
	}
	if v.output == "json" {
		full, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(v.out, string(full))
	}
	if node != nil {
		if err := v.tellPackages(ctx, d, node, r); err != nil {
			v.log.Warn("the list of packages was not reported", "error", err)
		}
		if err := node.Annotate(ctx, map[string]string{receiptAnnotation: string(short), failureAnnotation: ""}); err != nil {
			return v.lost(ctx, h, node, fmt.Errorf("report receipt: %w", err))
		}
	}
	if !v.powerOff {
		return nil
	}
	return h.PowerOff(ctx)
}

// tellPackages runs before the receipt is reported, with which the run continues; its failure does
// not hold the receipt back.
func (v *sealVerb) tellPackages(ctx context.Context, d *disk.Disk, node *nodeapi.Client, r seal.Receipt) error {
	text, err := listPackages(d, r.Run, r.Nonce)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return node.Annotate(ctx, map[string]string{packagesAnnotation: text})
}

// lost is for a failure after the point of no return: this machine has no identity to run under any
// more. It is switched off without reporting its receipt, so no snapshot is taken; started again it
// comes back as the first clone, or, where the receipt was not written, as the donor.
func (v *sealVerb) lost(ctx context.Context, h host.Host, node *nodeapi.Client, err error) error {
	var boot *seal.NeedsBoot
	if !errors.As(err, &boot) {
		err = &seal.NeedsBoot{Err: err}
	}
	// Also after a signal, which has ended ctx.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	v.tell(ctx, node, err)
	if v.powerOff {
		err = errors.Join(err, h.PowerOff(ctx))
	}
	return err
}

// tell is best effort: the failure is in the journal as well.
func (v *sealVerb) tell(ctx context.Context, node *nodeapi.Client, failure error) {
	if node == nil {
		return
	}
	const most = 2000
	why := failure.Error()
	text, err := json.Marshal(map[string]string{"run": v.run, "error": why[:min(len(why), most)]})
	if err == nil {
		err = node.Annotate(ctx, map[string]string{failureAnnotation: string(text)})
	}
	if err != nil {
		v.log.Error("the cluster was not notified", "error", err)
	}
}

// rehearse prints what would be done, and then fails as the seal would, were it made now.
func (v *sealVerb) rehearse(ctx context.Context, d *disk.Disk, o seal.Options) error {
	o.Estimate = true
	plan, err := seal.Plan(d, o)
	if err != nil {
		return err
	}
	if err := v.printPlan(o, plan); err != nil {
		return err
	}
	if d.Live() {
		v.yield()
	}
	return seal.Rehearse(ctx, d, o)
}

func (v *sealVerb) printPlan(o seal.Options, plan []seal.Step) error {
	if v.output == "json" {
		text, err := json.MarshalIndent(plan, "", "  ")
		fmt.Fprintln(v.out, string(text))
		return err
	}
	w := tabwriter.NewWriter(v.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tACTION\tSECRET\tBYTES\tPATHS")
	var total int64
	for _, s := range plan {
		secret := ""
		if s.Secret {
			secret = "yes"
		}
		const most = 4
		paths := "/" + strings.Join(s.Paths[:min(len(s.Paths), most)], " /")
		if n := len(s.Paths) - most; n > 0 {
			paths += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", s.Rule, s.Action, secret, s.Bytes, paths)
		total += s.Bytes
	}
	fmt.Fprintf(w, "total\t\t\t%d\tfirstBoot: %s, join: %s, free space: %s\n", total, o.FirstBoot, o.Join, o.Config.FreeSpace)
	return w.Flush()
}
