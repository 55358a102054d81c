package worker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/services/worker"
)

func TestWorkThatNoWorkerSurvivesIsPoison(t *testing.T) {
	t.Parallel()
	w := newHastyWorld(t)
	dead := w.deadLetters()
	calls := make(chan call, 10)
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), Heartbeat: codec.Payload("7")})
	const most = 3
	for range most {
		r := w.start(worker.Config{MaxTaskCrashes: most}, held(block, calls))
		c := receive(t, calls, "the activity is called")
		r.kill()
		defer c.done("too late")
	}
	w.start(worker.Config{MaxTaskCrashes: most}, held(block, calls))
	_, failed := w.failed()
	if e := failed.Error; e.Kind != failure.Poison || !e.NonRetryable || e.Attempts != most {
		t.Errorf("got %+v", e)
	}
	if d := receive(t, dead, "a dead letter"); d.reason != "poison" ||
		!strings.HasPrefix(d.subject, "rondo.task._.block.1-2-") {
		t.Errorf("the dead letter says %+v", d)
	}
	if len(calls) > 0 {
		t.Error("it was begun once more")
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
	w.until("the note is gone", func() bool { return w.note("i") == nil })
}

// Workers that shut down nack their tasks; however often that happens, it does not make a task
// poison.
func TestGivingBackIsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	for i := range 6 {
		r := w.start(worker.Config{MaxTaskCrashes: 2, CancelGrace: patience}, obedient(block, calls))
		c := receive(t, calls, "the activity is called")
		if last, _, _ := activity.LastHeartbeat[int](c.ctx); last != i {
			t.Errorf("the last heartbeat is %d, want %d", last, i)
		}
		if err := activity.Heartbeat(c.ctx, i+1); err != nil {
			t.Error(err)
		}
		if err := r.drain(t); err != nil {
			t.Error(err)
		}
	}
	w.start(worker.Config{MaxTaskCrashes: 2}, block.Bind(func(_ context.Context, s string) (string, error) {
		return s, nil
	}))
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
}
