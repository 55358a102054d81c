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

func (b *Bus) handoverSubject(name string) string {
	return b.subject("notice", "handover", "to", events.EncodeToken(name))
}

// Handover implements broker.Handovers.
func (b *Bus) Handover(ctx context.Context, to string, d broker.Delivery) error {
	o, err := originOf(d.Hold.AckSubject())
	if err != nil {
		return fmt.Errorf("hand over to %q: only this process can settle it: %w", to, err)
	}
	// The stream does not know that a result was handed out before by the short way, and who takes
	// it over compares.
	about, err := json.Marshal(handed{d.Subject, d.Partition, d.Sequence, min(d.NumDelivered, o.deliveries), d.StoredAt,
		d.Hold.AckSubject()})
	if err != nil {
		return err
	}
	m := nats.NewMsg(b.handoverSubject(to))
	m.Header = nats.Header(maps.Clone(d.Header))
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[headerHanded] = []string{string(about)}
	m.Data = d.Body
	ctx, cancel := context.WithTimeout(ctx, b.config.Timeout)
	defer cancel()
	answer, err := b.nc.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("hand over to %q: %w", to, broker.ErrNobody)
	case err != nil:
		return problem(fmt.Sprintf("hand over to %q", to), err)
	case string(answer.Data) != accepted:
		return fmt.Errorf("%q refuses: %s", to, answer.Data)
	}
	return nil
}

// ReceiveHandovers implements broker.Handovers.
func (b *Bus) ReceiveHandovers(name string, take func(broker.Delivery) error) (stop func(), err error) {
	sub, err := b.nc.Subscribe(b.handoverSubject(name), func(m *nats.Msg) {
		answer := accepted
		if d, err := b.adopt(m); err != nil {
			answer = printable(err.Error())
		} else if err := take(d); err != nil {
			answer = printable(err.Error())
		}
		if !b.mayAnswer(m) {
			return
		}
		_ = m.Respond([]byte(answer)) // if it is lost, two have it: whoever comes second changes nothing
	})
	if err != nil {
		return nil, problem("receive what is handed over", err)
	}
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	if err := b.nc.FlushTimeout(b.config.Timeout); err != nil {
		stop()
		return nil, problem("receive what is handed over", err)
	}
	return stop, nil
}

// adopt makes a delivery of what was handed over. Whoever hands over may be anybody who may publish
// there: it must not make us settle what is none of ours.
func (b *Bus) adopt(m *nats.Msg) (broker.Delivery, error) {
	var about handed
	if err := json.Unmarshal([]byte(m.Header.Get(headerHanded)), &about); err != nil {
		return broker.Delivery{}, fmt.Errorf("header %s: %w", headerHanded, err)
	}
	o, err := originOf(about.Token)
	if err != nil {
		return broker.Delivery{}, err
	}
	if o.stream != b.names.inbox && o.stream != b.names.work {
		return broker.Delivery{}, fmt.Errorf("%q acknowledges a message of another system", about.Token)
	}
	if err := b.canTake(about.Subject); err != nil {
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
		StoredAt:     o.stored, Hold: hold{b.nc, about.Token},
	}, nil
}
