package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/runtimes"
	"kamino.dev/kamino/agent/scan"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/watch"
)

func runVerify(ctx context.Context, e *env, args []string) error {
	f, v := e.sealFlags("verify")
	v.outputFlag(f)
	raw := f.String("raw", "", "scan every byte of this `device` or image; with --root as its mounted file system, what is right to be there does not count")
	vmID := f.String("vm-id", "", "the donor's VM `UUID` (default from the receipt)")
	machineID := f.String("machine-id", "", "the donor's machine `id`")
	deep := f.Bool("deep", false, "also read installed software and container images")
	list := f.Bool("inventory", false, "instead of scanning, say why each file is on the disk, and print those of which nothing says why, by directory; at low priority on a running node")
	allow := f.String("write-allow", "", "with --inventory: write what a seal policy would have to allow to this `file`, for review")
	if err := parse(f, args); err != nil {
		return err
	}
	var d *disk.Disk
	var o seal.Options
	if *list && *raw != "" || *allow != "" && !*list {
		fmt.Fprintln(e.err, "verify: --inventory is about files, not about --raw devices; --write-allow needs --inventory")
		return errUsage
	}
	rooted := *raw == ""
	f.Visit(func(given *flag.Flag) { rooted = rooted || given.Name == "root" })
	if rooted {
		var err error
		if d, _, err = e.open(); err != nil {
			return err
		}
		defer d.Close()
		v.noAgent = true
		if o, err = v.options(ctx, d); err != nil {
			return err
		}
	}
	if *list {
		return v.verifyInventory(ctx, d, o, *allow)
	}
	options := o.Scan()
	var unread []string
	if d != nil {
		left, err := runtimes.Containers(d)
		if err != nil {
			unread = append(unread, "what containers wrote: "+err.Error())
		}
		options.Also = runtimes.Writable(left)
	}
	options.Deep = *deep
	options.Facts.Host = or(v.host, or(options.Facts.Host, v.donor))
	options.Facts.VMID = or(*vmID, options.Facts.VMID)
	options.Facts.MachineID = or(*machineID, options.Facts.MachineID)
	var r scan.Result
	var err error
	if *raw != "" {
		r, err = scan.Raw(ctx, *raw, d, options)
	} else {
		r, err = scan.Files(ctx, d, options)
	}
	if err != nil {
		return err
	}
	r.Skipped = append(r.Skipped, unread...)
	if v.output == "json" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(e.out, string(text))
	}
	for _, s := range r.Skipped {
		fmt.Fprintln(e.err, "not looked for:", s)
	}
	if len(r.Findings) > 0 {
		return &seal.Found{Result: r}
	}
	if v.output == "" {
		fmt.Fprintf(e.out, "nothing found in %d files, %d bytes\n", r.Files, r.Bytes)
	}
	return nil
}

func runUnseal(ctx context.Context, e *env, args []string) error {
	f := e.flags("unseal")
	after := f.Bool("after-seal", false, "for the seal's own unit: start the node's services again as well; on a sealed disk do nothing")
	powerOff := f.Bool("poweroff", false, "with --after-seal: switch the machine off when the seal was killed on a disk that it had sealed, or cannot be taken back")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if *after && endedByItself() {
		return nil
	}
	if *after && d.Exists(seal.ReceiptPath) {
		if *powerOff {
			e.log.Error("the seal was ended on a sealed disk; switching off, start the machine again: it comes back as the first clone")
			return h.PowerOff(ctx)
		}
		return nil
	}
	n, err := seal.Unseal(d)
	if err != nil && *after && *powerOff {
		return errors.Join(err, h.PowerOff(ctx)) // its boot tries again
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "took back %d changes\n", n)
	if !*after {
		return nil
	}
	e.log.Warn("the seal did not end by itself; starting the node's services again")
	return (&seal.Services{Host: h, Disk: d, Log: e.log}).Revive(ctx)
}

// endedByItself reports whether the seal of this unit succeeded, or failed in an orderly way and so has done itself what is
// to be done. The variables are those of systemd.exec(5) for ExecStopPost; a crash of the program has exit code 2.
func endedByItself() bool {
	code := os.Getenv("EXIT_STATUS")
	if os.Getenv("SERVICE_RESULT") == "success" {
		return true
	}
	return os.Getenv("SERVICE_RESULT") == "exit-code" && (code == fmt.Sprint(exitFailed) || code == fmt.Sprint(exitFound))
}

func runBoot(ctx context.Context, e *env, args []string) error {
	f := e.flags("boot")
	e.platformFlags(f)
	early := f.Bool("early", false, "only the part that runs before the network")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	settings, err := seal.ReadSettings(d)
	if err != nil {
		return err
	}
	m := &firstboot.Machine{Disk: d, Host: h, IMDS: e.metadata(), Settings: settings, Log: e.log, Now: time.Now, Patience: e.patience,
		Wire: platform.WireServer{Endpoint: e.wireServer, Agent: "kamino-agent/" + Version, Client: platform.Direct(), Wait: platform.Sleep, Attempts: 5}}
	if *early {
		return m.Early(ctx)
	}
	return m.Boot(ctx)
}

func runWatch(ctx context.Context, e *env, args []string) error {
	f := e.flags("watch")
	e.platformFlags(f)
	w := &watch.Watcher{Log: e.log, Now: time.Now, Wait: platform.Sleep}
	once := f.Bool("once", false, "look once, and exit")
	node := f.String("node", "", "`name` of this machine's Node (default the host name)")
	f.DurationVar(&w.Interval, "interval", time.Minute, "how often to look")
	f.StringVar(&w.Health, "health", or(os.Getenv("KAMINO_KUBELET_HEALTH"), "http://127.0.0.1:10248/healthz"), "kubelet's health `URL`")
	f.DurationVar(&w.Deadline, "deadline", 2*time.Minute, "how long kubelet may take to be healthy with a new configuration")
	f.DurationVar(&w.Settle, "settle", 10*time.Second, "how long it must stay healthy")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	w.Disk, w.Host, w.IMDS = d, h, e.metadata()
	if w.Settings, err = seal.ReadSettings(d); err != nil {
		return err
	}
	name := or(*node, strings.ToLower(or(d.Text("etc/hostname"), hostName())))
	if d.Live() || *node != "" {
		w.Node = func(ctx context.Context) (watch.Node, error) {
			c, err := nodeapi.Load(d)
			if err != nil {
				return nil, err
			}
			return c.Client(ctx, name, platform.Sleep)
		}
	}
	if *once {
		if err := w.Recover(ctx); err != nil {
			return err
		}
		return w.Once(ctx)
	}
	return w.Run(ctx)
}

func runUserData(ctx context.Context, e *env, args []string) error {
	f := e.flags("userdata")
	e.platformFlags(f)
	file := f.String("file", "", "NodeConfig `file`, - for standard input (default: the disk's sources, as boot asks them)")
	run := f.Bool("run", false, "execute what a first boot would: join.command, and kubelet for its version; without it nothing is executed")
	encode := f.Bool("encode", false, "print it in base64, as userData wants it")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	doc := nodeconfig.Document{Source: *file}
	switch *file {
	case "":
		settings, serr := seal.ReadSettings(d)
		if serr != nil {
			return serr
		}
		ctx, cancel := context.WithTimeout(ctx, e.patience)
		defer cancel()
		doc, err = nodeconfig.Find(ctx, settings.Sources, d, e.metadata().UserData)
	case "-":
		doc.Data, err = io.ReadAll(io.LimitReader(os.Stdin, nodeconfig.Most+1))
	default:
		doc.Data, err = os.ReadFile(*file)
	}
	if err != nil {
		return err
	}
	c, err := nodeconfig.Parse(doc.Data)
	if err != nil {
		return err
	}
	if *encode {
		fmt.Fprintln(e.out, base64.StdEncoding.EncodeToString(doc.Data))
		return nil
	}
	if !*run { // who looks at a configuration does not trust it yet
		h = host.Idle{Skipped: func(command string) { fmt.Fprintln(e.out, "# not executed without --run:", command) }}
	}
	ask := *run || c.Join.Method != nodeconfig.JoinCommand
	files, err := nodeconfig.Render(ctx, d, h, c, ask)
	if err != nil {
		return err
	}
	if !ask {
		fmt.Fprintf(e.out, "# not executed without --run: %s\n--- /%s: what it prints\n", strings.Join(c.Join.Command, " "), nodeconfig.BootstrapPath)
	}
	fmt.Fprintf(e.out, "# NodeConfig generation %d from %s, %s\n", c.Generation, doc.Source, doc.Hash())
	for _, file := range files {
		switch {
		case file.Data == nil:
			fmt.Fprintf(e.out, "--- /%s: none\n", file.Path)
		case file.Mode&0o077 == 0:
			fmt.Fprintf(e.out, "--- /%s: %d bytes, not shown, it holds a credential\n", file.Path, len(file.Data))
		default:
			fmt.Fprintf(e.out, "--- /%s\n%s", file.Path, file.Data)
		}
	}
	return nil
}

func runCapture(ctx context.Context, e *env, args []string) error {
	f := e.flags("capture")
	e.platformFlags(f)
	wait := f.Duration("wait", 5*time.Minute, "how long to wait for startup to finish and the first pod")
	delay := f.Duration("delay", 0, "how long to leave the machine alone before the first look, which takes a tenth of a second of a processor")
	if err := parse(f, args); err != nil {
		return err
	}
	return capture.Run(ctx, capture.Options{Root: e.root, Wait: *wait, Delay: *delay, Metadata: e.imds, Agent: Version}, e.out)
}

func runRules(_ context.Context, e *env, args []string) error {
	f := e.flags("rules")
	if err := parse(f, args); err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tACTION\tSECRET\tPHASE\tWHY")
	for _, r := range seal.Table() {
		secret := ""
		if r.Secret {
			secret = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Action, secret, r.Phase, r.Why)
	}
	return w.Flush()
}
