package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
)

// This file explains instances that the database does not have, or that do not change, by what the
// orchestrators answer: the start waits for code, a round does not end, a message is quarantined.

// notYet is the error about an instance that the database does not have yet.
type notYet struct {
	err       error // client.ErrNoInstance with the id
	why, hint string
}

func (e notYet) Error() string { return e.err.Error() + " yet: " + e.why }
func (e notYet) Unwrap() error { return e.err }

// notTakenUp explains a missing instance: no orchestrator has its code, its first round does not
// end, its start is quarantined, or it waits in NATS.
func (c *cli) notTakenUp(ctx context.Context, id string, err error) error {
	return c.notTakenUpOf(ctx, id, c.pendingOf(ctx, id), err)
}

// notTakenUpOf is notTakenUp for known pending starts.
func (c *cli) notTakenUpOf(ctx context.Context, id string, starts []client.PendingStart, err error) error {
	all, e := c.client.System().Processes(ctx)
	if e != nil {
		all = nil
	}
	if why := longRound(all, id, c.now()); why != "" {
		return notYet{err, why, longRoundHint}
	}
	if why := quarantined(all, id, c.now()); why != "" {
		return notYet{err, why, quarantineHint + "; " + withdrawHint(id, starts)}
	}
	for _, p := range all {
		for _, u := range p.Unknown {
			if u.Instance == id {
				return notYet{err, fmt.Sprintf("its start has waited for %s, because %s", span(c.now().Sub(u.Since)),
					cmp.Or(u.Detail, u.Reason)), waitsForCodeHint(id, starts)}
			}
		}
	}
	if len(starts) > 0 {
		return c.waitsInNATS(err, starts)
	}
	return err
}

// waitsForCodeHint tells what ends the wait of a start for code. NATS has the start, and the
// database has no instance that control messages could be for.
func waitsForCodeHint(id string, starts []client.PendingStart) string {
	return "deploy an orchestrator that has this code, or start it by another name. NATS keeps the start: " +
		"cancel and terminate do not take it back. " + withdrawHint(id, starts) + "; an orchestrator with " +
		"--fail-unregistered fails all such starts"
}

// quarantineHint tells what quarantine means, and what to do.
const quarantineHint = "NATS has redelivered a message several times, so the message may be crashing its " +
	"orchestrator. Orchestrators try such messages one at a time. After --message-attempts (default 10), they " +
	"dead-letter the message and fail its instance. Look for a crash in the logs of the orchestrators, and correct " +
	"the code"

// quarantined describes the quarantined messages of an instance; "" if there are none.
func quarantined(all []client.Process, id string, now time.Time) string {
	for _, p := range all {
		for _, x := range p.Quarantined {
			if x.Instance == id {
				return quarantineText(p.ID, x, now)
			}
		}
	}
	return ""
}

// quarantineText tells which messages of an instance are quarantined, where, and for how long.
func quarantineText(orchestrator string, x client.Quarantined, now time.Time) string {
	what := "a message"
	switch {
	case x.Start:
		what = "its start"
	case x.Messages > 1:
		what = fmt.Sprintf("%d of its messages", x.Messages)
	}
	state := "their turn has not come"
	switch {
	case x.Attempt > 0:
		state = fmt.Sprintf("attempt %d is in progress", x.Attempt)
	case x.Start || x.Messages == 1:
		state = "its turn has not come"
	}
	return fmt.Sprintf("orchestrator %q has had %s in quarantine since %s (%s): %s", orchestrator, what,
		x.Since.UTC().Format(time.RFC3339), span(now.Sub(x.Since)), state)
}

// longRoundHint tells what ends a round that does not end by itself.
const longRoundHint = "code of orchestrations must not loop, sleep or block outside of activities, steps and the " +
	"functions of the context: correct it, and restart that orchestrator with it"

// longRoundAfter is the time without a change from which show asks the orchestrators for long
// rounds: they name none that is younger.
const longRoundAfter = 2 * time.Second

// longRound describes the long round of an instance; "" if there is none.
func longRound(all []client.Process, id string, now time.Time) string {
	for _, p := range all {
		for _, x := range p.Rounds {
			if x.Instance == id {
				return "its round has been running for " + roundText(p.ID, x, now)
			}
		}
	}
	return ""
}

// roundText tells for how long a round runs, and where.
func roundText(orchestrator string, x client.LongRound, now time.Time) string {
	code := x.Orchestration
	if x.Version != "" {
		code += " " + x.Version
	}
	text := fmt.Sprintf("%s in orchestrator %q: the code of %s does not return to the library", span(now.Sub(x.Since)),
		orchestrator, cmp.Or(code, "its orchestration"))
	if x.Abandoned {
		text += ", and the orchestrator has given up its goroutine"
	}
	return text
}
