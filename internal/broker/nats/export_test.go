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
func (b *Bus) WaitDirect(d time.Duration) { b.publisher.direct.wait.Store(int64(d)) }

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
