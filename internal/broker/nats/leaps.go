package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
)

// If the clock of NATS leaps an hour ahead and back, the messages that a consumer delivered
// meanwhile have times of redelivery an hour ahead, which also last over restarts. A consumer that
// is deleted and created again delivers everything unacknowledged at once, in its order. So the
// reconciler does that if the oldest unacknowledged message
//
//   - was stored later than NATS's clock, or
//   - was stored before a leap ended that this process knows of, by a consumer that is as old.
//
// Receivers see their consumer deleted and begin again: orchestrators know messages again by their
// ids. An acknowledgement for the former consumer counts for the new one, too, once that has
// delivered the message.
//
// A message may stay unacknowledged for long. So one process creates a consumer again only once for
// the messages that were stored until then, unless there is another leap.

// leaps is what this process knows about leaps of NATS's clock. It is safe for concurrent use.
type leaps struct {
	looks signal.Signal // look soon
	most  time.Duration // by which a message may be stored later than the clock

	mu      sync.Mutex
	over    time.Time         // when the last leap has ended
	by      time.Duration     // how far the clock was ahead
	renewed map[string]uint64 // the last message stored when a consumer was created again
}

func newLeaps() *leaps {
	return &leaps{looks: signal.New(), most: wrongAfter, renewed: make(map[string]uint64)}
}

// RedeliverAfterLeap implements broker.Repairer.
func (in *inbox) RedeliverAfterLeap(until time.Time, by time.Duration) {
	l := in.reconciler.leaps
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over, l.by = until, by
	clear(l.renewed)
	l.looks.Set()
}

// lateAfter returns why messages may be redelivered much too late, given the oldest unacknowledged
// one; "" if they are not. The servers of a cluster have clocks of their own: that of the stream's
// leader has stamped the message.
func (l *leaps) lateAfter(oldest *found, stream *jetstream.StreamInfo, info *jetstream.ConsumerInfo) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, stamps := cmp.Or(info.TimeStamp, time.Now()), cmp.Or(stream.TimeStamp, time.Now()) // old servers tell none
	switch wrong := now.Add(l.most); {
	case oldest.Time.After(stamps.Add(l.most)):
		return "NATS's clock was ahead: a message was stored in its future"
	case oldest.Time.Before(l.over) && (info.Created.Before(l.over) || info.Created.After(wrong)):
		return fmt.Sprintf("NATS's clock was ahead by %v", l.by)
	}
	return ""
}

// before returns the number of the last message that was stored when a consumer was created again.
func (l *leaps) before(stream, consumer string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed[stream+"/"+consumer]
}

// note notes that a consumer was created again, when a message was the last one stored.
func (l *leaps) note(stream, consumer string, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed[stream+"/"+consumer] = last
}

// overdue notes a consumer whose unacknowledged messages may be redelivered much too late.
func (c *comparison) overdue(ctx context.Context, st jetstream.Stream, info *jetstream.ConsumerInfo,
	want jetstream.ConsumerConfig) {
	if info.NumAckPending == 0 {
		return
	}
	part := "consumer " + info.Stream + "/" + info.Name
	filter, err := json.Marshal(info.Config.FilterSubject)
	if c.refused(part, err) {
		return
	}
	var oldest *found
	err = c.denied.during(ctx, func(ctx context.Context) (err error) {
		r := reader{conn: c.conn}
		oldest, err = r.nextOf(ctx, info.Stream, filter,
			max(info.AckFloor.Stream, c.leaps.before(info.Stream, info.Name))+1)
		return err
	})
	if c.refused(part, err) || oldest == nil || oldest.Sequence > info.Delivered.Stream {
		return
	}
	why := c.leaps.lateAfter(oldest, st.CachedInfo(), info)
	if why == "" {
		return
	}
	f := flaw{Flaw: broker.Flaw{Part: part, Problem: "its unacknowledged messages are redelivered late: " + why,
		Remedy: "delete it with `nats consumer rm`, then " + runSetup}, atOnce: true}
	if c.plan.config.Setup == Make {
		f.Harmful, f.Remedy, f.repair = true, repairedSoon, c.createAgain(st, info, want)
	}
	c.found = append(c.found, f)
}

// createAgain deletes a consumer and creates it, so that it delivers everything unacknowledged.
func (c *comparison) createAgain(st jetstream.Stream, info *jetstream.ConsumerInfo,
	want jetstream.ConsumerConfig) func(context.Context) error {
	return func(ctx context.Context) error {
		release, err := c.mending.hold(ctx)
		if err != nil {
			return err
		}
		defer release()
		err = c.askAgain(ctx, func(ctx context.Context) error { return st.DeleteConsumer(ctx, info.Name) })
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) { // another process may do the same
			return err
		}
		c.leaps.note(info.Stream, info.Name, max(st.CachedInfo().State.LastSeq, info.Delivered.Stream))
		return c.repairConsumer(st, want)(ctx)
	}
}
