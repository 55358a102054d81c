package worker_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// BenchmarkActivities executes activities that do nothing. It measures taking tasks, publishing
// results and acknowledging. The broker and the receiver of the results are in the same process.
func BenchmarkActivities(b *testing.B) {
	nothing := activity.Define[int, int]("nothing").Bind(func(_ context.Context, n int) (int, error) { return n, nil })
	for _, slots := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("slots=", slots), func(b *testing.B) {
			w := newPatientWorld(b)
			const batch = 1000
			put := func(from, n int) {
				for at := from; at < from+n; at += batch {
					var messages []events.Message
					for i := at; i < min(at+batch, from+n); i++ {
						work := events.Task{Activity: "nothing", Input: codec.Payload(strconv.Itoa(i)),
							Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}}
						messages = append(messages, w.message("i-"+strconv.Itoa(i%512), &work))
					}
					w.publish(messages...)
				}
			}
			put(0, b.N)
			b.ResetTimer()
			w.start(worker.Config{Slots: slots}, nothing)
			for range b.N {
				w.done()
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "activities/s")
		})
	}
}

// BenchmarkOneActivity measures one activity at a time.
func BenchmarkOneActivity(b *testing.B) {
	nothing := activity.Define[int, int]("nothing").Bind(func(_ context.Context, n int) (int, error) { return n, nil })
	w := newPatientWorld(b)
	w.start(worker.Config{}, nothing)
	b.ResetTimer()
	for i := range b.N {
		w.send("i", events.Task{Activity: "nothing",
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
		w.done()
	}
}
