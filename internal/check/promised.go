package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Promised is a line of a log of what a client was promised. The client writes it when it is told,
// and before it goes on. A log is of one client that does one thing after the other: the order of
// its lines is the order that the promises are held to. Clients that send several messages to one
// queue at once write several logs.
type Promised struct {
	What     PromisedWhat `json:"promised"`
	Instance string       `json:"instance"`
	// Name is the orchestration of a start, Queue the queue of a message, Event the name of an
	// event.
	Name  string `json:"name,omitempty"`
	Queue string `json:"queue,omitempty"`
	Event string `json:"event,omitempty"`
	// Message is the id of the message that was acknowledged.
	Message string `json:"message,omitempty"`
	// Execution, Status and Output are how it ended, as a waiter was told.
	Execution int64          `json:"execution,omitempty"`
	Status    round.Status   `json:"status,omitempty"`
	Output    events.Payload `json:"output,omitempty"`
	// At is the time of the client's clock.
	At time.Time `json:"at,omitzero"`
}

// PromisedWhat is what was promised.
type PromisedWhat string

// What can be promised.
const (
	PromisedStart PromisedWhat = "start" // a start was acknowledged: NATS has stored it
	PromisedQueue PromisedWhat = "queue" // a queue message was acknowledged
	PromisedEvent PromisedWhat = "event" // an event was acknowledged
	PromisedEnd   PromisedWhat = "end"   // a waiter was told how it ended
)

// PromisedBy is what a client was promised when a message of its was acknowledged. About messages
// that steer an instance, nothing is.
func PromisedBy(m events.Message, at time.Time) (p Promised, ok bool) {
	p = Promised{Instance: m.Instance, Message: m.ID, At: at.UTC()}
	switch c := m.Content.(type) {
	case *events.Start:
		p.What, p.Name = PromisedStart, c.Orchestration
	case *events.QueueSent:
		p.What, p.Queue = PromisedQueue, c.Queue
	case *events.EventRaised:
		p.What, p.Event = PromisedEvent, c.Name
	default:
		return p, false
	}
	return p, true
}

func (p Promised) check() error {
	switch {
	case p.Instance == "":
		return errors.New(`"instance" is missing`)
	case p.What == PromisedQueue && p.Queue == "":
		return errors.New(`"queue" is missing`)
	case p.What == PromisedEvent && p.Event == "":
		return errors.New(`"event" is missing`)
	case p.What == PromisedEnd && (!p.Status.Ended() || p.Status == round.ContinuedAsNew):
		return fmt.Errorf(`"status" %q is none that an instance ends with`, p.Status)
	}
	switch p.What {
	case PromisedStart, PromisedQueue, PromisedEvent, PromisedEnd:
		return nil
	}
	return fmt.Errorf(`"promised" is %q; there are start, queue, event and end`, p.What)
}

// Log writes down what a client was promised. It may be used concurrently; the order is then that
// of the calls.
type Log struct {
	mu sync.Mutex
	to io.Writer
}

// NewLog makes a log that writes to a file, or to anything else.
func NewLog(to io.Writer) *Log { return &Log{to: to} }

// Add writes one promise, in one piece: a process that is killed leaves at most a last line that is
// cut off.
func (l *Log) Add(p Promised) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("a promise for instance %q: %w", p.Instance, err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.to.Write(b.Bytes())
	return err
}

// ReadLog reads a log. It ends with the first line that cannot be understood. A last line without
// its end is what a killed process leaves, and is left out.
func ReadLog(from io.Reader) iter.Seq2[Promised, error] {
	return func(yield func(Promised, error) bool) {
		lines := bufio.NewReaderSize(from, 64<<10)
		for number := 1; ; number++ {
			line, err := lines.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Promised{}, err)
				return
			}
			whole := err == nil
			if len(bytes.TrimSpace(line)) > 0 {
				p, bad := parsePromised(line)
				if bad != nil && !whole && !json.Valid(line) {
					return
				}
				if bad != nil {
					bad = fmt.Errorf("line %d: %w", number, bad)
				}
				if !yield(p, bad) || bad != nil {
					return
				}
			}
			if !whole {
				return
			}
		}
	}
}

func parsePromised(line []byte) (p Promised, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("it is no promise: %w", err)
	}
	if len(bytes.TrimSpace(line[dec.InputOffset():])) > 0 {
		return p, errors.New("there is more than one object in it")
	}
	return p, p.check()
}
