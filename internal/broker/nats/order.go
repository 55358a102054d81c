package natsbroker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file orders messages when an earlier receiver held some, when some were lost in flight, and
// when another receiver gets some at the same time.

// order holds messages back while older ones of the same instance must be redelivered.
type order struct {
	// Messages up to upTo were delivered before, to another receiver or into a broken connection.
	// left are the unsettled ones of these, by the last word of their subjects, and behind waits
	// for them.
	upTo   uint64
	left   map[string][]uint64
	behind map[string][]*waiting
	until  time.Time // time limit of their redelivery
	began  time.Time // when the wait began, without a break since
	handed uint64    // deliveries of the consumer until then

	waits, bytes int // number and size of the messages in behind

	lookAgain time.Time // when checkLeft may list all stored messages again
	ticked    time.Time // when checkLeft last ran
}

// arrive returns the messages that may be taken now that a message has arrived.
func (o *order) arrive(w *waiting) []*waiting {
	if len(o.left) == 0 {
		return []*waiting{w}
	}
	who := lastWord(w.d.Subject)
	after := func(l uint64) bool { return l < w.d.Sequence }
	if !slices.ContainsFunc(o.left[who], after) {
		return append([]*waiting{w}, o.came(who, w.d.Sequence)...)
	}
	at, twice := slices.BinarySearchFunc(o.behind[who], w.d.Sequence, func(w *waiting, p uint64) int {
		return cmp.Compare(w.d.Sequence, p)
	})
	if twice {
		o.bytes -= o.behind[who][at].size()
		o.behind[who][at] = w // its newer delivery counts
	} else {
		o.behind[who] = slices.Insert(o.behind[who], at, w)
		o.waits++
	}
	o.bytes += w.size()
	return o.came(who, w.d.Sequence)
}

// came removes a message from those that must be redelivered, and returns the messages that have
// waited for it.
func (o *order) came(who string, place uint64) (free []*waiting) {
	if place > o.upTo || len(o.left[who]) == 0 {
		return nil
	}
	left := slices.DeleteFunc(o.left[who], func(l uint64) bool { return l == place })
	behind := o.behind[who]
	n := len(behind)
	if len(left) > 0 {
		o.left[who] = left
		n, _ = slices.BinarySearchFunc(behind, slices.Min(left), func(w *waiting, p uint64) int {
			return cmp.Compare(w.d.Sequence, p)
		})
	} else {
		delete(o.left, who)
	}
	free = behind[:n:n]
	o.waits, o.bytes = o.waits-n, o.bytes-totalSize(free)
	if behind = behind[n:]; len(behind) > 0 {
		o.behind[who] = behind
	} else {
		delete(o.behind, who)
	}
	return free
}

// release returns all messages that have waited.
func (o *order) release() (free []*waiting) {
	for _, behind := range o.behind {
		free = append(free, behind...)
	}
	*o = order{}
	return free
}

// findLeft finds the messages that were delivered and not settled.
func (r *receiver) findLeft(ctx context.Context, info *jetstream.ConsumerInfo) (o order, err error) {
	for range 3 { // the responding replica may be a little behind
		if info.NumAckPending == 0 {
			return order{handed: info.Delivered.Consumer}, nil
		}
		upTo, now := info.Delivered.Stream, time.Now()
		left, found, err := r.reader.stillThere(ctx, r.lane, r.partition, info.AckFloor.Stream+1, upTo)
		if err != nil {
			return o, err
		}
		o = order{upTo: upTo, left: left, behind: make(map[string][]*waiting),
			until: now.Add(r.ackWait + 2*time.Second), began: now, handed: info.Delivered.Consumer}
		if found >= info.NumAckPending {
			break
		}
		if info, err = r.info(ctx); err != nil {
			return o, err
		}
	}
	return o, nil
}

// maxLookups is the maximum number of messages that checkLeft looks up one by one. If there are
// more, it lists all stored messages, which takes long for many thousands: it then pauses for
// lookPause times as long.
const (
	maxLookups = 16
	lookPause  = 4
)

// checkLeft finds messages that were settled after all instead of being redelivered, and stops the
// wait at the time limit.
func (r *receiver) checkLeft(ctx context.Context) {
	r.mu.Lock()
	if len(r.order.left) == 0 {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	if r.isBusy(now) {
		// It asks for nothing, so NATS redelivers nothing to it. The wait begins when it asks.
		r.order.began, r.order.until = now, now.Add(r.ackWait+2*time.Second)
	}
	if stood := now.Sub(r.order.ticked); !r.order.ticked.IsZero() && stood > 4*tend {
		r.order.until = r.order.until.Add(stood) // it heard nothing; perhaps the whole machine stood still
	}
	r.order.ticked = now
	if now.After(r.order.until) && r.isFull() && r.pulls.probe.Before(r.order.until.Add(-busyAfter)) {
		// It has not asked since NATS could redeliver, perhaps because a look took long.
		r.pulls.probe, r.order.until = now, now.Add(2*time.Second)
		r.moreOfLost()
	}
	if now.After(r.order.until) {
		again := now.Sub(r.order.began) < pullFor+r.ackWait
		r.mu.Unlock()
		r.giveUp(ctx, again)
		return
	}
	type place struct {
		who string
		at  uint64
	}
	var wanted []place
	lowest := r.order.upTo
	for who := range r.order.behind {
		for _, at := range r.order.left[who] {
			wanted = append(wanted, place{who, at})
			lowest = min(lowest, at)
		}
	}
	upTo, lookAgain := r.order.upTo, r.order.lookAgain
	r.mu.Unlock()
	var settled []place
	switch {
	case len(wanted) == 0:
	case len(wanted) <= maxLookups:
		for _, p := range wanted {
			if there, err := r.reader.isThere(ctx, r.names.inbox, p.at); err == nil && !there {
				settled = append(settled, p)
			}
		}
	case now.Before(lookAgain):
	default:
		look, cancel := r.bounded(ctx) // tend has more to do
		left, _, err := r.reader.stillThere(look, r.lane, r.partition, lowest, upTo)
		cancel()
		lookAgain = time.Now().Add(lookPause * time.Since(now))
		for _, p := range wanted {
			if err == nil && !slices.Contains(left[p.who], p.at) {
				settled = append(settled, p)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order.lookAgain, r.order.ticked = lookAgain, time.Now()
	for _, p := range settled {
		r.queue.pushAll(r.order.came(p.who, p.at))
	}
	r.marks.review()
}

// giveUp stops the wait for messages that are not redelivered. If the consumer may have redelivered
// them to another receiver, which does not get them, the wait begins again.
func (r *receiver) giveUp(ctx context.Context, again bool) {
	var handed uint64
	if again {
		look, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		if info, err := r.info(look); err == nil {
			handed = info.Delivered.Consumer
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.resyncs() {
		return
	}
	if handed > r.handed {
		r.apply(otherServed)
		return
	}
	r.queue.pushAll(r.order.release())
	r.marks.review()
}
