package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
)

// arrivals are the messages on their way from the broker to the loop.
type arrivals struct {
	in     chan *item          // not read while too much is in memory
	room   *semaphore.Weighted // in bytes, for the messages in it
	starts chan struct{}       // has one for each start that is held
}

// maxArrivals and maxArrivalBytes bound the messages that wait for the loop.
const (
	maxArrivals     = 1024
	maxArrivalBytes = 16 << 20
)

// maxStarts bounds the starts in memory, because messages that running instances need wait behind
// them. It is enough for full batches.
const maxStarts = 256

func newArrivals() arrivals {
	return arrivals{in: make(chan *item, maxArrivals), room: semaphore.NewWeighted(maxArrivalBytes),
		starts: make(chan struct{}, maxStarts)}
}

// pass passes a message to the loop. While there is no room for it, pass blocks. It returns false
// if the context ends first.
func (a *arrivals) pass(ctx context.Context, i *item) bool {
	if a.room.Acquire(ctx, min(i.size(), maxArrivalBytes)) != nil {
		return false
	}
	i.way = a.room
	select {
	case a.in <- i:
		return true
	case <-ctx.Done():
		i.arrive()
		return false
	}
}

// crowded reports whether a message would have to wait for room.
func (a *arrivals) crowded() bool {
	if len(a.in) == cap(a.in) || !a.room.TryAcquire(1) {
		return true
	}
	a.room.Release(1)
	return false
}

// receiver decodes messages from the broker and passes them to the loop.
type receiver struct {
	prefix          string
	ackWait         time.Duration
	quarantineAfter int
	arrivals        arrivals
	quarantine      *quarantine
	returned        *returned
	passing         passing
	dead            *deadLetters
	metrics         *telemetry.MessageMetrics
	crowded         func() error // the reason why no new instance should start, or nil
}

// receive passes a delivery from the broker to the loop. While the loop is full, receive blocks,
// and so does the broker.
func (r *receiver) receive(ctx context.Context, d broker.Delivery, handed bool) {
	m, err := events.Decode(r.prefix, d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		if d, ok := r.passing.take(d); !ok { // what the loop does not see must not fill the memory
			r.nackFor(d, time.Second)
		} else {
			r.dead.malformed(d, err.Error())
		}
		return
	}
	now := time.Now()
	i := &item{message: m, delivery: d, attempts: 1, handed: handed, arrived: now, extended: now}
	i.size() // here, because the loop has more to do
	if d.NumDelivered > r.quarantineAfter {
		// a message that was nacked on purpose has killed no process
		i.quarantined = d.NumDelivered-d.Nacked-r.returned.times(d) > r.quarantineAfter
		i.blocked = i.quarantined
	}
	if i.quarantined && r.quarantine.crowded() { // waiting ones must not take all the room
		r.nackFor(d, r.ackWait)
		return
	}
	if m.Content.Verb() == events.VerbStart && !handed && r.crowded() != nil {
		r.nackFor(d, r.ackWait)
		return
	}
	if d.NumDelivered > 1 {
		r.metrics.Redelivered(m.Content.Verb(), i.quarantined)
	}
	if m.Content.Verb() == events.VerbStart && !handed {
		// it has to wait for its turn, and everything behind it waits with it
		select {
		case r.arrivals.starts <- struct{}{}:
			i.starts = r.arrivals.starts
		case <-ctx.Done():
			d.Hold.Nak(0)
			return
		}
	}
	if !r.arrivals.pass(ctx, i) {
		i.free()
		d.Hold.Nak(0)
	}
}

// nackFor nacks a message with a delay, which is longer if many messages wait.
func (r *receiver) nackFor(d broker.Delivery, atLeast time.Duration) {
	d.Hold.Nak(r.returned.delay(d, atLeast))
}

// The bounds of the messages that receive passes on without the loop, and of those that are
// forwarded to other orchestrators.
const (
	maxPassing      = 256
	maxPassingBytes = 16 << 20
)

// passing counts the messages that receive passes on without the loop, until they are settled.
type passing struct {
	mu    sync.Mutex
	n     int
	bytes int
}

// take counts a message until the delivery that it returns is settled. It reports false if there
// are too many. One message always has room.
func (p *passing) take(d broker.Delivery) (broker.Delivery, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := d.Size()
	if p.n > 0 && (p.n >= maxPassing || p.bytes+size > maxPassingBytes) {
		return d, false
	}
	p.n, p.bytes = p.n+1, p.bytes+size
	d.Hold = passingHold{d.Hold, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.n, p.bytes = p.n-1, p.bytes-size
	})}
	return d, true
}

// passingHold makes room for another message when its message is settled.
type passingHold struct {
	broker.Hold
	settled func()
}

func (h passingHold) Ack()                    { h.settled(); h.Hold.Ack() }
func (h passingHold) Nak(after time.Duration) { h.settled(); h.Hold.Nak(after) }

// takeOver takes a message that another orchestrator forwards because it cannot take it.
func (r *receiver) takeOver(ctx context.Context, d broker.Delivery) error {
	if r.arrivals.crowded() {
		return errors.New("it has too much to do")
	}
	r.receive(ctx, d, true)
	return nil
}
