package natsbroker

import (
	"context"
	"time"
)

// For tests.
const (
	FirstShort   = firstShort
	MaxShortName = maxShortName
)

// For tests, how bundles are written and read.
var (
	AppendResult = appendResult
	ReadBundle   = readBundle
)

// WaitShort sets how long to wait for an answer by the short way.
func (b *Bus) WaitShort(d time.Duration) { b.shortWait.Store(int64(d)) }

// StillThere is for tests.
func (b *Bus) StillThere(ctx context.Context, partition int, from, upTo uint64) (left map[string][]uint64,
	found int, err error) {
	return b.stillThere(ctx, people, partition, from, upTo)
}

// Offered counts the partitions for which results may come by the short way.
func (b *Bus) Offered() int {
	b.back.mu.Lock()
	defer b.back.mu.Unlock()
	return len(b.back.receivers)
}
