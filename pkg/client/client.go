// Package client is how programs and people talk to instances from outside: start, raise, enqueue,
// cancel, wait, ask.
//
//	c, err := client.Connect(ctx, "nats://nats:4222", client.Credentials("orders.creds"))
//	…
//	order, err := orders.Fulfil.Start(ctx, c, o, orchestration.ID("order-7"))
//	receipt, err := order.Wait(ctx)
//
// A [Client] is the [orchestration.Client] that contracts need. Its own methods do the same, and
// more, by names and ids.
//
// # Waiting
//
// Nothing here asks again and again for what can be told. Who waits listens first, asks once, and
// is then told by the orchestrator what happens (see package query). Notices can be lost, so it
// asks again all the same: after a second, and more and more rarely, up to twice a minute; at once
// when the connection was lost meanwhile. What was asked for and not answered is no reason to give
// up: waiting ends with its context.
//
//	listen ──► ask ──► wait for the notice ◄──┐
//	                     │ a second, two, four … half a minute
//	                     └──► ask ────────────┘
package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Broker is what a client needs of a broker.
type Broker interface {
	broker.Publisher
	broker.Notices
	broker.Questions
	broker.RollCalls
	// Prefix begins all subjects.
	Prefix() string
}

// Options are the settings of a client. The zero value is good.
type Options struct {
	// Store is asked instead of the orchestrators, where there is direct access to the database. If
	// it is a [history.Remover], too, it also removes.
	Store history.Reader
	// Codec is that of the system; nil is [events.JSON].
	Codec events.Codec
	// NewID makes ids; nil makes UUIDs that sort by time.
	NewID func() string
	// Now is the clock from which delays are counted; nil is [time.Now].
	Now func() time.Time
	// Name is who completes activities, for history; "" is client.
	Name string

	// firstAsk is when what is waited for is asked for again, lastAsk how rarely at last; for
	// tests, as are the others.
	firstAsk, lastAsk          time.Duration
	listensWithin, hearsWithin time.Duration
}

const (
	firstAsk = time.Second
	lastAsk  = 30 * time.Second
	// Who listens within listensWithin after a start was published has most likely missed nothing,
	// and hears of an end within hearsWithin without asking, which costs an orchestrator two
	// queries.
	listensWithin = 2 * time.Millisecond
	hearsWithin   = 50 * time.Millisecond
	// maxAsking bounds how many questions of those who wait are under way at once.
	maxAsking = 64
)

// Client talks to instances. It is safe for concurrent use. What it is asked for besides is in the
// [history.Reader] that it is, too: List, Count, Instance, Executions, Events, Stats, Values,
// Value, CustomStatus, Tree and Metrics.
type Client struct {
	history.Reader
	broker  Broker
	remover history.Remover
	o       Options
	hub     *hub
	asking  chan struct{}
	sent    *moments        // starts that do not count what was there before, or when they are due
	lately  *moments        // instances whose starts were just begun to be published
	ctx     context.Context // ends with the client
	close   context.CancelFunc
	closing sync.Once
	stops   []func()
	owned   io.Closer // the connection, if it was made here
}

var _ orchestration.Client = (*Client)(nil)

// ErrClosed is the error of a client that was closed.
var ErrClosed = errors.New("the client was closed")

// New makes a client. Close ends it, not the broker's connection.
func New(broker Broker, o Options) *Client {
	if o.Codec == nil {
		o.Codec = events.JSON{}
	}
	if o.NewID == nil {
		o.NewID = newID
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Name == "" {
		o.Name = "client"
	}
	if o.firstAsk == 0 {
		o.firstAsk, o.lastAsk = firstAsk, lastAsk
	}
	if o.hearsWithin == 0 {
		o.listensWithin, o.hearsWithin = listensWithin, hearsWithin
	}
	asker := query.NewReader(broker)
	c := &Client{Reader: asker, remover: asker, broker: broker, o: o, hub: newHub(broker),
		asking: make(chan struct{}, maxAsking), sent: newMoments(maxSent), lately: newMoments(maxLately)}
	if o.Store != nil {
		c.Reader = o.Store
		if r, ok := o.Store.(history.Remover); ok {
			c.remover = r
		}
	}
	c.ctx, c.close = context.WithCancel(context.Background())
	if r, ok := broker.(interface{ Reconnected(func()) (stop func()) }); ok {
		c.stops = append(c.stops, r.Reconnected(c.hub.wakeAll))
	}
	return c
}

// Close ends all waiting.
func (c *Client) Close() (err error) {
	c.closing.Do(func() {
		c.close()
		for _, stop := range c.stops {
			stop()
		}
		c.hub.close()
		if c.owned != nil {
			err = c.owned.Close()
		}
	})
	return err
}

// Publish implements [orchestration.Client].
func (c *Client) Publish(ctx context.Context, messages ...events.Message) error {
	wires, begun, now := make([]events.Wire, 0, len(messages)), time.Now(), c.o.Now()
	for _, m := range messages {
		if m.Sent.IsZero() {
			m.Sent = sentAt(m.Content, now)
		}
		w, err := c.encode(traced(ctx, m))
		if err != nil {
			return err
		}
		wires = append(wires, w)
		c.noteStart(m, begun)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return c.broker.Publish(ctx, wires...)
}

// sentAt is what a message says about when it was sent: instances take it once, however often it is
// published again. Answers are told apart by what they answer.
func sentAt(c events.Content, now time.Time) time.Time {
	switch c.(type) {
	case *events.Start, *events.EventRaised, *events.QueueSent, *events.Control:
		return events.Instant(now)
	}
	return time.Time{}
}

// encode writes a message. What the orchestrators would refuse is refused here, where somebody can
// do something about it.
func (c *Client) encode(m events.Message) (events.Wire, error) {
	w, err := events.Encode(c.broker.Prefix(), m)
	if err != nil || w.Purge {
		return w, err
	}
	_, err = events.Decode(c.broker.Prefix(), w.Subject, w.Header, w.Body, "")
	return w, err
}

// NewID implements [orchestration.Client].
func (c *Client) NewID() string { return c.o.NewID() }

// Now implements [orchestration.Client].
func (c *Client) Now() time.Time { return c.o.Now() }

// Codec implements [orchestration.Client].
func (c *Client) Codec() events.Codec { return c.o.Codec }

// newID makes a UUID of version 7: milliseconds, then chance.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	x := hex.EncodeToString(b[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// ---- What was sent.

// noteStart remembers when a start was sent: by its id if it does not count what was there before,
// and by its instance if this process has just begun to publish it.
func (c *Client) noteStart(m events.Message, begun time.Time) {
	start, ok := m.Content.(*events.Start)
	if !ok {
		return
	}
	now := c.o.Now()
	if start.Conflict != events.KeepExisting && m.ID != "" && c.sent.of(m.ID).IsZero() {
		due := now
		if m.NotBefore.After(now) {
			due = m.NotBefore
		}
		c.sent.note(m.ID, due)
	}
	if !begun.IsZero() && !m.NotBefore.After(now) {
		c.lately.note(m.Instance, begun)
	}
}

// moments remembers when something was, of what was noted last.
type moments struct {
	most  int
	mu    sync.Mutex
	at    map[string]time.Time
	order []string
}

// How many are remembered: starts for as long as somebody may wait for them, and those of a few
// milliseconds.
const (
	maxSent   = 10_000
	maxLately = 256
)

func newMoments(most int) *moments { return &moments{most: most, at: make(map[string]time.Time)} }

func (s *moments) note(what string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.at[what]; !again {
		if len(s.order) >= s.most {
			delete(s.at, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, what)
	}
	s.at[what] = at
}

// of tells when something was; the zero time if that is not known.
func (s *moments) of(what string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[what]
}

// deleted is the error of waiting for an instance that was deleted.
func deleted(instance string) error {
	return fmt.Errorf("instance %q was deleted while it was waited for: %w", instance, history.ErrNoInstance)
}
