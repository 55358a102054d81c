package brokersim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// handovers implements broker.Handovers.
type handovers struct{ *link }

// Handover implements broker.Handovers.
func (c *handovers) Handover(ctx context.Context, to string, d broker.Delivery) error {
	var other *receiverOf
	at := handoverAt{broker.HandoverKindOf(c.Prefix(), d.Subject), to}
	err := c.do(ctx, fmt.Sprint("hand over to ", to, " ", d.Sequence, " ", d.Subject), func() error {
		if other = c.b.handovers[at]; other == nil {
			return fmt.Errorf("%w: %s", broker.ErrNoResponders, to)
		}
		return nil
	})
	if other == nil {
		return err
	}
	refused := make(chan error, 1)
	// The delivery has arrived, whether or not the response does.
	other.c.path.Hear(fmt.Sprint("handover ", d.Sequence, " ", d.Subject), func() { refused <- other.take(d) })
	select {
	case why := <-refused:
		return errors.Join(err, why)
	case <-time.After(answerWait):
		return errors.Join(err, errUnanswered)
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

// handoverAt is where a process takes handovers.
type handoverAt struct {
	kind broker.HandoverKind
	name string
}

// receiverOf takes the deliveries that are handed over to a name.
type receiverOf struct {
	c    *link
	take func(broker.Delivery) error
}

// ReceiveHandovers implements broker.Handovers.
func (c *handovers) ReceiveHandovers(kind broker.HandoverKind, name string,
	take func(broker.Delivery) error) (stop func(), err error) {
	at := handoverAt{kind, name}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	own := &receiverOf{c.link, func(d broker.Delivery) error {
		if c.ctx.Err() != nil {
			return broker.ErrNoResponders
		}
		h, ok := d.Hold.(hold)
		if !ok {
			return errors.New("this broker did not deliver it")
		}
		d.Hold = hold{c.b, c.link, h.place, d.Subject}
		c.b.mu.Lock()
		if m := c.b.find(h.place); m != nil {
			m.holder = nil
		}
		c.b.mu.Unlock()
		c.path.Note("handed over", d.Subject)
		return take(d)
	}}
	c.b.handovers[at] = own
	return func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		if c.b.handovers[at] == own { // otherwise its successor has begun already
			delete(c.b.handovers, at)
		}
	}, nil
}

// AckSubject implements broker.Hold.
func (h hold) AckSubject() string { return strconv.FormatUint(h.place, 10) }
