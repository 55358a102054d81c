package brokersim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Bus is the connection of one process to a [Broker].
type Bus struct {
	b    *Broker
	ctx  context.Context
	end  context.CancelFunc
	path Path

	name string // under which results come to it without being stored

	mu          sync.Mutex
	reconnected map[*func()]bool
	receiving   map[int]*receiver    // which lanes take results that are not stored, by partition
	avoid       map[string]time.Time // where nothing is sent directly, and until when
}

// Path is the way between a process and the outside. It decides what becomes of what is said there.
type Path interface {
	// Go lets something happen: it blocks until it is time for it, and tells whether it happens,
	// and whether the answer comes back. After an error nothing happens.
	Go(ctx context.Context, what string) (answered bool, err error)
	// Say is Go for what has no answer. It does not block: what follows happens at once, or later
	// if the process stands still, or never.
	Say(what string, happens func())
	// Send is Say for a message that takes its time, and may be overtaken by others.
	Send(what string, happens func())
	// Hear lets something reach the process: at once, or later if it stands still, or never.
	Hear(what string, happens func())
	// Stand blocks while the process stands still, and tells whether it did. What goes on
	// afterwards takes its turn by its name. Quiet tells whether the process stands still.
	Stand(ctx context.Context, what string) bool
	Quiet() bool
	// Moment is how long something takes that neither fails nor is lost.
	Moment(what string) time.Duration
	// Note says what has happened, for who counts it.
	Note(kind, what string)
}

// Connect connects to a broker. Without a path, everything happens at once.
func Connect(b *Broker, p Path) *Bus {
	if p == nil {
		p = straight{}
	}
	c := &Bus{b: b, path: p, reconnected: make(map[*func()]bool), receiving: make(map[int]*receiver),
		avoid: make(map[string]time.Time)}
	c.ctx, c.end = context.WithCancel(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connections++
	c.name = nameOf(b.connections)
	b.named[c.name] = c
	return c
}

type straight struct{}

func (straight) Go(ctx context.Context, _ string) (bool, error) { return true, context.Cause(ctx) }
func (straight) Say(_ string, happens func())                   { happens() }
func (straight) Send(_ string, happens func())                  { happens() }
func (straight) Hear(_ string, happens func())                  { happens() }
func (straight) Stand(context.Context, string) bool             { return false }
func (straight) Quiet() bool                                    { return false }
func (straight) Moment(string) time.Duration                    { return 0 }
func (straight) Note(string, string)                            {}

var (
	errClosed = errors.New("the connection is closed")
	errLost   = errors.New("the answer was lost")
)

// do lets something happen at the broker.
func (c *Bus) do(ctx context.Context, what string, happens func() error) error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	answered, err := c.path.Go(ctx, what)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if c.ctx.Err() != nil {
		return errClosed
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	err = happens()
	if !answered {
		return fmt.Errorf("%s: %w", what, errLost)
	}
	return err
}

// tells lets something happen that has no answer.
func (c *Bus) tells(what string, happens func()) {
	if c.ctx.Err() == nil {
		c.path.Say(what, happens)
	}
}

// Close implements brokertest.Bus. It is also what is left of a process that was killed: nobody is
// told.
func (c *Bus) Close() error {
	c.end()
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	delete(c.b.named, c.name)
	c.b.change()
	return nil
}

// Prefix, InboxWait and WorkWait tell how the broker is set up.
func (c *Bus) Prefix() string           { return c.b.prefix }
func (c *Bus) InboxWait() time.Duration { return c.b.inboxWait } // see Prefix
func (c *Bus) WorkWait() time.Duration  { return c.b.workWait }  // see Prefix

// Connected tells whether there is a connection.
func (c *Bus) Connected() error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// Reconnected implements broker.Connection.
func (c *Bus) Reconnected(told func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconnected[&told] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reconnected, &told)
	}
}

// Back tells those who want to know that the connection was away and is there again.
func (c *Bus) Back() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for told := range c.reconnected {
		go (*told)()
	}
}

// ---- Publishing.

// again is how long to wait before trying again.
const again = 100 * time.Millisecond

// insist does something until it happens and is answered, or the context ends.
func (c *Bus) insist(ctx context.Context, what string, happens func() error) error {
	for {
		err := c.do(ctx, what, happens)
		if err == nil || ctx.Err() != nil || c.ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// Publish implements broker.Publisher.
func (c *Bus) Publish(ctx context.Context, messages ...events.Wire) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var refused broker.Refused
	var flight flight
	for _, w := range messages {
		if err := c.b.canTake(w); err != nil {
			refused.Messages, refused.Reasons = append(refused.Messages, w), append(refused.Reasons, err)
			continue
		}
		if to := c.way(w); to != "" {
			flight.launch(func() error { return c.direct(ctx, w, to) })
			continue
		}
		what := "publish " + w.Subject
		if w.Purge {
			if err := flight.land(); err != nil { // it may be of what was published before it
				return err
			}
			what = "withdraw " + w.Subject
		}
		if err := c.insist(ctx, what, func() error { c.take(w); return nil }); err != nil {
			return errors.Join(err, flight.land())
		}
	}
	if err := flight.land(); err != nil {
		return err
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

// flight is what is on its way to others without being stored.
type flight struct {
	all sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (f *flight) launch(send func() error) {
	f.all.Go(func() {
		err := send()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = errors.Join(f.err, err)
	})
}

// land waits until all is settled or stored.
func (f *flight) land() error {
	f.all.Wait()
	return f.err
}

// take stores or withdraws.
func (c *Bus) take(w events.Wire) {
	if !w.Purge {
		if c.b.isWork(w.Subject) {
			w.Header = c.withWayBack(w.Header)
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
			strings.Split(strings.TrimPrefix(w.Subject, c.b.prefix+".work."), ".")...)
		c.b.announce(words, nil, nil)
	}
	c.b.change()
}

// maxPayload and maxHeader are what a message may have.
const maxPayload, maxHeader = 1 << 20, 64 << 10

var errNoStream = errors.New("no stream takes this subject")

func (b *Broker) canTake(w events.Wire) error {
	rest, ok := strings.CutPrefix(w.Subject, b.prefix+".")
	words := strings.Split(rest, ".")
	want := 3
	if words[0] == "work" {
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

// Has implements broker.Publisher.
func (c *Bus) Has(ctx context.Context, w events.Wire) (has bool, err error) {
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

// ---- The inbox.

// Partitions implements broker.Inbox.
func (c *Bus) Partitions(ctx context.Context) (p broker.Partitions, err error) {
	err = c.do(ctx, "partitions", func() error {
		p.Count = c.b.partitions
		for n, list := range c.b.inbox {
			if n >= p.Count && len(list) > 0 {
				p.Draining = append(p.Draining, n)
			}
		}
		slices.Sort(p.Draining)
		return nil
	})
	return p, err
}

// SetPartitions changes how many partitions there are.
func (c *Bus) SetPartitions(_ context.Context, n int) error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.partitions = n
	c.b.change()
	return nil
}

// Receive implements broker.Inbox.
func (c *Bus) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	c.asking(func() { c.b.receivers[partition]++ })
	defer c.asking(func() { c.b.receivers[partition]-- })
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- c.receive(both, &receiver{c: c}, partition, "receive "+strconv.Itoa(partition), take) }()
	go func() {
		r := &receiver{c: c, ahead: true, came: make(chan struct{}, 1)}
		defer c.receives(partition, r)()
		ended <- c.receive(both, r, partition, "receive ahead "+strconv.Itoa(partition), take)
	}()
	err := <-ended
	cancel()
	return errors.Join(err, <-ended)
}

// receive hands out one lane of a partition.
func (c *Bus) receive(ctx context.Context, r *receiver, partition int, what string, take func(broker.Delivery)) error {
	for ctx.Err() == nil {
		if d, ok := r.pop(); ok {
			take(d)
			continue
		}
		all, err := c.await(ctx, r, what, prefetch, func(now time.Time) (*message, time.Time) {
			return c.b.nextOf(partition, r, now)
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, d := range all {
			take(d)
		}
	}
	return nil
}

// prefetch is how many messages are handed to a receiver that stands still.
const prefetch = 64

func (c *Bus) asking(change func()) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	change()
}

// await waits for the next message and takes it. A delivery whose answer was lost is handed out and
// not here: it comes again. A process that stands still has asked before it did: up to most
// messages are handed to it meanwhile.
func (c *Bus) await(ctx context.Context, r *receiver, what string, most int,
	next func(now time.Time) (*message, time.Time)) (all []broker.Delivery, err error) {
	for {
		if c.path.Quiet() {
			return c.heap(ctx, r, what, most, next)
		}
		c.b.mu.Lock()
		now := c.b.now()
		soon := c.b.due(now)
		m, at := next(now)
		soon = earliest(soon, at)
		changed := c.b.changed
		c.b.mu.Unlock()
		if m != nil {
			break
		}
		if err := c.sleep(ctx, soon, changed, r.came); err != nil {
			return nil, err
		}
		if r.waits() {
			return nil, nil
		}
	}
	var d broker.Delivery
	var taken *message
	err = c.do(ctx, what, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := c.b.now()
		if taken, _ = next(now); taken != nil {
			d = c.b.handOut(taken, r, now)
		}
		return nil
	})
	if errors.Is(err, errLost) {
		c.asking(func() {
			if taken != nil && taken.holder == r {
				taken.holder = nil // newer messages of its instance wait until it comes again
			}
		})
		return nil, nil
	}
	if err != nil || d.Hold == nil {
		return nil, err
	}
	return []broker.Delivery{d}, nil
}

// heap hands messages to a process that stands still. It finds them when it goes on.
func (c *Bus) heap(ctx context.Context, r *receiver, what string, most int,
	next func(now time.Time) (*message, time.Time)) (all []broker.Delivery, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.path.Stand(ctx, what)
	}()
	for {
		<-time.After(c.path.Moment("hand out to who stands still: " + what))
		if !c.path.Quiet() { // not over, which may close at the moment when something changes
			<-over
			return all, nil
		}
		c.b.mu.Lock()
		now := c.b.now()
		soon := c.b.due(now)
		for len(all) < most {
			m, at := next(now)
			if m == nil {
				soon = earliest(soon, at)
				break
			}
			all = append(all, c.b.handOut(m, r, now))
			c.path.Note("handed to a process that stands still", m.wire.Subject)
		}
		changed := c.b.changed
		c.b.mu.Unlock()
		if len(all) == most {
			<-over
			return all, nil
		}
		if err := c.sleep(ctx, soon, changed, over); err != nil {
			return all, err
		}
	}
}

// sleep waits until something changes, or comes, or it is time.
func (c *Bus) sleep(ctx context.Context, until time.Time, changed, came <-chan struct{}) error {
	var timer <-chan time.Time
	if !until.IsZero() {
		c.b.mu.Lock()
		t := time.NewTimer(until.Sub(c.b.now()))
		c.b.mu.Unlock()
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-came:
	case <-timer:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return errClosed
	}
	return nil
}

// Backlog implements broker.Inbox.
func (c *Bus) Backlog(ctx context.Context, partition int) (l broker.Backlog, err error) {
	err = c.do(ctx, "backlog", func() error {
		l = backlogOf(c.b.inbox[partition], c.b.receivers[partition], func(*message) bool { return true })
		return nil
	})
	return l, err
}

func backlogOf(list []*message, receivers int, of func(*message) bool) broker.Backlog {
	l := broker.Backlog{Receivers: receivers}
	for _, m := range list {
		switch {
		case !of(m):
		case m.deliveries > 0:
			l.Held++
		default:
			l.Waiting++
		}
	}
	return l
}

// Stored implements broker.WorkBroker.
func (c *Bus) Stored(ctx context.Context, d broker.Delivery) (is bool, err error) {
	err = c.do(ctx, "stored "+d.Subject, func() error {
		is = c.b.find(d.Sequence) != nil || d.Passed && c.b.hasDirect(d)
		return nil
	})
	return is, err
}

// ---- Work.

// Queues implements broker.WorkBroker.
func (c *Bus) Queues(ctx context.Context) (queues []broker.Queue, err error) {
	err = c.do(ctx, "queues", func() error {
		for q := range c.b.queues {
			queues = append(queues, q)
		}
		slices.SortFunc(queues, func(a, b broker.Queue) int {
			return strings.Compare(a.Tag+"\x00"+a.Activity, b.Tag+"\x00"+b.Activity)
		})
		return nil
	})
	return queues, err
}

// OpenQueue implements broker.WorkBroker.
func (c *Bus) OpenQueue(ctx context.Context, q broker.Queue) (broker.WorkQueue, error) {
	err := c.do(ctx, "open queue "+q.Activity, func() error { c.b.noteQueue(q); return nil })
	return &workQueue{c, q}, err
}

type workQueue struct {
	c *Bus
	q broker.Queue
}

// takeFor is how long who asks for work waits.
const takeFor = 10 * time.Second

// Take implements broker.WorkQueue.
func (w *workQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (taken int, err error) {
	c := w.c
	ctx, cancel := context.WithTimeout(ctx, takeFor)
	defer cancel()
	c.asking(func() { c.b.queues[w.q]++ })
	defer c.asking(func() { c.b.queues[w.q]-- })
	for taken < n && ctx.Err() == nil {
		all, err := c.await(ctx, &receiver{c: c}, "take "+w.q.Activity, n-taken,
			func(now time.Time) (*message, time.Time) {
				return c.b.nextWork(w.q, now)
			})
		for _, d := range all {
			if ctx.Err() != nil { // it came too late
				d.Hold.Nak(0)
				continue
			}
			taken++
			take(d)
			runtime.Gosched() // others who ask have a turn, too
		}
		switch {
		case ctx.Err() != nil:
			return taken, nil
		case err != nil:
			return taken, err
		}
	}
	return taken, nil
}

// Withdrawals implements broker.WorkBroker.
func (c *Bus) Withdrawals(tags []string, told func(subject string)) (stop func(), err error) {
	words := func(tag string) string {
		switch tag {
		case "":
			return "_"
		case "_":
			return "%5F"
		}
		return events.EncodeToken(tag)
	}
	return c.listen(func(heard []string) bool {
		return heard[0] == "withdrawn" && (tags == nil || slices.ContainsFunc(tags, func(t string) bool {
			return words(t) == heard[1]
		}))
	}, func(heard []string, _ events.Header, _ []byte) {
		told(c.b.prefix + ".work." + strings.Join(heard[1:], "."))
	}), nil
}

// WorkBacklog implements broker.WorkBroker.
func (c *Bus) WorkBacklog(ctx context.Context, q broker.Queue) (l broker.Backlog, err error) {
	err = c.do(ctx, "backlog of "+q.Activity, func() error {
		l = backlogOf(c.b.work, c.b.queues[q], func(m *message) bool { return m.queue == q })
		return nil
	})
	return l, err
}
