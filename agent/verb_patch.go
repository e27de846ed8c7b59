package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"syscall"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/patch"
	"kamino.dev/kamino/agent/platform"
)

// Annotations of the node's own object that hold a patchAnswer as JSON: what was patched, and how
// the node looks afterwards.
const (
	patchAnnotation = "kamino.dev/patch"
	lookAnnotation  = "kamino.dev/patch-look"
)

// patchAnswer answers a run's order; kamino.Node.patchAnswer is its reader.
type patchAnswer struct {
	Run    string `json:"run"`
	Nonce  string `json:"nonce"`
	Report []byte `json:"report"` // base64 of gzip of a patch.Report as JSON
}

// patchVerb is what a run asks of a node that it patches, by the order in the environment.
type patchVerb struct {
	*env
	run, node, nonce string
	policy           patch.Policy
	disk             *disk.Disk
}

var runName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// runPatch patches a node, or says first whether it could, or looks at it, or restarts it. From a
// pod, which may die when the container runtime is upgraded, the work is done by a unit of the host
// that outlives the pod and is found again by name.
func runPatch(ctx context.Context, e *env, args []string) error {
	f := e.flags("patch")
	pod := f.String("host-root", "", "root `directory` of the host, seen from a pod: the work is done by a transient unit of the host's systemd")
	v := &patchVerb{env: e}
	f.StringVar(&v.run, "run", "", "`ID` of the run")
	f.StringVar(&v.node, "donor", "", "`name` of this machine's Node, on which the result is written; without it the result is printed")
	holds := f.Bool("hold", false, "only put packages on hold again that an upgrade, which may have been killed, took off hold")
	f.StringVar(&v.nonce, "nonce", os.Getenv(nonceEnv), "`text` that the result repeats, so that the run can match it to its request")
	if err := parse(f, args); err != nil {
		return err
	}
	if !runName.MatchString(v.run) {
		fmt.Fprintln(e.err, "patch: --run is required, of lower-case letters, digits and dashes: the unit and the result have its name")
		return errUsage
	}
	var err error
	if v.policy, err = patch.ParsePolicy(os.Getenv(patch.PolicyEnv)); err != nil {
		return err
	}
	e.root = cmp.Or(*pod, e.root)
	if v.disk, _, err = e.open(); err != nil {
		return err
	}
	defer v.disk.Close()
	switch {
	case *holds:
		return v.local().HoldAgain(ctx, io.Discard)
	case v.policy.Task == patch.TaskCheck:
		return v.check(ctx)
	case v.policy.Task == patch.TaskReboot:
		return v.reboot(ctx)
	case v.policy.Task == patch.TaskLook:
		report, err := v.onHost().Look(ctx)
		if err != nil {
			return err
		}
		return v.tell(ctx, lookAnnotation, report)
	case *pod != "":
		return v.byUnit(ctx)
	}
	return v.here(ctx)
}

// checkTime is less than the run gives its step, so that it hears who is in the way.
const checkTime = 25 * time.Minute

// check refuses what the unit would refuse, and a node on which another program changes packages
// for longer than a drained node should wait.
func (v *patchVerb) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err := v.alone(ctx)
	if err == nil {
		err = v.onHost().Check(ctx, v.policy)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &patch.Refused{Why: fmt.Sprintf("another program changes packages, and did not finish within %s: %v", checkTime, err),
			Do: "wait for it to end, or end it"}
	}
	return err
}

// reboot restarts the machine if it still is in the boot that the run means: a pod that the kubelet
// starts late must not end another one.
func (v *patchVerb) reboot(ctx context.Context) error {
	if now := patch.BootID(v.disk); v.policy.Boot == "" || now != v.policy.Boot {
		fmt.Fprintf(v.out, "nothing to do: the machine is in boot %s, and not in %s\n", now, v.policy.Boot)
		return nil
	}
	return v.inHost(ctx, v.out, v.err, "systemctl", "reboot")
}

// onHost is the node as a pod works on it.
func (v *patchVerb) onHost() patch.Node {
	return patch.Node{Disk: v.disk, Wait: platform.Sleep,
		Exec: func(ctx context.Context, out io.Writer, name string, args ...string) error {
			return v.inHost(ctx, out, v.err, name, args...)
		}}
}

// local is the machine on which this process runs.
func (v *patchVerb) local() patch.Node {
	return patch.Node{Disk: v.disk, Wait: platform.Sleep,
		Exec: func(ctx context.Context, out io.Writer, name string, args ...string) error {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Stdout = io.MultiWriter(out, v.out)
			cmd.Stderr = cmd.Stdout
			// apt-get and dnf end a package that they have begun; after the delay they are killed.
			cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGINT) }, 2*time.Minute
			return cmd.Run()
		}}
}

// here patches the machine on which this process runs, and reports.
func (v *patchVerb) here(ctx context.Context) error {
	report, err := v.local().Patch(ctx, v.policy)
	if err != nil {
		report.Failure = err.Error()
	}
	report.Run, report.Nonce = v.run, v.nonce
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	// For a pod that comes later: the API server may be away for as long as the network is
	// upgraded.
	if err := v.disk.WriteFile(v.resultPath(), text, 0o600); err != nil {
		return err
	}
	if err := v.tell(context.WithoutCancel(ctx), patchAnnotation, report); err != nil {
		return err
	}
	if report.Failure != "" {
		return errors.New(report.Failure)
	}
	return nil
}

// resultPath is in the host's memory, gone with the boot that the result is of.
func (v *patchVerb) resultPath() string { return "run/kamino/patch-" + v.run + ".json" }

func (v *patchVerb) unit() string { return "kamino-patch-" + v.run + ".service" }

// tell writes a report on the node's object, or prints it.
func (v *patchVerb) tell(ctx context.Context, annotation string, report patch.Report) error {
	report.Run, report.Nonce = v.run, v.nonce
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if v.node == "" {
		_, err := fmt.Fprintln(v.out, string(text))
		return err
	}
	packed, err := pack(text)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(patchAnswer{v.run, v.nonce, packed})
	if err != nil {
		return err
	}
	if len(answer) > packagesMost {
		return fmt.Errorf("the result has %d bytes, compressed; at most %d go into an annotation: the unit's journal has it",
			len(answer), packagesMost)
	}
	return annotate(ctx, v.disk, v.node, annotation, string(answer), "the result")
}

// byUnit starts the host's unit, unless it works or has worked already, and waits for its result.
func (v *patchVerb) byUnit(ctx context.Context) error {
	if report, ok := v.result(); ok {
		return v.tell(ctx, patchAnnotation, report)
	}
	working, err := v.working(ctx)
	if err != nil {
		return err
	}
	if !working {
		if err := v.alone(ctx); err != nil {
			return err
		}
		if err := v.onHost().HoldAgain(ctx, v.out); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, v.policy.Limit())
		defer cancel()
		if err := v.onHost().Check(limited, v.policy); err != nil {
			return err
		}
		if err := v.start(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(v.out, "patching continues as unit %s of the host; `journalctl -u %[1]s` shows it\n", v.unit())
	for {
		working, err := v.working(ctx)
		if err != nil {
			return err
		}
		if report, ok := v.result(); ok && !working {
			return v.tell(ctx, patchAnnotation, report)
		} else if !working {
			return fmt.Errorf("unit %s ended without a result: `journalctl -u %[1]s` on the node shows why", v.unit())
		}
		if err := platform.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// result is what the unit of the run left in this boot.
func (v *patchVerb) result() (report patch.Report, ok bool) {
	data, err := v.disk.ReadFile(v.resultPath(), disk.Small)
	return report, err == nil && json.Unmarshal(data, &report) == nil && report.Run == v.run
}

// working asks for the unit's state: one that has ended is not loaded any more (systemd-run(1),
// --collect).
func (v *patchVerb) working(ctx context.Context) (bool, error) {
	var out bytes.Buffer
	if err := v.inHost(ctx, &out, v.err, "systemctl", "show", "--property=ActiveState", "--value", v.unit()); err != nil {
		return false, err
	}
	state := strings.TrimSpace(out.String())
	return state != "inactive" && state != "failed", nil
}

// alone waits until no other run's unit works on this node, as that of a killed run which was ended
// may: two upgrades would take each other's lock, and one would put on hold what the other is about
// to upgrade. RuntimeMaxSec ends each.
func (v *patchVerb) alone(ctx context.Context) error {
	for told := ""; ; {
		var out bytes.Buffer
		if err := v.inHost(ctx, &out, v.err, "systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating",
			"kamino-patch-*.service"); err != nil {
			return err
		}
		unit, _, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
		if unit == "" {
			return nil
		}
		if unit != told {
			told = unit
			fmt.Fprintf(v.out, "waiting for unit %s, which patches this node for another run\n", unit)
		}
		if err := platform.Sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("unit %s patches this node for another run: %w", unit, err)
		}
	}
}

// start copies this program to the host's disk, since /run is often mounted noexec, and starts it
// there. The unit removes the copy when it ends.
func (v *patchVerb) start(ctx context.Context) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	dir := path.Join("opt/kamino/patch", v.run)
	if err := v.disk.CopyIn(path.Join(dir, "kamino-agent"), self, 0o755); err != nil {
		return fmt.Errorf("copy the agent to the host: %w", err)
	}
	policy, err := json.Marshal(v.policy)
	if err != nil {
		return err
	}
	// The package manager is ended first; RuntimeMaxSec is for one that does not end.
	args := []string{"--unit=" + v.unit(), "--description=Kamino: patch for run " + v.run, "--collect", "--no-block",
		"--property=KillMode=mixed", fmt.Sprintf("--property=RuntimeMaxSec=%d", int((v.policy.Limit() + 10*time.Minute).Seconds())),
		"--property=ExecStopPost=-/" + dir + "/kamino-agent patch --root=/ --run=" + v.run + " --hold",
		"--property=ExecStopPost=/bin/rm -rf /" + dir, "--setenv=" + nonceEnv + "=" + v.nonce, "--setenv=" + patch.PolicyEnv +
			"=" + string(policy),
		"/" + dir + "/kamino-agent", "patch", "--root=/", "--run=" + v.run}
	if v.node != "" {
		args = append(args, "--donor="+v.node)
	}
	return v.inHost(ctx, v.out, v.err, "/usr/bin/systemd-run", args...)
}
