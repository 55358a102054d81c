package natsbroker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// maxReturn is for how long the broker is asked to keep something that is returned. It adds the
// time to its clock, and would get something long past if that were too much; what comes back too
// early is returned again.
const maxReturn = 24 * time.Hour

// minReturn is the shortest time after which something comes again.
const minReturn = time.Microsecond

// origin is what the subject for the acknowledgement says about a message.
type origin struct {
	stream, consumer string
	deliveries       int
	place            uint64 // in the stream
	handed           uint64 // how many messages the consumer had handed out, to whomever, with this one
	stored           time.Time

	// For what has waited for its time in the stream that is for that: that it has, and when it was
	// accepted.
	due      bool
	accepted acceptance
}

// originOf reads the subject for an acknowledgement:
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

// delivery makes a Delivery of a message from the broker, and tells when it may be taken: zero for
// at once.
func (b *Bus) delivery(m *nats.Msg) (d broker.Delivery, o origin, notBefore time.Time, err error) {
	if o, err = originOf(m.Reply); err != nil {
		return broker.Delivery{}, o, time.Time{}, err
	}
	d = broker.Delivery{
		Header: events.Header(m.Header), Body: m.Data, Sequence: o.place, NumDelivered: o.deliveries,
		StoredAt: o.stored,
		Hold:     hold{b.nc, m.Reply},
	}
	d.Subject, d.Partition = b.publishedAs(m.Subject)
	d.Subject, o.due = b.withoutDue(d.Subject, d.Header)
	if o.due {
		o.accepted = readAcceptance(d.Header)
		if fired, err := time.Parse(time.RFC3339Nano, first(d.Header, headerFired)); err == nil {
			d.Scheduled, d.StoredAt = true, fired
		}
	}
	if at := d.Header[headerNotBefore]; len(at) > 0 {
		// What cannot be read is no reason to keep a message back for ever: it counts as nothing.
		notBefore, _ = time.Parse(time.RFC3339Nano, at[0])
		d.NotBefore = notBefore
		if d.NumDelivered > 1 && notBefore.After(d.StoredAt) {
			d.NumDelivered-- // the first time it was too early, and went back
		}
	}
	if _, again := d.Header[headerAgain]; again && !b.fromClient(d.Subject) {
		d.NumDelivered++
	}
	clean(d.Header)
	return d, o, notBefore, nil
}

// clean removes the headers that are between publishers and receivers, and those that count only
// where the services publish and that a client has written.
func clean(h events.Header) {
	if _, has := h[events.HeaderMsgID]; has {
		delete(h, nats.MsgIdHdr) // which was made of it
	}
	for _, name := range []string{headerNotBefore, headerFired, headerAccepted, headerAgain} {
		delete(h, name)
	}
}

// first is the first value of a header.
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
	// An error means that the connection is closed for good: the message then comes again.
	_ = h.nc.Publish(h.reply, what)
}

// Ack implements broker.Hold.
func (h hold) Ack() { h.say(saidAck) }

// Nak implements broker.Hold.
func (h hold) Nak(after time.Duration) {
	// With a delay, however short, the broker writes down when the message comes again. Without one
	// it forgets that when it is restarted.
	after = min(max(after, minReturn), maxReturn)
	h.say([]byte(`-NAK {"delay": ` + strconv.FormatInt(int64(after), 10) + "}"))
}

// InProgress implements broker.Hold.
func (h hold) InProgress() { h.say(saidExtend) }

// AckSubject implements broker.Hold.
func (h hold) AckSubject() string { return h.reply }

func lastWord(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
