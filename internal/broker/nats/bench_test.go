package natsbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

const benchBatch = 500

// batchOf returns messages of 200 bytes with ids, for as many instances.
func batchOf(subject func(i int) string, begin, n int) []events.Wire {
	body := make([]byte, 200)
	out := make([]events.Wire, n)
	for i := range out {
		out[i] = events.Wire{Subject: subject(begin + i), Body: body,
			Header: events.Header{events.HeaderMsgID: {"m" + strconv.Itoa(begin+i)}}}
	}
	return out
}

func benchEvent(i int) string { return "rondo.task-done.1-2.i" + strconv.Itoa(i) }
func benchWork(i int) string  { return "rondo.task._.bench.1-2.i" + strconv.Itoa(i) }

func fill(b *testing.B, to *natsbroker.Bus, subject func(i int) string, n int) {
	b.Helper()
	for begin := 0; begin < n; begin += benchBatch {
		if err := to.Publish(b.Context(), batchOf(subject, begin, min(benchBatch, n-begin))...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublish publishes messages of 200 bytes, 500 at once.
func BenchmarkPublish(b *testing.B) {
	to := natstest.Connect(b, natstest.Start(b), natsbroker.Config{})
	b.ResetTimer()
	fill(b, to, benchEvent, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkReceive receives and acknowledges messages of 200 bytes from eight partitions.
func BenchmarkReceive(b *testing.B) {
	server := natstest.Start(b)
	from := natstest.Connect(b, server, natsbroker.Config{InboxAckWait: time.Minute, Partitions: 8})
	fill(b, from, benchEvent, b.N)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	for p := range 8 {
		go func() {
			err := from.Receive(ctx, p, func(d broker.Delivery) {
				d.Hold.Ack()
				if left.Add(-1) == 0 {
					cancel()
				}
			})
			if err != nil {
				b.Error(err)
			}
		}()
	}
	<-ctx.Done()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkTake takes tasks and acknowledges them, with 64 slots.
func BenchmarkTake(b *testing.B) {
	from := natstest.Connect(b, natstest.Start(b), natsbroker.Config{})
	fill(b, from, benchWork, b.N)
	queue, err := from.OpenTaskQueue(b.Context(), broker.TaskQueueName{Activity: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for left := b.N; left > 0; {
		n, err := queue.Take(b.Context(), min(64, left), func(d broker.Delivery) { d.Hold.Ack() })
		if err != nil {
			b.Fatal(err)
		}
		left -= n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkLatency publishes one message after the other, each when the previous one has arrived.
func BenchmarkLatency(b *testing.B) {
	server := natstest.Start(b)
	from, to := natstest.Connect(b, server, natsbroker.Config{Partitions: 1}),
		natstest.Connect(b, server, natsbroker.Config{})
	arrived := make(chan time.Time)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() {
		done <- from.Receive(ctx, 0, func(d broker.Delivery) {
			arrived <- time.Now()
			d.Hold.Ack()
		})
	}()
	var took []time.Duration
	for i := range b.N + 10 {
		began := time.Now()
		if err := to.Publish(b.Context(), batchOf(benchEvent, i, 1)...); err != nil {
			b.Fatal(err)
		}
		at := <-arrived
		if i == 10 {
			b.ResetTimer() // the connections are warm
		}
		if i >= 10 {
			took = append(took, at.Sub(began))
		}
	}
	b.StopTimer()
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

var _ = fmt.Sprint

// BenchmarkHandover hands a task of a kilobyte over to another worker.
func BenchmarkHandover(b *testing.B) {
	s := natstest.Start(b)
	from, to := natstest.Connect(b, s, natsbroker.Config{}), natstest.Connect(b, s, natsbroker.Config{})
	stop, err := to.ReceiveHandovers(broker.HandoverTask, "w", func(broker.Delivery) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	if err := from.Publish(b.Context(),
		events.Wire{Subject: "rondo.task._.a.1-2.i", Body: make([]byte, 1024)}); err != nil {
		b.Fatal(err)
	}
	q, err := from.OpenTaskQueue(b.Context(), broker.TaskQueueName{Activity: "a"})
	if err != nil {
		b.Fatal(err)
	}
	var d broker.Delivery
	if _, err := q.Take(b.Context(), 1, func(x broker.Delivery) { d = x }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := from.Handover(b.Context(), "w", d); err != nil {
			b.Fatal(err)
		}
	}
}
