package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has the rules about messages in flight: those that a history waits for, and those in
// the outbox. The check asks the broker for an activity task before it asks for the answer, which
// comes later; and it asks for all of them twice, because an orchestrator may record an answer
// meanwhile.

// inFlight judges the open events of an instance's current execution.
func (s *system) inFlight(ctx context.Context, r reading) ([]Finding, error) {
	if !r.running() || s.exported {
		return nil, nil
	}
	var findings []Finding
	bad := func(rule Rule, event int64, expected, found string) {
		findings = append(findings,
			Finding{Rule: rule, Instance: r.lineage.id, Execution: r.row.Execution, Event: event,
				Expected: expected, Found: found})
	}
	if at := r.row.WakeAt; !at.IsZero() && s.overdue(at) {
		bad(WakeOverdue, 0, "somebody to look at it at "+stamp(at), "nobody has: does no orchestrator run?")
	}
	for _, id := range slices.Sorted(maps.Keys(r.lineage.now.open)) {
		e := r.lineage.now.open[id]
		lost, err := s.lost(ctx, r, e)
		if err != nil {
			return nil, err
		}
		switch {
		case s.o.Quiescent && s.outstanding(e):
			bad(Outstanding, id, "nothing to be outstanding", "no answer to "+what(e))
		case lost != "":
			bad(lost, id, "the answer to "+what(e)+", or the message that brings it about",
				"neither in history nor in NATS")
		}
	}
	return findings, nil
}

func what(e events.Event) string {
	switch f := e.Fact.(type) {
	case *events.ActivityScheduled:
		return fmt.Sprintf("activity %q", f.Name)
	case *events.TimerCreated:
		return "the timer at " + stamp(f.FireAt)
	case *events.ChildStarted:
		return fmt.Sprintf("child %q", f.Instance)
	default:
	}
	return string(kindOf(e.Fact))
}

// outstanding reports whether an answer is due by now. For children the child decides.
func (s *system) outstanding(e events.Event) bool {
	switch f := e.Fact.(type) {
	case *events.ActivityScheduled:
		return f.Name != passedOn
	case *events.TimerCreated:
		return !f.FireAt.After(s.now())
	default:
	}
	return false
}

// lost names the rule that an open event violates; "" if none.
func (s *system) lost(ctx context.Context, r reading, e events.Event) (Rule, error) {
	if s.o.Broker == nil || !s.overdue(r.row.UpdatedAt) {
		return "", nil
	}
	ref := events.Ref{Incarnation: r.lineage.now.started.Incarnation, Execution: r.row.Execution, Event: e.ID}
	switch f := e.Fact.(type) {
	case *events.ActivityScheduled:
		if f.Name == passedOn {
			return "", nil
		}
		there, err := s.has(ctx, r.lineage.id, f.NotBefore, &events.Task{Ref: ref, Activity: f.Name, Tag: f.Tag},
			&events.TaskDone{Ref: ref}, &events.TaskFailed{Ref: ref, Error: unknown}, &events.TaskBegun{Ref: ref})
		if there || err != nil {
			return "", err
		}
		return TaskLost, nil
	case *events.TimerCreated:
		if !s.overdue(f.FireAt) {
			return "", nil // the database knows when it is due
		}
		there, err := s.has(ctx, r.lineage.id, f.FireAt, &events.TimerDue{Ref: ref, Due: f.FireAt},
			&events.Wake{Reason: "sweep"})
		if there || err != nil {
			return "", err
		}
		return TimerLost, nil
	default:
	}
	return "", nil
}

// unknown is the error of messages that serve as questions: only their subject counts.
var unknown = &failure.Error{Kind: failure.Unreadable, Message: "unknown"}

// has asks the broker whether it has one of some messages to an instance, in their order.
func (s *system) has(ctx context.Context, instance string, notBefore time.Time,
	contents ...events.Content) (bool, error) {
	for _, c := range contents {
		there, err := s.hasMessage(ctx,
			events.Message{Instance: instance, Internal: true, NotBefore: notBefore, Content: c})
		if there || err != nil {
			return there, err
		}
	}
	return false, nil
}

func (s *system) hasMessage(ctx context.Context, m events.Message) (bool, error) {
	w, err := events.Encode(s.o.Prefix, m)
	if err != nil {
		return false, fmt.Errorf("ask NATS about instance %q: %w", m.Instance, err)
	}
	there, err := s.o.Broker.Has(ctx, w)
	if err != nil {
		return false, fmt.Errorf("ask NATS about instance %q: %w", m.Instance, err)
	}
	return there, nil
}

// hasStart asks the broker whether it has the start of a child. Another instance may have sent one
// for the same id. If the subject has too many, the start may be among them.
func (f *family) hasStart(ctx context.Context, instance, name, id string) (bool, error) {
	w, err := events.Encode(f.o.Prefix, events.Message{ID: id, Instance: instance, Internal: true,
		Content: &events.Start{Orchestration: name}})
	if err != nil {
		return false, fmt.Errorf("ask NATS about instance %q: %w", instance, err)
	}
	list, more, err := f.o.Broker.StoredUnder(ctx, []events.Wire{w}, maxStored)
	if err != nil {
		return false, fmt.Errorf("ask NATS about instance %q: %w", instance, err)
	}
	return more || slices.ContainsFunc(list, func(m broker.StoredMessage) bool { return m.ID == id }), nil
}

// childToCome judges a child that does not exist and that its parent waits for.
func (f *family) childToCome(ctx context.Context, c child) error {
	if !f.waitedFor(c) {
		return nil
	}
	if f.o.Quiescent {
		f.bad(Outstanding, c.parent, fmt.Sprintf("child %q", c.instance), "no such instance yet")
		return nil
	}
	if f.o.Broker == nil || !f.overdue(c.at) {
		return nil
	}
	list, err := f.store.Events(ctx, c.parent.Instance, c.parent.Execution, c.event-1, 1)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	started, ok := firstFact(list).(*events.ChildStarted)
	if !ok {
		return nil
	}
	ref := events.Ref{Incarnation: c.parent.Incarnation, Execution: c.parent.Execution, Event: c.event}
	there, err := f.hasStart(ctx, c.instance, started.Name, events.MessageID(events.VerbStart, c.parent.Instance, ref))
	if there || err != nil {
		return err
	}
	// that the id is another's
	there, err = f.has(ctx, c.parent.Instance, time.Time{}, &events.ChildError{Ref: ref, Error: unknown})
	if !there && err == nil {
		f.bad(ChildLost, c.parent, fmt.Sprintf("child %q, or its start in NATS", c.instance), "neither")
	}
	return err
}

// childUnanswered judges a child that has not answered yet.
func (f *family) childUnanswered(ctx context.Context, c child, row round.Row) error {
	if !row.Status.Ended() || !f.waitedFor(c) {
		return nil
	}
	if f.o.Quiescent {
		f.bad(Outstanding, c.parent,
			fmt.Sprintf("the answer of child %q, which is %s", c.instance, row.Status), "none yet")
		return nil
	}
	if f.o.Broker == nil || !f.overdue(row.EndedAt) {
		return nil
	}
	ref := events.Ref{Incarnation: c.parent.Incarnation, Execution: c.parent.Execution, Event: c.event}
	there, err := f.has(ctx, c.parent.Instance, time.Time{}, &events.ChildDone{Ref: ref})
	if !there && err == nil {
		f.bad(AnswerLost, c.parent, fmt.Sprintf("the answer of child %q, which is %s, in history or in NATS",
			c.instance, row.Status), "neither")
	}
	return err
}

// outbox: an orchestrator publishes each outbox entry within moments of its commit; a sweep
// publishes the entries of a process that died.
func (s *system) outbox(ctx context.Context) error {
	bound := s.o.Overdue
	if s.o.Quiescent {
		bound = 0
	}
	if bound < 0 || s.exported {
		return nil
	}
	old, err := s.store.OldOutbox(ctx, s.now().Add(-bound), 1000)
	if err != nil || len(old) == 0 {
		return err
	}
	first := make(map[history.OutboxKey]bool, len(old))
	for _, p := range old {
		first[p.Key] = true
	}
	if old, err = s.store.OldOutbox(ctx, s.now().Add(-bound), 1000); err != nil {
		return err
	}
	for _, p := range old {
		if !first[p.Key] {
			continue
		}
		made := fmt.Sprintf("outbox entry %d of shard %d, made at %s", p.Key.ID, p.Key.Shard, stamp(p.Key.Made()))
		f := Finding{Rule: OutboxOverdue, Expected: "the outbox to have nothing older than " + bound.String()}
		if f.Found = made + ", with " + plural.Count(len(p.Messages), "message"); p.Err != nil {
			f.Found = made + ", which cannot be read: " + p.Err.Error()
		} else if len(p.Messages) > 0 {
			f.Found += ", the first on " + p.Messages[0].Subject
		}
		s.found(f)
	}
	return nil
}
