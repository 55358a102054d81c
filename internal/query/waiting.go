package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Waiting lists the operations that an instance waits for.
type Waiting struct {
	Instance  string       `json:"instance"`
	Name      string       `json:"name"`
	Version   string       `json:"version"`
	Status    round.Status `json:"status"`
	Execution int64        `json:"execution"`
	UpdatedAt time.Time    `json:"updated_at"`
	// Waits are these operations, oldest first; after many, More counts the others.
	Waits []Wait `json:"waits"`
	More  int    `json:"more,omitempty"`
	// Notes explain the state of the instance to operators.
	Notes []string `json:"notes,omitempty"`

	kept map[string]int // events that it keeps, by name
}

// Wait is a [round.Wait] as JSON, with when it began.
type Wait struct {
	Kind     round.WaitKind `json:"kind"`
	Event    int64          `json:"event"`
	Name     string         `json:"name,omitempty"`
	Instance string         `json:"instance,omitempty"`
	Tag      string         `json:"tag,omitempty"`
	Since    time.Time      `json:"since"`
	Due      time.Time      `json:"due,omitzero"`
	What     string         `json:"what"`
}

// maxWaits bounds the listed waits.
const maxWaits = 1000

// WaitingOf reads from a store the operations that an instance waits for, and explains its state.
func WaitingOf(ctx context.Context, r history.Reader, instance string) (Waiting, error) {
	const tries = 5 // the execution may end and be pruned while it is read
	for range tries {
		info, err := r.Instance(ctx, instance)
		if err != nil {
			return Waiting{}, err
		}
		w := Waiting{
			Instance: instance, Name: info.Name, Version: info.Version, Status: info.Status, Execution: info.Execution,
			UpdatedAt: info.UpdatedAt, Waits: []Wait{},
		}
		if !info.Status.Ended() {
			list, err := historyOf(ctx, r, info)
			if errors.Is(err, history.ErrNoExecution) {
				continue
			}
			if err == nil {
				err = w.add(info, list)
			}
			if history.ClassOf(err) == history.Corrupt {
				w.note("its history cannot be read: %v", err)
			} else if err != nil {
				return w, err
			}
		}
		w.explain(info)
		return w, nil
	}
	return Waiting{}, &history.Error{Class: history.Retry, Op: "look at what it waits for", Err: errTwoMoments}
}

// historyOf reads the history up to the last event of the row, so that both are of one moment.
func historyOf(ctx context.Context, r history.Reader, info history.Info) (list []events.Event, err error) {
	for int64(len(list)) < info.LastEvent {
		rest := info.LastEvent - int64(len(list))
		got, err := r.Events(ctx, info.Instance, info.Execution, int64(len(list)), int(min(rest, 1000)))
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			return nil, fmt.Errorf("instance %q: %w", info.Instance, history.ErrNoExecution)
		}
		list = append(list, got...)
	}
	return list, nil
}

// add lists the operations that the instance waits for.
func (w *Waiting) add(info history.Info, list []events.Event) error {
	waits, kept, err := round.Waiting(round.Known{Instance: info.Instance, Row: info.Row, History: list})
	if err != nil {
		return &history.Error{Class: history.Corrupt, Op: "look at what it waits for", Err: err}
	}
	w.kept = kept
	for i, x := range waits {
		if i == maxWaits {
			w.More = len(waits) - maxWaits
			break
		}
		wait := Wait{Kind: x.Kind, Event: x.Event, Name: x.Name, Instance: x.Instance, Tag: x.Tag,
			Due: x.Due, What: x.What}
		if x.Event > 0 && x.Event <= int64(len(list)) {
			wait.Since = list[x.Event-1].At
		}
		w.Waits = append(w.Waits, wait)
	}
	return nil
}

func (w *Waiting) note(format string, args ...any) {
	w.Notes = append(w.Notes, fmt.Sprintf(format, args...))
}

// explain adds notes that explain the state of the instance.
func (w *Waiting) explain(info history.Info) {
	switch {
	case info.Status == round.Suspended:
		w.note("it was suspended; `resume` lets it go on")
	case info.Status == round.Halted && info.Error == nil:
		w.note("it is halted; it goes on when code that fits its history is deployed")
	case info.Status == round.Halted:
		w.note("its code does not fit its history: %s; it goes on when code that fits is deployed",
			strings.TrimSuffix(info.Error.Error(), "."))
	case info.Status.Ended() && info.Error != nil:
		w.note("it has ended (%s): %v", info.Status, info.Error)
	case info.Status.Ended():
		w.note("it has ended (%s)", info.Status)
	case info.Fresh:
		w.note("its code has not run yet: an orchestrator that knows %q version %s has to take it up",
			info.Name, info.Version)
	case len(w.Waits) == 0 && len(w.Notes) == 0:
		w.note("it waits for nothing that history tells of: it runs an inline step, or its next round is in flight")
	}
	unread := info.Unread
	for _, name := range slices.Sorted(maps.Keys(w.kept)) {
		unread -= w.kept[name]
		w.note("it keeps %s %q for which it does not wait yet", plural.Count(w.kept[name], "event"), name)
	}
	if unread > 0 && !info.Status.Ended() {
		w.note("its mailboxes have %s", plural.Count(unread, "unread message"))
	}
	if info.Problem != nil {
		w.note("a part of it cannot be read: %v", info.Problem)
	}
}
