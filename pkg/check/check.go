// Package check looks for what must never be in the history of an instance, whatever crashed, came twice or came late. It has rules of its own, so that it does not repeat
// the engine's mistakes.
//
//   - event ids rise by one, the first event is Started, times never run backwards
//   - one event ends an execution, and it is the last; an execution that has a successor has ended
//   - each answer answers one thing that was open, once, and timers fire no earlier than promised
//   - queue messages are read in order, each at most once, and none is taken in twice
//   - the values and the status that the store shows are those that history tells
package check

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Instance is everything that the store has of an instance.
type Instance struct {
	ID  string
	Row round.Row
	// History is that of each execution that is kept.
	History map[int64][]events.Event
	Values  map[string]events.Payload
}

// Check lists what is wrong with an instance, if anything.
func (in Instance) Check() error {
	var errs []error
	taken := make(map[string]bool)
	for _, x := range slices.Sorted(maps.Keys(in.History)) {
		c := checker{instance: in.ID, execution: x, open: make(map[int64]events.Fact), unread: make(map[string][]int64), read: make(map[int64]bool), values: make(map[string]events.Payload), messages: taken}
		c.history(in.History[x])
		if x == in.Row.Execution {
			c.store(in)
		} else if c.end == "" {
			c.bad("it did not end, but execution %d has begun", in.Row.Execution)
		}
		errs = append(errs, c.errs...)
	}
	return errors.Join(errs...)
}

// checker follows one history.
type checker struct {
	instance  string
	execution int64
	open      map[int64]events.Fact
	steps     map[int64]bool
	unread    map[string][]int64
	waiting   map[string][]int64
	read      map[int64]bool
	messages  map[string]bool // taken in by this execution and those before it
	inherited int64           // up to this event
	values    map[string]events.Payload
	status    events.Payload
	blind     bool // no longer sure of what is in the queues
	end       events.Kind
	errs      []error
}

func (c *checker) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("instance %q, execution %d: %s", c.instance, c.execution, fmt.Sprintf(format, args...)))
}

func (c *checker) history(history []events.Event) {
	c.steps, c.waiting = make(map[int64]bool), make(map[string][]int64)
	for i, e := range history {
		if e.ID != int64(i)+1 {
			c.bad("event %d stands at place %d", e.ID, i+1)
		}
		if i > 0 && e.At.Before(history[i-1].At) {
			c.bad("event %d is older than the one before it", e.ID)
		}
		if _, ok := e.Fact.(*events.Started); ok != (i == 0) {
			c.bad("event %d is %s", e.ID, e.Fact.Kind())
		}
		if c.end != "" {
			c.bad("event %d (%s) stands after %s", e.ID, e.Fact.Kind(), c.end)
		}
		c.event(e)
	}
}

func (c *checker) event(e events.Event) {
	switch f := e.Fact.(type) {
	case *events.Started:
		c.inherited = 1 + int64(f.Carried)
		if f.Previous == 0 {
			clear(c.messages) // a new life
		}
	case *events.ActivityScheduled, *events.TimerCreated, *events.EventAwaited, *events.ChildStarted:
		c.open[e.ID] = f
	case *events.ActivityCompleted:
		answered[*events.ActivityScheduled](c, e, f.Schedule)
	case *events.ActivityFailed:
		answered[*events.ActivityScheduled](c, e, f.Schedule)
	case *events.ChildCompleted:
		answered[*events.ChildStarted](c, e, f.Schedule)
	case *events.ChildFailed:
		answered[*events.ChildStarted](c, e, f.Schedule)
	case *events.TimerFired:
		if timer := answered[*events.TimerCreated](c, e, f.Timer); timer != nil && e.At.Before(timer.FireAt) {
			c.bad("the timer of event %d fired %v early", f.Timer, timer.FireAt.Sub(e.At))
		}
	case *events.EventReceived:
		if wait := answered[*events.EventAwaited](c, e, f.Wait); wait != nil && wait.Name != f.Name {
			c.bad("event %d answers a wait for %q with %q", e.ID, wait.Name, f.Name)
		}
		c.message(e, f.Message)
	case *events.MessageQueued:
		c.message(e, f.Message)
		c.queued(e.ID, f.Queue)
	case *events.QueueRead:
		c.queueRead(e.ID, f)
	case *events.StepCompleted:
		if c.steps[f.Step] {
			c.bad("event %d completes inline step %d again", e.ID, f.Step)
		}
		c.steps[f.Step] = true
	case *events.Dropped:
		c.dropped(f)
	case *events.ValueSet:
		c.values[f.Key] = f.Value
	case *events.ValuesCleared:
		for _, k := range f.Keys {
			delete(c.values, k)
		}
	case *events.StatusSet:
		c.status = f.Status
	default:
		if events.Ends(e.Fact) {
			c.end = e.Fact.Kind()
		}
	}
}

// answered checks that an answer finds what it answers, and closes that.
func answered[F events.Fact](c *checker, e events.Event, schedule int64) (opener F) {
	f, ok := c.open[schedule].(F)
	if !ok {
		c.bad("event %d (%s) answers event %d, which is not open", e.ID, e.Fact.Kind(), schedule)
	}
	delete(c.open, schedule)
	return f
}

func (c *checker) message(e events.Event, id string) {
	if id != "" && c.messages[id] && e.ID > c.inherited {
		c.bad("event %d takes message %s in again", e.ID, id)
	}
	c.messages[id] = true
}

// queued hands a message to the oldest open read, or keeps it.
func (c *checker) queued(id int64, queue string) {
	if c.blind {
		return
	}
	if reads := c.waiting[queue]; len(reads) > 0 {
		c.waiting[queue] = reads[1:]
		c.read[id] = true
		return
	}
	c.unread[queue] = append(c.unread[queue], id)
}

func (c *checker) queueRead(id int64, f *events.QueueRead) {
	unread := c.unread[f.Queue]
	switch {
	case c.blind:
	case f.Message == 0 && len(unread) > 0:
		c.bad("event %d waits for queue %q, which has unread messages", id, f.Queue)
	case f.Message == 0:
		c.waiting[f.Queue] = append(c.waiting[f.Queue], id)
	case c.read[f.Message]:
		c.bad("event %d reads event %d again", id, f.Message)
	case !slices.Contains(unread, f.Message):
		c.bad("event %d reads event %d, which is not in queue %q", id, f.Message, f.Queue)
	default:
		if slices.Min(unread) != f.Message {
			c.bad("event %d reads event %d of queue %q out of order", id, f.Message, f.Queue)
		}
		c.read[f.Message] = true
		c.unread[f.Queue] = slices.DeleteFunc(unread, func(m int64) bool { return m == f.Message })
	}
}

// dropped closes what is no longer waited for. Which message a dropped read gives back cannot be told from outside, so reading is not checked
// any further after that.
func (c *checker) dropped(f *events.Dropped) {
	for _, id := range f.Schedules {
		if _, ok := c.open[id]; ok {
			delete(c.open, id)
			continue
		}
		c.blind = true
	}
}

// store compares with what the store shows.
func (c *checker) store(in Instance) {
	row := in.Row
	if last := int64(len(in.History[row.Execution])); row.LastEvent != last {
		c.bad("the row says that event %d is the last, history has %d", row.LastEvent, last)
	}
	if row.Status.Ended() != (c.end != "") {
		c.bad("the row says %s, history ends with %q", row.Status, c.end)
	}
	if !bytes.Equal(row.CustomStatus, c.status) {
		c.bad("the row has custom status %s, history %s", row.CustomStatus, c.status)
	}
	if !maps.EqualFunc(in.Values, c.values, func(a, b events.Payload) bool { return bytes.Equal(a, b) }) {
		c.bad("the store has values %v, history %v", in.Values, c.values)
	}
	if row.Status == round.Running && row.Error != nil {
		c.bad("it is running with error %v", row.Error)
	}
}
