// Command rondo is the command line: it starts instances, sends them messages, prints their waits
// and their histories, and inspects and maintains the system. `rondo help` lists the commands.
//
//	main.go      the commands, and the codes with which they exit
//	settings.go  where NATS is: flags, variables, a file, or the dev that runs here
//	print.go     text for terminals, JSON for programs
//	help.go      help that fits into 80 columns
//	start.go     start
//	wait.go      wait
//	send.go      raise, send, cancel, terminate, suspend, resume
//	pending.go   list, show and delete, for starts that wait in NATS
//	look.go      list, show, history, tree, watch
//	held.go      which activity tasks no worker has, for show
//	remove.go    delete, prune
//	care.go      orchestrators, workers, partitions, task queues, recover
//	loglevel.go  log-level
//	doctor.go    doctor
//	check.go     check
//	deadletters.go  dead letters
//	schedules.go schedules
//	services.go  dev, orchestrator, worker, migrate, as in any program made with package app
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // schedules have zones, and the machine may know none

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/columns"
	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/version"
	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The exit codes.
const (
	succeeded   = 0
	failed      = 1
	misused     = 2 // nothing was done, because the arguments mean nothing
	notFound    = 3 // there is no such instance, execution, schedule, worker or dead letter
	ended       = 4 // the instance waited for, or to be started, has not completed, or is of another orchestration
	unavailable = 5 // NATS cannot be reached, or no orchestrator answers, or none of them reaches its database
	timeIsOver  = 6
	violated    = 7 // check has found something
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(client.TraceFrom(ctx, os.Getenv), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is one call of the program: its input and output, its settings, and its connection. The
// groups of commands share it.
type cli struct {
	printer
	in io.Reader

	settings connection
	timeout  time.Duration
	bus      *natsbroker.Bus // when it was asked for
	client   *client.Client  // on the bus
}

// run executes the command of the arguments, and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, problems io.Writer) int {
	c := &cli{in: in,
		printer: printer{out: out, problems: problems, terminal: isTerminal(problems), now: time.Now}}
	return c.run(ctx, args)
}

func (c *cli) run(ctx context.Context, args []string) int {
	written := &output{to: printable.To(c.out)}
	c.out, c.screen, c.problems = written, c.problems, printable.To(c.problems)
	root := c.root()
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(helpOutput{written})
	root.SetErr(c.problems)
	command, err := root.ExecuteContextC(ctx)
	if c.client != nil {
		if e := errors.Join(c.client.Close(), c.bus.Close()); err == nil && e != nil {
			err = e
		}
	}
	if err == nil && written.err != nil {
		err = fmt.Errorf("write output: %w", written.err)
	}
	if err == nil {
		return succeeded
	}
	code, hint := explain(err, command)
	var there *orchestration.ExistsError
	if errors.As(err, &there) { // its text names options of Go, the hint those of the command
		err = fmt.Errorf("instance %q is already there (%s)", there.Instance,
			cmp.Or(there.Status, "its status is unknown"))
	}
	if errors.Is(err, broker.ErrNoStream) {
		err = fmt.Errorf("no stream of NATS takes messages with the prefix %q", c.settings.prefix)
	}
	if code == unavailable && errors.Is(err, broker.ErrNoResponders) {
		hint = unanswered(c.settings.prefix) + ": " + hint
	}
	fmt.Fprintf(c.problems, "%s: %s\n", command.CommandPath(), printable.Below(err.Error(), "  "))
	if hint != "" {
		fmt.Fprintln(c.problems, hint)
	}
	return code
}

const about = `Rondo runs Go code that must not be lost half-way. This is its command line.

The commands reach a running system over NATS; only "check" also reads the database. They find NATS by --nats or $RONDO_NATS_URL, by a context of the nats
command (--nats-context), or by the "dev" that runs in this directory. The default is nats://127.0.0.1:4222.`

const examples = `  rondo dev --demo                                  a whole system in this directory, with an example
  rondo start fulfil '{"sku":"chair","cents":4500,"card":"1111","ship_to":"Bremen"}' --id order-1 --wait
  rondo show order-1                                what it waits for, and why
  rondo history order-1                             what has happened
  rondo list --status failed`

// root has all commands.
func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "rondo", Short: "run and look after durable orchestrations", Long: about, Example: examples,
		SilenceUsage: true, SilenceErrors: true, Version: version.Of("rondo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("there is no command %q%s", args[0], suggestion(cmd, args[0]))
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpTemplate(helpText)
	root.SetUsageTemplate(usageText)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	root.PersistentFlags().StringVarP(&c.output, "output", "o", "text", "the `format` of the output: text or json")
	durationVar(root.PersistentFlags(), &c.timeout, "timeout", 0,
		"time limit of the command; 0 means 15s, and no limit for wait, watch, check and start --wait")
	c.settings.flags(root)
	root.AddGroup(
		&cobra.Group{ID: "people", Title: "Talk to instances:"},
		&cobra.Group{ID: "look", Title: "Look at instances:"},
		&cobra.Group{ID: "care", Title: "Look after the system:"},
		&cobra.Group{ID: "run",
			Title: "Run a system, or a part of it, with the code of an example. Your own program has these, too:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, x := range commands {
			x.GroupID = group
			root.AddCommand(x)
		}
	}
	waits := waitCommands{c}
	starts, messages, looks := startCommands{c, waits}, messageCommands{c}, lookCommands{c}
	system, removals := systemCommands{c}, removeCommands{c}
	add("people", starts.start(), messages.raise(), messages.send(), messages.control("cancel"),
		messages.control("terminate"), messages.control("suspend"), messages.control("resume"), waits.wait())
	add("look", looks.list(), looks.show(), looks.history(), looks.tree(), looks.watch())
	add("care", c.doctor(), c.check(), system.orchestrators(), system.workers(), system.logLevel(),
		system.partitions(), system.taskQueues(), letterCommands{c}.deadLetters(), scheduleCommands{c}.schedules(),
		system.recover(), removals.delete(), removals.prune())
	add("run", services()...)
	root.AddCommand(exitCodes(), c.connecting(root), c.version())
	refuseUnknownHelp(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := emptyFlags(cmd.Flags()); err != nil {
			return err
		}
		if c.output != "text" && c.output != "json" {
			return misuse("--output %q is neither text nor json", c.output)
		}
		if c.timeout < 0 {
			return misuse("--timeout %v: want 0 or more", c.timeout)
		}
		return nil
	}
	return root
}

// mayBeEmpty has the flags whose empty value is an ordinary one: no reason, and the first page.
var mayBeEmpty = []string{"reason", "cursor"}

// emptyFlags returns an error if flags were given an empty value: --id "$ORDER" without the
// variable must not start an instance with an ID that is made up. [settings.Read] checks the flags
// of settings.
func emptyFlags(flags *pflag.FlagSet) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		if _, isSetting := f.Value.(*said); isSetting || slices.Contains(mayBeEmpty, f.Name) {
			return
		}
		empty := f.Value.String() == ""
		if list, is := f.Value.(pflag.SliceValue); is {
			empty = !slices.ContainsFunc(list.GetSlice(), func(v string) bool { return v != "" })
		}
		if empty {
			errs = append(errs, settings.EmptyFlag(f.Name))
		}
	})
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

func exitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The codes with which rondo exits", Long: `The codes with which rondo exits:

  0  the command succeeded
  1  the command failed
  2  the arguments or settings are invalid; the command did nothing
  3  the instance, execution, schedule, worker or dead letter does not exist
  4  the instance failed, was cancelled or was terminated; or another orchestration has its id
  5  NATS cannot be reached or has no streams of this prefix, no orchestrator answers, or the orchestrators do not reach their database
  6  the time limit (--timeout) expired
  7  rondo check found violations`}
}

// connecting is the help topic about the flags that other help leaves out.
func (c *cli) connecting(root *cobra.Command) *cobra.Command {
	flags := pflag.NewFlagSet("connecting", pflag.ContinueOnError)
	for _, s := range c.settings.table {
		f := *root.PersistentFlags().Lookup(s.Name)
		f.Hidden = false
		flags.AddFlag(&f)
	}
	return &cobra.Command{Use: "connecting", Short: "The flags with which all commands connect to NATS",
		Args: exactly(), Long: "The flags with which all commands connect to NATS. Each can also stand in the " +
			"variable beside it, in the file of --config, or in a context of the nats command (--nats-context).",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.out, "%s\n\n%s\n", columns.Paragraphs(cmd.Long), flagRows(flags))
			return err
		}}
}

// usageError says that the arguments mean nothing.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exactly checks how many arguments there are, and names those that are missing.
func exactly(names ...string) cobra.PositionalArgs {
	return between(len(names), names...)
}

// between is exactly, where those after the first few may be left out.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return misuse("%s is missing: %s", names[len(args)], usage(cmd))
		}
		if len(args) > len(names) {
			return misuse("unexpected argument %q; usage: %s", args[len(names)], usage(cmd))
		}
		return nil
	}
}

// instanceID wants one argument, the id of an instance.
func instanceID(cmd *cobra.Command, args []string) error {
	if err := exactly("INSTANCE")(cmd, args); err != nil {
		return err
	}
	return checkIDs(args...)
}

// checkIDs checks the ids of instances before a command connects: with an invalid one, it does
// nothing.
func checkIDs(ids ...string) error {
	for _, id := range ids {
		if err := events.CheckInstance(id); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// usage is how a command is written, with its arguments.
func usage(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " " + cmd.Use }

// explain gives the exit code of an error, and a hint at the remedy.
func explain(err error, cmd *cobra.Command) (code int, hint string) {
	var usage usageError
	var exit endedError
	var existed existedError
	var other otherError
	var drop dropped
	var found violations
	var pending notYet
	switch {
	case errors.As(err, &drop):
		return drop.code, drop.hint
	case errors.As(err, &found):
		return violated, ""
	case errors.As(err, &usage):
		return misused, "`" + strings.TrimSpace(cmd.CommandPath()+" --help") + "` says more"
	case errors.As(err, &exit), errors.As(err, &existed), errors.As(err, &other),
		errors.Is(err, orchestration.ErrOtherOrchestration):
		return ended, ""
	case errors.Is(err, devdir.ErrNotRunning):
		return unavailable, "start your program with `dev` again, or say where NATS is with --nats or " +
			"$RONDO_NATS_URL, or with --dir which directory `dev` runs in"
	case errors.Is(err, errNotConnected):
		return unavailable, "start a system with `rondo dev`, or say where NATS is with --nats or $RONDO_NATS_URL, " +
			"or with --dir which directory `dev` runs in"
	case errors.Is(err, broker.ErrNoResponders):
		return unavailable, answersHint
	case errors.As(err, &pending):
		return notFound, pending.hint
	case errors.Is(err, client.ErrNoInstance):
		return notFound, "`rondo list` lists what there is; what was started a moment ago, or with --delay " +
			"or --at for later, may not have been taken up yet"
	case errors.Is(err, client.ErrNoExecution), errors.Is(err, client.ErrNoSchedule):
		return notFound, ""
	case errors.Is(err, errNoneChecked):
		return notFound, "`rondo list` with the same flags lists what there is"
	case errors.Is(err, errNoWorker), errors.Is(err, errNoProcess):
		return notFound, "`rondo workers` lists those that answer"
	case errors.Is(err, broker.ErrNoLetter):
		return notFound, "`rondo deadletters` lists what there is"
	case errors.Is(err, broker.ErrNoStream):
		return unavailable, "more time does not help: is --prefix that of the system? If it is, `migrate --streams`, " +
			"or an orchestrator that starts, creates the streams"
	case errors.Is(err, context.DeadlineExceeded):
		return timeIsOver, "--timeout gives it more time"
	case isAway(err):
		return unavailable, "the orchestrators do not reach their database: is it running? What was sent waits " +
			"meanwhile; `rondo doctor` says more"
	case errors.Is(err, orchestration.ErrExists):
		return failed, "choose another --id, or --on-conflict restart (if it has ended) or replace (terminates it " +
			"if it runs)"
	case errors.Is(err, client.ErrRunning):
		return failed, "`rondo cancel` or `rondo terminate` ends it; `rondo delete --force` terminates and deletes it"
	}
	return failed, ""
}

// isAway reports whether the orchestrator that answered could not reach its database.
func isAway(err error) bool {
	var e *history.Error
	return errors.As(err, &e) && e.Op == "ask" && e.Class == history.Retry
}

// suggestion names the command that the user may have meant.
func suggestion(cmd *cobra.Command, name string) string {
	var names []string
	for _, x := range cmd.Commands() {
		names = append(names, x.Name())
	}
	return settings.DidYouMean(name, names)
}

// refuseUnknownHelp has help refuse a command that does not exist. Cobra would explain the last one
// that it knows.
func refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		run := help.Run
		help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
			if found, rest, err := root.Find(args); err == nil && len(rest) > 0 {
				return misuse("there is no command %q%s", strings.Join(args, " "), suggestion(found, rest[0]))
			}
			run(cmd, args)
			return nil
		}
	}
}

func (c *cli) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Say which build this is", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			return c.done(struct {
				Version string `json:"version"`
			}{version.Of("rondo")}, "%s", version.Of("rondo"))
		}}
}
