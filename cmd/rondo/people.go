package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// endedError is how an instance has ended that did not complete.
type endedError struct {
	instance string
	err      *events.Error
}

func (e endedError) Error() string { return fmt.Sprintf("%s has ended: %v", e.instance, e.err) }

// outcome is the end of an instance as JSON.
type outcome struct {
	Instance string         `json:"instance"`
	Output   events.Payload `json:"output,omitempty"`
	Error    *events.Error  `json:"error,omitempty"`
}

// told prints how an instance has ended. It is an error if it did not complete.
func (c *cli) told(instance string, o orchestration.Outcome) error {
	if c.asJSON() {
		if err := c.json(outcome{instance, o.Output, o.Error}); err != nil {
			return err
		}
	} else if len(o.Output) > 0 {
		if err := c.print("%s", o.Output); err != nil {
			return err
		}
	}
	if o.Error != nil {
		return endedError{instance, o.Error}
	}
	return nil
}

// starting are the flags of start.
type starting struct {
	id, version, request, conflict string
	delay                          time.Duration
	at                             string
	attributes                     map[string]string
	wait, ignoreUnknown            bool
}

func (c *cli) start() *cobra.Command {
	var f starting
	cmd := &cobra.Command{
		Use: "start ORCHESTRATION [INPUT]", Short: "Start an instance of an orchestration",
		Long: `Start an instance of an orchestration.

The input is JSON; @file reads it from a file, and - from the standard input. The start is kept by NATS when this returns, whether an
orchestrator runs or not. With --wait, it waits until the instance has ended, and prints its output.

The input is checked: a missing one, or a field that the orchestration does not know, fails the instance at once (--ignore-unknown-fields accepts them).

If there is an instance of that id already, nothing changes, a line says so, and --wait waits for that one. --on-conflict says otherwise:

  use      keep the one that is there (this is what happens if nothing is said)
  reject   fail
  restart  start afresh what has ended, and keep what runs
  replace  terminate what runs, and start afresh`,
		Example: `  rondo start fulfil '{"sku":"chair","cents":4500,"card":"1111","ship_to":"Bremen"}' --id order-1 --wait
  rondo start report @input.json --delay 1h --attribute region=eu
  rondo start nightly --at 2027-01-01T03:00:00Z`,
		Args: between(1, "ORCHESTRATION", "INPUT"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.id, "id", "", "the `id` of the instance; if nobody says it, one is made")
	flags.StringVar(&f.version, "orchestration-version", "",
		"the `version` of the orchestration; the newest one if nobody says it")
	flags.StringVar(&f.request, "request-id", "", "an `id` that makes this the same start when it is sent again")
	flags.StringVar(&f.conflict, "on-conflict", "use",
		"the `policy` for an ID that exists: use, reject, restart or replace")
	flags.DurationVar(&f.delay, "delay", 0, "start it only after this `time`")
	flags.StringVar(&f.at, "at", "", "start it at this `time`, like 2027-01-01T03:00:00Z")
	flags.StringToStringVar(&f.attributes, "attribute", nil,
		"what it can be found by, as `key=value`; may be said more than once")
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
		usual := patience
		if f.wait {
			usual = 0
		}
		return c.connected(cmd, usual, func(ctx context.Context) error {
			if f.delay > 0 || f.at != "" { // nobody decides it now
				return c.startOne(ctx, args[0], input, f.wait, opts)
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
		return nil, misuse("--at and --delay: say one of the two")
	case f.at != "":
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, misuse("--at %q is no time like 2027-01-01T03:00:00Z", f.at)
		}
		opts = append(opts, orchestration.At(at))
	case f.delay < 0:
		return nil, misuse("--delay %v is in the past", f.delay)
	case f.delay > 0:
		opts = append(opts, orchestration.Delay(f.delay))
	}
	return opts, nil
}

func (c *cli) startOne(ctx context.Context, name string, input events.Payload, wait bool,
	opts []orchestration.StartOption) error {
	started, err := c.client.Start(ctx, name, input, opts...)
	if err != nil {
		return err
	}
	c.warnUnknown(ctx, name)
	return c.begun(ctx, started, wait, orchestration.Receipt{})
}

// startDecided starts an instance and tells what an orchestrator has decided, if one does so soon.
// The start is kept in any case.
func (c *cli) startDecided(ctx context.Context, name string, input events.Payload, f *starting,
	opts []orchestration.StartOption) error {
	if f.request == "" { // under the same id it is stored once, also when it is sent again below
		id := c.client.NewID()
		opts = append(opts, orchestration.RequestID(id))
		if f.id == "" {
			opts = append(opts, orchestration.ID(id))
		}
	}
	known, answered := c.warnUnknown(ctx, name)
	if answered && !known && f.conflict != "reject" {
		return c.startUndecided(ctx, name, input, f, opts)
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
		return endedError{started.ID, &events.Error{Kind: events.Application,
			Message: r.Detail + "; --on-conflict restart starts it again, with another input"}}
	case err != nil && soon.Err() != nil && ctx.Err() == nil:
		return c.startUndecided(ctx, name, input, f, opts)
	case err != nil:
		return err
	}
	return c.begun(ctx, started, f.wait, r)
}

// decidedWithin is for how long the decision about a start is waited for if an orchestrator knows
// its code.
const decidedWithin = 10 * time.Second

// startUndecided starts an instance about which nobody decides at the moment.
func (c *cli) startUndecided(ctx context.Context, name string, input events.Payload, f *starting,
	opts []orchestration.StartOption) error {
	started, err := c.client.Start(ctx, name, input, opts...)
	if err != nil {
		return err
	}
	return c.begun(ctx, started, f.wait, orchestration.Receipt{})
}

// begun tells which instance was started, or was there already, and waits for its end if that is
// wanted.
func (c *cli) begun(ctx context.Context, started client.Started, wait bool, r orchestration.Receipt) error {
	existed := r.Reason == string(round.Exists)
	if existed {
		fmt.Fprintf(c.problems,
			"%s was there already (%s); nothing was started, and the input was not used; --on-conflict says what "+
				"else to do\n", started.ID, r.Status)
	}
	if wait {
		return c.ending(ctx, started.ID, started.Wait)
	}
	s := start{Instance: started.ID}
	if existed {
		s.Existed, s.Status = true, r.Status
	}
	return c.done(s, "%s", started.ID)
}

// start is what was started, as JSON.
type start struct {
	Instance string `json:"instance"`
	// Existed says that the instance was there already, so that nothing was started, and Status how
	// it stands.
	Existed bool   `json:"existed,omitempty"`
	Status  string `json:"status,omitempty"`
}

// warnUnknown says so if no orchestrator knows what was started: it may be misspelt. It reports
// whether one knows it, and whether any answered.
func (c *cli) warnUnknown(ctx context.Context, name string) (known, answered bool) {
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := c.client.System(ask)
	if err != nil || len(s.Orchestrators) == 0 {
		return false, false // it waits in NATS until there is one
	}
	var names []string
	for _, o := range s.Orchestrators {
		for x := range o.Code {
			names = append(names, x)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if slices.Contains(names, name) {
		return true, true
	}
	fmt.Fprintf(c.problems, "no orchestrator that is running knows %q, so it waits for one that does%s; known are %s\n",
		name, app.DidYouMean(name, names), strings.Join(names, ", "))
	return false, true
}

// ending waits for the end of an instance and tells of it.
func (c *cli) ending(ctx context.Context, id string, wait func(context.Context) (orchestration.Outcome, error)) error {
	var o orchestration.Outcome
	err := c.showing(ctx, id, func() (err error) {
		o, err = wait(ctx)
		return err
	})
	switch {
	case err == nil:
		return c.told(id, o)
	case ctx.Err() == nil:
		return err
	}
	return notEnded{id + " has not ended: " + c.stands(id), ctx.Err()}
}

// notEnded says how something stands that was not waited for any longer, and why not.
type notEnded struct {
	stands string
	why    error
}

func (e notEnded) Error() string { return e.stands }
func (e notEnded) Unwrap() error { return e.why }

// stands says how an instance stands, when there is no more time to wait for it.
func (c *cli) stands(id string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	w, err := c.client.Waiting(ctx, id)
	if errors.Is(err, history.ErrNoInstance) {
		return c.notTakenUp(ctx, id, history.ErrNoInstance).Error()
	}
	if err != nil {
		return "how it stands could not be found out"
	}
	said := []string{"it is " + string(w.Status)}
	for i, x := range w.Waits {
		if i == 3 {
			said = append(said, fmt.Sprintf("and for %d others", len(w.Waits)-i+w.More))
			break
		}
		said = append(said, "waits for "+x.What)
	}
	return strings.Join(append(said, w.Notes...), "; ")
}

// sent is what was done with an instance, as JSON.
type sent struct {
	Instance string `json:"instance"`
	Sent     string `json:"sent"`
}

func (c *cli) raise() *cobra.Command {
	return c.sending(&cobra.Command{
		Use: "raise INSTANCE EVENT [DATA]", Short: "Raise an event that an instance waits for",
		Long: `Raise an event that an instance waits for. An event for which it does not wait just then is dropped; a message in a queue (rondo enqueue) is kept.

The data is JSON; @file reads it from a file, and - from the standard input.`,
		Example: `  rondo raise order-2 approve '{"by":"ann","ok":true}'`,
		Args:    between(2, "INSTANCE", "EVENT", "DATA"),
	}, "the event was sent", func(name string, data events.Payload) (events.Content, error) {
		return &events.EventRaised{Name: name, Data: data}, events.CheckName("event", name)
	})
}

func (c *cli) enqueue() *cobra.Command {
	return c.sending(&cobra.Command{
		Use: "enqueue INSTANCE QUEUE [DATA]", Short: "Put a message into a queue of an instance",
		Long: `Put a message into a queue of an instance. It stays there until the instance takes it.

The data is JSON; @file reads it from a file, and - from the standard input.`,
		Example: `  rondo enqueue basket-7 items '{"sku":"chair"}'`,
		Args:    between(2, "INSTANCE", "QUEUE", "DATA"),
	}, "the message was sent", func(name string, data events.Payload) (events.Content, error) {
		return &events.QueueSent{Queue: name, Data: data}, events.CheckName("queue", name)
	})
}

func (c *cli) sending(cmd *cobra.Command, said string,
	content func(name string, data events.Payload) (events.Content, error)) *cobra.Command {
	var id string
	cmd.Flags().StringVar(&id, "message-id", "", "an `id` for the message: sent again under it, it counts once")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		data, err := c.payload("data", args, 2)
		if err != nil {
			return err
		}
		x, err := content(args[1], events.Canonical(data))
		if err != nil {
			return usageError{err}
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			return c.deliver(ctx, cmd.Name(), events.Message{ID: id, Instance: args[0], Content: x}, said)
		})
	}
	return cmd
}

// controls say what becomes of an instance.
var controls = map[string]struct {
	how               events.How
	short, long, said string
}{
	"cancel": {events.Cancel, "Ask an instance to stop; it may clean up first",
		"Ask an instance to stop. What it waits for ends, and its code may clean up, undo what it has done, and " +
			"end. Its children are asked, too.", "it is asked to stop"},
	"terminate": {events.Terminate, "End an instance at once",
		"End an instance at once. Its code gets no chance to clean up; `rondo cancel` gives it one.",
		"it is told to end"},
	"suspend": {events.Suspend, "Suspend an instance until it is resumed",
		"Suspend an instance. What comes for it is kept until `rondo resume`.", "it is told to suspend"},
	"resume": {events.Resume, "Resume a suspended instance",
		"Resume a suspended instance. It gets all that has come meanwhile.", "it is told to resume"},
}

func (c *cli) control(name string) *cobra.Command {
	x := controls[name]
	var reason string
	cmd := &cobra.Command{Use: name + " INSTANCE...", Short: x.short, Long: x.long,
		Example: "  rondo " + name + " order-2 --reason 'no longer wanted'"}
	cmd.Flags().StringVar(&reason, "reason", "", "the `text` that the history has as reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return misuse("INSTANCE is missing: rondo %s", cmd.Use)
		}
		if len(reason) > events.MaxReason {
			return misuse("the reason has %d bytes; %d are the most: say it in a sentence", len(reason),
				events.MaxReason)
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			var errs []error
			for _, id := range args {
				errs = append(errs, c.deliver(ctx, name, events.Message{Instance: id,
					Content: &events.Control{How: x.how, Reason: reason}}, id+": "+x.said))
			}
			return errors.Join(errs...)
		})
	}
	return cmd
}

func (c *cli) wait() *cobra.Command {
	return &cobra.Command{
		Use: "wait INSTANCE", Short: "Wait until an instance has ended, and print its output",
		Long: strings.TrimSpace(`
Wait until an instance has ended, and print its output. An instance that does not exist yet is waited for, too, and so is a system that does not run yet, for a minute.
It exits with 4 if the instance has ended but did not complete, and with 6 if it has not ended within --timeout.`),
		Example: "  rondo wait order-2 --timeout 1m", Args: exactly("INSTANCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onceThere(cmd.Context(), func() error {
				return c.connected(cmd, 0, func(ctx context.Context) error {
					return c.ending(ctx, args[0], func(ctx context.Context) (orchestration.Outcome, error) {
						return c.client.Wait(ctx, args[0])
					})
				})
			})
		},
	}
}
