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

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has the rules about what was promised, once the instance was read that it is about.

// keeping is how the promises about an instance were kept.
type keeping struct {
	*system
	group
	row               round.Row
	reading           reading
	exists, tombstone bool

	wanted map[string]place // where messages are that were promised; the zero value until they are found
	starts map[string]bool  // messages of starts that have begun an execution
	first  *events.Started  // of the first execution that is kept
	begun  time.Time        // of that one
	number int64
	ends   map[int64]ending

	askedFor map[int64]bool // executions that a waiter was told of

	findings []Finding
	suspects []suspect
	underWay int64
	refused  int64
	not      map[Reason]int64
	highest  int64 // the last execution
}

// place is where a message was taken in.
type place struct {
	execution, event int64
	queue            string
}

func (p place) before(q place) bool {
	return p.execution < q.execution || p.execution == q.execution && p.event < q.event
}

// ending is how an execution has ended.
type ending struct {
	status round.Status
	output events.Payload
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
		if p.What == PromisedEnd {
			k.askedFor[p.Execution] = true
		}
	}
	return k
}

// see notes what an execution has of the promises. It never fails.
func (k *keeping) see(x *execution) error {
	if k.first == nil && x.started != nil {
		k.first, k.number = x.started, x.number
		k.begun = x.begunAt
	}
	if x.started != nil {
		k.starts[x.started.Message] = true
	}
	for _, q := range x.queued {
		if at, ok := k.wanted[q.message]; ok && at.event == 0 {
			k.wanted[q.message] = place{x.number, q.event, q.queue}
		}
	}
	output, _ := outcome(x.end.Fact)
	if k.ends[k.highest].status == round.ContinuedAsNew && !k.askedFor[k.highest] {
		delete(k.ends, k.highest) // nobody is told of that
	}
	k.ends[x.number] = ending{status: x.standing(), output: output, event: x.end.ID, ended: x.end.Fact != nil}
	k.highest = x.number
	return nil
}

func (k *keeping) bad(rule Rule, at place, expected, found string) {
	k.findings = append(k.findings, Finding{Rule: rule, Instance: k.instance, Execution: at.execution, Event: at.event,
		Expected: expected, Found: found})
}

// judge judges one promise after the other.
func (k *keeping) judge(ctx context.Context) error {
	if k.exists && k.reading.lineage.now == nil {
		k.not[TooNew] += int64(len(k.list)) // or what cannot be read, which is a finding of its own
		return nil
	}
	newest := make(map[[2]string]promisedAt)
	seen := make(map[string]bool)
	for _, p := range k.list {
		again := p.Message != "" && seen[string(p.What)+p.Message]
		seen[string(p.What)+p.Message] = true
		var err error
		switch {
		case p.What == PromisedEnd:
			k.end(p)
		case again: // it was sent again, and acknowledged again
		case p.What == PromisedStart:
			err = k.start(ctx, p)
		case p.What == PromisedQueue:
			err = k.queued(ctx, p)
			k.order(p, newest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start: there is an instance, whichever start has begun it: of all starts with one id one counts,
// unless they say otherwise.
func (k *keeping) start(ctx context.Context, p promise) error {
	if k.exists {
		if p.By == nil && p.Message != "" && !k.starts[p.Message] && p.Message != k.row.StartMessage &&
			!k.remembered(p.Message) {
			k.refused++
		}
		return nil
	}
	m := events.Message{ID: p.Message, Instance: p.Instance, Content: &events.Start{Orchestration: p.Name}}
	return k.absent(ctx, p, StartLost, p.Name != "", m, "an instance, begun by start "+p.Message)
}

// remembered reports whether the first execution that is kept knows a message from those before it.
func (k *keeping) remembered(message string) bool {
	return k.first != nil && slices.Contains(k.first.Seen, events.SeenHash(message))
}

// queued: a queue message is in history, still under way, or a dead letter.
func (k *keeping) queued(ctx context.Context, p promise) error {
	at := k.wanted[p.Message]
	switch {
	case !knownAgain(p.Message):
		k.not[NoMessage]++
		return nil
	case at.event > 0 && at.queue != p.Queue:
		k.bad(QueueLost, at, fmt.Sprintf("message %s in queue %q", p.Message, p.Queue),
			fmt.Sprintf("it in queue %q", at.queue))
		return nil
	case at.event > 0 || k.remembered(p.Message):
		return nil
	case k.exists && !k.o.NothingRemoved && (k.number > 1 || k.begun.After(p.At)):
		k.not[NotKept]++ // it may be in an execution that was pruned, or for an instance that was deleted
		return nil
	}
	m := events.Message{ID: p.Message, Instance: p.Instance, Content: &events.QueueSent{Queue: p.Queue}}
	return k.absent(ctx, p, QueueLost, true, m,
		fmt.Sprintf("message %s of queue %q in history, under way, or among the dead letters", p.Message, p.Queue))
}

// knownAgain reports whether history has the id of a message as it is: those that are too long or
// cannot be printed are shortened.
func knownAgain(id string) bool {
	return id != "" && len(id) <= 4*events.MaxInstanceID && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool {
			return !unicode.IsPrint(r)
		})
}

// absent judges a message that is not in history.
func (k *keeping) absent(ctx context.Context, p promise, rule Rule, askable bool, m events.Message,
	expected string) error {
	if k.o.Broker != nil && askable {
		m.Internal = p.By != nil
		there, err := k.hasMessage(ctx, m)
		if err != nil {
			return err
		}
		if there && k.o.Quiescent {
			k.bad(Outstanding, place{}, "nothing to be outstanding",
				fmt.Sprintf("the promised %s %s, which waits in NATS", p.What, p.Message))
		}
		if there {
			k.onItsWay(p)
			return nil
		}
	}
	found := "nothing of it"
	if !k.exists {
		found = "no such instance"
	}
	switch {
	case !k.o.Quiescent && k.o.Broker == nil && !k.overdue(p.At):
		k.onItsWay(p)
	case !k.exists && !k.o.NothingRemoved && (k.tombstone || !k.leavesTombstone(p.At)):
		k.not[NotKept]++
	case k.o.Broker == nil && !k.o.Quiescent: // it may wait there
		k.not[NotAsked]++
	case k.o.Dead == nil && p.What == PromisedQueue && (!k.exists || k.row.Status.Ended()): // it may be a dead letter
		k.not[NotAsked]++
	case k.o.Dead != nil && p.What == PromisedQueue && k.o.Now().Sub(p.At) > k.o.DeadFor && !k.o.NothingRemoved:
		k.not[NotKept]++ // it may have been a dead letter
	default:
		f := Finding{Rule: rule, Instance: k.instance, Expected: expected, Found: found}
		if p.By != nil {
			f = p.lost(found)
		}
		k.suspects = append(k.suspects, suspect{message: p.Message, instance: p.Instance, finding: f})
	}
	return nil
}

// onItsWay counts what is still under way, of what clients were promised.
func (k *keeping) onItsWay(p promise) {
	if p.By == nil {
		k.underWay++
	}
}

// lost says that what an instance has said to another one is lost.
func (p promise) lost(found string) Finding {
	f := Finding{Rule: LaunchLost, Instance: p.By.Instance, Execution: p.By.Execution, Event: p.By.Event, Found: found,
		Expected: fmt.Sprintf("instance %q, which was started here", p.Instance)}
	if p.What == PromisedQueue {
		f.Rule, f.Expected = SendLost,
			fmt.Sprintf("the message to queue %q of instance %q in its history, under way, or among the dead letters",
				p.Queue, p.Instance)
	}
	return f
}

// promisedAt is a promise with where its message was taken in.
type promisedAt struct {
	message string
	place
}

// order: who sends one message after the other relies on their order.
func (k *keeping) order(p promise, newest map[[2]string]promisedAt) {
	at := k.wanted[p.Message]
	if at.event == 0 || p.By != nil {
		return
	}
	who := [2]string{fmt.Sprint(p.Log), p.Queue}
	if last, ok := newest[who]; ok && at.before(last.place) {
		k.bad(QueueReorder, at,
			fmt.Sprintf("message %s of queue %q behind %s (execution %d, event %d), which was promised before it",
				p.Message, p.Queue, last.message, last.execution, last.event),
			"it before that")
		return
	}
	newest[who] = promisedAt{p.Message, at}
}

// end: what a waiter was told is so for good.
func (k *keeping) end(p promise) {
	said := string(p.Status)
	if p.Status == round.Completed {
		said += " with " + clip(events.Canonical(p.Output))
	}
	fits := func(e ending) bool {
		return e.ended && e.status == p.Status &&
			(p.Status != round.Completed || bytes.Equal(events.Canonical(p.Output), e.output))
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
		k.bad(EndDiffers, at, expected, fmt.Sprintf("%d executions", k.highest))
	}
}

// ---- Dead letters.

// suspect is a message that is lost, unless it is a dead letter.
type suspect struct {
	message, instance string
	finding           Finding
}

// maxSuspects bounds how many wait until the dead letters are looked through.
const maxSuspects = 5000

func (s *system) suspect(ctx context.Context, x suspect) error {
	s.suspects = append(s.suspects, x)
	if len(s.suspects) < maxSuspects {
		return nil
	}
	return s.deadLettered(ctx)
}

// deadLettered looks for the suspects among the dead letters; what is not there is lost.
func (s *system) deadLettered(ctx context.Context) error {
	dead := make(map[string]bool)
	wanted := make(map[string]bool)
	for _, x := range s.suspects {
		wanted[x.message] = true
	}
	for after := uint64(0); s.o.Dead != nil && len(wanted) > len(dead); {
		const some = 256
		list, err := s.o.Dead.DeadLetters(ctx, after, some)
		if err != nil {
			return fmt.Errorf("look through the dead letters: %w", err)
		}
		for _, l := range list {
			if after = l.Sequence; wanted[l.ID] {
				dead[l.ID] = true
			}
		}
		if len(list) < some {
			break
		}
	}
	for _, x := range s.suspects {
		if x.message != "" && dead[x.message] {
			s.report.DeadLetters++
		} else {
			s.found(x.finding)
		}
	}
	s.suspects = nil
	return nil
}
