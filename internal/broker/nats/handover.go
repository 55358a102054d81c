package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// headerHanded describes, in JSON, a delivery that is handed over; its own headers and its body are
// those of the message.
const headerHanded = "Rondo-Handed"

type handed struct {
	Subject      string    `json:"subject"`
	Partition    int       `json:"partition"`
	Sequence     uint64    `json:"place"`
	NumDelivered int       `json:"deliveries"`
	StoredAt     time.Time `json:"stored"`
	Token        string    `json:"token"`
}

const accepted = "+OK"

// handovers hands deliveries over to other processes.
type handovers struct{ *conn }

// Handover implements broker.Handovers.
func (hs *handovers) Handover(ctx context.Context, to string, d broker.Delivery) error {
	o, err := originOf(d.Hold.AckSubject())
	if err != nil {
		return fmt.Errorf("hand over to %q: only this process can settle it: %w", to, err)
	}
	// The stream does not count an earlier direct delivery of a result, and adopt compares the
	// numbers.
	about, err := json.Marshal(handed{d.Subject, d.Partition, d.Sequence, min(d.NumDelivered, o.deliveries), d.StoredAt,
		d.Hold.AckSubject()})
	if err != nil {
		return err
	}
	m := nats.NewMsg(hs.handoverSubject(broker.HandoverKindOf(hs.names.prefix, d.Subject), to))
	m.Header = nats.Header(maps.Clone(d.Header))
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[headerHanded] = []string{string(about)}
	m.Data = d.Body
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

// ReceiveHandovers implements broker.Handovers.
func (hs *handovers) ReceiveHandovers(kind broker.HandoverKind, name string,
	take func(broker.Delivery) error) (stop func(), err error) {
	sub, err := hs.nc.Subscribe(hs.handoverSubject(kind, name), func(m *nats.Msg) {
		answer := accepted
		if d, err := hs.adopt(kind, m); err != nil {
			answer = printable(err.Error())
		} else if err := take(d); err != nil {
			answer = printable(err.Error())
		}
		if !hs.mayAnswer(m) {
			return
		}
		_ = m.Respond([]byte(answer)) // if it is lost, two processes have the delivery; settling it twice is harmless
	})
	if err != nil {
		return nil, problem("receive what is handed over", err)
	}
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	if err := hs.nc.FlushTimeout(hs.timeout); err != nil {
		stop()
		return nil, problem("receive what is handed over", err)
	}
	return stop, nil
}

// adopt makes a Delivery of a message that was handed over. Any user with permission to publish
// there may have sent it: it must not make this process settle a message of another system.
func (hs *handovers) adopt(kind broker.HandoverKind, m *nats.Msg) (broker.Delivery, error) {
	var about handed
	if err := json.Unmarshal([]byte(m.Header.Get(headerHanded)), &about); err != nil {
		return broker.Delivery{}, fmt.Errorf("header %s: %w", headerHanded, err)
	}
	o, err := originOf(about.Token)
	if err != nil {
		return broker.Delivery{}, err
	}
	stream := hs.names.work
	if kind == broker.HandoverInbox {
		stream = hs.names.inbox
	}
	if o.stream != stream || broker.HandoverKindOf(hs.names.prefix, about.Subject) != kind {
		return broker.Delivery{}, fmt.Errorf("%q, of %q, is not a message of the kind %s of this system", about.Token,
			about.Subject, kind)
	}
	if err := hs.canTake(about.Subject); err != nil {
		return broker.Delivery{}, fmt.Errorf("subject %q: %w", about.Subject, err)
	}
	if o.place != about.Sequence || about.NumDelivered < 1 || about.NumDelivered > o.deliveries ||
		about.Partition < 0 ||
		!o.stored.Equal(about.StoredAt) {
		return broker.Delivery{}, fmt.Errorf("header %s does not fit %q", headerHanded, about.Token)
	}
	h := events.Header(m.Header)
	delete(h, headerHanded)
	return broker.Delivery{
		Subject: about.Subject, Header: h, Body: m.Data, Partition: about.Partition, Sequence: about.Sequence,
		NumDelivered: about.NumDelivered,
		StoredAt:     o.stored, Hold: hold{hs.nc, about.Token},
	}, nil
}
