// Package agent is the program kamino-agent: one file per verb around the packages that do the
// work.
//
//	seal      make a donor's disk fit to be cloned, report the receipt, power off
//	inventory say before a seal whether the disk may be sealed, and keep what was seen for it
//	packages  print the installed packages, or report them to a run
//	patch     upgrade the node's packages for a run, look at the node afterwards, or restart it
//	verify    scan a sealed disk, by file or by raw byte, for what must not be in an image
//	unseal    undo an interrupted seal
//	boot      first boot: identity, configuration, report to the platform; kubelet waits for it
//	watch     apply new generations of the configuration in place
//	userdata  check a NodeConfig and show what it becomes
//	capture   record this boot for the boot analysis
//	rules     print the table of seal rules
//
// The environment says where the platform is and is meant for tests and labs: KAMINO_IMDS,
// KAMINO_WIRESERVER (base URLs), KAMINO_KUBELET_HEALTH (URL). A run's order to its pods is in
// KAMINO_SEAL_NONCE, KAMINO_MACHINE, KAMINO_BOOT, KAMINO_SEAL_POLICY and KAMINO_PATCH_POLICY. systemd's own are read where it
// sets them: NOTIFY_SOCKET by boot, SERVICE_RESULT and EXIT_STATUS by unseal --after-seal. Commands
// are executed only with --root /.
package agent

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/patch"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/boot"
)

// Version is the version of this program; main sets it.
var Version = "dev"

// Yield lowers the priority of the whole process below that of the node's pods. main sets it: a
// test that runs a verb must keep its own.
var Yield = func() error { return nil }

// A run's order to its pods names the UUID of the machine that they are for. The order of a pod that
// changes the node also names the boot. Otherwise the pod would run on another machine that took over
// the node's name, or once more after a restored etcd brought it back.
const (
	machineEnv = "KAMINO_MACHINE"
	bootEnv    = "KAMINO_BOOT"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitFound       = 3 // verify or seal found what must not be in an image, or patch refused to begin
	exitInterrupted = 9
)

// verb is one subcommand.
type verb struct {
	name, summary string
	run           func(ctx context.Context, e *env, args []string) error
}

func verbs() []verb {
	return []verb{
		{"seal", "prepare this disk for cloning", runSeal},
		{"inventory", "check before a seal whether this disk may be sealed, at low priority", runInventory},
		{"packages", "print the installed packages, or report them to a run", runPackages},
		{"patch", "upgrade the node's packages for a run, by a unit of the host", runPatch},
		{"verify", "scan a sealed disk for what must not be in an image", runVerify},
		{"unseal", "undo an interrupted seal", runUnseal},
		{"boot", "first boot: identity, configuration, platform report", runBoot},
		{"watch", "apply new configurations in place", runWatch},
		{"userdata", "check a NodeConfig and show what it becomes", runUserData},
		{"capture", "record this boot for `kamino boot`", runCapture},
		{"rules", "print the table of seal rules", runRules},
	}
}

// Main runs one verb and returns the exit code.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = plainWriter{stdout}, plainWriter{stderr}
	e := &env{out: stdout, err: stderr, log: slog.New(slog.NewTextHandler(stderr, nil)), newHost: newHost,
		inHost: host.InHost, look: capture.Live}
	return e.main(ctx, args)
}

func (e *env) main(ctx context.Context, args []string) int {
	name := "help"
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "help", "-h", "--help":
		usage(e.out)
		return 0
	case "version", "--version":
		fmt.Fprintln(e.out, Version)
		return 0
	}
	for _, v := range verbs() {
		if v.name == name {
			return e.exit(v.name, v.run(ctx, e, args[1:]))
		}
	}
	fmt.Fprintf(e.err, "kamino-agent: unknown verb %q; `kamino-agent help` lists them\n", name)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "Usage: kamino-agent VERB [flags]\n\nVerbs (kamino-agent VERB -h shows its flags):")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-9s %s\n", v.name, v.summary)
	}
}

var errUsage = errors.New("usage")

func (e *env) exit(verb string, err error) int {
	var found *seal.Found
	var unexplained *seal.Unexplained
	var refused *patch.Refused
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, seal.ErrInterrupted):
		return exitInterrupted
	}
	fmt.Fprintf(e.err, "kamino-agent %s: %s\n", verb, strings.TrimPrefix(err.Error(), verb+": "))
	if errors.As(err, &found) || errors.As(err, &unexplained) || errors.As(err, &refused) {
		return exitFound
	}
	return exitFailed
}

// env is what every verb has.
type env struct {
	out, err io.Writer
	log      *slog.Logger

	root             string
	imds, wireServer string
	patience         time.Duration

	// Where commands go. Tests have others; nothing that a user can say changes them.
	newHost func(live bool) host.Host
	inHost  func(ctx context.Context, stdout, stderr io.Writer, name string, args ...string) error
	look    func(ctx context.Context, o capture.Options) (*boot.Capture, error)
	// interruptAfter names the rule after which a seal stops dead; only tests set it.
	interruptAfter string
}

// flags starts a verb's flags with the common ones.
func (e *env) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet("kamino-agent "+name, flag.ContinueOnError)
	f.SetOutput(e.err)
	f.StringVar(&e.root, "root", "/", "root `directory` of the disk to work on; commands are executed only for /")
	return f
}

// platformFlags adds where the platform is.
func (e *env) platformFlags(f *flag.FlagSet) {
	e.imds, e.wireServer = cmp.Or(os.Getenv("KAMINO_IMDS"), platform.DefaultIMDS),
		cmp.Or(os.Getenv("KAMINO_WIRESERVER"), platform.DefaultWireServer)
	f.Var((*service)(&e.imds), "imds", "base `URL` of the instance metadata service")
	f.Var((*service)(&e.wireServer), "wireserver", "base `URL` of the WireServer")
	f.DurationVar(&e.patience, "imds-timeout", 5*time.Minute, "how long to wait for the network and the metadata service")
}

// service is a flag that takes a URL: one that cannot be asked would be asked again and again.
type service string

func (s *service) String() string { return string(*s) }

func (s *service) Set(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("not of the form http://HOST[:PORT]")
	}
	*s = service(text)
	return nil
}

func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if f.NArg() > 0 {
		fmt.Fprintf(f.Output(), "%[1]s: unexpected argument %[2]q; %[1]s -h shows its flags\n", f.Name(), f.Arg(0))
		return errUsage
	}
	return nil
}

func (e *env) open() (*disk.Disk, host.Host, error) {
	d, err := disk.Open(e.root)
	if err != nil {
		return nil, nil, err
	}
	if meant, own := os.Getenv(machineEnv), platform.SMBIOS(d); meant != "" && own != "" && !platform.Same(meant, own) {
		d.Close()
		return nil, nil, fmt.Errorf("this pod is for machine %s, but runs on machine %s, which has the node's name now; nothing was changed", meant, own)
	}
	if meant, own := os.Getenv(bootEnv), patch.BootID(d); meant != "" && own != "" && own != meant {
		d.Close()
		return nil, nil, fmt.Errorf("this pod is for boot %s of the machine, which is in boot %s now; nothing was changed", meant, own)
	}
	return d, e.newHost(d.Live()), nil
}

// newHost is the machine itself for its own root. For any other nothing is executed: an attached
// disk must not disturb the machine that works on it.
func newHost(live bool) host.Host {
	if live {
		return host.System{}
	}
	return host.Recorder{}
}

func (e *env) metadata(d *disk.Disk) platform.Service { return platform.At(d, e.imds) }

// Takes reports whether a command line may change something, so that a signal must let it give that
// back. Whatever takes nothing ends with the first signal, also where it is blocked.
func Takes(args []string) bool {
	if len(args) == 0 {
		return false
	}
	has := func(flag string) bool {
		return slices.ContainsFunc(args[1:], func(a string) bool { return strings.TrimLeft(a, "-") == flag })
	}
	switch args[0] {
	case "seal":
		return !has("dry-run")
	case "userdata":
		return has("run")
	case "patch", "unseal", "boot", "watch":
		return true
	}
	return false
}
