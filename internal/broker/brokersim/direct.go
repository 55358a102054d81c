package brokersim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Direct delivery. An activity task may go to a worker that has room for it, and a result to the
// orchestrator that receives the instance's partition, without being stored. The sender keeps the
// message until the receiver settles it; a message that is refused, or not settled in time, is
// stored. This is the protocol of natsbroker with one message where that one bundles many.

const (
	// answerWait is how long the sender waits until it stores the message after all.
	answerWait = 3 * time.Second
	// Nothing is sent where nobody answered for avoidSilent, where there was no receiver or no room
	// for avoidBriefly.
	avoidSilent, avoidBriefly = 3 * time.Second, 100 * time.Millisecond
	// maxDirect bounds the results that wait at a receiver.
	maxDirect = 512
	// firstDirect is where the places of messages begin that are not stored.
	firstDirect = 1 << 62
)

var (
	errUnanswered = errors.New("the receiver has not answered")
	errReturned   = errors.New("the receiver has given it back")
	errNotHere    = errors.New("the receiver does not take it")
	errBusy       = errors.New("the receiver has no room")
)

// heldError is why a task is stored that a worker still executes.
type heldError struct{ by string }

func (e heldError) Error() string { return fmt.Sprintf("%q still executes it", e.by) }

// An offer is the room of one worker for tasks of one queue.
type offer struct {
	c    *Bus
	name string
	take func(broker.Delivery) bool
}

// Offer implements broker.WorkQueue.
func (w *workQueue) Offer(name string, take func(broker.Delivery) bool) (stop func(), err error) {
	b, o := w.c.b, &offer{w.c, name, take}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers[w.q] = append(b.offers[w.q], o)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.offers[w.q] = slices.DeleteFunc(b.offers[w.q], func(x *offer) bool { return x == o })
	}, nil
}

// ---- The sender.

// way is where a message may go without being stored; "" if nowhere.
func (c *Bus) way(w events.Wire) string {
	if w.Purge || !w.NotBefore.IsZero() || c.b.canTake(w) != nil {
		return ""
	}
	to := w.Back
	if w.Pass && c.b.isWork(w.Subject) {
		to = "queue " + strings.Join(strings.Split(w.Subject, ".")[2:4], ".")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.avoid[to]) {
		return ""
	}
	return to
}

// direct sends a message to its receiver and stores it if that does not settle it.
func (c *Bus) direct(ctx context.Context, w events.Wire, to string) error {
	if w.Pass {
		w.Header = c.withWayBack(w.Header)
	}
	why := c.attempt(ctx, w, to)
	if why == nil || ctx.Err() != nil || c.ctx.Err() != nil {
		return errors.Join(why, context.Cause(ctx))
	}
	c.note(to, why)
	stored := w
	stored.Back, stored.Pass = "", false
	var held heldError
	switch {
	case errors.As(why, &held) && w.Pass:
		stored.Header = with(w.Header, events.HeaderHeld, held.by)
	case errors.Is(why, broker.ErrNobody), errors.Is(why, errNotHere), errors.Is(why, errBusy),
		errors.Is(why, errReturned) && w.Pass:
	default: // the receiver may have begun with it
		stored.Header = with(w.Header, headerAgain, "true")
	}
	c.path.Note("store after all", w.Subject+": "+why.Error())
	return c.insist(ctx, "publish "+stored.Subject, func() error { c.take(stored); return nil })
}

// note remembers where nothing is sent for a while.
func (c *Bus) note(to string, why error) {
	var most time.Duration
	switch {
	case errors.Is(why, errUnanswered):
		most = avoidSilent
	case errors.Is(why, broker.ErrNobody), errors.Is(why, errBusy):
		most = avoidBriefly
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.avoid[to] = time.Now().Add(most)
}

// headerAgain marks a stored message that may have been received before without being stored.
const headerAgain = "Rondo-Again"

func with(h events.Header, name, value string) events.Header {
	h = maps.Clone(h)
	if h == nil {
		h = make(events.Header)
	}
	h[name] = []string{value}
	return h
}

// withWayBack says where the results of a task may go.
func (c *Bus) withWayBack(h events.Header) events.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.receiving) > 0 {
		return with(h, events.HeaderBack, c.name)
	}
	if h[events.HeaderBack] != nil {
		h = maps.Clone(h)
		delete(h, events.HeaderBack)
	}
	return h
}

// attempt sends a message once and waits until it is settled. Both the message and the answer may
// be lost.
func (c *Bus) attempt(ctx context.Context, w events.Wire, to string) error {
	answer := make(chan error, 1)
	reply := func(why error) {
		select {
		case answer <- why:
		default:
		}
	}
	c.path.Send("direct "+w.Subject, func() { c.b.route(w, to, reply, c) })
	late := time.NewTimer(answerWait)
	defer late.Stop()
	select {
	case why := <-answer:
		return why
	case <-late.C:
		return errUnanswered
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return errClosed
	}
}

// route brings a message to a receiver, and its answer back.
func (b *Broker) route(w events.Wire, to string, reply func(error), from *Bus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	arrives := func(why error) {
		go from.path.Hear("answer "+w.Subject, func() { reply(why) })
	}
	if w.Pass {
		words := strings.Split(w.Subject, ".")
		q, _ := queueOf(words[2], words[3]) // it was checked
		b.noteQueue(q)
		open := slices.DeleteFunc(slices.Clone(b.offers[q]), func(o *offer) bool { return o.c.ctx.Err() != nil })
		if len(open) == 0 {
			arrives(broker.ErrNobody)
			return
		}
		o := slices.MaxFunc(open, func(x, y *offer) int {
			return cmp.Compare(weight(w.Subject, x.name), weight(w.Subject, y.name))
		})
		go o.c.path.Hear("task "+w.Subject, func() { o.receive(w, arrives) })
		return
	}
	c := b.named[to]
	if c == nil || c.ctx.Err() != nil {
		arrives(broker.ErrNobody)
		return
	}
	go c.path.Hear("result "+w.Subject, func() { c.receiveResult(w, arrives) })
}

// weight decides which worker gets a task: the same one each time.
func weight(subject, worker string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(worker))
	h.Write([]byte(subject))
	return h.Sum64()
}

// ---- The receiver.

// receive takes a task in, or refuses it.
func (o *offer) receive(w events.Wire, arrives func(error)) {
	h := &passedHold{directHold{c: o.c, what: w.Subject, arrives: arrives}, time.Now()}
	d := o.c.deliver(w, h)
	d.Passed = true
	if !o.take(d) {
		h.settle("refuse", errBusy)
		return
	}
	o.c.path.Note("task received directly", w.Subject)
	time.AfterFunc(broker.LastsAfter, func() {
		h.settle("still executes", heldError{o.name})
	})
}

// deliver makes a delivery of what has come without being stored.
func (c *Bus) deliver(w events.Wire, h broker.Hold) broker.Delivery {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.directs++
	return broker.Delivery{
		Subject: w.Subject, Header: maps.Clone(w.Header), Body: w.Body, Sequence: firstDirect + c.b.directs,
		NumDelivered: 1, StoredAt: time.Now(), Hold: h, Partition: partitionOf(instanceOf(w.Subject), c.b.partitions),
	}
}

// receiveResult takes a result in, or refuses it.
func (c *Bus) receiveResult(w events.Wire, arrives func(error)) {
	h := &directHold{c: c, what: w.Subject, arrives: arrives}
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

// directHold settles what has come without being stored.
type directHold struct {
	c       *Bus
	what    string
	arrives func(error)

	mu   sync.Mutex
	said bool // what becomes of it
}

// settle says what becomes of it, and reports false if that was said before.
func (h *directHold) settle(what string, why error) bool {
	h.mu.Lock()
	first := !h.said
	h.said = true
	h.mu.Unlock()
	if first {
		h.c.path.Note(what, h.what)
		h.c.path.Send(what+" "+h.what, func() { h.arrives(why) })
	}
	return first
}

// passedHold is that of a task.
type passedHold struct {
	directHold
	came time.Time
}

// Begin implements broker.PassedHold.
func (h *passedHold) Begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.said
}

// Finish implements broker.PassedHold. What is said late may not be heard.
func (h *passedHold) Finish() (final bool) {
	return h.settle("settle", nil) && time.Since(h.came) < broker.LastsAfter
}

// Ack implements broker.Hold.
func (h *directHold) Ack() { h.settle("settle", nil) }

// Nak implements broker.Hold.
func (h *directHold) Nak(time.Duration) { h.settle("return", errReturned) }

// InProgress implements broker.Hold. The sender does not wait any longer.
func (h *directHold) InProgress() {}

// AckSubject implements broker.Hold. Nobody else can settle it.
func (h *directHold) AckSubject() string { return "" }

// push takes a result into the lane of what goes ahead, if there is room.
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

// pop takes the oldest result that has come without being stored.
func (r *receiver) pop() (d broker.Delivery, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.direct) == 0 {
		return d, false
	}
	d, r.direct = r.direct[0], r.direct[1:]
	return d, true
}

// end gives back what was not taken.
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

// receives lets results for a partition come directly to a receiver.
func (c *Bus) receives(partition int, r *receiver) (stop func()) {
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

// hasDirect tells whether a task that came directly is stored. At first it is not, and the sender
// has it.
func (b *Broker) hasDirect(d broker.Delivery) bool {
	if time.Since(d.StoredAt) < broker.LastsAfter+answerWait/2 {
		return true
	}
	return slices.ContainsFunc(b.work, func(m *message) bool { return m.wire.Subject == d.Subject })
}

func nameOf(connection uint64) string { return "connection-" + strconv.FormatUint(connection, 10) }
