package integration_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file stops a service at one point. All that a service does to the world goes through the
// broker, the store, or the code of people; here each of these calls passes a gate before and after
// it. The gate notes it, and when it is the one that a test has chosen, the service dies there:
// nothing that it does from then on has any effect.

// crossing is a point that a service passes.
type crossing struct {
	// edge is before, half, during or after the call.
	edge, call string
	// kind says more about the call: what is published, say.
	kind string
}

func (c crossing) String() string { return strings.TrimSpace(c.edge + " " + c.call + " " + c.kind) }

// gate lets a service through, until it dies there.
type gate struct {
	at     crossing // an empty kind stands for any
	nth    int      // which time it dies; 0: never
	die    func()
	killed chan struct{}
	dead   atomic.Bool
	noted  chan struct{} // closed when something was noted the first time
	once   sync.Once

	mu     sync.Mutex
	times  int
	passed map[crossing]int
}

func newGate(at crossing, nth int) *gate {
	return &gate{at: at, nth: nth, killed: make(chan struct{}), noted: make(chan struct{}),
		passed: make(map[crossing]int)}
}

// wants reports whether the service is to die at this point, this time or another.
func (g *gate) wants(edge, call string, kinds ...string) bool {
	return g.nth > 0 && !g.dead.Load() && g.at.edge == edge && g.at.call == call &&
		(g.at.kind == "" || slices.Contains(kinds, g.at.kind))
}

// pass notes a point. It fails if the service is dead, be it from now on.
func (g *gate) pass(edge, call string, kinds ...string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead.Load() {
		return errCut
	}
	if len(kinds) == 0 {
		kinds = []string{""}
	}
	for _, k := range kinds {
		g.passed[crossing{edge, call, k}]++
	}
	if !g.wants(edge, call, kinds...) {
		return nil
	}
	if g.times++; g.times != g.nth {
		return nil
	}
	g.dead.Store(true)
	g.die()
	close(g.killed)
	return errCut
}

// around does something between two points.
func (g *gate) around(call string, do func() error, kinds ...string) error {
	if err := g.pass("before", call, kinds...); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return g.pass("after", call, kinds...)
}

// code is a point in the code of people. It holds up nobody but a service that dies there.
func (g *gate) code(edge, call string) error {
	if g.dead.Load() {
		return nil // this is another process
	}
	return g.pass(edge, call)
}

// ---- The broker.

// world is what both services need of the broker.
type world interface {
	orchestrator.Broker
	worker.Broker
}

// gatedBroker is the broker of a service that may die.
type gatedBroker struct {
	world
	g    *gate
	line *line // may be nil: then what was written last is lost with the process
}

// verbOf is what kind of message something is: the first word of its subject.
func verbOf(subject string) string {
	words := strings.Split(subject, ".")
	if len(words) < 2 {
		return subject
	}
	return words[1]
}

func kindsOfWires(messages []events.Wire) (kinds []string) {
	for _, m := range messages {
		k := verbOf(m.Subject)
		if m.Purge {
			k = "withdrawal of " + k
		}
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func (b gatedBroker) Publish(ctx context.Context, messages ...events.Wire) error {
	kinds := kindsOfWires(messages)
	if err := b.g.pass("before", "publish", kinds...); err != nil {
		return err
	}
	if n := len(messages); n > 1 {
		if b.g.wants("half", "publish", kinds...) {
			if err := b.world.Publish(ctx, messages[:n/2]...); err != nil {
				return err
			}
			messages = messages[n/2:]
		}
		if err := b.g.pass("half", "publish", kinds...); err != nil {
			return err
		}
	}
	if err := b.world.Publish(ctx, messages...); err != nil {
		return err
	}
	return b.g.pass("after", "publish", kinds...)
}

func (b gatedBroker) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	if err := b.g.pass("before", "receive"); err != nil {
		return err
	}
	return b.world.Receive(ctx, partition, func(d broker.Delivery) {
		d.Hold = gatedHold{d.Hold, b, verbOf(d.Subject)}
		if b.g.pass("after", "receive", verbOf(d.Subject)) == nil {
			take(d)
		}
	})
}

func (b gatedBroker) StoreDeadLetter(ctx context.Context, d broker.Delivery, why broker.Cause) error {
	return b.g.around("store a dead letter", func() error { return b.world.StoreDeadLetter(ctx, d, why) })
}

func (b gatedBroker) Announce(words []string, h events.Header, body []byte) error {
	return b.g.around("announce", func() error { return b.world.Announce(words, h, body) })
}

func (b gatedBroker) Join(ctx context.Context, m broker.Member) (membership broker.Membership, err error) {
	err = b.g.around("join", func() error {
		membership, err = b.world.Join(ctx, m)
		membership = gatedMembership{membership, b}
		return err
	})
	return membership, err
}

type gatedMembership struct {
	broker.Membership
	b gatedBroker
}

// Leave passes on when it has failed, too: on a busy machine it may take longer than a service
// waits for it, and nothing follows from that.
func (m gatedMembership) Leave(ctx context.Context) (err error) {
	return errors.Join(m.b.g.around("leave", func() error {
		err = m.Membership.Leave(ctx)
		return nil
	}), err)
}

func (b gatedBroker) Handover(ctx context.Context, to string, d broker.Delivery) error {
	return b.g.around("hand over", func() error { return b.world.Handover(ctx, to, d) })
}

func (b gatedBroker) ReceiveHandovers(name string, take func(broker.Delivery) error) (func(), error) {
	return b.world.ReceiveHandovers(name, func(d broker.Delivery) error {
		d.Hold = gatedHold{d.Hold, b, verbOf(d.Subject)}
		if err := b.g.pass("before", "take over"); err != nil {
			return err
		}
		return take(d)
	})
}

func (b gatedBroker) Claim(ctx context.Context, session, who string) (owner string, err error) {
	err = b.g.around("claim", func() error {
		owner, err = b.world.Claim(ctx, session, who)
		return err
	})
	return owner, err
}

func (b gatedBroker) Release(ctx context.Context, session, who string) error {
	return b.g.around("release", func() error { return b.world.Release(ctx, session, who) })
}

func (b gatedBroker) SetNote(ctx context.Context, key string, value []byte) error {
	err := b.g.around("note", func() error { return b.world.SetNote(ctx, key, value) })
	b.g.once.Do(func() { close(b.g.noted) })
	return err
}

func (b gatedBroker) SetMark(ctx context.Context, name string) error {
	return b.g.around("mark", func() error { return b.world.SetMark(ctx, name) })
}

func (b gatedBroker) OpenQueue(ctx context.Context, q broker.Queue) (broker.WorkQueue, error) {
	inner, err := b.world.OpenQueue(ctx, q)
	return gatedQueue{inner, b}, err
}

type gatedQueue struct {
	broker.WorkQueue
	b gatedBroker
}

func (q gatedQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	if err := q.b.g.pass("before", "take work"); err != nil {
		return 0, err
	}
	return q.WorkQueue.Take(ctx, n, func(d broker.Delivery) {
		d.Hold = gatedHold{d.Hold, q.b, verbOf(d.Subject)}
		if q.b.g.pass("after", "take work") == nil {
			take(d)
		}
	})
}

func (q gatedQueue) Offer(name string, take func(broker.Delivery) bool) (func(), error) {
	return q.WorkQueue.Offer(name, func(d broker.Delivery) bool {
		d.Hold = gatedHold{d.Hold, q.b, verbOf(d.Subject)}
		return q.b.g.pass("after", "take work") == nil && take(d)
	})
}

func (b gatedBroker) Withdrawals(tags []string, told func(string)) (func(), error) {
	return b.world.Withdrawals(tags, func(subject string) {
		_ = b.g.around("hear of a withdrawal", func() error {
			told(subject)
			return nil
		})
	})
}

// gatedHold settles a message if the service is alive.
type gatedHold struct {
	broker.Hold
	b    gatedBroker
	kind string
}

// settle does something and, if the service is to die behind it, waits until it is on its way to
// the broker.
func (h gatedHold) settle(call string, do func()) {
	if h.b.g.pass("before", call, h.kind) != nil {
		return
	}
	if h.b.line != nil && h.b.g.wants("after", call, h.kind) {
		written := h.b.line.expect(h.AckSubject())
		do()
		select {
		case <-written:
		case <-h.b.g.killed: // with another one, before this one was written
		}
	} else {
		do()
	}
	_ = h.b.g.pass("after", call, h.kind)
}

func (h gatedHold) Ack() { h.settle("acknowledge", h.Hold.Ack) }
func (h gatedHold) Nak(after time.Duration) {
	h.settle("give back", func() { h.Hold.Nak(after) })
}

func (h gatedHold) InProgress() {
	if !h.b.g.dead.Load() {
		h.Hold.InProgress()
	}
}

// ---- The connection to the broker.

// line is the way of a service to the broker. It is cut when the service dies, and knows what has
// gone through.
type line struct {
	address string
	g       *gate

	mu       sync.Mutex
	conns    []net.Conn
	expected map[string]chan struct{}
}

func newLine(address string, g *gate) *line {
	return &line{address: address, g: g, expected: make(map[string]chan struct{})}
}

// InProcessConn implements nats.InProcessConnProvider.
func (l *line) InProcessConn() (net.Conn, error) {
	if l.g.dead.Load() {
		return nil, errCut
	}
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return &wire{Conn: c, l: l}, nil
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// expect gives a signal when something with a word in it is written.
func (l *line) expect(word string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{})
	l.expected[word] = c
	return c
}

func (l *line) written(p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for word, c := range l.expected {
		if bytes.Contains(p, []byte(word)) {
			close(c)
			delete(l.expected, word)
		}
	}
}

// wire is one connection. What the adapter of the broker does by itself is seen here: that a timer,
// which the broker hands out a little early, goes back for the rest of its time.
type wire struct {
	net.Conn
	l *line
}

var givesBack = []byte(`-NAK {"delay": `)

func (w *wire) Write(p []byte) (int, error) {
	if at := goesBack(p); at >= 0 {
		begin := max(bytes.LastIndex(p[:at], []byte("PUB ")), 0)
		if w.l.g.wants("before", "delay") && begin > 0 {
			if _, err := w.Conn.Write(p[:begin]); err != nil {
				return 0, err
			}
		}
		if err := w.l.g.pass("before", "delay"); err != nil {
			return 0, err
		}
		defer func() { _ = w.l.g.pass("after", "delay") }()
	}
	n, err := w.Conn.Write(p)
	w.l.written(p)
	return n, err
}

// goesBack finds where something is given back for longer than a moment; -1 if nothing is.
func goesBack(p []byte) int {
	at := bytes.Index(p, givesBack)
	if at < 0 {
		return -1
	}
	number, _, _ := bytes.Cut(p[at+len(givesBack):], []byte("}"))
	if n, err := strconv.ParseInt(string(number), 10, 64); err != nil || time.Duration(n) < time.Millisecond {
		return -1
	}
	return at
}

// ---- The store.

// gatedStore is the store of a service that may die.
type gatedStore struct {
	history.Store
	g *gate
}

func (s gatedStore) Load(ctx context.Context, ids []string,
	admit func(string, round.Row) bool) (known []round.Known, err error) {
	err = s.g.around("load", func() error {
		known, err = s.Store.Load(ctx, ids, admit)
		return err
	})
	return known, err
}

// commitKinds says what is special about a batch.
func commitKinds(b history.Batch) []string {
	kinds := []string{"round"}
	for _, d := range b.Turns {
		switch {
		case len(d.Turn.Executions) > 1:
			kinds = append(kinds, "continue-as-new")
		case d.Turn.Row.Status.Ended():
			kinds = append(kinds, "end")
		}
	}
	return kinds
}

func (s gatedStore) Commit(ctx context.Context, b history.Batch) (r history.Result, err error) {
	kinds := commitKinds(b)
	if err := s.g.pass("before", "commit", kinds...); err != nil {
		return r, err
	}
	if r, err = s.Store.Commit(context.WithValue(ctx, committingKey{}, true), b); err != nil {
		return r, err
	}
	return r, s.g.pass("after", "commit", kinds...)
}

func (s gatedStore) TakePromises(ctx context.Context, take history.Take) ([]history.Promise, error) {
	if err := s.g.pass("before", "take promises"); err != nil {
		return nil, err
	}
	taken, err := s.Store.TakePromises(ctx, take)
	if err == nil && len(taken) > 0 {
		err = s.g.pass("after", "take promises")
	}
	return taken, err
}

func (s gatedStore) RemovePromises(ctx context.Context, keys []history.PromiseKey) error {
	return s.g.around("remove promises", func() error { return s.Store.RemovePromises(ctx, keys) })
}

func (s gatedStore) TakeOverdue(ctx context.Context, take history.Take) ([]history.Overdue, error) {
	if err := s.g.pass("before", "take the overdue"); err != nil {
		return nil, err
	}
	taken, err := s.Store.TakeOverdue(ctx, take)
	if err == nil && len(taken) > 0 {
		err = s.g.pass("after", "take the overdue")
	}
	return taken, err
}

func (s gatedStore) Tidy(ctx context.Context) (bool, error) {
	if s.g.dead.Load() {
		return false, errCut
	}
	return s.Store.Tidy(ctx)
}

// committingKey marks the context of a commit, so that the connection to the database knows of it.
type committingKey struct{}

// tap is a connection to PostgreSQL on which a service can die while the server executes a commit:
// before the server gets it, or when its answer has come and nobody has read it.
type tap struct {
	net.Conn
	g          *gate
	committing atomic.Bool
	unread     atomic.Bool
}

func (t *tap) Write(p []byte) (int, error) {
	if t.committing.Load() && (p[0] == 'B' || p[0] == 'Q') { // it executes something, and does not only prepare it
		if err := t.g.pass("during", "commit", "unsent"); err != nil {
			return 0, err
		}
		t.unread.Store(true)
	}
	if t.g.dead.Load() {
		return 0, errCut
	}
	return t.Conn.Write(p)
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if err == nil && t.unread.Swap(false) {
		err = t.g.pass("during", "commit", "unanswered")
	}
	if err == nil && t.g.dead.Load() {
		err = errCut
	}
	return n, err
}

// tapped has every connection of a store be a tap.
func tapped(g *gate) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &tap{Conn: conn, g: g}, nil
		}
		c.ConnConfig.Tracer = tracer{}
	}
}

// tracer tells taps what is a commit.
type tracer struct{}

func (tracer) mark(ctx context.Context, c *pgx.Conn, is bool) context.Context {
	if t, ok := c.PgConn().Conn().(*tap); ok {
		t.committing.Store(is && ctx.Value(committingKey{}) != nil)
	}
	return ctx
}

// TraceQueryStart and the others implement pgx.QueryTracer and pgx.BatchTracer.
func (x tracer) TraceQueryStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return x.mark(ctx, c, true)
}
func (x tracer) TraceQueryEnd(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryEndData) {
	x.mark(ctx, c, false)
}
func (x tracer) TraceBatchStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return x.mark(ctx, c, true)
}
func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (x tracer) TraceBatchEnd(ctx context.Context, c *pgx.Conn, _ pgx.TraceBatchEndData) {
	x.mark(ctx, c, false)
}
