package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
)

// headerHanded is the subject for the acknowledgement of a delivery that is handed over. A handover
// has nothing else: its receiver reads the message from the stream, so that it processes and
// settles only messages that are stored, as they are stored. That costs a request to the leader, a
// fifth of a millisecond. Few deliveries are handed over: messages for code that only some
// orchestrators have, tasks of sessions, and direct tasks of more than a second.
const headerHanded = "Rondo-Handed"

// headerNacked is how many of its deliveries the sender of a handover has nacked on purpose.
const headerNacked = "Rondo-Nacked"

const accepted = "+OK"

// maxAdopting is the maximum number of handovers of one name that are read from the stream at once.
const maxAdopting = 64

// handovers hands deliveries over to other processes.
type handovers struct {
	*conn
	reader reader
}

// Handover implements broker.Handovers.
func (hs *handovers) Handover(ctx context.Context, to string, d broker.Delivery) error {
	if _, err := originOf(d.Hold.AckSubject()); err != nil {
		return fmt.Errorf("hand over to %q: only this process can settle it: %w", to, err)
	}
	m := nats.NewMsg(hs.handoverSubject(broker.HandoverKindOf(hs.names.prefix, d.Subject), to))
	m.Header = nats.Header{headerHanded: {d.Hold.AckSubject()}}
	if d.Nacked > 0 {
		m.Header[headerNacked] = []string{strconv.Itoa(d.Nacked)}
	}
	ctx, cancel := context.WithTimeout(ctx, hs.timeout)
	defer cancel()
	answer, err := hs.nc.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("hand over to %q: %w", to, broker.ErrNoResponders)
	case err != nil:
		return problem(fmt.Sprintf("hand over to %q", to), err)
	case string(answer.Data) != accepted:
		return fmt.Errorf("%q refuses: %s", to, answer.Data)
	}
	return nil
}

// ReceiveHandovers implements broker.Handovers. It takes several handovers at once, because each
// waits for a response of the stream. A sender that needs an order waits for the answer itself.
func (hs *handovers) ReceiveHandovers(kind broker.HandoverKind, name string,
	take func(broker.Delivery) error) (stop func(), err error) {
	slots := make(chan struct{}, maxAdopting)
	sub, err := hs.nc.Subscribe(hs.handoverSubject(kind, name), func(m *nats.Msg) {
		if !hs.mayAnswer(m) {
			return
		}
		slots <- struct{}{}
		if !hs.run(func() {
			defer func() { <-slots }()
			answer := accepted
			if d, err := hs.adopt(kind, m); err != nil {
				answer = printable(err.Error())
			} else if err := take(withNacked(d, m.Header)); err != nil {
				answer = printable(err.Error())
			}
			// if it is lost, two processes have the delivery; settling it twice is harmless
			_ = m.Respond([]byte(answer))
		}) {
			<-slots
		}
	})
	if err != nil {
		return nil, problem("receive what is handed over", err)
	}
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	if err := hs.flush(hs.ctx); err != nil {
		stop()
		return nil, problem("receive what is handed over", err)
	}
	return stop, nil
}

// adopt makes a Delivery of a message that was handed over. NATS permissions bind each kind to a
// role, and NATS itself sends responses to any subject. So adopt takes only the position of the
// message from its sender, and refuses one that is not where a consumer of this system delivers
// messages of this kind.
func (hs *handovers) adopt(kind broker.HandoverKind, m *nats.Msg) (broker.Delivery, error) {
	token := strings.Clone(m.Header.Get(headerHanded))
	if len(token) > maxSubject {
		return broker.Delivery{}, fmt.Errorf("a position of %d bytes: %w", len(token), errLongSubject)
	}
	o, err := originOf(token)
	if err != nil {
		return broker.Delivery{}, err
	}
	stream := hs.names.work
	if kind == broker.HandoverInbox {
		stream = hs.names.inbox
	}
	if o.stream != stream {
		return broker.Delivery{}, fmt.Errorf("%q is not a message of the kind %s of this system", token, kind)
	}
	ctx, cancel := context.WithTimeout(hs.ctx, hs.timeout)
	defer cancel()
	// The leader has the message if it is stored; another replica may not have it yet.
	stored, err := hs.reader.askLeader(ctx, stream, fmt.Appendf(nil, `{"seq":%d}`, o.place))
	if err != nil {
		return broker.Delivery{}, problem("read "+token, err)
	}
	return hs.rebuild(kind, token, stored)
}

// rebuild makes a Delivery of a stored message, for the subject for its acknowledgement.
func (hs *handovers) rebuild(kind broker.HandoverKind, token string, stored *found) (broker.Delivery, error) {
	if stored == nil {
		return broker.Delivery{}, fmt.Errorf("%q is not stored any more", token)
	}
	h, err := stored.header()
	if err != nil {
		return broker.Delivery{}, fmt.Errorf("headers of %q: %w", token, err)
	}
	d, o, notBefore, err := hs.delivery(&nats.Msg{Subject: stored.Subject, Header: h, Data: stored.Data, Reply: token})
	// Headers without a name, which no size counts, are parts of the same string as the others.
	d.Header = broker.Received(d.Header)
	switch {
	case err != nil:
		return broker.Delivery{}, err
	case o.place != stored.Sequence || !o.stored.Equal(stored.Time) || d.Partition < 0,
		o.consumer != hs.consumerOf(stored.Subject),
		broker.HandoverKindOf(hs.names.prefix, d.Subject) != kind || hs.canTake(d.Subject) != nil:
		return broker.Delivery{}, fmt.Errorf("%q does not fit the stored message %q", token, stored.Subject)
	case time.Now().Before(notBefore):
		return broker.Delivery{}, fmt.Errorf("%q waits for its time, %v", token, notBefore)
	}
	return d, nil
}

// withNacked adds how many deliveries the sender of a handover has nacked on purpose.
func withNacked(d broker.Delivery, h nats.Header) broker.Delivery {
	if n, err := strconv.Atoi(h.Get(headerNacked)); err == nil {
		d.Nacked = max(0, min(n, d.NumDelivered-1))
	}
	return d
}

// consumerOf returns the name of the consumer that delivers a message with a stored subject; "" if
// there is none.
func (n *names) consumerOf(stored string) string {
	if rest, ok := strings.CutPrefix(stored, n.prefix+".p."); ok {
		p, rest, _ := strings.Cut(rest, ".")
		partition, err := strconv.Atoi(p)
		switch words := strings.Count(rest, ".") + 1; {
		case err != nil, words < 3:
			return ""
		case words == 3:
			return fromClients.consumer(partition)
		}
		return ahead.consumer(partition)
	}
	words, ok := n.queueWords(stored)
	if !ok {
		return ""
	}
	tag, activity, _ := strings.Cut(words, ".")
	q, err := queueOf(tag, activity)
	if err != nil {
		return ""
	}
	return ConsumerOf(q)
}
