package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
)

// heldAfter is the age of an activity task from which show asks the workers for it: most tasks are
// faster than the answers.
const heldAfter = 5 * time.Second

// askedNotes asks the processes about an instance that does not change: whether its round does not
// end, whether its messages are quarantined, or which of its activity tasks no worker has, and what
// happens to those.
func (c lookCommands) askedNotes(ctx context.Context, s shown) []string {
	now := c.now()
	if s.Status != client.Running || now.Sub(s.UpdatedAt) < longRoundAfter {
		return nil
	}
	all, err := c.client.System().Processes(ctx)
	if err != nil {
		return nil // the rest is known without it
	}
	if why := longRound(all, s.ID, now); why != "" {
		return []string{why, longRoundHint} // it may have taken the results that history waits for
	}
	if why := quarantined(all, s.ID, now); why != "" {
		return []string{why, quarantineHint} // the same
	}
	return notHeld(s.ID, awaited(s.Waits, now), s.Notes, all)
}

// awaitedTask counts the tasks of an activity that an instance waits for.
type awaitedTask struct {
	activity string
	count    int
}

// awaited counts the activity tasks that are older than heldAfter, the oldest first.
func awaited(waits []client.Wait, now time.Time) (out []awaitedTask) {
	at := make(map[string]int)
	for _, w := range waits {
		if w.Kind != client.WaitsForActivity || now.Sub(w.Since) < heldAfter {
			continue
		}
		i, known := at[w.Name]
		if !known {
			i = len(out)
			at[w.Name], out = i, append(out, awaitedTask{activity: w.Name})
		}
		out[i].count++
	}
	return out
}

// notHeld explains what happens to tasks that no worker lists. It says nothing of those that no
// worker takes, which the notes of the orchestrator name.
func notHeld(instance string, tasks []awaitedTask, known []string, all []client.Process) (notes []string) {
	held := make(map[string]int)
	for _, p := range all {
		if p.Works == nil {
			continue
		}
		if p.Works.More > 0 {
			return nil // the task may be one of those that the worker does not list
		}
		for _, h := range p.Works.Holds {
			if h.Instance == instance {
				held[h.Activity]++
			}
		}
	}
	for _, t := range tasks {
		missing := t.count - held[t.activity]
		untaken := fmt.Sprintf("no worker takes activity %q", t.activity)
		if missing <= 0 || slices.ContainsFunc(known, func(n string) bool { return strings.HasPrefix(n, untaken) }) {
			continue
		}
		notes = append(notes, fmt.Sprintf("no worker that answers has %d of %s for activity %q: each waits in "+
			"its queue, or, if its worker has died, is redelivered %v after the last sign of that worker "+
			"(--task-ack-wait)",
			missing, plural.Count(t.count, "task"), t.activity, app.Defaults(app.Worker).Streams.TaskAckWait))
	}
	return notes
}
