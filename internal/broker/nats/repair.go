package natsbroker

import (
	"context"
	"time"
)

// Repair implements broker.Marks: it makes or checks everything that is needed in the broker once
// more, as [Connect] did: for a broker that has lost what it kept. Whoever receives, takes work, or
// publishes with [Make] does so by itself when it finds that something is gone.
func (b *Bus) Repair(ctx context.Context) error {
	b.mending.Lock()
	defer b.mending.Unlock()
	return b.setUp(ctx)
}

const (
	// mendEvery is how often the broker is looked over at most, when something seems to be gone.
	mendEvery = time.Second
	// mendAfter is how long a server gets to clear up what was removed: it does so in the
	// background, and takes with it what is made under the same name meanwhile.
	mendAfter = 500 * time.Millisecond
)

// mend is Repair for those who have found that something is gone; many may find so at once.
func (b *Bus) mend(ctx context.Context) error {
	found := time.Now()
	b.mending.Lock()
	defer b.mending.Unlock()
	if b.config.Setup != Make || b.mended.Add(mendEvery).After(found) {
		return nil
	}
	defer func() { b.mended = time.Now() }()
	b.log.Warn("NATS: something is missing in the broker; making it again")
	select {
	case <-time.After(mendAfter):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.queues.Clear()
	return b.setUp(ctx)
}
