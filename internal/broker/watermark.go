package broker

import (
	"context"
	"sync"
)

// OfAll returns a function that each of n lanes calls once with whether the lane has reached a
// watermark. At the last call, it calls reached with the context of that call, and with whether all
// lanes have reached theirs. See [Inbox].AwaitWatermark.
func OfAll(n int, reached func(ctx context.Context, ok bool)) (told func(ctx context.Context, ok bool)) {
	var mu sync.Mutex
	all := true
	return func(ctx context.Context, ok bool) {
		mu.Lock()
		n--
		all = all && ok
		last, ok := n == 0, all
		mu.Unlock()
		if last {
			reached(ctx, ok)
		}
	}
}
