package natsbus

import "context"

// StillThere is for tests.
func (b *Bus) StillThere(ctx context.Context, partition int, from, upTo uint64) (left map[string][]uint64, found int, err error) {
	return b.stillThere(ctx, people, partition, from, upTo)
}
