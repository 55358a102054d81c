package rondotest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// take is the worker: it takes a work item up, and completes it when its time is over.
func (e *Env) take(v *envelope) {
	w := *v.message.Content.(*events.Work)
	if w.Activity == orchestration.ReadValueActivity {
		e.readValue(v.message, w)
		return
	}
	worker, ok := e.work[w.Activity]
	if !ok {
		return // nobody takes it up
	}
	if !w.StartBy.IsZero() {
		e.answer(v.message, w, events.VerbBegun, &events.WorkBegun{Ref: w.Ref, Worker: "test"})
	}
	takes := worker.takes
	if w.StartToClose > 0 && takes > w.StartToClose {
		takes = w.StartToClose
	}
	e.queue(&envelope{due: e.now.Add(takes), run: func() { e.complete(v, w, worker) }, name: "activity " + w.Activity})
}

// complete runs an activity's code and publishes its result, unless the work was withdrawn
// meanwhile.
func (e *Env) complete(v *envelope, w events.Work, worker worker) {
	if v.sequence <= e.purged[v.subject] {
		return
	}
	if w.StartToClose > 0 && worker.takes > w.StartToClose {
		e.answer(v.message, w, events.VerbFail, &events.WorkFailed{Ref: w.Ref, Worker: "test", Error: &events.Error{
			Kind: events.Timeout, Type: events.TimeoutStartToClose,
			Message: "it took longer than " + w.StartToClose.String()}})
		return
	}
	heartbeat := w.Heartbeat
	token := events.Token(v.message.Instance, w.Ref)
	ctx := activity.NewContext(baggageOf(v.message.Baggage), activity.Environment{
		Info: infoOf(v.message.Instance, w), Codec: e.Codec(), Last: w.Heartbeat, Token: token,
		Heartbeat: func(p events.Payload) error { heartbeat = p; return nil },
	})
	codec := e.Codec()
	if w.Activity == jobpush.Activity {
		codec = events.JSON{} // as in the orchestrator
	}
	result, err := worker.binding.Run(ctx, codec, w.Input)
	switch {
	case errors.Is(err, activity.ErrPending):
		e.pending[token] = w
		e.publish(events.Message{
			ID: events.PendingID(v.message.Instance, w.Ref), Instance: v.message.Instance,
			Content: &events.WorkBegun{Ref: w.Ref, Worker: "test", Pending: true},
		})
	case err != nil:
		e.answer(v.message, w, events.VerbFail,
			&events.WorkFailed{Ref: w.Ref, Error: events.AsError(err).Bounded(), Heartbeat: heartbeat, Worker: "test"})
	default:
		e.answer(v.message, w, events.VerbDone, &events.WorkDone{Ref: w.Ref, Result: result, Worker: "test"})
	}
}

func infoOf(instance string, w events.Work) activity.Info {
	return activity.Info{
		Activity: w.Activity, Instance: instance, Execution: w.Ref.Execution, Orchestration: w.Orchestration,
		Version: w.Version,
		Attempt: w.Attempt, IdempotencyKey: w.IdempotencyKey, Tag: w.Tag, Session: w.Session, Worker: "test",
		Deadline: w.Deadline,
	}
}

func (e *Env) answer(m events.Message, w events.Work, verb events.Verb, c events.Content) {
	e.publish(events.Message{ID: events.MessageID(verb, m.Instance, w.Ref), Instance: m.Instance, Content: c})
}

// readValue is the activity behind [orchestration.Key.ReadFrom].
func (e *Env) readValue(m events.Message, w events.Work) {
	var q orchestration.ReadValue
	if err := (events.JSON{}).Decode(w.Input, &q); err != nil {
		e.problem("read-value: %v", err)
		return
	}
	var value events.Payload
	if in := e.instances[q.Instance]; in != nil {
		value = in.values[q.Key]
	}
	e.answer(m, w, events.VerbDone, &events.WorkDone{Ref: w.Ref, Result: value})
}

// Complete completes an activity that has returned [activity.ErrPending], by its token.
func (e *Env) Complete(token string, result any) error {
	p, err := e.Codec().Encode(result)
	if err != nil {
		return err
	}
	return e.completePending(token, events.VerbDone, func(w events.Work) events.Content {
		return &events.WorkDone{Ref: w.Ref, Result: p}
	})
}

// Fail fails an activity that has returned [activity.ErrPending], by its token.
func (e *Env) Fail(token string, cause error) error {
	return e.completePending(token, events.VerbFail, func(w events.Work) events.Content {
		return &events.WorkFailed{Ref: w.Ref, Error: events.AsError(cause).Bounded()}
	})
}

func (e *Env) completePending(token string, verb events.Verb, c func(events.Work) events.Content) error {
	instance, _, err := events.ParseToken(token)
	if err != nil {
		return fmt.Errorf("rondotest: %w", err)
	}
	w, ok := e.pending[token]
	if !ok {
		return fmt.Errorf("rondotest: no activity is waiting under token %q", token)
	}
	delete(e.pending, token)
	e.answer(events.Message{Instance: instance}, w, verb, c(w))
	return nil
}

// runStep runs an inline step when it is time, unless it is about to run already.
func (e *Env) runStep(instance string, s round.Step) {
	name := fmt.Sprintf("step %s/%d/%d/%d", instance, s.Execution, s.StepRef.Number, s.Attempt)
	for _, v := range e.ready {
		if v.name == name {
			return
		}
	}
	for _, v := range e.delayed {
		if v.name == name {
			return
		}
	}
	e.queue(&envelope{due: s.NotBefore, owner: instance, name: name, run: func() {
		ctx := activity.NewContext(baggageOf(s.Baggage), activity.Environment{Codec: e.Codec(), Info: activity.Info{
			Activity: s.Name, Instance: instance, Execution: s.Execution, Attempt: s.Attempt,
			IdempotencyKey: s.IdempotencyKey, Deadline: s.Deadline,
		}})
		result, err := s.Run(ctx)
		var failure *events.Error
		if err != nil {
			failure = events.AsError(err).Bounded()
		}
		e.queue(&envelope{message: s.Done(instance, result, failure), sent: e.now, owner: instance, name: name})
	}})
}

// push is what becomes of a push to a queue, unless the test has said something else with
// [jobpush.With]: a queue has as much room as it needs, and as many priorities as queues usually
// have.
func (e *Env) push(_ context.Context, name string, p jobs.Push) error {
	switch digest, again := e.pushes[p.Key]; {
	case again && digest != p.Digest:
		return jobs.ErrKeyReused
	case again:
		return nil
	}
	for _, i := range p.Items {
		if i.Priority >= jobs.DefaultPriorities {
			return &jobs.InvalidError{Problem: fmt.Sprintf("priority: %d; want 0 to %d", i.Priority,
				jobs.DefaultPriorities-1)}
		}
	}
	e.pushes[p.Key] = p.Digest
	e.pushed[name] = append(e.pushed[name], p.Items...)
	return nil
}

// Pushed lists what orchestrations have pushed to a queue, in the order in which that happened,
// each push once. Nobody takes it.
func (e *Env) Pushed(name string) []jobs.NewItem { return slices.Clone(e.pushed[name]) }
