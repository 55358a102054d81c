// Package client starts, signals, cancels, queries and awaits instances from outside.
//
//	c, err := client.Connect(ctx, "nats://nats:4222", client.Credentials("orders.creds"))
//	…
//	order, err := orders.Fulfil.Start(ctx, c, o, orchestration.ID("order-7"))
//	receipt, err := order.Wait(ctx)
//
// A [Client] is the [orchestration.Client] that contracts need. Its own methods do the same by
// names and ids. Its parts read and remove instances ([Client.Instances]), manage schedules
// ([Client.Schedules]) and look after the running system ([Client.System]). Where a list has pages,
// they return an iterator, which fetches each page when the loop comes to it:
//
//	for i, err := range c.Instances().All(ctx, client.Filter{Statuses: []client.Status{client.Failed}}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(i.ID, i.Error)
//	}
//
// # Waiting
//
// A waiting call does not poll. It subscribes first, asks once, and then gets a notification from
// the orchestrator (see package query). Notifications can be lost, so the call asks again all the
// same: after 1 s, then with doubled delays up to 30 s, and at once after a lost connection. A
// request without a response is no reason to fail: waiting ends with its context.
//
//	subscribe ──► ask ──► wait for a notification ◄──┐
//	                        │ 1 s, 2 s, 4 s … 30 s   │
//	                        └──► ask ────────────────┘
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

	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// options are the settings of a client.
type options struct {
	// These are as in [busclient.Options].
	Store history.Reader
	Codec codec.Codec
	NewID func() string
	Now   func() time.Time
	Name  string

	// firstAsk is the delay before the first repeated request, lastAsk the longest delay between
	// two; for tests, as are the others.
	firstAsk, lastAsk          time.Duration
	listensWithin, hearsWithin time.Duration
}

const (
	firstAsk = time.Second
	lastAsk  = 30 * time.Second
	// A client that listens within listensWithin after a start was published has most likely missed
	// nothing, and hears of an end within hearsWithin without asking, which costs an orchestrator
	// two queries.
	listensWithin = 2 * time.Millisecond
	hearsWithin   = 50 * time.Millisecond
	// maxAsking bounds the concurrent requests of waiting calls.
	maxAsking = 64
)

// Client starts instances, sends them messages and waits for them. It is safe for concurrent use.
// Its parts do the rest: [Client.Instances], [Client.Schedules] and [Client.System].
type Client struct {
	broker  closable
	data    source
	o       options
	waits   *waits
	sent    *moments // starts that do not count an earlier instance, or the times at which starts are due
	lately  *moments // instances whose starts were just begun to be published
	closing sync.Once
	stop    func()
	owned   io.Closer // the connection, if it was made here
}

var _ orchestration.Client = (*Client)(nil)

// ErrClosed is the error of a client that was closed.
var ErrClosed = errors.New("the client was closed")

func init() {
	busclient.Register(func(b busclient.Broker, o busclient.Options) any {
		return newClient(b, options{Store: o.Store, Codec: o.Codec, NewID: o.NewID, Now: o.Now, Name: o.Name})
	})
}

// newClient makes a client. Close ends it, not the broker's connection.
func newClient(broker busclient.Broker, o options) *Client {
	if o.Codec == nil {
		o.Codec = codec.JSON{}
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
	ctx, cancel := context.WithCancel(context.Background())
	b := closable{broker, ctx}
	c := &Client{data: source{o.Store, query.NewReader(b), ctx}, broker: b, o: o, waits: newWaits(ctx, cancel, b, o),
		sent: newMoments(maxSent), lately: newMoments(maxLately)}
	if r, ok := broker.(interface{ Reconnected(func()) (stop func()) }); ok {
		c.stop = r.Reconnected(c.waits.hub.wakeAll)
	}
	return c
}

// Close ends all waiting with [ErrClosed], and closes the connection of a client that [Connect]
// made. Later calls of other methods return ErrClosed; further calls of Close do nothing.
func (c *Client) Close() (err error) {
	c.closing.Do(func() {
		c.waits.close()
		if c.stop != nil {
			c.stop()
		}
		c.waits.hub.close()
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
	return c.broker.Publish(ctx, wires...)
}

// sentAt is what a message says about when it was sent: instances take it once, however often it is
// published again. Answers are told apart by what they answer.
func sentAt(c events.Content, now time.Time) time.Time {
	switch c.(type) {
	case *events.Start, *events.EventRaised, *events.MailboxMessage, *events.Control:
		return events.Instant(now)
	default:
	}
	return time.Time{}
}

// encode writes a message. A message that the orchestrators would refuse is refused here, where the
// caller can react.
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
func (c *Client) Codec() codec.Codec { return c.o.Codec }

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

// ---- Recent messages.

// noteStart remembers when a start was sent: by its id if it does not count an earlier instance,
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

// moments remembers the times of recent messages.
type moments struct {
	most  int
	mu    sync.Mutex
	at    map[string]time.Time
	order []string
}

// How many are remembered: starts for as long as a call may wait for them, and those of a few
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

// deleted is the error of waiting for an instance that existed and no longer does: it was deleted,
// or the system has another database now, as after the directory of a dev was removed.
func deleted(instance string) error {
	return fmt.Errorf("instance %q was deleted, or its database replaced, during the wait: %w", instance, ErrNoInstance)
}
