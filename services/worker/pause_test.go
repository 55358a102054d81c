package worker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// A paused worker begins no task: not the one for which it waits when the pause begins, and not
// those that arrive later. When the pause is over, it executes all of them.
func TestAPausedWorkerBeginsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var paused atomic.Bool
		calls := make(chan call, 10)
		w.start(worker.Config{ID: "w-1", Paused: func() error {
			if paused.Load() {
				return errors.New("the database may be a copy")
			}
			return nil
		}}, held(block, calls))
		paused.Store(true)
		for _, instance := range []string{"a", "b"} {
			w.send(instance, events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
			<-time.After(time.Minute)
			synctest.Wait()
			if len(calls) > 0 {
				t.Fatal("a task was begun")
			}
		}
		paused.Store(false)
		for range 2 {
			c := receive(t, calls, "it is begun")
			c.done("y")
			w.done()
		}
	})
}
