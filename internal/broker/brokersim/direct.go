package brokersim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
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
	// answerWait is how long the sender waits for a response before it stores the message after
	// all.
	answerWait = 3 * time.Second
	// The sender sends nothing to a receiver for avoidSilent after it has not responded, and for
	// avoidBriefly after there was no receiver or no room.
	avoidSilent, avoidBriefly = 3 * time.Second, 100 * time.Millisecond
	// maxDirect is the maximum number of results that wait at a receiver.
	maxDirect = 512
	// firstDirect is the first sequence number of the messages that are not stored.
	firstDirect = 1 << 62
)

var (
	errUnanswered = errors.New("the receiver has not answered")
	errReturned   = errors.New("the receiver has given it back")
	errNotHere    = errors.New("the receiver does not take it")
	errBusy       = errors.New("the receiver has no room")
)

// heldError says that a task is stored while a worker still executes it.
type heldError struct{ by string }

func (e heldError) Error() string { return fmt.Sprintf("%q still executes it", e.by) }

// directSender delivers messages directly, and stores those that are not settled.
type directSender struct {
	*writer

	mu    sync.Mutex
	avoid map[string]time.Time // where it sends nothing directly, and until when
}

// way returns the receiver for a direct delivery; "" if there is none.
func (c *directSender) way(w events.Wire) string {
	if w.Purge || !w.NotBefore.IsZero() || c.b.canTake(w) != nil {
		return ""
	}
	to := w.DirectTo
	if w.Direct && c.b.isWork(w.Subject) {
		to = "queue " + strings.Join(strings.Split(w.Subject, ".")[2:4], ".")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.avoid[to]) {
		return ""
	}
	return to
}

// send sends a message to its receiver, and stores it if the receiver does not settle it.
func (c *directSender) send(ctx context.Context, w events.Wire, to string) error {
	why := c.attempt(ctx, w, to)
	if why == nil || ctx.Err() != nil || c.ctx.Err() != nil {
		return errors.Join(why, context.Cause(ctx))
	}
	c.note(to, why)
	stored := w
	stored.DirectTo, stored.Direct = "", false
	var held heldError
	switch {
	case errors.As(why, &held) && w.Direct:
		stored.Header = with(w.Header, events.HeaderHeld, held.by)
	case errors.Is(why, broker.ErrNoResponders), errors.Is(why, errNotHere), errors.Is(why, errBusy),
		errors.Is(why, errReturned) && w.Direct:
	default: // the receiver may have begun with it
		stored.Header = with(w.Header, headerAgain, "true")
	}
	c.path.Note("store after all", w.Subject+": "+why.Error())
	return c.insist(ctx, "publish "+stored.Subject, func() error { c.take(stored); return nil })
}

// note remembers a receiver to which nothing is sent directly for a while.
func (c *directSender) note(to string, why error) {
	var most time.Duration
	switch {
	case errors.Is(why, errUnanswered):
		most = avoidSilent
	case errors.Is(why, broker.ErrNoResponders), errors.Is(why, errBusy):
		most = avoidBriefly
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.avoid[to] = time.Now().Add(most)
}

// headerAgain marks a stored message that may have been delivered directly before.
const headerAgain = "Rondo-Again"

func with(h events.Header, name, value string) events.Header {
	h = maps.Clone(h)
	if h == nil {
		h = make(events.Header)
	}
	h[name] = []string{value}
	return h
}

// attempt sends a message once and waits until it is settled. Both the message and the response may
// be lost.
func (c *directSender) attempt(ctx context.Context, w events.Wire, to string) error {
	answer := make(chan error, 1)
	reply := func(why error) {
		select {
		case answer <- why:
		default:
		}
	}
	c.path.Send("direct "+w.Subject, func() func() {
		sent := w
		if w.Direct {
			sent.Header = c.results.withDirectReply(w.Header)
		}
		return func() { c.b.route(sent, to, reply, c.link) }
	})
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

// route brings a message to a receiver, and its response back.
func (b *Broker) route(w events.Wire, to string, reply func(error), from *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	arrives := func(why error) {
		go from.path.Hear("answer "+w.Subject, func() { reply(why) })
	}
	if w.Direct {
		words := strings.Split(w.Subject, ".")
		q, _ := queueOf(words[2], words[3]) // it was checked
		b.noteQueue(q)
		open := slices.DeleteFunc(slices.Clone(b.offers[q]), func(o *offer) bool { return o.c.ctx.Err() != nil })
		if len(open) == 0 {
			arrives(broker.ErrNoResponders)
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
		arrives(broker.ErrNoResponders)
		return
	}
	go c.path.Hear("result "+w.Subject, func() { c.receive(w, arrives) })
}

// weight selects the worker of a task: the same one each time.
func weight(subject, worker string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(worker))
	h.Write([]byte(subject))
	return h.Sum64()
}
