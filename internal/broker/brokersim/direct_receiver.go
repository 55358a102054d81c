package brokersim

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// directResults receives the results that arrive directly, for the partitions from which this
// process receives.
type directResults struct {
	*link

	mu        sync.Mutex
	receiving map[int]*receiver // lanes that take results directly, by partition
}

// receives lets a receiver get results for a partition directly.
func (c *directResults) receives(partition int, r *receiver) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiving[partition] = r
	return func() {
		c.mu.Lock()
		if c.receiving[partition] == r {
			delete(c.receiving, partition)
		}
		c.mu.Unlock()
		r.end()
	}
}

// withDirectReply adds the header that says where the results of a task may be delivered directly.
func (c *directResults) withDirectReply(h events.Header) events.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.receiving) > 0 {
		return with(h, events.HeaderDirectReply, c.name)
	}
	if h[events.HeaderDirectReply] != nil {
		h = maps.Clone(h)
		delete(h, events.HeaderDirectReply)
	}
	return h
}

// receive accepts a result, or refuses it.
func (c *directResults) receive(w events.Wire, arrives func(error)) {
	h := &directHold{c: c.link, what: w.Subject, arrives: arrives}
	d := c.deliver(w, h)
	c.mu.Lock()
	r := c.receiving[d.Partition]
	c.mu.Unlock()
	switch {
	case r == nil || !r.push(d):
		h.settle("refuse", errNotHere)
	default:
		c.path.Note("result received directly", w.Subject)
	}
}

// An offer has the free slots of one worker for tasks of one task queue.
type offer struct {
	c    *link
	name string
	take func(broker.Delivery) bool
}

// Offer implements broker.TaskQueue.
func (w *taskQueue) Offer(name string, take func(broker.Delivery) bool) (stop func(), err error) {
	b, o := w.c.b, &offer{w.c.link, name, take}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers[w.q] = append(b.offers[w.q], o)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.offers[w.q] = slices.DeleteFunc(b.offers[w.q], func(x *offer) bool { return x == o })
	}, nil
}

// receive accepts a task, or refuses it.
func (o *offer) receive(w events.Wire, arrives func(error)) {
	h := &passedHold{directHold{c: o.c, what: w.Subject, arrives: arrives}, time.Now()}
	d := o.c.deliver(w, h)
	if !o.take(d) {
		h.settle("refuse", errBusy)
		return
	}
	o.c.path.Note("task received directly", w.Subject)
	time.AfterFunc(broker.LastsAfter, func() {
		h.settle("still executes", heldError{o.name})
	})
}

// deliver makes the delivery of a message that arrived directly.
func (c *link) deliver(w events.Wire, h broker.Hold) broker.Delivery {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.directs++
	return broker.Delivery{
		Subject: w.Subject, Header: broker.Received(w.Header), Body: w.Body, Sequence: firstDirect + c.b.directs,
		Direct: true, NumDelivered: 1, StoredAt: time.Now(), Hold: h,
		Partition: partitionOf(instanceOf(w.Subject), c.b.partitions),
	}
}

// directHold settles a message that arrived directly.
type directHold struct {
	c       *link
	what    string
	arrives func(error)

	mu   sync.Mutex
	said bool // the outcome is sent
}

// settle sends the outcome to the sender, and returns false if an outcome was sent before.
func (h *directHold) settle(what string, why error) bool {
	h.mu.Lock()
	first := !h.said
	h.said = true
	h.mu.Unlock()
	if first {
		h.c.path.Note(what, h.what)
		h.c.path.Send(what+" "+h.what, func() func() { return func() { h.arrives(why) } })
	}
	return first
}

// Ack implements broker.Hold.
func (h *directHold) Ack() { h.settle("settle", nil) }

// Nak implements broker.Hold.
func (h *directHold) Nak(time.Duration) { h.settle("return", errReturned) }

// InProgress implements broker.Hold. It has no effect: the sender does not wait any longer.
func (h *directHold) InProgress() {}

// AckSubject implements broker.Hold. No other process can settle the message.
func (h *directHold) AckSubject() string { return "" }

// passedHold is the directHold of a task.
type passedHold struct {
	directHold
	came time.Time
}

// Begin implements broker.DirectHold.
func (h *passedHold) Begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.said
}

// Finish implements broker.DirectHold. The sender may not hear a late outcome.
func (h *passedHold) Finish() (final bool) {
	return h.settle("settle", nil) && time.Since(h.came) < broker.LastsAfter
}

// push appends a result to the lane of results and timers, if there is room.
func (r *receiver) push(d broker.Delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || len(r.direct) >= maxDirect {
		return false
	}
	r.direct = append(r.direct, d)
	select {
	case r.came <- struct{}{}:
	default:
	}
	return true
}

// pop takes the oldest result that arrived directly.
func (r *receiver) pop() (d broker.Delivery, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.direct) == 0 {
		return d, false
	}
	d, r.direct = r.direct[0], r.direct[1:]
	return d, true
}

// end nacks the results that were not taken.
func (r *receiver) end() {
	r.mu.Lock()
	r.over = true
	left := r.direct
	r.direct = nil
	r.mu.Unlock()
	for _, d := range left {
		d.Hold.Nak(0)
	}
}

// hasDirect reports whether a task that arrived directly still exists. At first the sender has the
// task; later it is stored.
func (b *Broker) hasDirect(d broker.Delivery) bool {
	if time.Since(d.StoredAt) < broker.LastsAfter+answerWait/2 {
		return true
	}
	return slices.ContainsFunc(b.work, func(m *message) bool { return m.wire.Subject == d.Subject })
}
