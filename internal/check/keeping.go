package check

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has the rules about acknowledgements, judged once their instance was read.

// keeping compares the acknowledgements about one instance with its histories.
type keeping struct {
	*system
	group
	row               round.Row
	reading           reading
	exists, tombstone bool

	wanted map[string]place // where acknowledged messages are; the zero value until they are found
	starts map[string]bool  // messages of starts that have begun an execution
	first  *events.Started  // of the first execution that is kept
	begun  time.Time        // of that one
	number int64
	ends   map[int64]ending

	askedFor map[int64]bool // executions of which a waiter has seen the end

	absents  []absent
	findings []Finding
	lost     []lost
	inFlight int64
	refused  int64
	not      map[Reason]int64
	highest  int64 // the last execution
}

// place is where a message was taken in.
type place struct {
	execution, event int64
	mailbox          string
}

func (p place) before(q place) bool {
	return p.execution < q.execution || p.execution == q.execution && p.event < q.event
}

// ending is how an execution has ended.
type ending struct {
	status round.Status
	output codec.Payload
	event  int64
	ended  bool
}

func newKeeping(s *system, g group) *keeping {
	k := &keeping{system: s, group: g, wanted: make(map[string]place), starts: make(map[string]bool),
		ends: make(map[int64]ending), askedFor: make(map[int64]bool), not: make(map[Reason]int64)}
	for _, p := range g.list {
		if p.Message != "" {
			k.wanted[p.Message] = place{}
		}
		if p.What == AcknowledgedEnd {
			k.askedFor[p.Execution] = true
		}
	}
	return k
}

// see notes which acknowledged messages an execution has. It never fails.
func (k *keeping) see(x *execution) error {
	if k.first == nil && x.started != nil {
		k.first, k.number = x.started, x.number
		k.begun = x.begunAt
	}
	if x.started != nil {
		k.starts[x.started.Message] = true
	}
	for _, q := range x.received {
		if at, ok := k.wanted[q.message]; ok && at.event == 0 {
			k.wanted[q.message] = place{x.number, q.event, q.mailbox}
		}
	}
	output, _ := outcome(x.end.Fact)
	if k.ends[k.highest].status == round.ContinuedAsNew && !k.askedFor[k.highest] {
		delete(k.ends, k.highest) // no waiter sees that end
	}
	k.ends[x.number] = ending{status: x.standing(), output: output, event: x.end.ID, ended: x.end.Fact != nil}
	k.highest = x.number
	return nil
}

func (k *keeping) bad(rule Rule, at place, expected, found string) {
	k.findings = append(k.findings, Finding{Rule: rule, Instance: k.instance, Execution: at.execution, Event: at.event,
		Expected: expected, Found: found})
}

// judge judges one acknowledgement after the other.
func (k *keeping) judge(ctx context.Context) error {
	if k.exists && k.reading.lineage.now == nil {
		k.not[TooNew] += int64(len(k.list)) // or it is unreadable, which is a finding of its own
		return nil
	}
	newest := make(map[[2]string]acknowledgedAt)
	seen := make(map[string]bool)
	for _, p := range k.list {
		again := p.Message != "" && seen[string(p.What)+p.Message]
		seen[string(p.What)+p.Message] = true
		switch {
		case p.What == AcknowledgedEnd:
			k.end(p)
		case again: // the client sent it again, and NATS acknowledged it again
		case p.What == AcknowledgedStart:
			k.start(p)
		case p.What == AcknowledgedMailbox:
			k.received(p)
			k.order(p, newest)
		}
	}
	return k.ask(ctx)
}

// start: the instance exists, whichever start has begun it: of all starts with one id, one counts,
// unless their options ask for another.
func (k *keeping) start(p acknowledgement) {
	if k.exists {
		if p.By == nil && p.Message != "" && !k.starts[p.Message] && p.Message != k.row.StartMessage &&
			!k.remembered(p.Message) {
			k.refused++
		}
		return
	}
	k.absents = append(k.absents, absent{acknowledgement: p, rule: StartLost, askable: p.Name != "",
		content:  &events.Start{Orchestration: p.Name},
		expected: "an instance, begun by start " + p.Message})
}

// remembered reports whether the first execution that is kept knows a message from those before it.
func (k *keeping) remembered(message string) bool {
	return k.first != nil && slices.Contains(k.first.Seen, events.SeenHash(message))
}

// received: a mailbox message is in history, in flight, or a dead letter.
func (k *keeping) received(p acknowledgement) {
	at := k.wanted[p.Message]
	switch {
	case !knownAgain(p.Message):
		k.not[NoMessage]++
		return
	case at.event > 0 && at.mailbox != p.Mailbox:
		k.bad(MailboxLost, at, fmt.Sprintf("message %s in mailbox %q", p.Message, p.Mailbox),
			fmt.Sprintf("it in mailbox %q", at.mailbox))
		return
	case at.event > 0 || k.remembered(p.Message):
		return
	case k.exists && !k.o.NothingRemoved && (k.number > 1 || k.begun.After(p.At)):
		k.not[NotKept]++ // it may be in an execution that was pruned, or for an instance that was deleted
		return
	}
	k.absents = append(k.absents, absent{acknowledgement: p, rule: MailboxLost, askable: true,
		content: &events.MailboxMessage{Mailbox: p.Mailbox},
		expected: fmt.Sprintf("message %s of mailbox %q in history, in flight, or among the dead letters", p.Message,
			p.Mailbox)})
}

// knownAgain reports whether history has the id of a message as it is: those that are too long or
// cannot be printed are shortened.
func knownAgain(id string) bool {
	return id != "" && len(id) <= 4*events.MaxInstanceID && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool {
			return !unicode.IsPrint(r)
		})
}

// absent is a message that is not in history.
type absent struct {
	acknowledgement
	rule     Rule
	askable  bool // the subject is known
	content  events.Content
	expected string
}

// maxStored bounds how many messages of a subject the check reads.
const maxStored = 10_000

// ask asks the broker for the messages that are not in history, subject by subject, and judges
// them.
func (k *keeping) ask(ctx context.Context) error {
	wires, of := make(map[string][]events.Wire), make(map[string][]absent)
	var subjects []string
	for _, x := range k.absents {
		if k.o.Broker == nil || !x.askable {
			k.nowhere(x)
			continue
		}
		m := events.Message{ID: x.Message, Instance: x.Instance, Content: x.content, NotBefore: x.Due,
			Internal: x.By != nil || events.ReservedID(x.Message)}
		w, err := events.Encode(k.o.Prefix, m)
		if err != nil {
			return fmt.Errorf("ask NATS about instance %q: %w", x.Instance, err)
		}
		if of[w.Subject] == nil {
			subjects = append(subjects, w.Subject)
		}
		wires[w.Subject], of[w.Subject] = append(wires[w.Subject], w), append(of[w.Subject], x)
	}
	for _, subject := range subjects {
		list, more, err := k.o.Broker.StoredUnder(ctx, wires[subject], maxStored)
		if err != nil {
			return fmt.Errorf("ask NATS about instance %q: %w", k.instance, err)
		}
		for _, x := range of[subject] {
			k.stored(x, list, more)
		}
	}
	return nil
}

// stored judges a message that is not in history by those that the broker has under its subject.
func (k *keeping) stored(x absent, list []broker.StoredMessage, more bool) {
	delayed := func(m broker.StoredMessage) bool { return !m.NotBefore.IsZero() }
	i := slices.IndexFunc(list, func(m broker.StoredMessage) bool {
		return m.ID == x.Message || !knownAgain(x.Message)
	})
	switch {
	case i >= 0:
		due := x.from()
		if list[i].NotBefore.After(due) {
			due = list[i].NotBefore
		}
		if k.o.Quiescent && !due.After(k.now()) {
			k.bad(Outstanding, place{}, "nothing to be outstanding",
				fmt.Sprintf("the acknowledged %s %s, which waits in NATS", x.What, x.Message))
		}
		k.onItsWay(x.acknowledgement)
	// a client need not have noted whether its start was delayed
	case x.What == AcknowledgedStart && (x.By == nil || !x.Due.IsZero()) && slices.ContainsFunc(list, delayed):
		k.not[Replaced]++
	case more:
		k.not[TooMany]++
	default:
		k.nowhere(x)
	}
}

// nowhere judges a message that is neither in history nor stored by the broker, as far as that is
// known.
func (k *keeping) nowhere(x absent) {
	p, found := x.acknowledgement, "nothing of it"
	if !k.exists {
		found = "no such instance"
	}
	switch {
	case !k.o.Quiescent && k.o.Broker == nil && !k.overdue(p.from()):
		k.onItsWay(p)
	case !k.exists && !k.o.NothingRemoved && (k.tombstone || !k.leavesTombstone(p.from())):
		k.not[NotKept]++
	case k.o.Broker == nil && (!k.o.Quiescent || p.Due.After(k.now())): // it may wait there
		k.not[NotAsked]++
	// it may be a dead letter
	case k.o.Dead == nil && p.What == AcknowledgedMailbox && (!k.exists || k.row.Status.Ended()):
		k.not[NotAsked]++
	case k.o.Dead != nil && p.What == AcknowledgedMailbox && k.now().Sub(p.from()) > k.o.DeadLetterTTL &&
		!k.o.NothingRemoved:
		k.not[NotKept]++ // it may have been a dead letter
	default:
		f := Finding{Rule: x.rule, Instance: k.instance, Expected: x.expected, Found: found}
		if p.By != nil {
			f = p.lost(found)
		}
		k.lost = append(k.lost, lost{messageKey{p.Message, p.Instance}, f})
	}
}

// onItsWay counts acknowledged messages that are still in flight.
func (k *keeping) onItsWay(p acknowledgement) {
	if p.By == nil {
		k.inFlight++
	}
}

// lost is the finding that a start or a message from one instance to another is lost.
func (p acknowledgement) lost(found string) Finding {
	f := Finding{Rule: LaunchLost, Instance: p.By.Instance, Execution: p.By.Execution, Event: p.By.Event, Found: found,
		Expected: fmt.Sprintf("instance %q, which was started here", p.Instance)}
	if p.What == AcknowledgedMailbox {
		f.Rule, f.Expected = SendLost,
			fmt.Sprintf("the message to mailbox %q of instance %q in its history, in flight, or among the dead letters",
				p.Mailbox, p.Instance)
	}
	return f
}

// acknowledgedAt is an acknowledged message, with the place where it was recorded.
type acknowledgedAt struct {
	message string
	place
}

// order: a client that sends one message after the other relies on their order.
func (k *keeping) order(p acknowledgement, newest map[[2]string]acknowledgedAt) {
	at := k.wanted[p.Message]
	if at.event == 0 || p.By != nil || !p.Due.IsZero() { // a delayed message is not behind others
		return
	}
	who := [2]string{fmt.Sprint(p.Log), p.Mailbox}
	if last, ok := newest[who]; ok && at.before(last.place) {
		k.bad(MailboxReorder, at,
			fmt.Sprintf("message %s of mailbox %q behind %s (execution %d, event %d), which was acknowledged before it",
				p.Message, p.Mailbox, last.message, last.execution, last.event),
			"it before that")
		return
	}
	newest[who] = acknowledgedAt{p.Message, at}
}

// end: once a waiter has received an outcome, the outcome never changes.
func (k *keeping) end(p acknowledgement) {
	said := string(p.Status)
	knowsOutput := p.Status == round.Completed && len(p.Output) > 0 // a log may leave it out
	if knowsOutput {
		said += " with " + clip(codec.Canonical(p.Output))
	}
	fits := func(e ending) bool {
		return e.ended && e.status == p.Status &&
			(!knowsOutput || bytes.Equal(orNull(codec.Canonical(p.Output)), orNull(e.output)))
	}
	if p.Execution == 0 {
		for _, e := range k.ends {
			if fits(e) {
				return
			}
		}
	}
	e, kept := k.ends[p.Execution]
	if p.Execution == 0 && k.exists {
		e, kept = k.ends[k.highest]
	}
	shown := string(e.status)
	if e.status == round.Completed {
		shown += " with " + clip(e.output)
	}
	at := place{execution: max(p.Execution, 0), event: e.event}
	expected := "what a waiter was told at " + stamp(p.At) + ": " + said
	switch {
	case kept && fits(e):
	case !k.exists && !k.o.NothingRemoved && (k.tombstone || !k.leavesTombstone(p.At)):
		k.not[NotKept]++
	case !k.exists:
		k.bad(EndDiffers, place{execution: p.Execution}, expected, "no such instance")
	case !k.o.NothingRemoved && (k.begun.After(p.At) || k.number > 1 && (p.Execution == 0 || p.Execution < k.number)):
		k.not[NotKept]++
	case kept && p.Execution == 0 && !e.ended && len(k.ends) > 1:
		k.bad(EndDiffers, at, expected, "no execution that has ended so")
	case kept && !e.ended:
		k.bad(EndEarly, at, expected, "it goes on")
	case kept:
		k.bad(EndDiffers, at, expected, shown)
	default:
		k.bad(EndDiffers, at, expected, plural.Count(k.highest, "execution"))
	}
}

// null is how a log says that an instance completed without an output: "output":null.
var null = codec.Payload("null")

func orNull(p codec.Payload) codec.Payload {
	if len(p) == 0 {
		return null
	}
	return p
}

// ---- Dead letters.

// messageKey identifies a message: an id counts for one instance only.
type messageKey struct {
	message, instance string
}

// lost is a message that is lost, unless it is a dead letter.
type lost struct {
	messageKey
	finding Finding
}

// maxLost bounds how many wait until the dead letters are searched.
const maxLost = 5000

func (s *system) doubt(ctx context.Context, x lost) error {
	s.missing = append(s.missing, x)
	if len(s.missing) < maxLost {
		return nil
	}
	return s.deadLettered(ctx)
}

// deadLettered searches the dead letters for the missing messages; one that is not among them is
// lost.
func (s *system) deadLettered(ctx context.Context) error {
	dead := make(map[messageKey]bool)
	wanted := make(map[messageKey]messageKey) // by the id and the token of the instance in subjects
	for _, x := range s.missing {
		wanted[messageKey{x.message, events.EncodeToken(x.instance)}] = x.messageKey
	}
	for after := uint64(0); s.o.Dead != nil && len(wanted) > len(dead); {
		const some = 256
		list, err := s.o.Dead.DeadLetters(ctx, after, some)
		if err != nil {
			return fmt.Errorf("look through the dead letters: %w", err)
		}
		for _, l := range list {
			after = l.Sequence
			if x, ok := wanted[messageKey{l.ID, l.Subject[strings.LastIndexByte(l.Subject, '.')+1:]}]; ok {
				dead[x] = true
			}
		}
		if len(list) < some {
			break
		}
	}
	for _, x := range s.missing {
		if x.message != "" && dead[x.messageKey] {
			s.report.DeadLetters++
		} else {
			s.found(x.finding)
		}
	}
	s.missing = nil
	return nil
}
