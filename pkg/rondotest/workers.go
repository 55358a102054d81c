package rondotest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// workers execute activity tasks, and publish their results. A task is executed when the time that
// its activity takes is over, unless it was withdrawn by then.
type workers struct {
	settings *settings
	queue    *queue
	broker   *broker
	store    *store
	problems *problems
	bound    map[string]worker      // by activity
	pending  map[string]events.Task // tasks whose result comes later, by token
}

// worker is an activity as the environment executes it.
type worker struct {
	binding activity.Binding
	takes   time.Duration
}

// take accepts a task, and completes it when its time is over.
func (w *workers) take(v *envelope) {
	task := *v.message.Content.(*events.Task)
	if task.Activity == orchestration.ReadValueActivity {
		w.readValue(v.message, task)
		return
	}
	worker, ok := w.bound[task.Activity]
	if !ok {
		return // no activity has this name
	}
	if !task.StartBy.IsZero() {
		w.answer(v.message, task, events.VerbBegun, &events.TaskBegun{Ref: task.Ref, Worker: "test"})
	}
	takes := worker.takes
	if task.StartToClose > 0 && takes > task.StartToClose {
		takes = task.StartToClose
	}
	w.queue.add(&envelope{due: w.queue.now.Add(takes), run: func() { w.complete(v, task, worker) },
		name: "activity " + task.Activity})
}

// complete runs an activity's code and publishes its result, unless the task was withdrawn
// meanwhile.
func (w *workers) complete(v *envelope, task events.Task, worker worker) {
	if w.queue.isPurged(v) {
		return
	}
	if task.StartToClose > 0 && worker.takes > task.StartToClose {
		w.answer(v.message, task, events.VerbFail, &events.TaskFailed{Ref: task.Ref, Worker: "test",
			Error: &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutStartToClose,
				Message: "it took longer than " + task.StartToClose.String()}})
		return
	}
	heartbeat := task.Heartbeat
	token := events.Token(v.message.Instance, task.Ref)
	ctx := activity.NewContext(baggageOf(v.message.Baggage), activity.Environment{
		Info: infoOf(v.message.Instance, task), Codec: w.settings.codec(), Logger: w.settings.log,
		Last: task.Heartbeat, Token: token,
		Heartbeat: func(p codec.Payload) error { heartbeat = p; return nil },
	})
	enc := w.settings.codec()
	if task.Activity == jobpush.Activity {
		enc = codec.JSON{} // as in the orchestrator
	}
	result, err := worker.binding.Run(ctx, enc, task.Input)
	switch {
	case errors.Is(err, activity.ErrResultPending):
		w.pending[token] = task
		w.broker.publish(events.Message{
			ID: events.PendingID(v.message.Instance, task.Ref), Instance: v.message.Instance,
			Content: &events.TaskBegun{Ref: task.Ref, Worker: "test", Pending: true},
		})
	case err != nil:
		w.answer(v.message, task, events.VerbFail, &events.TaskFailed{Ref: task.Ref,
			Error: events.Bounded(failure.From(err)), Heartbeat: heartbeat, Worker: "test"})
	default:
		w.answer(v.message, task, events.VerbDone,
			&events.TaskDone{Ref: task.Ref, Result: result, Worker: "test"})
	}
}

func infoOf(instance string, task events.Task) activity.ExecutionInfo {
	return activity.ExecutionInfo{
		Activity: task.Activity, Instance: instance, Execution: task.Ref.Execution, Orchestration: task.Orchestration,
		Version: task.Version, Attempt: task.Attempt, IdempotencyKey: task.IdempotencyKey, Tag: task.Tag,
		Session: task.Session, Worker: "test", Deadline: task.Deadline,
	}
}

func (w *workers) answer(m events.Message, task events.Task, verb events.Verb, c events.Content) {
	w.broker.publish(events.Message{ID: events.MessageID(verb, m.Instance, task.Ref), Instance: m.Instance, Content: c})
}

// readValue is the activity behind [orchestration.Value.ReadFrom].
func (w *workers) readValue(m events.Message, task events.Task) {
	var q orchestration.ReadValue
	if err := (codec.JSON{}).Decode(task.Input, &q); err != nil {
		w.problems.addf("read-value: %v", err)
		return
	}
	value, _ := w.store.value(q.Instance, q.Key)
	w.answer(m, task, events.VerbDone, &events.TaskDone{Ref: task.Ref, Result: value})
}

// settle completes or fails an activity that has returned [activity.ErrResultPending].
func (w *workers) settle(token string, verb events.Verb, c func(events.Task) events.Content) error {
	instance, _, err := events.ParseToken(token)
	if err != nil {
		return fmt.Errorf("rondotest: %w", err)
	}
	task, ok := w.pending[token]
	if !ok {
		return fmt.Errorf("rondotest: no activity is waiting under token %q", token)
	}
	delete(w.pending, token)
	w.answer(events.Message{Instance: instance}, task, verb, c(task))
	return nil
}

// Complete completes an activity that has returned [activity.ErrResultPending], by its token.
func (e *Env) Complete(ctx context.Context, token string, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := e.Codec().Encode(result)
	if err != nil {
		return err
	}
	return e.system.workers.settle(token, events.VerbDone, func(task events.Task) events.Content {
		return &events.TaskDone{Ref: task.Ref, Result: p}
	})
}

// Fail fails an activity that has returned [activity.ErrResultPending], by its token.
func (e *Env) Fail(ctx context.Context, token string, cause error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.system.workers.settle(token, events.VerbFail, func(task events.Task) events.Content {
		return &events.TaskFailed{Ref: task.Ref, Error: events.Bounded(failure.From(cause))}
	})
}
