package natsbroker

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// maxReturn is the longest delay that Nak asks the broker for. The broker adds the delay to its
// clock, and a delay that is too long would result in a time long past. The receiver nacks a
// message again that is redelivered too early.
const maxReturn = 24 * time.Hour

// minReturn is the shortest delay of a redelivery.
const minReturn = time.Microsecond

// origin is the information about a message in the subject for its acknowledgement.
type origin struct {
	stream, consumer string
	deliveries       int
	place            uint64 // in the stream
	handed           uint64 // deliveries of the consumer so far to all receivers, this one included
	stored           time.Time

	// Whether the message has waited for its time in the stream of delayed messages, and when it
	// was accepted.
	due      bool
	accepted acceptance
}

// originOf parses the subject for an acknowledgement:
//
//	$JS.ACK.<stream>.<consumer>.<deliveries>.<place in the stream>.<place in the consumer>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.…
func originOf(reply string) (o origin, err error) {
	bad := func() error { return fmt.Errorf("%q is not where JetStream takes acknowledgements", reply) }
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return o, bad()
	}
	switch words := strings.Count(rest, ".") + 1; {
	case words == 7:
	case words >= 9:
		for range 2 {
			_, rest, _ = strings.Cut(rest, ".")
		}
	default:
		return o, bad()
	}
	next := func() (word string) {
		word, rest, _ = strings.Cut(rest, ".")
		return word
	}
	o.stream, o.consumer = next(), next()
	deliveries, err1 := strconv.Atoi(next())
	place, err2 := strconv.ParseUint(next(), 10, 64)
	handed, err3 := strconv.ParseUint(next(), 10, 64)
	nanos, err4 := strconv.ParseInt(next(), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || o.stream == "" || o.consumer == "" ||
		deliveries < 1 || strings.ContainsAny(reply, "*> \t\r\n") {
		return o, bad()
	}
	o.deliveries, o.place, o.handed, o.stored = deliveries, place, handed, time.Unix(0, nanos).UTC()
	return o, nil
}

// delivery makes a Delivery of a message from the broker, and returns the earliest time to process
// it: zero for at once.
func (c *conn) delivery(m *nats.Msg) (d broker.Delivery, o origin, notBefore time.Time, err error) {
	if o, err = originOf(m.Reply); err != nil {
		return broker.Delivery{}, o, time.Time{}, err
	}
	d = broker.Delivery{
		Sequence: o.place, NumDelivered: o.deliveries, StoredAt: o.stored,
		Hold: hold{c.nc, m.Reply},
	}
	h := events.Header(m.Header)
	d.Subject, d.Partition = c.publishedAs(m.Subject)
	d.Subject, o.due = c.withoutDue(d.Subject, h)
	if o.due {
		if o.accepted = readAcceptance(h); o.accepted.at > 0 {
			d.AcceptedAt = time.UnixMicro(o.accepted.at).UTC()
		}
	}
	if at := h[headerNotBefore]; len(at) > 0 {
		// A time that cannot be parsed is no reason to delay a message for ever: it counts as none.
		notBefore, _ = time.Parse(time.RFC3339Nano, at[0])
		d.NotBefore = notBefore
		if d.NumDelivered > 1 && notBefore.After(d.StoredAt) {
			d.NumDelivered-- // the first delivery was too early, and nacked
		}
	}
	if _, again := h[headerAgain]; again && !c.fromClient(d.Subject) {
		d.NumDelivered++
	}
	// The orchestrator dead-letters a message without a stream at once. A
	// result has no delay: a worker could have NATS wait with so many that the lane stands still.
	if c.canTake(d.Subject) != nil || c.isResult(d.Subject) {
		notBefore, d.NotBefore = time.Time{}, time.Time{}
	}
	clean(h)
	d.Header, d.Body = kept(m)
	return d, o, notBefore, nil
}

// maxBlock is the maximum size of the headers of a message that is kept as the NATS client returns
// it. Few messages have larger ones.
const maxBlock = 1 << 10

// kept returns the headers that a message keeps (see [broker.Received]), and its body. The NATS
// client makes all headers of a message parts of one string, and lets the body share memory with
// the bytes that it read them from. So the id alone would keep all of them in memory, the unknown
// ones included. Most messages have only known headers, which are small: they are kept as they are.
func kept(m *nats.Msg) (h events.Header, body []byte) {
	large := headerSizeOf(m) > maxBlock
	if !large && onlyKnown(m.Header) {
		return events.Header(m.Header), m.Data
	}
	if body = m.Data; large {
		body = bytes.Clone(body)
	}
	return broker.Received(m.Header), body
}

// onlyKnown reports whether all headers are known, and have a single value.
func onlyKnown(h nats.Header) bool {
	for name, values := range h {
		if _, is := broker.KnownHeader(name); !is || len(values) != 1 {
			return false
		}
	}
	return true
}

// clean removes the headers that only publishers and receivers use, and those that only services
// may set, because a client may have set them.
func clean(h events.Header) {
	if _, has := h[events.HeaderMsgID]; has {
		delete(h, nats.MsgIdHdr) // which was made of it
	}
	for _, name := range []string{headerNotBefore, headerAccepted, headerAgain} {
		delete(h, name)
	}
}

// first returns the first value of a header.
func first(h events.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// hold settles a message by the subject for its acknowledgement.
type hold struct {
	nc    *nats.Conn
	reply string
}

var (
	saidAck    = []byte("+ACK")
	saidExtend = []byte("+WPI")
)

func (h hold) say(what []byte) {
	// An error means that the connection is closed for good: NATS then redelivers the message.
	_ = h.nc.Publish(h.reply, what)
}

// Ack implements broker.Hold.
func (h hold) Ack() { h.say(saidAck) }

// Nak implements broker.Hold.
func (h hold) Nak(after time.Duration) {
	// With a delay, however short, NATS stores the time of the redelivery. Without one, NATS
	// forgets the nack when it restarts.
	after = min(max(after, minReturn), maxReturn)
	h.say([]byte(`-NAK {"delay": ` + strconv.FormatInt(int64(after), 10) + "}"))
}

// InProgress implements broker.Hold.
func (h hold) InProgress() { h.say(saidExtend) }

// AckSubject implements broker.Hold.
func (h hold) AckSubject() string { return h.reply }

func lastWord(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
