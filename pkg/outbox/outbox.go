// Package outbox publishes the messages that must follow from a commit.
//
//	commit ──► outbox entries in the store ──► Publisher ──► broker
//	                    │                          │
//	                    │                          └─ published: removed, mostly with the next commit
//	                    └─ left by a process that died: Sweep publishes it
//
//	history ──► outstanding messages ──► Heal ──► broker
//
// An outbox entry is stored in the transaction of its turn. The [Publisher] publishes entries in
// the order of the commits, and removes each when the broker has stored its messages. The [Sweeper]
// of another process publishes the entries of a process that died.
//
// The broker may lose stored messages: a task, a timer, or everything at once. History knows
// what each running instance waits for, so a [Healer] asks the broker for what it still has, and
// publishes the rest. Publishing twice is harmless: history takes each answer once.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// Broker is the part of the bus that the outbox needs.
type Broker interface {
	broker.Publisher
	broker.DeadLetters
}

// Watcher gets each published message. Its methods may be called concurrently, and must not block.
type Watcher interface {
	// Published tells that messages of a commit were given to the broker in one go, those for later
	// apart from the others.
	Published(later bool, messages int, took time.Duration, err error)
	// Swept and Healed tell how many messages were published again.
	Swept(messages int)
	Healed(messages int)
	// DeadLettered records that a message was dead-lettered.
	DeadLettered(prefix, subject, reason string)
}

// no watcher.
type noWatcher struct{}

func (noWatcher) Published(bool, int, time.Duration, error) {}
func (noWatcher) Swept(int)                                 {}
func (noWatcher) Healed(int)                                {}
func (noWatcher) DeadLettered(string, string, string)       {}

// orNone is a watcher in any case.
func orNone(w Watcher) Watcher {
	if w == nil {
		return noWatcher{}
	}
	return w
}

// Committed is the messages of one commit.
type Committed struct {
	Messages []events.Wire
	Keys     []history.OutboxKey
}

// Publisher publishes the messages of commits. It is safe for concurrent use.
//
// Each message takes one of four lanes, by its class (see [class]): messages without a delay in the
// order of the commits, tasks for direct delivery, distant timers, and the other delayed messages
// together with the withdrawals. A withdrawal is published after the message that it withdraws. The
// outbox entry of a commit is removed when none of its messages is open any more.
type Publisher struct {
	broker  Broker
	prefix  string
	log     *slog.Logger
	watcher Watcher

	classes         classifier
	now, later, far *lane
	work            *lane // nil: work is published with everything else
	published       removable
	refusals        rate.Sometimes // limits their logs
}

const (
	// laterAtOnce bounds how many of the messages for later are published in one go.
	laterAtOnce = 500
	// farFor is how long a distant timer waits for its withdrawal.
	farFor = 250 * time.Millisecond
)

// NewPublisher makes a publisher. The prefix is that of the subjects.
func NewPublisher(b Broker, store history.Outbox, prefix string, log *slog.Logger) *Publisher {
	p := &Publisher{broker: b, prefix: prefix, log: log, watcher: noWatcher{}, classes: newClassifier(prefix),
		published: removable{store: store, log: log}, refusals: rate.Sometimes{Interval: RefusedEvery}}
	p.now = newLane(p.classes.tasks)
	p.far = newLane(p.classes.timers)
	p.far.most, p.far.rest = laterAtOnce, farFor
	p.later = newLane("")
	p.later.most = laterAtOnce
	return p
}

// DeliverTasksDirectly lets work be passed to workers. It must be called before anything is
// published.
func (p *Publisher) DeliverTasksDirectly() {
	p.classes.direct = true
	p.now = newLane("")
	p.work = newLane(p.classes.tasks)
	p.work.each = true
}

// lanes are all of them.
func (p *Publisher) lanes() []*lane {
	if p.work == nil {
		return []*lane{p.now, p.later, p.far}
	}
	return []*lane{p.now, p.work, p.later, p.far}
}

// Watch sets the watcher of published messages. It must be called before Publish.
func (p *Publisher) Watch(w Watcher) { p.watcher = orNone(w) }

// Publish takes the messages of a commit, to publish them after all earlier ones of their kind. It
// blocks while too many wait, and gives up when the context ends: then a sweep publishes them.
func (p *Publisher) Publish(ctx context.Context, x Committed) error {
	if len(x.Messages) == 0 {
		p.published.add(x.Keys)
		return nil
	}
	e := newEntry(x.Keys, len(x.Messages))
	var of [classes][]events.Wire
	began := time.Now()
	for _, m := range x.Messages {
		c := p.classes.classify(m, began)
		if c == task {
			m.Direct = len(m.Header[events.HeaderSession]) == 0 // a worker with the session may have no free slot
		}
		of[c] = append(of[c], m)
	}
	if err := p.now.put(ctx, segment{of[prompt], e}); err != nil {
		return err
	}
	carrier := p.now // of work
	if p.work != nil {
		carrier = p.work
		if err := carrier.put(ctx, segment{of[task], e}); err != nil {
			return err
		}
	}
	if err := p.far.put(ctx, segment{of[distant], e}); err != nil {
		return err
	}
	free := carrier.wait(p.takeBack(of[withdrawal], e), e)
	return p.later.put(ctx, segment{append(of[delayed], free...), e})
}

// takeBack cancels out withdrawals of distant timers with timers that are not published yet. It
// returns the other withdrawals.
func (p *Publisher) takeBack(withdrawn []events.Wire, e *entry) []events.Wire {
	others, settled := p.far.takeBack(withdrawn, e)
	for _, x := range settled {
		p.published.add(x.keys)
	}
	return others
}

// send publishes what a lane gives.
func (p *Publisher) send(ctx context.Context, l *lane, segments []segment, messages []events.Wire) {
	began := time.Now()
	err := Send(ctx, p.broker, p.prefix, messages, p.log, p.watcher)
	took, delayed, sent := time.Since(began), l == p.later || l == p.far, len(messages)
	if waits := new(broker.Refused); errors.As(err, &waits) {
		p.refusals.Do(func() { LogRefused(p.log, waits) })
		sent -= len(waits.Messages)
		p.watcher.Published(delayed, len(waits.Messages), took, err)
		p.watcher.Published(delayed, sent, took, nil)
	} else {
		p.watcher.Published(delayed, sent, took, err)
	}
	if err != nil && sent == len(messages) {
		p.log.Warn("messages of a commit could not be published; the next sweep publishes them",
			"messages", len(messages), "error", err)
	}
	for _, x := range segments {
		if x.entry.settle(len(x.messages), unsent(err, x.messages)) {
			p.published.add(x.entry.keys)
		}
	}
	p.later.give(l.sent(messages))
}

// Kept gives the outbox entries that were published since the last call, to be removed with the
// next commit. If that fails, they must be given to [Publisher.Keep]: a sweep would publish them
// again.
func (p *Publisher) Kept() []history.OutboxKey { return p.published.take() }

// Keep takes back published outbox entries that could not be removed, to be removed later.
func (p *Publisher) Keep(keys []history.OutboxKey) { p.published.putBack(keys) }

// Waiting tells how many messages wait to be published, and for how long the first one.
func (p *Publisher) Waiting() (messages int, since time.Duration) {
	for _, l := range p.lanes() {
		n, age := l.length()
		messages, since = messages+n, max(since, age)
	}
	return messages, since
}

// Run publishes until the context ends, and then the rest of the queue, until the second one ends.
func (p *Publisher) Run(ctx, drain context.Context) {
	var lanes sync.WaitGroup
	for _, l := range p.lanes() {
		lanes.Go(func() { l.run(ctx, drain, p.send) })
	}
	tick := time.NewTicker(keptFor)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			p.published.removeOld(ctx)
		case <-ctx.Done():
		}
	}
	lanes.Wait()
	p.later.publish(drain, p.send) // messages that have waited for the last of the tasks
	p.published.removeAll(drain)
}
