package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// waitCommands has the command that waits for the end of an instance.
type waitCommands struct{ *cli }

func (c waitCommands) wait() *cobra.Command {
	return &cobra.Command{
		Use: "wait INSTANCE", Short: "Wait until an instance has ended, and print its output",
		Long: strings.TrimSpace(`
Wait until an instance has ended, and print its output. An instance that does not exist yet is waited for, too, and so is a system that does not run yet, for a minute.
It exits with 4 if the instance has ended but did not complete, and with 6 if it has not ended within --timeout.`),
		Example: "  rondo wait order-2 --timeout 1m", Args: instanceID,
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

// endedError is how an instance has ended that did not complete.
type endedError struct {
	instance string
	err      *failure.Error
}

func (e endedError) Error() string { return fmt.Sprintf("%s has ended: %v", e.instance, e.err) }

// outcome is the end of an instance as JSON.
type outcome struct {
	Instance string         `json:"instance"`
	Output   codec.Payload  `json:"output,omitempty"`
	Error    *failure.Error `json:"error,omitempty"`
}

// told prints how an instance has ended. It is an error if it did not complete.
func (c waitCommands) told(instance string, o orchestration.Outcome) error {
	if c.asJSON() {
		if err := c.json(outcome{instance, o.Output, o.Error}); err != nil {
			return err
		}
	} else if len(o.Output) > 0 {
		if _, err := fmt.Fprintln(c.out, o.Output); err != nil {
			return err
		}
	}
	if o.Error != nil {
		return endedError{instance, o.Error}
	}
	return nil
}

// ending waits for the end of an instance and prints the outcome.
func (c waitCommands) ending(ctx context.Context, id string,
	wait func(context.Context) (orchestration.Outcome, error)) error {
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
	return c.notEnded(ctx, id)
}

// notEnded is the error of a wait that is over before the instance has ended.
func (c waitCommands) notEnded(ctx context.Context, id string) error {
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
	w, err := c.client.Instances().Waiting(ctx, id)
	if errors.Is(err, client.ErrNoInstance) {
		err := c.notTakenUp(ctx, id, client.ErrNoInstance)
		if pending, ok := errors.AsType[notYet](err); ok {
			return err.Error() + "; " + pending.hint
		}
		return err.Error()
	}
	if errors.Is(err, broker.ErrNoResponders) {
		return unanswered(c.settings.prefix) + ": " + answersHint
	}
	if err != nil {
		return "how it stands could not be found out"
	}
	said := []string{"it is " + string(w.Status)}
	for i, x := range w.Waits {
		if i == 3 {
			said = append(said, fmt.Sprintf("and for %s", plural.Count(len(w.Waits)-i+w.More, "other")))
			break
		}
		said = append(said, "waits for "+x.What)
	}
	if w.Status == client.Running {
		if all, err := c.client.System().Processes(ctx); err == nil {
			if why := longRound(all, id, c.now()); why != "" {
				said = []string{"it is " + string(w.Status), why, longRoundHint}
			} else if why := quarantined(all, id, c.now()); why != "" {
				said = []string{"it is " + string(w.Status), why, quarantineHint}
			}
		}
	}
	return strings.Join(append(said, w.Notes...), "; ")
}
