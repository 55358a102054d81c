package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/rondo-run/rondo/internal/broker"
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
		r := &valueReader{by: "o-1", broker: f, prefix: "rondo", store: store, background: newBackground(),
			reading: make(chan struct{}, readAtOnce), log: slog.New(slog.DiscardHandler)}
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
