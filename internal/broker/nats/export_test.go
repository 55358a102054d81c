package natsbroker

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// For tests.
const (
	FirstDirect    = firstDirect
	MaxResultsName = maxResultsName
)

// For tests: the functions that write and read bundles.
var (
	AppendResult = appendResult
	ReadBundle   = readBundle
)

// WaitDirect sets the time limit for the answer to a direct delivery.
func (b *Bus) WaitDirect(d time.Duration) { b.conn.direct.answer.Store(int64(d)) }

// LastsAfter sets how long this worker may execute a directly delivered task before its publisher
// stores it.
func (b *Bus) LastsAfter(d time.Duration) { b.conn.direct.lasts.Store(int64(d)) }

// StillThere is for tests.
func (b *Bus) StillThere(ctx context.Context, partition int, from, upTo uint64) (left map[string][]uint64,
	found int, err error) {
	return b.inbox.reader.stillThere(ctx, fromClients, partition, from, upTo)
}

// NextOf returns the place of the next message of an instance, by the last word of its subjects.
func (b *Bus) NextOf(ctx context.Context, partition int, word string, from uint64) (place uint64, err error) {
	f, err := b.inbox.reader.next(ctx, b.instanceFilter(fromClients, partition, word), from)
	if f != nil {
		place = f.Sequence
	}
	return place, err
}

// Offered counts the partitions whose results may be delivered directly.
func (b *Bus) Offered() int {
	results := b.inbox.results
	results.mu.Lock()
	defer results.mu.Unlock()
	return len(results.takers)
}

// ReconcileEvery sets the interval at which receivers compare the broker with the setup.
func (b *Bus) ReconcileEvery(d time.Duration) { b.inbox.reconciler.every = d }

// FutureAfter sets by how much a message may be stored later than NATS's clock.
func (b *Bus) FutureAfter(d time.Duration) { b.inbox.reconciler.leaps.most = d }

// HoldResults keeps the handler of directly delivered results from handling any, until release.
// dropped returns the number of messages that were dropped meanwhile.
func (b *Bus) HoldResults() (dropped func() (int, error), release func()) {
	results := b.inbox.results
	results.mu.Lock()
	return results.sub.Dropped, results.mu.Unlock
}

// HoldLater keeps back the first delayed message that this process stores, as if it was frozen just
// before. held is closed when there is one. release lets it continue; answered is closed when NATS
// has answered.
func (b *Bus) HoldLater() (held <-chan struct{}, release func() (answered <-chan struct{})) {
	h := &holding{JetStream: b.conn.js, held: make(chan struct{}), released: make(chan struct{}),
		answered: make(chan struct{})}
	b.conn.js = h
	return h.held, func() <-chan struct{} { close(h.released); return h.answered }
}

type holding struct {
	jetstream.JetStream
	once                     sync.Once
	held, released, answered chan struct{}
}

func (h *holding) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (ack *jetstream.PubAck,
	err error) {
	if m.Header.Get("Nats-Schedule") == "" {
		return h.JetStream.PublishMsg(ctx, m, opts...)
	}
	first := false
	h.once.Do(func() { first = true })
	if first {
		close(h.held)
		<-h.released
		defer close(h.answered)
	}
	return h.JetStream.PublishMsg(ctx, m, opts...)
}
