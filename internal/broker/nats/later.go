package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Delayed messages wait in a stream of their own, where only orchestrators may publish, because
// NATS's own headers act there: a user with permission to publish there can delete messages of
// others, and choose which message the server publishes when.
//
//	client        rondo.start.fulfil.order-7  with Rondo-Not-Before            RONDO
//	receiver      rondo.later.start.fulfil.order-7  with Nats-Schedule         RONDO_LATER
//	NATS          rondo.due.start.fulfil.order-7, a second before its time     RONDO_LATER
//	forwarder     rondo.due_start.fulfil.order-7                               RONDO
//	receiver      holds it for the rest of the time, and delivers it
//
// The receiver of the partition takes over the messages of clients (takeover.go), and every process
// that receives forwards due messages. Each of them acknowledges a message after it has stored the
// next one, so a crash in between stores that twice, with the same id. The orchestrators themselves
// publish timers, under rondo.later.timer-due.….

const (
	// dueVerb begins the subjects on which NATS publishes due messages; dueMark begins the verbs
	// under which they are forwarded.
	dueVerb = "due"
	dueMark = "due_"
	// dueConsumer is the consumer of due messages.
	dueConsumer = "due"
	// forwardAtOnce is the maximum number of messages forwarded together, and in a request for due
	// messages; forwardBytes bounds their size.
	forwardAtOnce = 500
	forwardBytes  = 8 << 20
	// forwardAgain is the pause after an error.
	forwardAgain = time.Second
	// forwardGrace is how long messages that are delivered already are still forwarded when the
	// forwarding ends.
	forwardGrace = time.Second

	// headerNotBefore is the earliest time to process a message.
	headerNotBefore = "Rondo-Not-Before"
	// headerAccepted is the time at which a delayed message was accepted. Only services may set it.
	headerAccepted = "Rondo-Accepted"
	// scheduleTarget is, in a delayed message, the subject on which NATS publishes it.
	scheduleTarget = "Nats-Schedule-Target"
)

// acceptance is when a message was first stored: of two messages, the later one counts.
type acceptance struct {
	at    int64 // microseconds
	place uint64
}

func (a acceptance) compare(b acceptance) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.place, b.place))
}

// replaces reports whether a message that was accepted then replaces another one under its subject:
// it was accepted after that one, and before that one was due.
func (a acceptance) replaces(w *waiting) bool {
	return a.compare(w.accepted) > 0 && (w.notBefore.IsZero() || a.at < w.notBefore.UnixMicro())
}

func (a acceptance) String() string { return fmt.Sprintf("%d@%d", a.place, a.at) }

func acceptanceOf(d broker.Delivery) acceptance {
	return acceptance{d.StoredAt.UnixMicro(), d.Sequence}
}

// readAcceptance parses the header; zero if there is no value.
func readAcceptance(h events.Header) (a acceptance) {
	place, at, _ := strings.Cut(first(h, headerAccepted), "@")
	a.place, _ = strconv.ParseUint(place, 10, 64)
	a.at, _ = strconv.ParseInt(at, 10, 64)
	return a
}

// eachCounts reports whether each message of a verb counts. Of all other messages, only the last
// one of a subject counts.
func eachCounts(verb events.Verb) bool { return verb == events.VerbEvent || verb == events.VerbMailbox }

// ---- Forwarding due messages.

// forwarder forwards due messages while this process receives from a partition.
type forwarder struct {
	*resources
	publisher *publisher
	dead      *deadLetters

	prevented rarely // warnings about what a setting prevents

	mu    sync.Mutex
	users int    // counts the receivers that need it
	end   func() // ends the forwarding
}

// start lets this process forward due messages, until stop is called. It may be called several
// times.
func (f *forwarder) start() (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users++; f.users == 1 {
		ctx, cancel := context.WithCancel(f.ctx)
		ended := make(chan struct{})
		runs := f.run(func() {
			defer close(ended)
			f.forward(ctx)
		})
		if runs {
			f.end = func() {
				cancel()
				<-ended
			}
		} else {
			cancel()
		}
	}
	return func() {
		f.mu.Lock()
		var end func()
		if f.users--; f.users == 0 {
			end, f.end = f.end, nil
		}
		f.mu.Unlock()
		if end != nil {
			end()
		}
	}
}

// forward forwards due messages until the context ends.
func (f *forwarder) forward(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := f.forwardUntilBroken(ctx)
		if ctx.Err() != nil {
			return
		}
		if gone(err) { // its consumer or its stream was removed
			err = errors.Join(err, f.mend(ctx))
		}
		if failures%30 == 3 {
			f.log.Warn("NATS: messages that are due cannot be forwarded; retrying", "stream",
				f.names.later, "error", err)
		}
		select {
		case <-time.After(forwardAgain):
		case <-ctx.Done():
		}
	}
}

// forwardUntilBroken forwards the messages of one subscription.
func (f *forwarder) forwardUntilBroken(ctx context.Context) error {
	c, err := f.lookFor(ctx, f.names.later, dueConsumer)
	if err != nil {
		return err
	}
	limit := max(forwardBytes, 2*int(f.nc.MaxPayload())) // NATS delivers nothing that is larger
	all, err := c.Messages(jetstream.PullMaxMessagesWithBytesLimit(forwardAtOnce, limit),
		jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullFor/6))
	if err != nil {
		return err
	}
	// Messages that are delivered already are forwarded, too, or nacked: no other process would get
	// them before their ack wait ends. NATS may not store or answer anything now, and an
	// orchestrator that shuts down waits for the end.
	grace, over := context.WithCancel(f.ctx)
	defer over()
	defer context.AfterFunc(ctx, func() {
		all.Drain()
		time.AfterFunc(forwardGrace, over)
	})()
	defer all.Stop()
	came := make(chan jetstream.Msg, forwardAtOnce)
	room := semaphore.NewWeighted(forwardBytes) // of the messages in came and in the batch
	var broken error
	go func() {
		defer close(came)
		for {
			m, err := all.Next(jetstream.NextContext(grace))
			if err == nil {
				if err = room.Acquire(grace, forwardCost(m)); err != nil {
					_ = m.Nak()
				}
			}
			if err != nil {
				broken = err
				return
			}
			came <- m
		}
	}()
	for m := range came {
		batch := []jetstream.Msg{m}
		for len(batch) < forwardAtOnce && len(came) > 0 {
			batch = append(batch, <-came)
		}
		err := f.forwardBatch(grace, batch)
		for _, m := range batch {
			room.Release(forwardCost(m))
		}
		if err != nil {
			all.Stop()
			for _, m := range batch {
				_ = m.NakWithDelay(forwardAgain) // without the connection, NATS redelivers it after the ack wait
			}
			for m := range came {
				room.Release(forwardCost(m))
				_ = m.NakWithDelay(forwardAgain)
			}
			return err
		}
	}
	return broken
}

// forwardCost is how much of forwardBytes a message takes: a larger one takes all.
func forwardCost(m jetstream.Msg) int64 {
	d := broker.Delivery{Subject: m.Subject(), Header: events.Header(m.Headers()), Body: m.Data()}
	return min(int64(d.Size()), forwardBytes)
}

// forwardBatch stores messages for their receivers, and then acknowledges them.
func (f *forwarder) forwardBatch(ctx context.Context, batch []jetstream.Msg) error {
	wires := make([]events.Wire, len(batch))
	for i, m := range batch {
		wires[i] = f.forwarded(m)
	}
	waits, err := f.publishOrDeadLetter(ctx, wires)
	if err != nil {
		return err
	}
	for i, m := range batch {
		if waits != nil && waits.ReasonFor(wires[i]) != nil {
			_ = m.NakWithDelay(forwardAgain)
			continue
		}
		_ = m.Ack() // if the ack is lost, the message is forwarded again, with the same id
	}
	return nil
}

// forwarded returns the message to publish for a due one.
func (f *forwarder) forwarded(m jetstream.Msg) events.Wire {
	rest := strings.TrimPrefix(m.Subject(), f.subject(dueVerb)+".")
	w := events.Wire{Subject: f.subject(rest), Header: broker.Carry(m.Headers()), Body: m.Data()}
	for _, name := range []string{headerNotBefore, headerAccepted} { // this process, or another one, has set them
		if v := m.Headers()[name]; v != nil {
			w.Header[name] = v
		}
	}
	if f.goesThroughInbox(w.Subject) {
		w.Subject = f.subject(dueMark + rest)
	}
	return w
}

// publishOrDeadLetter publishes messages, and dead-letters those that NATS will never store. It
// returns those that NATS refuses until a setting is changed.
func (f *forwarder) publishOrDeadLetter(ctx context.Context, wires []events.Wire) (waits *broker.Refused, err error) {
	err = f.publisher.Publish(ctx, wires...)
	var refused *broker.Refused
	if !errors.As(err, &refused) {
		return nil, err
	}
	waits, never := refused.Misconfigured()
	if waits != nil {
		f.prevented.do(func(dropped int) {
			f.log.Warn("NATS: messages that are due are refused because of a setting; trying again", "messages",
				len(waits.Messages), "subject", waits.Messages[0].Subject, "error", waits.Reasons[0],
				"dropped", dropped)
		})
	}
	if never == nil {
		return waits, nil
	}
	for i, w := range never.Messages {
		d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, StoredAt: time.Now()}
		why := broker.Cause{Reason: "refused", Detail: never.Reasons[i].Error(), By: "delay"}
		if err := f.dead.StoreDeadLetter(ctx, d, why); err != nil {
			return nil, err
		}
		f.log.Error("NATS: a delayed message was refused and dead-lettered", "subject", w.Subject, "error",
			never.Reasons[i])
	}
	return waits, nil
}
