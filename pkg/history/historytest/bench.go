package historytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Bench measures a store: commits of batches of several sizes, and loads of histories of several lengths.
func Bench(b *testing.B, fresh func(testing.TB) *Database) {
	for _, size := range []int{1, 16, 128, 512} {
		b.Run(fmt.Sprintf("commit/turns=%d", size), func(b *testing.B) { benchCommit(b, fresh(b), size) })
	}
	for _, length := range []int64{1, 100, 10_000} {
		b.Run(fmt.Sprintf("load/events=%d", length), func(b *testing.B) { benchLoad(b, fresh(b), length) })
	}
}

// benchCommit commits whole one-activity orchestrations, batch by batch: each instance takes two turns, of five events together. One
// iteration is one batch. The rows of the outbox are removed with the next batch, as the orchestrator does it.
func benchCommit(b *testing.B, db *Database, size int) {
	ctx := context.Background()
	s := db.Open(b, Options{})
	actors := make([]*Actor, size)
	var published []history.PromiseKey
	rows := 0
	for n := range b.N {
		b.StopTimer()
		turns := make([]*round.Turn, size)
		for i := range actors {
			if n%2 == 0 {
				actors[i] = NewActor(fmt.Sprintf("order-%d-%d-%d", size, n, i)).At(events.Instant(time.Now()))
				turns[i] = actors[i].StartAndCall()
			} else {
				turns[i] = actors[i].finish()
			}
			rows += len(turns[i].Executions[0].Events)
		}
		batch := Batch(b, turns...)
		batch.Published = published
		b.StartTimer()
		r, err := s.Commit(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range r.Outcomes {
			if o.Verdict != history.Committed {
				b.Fatal(o)
			}
		}
		published = r.Promises
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(rows)/seconds, "rows/s")
	b.ReportMetric(float64(b.N)/seconds, "commits/s")
}

// finish is the second round of a one-activity orchestration.
func (a *Actor) finish() *round.Turn {
	t := a.Say(&events.ActivityCompleted{Schedule: 2, Result: events.Payload(`{"receipt":"r-1"}`)})
	before := a.before
	end := a.Complete(`{"receipt":"r-1"}`)
	t.Executions[0].Events = append(t.Executions[0].Events, end.Executions[0].Events...)
	t.Row, a.before = a.Row, before
	return t
}

// benchLoad loads one instance with a history of so many events, again and again.
func benchLoad(b *testing.B, db *Database, length int64) {
	ctx := context.Background()
	s := db.Open(b, Options{})
	a := NewActor("long")
	turns := []*round.Turn{a.Start()}
	for a.Row.LastEvent < length {
		var facts []events.Fact
		for range min(1000, length-a.Row.LastEvent) {
			facts = append(facts, &events.EventReceived{Wait: 1, Name: "note", Data: events.Payload(`{"sku":"a1","n":100}`)})
		}
		turns = append(turns, a.Say(facts...))
	}
	for _, t := range turns {
		if _, err := s.Commit(ctx, Batch(b, t)); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for range b.N {
		known, err := s.Load(ctx, []string{"long"}, nil)
		if err != nil || int64(len(known[0].History)) != length {
			b.Fatal(err, len(known[0].History), known[0].Unreadable)
		}
	}
	b.ReportMetric(float64(length)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
