package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
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
	schedules       *scheduled
	metrics         *telemetry.MessageMetrics
	crowded         func() error // the reason why no new instance should start, or nil
}

// receive passes a delivery from the broker to the loop. While the loop is full, receive blocks,
// and so does the broker.
func (r *receiver) receive(ctx context.Context, d broker.Delivery, handed bool) {
	m, err := events.Decode(r.prefix, d.Subject, d.Header, d.Body, d.ID())
	if err != nil || isForEach(d, m) {
		if d, ok := r.passing.take(d); !ok { // what the loop does not see must not fill the memory
			r.nackFor(d, time.Second)
		} else if err != nil {
			r.dead.malformed(d, err.Error())
		} else {
			r.schedules.startEach(d, m)
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

// scheduled starts instances for schedules that want one for each start.
type scheduled struct {
	broker     broker.Publisher
	prefix     string
	dead       *deadLetters
	background *background
	refusals   rate.Sometimes // logs of refusals because of a setting
	log        *slog.Logger
}

// isForEach reports whether a message is the start that a schedule publishes for each of its times.
func isForEach(d broker.Delivery, m events.Message) bool {
	_, ok := m.Content.(*events.Start)
	v := d.Header[query.HeaderEach]
	return ok && len(v) > 0 && v[0] == "true"
}

// startEach turns a start that a schedule has published into the start of an instance of its own,
// and publishes it.
func (s *scheduled) startEach(d broker.Delivery, m events.Message) {
	start, ok := m.Content.(*events.Start)
	if !ok {
		return
	}
	m.Instance = query.EachInstance(m.Instance, d.StoredAt)
	m.ID = "each/" + d.ID()
	err := events.CheckChosenInstance(m.Instance)
	if start.Parent != nil {
		err = errors.New("a child is not started again and again")
	}
	var w events.Wire
	if err == nil {
		w, err = events.Encode(s.prefix, m)
	}
	if err != nil {
		s.dead.malformed(d, err.Error())
		return
	}
	s.background.do(func(ctx context.Context) {
		err := s.broker.Publish(ctx, w)
		var refused *broker.Refused
		if errors.As(err, &refused) {
			s.refused(d, refused)
			return
		}
		if err != nil {
			s.log.Warn("what a schedule starts could not be started; trying again", "instance",
				m.Instance, "error", err)
			d.Hold.Nak(time.Second)
			return
		}
		d.Hold.Ack()
	})
}

// refused dead-letters a message whose start the broker will never store, for example because it is
// too large. If a setting prevents it, the message is redelivered until an operator has changed it.
func (s *scheduled) refused(d broker.Delivery, refused *broker.Refused) {
	waits, never := refused.Misconfigured()
	if never != nil {
		s.dead.store(d, broker.Cause{Reason: reasonRefused, Detail: never.Reasons[0].Error()})
		return
	}
	s.refusals.Do(func() { outbox.LogRefused(s.log, waits) })
	d.Hold.Nak(refusedPause)
}
