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

// This file stops a service at one point. All side effects of a service go through the broker, the
// store, or user code; here each of these calls passes a gate before and after it. The gate notes
// the call. At the call that a test has chosen, the service dies: nothing that it does from then on
// has any effect.

// crossing is a point that a service passes.
type crossing struct {
	// edge is before, half, during or after the call.
	edge, call string
	// kind says more about the call, such as the kind of message that is published.
	kind string
}

func (c crossing) String() string { return strings.TrimSpace(c.edge + " " + c.call + " " + c.kind) }

// gate lets the calls of a service through, until the service dies there.
type gate struct {
	at     crossing // an empty kind matches any
	nth    int      // at which call it dies; 0: never
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

// code is a point in user code. It stops only a service that dies there.
func (g *gate) code(edge, call string) error {
	if g.dead.Load() {
		return nil // this is another process
	}
	return g.pass(edge, call)
}

// ---- The broker.

// world is the part of the broker that both services use.
type world interface {
	orchestrator.Broker
	worker.Broker
}

// gatedBroker is the broker of a service that may die.
type gatedBroker struct {
	world
	g    *gate
	line *line // may be nil: then the last bytes written are lost with the process
}

// verbOf is the kind of a message: the verb of its subject.
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

func (b gatedBroker) Notify(words []string, h events.Header, body []byte) error {
	return b.g.around("announce", func() error { return b.world.Notify(words, h, body) })
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

func (b gatedBroker) ReceiveHandovers(kind broker.HandoverKind, name string,
	take func(broker.Delivery) error) (func(), error) {
	return b.world.ReceiveHandovers(kind, name, func(d broker.Delivery) error {
		d.Hold = gatedHold{d.Hold, b, verbOf(d.Subject)}
		if err := b.g.pass("before", "take over"); err != nil {
			return err
		}
		return take(d)
	})
}

func (b gatedBroker) Acquire(ctx context.Context, session, who string) (owner string, err error) {
	err = b.g.around("acquire lease", func() error {
		owner, err = b.world.Acquire(ctx, session, who)
		return err
	})
	return owner, err
}

func (b gatedBroker) Release(ctx context.Context, session, who string) error {
	return b.g.around("release", func() error { return b.world.Release(ctx, session, who) })
}

func (b gatedBroker) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	group, _, _ := strings.Cut(key, "/")
	err := b.g.around("put", func() error { return b.world.Put(ctx, key, value, ttl) }, group)
	if group == "task" {
		b.g.once.Do(func() { close(b.g.noted) })
	}
	return err
}

func (b gatedBroker) Create(ctx context.Context, key string, value []byte) (ok bool, err error) {
	return b.putIf(key, value, func() (bool, error) { return b.world.Create(ctx, key, value) })
}

func (b gatedBroker) Replace(ctx context.Context, key string, read, value []byte) (ok bool, err error) {
	return b.putIf(key, value, func() (bool, error) { return b.world.Replace(ctx, key, read, value) })
}

// putIf puts the flag of a recovery. The other key that is put so, the system, passes no gate: what
// is stored is read again, see TestEachDeathIsSurvived of package identity.
func (b gatedBroker) putIf(key string, value []byte, put func() (bool, error)) (ok bool, err error) {
	if key != broker.KeyRecovered {
		return put()
	}
	kind := key
	if string(value) != "true" {
		kind = "lost"
	}
	err = b.g.around("put", func() error {
		ok, err = put()
		return err
	}, kind)
	return ok, err
}

func (b gatedBroker) OpenTaskQueue(ctx context.Context, q broker.TaskQueueName) (broker.TaskQueue, error) {
	inner, err := b.world.OpenTaskQueue(ctx, q)
	return gatedQueue{inner, b}, err
}

type gatedQueue struct {
	broker.TaskQueue
	b gatedBroker
}

func (q gatedQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	if err := q.b.g.pass("before", "take work"); err != nil {
		return 0, err
	}
	return q.TaskQueue.Take(ctx, n, func(d broker.Delivery) {
		d.Hold = gatedHold{d.Hold, q.b, verbOf(d.Subject)}
		if q.b.g.pass("after", "take work") == nil {
			take(d)
		}
	})
}

func (q gatedQueue) Offer(name string, take func(broker.Delivery) bool) (func(), error) {
	return q.TaskQueue.Offer(name, func(d broker.Delivery) bool {
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

// settle settles a message. If the service is to die behind the call, settle waits until the bytes
// are written to the broker.
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

// line is a service's connection to the broker. It is cut when the service dies, and knows which
// bytes were written.
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

// expect returns a channel that is closed when bytes with a word in them are written.
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

// wire is one connection. It sees the adapter's own messages: the adapter nacks a timer that the
// broker delivers a little early, with a delay until it is due, and forwards timers that are due.
type wire struct {
	net.Conn
	l *line
}

var givesBack = []byte(`-NAK {"delay": `)

func (w *wire) Write(p []byte) (int, error) {
	for _, x := range []struct {
		call  string
		begin int
	}{{"delay", goesBack(p)}, {"forward", bytes.Index(p, []byte("HPUB rondo.timer-due."))}} {
		if x.begin < 0 {
			continue
		}
		if w.l.g.wants("before", x.call) && x.begin > 0 {
			if _, err := w.Conn.Write(p[:x.begin]); err != nil {
				return 0, err
			}
		}
		if err := w.l.g.pass("before", x.call); err != nil {
			return 0, err
		}
		defer func() { _ = w.l.g.pass("after", x.call) }()
	}
	n, err := w.Conn.Write(p)
	w.l.written(p)
	return n, err
}

// goesBack finds where the publishing of a nack begins with a delay of at least a millisecond; -1
// if there is none.
func goesBack(p []byte) int {
	at := bytes.Index(p, givesBack)
	if at < 0 {
		return -1
	}
	number, _, _ := bytes.Cut(p[at+len(givesBack):], []byte("}"))
	if n, err := strconv.ParseInt(string(number), 10, 64); err != nil || time.Duration(n) < time.Millisecond {
		return -1
	}
	return max(bytes.LastIndex(p[:at], []byte("PUB ")), 0)
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

// commitKinds lists the kinds of a batch.
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

func (s gatedStore) LeaseOutbox(ctx context.Context, take history.Lease) ([]history.OutboxEntry, error) {
	if err := s.g.pass("before", "lease outbox"); err != nil {
		return nil, err
	}
	taken, err := s.Store.LeaseOutbox(ctx, take)
	if err == nil && len(taken) > 0 {
		err = s.g.pass("after", "lease outbox")
	}
	return taken, err
}

func (s gatedStore) RemoveOutbox(ctx context.Context, keys []history.OutboxKey) error {
	return s.g.around("remove outbox", func() error { return s.Store.RemoveOutbox(ctx, keys) })
}

func (s gatedStore) LeaseOverdue(ctx context.Context, take history.Lease) ([]history.Overdue, error) {
	if err := s.g.pass("before", "lease overdue"); err != nil {
		return nil, err
	}
	taken, err := s.Store.LeaseOverdue(ctx, take)
	if err == nil && len(taken) > 0 {
		err = s.g.pass("after", "lease overdue")
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
// before the server gets the commit, or when its answer has come and is unread.
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

// tracer marks commits for taps.
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
