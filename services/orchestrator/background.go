package orchestrator

import (
	"context"
	"sync"
	"time"
)

// background runs what the loop does not wait for. If the process ends before, a redelivery or a
// timeout makes up for it.
type background struct {
	lifetime context.Context // ends when everything has ended
	end      context.CancelFunc
	running  sync.WaitGroup
}

func newBackground() *background {
	b := new(background)
	b.lifetime, b.end = context.WithCancel(context.Background())
	return b
}

// asideFor bounds one call of background.do.
const asideFor = 10 * time.Second

// do calls f on another goroutine.
func (b *background) do(f func(ctx context.Context)) {
	b.running.Go(func() {
		ctx, cancel := context.WithTimeout(b.lifetime, asideFor)
		defer cancel()
		f(ctx)
	})
}

// wait waits for the goroutines.
func (b *background) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		b.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
