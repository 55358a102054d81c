package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// takenWithin is how long a command waits for the outcome of a message. The message is stored by
// then, and the instance takes it sooner or later.
const takenWithin = 3 * time.Second

// dropped is the error about a message of which nothing came.
type dropped struct {
	instance, why, hint string
	code                int
}

func (e dropped) Error() string { return e.instance + " " + e.why }

// deliver sends a message and prints its outcome.
func (c messageCommands) deliver(ctx context.Context, command string, m events.Message, said string) error {
	m.ID = cmp.Or(m.ID, c.client.NewID())
	wait, cancel := context.WithTimeout(ctx, takenWithin)
	r, err := c.client.Deliver(wait, m)
	late := wait.Err() != nil && ctx.Err() == nil
	cancel()
	if late && err != nil {
		// Under the same id it is stored once, whether or not it is already.
		if err := c.client.Publish(ctx, m); err != nil {
			return err
		}
		return c.notTaken(ctx, command, m)
	}
	if err != nil {
		return err
	}
	control, controls := m.Content.(*events.Control)
	switch reason := round.Reason(r.Reason); {
	case r.Taken && r.Detail != "":
		said += "; " + r.Detail
	case r.Taken && controls && control.How == events.Cancel:
		said += cancelLater(m.Instance, client.Status(r.Status))
	case r.Taken, reason == round.Duplicate:
	case reason == round.NoChange, reason == round.HasEnded && controls:
		said = fmt.Sprintf("%s: nothing is to be done: it is %s", m.Instance, r.Status)
	case reason == round.UnknownInstance:
		err := c.notTakenUp(ctx, m.Instance, fmt.Errorf("instance %q: %w", m.Instance, client.ErrNoInstance))
		if _, ok := m.Content.(*events.EventRaised); ok {
			err = fmt.Errorf("%w, so the event was dropped", err)
		}
		return err
	case reason == round.NoWaiter:
		return c.noWaiter(ctx, m)
	case reason == round.WrongType:
		return dropped{m.Instance, "refused it: " + r.Detail, "", failed}
	case reason == round.HasEnded:
		return dropped{m.Instance, "has ended: it is " + r.Status, "", failed}
	default:
		return dropped{m.Instance, "did not take it: " + whyNot(r), "", failed}
	}
	return c.done(sent{m.Instance, command}, "%s", said)
}

// noWaiter is the error about an event that its instance does not wait for. It names the events
// that the instance does wait for, since the name may be misspelt.
func (c messageCommands) noWaiter(ctx context.Context, m events.Message) error {
	why := "does not wait for this event now, so it was dropped"
	w, err := c.client.Instances().Waiting(ctx, m.Instance)
	if e, ok := m.Content.(*events.EventRaised); ok && err == nil {
		var names []string
		for _, x := range w.Waits {
			if x.Kind == client.WaitsForEvent && !slices.Contains(names, x.Name) {
				names = append(names, x.Name)
			}
		}
		if len(names) > 0 {
			why += "; it waits for " + strings.Join(names, ", ") + settings.DidYouMean(e.Name, names)
		}
	}
	return dropped{m.Instance, why,
		"`rondo show` tells what it waits for; a message in a mailbox (`rondo send`) would have been kept", failed}
}

// cancelLater says what a cancellation waits for, if the code of its instance does not run.
func cancelLater(id string, s client.Status) string {
	if s == client.Suspended {
		return "; it is suspended: it takes the cancellation after `rondo resume " + positional(id) + "`"
	}
	if s == client.Halted {
		return "; it is halted: it takes the cancellation when code that fits is deployed, and `rondo terminate " +
			positional(id) + "` ends it at once"
	}
	return ""
}

func whyNot(r orchestration.Receipt) string {
	if r.Detail != "" {
		return r.Detail
	}
	return r.Reason
}

// notTaken reports a message that no instance has taken yet.
func (c messageCommands) notTaken(ctx context.Context, command string, m events.Message) error {
	if _, err := c.client.Instances().Get(ctx, m.Instance); errors.Is(err, client.ErrNoInstance) {
		missing := c.notTakenUp(ctx, m.Instance, fmt.Errorf("instance %q: %w", m.Instance, client.ErrNoInstance))
		return fmt.Errorf("the message was sent, but %w; if the instance starts within a minute, it gets the "+
			"message some seconds later", missing)
	}
	return c.done(sent{m.Instance, command},
		"the message was sent; no orchestrator has processed it yet")
}
