package rondotest

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// orchestrator runs rounds: it decides on messages, commits the turn to the store, and then does
// what the turn says.
type orchestrator struct {
	settings *settings
	queue    *queue
	broker   *broker
	store    *store
	report   *report
	problems *problems
}

// round is one round: it takes a message and, as a real orchestrator would, all others that wait
// for the same instance.
func (o *orchestrator) round(v *envelope) {
	in := o.store.instanceOf(v.message.Instance)
	most := len(o.queue.ready)
	if c := o.settings.chaos; c != nil {
		most = c.batch()
	}
	batch := append([]*envelope{v}, o.queue.takeFor(in.id, most)...)
	for len(batch) > 0 {
		batch = o.decide(in, batch)
	}
}

// decide runs one round and does what its turn says. It gives the deliveries for a further round at
// once, if there must be one.
func (o *orchestrator) decide(in *instance, batch []*envelope) (again []*envelope) {
	if o.settings.cold {
		in.forget()
	}
	if in.live == nil {
		known := in.known()
		if !o.settings.changed {
			known.Own = in.own()
		}
		in.live = round.New(&o.settings.config, known)
	}
	in.live.Remember(in.former)
	turn := in.live.Decide(inboxOf(batch, o.queue.now), o.queue.now)
	o.report.rounds++
	o.trace(batch, turn)
	c := o.settings.chaos
	if c != nil && c.crash() {
		o.loseTurn(in, batch)
		return nil
	}
	o.store.commit(in, turn)
	lost := c != nil && !turn.Again && c.crash()
	if lost {
		o.crash(in)
	}
	o.follow(in, turn, lost)
	again = o.settle(batch, turn, lost)
	if turn.Evict {
		in.forget()
	}
	if turn.Question != nil {
		in.recall(*turn.Question)
	}
	if turn.Again && len(again) == 0 {
		again = []*envelope{{message: events.Message{Instance: in.id, Content: &events.Wake{Reason: "again"}},
			sent: o.queue.now}}
	}
	return again
}

// inboxOf makes deliveries of envelopes, and counts the attempts.
func inboxOf(batch []*envelope, now time.Time) []round.Delivery {
	inbox := make([]round.Delivery, len(batch))
	for i, v := range batch {
		v.attempts++
		v.deliveries++
		inbox[i] = round.Delivery{Message: v.message, Attempts: v.attempts, NumDelivered: v.deliveries,
			Age:  now.Sub(v.sent),
			Sent: round.SentAt(v.message.Sent, v.sent, v.later)}
	}
	return inbox
}

// trace writes a round to the trace, if the test wants one.
func (o *orchestrator) trace(batch []*envelope, turn round.Turn) {
	w := o.settings.trace
	if w == nil {
		return
	}
	fmt.Fprintf(w, "--- round %d of %s at %s\n", o.report.rounds, turn.Instance,
		o.queue.now.Format(time.RFC3339Nano))
	for _, v := range batch {
		fmt.Fprintf(w, "came %s %s\n", v.message.Content.Verb(), v.subject)
	}
	fmt.Fprintf(w, "%v", turn)
}

// follow publishes the messages of a turn and starts its steps. A crash after the commit loses the
// steps; the messages are published all the same, as the outbox does.
func (o *orchestrator) follow(in *instance, turn round.Turn, lost bool) {
	for _, m := range turn.Messages {
		o.broker.publish(m)
	}
	if !lost {
		for _, s := range turn.Steps {
			o.runStep(in.id, s)
		}
	}
	o.report.add(in, turn)
	o.logs(in.id, turn.Logs)
}

// settle does what becomes of each delivery, and gives those that are to be presented again.
func (o *orchestrator) settle(batch []*envelope, turn round.Turn, lost bool) (again []*envelope) {
	for i, r := range turn.Receipts {
		v := batch[i]
		switch r.Verdict {
		case round.Accepted, round.Ignored:
			o.report.settle(v.message, r, o.store.instanceOf(v.message.Instance).row.Status)
			if lost {
				o.queue.add(v) // the acknowledgement was lost
			}
		case round.Returned:
			if r.Reason == round.NotKnownHere { // another orchestrator may know it, and here there is none
				v.attempts--
				o.queue.park(v, r.Detail)
				continue
			}
			v.due = o.queue.now.Add(max(r.After, time.Microsecond))
			v.sequence = 0 // it blocks no other message any more
			if r.Reason != round.CannotRead {
				v.attempts-- // to give it back on purpose is no attempt
			}
			o.queue.add(v)
		case round.Again:
			again = append(again, v)
		case round.Dead:
			o.report.settle(v.message, r, o.store.instanceOf(v.message.Instance).row.Status)
		default:
			o.problems.addf("delivery %d has no verdict", i)
		}
	}
	return again
}

// runStep runs an inline step when it is time, unless it is about to run already.
func (o *orchestrator) runStep(instance string, s round.Step) {
	name := fmt.Sprintf("step %s/%d/%d/%d", instance, s.Execution, s.StepRef.Number, s.Attempt)
	if o.queue.has(name) {
		return
	}
	of := o.store.instances[instance].row
	o.queue.add(&envelope{due: s.NotBefore, owner: instance, name: name, run: func() {
		ctx := activity.NewContext(baggageOf(s.Baggage), activity.Environment{Codec: o.settings.codec(),
			Logger: o.settings.log, Step: true,
			Info: activity.ExecutionInfo{
				Activity: s.Name, Instance: instance, Execution: s.Execution, Orchestration: of.Name,
				Version: of.Version,
				Attempt: s.Attempt, IdempotencyKey: s.IdempotencyKey, Deadline: s.Deadline,
			}})
		result, err := s.Run(ctx)
		var failed *failure.Error
		if err != nil {
			failed = events.Bounded(failure.From(err))
		}
		o.queue.add(&envelope{message: s.Done(instance, result, failed), sent: o.queue.now, owner: instance,
			name: name})
	}})
}

// crash forgets an instance and what its process was doing for it.
func (o *orchestrator) crash(in *instance) {
	in.forget()
	in.sweep = true
	o.queue.drop(in.id)
}

// loseTurn is a crash before the commit: the store has nothing of the turn, and its messages are
// redelivered.
func (o *orchestrator) loseTurn(in *instance, batch []*envelope) {
	o.crash(in)
	var back []*envelope
	for _, v := range batch {
		if v.owner == "" && v.sequence > 0 {
			back = append(back, v)
		}
	}
	o.queue.putBack(back)
	if len(batch) > 0 && batch[0].sequence == 0 {
		o.broker.publish(events.Message{Instance: in.id,
			Content: &events.Wake{Reason: fmt.Sprint("after crash ", o.settings.chaos.crashes)}})
	}
}

// logs writes what an orchestration has logged into the log of the test.
func (o *orchestrator) logs(id string, records []round.Log) {
	for _, l := range records {
		h := o.settings.log.With("instance", id).Handler()
		_ = h.Handle(context.Background(), l.Record) // the log of a test takes everything
	}
}
