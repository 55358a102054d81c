package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// floodedQueue is a broker with one task queue, from which all tasks come at once.
type floodedQueue struct {
	broker.Publisher
	broker.TaskQueues
	broker.TaskQueue
	tasks []broker.Delivery
	taken int
}

func (f *floodedQueue) OpenTaskQueue(context.Context, broker.TaskQueueName) (broker.TaskQueue, error) {
	return f, nil
}

func (f *floodedQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	for i := range n {
		if len(f.tasks) == 0 {
			<-ctx.Done()
			return i, nil
		}
		d := f.tasks[0]
		f.tasks = f.tasks[1:]
		f.taken++
		take(d)
	}
	return n, nil
}

func (f *floodedQueue) Publish(context.Context, ...events.Wire) error { return nil }

// slowStore returns values when it is released.
type slowStore struct {
	released chan struct{}
	reading  chan struct{}
}

func (s slowStore) Value(context.Context, string, string) (history.Value, bool, error) {
	s.reading <- struct{}{}
	<-s.released
	return history.Value{}, false, nil
}

// While the database is slow, thousands of reads of values wait in NATS, not in the memory of the
// orchestrator. Then all of them are answered.
func TestReadsOfValuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 10 * readAtOnce
		input, err := (codec.JSON{}).Encode(orchestration.ReadValue{Instance: "other", Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		f, how := &floodedQueue{}, make(chan string, all)
		for i := range all {
			w, err := events.Encode("rondo", events.Message{Instance: fmt.Sprint("i", i), ID: fmt.Sprint(i),
				Content: &events.Task{Ref: events.Ref{Execution: 1, Event: 2, Incarnation: "x"}, Orchestration: "o",
					Attempt: 1, Activity: orchestration.ReadValueActivity, Tag: orchestration.SystemTag, Input: input}})
			if err != nil {
				t.Fatal(err)
			}
			f.tasks = append(f.tasks, broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body,
				Hold: settled{how: how}})
		}
		store := slowStore{released: make(chan struct{}), reading: make(chan struct{}, all)}
		r := &valueReader{by: "o-1", broker: f, prefix: "rondo", store: store, system: new(agreement),
			background: newBackground(), reading: make(chan struct{}, readAtOnce), log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.run(ctx)
		}()
		synctest.Wait()
		if n := len(store.reading); n != readAtOnce || f.taken > readAtOnce+1 {
			t.Errorf("%d values are being read, and %d tasks were taken; want %d and at most one more", n, f.taken,
				readAtOnce)
		}
		close(store.released)
		for range all {
			if got := <-how; got != "ack" {
				t.Errorf("a task has %s", got)
			}
		}
		cancel()
		<-ended
		r.background.wait(t.Context())
	})
}

// agreement tells that the database may be used, or why not.
type agreement struct{ err error }

func (a *agreement) Decides() error { return a.err }

func (a *agreement) Await(ctx context.Context) error {
	if a.err != nil {
		<-ctx.Done()
	}
	return a.err
}

// Nothing is read from a database that may be a copy: the task goes to another orchestrator.
func TestNoValueIsReadFromACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := events.Encode("rondo", events.Message{Instance: "i", ID: "1",
			Content: &events.Task{Ref: events.Ref{Execution: 1, Event: 2, Incarnation: "x"}, Orchestration: "o",
				Attempt: 1, Activity: orchestration.ReadValueActivity, Tag: orchestration.SystemTag,
				Input: codec.Payload(`{"instance":"other","key":"k"}`)}})
		if err != nil {
			t.Fatal(err)
		}
		how := make(chan string, 1)
		d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, Hold: settled{how: how}}
		f := &floodedQueue{tasks: []broker.Delivery{d}}
		store := slowStore{released: make(chan struct{}), reading: make(chan struct{}, 1)}
		close(store.released)
		r := &valueReader{by: "o-1", broker: f, prefix: "rondo", store: store,
			system: &agreement{errors.New("a copy")}, background: newBackground(), reading: make(chan struct{}, 1),
			log: slog.New(slog.DiscardHandler)}
		r.read(t.Context(), d) // it was received just before
		if got := <-how; got == "ack" || len(store.reading) > 0 {
			t.Errorf("a task has %s, and %d values were read", got, len(store.reading))
		}
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		synctest.Wait()
		if f.taken > 0 {
			t.Error("a task was taken")
		}
		cancel()
	})
}

// Starts of job queues wait until the database is known to belong to NATS.
func TestNothingIsTakenBeforeTheSystemIsKnown(t *testing.T) {
	o := &Orchestrator{system: identity.New(identity.Config{})}
	if err := o.Takes(); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("it takes starts: %v", err)
	}
}
