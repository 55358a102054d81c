package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// prefetch is how many messages of a partition are asked for at once.
	prefetch = 1024
	// checkLeft is how often a receiver looks whether what its predecessor held has been settled.
	checkLeft = 250 * time.Millisecond
	// maxLeft bounds how many of the messages that a predecessor held are looked up one by one.
	maxLeft = 4096
)

// Receive implements bus.Inbox.
func (b *Bus) Receive(ctx context.Context, partition int, take func(bus.Delivery)) error {
	consumer, err := b.js.Consumer(ctx, b.names.inbox, "p-"+strconv.Itoa(partition))
	if err != nil {
		return b.received(ctx, partition, err)
	}
	r := &receiver{b: b, partition: partition, take: take, early: make(chan bus.Delivery), stopped: make(chan struct{})}
	defer close(r.stopped)
	if err := r.findLeft(ctx, consumer); err != nil {
		return b.received(ctx, partition, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(prefetch), jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return b.received(ctx, partition, err)
	}
	arrived := make(chan jetstream.Msg)
	var ended error // read it after arrived was closed
	go func() {
		defer close(arrived)
		ended = pump(messages, arrived)
	}()
	open := r.run(ctx, consumer, arrived)
	messages.Drain()
	for open {
		var m jetstream.Msg
		if m, open = <-arrived; open {
			_ = m.Nak() // what is in the buffer goes back, in its order; if that is lost, it comes again later
		}
	}
	r.giveUp()
	return b.received(ctx, partition, fmt.Errorf("the subscription ended: %w", ended))
}

// received makes the error of Receive: none, if it was to end.
func (b *Bus) received(ctx context.Context, partition int, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return problem(fmt.Sprintf("receive from partition %d", partition), err)
}

// pump brings messages from an iterator to a channel until the iterator is closed.
func pump(from jetstream.MessagesContext, to chan<- jetstream.Msg) error {
	for {
		m, err := from.Next()
		switch {
		case err == nil:
			to <- m
		case errors.Is(err, jetstream.ErrNoHeartbeat): // it asks again by itself
		default:
			return err
		}
	}
}

// receiver hands out the messages of a partition.
type receiver struct {
	b         *Bus
	partition int
	take      func(bus.Delivery)
	early     chan bus.Delivery // messages whose time has come
	stopped   chan struct{}

	// Messages up to upTo were handed out to somebody else before this receiver began; left are those that were not settled, by the last word of
	// their subjects, and behind waits for them.
	upTo   uint64
	left   map[string][]uint64
	behind map[string][]bus.Delivery
	until  time.Time // when they must have come again
}

// run hands messages out until the context ends, or there are no more: then it reports false.
func (r *receiver) run(ctx context.Context, consumer jetstream.Consumer, arrived <-chan jetstream.Msg) (open bool) {
	tick := time.NewTicker(checkLeft)
	defer tick.Stop()
	for {
		ticks := tick.C
		if len(r.left) == 0 {
			ticks = nil
		}
		select {
		case <-ctx.Done():
			return true
		case m, ok := <-arrived:
			if !ok {
				return false
			}
			r.arrive(m)
		case d := <-r.early:
			r.take(d)
		case <-ticks:
			r.check(ctx, consumer)
		}
	}
}

// arrive takes a message from the broker.
func (r *receiver) arrive(m jetstream.Msg) {
	d, err := r.b.delivery(m)
	if err != nil {
		r.b.log.Error("NATS: a message without a place in a stream", "subject", m.Subject(), "error", err)
		_ = m.Nak()
		return
	}
	d.Partition = r.partition
	if rest := untilDue(d.Header); rest > 0 {
		r.holdEarly(d, rest)
		return
	}
	r.inOrder(d)
}

// holdEarly keeps a message until its time.
func (r *receiver) holdEarly(d bus.Delivery, rest time.Duration) {
	if rest > r.b.config.InboxWait/2 { // clocks differ, or it has been moved: the broker keeps it
		d.Hold.Return(rest)
		return
	}
	time.AfterFunc(rest, func() {
		select {
		case r.early <- d:
		case <-r.stopped:
			d.Hold.Return(0)
		}
	})
}

// untilDue tells how long a message must not be taken.
func untilDue(h events.Header) time.Duration {
	v := h[headerNotBefore]
	if len(v) == 0 {
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, v[0])
	if err != nil {
		return 0
	}
	return time.Until(at)
}

// ---- The order of what a predecessor held.

// findLeft finds what was handed out and not settled.
func (r *receiver) findLeft(ctx context.Context, consumer jetstream.Consumer) error {
	info, err := consumer.Info(ctx)
	if err != nil || info.NumAckPending == 0 {
		return err
	}
	r.upTo, r.until = info.Delivered.Stream, time.Now().Add(r.b.config.InboxWait+2*time.Second)
	r.left, r.behind = make(map[string][]uint64), make(map[string][]bus.Delivery)
	of := r.b.subject("p", strconv.Itoa(r.partition), ">")
	for next, n := info.AckFloor.Stream+1, 0; next <= r.upTo && n < maxLeft; n++ {
		m, err := r.b.inbox.GetMsg(ctx, next, jetstream.WithGetMsgSubject(of))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Sequence > r.upTo {
			return nil
		}
		who := lastWord(m.Subject)
		r.left[who] = append(r.left[who], m.Sequence)
		next = m.Sequence + 1
	}
	return nil
}

// inOrder hands a message out, unless an older one of the same instance has to come again first.
func (r *receiver) inOrder(d bus.Delivery) {
	if len(r.left) == 0 {
		r.take(d)
		return
	}
	who := lastWord(d.Subject)
	if d.Place > r.upTo && len(r.left[who]) > 0 {
		r.behind[who] = append(r.behind[who], d)
		return
	}
	r.take(d)
	if d.Place <= r.upTo {
		r.came(who, d.Place)
	}
}

// came notes that a message that was left needs not be waited for any more.
func (r *receiver) came(who string, place uint64) {
	left := slices.DeleteFunc(r.left[who], func(p uint64) bool { return p == place })
	if len(left) > 0 {
		r.left[who] = left
		return
	}
	delete(r.left, who)
	for _, d := range r.behind[who] {
		r.take(d)
	}
	delete(r.behind, who)
}

// check looks whether the predecessor has settled what it held after all, and gives up waiting when it is time.
func (r *receiver) check(ctx context.Context, consumer jetstream.Consumer) {
	if time.Now().After(r.until) {
		r.release()
		return
	}
	info, err := consumer.Info(ctx)
	if err == nil && info.AckFloor.Stream >= r.upTo {
		r.release()
		return
	}
	for who, waiting := range r.behind {
		for _, d := range waiting {
			d.Hold.Extend()
		}
		for _, place := range slices.Clone(r.left[who]) {
			if _, err := r.b.inbox.GetMsg(ctx, place); errors.Is(err, jetstream.ErrMsgNotFound) {
				r.came(who, place)
			}
		}
	}
}

// release hands out what was waiting.
func (r *receiver) release() {
	for who := range r.behind {
		for _, d := range r.behind[who] {
			r.take(d)
		}
	}
	r.left, r.behind = nil, nil
}

// giveUp gives back what was waiting.
func (r *receiver) giveUp() {
	for _, waiting := range r.behind {
		for _, d := range waiting {
			d.Hold.Return(0)
		}
	}
}

func lastWord(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// Backlog implements bus.Inbox.
func (b *Bus) Backlog(ctx context.Context, partition int) (bus.Backlog, error) {
	return b.backlog(ctx, b.names.inbox, "p-"+strconv.Itoa(partition))
}

func (b *Bus) backlog(ctx context.Context, stream, consumer string) (bus.Backlog, error) {
	c, err := b.js.Consumer(ctx, stream, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return bus.Backlog{}, nil
	}
	if err != nil {
		return bus.Backlog{}, problem("look at consumer "+consumer, err)
	}
	i := c.CachedInfo()
	return bus.Backlog{Waiting: int64(i.NumPending), Held: int64(i.NumAckPending), Receivers: i.NumWaiting}, nil
}

// ---- Deliveries.

// delivery makes a Delivery of a message from the broker.
func (b *Bus) delivery(m jetstream.Msg) (bus.Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return bus.Delivery{}, err
	}
	h := events.Header(m.Headers())
	if id := h[headerID]; len(id) > 0 && len(h[nats.MsgIdHdr]) == 0 {
		h[nats.MsgIdHdr] = id
	}
	return bus.Delivery{
		Subject: b.published(m.Subject()), Header: h, Body: m.Data(), Place: meta.Sequence.Stream,
		Deliveries: int(meta.NumDelivered), Stored: meta.Timestamp.UTC(), Hold: hold{b.nc, m.Reply()},
	}, nil
}

// published is the subject that a message was published on: without its partition.
func (b *Bus) published(subject string) string {
	rest, ok := strings.CutPrefix(subject, b.subject("p."))
	if !ok {
		return subject
	}
	_, rest, _ = strings.Cut(rest, ".")
	return b.subject(rest)
}

// hold settles a message by the subject for its acknowledgement.
type hold struct {
	nc    *nats.Conn
	reply string
}

func (h hold) say(what string) {
	// An error means that the connection is closed for good: the message then comes again.
	_ = h.nc.Publish(h.reply, []byte(what))
}

// Ack implements bus.Hold.
func (h hold) Ack() { h.say("+ACK") }

// Return implements bus.Hold.
func (h hold) Return(after time.Duration) {
	if after <= 0 {
		h.say("-NAK")
		return
	}
	h.say(`-NAK {"delay": ` + strconv.FormatInt(int64(after), 10) + "}")
}

// Extend implements bus.Hold.
func (h hold) Extend() { h.say("+WPI") }

// Token implements bus.Hold.
func (h hold) Token() string { return h.reply }
