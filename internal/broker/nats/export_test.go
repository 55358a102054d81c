package natsbroker

import (
	"context"
	"time"
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

// Offered counts the partitions whose results may be delivered directly.
func (b *Bus) Offered() int {
	results := b.inbox.results
	results.mu.Lock()
	defer results.mu.Unlock()
	return len(results.takers)
}

// ReconcileEvery sets the interval at which receivers compare the broker with the setup.
func (b *Bus) ReconcileEvery(d time.Duration) { b.inbox.reconciler.every = d }

// HoldResults keeps the handler of directly delivered results from handling any, until release.
// dropped returns the number of messages that were dropped meanwhile.
func (b *Bus) HoldResults() (dropped func() (int, error), release func()) {
	results := b.inbox.results
	results.mu.Lock()
	return results.sub.Dropped, results.mu.Unlock
}
