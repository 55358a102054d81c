package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// window bounds what is on its way to the broker at once; each message counts with its size and a little more.
	window      = 32 << 20
	messageCost = 4 << 10

	// A message whose time is nearer than near is published at once, another one waits in the broker until early before its time, because the broker may be
	// up to a quarter of a second late.
	near  = 1500 * time.Millisecond
	early = time.Second

	// headerID keeps the id of a delayed message, whose Nats-Msg-Id the broker takes away; headerNotBefore says when it may be taken.
	headerID        = "Rondo-Id"
	headerNotBefore = "Rondo-Not-Before"
)

// Publish implements bus.Publisher.
func (b *Bus) Publish(ctx context.Context, messages ...events.Wire) error {
	var refused bus.Refused
	rest := make([]events.Wire, 0, len(messages))
	var withdrawn []events.Wire
	for _, w := range messages {
		if w.Purge {
			withdrawn = append(withdrawn, w)
		} else {
			rest = append(rest, w)
		}
	}
	for attempt := 0; len(rest) > 0; attempt++ {
		failed, err := b.publishOnce(ctx, rest, &refused)
		if len(failed) == 0 {
			break
		}
		rest = failed
		if err := b.pause(ctx, attempt, err); err != nil {
			return err
		}
	}
	for attempt := 0; len(withdrawn) > 0; attempt++ {
		failed, err := b.withdraw(ctx, withdrawn)
		if len(failed) == 0 {
			break
		}
		withdrawn = failed
		if err := b.pause(ctx, attempt, err); err != nil {
			return err
		}
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

// pause waits before the next attempt, and gives the error of the last one when there is none.
func (b *Bus) pause(ctx context.Context, attempt int, last error) error {
	delay := min(50*time.Millisecond<<min(attempt, 6), 2*time.Second)
	if attempt == 3 {
		b.log.Warn("NATS: publishing fails; trying on", "error", last)
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return problem("publish", errors.Join(context.Cause(ctx), last))
	case <-b.ctx.Done():
		return problem("publish", errors.Join(nats.ErrConnectionClosed, last))
	}
}

// sent is a message on its way.
type sent struct {
	wire   events.Wire
	future jetstream.PubAckFuture
	cost   int64
}

// publishOnce publishes once, and gives those that may be tried again with the last reason.
func (b *Bus) publishOnce(ctx context.Context, messages []events.Wire, refused *bus.Refused) (failed []events.Wire, last error) {
	var flying []sent // oldest first
	land := func() {
		s := flying[0]
		flying = flying[1:]
		err := b.await(ctx, s.future)
		b.window.Release(s.cost)
		switch {
		case err == nil:
		case permanent(err):
			refused.Messages, refused.Reasons = append(refused.Messages, s.wire), append(refused.Reasons, err)
		default:
			failed, last = append(failed, s.wire), err
		}
	}
	now := time.Now()
	for i, w := range messages {
		m := b.message(w, now)
		cost := min(int64(m.Size())+messageCost, window)
		for !b.window.TryAcquire(cost) {
			if len(flying) > 0 { // first what this call holds itself: two calls must not wait for each other
				land()
				continue
			}
			if err := b.window.Acquire(ctx, cost); err != nil {
				return append(failed, messages[i:]...), context.Cause(ctx)
			}
			break
		}
		future, err := b.js.PublishMsgAsync(m)
		if err == nil {
			flying = append(flying, sent{w, future, cost})
			b.noteQueue(w.Subject)
			continue
		}
		b.window.Release(cost)
		if !permanent(err) {
			for len(flying) > 0 {
				land()
			}
			return append(failed, messages[i:]...), err
		}
		refused.Messages, refused.Reasons = append(refused.Messages, w), append(refused.Reasons, err)
	}
	for len(flying) > 0 {
		land()
	}
	return failed, last
}

// await waits for the broker to say that it has a message.
func (b *Bus) await(ctx context.Context, f jetstream.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case err := <-f.Err():
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-b.ctx.Done():
		return nats.ErrConnectionClosed
	}
}

// permanent reports whether the broker will never take the message.
func permanent(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, jetstream.ErrInvalidSubject) {
		return true
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case 10054, // larger than the stream takes
		10189, 10190, 10191: // a schedule that it does not understand
		return true
	}
	return false
}

// message makes what is published: the message itself, or its schedule.
func (b *Bus) message(w events.Wire, now time.Time) *nats.Msg {
	m := &nats.Msg{Subject: w.Subject, Data: w.Body, Header: nats.Header(w.Header)}
	if w.NotBefore.IsZero() || !w.NotBefore.After(now) {
		return m
	}
	h := make(nats.Header, len(w.Header)+4)
	for k, v := range w.Header {
		h[k] = v
	}
	m.Header = h
	h[headerNotBefore] = []string{w.NotBefore.UTC().Format(time.RFC3339Nano)}
	if w.NotBefore.Sub(now) < near {
		return m
	}
	if id := h[nats.MsgIdHdr]; len(id) > 0 {
		h[headerID] = id
		h[nats.MsgIdHdr] = []string{id[0] + "/later"}
	}
	h["Nats-Schedule"] = []string{"@at " + w.NotBefore.Add(-early).UTC().Format(time.RFC3339Nano)}
	h["Nats-Schedule-Target"] = []string{w.Subject}
	h["Nats-Rollup"] = []string{"sub"} // one schedule for each subject, the last one
	m.Subject = b.later(w.Subject)
	return m
}

// later is the subject under which a message waits for its time.
func (b *Bus) later(subject string) string {
	return b.subject("later", strings.TrimPrefix(subject, b.names.prefix+"."))
}

// streamOf finds the stream of a subject.
func (b *Bus) streamOf(subject string) (st jetstream.Stream, isWork bool) {
	if strings.HasPrefix(subject, b.subject("work.")) {
		return b.work, true
	}
	return b.inbox, false
}

// withdraw removes what is stored under subjects, and tells those who hold it. It gives back those for which that did not work.
func (b *Bus) withdraw(ctx context.Context, messages []events.Wire) (failed []events.Wire, last error) {
	now := time.Now()
	for _, w := range messages {
		if err := b.withdrawOne(ctx, w, now); err != nil {
			failed, last = append(failed, w), fmt.Errorf("withdraw %s: %w", w.Subject, err)
			if ctx.Err() != nil {
				return messages, last
			}
		}
	}
	return failed, last
}

func (b *Bus) withdrawOne(ctx context.Context, w events.Wire, now time.Time) error {
	st, isWork := b.streamOf(w.Subject)
	if st == nil {
		return errors.New("its stream cannot be seen")
	}
	if isWork {
		if err := st.Purge(ctx, jetstream.WithPurgeSubject(w.Subject)); err != nil {
			return err
		}
		words := append([]string{"notice", "withdrawn"}, strings.Split(strings.TrimPrefix(w.Subject, b.subject("work.")), ".")...)
		if err := b.nc.Publish(b.subject(words...), nil); err != nil {
			return err
		}
	}
	if w.NotBefore.After(now) { // otherwise it does not wait for its time any more, or never did
		return st.Purge(ctx, jetstream.WithPurgeSubject(b.later(w.Subject)))
	}
	return nil
}

// Has implements bus.Publisher.
func (b *Bus) Has(ctx context.Context, w events.Wire) (bool, error) {
	st, isWork := b.streamOf(w.Subject)
	subjects := []string{b.later(w.Subject)}
	if isWork {
		subjects = append(subjects, w.Subject)
	}
	for _, s := range subjects {
		_, err := st.GetLastMsgForSubject(ctx, s)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, problem("look for "+w.Subject, err)
		}
	}
	return false, nil
}
