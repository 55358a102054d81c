package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// journal lists the actions of the services, in their order.
type journal struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newJournal(t *testing.T) *journal { return &journal{t: t, more: make(chan struct{})} }

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	close(j.more)
	j.more = make(chan struct{})
}

// find returns the places of the lines that begin so.
func (j *journal) find(begin string) []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.places(begin)
}

func (j *journal) places(begin string) (places []int) {
	for i, l := range j.lines {
		if strings.HasPrefix(l, begin) {
			places = append(places, i)
		}
	}
	return places
}

// await waits until there are so many lines that begin so, and returns the place of the last one.
func (j *journal) await(begin string, n int) int {
	j.t.Helper()
	timeout := time.After(patience)
	for {
		j.mu.Lock()
		places, more := j.places(begin), j.more
		j.mu.Unlock()
		if len(places) >= n {
			return places[n-1]
		}
		select {
		case <-more:
		case <-timeout:
			j.t.Fatalf("%d lines begin with %q, want %d:\n%s", len(places), begin, n, j)
		}
	}
}

// inOrder checks that something happened in an order, each the first time.
func (j *journal) inOrder(begins ...string) {
	j.t.Helper()
	last := -1
	for _, b := range begins {
		places := j.find(b)
		if len(places) == 0 {
			j.t.Errorf("%q never happened:\n%s", b, j)
			return
		}
		if places[0] < last {
			j.t.Errorf("%q happened too early; want the order %q:\n%s", b, begins, j)
			return
		}
		last = places[0]
	}
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return "  " + strings.Join(j.lines, "\n  ")
}

// probe is a bus that notes each call, and that can be cut off.
type probe struct {
	*natsbroker.Bus
	journal *journal
	dead    atomic.Bool
	// onSubscribe, if set, is called before a partition is received from; an error of its is why
	// that fails.
	onSubscribe func(partition int) error
	// onReceive, if set, is called when a message arrives, before it is processed.
	onReceive func(broker.Delivery)
	// onPublish, if set, is called before something is published, afterPublish after it was.
	onPublish    func([]events.Wire) error
	afterPublish func([]events.Wire)
	// onAck, if set, is called before a message is acknowledged; if it reports false, the
	// acknowledgement is lost.
	onAck func(broker.Delivery) bool
}

var errCut = errors.New("the connection is cut")

func (p *probe) cut() { p.dead.Store(true) }

func (p *probe) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	if p.onSubscribe != nil {
		if err := p.onSubscribe(partition); err != nil {
			return err
		}
	}
	return p.Bus.Receive(ctx, partition, func(d broker.Delivery) {
		if p.dead.Load() {
			return // the message stays with a process that is dead
		}
		p.journal.note("received %s", d.Subject)
		if p.onReceive != nil {
			if p.onReceive(d); p.dead.Load() {
				return
			}
		}
		d.Hold = probedHold{p, d, d.Hold}
		take(d)
	})
}

func (p *probe) Publish(ctx context.Context, messages ...events.Wire) error {
	if p.onPublish != nil {
		if err := p.onPublish(messages); err != nil {
			return err
		}
	}
	if p.dead.Load() {
		return errCut
	}
	for _, m := range messages { // before it is stored: it may be received before this call returns
		what := "published"
		if m.Purge {
			what = "withdrew"
		}
		p.journal.note("%s %s", what, m.Subject)
	}
	err := p.Bus.Publish(ctx, messages...)
	if p.afterPublish != nil {
		p.afterPublish(messages)
	}
	return err
}

func (p *probe) StoreDeadLetter(ctx context.Context, d broker.Delivery, why broker.Cause) error {
	if p.dead.Load() {
		return errCut
	}
	p.journal.note("dead-lettered %s: %s", d.Subject, why.Reason)
	return p.Bus.StoreDeadLetter(ctx, d, why)
}

func (p *probe) Join(ctx context.Context, m broker.Member) (broker.Membership, error) {
	inner, err := p.Bus.Join(ctx, m)
	if err != nil {
		return nil, err
	}
	return probedMembership{p, inner}, nil
}

// probedMembership does not leave when it is dead.
type probedMembership struct {
	p *probe
	broker.Membership
}

func (m probedMembership) Leave(ctx context.Context) error {
	if m.p.dead.Load() {
		go m.p.Close() // so that it sends nothing more
		return errCut
	}
	return m.Membership.Leave(ctx)
}

type probedHold struct {
	p *probe
	d broker.Delivery
	broker.Hold
}

func (h probedHold) Ack() {
	if h.p.dead.Load() || h.p.onAck != nil && !h.p.onAck(h.d) {
		h.p.journal.note("lost the acknowledgement of %s", h.d.Subject)
		return
	}
	h.p.journal.note("acknowledged %s", h.d.Subject)
	h.Hold.Ack()
}

func (h probedHold) Nak(after time.Duration) {
	if h.p.dead.Load() {
		return
	}
	h.p.journal.note("returned %s after %v", h.d.Subject, after)
	h.Hold.Nak(after)
}

func (h probedHold) InProgress() {
	if !h.p.dead.Load() {
		h.Hold.InProgress()
	}
}

// probedStore is a store that notes each commit, and that can fail.
type probedStore struct {
	history.Store
	journal *journal
	dead    atomic.Bool
	// before and after are called around each commit, if set; an error of theirs is the commit's.
	// After an error of before, nothing is committed.
	before, after func(history.Batch) error
	// onLoad, if set, is called before instances are read; an error of its is why that fails.
	onLoad func(ids []string) error
}

func (s *probedStore) Load(ctx context.Context, ids []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	if s.onLoad != nil {
		if err := s.onLoad(ids); err != nil {
			return nil, err
		}
	}
	return s.Store.Load(ctx, ids, admit)
}

func (s *probedStore) Commit(ctx context.Context, b history.Batch) (history.Result, error) {
	if s.before != nil {
		if err := s.before(b); err != nil {
			return history.Result{}, err
		}
	}
	if s.dead.Load() {
		return history.Result{}, &history.Error{Class: history.Retry, Op: "commit", Err: errCut}
	}
	r, err := s.Store.Commit(ctx, b)
	if err == nil {
		for i, d := range b.Turns {
			s.journal.note("committed %s: %s", d.Turn.Instance, r.Outcomes[i].Status)
		}
	}
	if err == nil && s.after != nil {
		err = s.after(b)
	}
	return r, err
}

func (s *probedStore) RemoveOutbox(ctx context.Context, keys []history.OutboxKey) error {
	if s.dead.Load() {
		return errCut
	}
	return s.Store.RemoveOutbox(ctx, keys)
}
