package orchestrator

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// slowKV has a reader wait, and keeps the writes.
type slowKV struct {
	broker.KV
	reads, goOn chan string

	mu     sync.Mutex
	writes []string
}

func (kv *slowKV) Get(_ context.Context, key string) ([]byte, error) {
	kv.reads <- key
	<-kv.goOn
	return nil, nil
}

func (kv *slowKV) Put(_ context.Context, key string, value []byte, _ time.Duration) error {
	kv.wrote(key + "=" + string(value))
	return nil
}

func (kv *slowKV) Delete(_ context.Context, key string) error {
	kv.wrote("delete " + key)
	return nil
}

func (kv *slowKV) wrote(what string) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.writes = append(kv.writes, what)
}

// TestQuarantinedMessagesOfAnInstanceAreTriedInItsOrder: a timer arrives before the message that
// was stored before it. It cannot be decided before that one, which would hold up all others until
// the timer counts as stuck.
func TestQuarantinedMessagesOfAnInstanceAreTriedInItsOrder(t *testing.T) {
	kv := &slowKV{reads: make(chan string, 10), goOn: make(chan string)}
	close(kv.goOn)
	b := newBackground()
	q := newQuarantine(kv, time.Hour, texts{}, b, slog.New(slog.NewTextHandler(io.Discard, nil)))
	timer := &item{quarantined: true, delivery: broker.Delivery{Sequence: 2, StoredAt: time.Unix(2, 0)}}
	start := &item{quarantined: true, delivery: broker.Delivery{Sequence: 1, StoredAt: time.Unix(1, 0)}}
	q.add(timer)
	q.add(start)
	ctx, cancel := context.WithCancel(t.Context())
	tried, done := make(chan *item), make(chan struct{})
	first := map[*item]*item{timer: start, start: start}
	go func() {
		defer close(done)
		q.run(ctx, func(_ context.Context, i *item) *item { return cmp.Or(first[i], i) },
			func(_ context.Context, i *item, _ int) { delete(first, timer); tried <- i })
	}()
	for _, want := range []*item{start, timer} {
		i := <-tried
		if i != want {
			t.Errorf("the message with sequence %d is tried, want that with %d", i.delivery.Sequence,
				want.delivery.Sequence)
		}
		q.settled(i)
	}
	cancel()
	<-done
	b.running.Wait()
}

// TestALateFirstMessageIsTriedAtOnce: the attempt of a timer has begun, which waits for a
// watermark. Meanwhile a message arrives that was stored earlier for the same instance, and waits
// behind the messages of others. It is tried next, because the timer waits for it.
func TestALateFirstMessageIsTriedAtOnce(t *testing.T) {
	kv := &slowKV{reads: make(chan string, 10), goOn: make(chan string)}
	close(kv.goOn)
	b := newBackground()
	q := newQuarantine(kv, time.Hour, texts{}, b, slog.New(slog.NewTextHandler(io.Discard, nil)))
	of := func(sequence uint64) *item {
		return &item{quarantined: true, delivery: broker.Delivery{Sequence: sequence, StoredAt: time.Unix(1, 0)}}
	}
	timer, other, start := of(3), of(2), of(1)
	ctx, cancel := context.WithCancel(t.Context())
	tried, done := make(chan *item), make(chan struct{})
	go func() {
		defer close(done)
		q.run(ctx, func(_ context.Context, i *item) *item { return i },
			func(_ context.Context, i *item, _ int) { tried <- i })
	}()
	q.add(timer)
	<-tried
	q.add(other)
	q.putFirst([]*item{other}) // nothing of its instance is tried
	q.add(start)
	q.putFirst([]*item{start, timer})
	for _, want := range []*item{start, other} {
		i := <-tried
		if i != want {
			t.Errorf("the message with sequence %d is tried, want that with %d", i.delivery.Sequence,
				want.delivery.Sequence)
		}
		q.settled(i)
	}
	q.settled(timer)
	cancel()
	<-done
	b.running.Wait()
}

// TestASettledMessageIsNotTried: a quarantined message is nacked before its attempt has begun. No
// attempt is counted, and the next message is tried.
func TestASettledMessageIsNotTried(t *testing.T) {
	kv := &slowKV{reads: make(chan string), goOn: make(chan string)}
	b := newBackground()
	q := newQuarantine(kv, time.Hour, texts{}, b, slog.New(slog.NewTextHandler(io.Discard, nil)))
	of := func(sequence uint64) *item {
		return &item{quarantined: true, delivery: broker.Delivery{Sequence: sequence, StoredAt: time.Unix(1, 0)}}
	}
	first, second := of(1), of(2)
	q.add(first)
	q.add(second)
	ctx, cancel := context.WithCancel(t.Context())
	tried, done := make(chan *item, 2), make(chan struct{})
	go func() {
		defer close(done)
		q.run(ctx, func(_ context.Context, i *item) *item { return i },
			func(_ context.Context, i *item, _ int) { tried <- i })
	}()
	<-kv.reads
	q.settled(first)
	kv.goOn <- ""
	<-kv.reads
	kv.goOn <- ""
	if i := <-tried; i != second {
		t.Errorf("the message with sequence %d is tried", i.delivery.Sequence)
	}
	cancel()
	<-done
	b.running.Wait()
	if want := []string{attemptsKey(second.delivery) + "=1"}; !slices.Equal(kv.writes, want) {
		t.Errorf("written is %q, want %q", kv.writes, want)
	}
}

// TestQuarantinedInstancesAreListed: those that are tried come first, with their attempt, then
// those with the oldest message. A settled message is not listed.
func TestQuarantinedInstancesAreListed(t *testing.T) {
	kv := &slowKV{reads: make(chan string, 10), goOn: make(chan string)}
	close(kv.goOn)
	b := newBackground()
	q := newQuarantine(kv, time.Hour, texts{}, b, slog.New(slog.DiscardHandler))
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	of := func(instance string, sequence uint64, c events.Content) *item {
		return &item{quarantined: true, message: events.Message{Instance: instance, Content: c},
			arrived:  at(int64(sequence)),
			delivery: broker.Delivery{Sequence: sequence, StoredAt: time.Unix(1, 0)}}
	}
	check := func(what string, want ...report.Quarantined) {
		t.Helper()
		if got := q.list(); !slices.Equal(got, want) {
			t.Errorf("%s: listed are %+v, want %+v", what, got, want)
		}
	}
	start, raised := of("started", 5, &events.Start{}), of("started", 4, &events.EventRaised{})
	old := of("old", 2, &events.EventRaised{})
	for _, i := range []*item{start, raised, old} {
		q.add(i)
	}
	waits := report.Quarantined{Instance: "started", Messages: 2, Start: true, Since: at(4)}
	check("none is tried", report.Quarantined{Instance: "old", Messages: 1, Since: at(2)}, waits)
	ctx, cancel := context.WithCancel(t.Context())
	tried, done := make(chan *item), make(chan struct{})
	go func() {
		defer close(done)
		q.run(ctx, func(_ context.Context, i *item) *item { return i },
			func(_ context.Context, i *item, _ int) { tried <- i })
	}()
	<-tried
	tries := waits
	tries.Attempt = 1
	check("one is tried", tries, report.Quarantined{Instance: "old", Messages: 1, Since: at(2)})
	q.letGo(start)
	<-tried
	check("it is stuck", report.Quarantined{Instance: "started", Messages: 2, Start: true, Since: at(4), Attempt: 1},
		report.Quarantined{Instance: "old", Messages: 1, Since: at(2)})
	for _, i := range []*item{start, raised} {
		q.settled(i)
	}
	<-tried
	q.settled(old)
	check("all are settled")
	cancel()
	<-done
	b.running.Wait()
}
