package sqlrow

import (
	"context"
	"math/rand/v2"
	"time"
)

// Wait pauses for about so long, and reports whether the context still goes on.
func Wait(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
