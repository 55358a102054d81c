package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// messageCommands has the commands that send events, messages and control messages to an instance.
type messageCommands struct{ *cli }

// sent is a message that was sent to an instance, as JSON.
type sent struct {
	Instance string `json:"instance"`
	Sent     string `json:"sent"`
}

func (c messageCommands) raise() *cobra.Command {
	return c.sending(&cobra.Command{
		Use: "raise INSTANCE EVENT [DATA]", Short: "Raise an event that an instance waits for",
		Long: `Raise an event that an instance waits for. An event for which it does not wait just then is dropped; a message in a mailbox (rondo send) is kept.

The data is JSON; @file reads it from a file, and - from the standard input. It is checked: if it is missing, or has a field that the instance does not know, the
instance refuses it and goes on waiting (--ignore-unknown-fields accepts it).`,
		Example: `  rondo raise order-2 approve '{"by":"ann","ok":true}'`,
		Args:    between(2, "INSTANCE", "EVENT", "DATA"),
	}, "the event was sent", func(name string, data codec.Payload, strict bool) (events.Content, error) {
		return &events.EventRaised{Name: name, Data: data, RefuseUnknown: strict}, events.CheckName("event", name)
	})
}

func (c messageCommands) send() *cobra.Command {
	return c.sending(&cobra.Command{
		Use: "send INSTANCE MAILBOX [DATA]", Short: "Send a message to a mailbox of an instance",
		Long: `Send a message to a mailbox of an instance. It stays there until the instance reads it.

The data is JSON; @file reads it from a file, and - from the standard input. If the instance reads the mailbox just then, the data is checked: if it is missing, or
has a field that the instance does not know, it is refused and becomes a dead letter (--ignore-unknown-fields accepts it).`,
		Example: `  rondo send basket-7 items '{"sku":"chair"}'`,
		Args:    between(2, "INSTANCE", "MAILBOX", "DATA"),
	}, "the message was sent", func(name string, data codec.Payload, strict bool) (events.Content, error) {
		return &events.MailboxMessage{Mailbox: name, Data: data, RefuseUnknown: strict},
			events.CheckName("mailbox", name)
	})
}

func (c messageCommands) sending(cmd *cobra.Command, said string,
	content func(name string, data codec.Payload, strict bool) (events.Content, error)) *cobra.Command {
	var id string
	var ignoreUnknown bool
	cmd.Flags().StringVar(&id, "message-id", "", "an `id` for the message: sent again under it, it counts once")
	cmd.Flags().BoolVar(&ignoreUnknown, "ignore-unknown-fields", false,
		"accept fields that the instance does not know, and no data")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkIDs(args[0]); err != nil {
			return err
		}
		data, err := c.payload("data", args, 2)
		if err != nil {
			return err
		}
		x, err := content(args[1], codec.Canonical(data), !ignoreUnknown)
		if err != nil {
			return usageError{err}
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			return c.deliver(ctx, cmd.Name(), events.Message{ID: id, Instance: args[0], Content: x}, said)
		})
	}
	return cmd
}

// controls are the commands that send control messages to an instance.
var controls = map[string]struct {
	how                       events.How
	short, long, reason, said string
}{
	"cancel": {events.Cancel, "Ask an instance to stop; it may clean up first",
		"Ask an instance to stop. What it waits for ends, and its code may clean up, undo what it has done, and " +
			"end. Its children are asked, too.", "no longer wanted", "cancellation requested"},
	"terminate": {events.Terminate, "End an instance at once",
		"End an instance at once. Its code gets no chance to clean up; `rondo cancel` gives it one.",
		"its code hangs", "termination requested"},
	"suspend": {events.Suspend, "Suspend an instance until it is resumed",
		"Suspend an instance. What comes for it is kept until `rondo resume`.", "the warehouse moves",
		"suspension requested"},
	"resume": {events.Resume, "Resume a suspended instance",
		"Resume a suspended instance. It gets all that has come meanwhile.", "the warehouse has moved",
		"resumption requested"},
}

func (c messageCommands) control(name string) *cobra.Command {
	x := controls[name]
	var reason string
	cmd := &cobra.Command{Use: name + " INSTANCE...", Short: x.short, Long: x.long,
		Example: "  rondo " + name + " order-2 --reason '" + x.reason + "'"}
	cmd.Flags().StringVar(&reason, "reason", "", "the `text` that the history has as reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return misuse("INSTANCE is missing: rondo %s", cmd.Use)
		}
		if err := checkIDs(args...); err != nil {
			return err
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
