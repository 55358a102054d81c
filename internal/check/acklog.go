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

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// [Acknowledged] is a line of a client's acknowledgement log. The client writes the line when it
// receives the acknowledgement, and before it goes on. A log belongs to one client that does one
// thing after the other: its mailbox messages must be in history in the order of its lines. Clients
// that send several messages to one mailbox concurrently write several logs.
type Acknowledged struct {
	What     AcknowledgedKind `json:"acknowledged"`
	Instance string           `json:"instance"`
	// Name is the orchestration of a start, Queue the mailbox of a message, Event the name of an
	// event.
	Name    string `json:"name,omitempty"`
	Mailbox string `json:"mailbox,omitempty"`
	Event   string `json:"event,omitempty"`
	// Message is the id of the message that was acknowledged.
	Message string `json:"message,omitempty"`
	// Execution, Status and Output are the outcome that a waiter received. Without an execution or
	// an output, these are not compared; the output null is that of an instance without one.
	Execution int64         `json:"execution,omitempty"`
	Status    round.Status  `json:"status,omitempty"`
	Output    codec.Payload `json:"output,omitempty"`
	// At is the time of the client's clock. Due is the earliest time at which a delayed message is
	// processed.
	At  time.Time `json:"at,omitzero"`
	Due time.Time `json:"due,omitzero"`
}

// AcknowledgedKind is the kind of an acknowledgement.
type AcknowledgedKind string

// The kinds of acknowledgements.
const (
	AcknowledgedStart   AcknowledgedKind = "start"   // a start was acknowledged: NATS has stored it
	AcknowledgedMailbox AcknowledgedKind = "mailbox" // a mailbox message was acknowledged
	AcknowledgedEvent   AcknowledgedKind = "event"   // an event was acknowledged
	AcknowledgedEnd     AcknowledgedKind = "end"     // a waiter received the outcome
)

// AcknowledgedBy returns the line for an acknowledged message. Control messages have none: their
// effect is not checked.
func AcknowledgedBy(m events.Message, at time.Time) (p Acknowledged, ok bool) {
	p = Acknowledged{Instance: m.Instance, Message: m.ID, At: at.UTC(), Due: m.NotBefore.UTC()}
	switch c := m.Content.(type) {
	case *events.Start:
		p.What, p.Name = AcknowledgedStart, c.Orchestration
	case *events.MailboxMessage:
		p.What, p.Mailbox = AcknowledgedMailbox, c.Mailbox
	case *events.EventRaised:
		p.What, p.Event = AcknowledgedEvent, c.Name
	default:
		return p, false
	}
	return p, true
}

func (p Acknowledged) check() error {
	switch {
	case p.Instance == "":
		return errors.New(`"instance" is missing`)
	case p.What == AcknowledgedMailbox && p.Mailbox == "":
		return errors.New(`"mailbox" is missing`)
	case p.What == AcknowledgedEvent && p.Event == "":
		return errors.New(`"event" is missing`)
	case p.What == AcknowledgedEnd && (!p.Status.Ended() || p.Status == round.ContinuedAsNew):
		return fmt.Errorf(`"status" %q is none that an instance ends with`, p.Status)
	}
	switch p.What {
	case AcknowledgedStart, AcknowledgedMailbox, AcknowledgedEvent, AcknowledgedEnd:
		return nil
	}
	return fmt.Errorf(`"acknowledged" is %q; there are start, mailbox, event and end`, p.What)
}

// Log writes the acknowledgements that a client receives. It may be used concurrently; the order is
// then that of the calls.
type Log struct {
	mu sync.Mutex
	to io.Writer
}

// NewLog makes a log that writes to a file, or to any other writer.
func NewLog(to io.Writer) *Log { return &Log{to: to} }

// Add writes one line with one call of Write: a process that is killed leaves at most one
// incomplete last line.
func (l *Log) Add(p Acknowledged) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("an acknowledgement for instance %q: %w", p.Instance, err)
	}
	if p.What == AcknowledgedEnd && p.Status == round.Completed {
		p.Output = orNull(p.Output) // what a program in Go was told is known
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

// ReadLog reads a log. It ends with the first invalid line. It skips an incomplete last line, which
// a killed process leaves.
func ReadLog(from io.Reader) iter.Seq2[Acknowledged, error] {
	return func(yield func(Acknowledged, error) bool) {
		lines := bufio.NewReaderSize(from, 64<<10)
		for number := 1; ; number++ {
			line, err := lines.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Acknowledged{}, err)
				return
			}
			whole := err == nil
			if len(bytes.TrimSpace(line)) > 0 {
				p, bad := parseAcknowledged(line)
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

func parseAcknowledged(line []byte) (p Acknowledged, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("not an acknowledgement: %w", err)
	}
	if len(bytes.TrimSpace(line[dec.InputOffset():])) > 0 {
		return p, errors.New("there is more than one object in it")
	}
	return p, p.check()
}
