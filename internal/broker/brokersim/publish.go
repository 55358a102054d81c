package brokersim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// writer stores messages, and withdraws them.
type writer struct {
	*link
	results *directResults // the names to which results of tasks may be delivered directly
}

// take stores or withdraws a message. The broker's mu is held.
func (c *writer) take(w events.Wire) {
	if !w.Purge {
		if c.b.isWork(w.Subject) {
			w.Header = c.results.withDirectReply(w.Header)
		}
		c.b.store(w)
		return
	}
	c.b.due(c.b.now())
	if w.NotBefore.After(c.b.now()) {
		if m := c.b.later[w.Subject]; m != nil {
			c.b.away(m)
			delete(c.b.later, w.Subject)
		}
	}
	if c.b.isWork(w.Subject) {
		c.b.work = slices.DeleteFunc(c.b.work, func(m *message) bool {
			if m.wire.Subject == w.Subject {
				c.b.away(m)
			}
			return m.wire.Subject == w.Subject
		})
		words := append([]string{"withdrawn"},
			strings.Split(strings.TrimPrefix(w.Subject, c.b.prefix+".task."), ".")...)
		c.b.notify(words, nil, nil)
	}
	c.b.change()
}

// publisher implements broker.Publisher.
type publisher struct {
	*writer
	direct *directSender
}

// Publish implements broker.Publisher.
func (c *publisher) Publish(ctx context.Context, messages ...events.Wire) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var refused broker.Refused
	var flight flight
	for _, w := range messages {
		if err := cmp.Or(c.b.canTake(w), c.b.mayPublish(w)); err != nil {
			refused.Messages, refused.Reasons = append(refused.Messages, w), append(refused.Reasons, err)
			continue
		}
		if to := c.direct.way(w); to != "" {
			flight.start(func() error { return c.direct.send(ctx, w, to) })
			continue
		}
		what := "publish " + w.Subject
		if w.Purge {
			if err := flight.await(); err != nil { // the withdrawn message may be among those in flight
				return err
			}
			what = "withdraw " + w.Subject
		}
		if err := c.insist(ctx, what, func() error { c.take(w); return nil }); err != nil {
			return errors.Join(err, flight.await())
		}
	}
	if err := flight.await(); err != nil {
		return err
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

// flight has the directly delivered messages in flight.
type flight struct {
	all sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (f *flight) start(send func() error) {
	f.all.Go(func() {
		err := send()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = errors.Join(f.err, err)
	})
}

// land waits until all of them are settled or stored.
func (f *flight) await() error {
	f.all.Wait()
	return f.err
}

// maxPayload and maxHeader are the maximum sizes of a message's body and headers.
const maxPayload, maxHeader = 1 << 20, 64 << 10

var errNoStream = errors.New("no stream takes this subject")

func (b *Broker) canTake(w events.Wire) error {
	rest, ok := strings.CutPrefix(w.Subject, b.prefix+".")
	words := strings.Split(rest, ".")
	want := 3
	if words[0] == "task" {
		want = 5
	}
	switch {
	case !ok, len(words) != want, slices.Contains(words, ""), strings.ContainsAny(rest, "*> \t\r\n"):
		return errNoStream
	case len(w.Body) > maxPayload, sizeOf(w.Header) > maxHeader:
		return errors.New("it is too large")
	}
	for name := range w.Header {
		if strings.ContainsAny(name, " :\r\n") {
			return fmt.Errorf("no header can be called %q", name)
		}
	}
	if want == 5 {
		_, err := queueOf(words[1], words[2])
		return err
	}
	return nil
}

func sizeOf(h events.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}

// StoredUnder implements [broker.Stock].
func (c *publisher) StoredUnder(ctx context.Context, messages []events.Wire,
	limit int) (list []broker.StoredMessage, more bool, err error) {
	subject := messages[0].Subject
	err = c.do(ctx, "stored under "+subject, func() error {
		all := slices.Concat(c.b.work, slices.Collect(maps.Values(c.b.later)))
		for _, inbox := range c.b.inbox {
			all = append(all, inbox...)
		}
		for _, m := range all {
			if m.wire.Subject != subject {
				continue
			}
			x := broker.StoredMessage{NotBefore: m.notBefore}
			if v := m.wire.Header[events.HeaderMsgID]; len(v) > 0 {
				x.ID = v[0]
			}
			list = append(list, x)
		}
		slices.SortFunc(list, func(a, b broker.StoredMessage) int { return cmp.Compare(a.ID, b.ID) })
		if more = len(list) > limit; more {
			list = list[:limit]
		}
		return nil
	})
	return list, more, err
}

// Has implements broker.Publisher.
func (c *publisher) Has(ctx context.Context, w events.Wire) (has bool, err error) {
	err = c.do(ctx, "has "+w.Subject, func() error {
		same := func(m *message) bool { return m.wire.Subject == w.Subject }
		has = c.b.later[w.Subject] != nil || slices.ContainsFunc(c.b.work, same)
		for _, list := range c.b.inbox {
			has = has || slices.ContainsFunc(list, same)
		}
		return nil
	})
	return has, err
}
