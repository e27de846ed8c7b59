package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// app is what all commands share.
type app struct {
	ioStreams
	env    func(string) string
	exit   func(int)
	global globalOptions
	clock  kamino.Clock

	// The two ports; tests set fakes.
	provider func(context.Context, globalOptions) (kamino.Provider, error)
	cluster  func(context.Context, *app) (kamino.Cluster, error)
	starters func(context.Context, *app) []starter // programs that start runs in that cluster

	libraries func(*slog.Logger) // lets libraries log to it; nil: their own logs
	terminal  func(stream any) bool

	left leftovers            // printed at a second signal
	live atomic.Pointer[live] // the progress on the terminal, if there is one
}

func newApp(streams ioStreams, env func(string) string, exit func(int)) *app {
	return &app{ioStreams: streams, env: env, exit: exit, clock: newClock(env),
		provider: newProvider, cluster: newCluster, starters: readStarters, terminal: isTerminal}
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, a *app, args []string) int {
	a.JSON = jsonAsked(args)
	ctx, stop := a.untilSignal(ctx)
	defer stop()
	root := newRootCommand(a)
	root.SetArgs(args)
	if err := knownCommand(root, args); err != nil {
		return a.conclude(err)
	}
	return a.conclude(root.ExecuteContext(ctx))
}

// knownCommand refuses a first word that is no command. Otherwise its flags would be judged without
// a command, and its help would be the general help.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil // cobra looks for the command behind the flags
	}
	root.InitDefaultHelpCmd()
	if strings.HasPrefix(args[0], "__complete") ||
		slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] || c.HasAlias(args[0]) }) {
		return nil
	}
	return root.Args(root, args)
}

const rootLong = `Kamino makes new nodes of a pool like the best node running in it: it takes
that node's OS disk, makes it an image version and points the pool's model at
it. Running nodes stay untouched.

Exit codes:
  0    success, also if there was nothing to do
  1    failed; what the run had taken is given back, or the message says what is not
  2    with --detailed-exitcode: there is something to do
  3    refused, or another run holds the pool; the donor was not touched
       (kamino boot compare --budget: it took longer)
  4    the version failed its proof and is withdrawn; the pool's image is as before
  5    the proof is inconclusive: the version stays hidden, and the next run proves it
  130  aborted by a second signal; the message lists what was left behind

The first SIGINT, SIGTERM or SIGHUP ends a run cleanly: the donor is given back
before the process ends, with exit code 1. A run whose output is closed
continues to its end.`

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "kamino",
		Short:         "Make new nodes like the best node running",
		Long:          rootLong,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          commandOnly,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Flags().Visit(func(f *pflag.Flag) { a.global.given = append(a.global.given, f.Name) })
			return a.global.complete(a)
		},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if err = plainFlagError(err); kamino.Hint(err) != "" {
			return err
		}
		meant := ""
		if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
			if like := flagsLike(c, name); len(like) > 0 {
				meant = "did you mean --" + strings.Join(like, ", --") + "? "
			}
		}
		return kamino.WithHint(err, "%s%s --help lists the flags", meant, c.CommandPath())
	})
	a.addGlobalFlags(root.PersistentFlags())
	root.AddCommand(
		newUpdateCommand(a),
		newAutoUpdateCommand(a),
		newPatchCommand(a),
		newPlanCommand(a),
		newDoctorCommand(a),
		newStatusCommand(a),
		newRollbackCommand(a),
		newRestoreCommand(a),
		newPromoteCommand(a),
		newWithdrawCommand(a),
		newPauseCommand(a),
		newResumeCommand(a),
		newInitCommand(a),
		newControllerCommand(a),
		newBootCommand(a.ioStreams),
		newVersionCommand(a),
	)
	refuseUnknownShells(root)
	return root
}

// commandOnly refuses a word that is no subcommand. Cobra would print the help of a command that
// only has subcommands, with exit code 0.
func commandOnly(cmd *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	hint, path := cmd.CommandPath()+" --help lists the commands", cmd.CommandPath()+" "
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(words[0]); len(like) > 0 {
		hint = "did you mean: " + path + strings.Join(like, ", "+path)
	}
	return kamino.WithHint(fmt.Errorf("unknown command %q", words[0]), "%s", hint)
}

// plainFlagError explains what a flag accepts, where pflag would only repeat strconv.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f, value := invalid.GetFlag(), invalid.GetValue()
	switch f.Value.Type() {
	case "int":
		return kamino.WithHint(fmt.Errorf("invalid number %q for --%s", value, f.Name), "use a whole number, for instance --%s %s",
			f.Name, f.DefValue)
	case "float32":
		return kamino.WithHint(fmt.Errorf("invalid number %q for --%s", value, f.Name), "use a number, for instance --%s %s",
			f.Name, f.DefValue)
	case "uint16":
		return kamino.WithHint(fmt.Errorf("invalid port %q for --%s", value, f.Name),
			"use a number from 1 to 65535, for instance --%s 8080, or omit it", f.Name)
	case "bool":
		return kamino.WithHint(fmt.Errorf("invalid value %q for --%s", value, f.Name), "use --%s, or --%s=false", f.Name, f.Name)
	}
	return err
}

// flagsLike returns the flags of a command with a similar name, as cobra finds them for commands.
func flagsLike(cmd *cobra.Command, name string) []string {
	if like := sameFlags[name]; like != "" && cmd.Flags().Lookup(like) != nil {
		return []string{like}
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return flags.SuggestionsFor(name)
}

// sameFlags are names that other commands use for the same flag.
var sameFlags = map[string]string{"to": "version", "version": "to", "pools": "pool", "vmss": "pool",
	"node": "target-node", "nodes": "target-node"}

// noArguments refuses words that belong to no flag.
func noArguments(cmd *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	hint, flags := cmd.CommandPath()+" --help lists the flags", cmd.Flags()
	var is []string
	if _, err := kamino.VersionDate(words[0]); err == nil {
		for _, name := range []string{"version", "to"} {
			if flags.Lookup(name) != nil {
				is = append(is, "a version: --"+name+" "+words[0])
			}
		}
	} else {
		for _, f := range [][2]string{{"pool", "a pool"}, {"target-node", "a node"}} {
			if flags.Lookup(f[0]) != nil && !flags.Changed(f[0]) {
				is = append(is, f[1]+": --"+f[0]+" "+words[0])
			}
		}
	}
	if len(is) > 0 && words[0] != "" {
		hint = "if that is " + strings.Join(is, ", ") + "; " + hint
	}
	return kamino.WithHint(fmt.Errorf("unexpected argument %q", words[0]), "%s", hint)
}

// engine joins the two ports. Progress goes to the terminal or to the log.
func (a *app) engine(ctx context.Context) (*engine.Engine, error) {
	cluster, err := a.cluster(ctx, a)
	if err != nil {
		return nil, err
	}
	options, err := a.located(ctx, cluster)
	if err != nil {
		return nil, err
	}
	provider, err := a.provider(ctx, options)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host's name: %w", err)
	}
	poll, _ := time.ParseDuration(pollInterval)
	settle, _ := time.ParseDuration(settleLimit)
	return &engine.Engine{
		Provider: provider, Cluster: cluster, Clock: a.clock, NewID: func() string { return newRunID(a.clock.Now()) },
		Process: processName(host, os.Getpid()), MinPoll: poll, SettleLimit: settle,
	}, nil
}

// processName is the name of this process on a lease. Containers in the network of one host share
// its name, and may share the process ID, so it ends in random characters. Otherwise two processes
// might take each other's lease for their own.
func processName(host string, pid int) string {
	return fmt.Sprintf("%s/%d-%s", host, pid, strings.ToLower(rand.Text()[:5]))
}

// The exit codes; rootLong documents them.
const (
	exitFine      = 0
	exitFailed    = 1
	exitToDo      = 2
	exitRefused   = 3
	exitBadImage  = 4
	exitUnproved  = 5
	exitAbandoned = 130
)

// errToDo: there is something to do (exit code of --detailed-exitcode).
var errToDo = errors.New("there is something to do")

// conclude prints the error of a command and returns the exit code.
func (a *app) conclude(err error) int {
	if err == nil {
		return exitFine
	}
	if errors.Is(err, errToDo) {
		return exitToDo
	}
	text, hints := message(err)
	var left []string
	if errors.Is(err, context.Canceled) { // a run that fails by itself cleans up
		if left = a.left.lines(); len(left) > 0 {
			hints = append(hints, "the same command continues with what is left; kamino restore deletes it")
		}
	}
	a.complain(text, left, hints)
	var proof *kamino.ProofError
	if errors.As(err, &proof) {
		return map[kamino.Outcome]int{kamino.ProofFailed: exitBadImage, kamino.ProofInconclusive: exitUnproved}[proof.Outcome]
	}
	var over *bootOverBudget
	if refused(err) || errors.As(err, &over) {
		return exitRefused
	}
	return exitFailed
}

// message returns the text of an error, and what to do about it: its hints, and the advice of each
// refusal.
func message(err error) (text string, hints []string) {
	text = err.Error()
	for _, r := range kamino.Refusals(err) {
		text = strings.Replace(text, r.String(), strings.TrimSuffix(r.String(), "; "+r.Do), 1)
	}
	return text, kamino.Advice(err)
}

// refused reports whether nothing was changed because something was refused or held. Of several
// errors, all must be refusals.
func refused(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *kamino.RefusedError, *kamino.HeldError:
		return true
	case *kamino.StepError:
		return e.Refused
	case interface{ Unwrap() error }:
		return refused(e.Unwrap())
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(err error) bool { return !refused(err) })
	}
	return false
}
