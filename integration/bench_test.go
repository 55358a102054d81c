package integration_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/bus/embedded"
	"github.com/rondo-run/rondo/pkg/bus/natsbus"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/query"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// BenchmarkOneActivity measures orchestrations of one activity, with so many under way at once: broker, database, orchestrator, a worker that does
// nothing and the one who starts them all on this machine. It reports orchestrations a second.
func BenchmarkOneActivity(b *testing.B) {
	for _, db := range []string{"sqlite", "postgres"} {
		for _, flying := range []int{1, 128, 1000} {
			b.Run(fmt.Sprintf("%s/%d", db, flying), func(b *testing.B) { benchmarkOneActivity(b, db, flying) })
		}
	}
}

func benchmarkOneActivity(b *testing.B, db string, flying int) {
	var store history.Store
	var err error
	if db == "postgres" {
		pgtest.Need(b)
		store, err = cockroach.Open(b.Context(), pgtest.Database(b), cockroach.Options{Log: quiet()})
	} else {
		store, err = sqlite.Open(b.Context(), b.TempDir()+"/history.db", sqlite.Options{Log: quiet()})
	}
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	server, err := embedded.Start(embedded.Options{Dir: b.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	connect := func() *natsbus.Bus {
		x, err := natsbus.Connect(b.Context(), natsbus.Config{URLs: server.URL(), Logger: quiet()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { x.Close() })
		return x
	}
	code, err := orchestration.NewRegistry(basics...)
	if err != nil {
		b.Fatal(err)
	}
	o, err := orchestrator.New(connect(), store, code, orchestrator.Config{Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	wait.Go(func() { _ = o.Run(ctx) })
	worker := connect()
	wait.Go(func() { answerAll(ctx, worker) })

	client := connect()
	slots := make(chan struct{}, flying)
	var ended atomic.Int64
	all := make(chan struct{})
	unlisten, err := query.Listen(ctx, client, bus.Any, func(query.Notice) {
		<-slots
		if ended.Add(1) == int64(b.N) {
			close(all)
		}
	}, query.TopicEnded)
	if err != nil {
		b.Fatal(err)
	}
	defer unlisten()
	b.ResetTimer()
	begun := time.Now()
	for i := range b.N {
		slots <- struct{}{}
		w, err := events.Encode(client.Prefix(), events.Message{Instance: fmt.Sprint("i", i), Content: &events.Start{Orchestration: "once", Input: events.Payload(`"a"`)}})
		if err != nil {
			b.Fatal(err)
		}
		if flying == 1 {
			if err := client.Publish(ctx, w); err != nil {
				b.Fatal(err)
			}
			continue
		}
		wait.Go(func() {
			if err := client.Publish(ctx, w); err != nil {
				b.Error(err)
			}
		})
	}
	<-all
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "orchestrations/s")
	b.StopTimer()
	stop()
	wait.Wait()
}

// answerAll is a worker whose activities do nothing.
func answerAll(ctx context.Context, b *natsbus.Bus) {
	q, err := b.OpenQueue(ctx, bus.Queue{Activity: "ping"})
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		work := make(chan bus.Delivery, 256)
		go func() {
			defer close(work)
			_, _ = q.Take(ctx, 256, func(d bus.Delivery) { work <- d })
		}()
		for d := range work {
			batch := []bus.Delivery{d}
		more:
			for {
				select {
				case d, ok := <-work:
					if !ok {
						break more
					}
					batch = append(batch, d)
				default:
					break more
				}
			}
			answerBatch(ctx, b, batch)
		}
	}
}

func answerBatch(ctx context.Context, b *natsbus.Bus, batch []bus.Delivery) {
	var wires []events.Wire
	for _, d := range batch {
		m, err := events.Decode(b.Prefix(), d.Subject, d.Header, d.Body, "")
		if err != nil {
			continue
		}
		if w, err := events.Encode(b.Prefix(), done(m, "b")); err == nil {
			wires = append(wires, w)
		}
	}
	if b.Publish(ctx, wires...) != nil {
		return
	}
	for _, d := range batch {
		d.Hold.Ack()
	}
}
