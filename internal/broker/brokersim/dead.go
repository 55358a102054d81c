package brokersim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// deadLetters implements broker.DeadLetters and broker.DeadLetterStore.
type deadLetters struct{ *link }

// StoreDeadLetter implements broker.DeadLetters.
func (c *deadLetters) StoreDeadLetter(ctx context.Context, d broker.Delivery, why broker.Cause) error {
	return c.insist(ctx, fmt.Sprint("store dead letter ", d.Sequence, " ", d.Subject), func() error {
		id := ""
		if v := d.Header[events.HeaderMsgID]; len(v) > 0 {
			id = v[0]
		}
		if slices.ContainsFunc(c.b.dead, func(l broker.DeadLetter) bool {
			return l.Subject == d.Subject && l.ID == id && l.StoredAt.Equal(d.StoredAt)
		}) {
			return nil // the caller repeats it after a crash
		}
		why.Detail = strings.ReplaceAll(why.Detail, "\n", " ")
		c.b.place++
		l := broker.DeadLetter{Sequence: c.b.place, Subject: d.Subject, ID: id,
			Header: broker.Carry(d.Header), Body: d.Body,
			Why: why, StoredAt: d.StoredAt, DeadLetteredAt: c.b.now()}
		delete(l.Header, events.HeaderMsgID)
		if sizeOf(l.Header) > maxHeader {
			l.Header, l.Body, l.Lost = nil, nil, true
		}
		c.b.dead = append(c.b.dead, l)
		return nil
	})
}

// DeadLetters implements broker.DeadLetterStore.
func (c *deadLetters) DeadLetters(ctx context.Context, after uint64, limit int) (list []broker.DeadLetter, err error) {
	err = c.do(ctx, "dead letters", func() error {
		for _, l := range c.b.dead {
			if l.Sequence > after && len(list) < limit {
				list = append(list, l)
			}
		}
		return nil
	})
	return list, err
}

// DeadLetter implements broker.DeadLetterStore.
func (c *deadLetters) DeadLetter(ctx context.Context, place uint64) (l broker.DeadLetter, err error) {
	err = c.do(ctx, "dead letter", func() error {
		i := c.b.deadAt(place)
		if i < 0 {
			return broker.ErrNoLetter
		}
		l = c.b.dead[i]
		return nil
	})
	return l, err
}

// Replay implements broker.DeadLetterStore.
func (c *deadLetters) Replay(ctx context.Context, place uint64) error {
	l, err := c.DeadLetter(ctx, place)
	if err != nil {
		return err
	}
	if l.Lost {
		return fmt.Errorf("dead letter %d: its headers and body were too large to be kept", place)
	}
	if err := events.CheckSubject(c.b.prefix, l.Subject); err != nil {
		return fmt.Errorf("replay dead letter %d on %q: %w", place, l.Subject, err)
	}
	h := maps.Clone(l.Header)
	if h == nil {
		h = make(events.Header)
	}
	if l.ID != "" {
		h[events.HeaderMsgID] = []string{l.ID}
	}
	if err := c.insist(ctx, "replay "+l.Subject, func() error {
		// The message is stored even if the broker remembers its id.
		c.b.number++
		c.b.put(&message{wire: events.Wire{Subject: l.Subject, Header: h, Body: l.Body}, number: c.b.number}, c.b.now())
		return nil
	}); err != nil {
		return err
	}
	return c.Drop(ctx, place)
}

// Drop implements broker.DeadLetterStore.
func (c *deadLetters) Drop(ctx context.Context, place uint64) error {
	return c.do(ctx, "drop a dead letter", func() error {
		i := c.b.deadAt(place)
		if i < 0 {
			return broker.ErrNoLetter
		}
		c.b.dead = slices.Delete(c.b.dead, i, i+1)
		return nil
	})
}

func (b *streams) deadAt(place uint64) int {
	return slices.IndexFunc(b.dead, func(l broker.DeadLetter) bool { return l.Sequence == place })
}

// Dead lists the dead letters as they are stored.
func (b *Broker) Dead() (list []events.Wire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.dead {
		h := maps.Clone(l.Header)
		if h == nil {
			h = make(events.Header)
		}
		for name, value := range map[string]string{
			"Reason": l.Why.Reason, "Detail": l.Why.Detail, "By": l.Why.By, "Attempts": strconv.Itoa(l.Why.Attempts),
			"Subject": l.Subject, "Id": l.ID,
			"Stored": l.StoredAt.UTC().Format(time.RFC3339Nano),
		} {
			h["Rondo-Dead-"+name] = []string{value}
		}
		list = append(list, events.Wire{Subject: b.prefix + ".dead." + strings.TrimPrefix(l.Subject, b.prefix+"."),
			Header: h, Body: l.Body})
	}
	return list
}
