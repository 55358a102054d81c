package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// startCommands has the command that starts instances. With --wait, it does what wait does.
type startCommands struct {
	*cli
	waits waitCommands
}

// starting are the flags of start.
type starting struct {
	id, version, request, conflict string
	delay                          time.Duration
	at                             string
	attributes                     map[string]string
	wait, ignoreUnknown            bool
}

func (c startCommands) start() *cobra.Command {
	var f starting
	cmd := &cobra.Command{
		Use: "start ORCHESTRATION [INPUT]", Short: "Start an instance of an orchestration",
		Long: `Start an instance of an orchestration.

The input is JSON; @file reads it from a file, and - from the standard input. When the command returns, NATS has stored the start, even if no orchestrator runs.
With --wait, the command waits until the instance has ended, and prints its output.

The input is checked: a missing one, or a field that the orchestration does not know, fails the instance at once (--ignore-unknown-fields accepts them).

If an instance with this id exists, the command starts nothing and says so; --wait waits for the existing instance. The command exits with 4 if that instance has
ended without completing, or belongs to another orchestration. --on-conflict changes this:

  use      keep the existing instance (default)
  reject   fail
  restart  start an ended instance afresh, and keep a running one
  replace  terminate a running instance; start afresh in either case`,
		Example: `  rondo start fulfil '{"sku":"chair","cents":4500,"card":"1111","ship_to":"Bremen"}' --id order-1 --wait
  rondo start report @input.json --delay 1h --attribute region=eu
  rondo start nightly --at 2027-01-01T03:00:00Z`,
		Args: between(1, "ORCHESTRATION", "INPUT"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.id, "id", "", "the `id` of the instance; by default, one is generated")
	flags.StringVar(&f.version, "orchestration-version", "",
		"the `version` of the orchestration; the default is the newest one")
	flags.StringVar(&f.request, "request-id", "", "an `id` that makes this the same start when it is sent again")
	flags.StringVar(&f.conflict, "on-conflict", "use",
		"the `policy` for an ID that exists: use, reject, restart or replace")
	durationVar(flags, &f.delay, "delay", 0, "start it only after this `time`")
	flags.StringVar(&f.at, "at", "", "start it at this `time`, like 2027-01-01T03:00:00Z")
	flags.Var(attributeFlag{&f.attributes}, "attribute",
		"an attribute by which clients find the instance, as `key=value`; may be repeated")
	flags.BoolVar(&f.ignoreUnknown, "ignore-unknown-fields", false,
		"accept fields of the input that the orchestration does not know")
	flags.BoolVar(&f.wait, "wait", false, "wait until it has ended, and print its output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		input, err := c.payload("input", args, 1)
		if err != nil {
			return err
		}
		opts, err := f.options()
		if err != nil {
			return err
		}
		if err := orchestration.CheckStart(args[0], input, c.now(), opts...); err != nil {
			return usageError{err}
		}
		usual := patience
		if f.wait {
			usual = 0
		}
		return c.connected(cmd, usual, func(ctx context.Context) error {
			if f.delay > 0 || f.at != "" { // it is decided when it is due
				return c.startOne(ctx, args[0], f.version, input, f.wait, opts)
			}
			return c.startDecided(ctx, args[0], input, &f, opts)
		})
	}
	return cmd
}

func (f *starting) options() (opts []orchestration.StartOption, err error) {
	if f.id != "" {
		opts = append(opts, orchestration.ID(f.id))
	}
	if f.version != "" {
		opts = append(opts, orchestration.Version(f.version))
	}
	if f.request != "" {
		opts = append(opts, orchestration.RequestID(f.request))
	}
	if len(f.attributes) > 0 {
		opts = append(opts, orchestration.Attributes(f.attributes))
	}
	if f.ignoreUnknown {
		opts = append(opts, orchestration.IgnoreUnknownFields())
	}
	switch f.conflict {
	case "use":
		opts = append(opts, orchestration.UseExisting())
	case "reject":
		opts = append(opts, orchestration.RejectExisting())
	case "restart":
		opts = append(opts, orchestration.RestartFinished())
	case "replace":
		opts = append(opts, orchestration.ReplaceRunning())
	default:
		return nil, misuse("--on-conflict %q is none of use, reject, restart and replace", f.conflict)
	}
	switch {
	case f.at != "" && f.delay != 0:
		return nil, misuse("--at and --delay are mutually exclusive")
	case f.at != "":
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, misuse("--at %q is not a time like 2027-01-01T03:00:00Z", f.at)
		}
		opts = append(opts, orchestration.At(at))
	case f.delay < 0:
		return nil, misuse("--delay %v is in the past", f.delay)
	case f.delay > 0:
		opts = append(opts, orchestration.Delay(f.delay))
	}
	return opts, nil
}

func (c startCommands) startOne(ctx context.Context, name, version string, input codec.Payload, wait bool,
	opts []orchestration.StartOption) error {
	started, err := c.client.Start(ctx, name, input, opts...)
	if err != nil {
		return err
	}
	c.warnUnknown(ctx, name, version)
	return c.begun(ctx, name, started, wait, orchestration.Receipt{})
}

// startDecided starts an instance and prints the decision of an orchestrator, if one decides soon.
// NATS keeps the start in any case.
func (c startCommands) startDecided(ctx context.Context, name string, input codec.Payload, f *starting,
	opts []orchestration.StartOption) error {
	made := ""
	if f.request == "" { // under the same id it is stored once, also when it is sent again below
		made = c.client.NewID()
		opts = append(opts, orchestration.RequestID(made))
		if f.id == "" {
			opts = append(opts, orchestration.ID(made))
		}
	}
	known, answered := c.warnUnknown(ctx, name, f.version)
	if answered && !known && f.id != "" && f.conflict == "use" {
		if err := c.other(ctx, f.id, name); err != nil {
			return err
		}
	}
	if answered && !known && f.conflict != "reject" {
		return c.startUndecided(ctx, name, input, f, opts)
	}
	if !answered && f.wait && f.conflict != "reject" {
		// Waiting would not end if no stream takes the start. It is stored once, with what follows.
		stored, cancel := context.WithTimeout(ctx, patience)
		_, err := c.client.Start(stored, name, input, opts...)
		cancel()
		if err != nil {
			return err
		}
	}
	var r orchestration.Receipt
	soon := ctx
	if !f.wait && f.conflict != "reject" { // otherwise there is nothing to do before it is decided
		within := takenWithin
		if known {
			within = decidedWithin
		}
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	started, err := c.client.Start(soon, name, input, append(opts, orchestration.ReceiptTo(&r))...)
	switch {
	case r.Reason == string(round.WrongInput):
		return endedError{started.ID, &failure.Error{Kind: failure.Application,
			Message: r.Detail + "; --on-conflict restart starts it again, with another input"}}
	case err != nil && soon.Err() != nil && ctx.Err() == nil:
		started, err := c.client.Start(ctx, name, input, opts...) // it may not be stored yet
		if err != nil {
			return err
		}
		if known {
			c.tellUndecided(ctx, cmp.Or(f.id, made))
		}
		return c.begun(ctx, name, started, f.wait, orchestration.Receipt{})
	case err != nil && f.wait && ctx.Err() != nil && started.ID != "" && !isAway(err) &&
		!errors.Is(err, broker.ErrNoStream):
		return c.waits.notEnded(ctx, started.ID)
	case err != nil:
		return startUnread(cmp.Or(f.id, made), err)
	}
	return c.begun(ctx, name, started, f.wait, r)
}

// startUnread adds the id of a start to the error of a read after it: NATS has the start, and the
// command starts another instance if the user repeats it without the id.
func startUnread(id string, err error) error {
	if e, ok := errors.AsType[*history.Error](err); !ok || e.Op == "publish" || id == "" {
		return err
	}
	return fmt.Errorf("NATS has the start of %s, and its instance cannot be read: %w; `rondo wait %s` waits for it, "+
		"and `--id %s` starts it once if you repeat the command", id, err, positional(id), argument(id))
}

// decidedWithin is for how long the decision about a start is waited for if an orchestrator knows
// its code.
const decidedWithin = 10 * time.Second

// tellUndecided says why an orchestrator that has the code of a start does not decide it.
func (c startCommands) tellUndecided(ctx context.Context, id string) {
	why := "`rondo show " + positional(id) + "` tells more later"
	if id == "" {
		why = "`rondo list` tells later what there is"
	} else if pending, ok := errors.AsType[notYet](c.notTakenUp(ctx, id, client.ErrNoInstance)); ok {
		why = pending.why + "; " + pending.hint
	}
	fmt.Fprintf(c.problems, "NATS has the start, and no orchestrator has decided it within %v: %s\n", decidedWithin,
		why)
}

// startUndecided starts an instance without waiting for the decision of an orchestrator.
func (c startCommands) startUndecided(ctx context.Context, name string, input codec.Payload, f *starting,
	opts []orchestration.StartOption) error {
	started, err := c.client.Start(ctx, name, input, opts...)
	if err != nil {
		return err
	}
	return c.begun(ctx, name, started, f.wait, orchestration.Receipt{})
}

// begun prints which instance was started, or existed already. If wait is set, it waits for the
// end.
func (c startCommands) begun(ctx context.Context, name string, started client.Started, wait bool,
	r orchestration.Receipt) error {
	existed := r.Reason == string(round.Exists)
	if existed {
		if err := c.other(ctx, started.ID, name); err != nil {
			return err
		}
	}
	if existed {
		fmt.Fprintf(c.problems, "%s was there already (%s); nothing was started, and the input was not used; %s\n",
			started.ID, r.Status, conflictHint(client.Status(r.Status)))
	}
	if wait {
		return c.waits.ending(ctx, started.ID, started.Wait)
	}
	s := start{Instance: started.ID}
	if existed {
		s.Existed, s.Status = true, r.Status
	}
	if err := c.done(s, "%s", started.ID); err != nil {
		return err
	}
	if status := client.Status(r.Status); existed && status.Ended() && status != client.Completed {
		return existedError{started.ID, status} // nothing will come of it
	}
	return nil
}

// other returns an error if the instance existed before, and its orchestration has another name
// than the start.
func (c startCommands) other(ctx context.Context, id, name string) error {
	i, err := c.client.Instances().Get(ctx, id)
	if err != nil || (orchestration.Outcome{Orchestration: i.Name, Execution: i.Execution}).Of(id, name) == nil {
		//lint:ignore nilerr the instance may be deleted meanwhile, and the wait finds it out, too
		return nil
	}
	return otherError{fmt.Errorf("%s was there already, as %s (%s); nothing was started: choose another --id, or %s",
		id, i.Name, i.Status, conflictHint(i.Status))}
}

// otherError says that the id of a start belongs to an instance of another orchestration.
type otherError struct{ error }

// conflictHint says how an instance is started in spite of one of its id.
func conflictHint(s client.Status) string {
	if s.Ended() {
		return "--on-conflict restart starts it again"
	}
	return "--on-conflict replace terminates it, and starts it again"
}

// existedError is the error of a start whose id belongs to an instance that has ended without
// completing.
type existedError struct {
	instance string
	status   client.Status
}

func (e existedError) Error() string {
	return fmt.Sprintf("%s was not started: an instance of this id has ended before (%s)", e.instance, e.status)
}

// start is the started instance as JSON.
type start struct {
	Instance string `json:"instance"`
	// Existed says that the instance was there already, so that nothing was started, and Status how
	// it stands.
	Existed bool   `json:"existed,omitempty"`
	Status  string `json:"status,omitempty"`
}

// warnUnknown warns if no orchestrator has the code of an orchestration, or of the version of it
// unless that is "": they may be misspelt. It reports whether one has the code, and whether any
// answered.
func (c startCommands) warnUnknown(ctx context.Context, name, version string) (known, answered bool) {
	all, err := c.registered(ctx)
	if err != nil {
		return false, false // it waits in NATS until there is one
	}
	versions, known := all[name]
	switch {
	case !known:
		names := slices.Sorted(maps.Keys(all))
		fmt.Fprintf(c.problems, "no running orchestrator has orchestration %q (they have %s); the start waits for one "+
			"that has it%s\n", name, strings.Join(names, ", "), settings.DidYouMean(name, names))
	case version != "" && !slices.Contains(versions, version):
		known = false
		fmt.Fprintf(c.problems, "no running orchestrator has orchestration %q version %s (they have %s); the start "+
			"waits for one that has it\n",
			name, version, strings.Join(versions, ", "))
	}
	return known, true
}

// registered returns the versions of each orchestration that running orchestrators have. It is an
// error if none answers.
func (c *cli) registered(ctx context.Context) (map[string][]string, error) {
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := c.client.System().Status(ask)
	if err != nil {
		return nil, err
	}
	if len(s.Orchestrators) == 0 {
		return nil, broker.ErrNoResponders
	}
	all := make(map[string][]string)
	for _, o := range s.Orchestrators {
		for name, versions := range o.Code {
			all[name] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(all[name], versions))))
		}
	}
	return all, nil
}
