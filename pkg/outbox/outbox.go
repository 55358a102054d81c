// Package outbox is what is promised: the messages that must follow from what was committed.
//
//	commit ──► promises in the store ──► Publisher ──► broker
//	                    │                    │
//	                    │                    └─ kept: removed with the next commit, or by itself when there is none
//	                    └─ not kept, because its process died: Sweep publishes it after a while
//
//	history ──► what is outstanding ──► Heal ──► broker
//
// A promise is stored in the transaction that makes it. The [Publisher] publishes promises in the
// order of the commits; when they are stored by the broker, they are kept, and their rows are
// removed. What a process that died has left behind is published by a [Sweeper] of any other.
//
// The broker may lose what it has taken: a work item, a timer, or everything at once. History knows
// what each running instance waits for, so a [Healer] asks the broker for what it still has, and
// publishes the rest. Publishing twice is harmless: history takes each answer once.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// Broker is what is needed of the bus.
type Broker interface {
	broker.Publisher
	broker.DeadLetters
}

// Watcher is told of what is published. Its methods may be called concurrently, and must not block.
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

// nobody watches.
type nobody struct{}

func (nobody) Published(bool, int, time.Duration, error) {}
func (nobody) Swept(int)                                 {}
func (nobody) Healed(int)                                {}
func (nobody) DeadLettered(string, string, string)       {}

// orNobody is a watcher in any case.
func orNobody(w Watcher) Watcher {
	if w == nil {
		return nobody{}
	}
	return w
}

// Promised is what one commit has promised.
type Promised struct {
	Messages []events.Wire
	Keys     []history.PromiseKey
}

// Publisher publishes what was promised. It is safe for concurrent use.
//
// What is wanted now goes one way, in the order of the commits. What is to be taken later, or not
// at all any more, goes another one, so that ten thousand timers of a day do not hold up the timer
// of a moment. Work that may be passed to workers goes a third one, where nothing waits for what
// was promised before: it is published when it is done, and until then its promise is not kept.
// Only the withdrawal of work that is not published yet waits for that: it would withdraw nothing.
// Timers that are far off go a fourth one, a quarter of a second later: many are withdrawn by then,
// because what they were to end has ended, and neither is published.
type Publisher struct {
	broker  Broker
	store   history.Outbox
	prefix  string
	log     *slog.Logger
	watcher Watcher

	now, later, far lane
	work            *lane // nil: work is published with everything else

	mu     sync.Mutex
	kept   []history.PromiseKey
	oldest time.Time // since when there is something in kept
}

// lane is one way from the commits to the broker.
type lane struct {
	p    *Publisher
	most int           // messages at once; 0: all that wait
	each bool          // what a commit has promised does not wait for what others have
	rest time.Duration // for how long something waits for others, or for its withdrawal
	verb events.Verb   // of what may be withdrawn before it is published

	sending sync.WaitGroup // of a lane with each

	mu      sync.Mutex
	queue   []part
	waiting int       // messages in the queue
	age     time.Time // since when the first of them waits
	// what may be withdrawn, in the queue or on its way to the broker, by subject; nil: nothing may
	unsent map[string]int
	behind []part // withdrawals of such work
	room   chan struct{}
	work   chan struct{}
}

// part is what of a commit goes one way.
type part struct {
	messages []events.Wire
	whole    *whole
}

// whole is a commit of which so many parts are not published.
type whole struct {
	keys   []history.PromiseKey
	parts  atomic.Int32
	failed atomic.Bool
}

const (
	// maxQueued bounds the messages that wait to be published on each way; who promises more has to
	// wait.
	maxQueued = 20_000
	// laterAtOnce bounds how many of the messages for later are published in one go.
	laterAtOnce = 500
	// laterFrom is from when on a message is for later. What is nearer waits with who receives it.
	laterFrom = time.Second
	// farFrom is from when on a timer is far off: with the usual waits it is in time even if this
	// process dies and a sweep publishes it. farFor is how long it waits here.
	farFrom = 30 * time.Second
	farFor  = 250 * time.Millisecond
	// keptFor is how long a kept promise waits for a commit that removes it.
	keptFor = 500 * time.Millisecond
	// maxRemoved bounds how many rows are removed at once.
	maxRemoved = 1000
)

// NewPublisher makes a publisher. The prefix is that of the subjects.
func NewPublisher(b Broker, store history.Outbox, prefix string, log *slog.Logger) *Publisher {
	p := &Publisher{broker: b, store: store, prefix: prefix, log: log, watcher: nobody{}}
	p.now = lane{p: p, verb: events.VerbWork, unsent: make(map[string]int), room: make(chan struct{}, 1),
		work: make(chan struct{}, 1)}
	p.far = lane{p: p, most: laterAtOnce, rest: farFor, verb: events.VerbTimer, unsent: make(map[string]int),
		room: make(chan struct{}, 1), work: make(chan struct{}, 1)}
	p.later = lane{p: p, most: laterAtOnce, room: make(chan struct{}, 1), work: make(chan struct{}, 1)}
	return p
}

// PassWork lets work be passed to workers. It must be called before anything is published.
func (p *Publisher) PassWork() {
	p.now.unsent = nil
	p.work = &lane{p: p, each: true, verb: events.VerbWork, unsent: make(map[string]int), room: make(chan struct{}, 1),
		work: make(chan struct{}, 1)}
}

// lanes are all of them.
func (p *Publisher) lanes() []*lane {
	if p.work == nil {
		return []*lane{&p.now, &p.later, &p.far}
	}
	return []*lane{&p.now, p.work, &p.later, &p.far}
}

// Watch has somebody told of what is published. It must be called before anything is.
func (p *Publisher) Watch(w Watcher) { p.watcher = orNobody(w) }

// Publish takes what a commit has promised, to publish it after everything of its kind that was
// promised before. It blocks while too much is waiting, and gives up when the context ends: then a
// sweep publishes it.
func (p *Publisher) Publish(ctx context.Context, x Promised) error {
	w := &whole{keys: x.Keys}
	w.parts.Store(3)
	if p.work != nil {
		w.parts.Store(4)
	}
	var now, withdrawn, later, far, work []events.Wire
	began := time.Now()
	from, farther := began.Add(laterFrom), began.Add(farFrom)
	for _, m := range x.Messages {
		switch {
		case m.Purge:
			withdrawn = append(withdrawn, m)
		case m.NotBefore.After(farther) && p.is(events.VerbTimer, m):
			far = append(far, m)
		case m.NotBefore.After(from):
			later = append(later, m)
		case p.work != nil && p.is(events.VerbWork, m):
			m.Pass = len(m.Header[events.HeaderSession]) == 0 // who has the session is not who has room
			work = append(work, m)
		default:
			now = append(now, m)
		}
	}
	if err := p.now.put(ctx, part{now, w}); err != nil {
		return err
	}
	carrier := &p.now // of work
	if p.work != nil {
		carrier = p.work
		if err := carrier.put(ctx, part{work, w}); err != nil {
			return err
		}
	}
	if len(far) > 0 {
		w.parts.Add(1)
		if err := p.far.put(ctx, part{far, w}); err != nil {
			return err
		}
	}
	behind, withdrawn := carrier.wait(p.far.takeBack(withdrawn, w), w)
	if !behind {
		p.done(part{nil, w}, nil)
	}
	return p.later.put(ctx, part{append(later, withdrawn...), w})
}

// wait keeps those withdrawals back that are of work which is not with the broker yet, and gives
// the others.
func (l *lane) wait(withdrawn []events.Wire, w *whole) (some bool, free []events.Wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var behind []events.Wire
	for _, m := range withdrawn {
		if l.unsent[m.Subject] > 0 {
			behind = append(behind, m)
		} else {
			free = append(free, m)
		}
	}
	if len(behind) > 0 {
		l.behind = append(l.behind, part{behind, w})
	}
	return len(behind) > 0, free
}

// takeBack leaves out withdrawals of what waits here, together with that, and has those follow that
// are of what is on its way. It gives the others.
func (l *lane) takeBack(withdrawn []events.Wire, w *whole) (others []events.Wire) {
	if len(withdrawn) == 0 {
		return nil
	}
	var behind []events.Wire
	var done []part
	l.mu.Lock()
	for _, m := range withdrawn {
		switch left, there := l.drop(m.Subject); {
		case there && len(left.messages) == 0:
			done = append(done, left)
		case there:
		case l.unsent[m.Subject] > 0:
			behind = append(behind, m)
		default:
			others = append(others, m)
		}
	}
	if len(behind) > 0 {
		w.parts.Add(1)
		l.add(part{behind, w})
	}
	l.mu.Unlock()
	if len(behind) > 0 {
		signal(l.work)
	}
	signal(l.room)
	for _, x := range done {
		l.p.done(x, nil)
	}
	return others
}

// drop takes what is to be published last under a subject out of the queue, and gives what is left
// of its part.
func (l *lane) drop(subject string) (left part, there bool) {
	if l.unsent[subject] == 0 {
		return left, false
	}
	for n := len(l.queue) - 1; n >= 0; n-- {
		x := &l.queue[n]
		i := slices.IndexFunc(x.messages, func(m events.Wire) bool { return m.Subject == subject })
		if i < 0 {
			continue
		}
		if x.messages[i].Purge {
			return left, false // it was withdrawn before
		}
		l.count(x.messages[i:i+1], -1)
		x.messages = slices.Delete(x.messages, i, i+1)
		l.waiting--
		if left = *x; len(x.messages) == 0 {
			l.queue = slices.Delete(l.queue, n, n+1)
		}
		return left, true
	}
	return left, false
}

// is tells whether a message is of a verb.
func (p *Publisher) is(verb events.Verb, m events.Wire) bool {
	rest, ok := strings.CutPrefix(m.Subject, p.prefix+".")
	return ok && strings.HasPrefix(rest, string(verb)) && strings.HasPrefix(rest[len(verb):], ".")
}

// count notes that something that may be withdrawn is on its way, or that it has arrived. What is
// withdrawn then goes on.
func (l *lane) count(messages []events.Wire, by int) {
	if l.unsent == nil {
		return
	}
	for _, m := range messages {
		if m.Purge || !l.p.is(l.verb, m) {
			continue
		}
		if l.unsent[m.Subject] += by; l.unsent[m.Subject] == 0 {
			delete(l.unsent, m.Subject)
		}
	}
}

// freed takes the withdrawals that need not wait any more.
func (l *lane) freed() (free []part) {
	l.behind = slices.DeleteFunc(l.behind, func(x part) bool {
		waits := slices.ContainsFunc(x.messages, func(m events.Wire) bool { return l.unsent[m.Subject] > 0 })
		if !waits {
			free = append(free, x)
		}
		return !waits
	})
	return free
}

// add takes a part without asking whether there is room.
func (l *lane) add(x part) {
	if l.waiting == 0 {
		l.age = time.Now()
	}
	l.queue = append(l.queue, x)
	l.waiting += len(x.messages)
	l.count(x.messages, 1)
}

// put takes a part.
func (l *lane) put(ctx context.Context, x part) error {
	if len(x.messages) == 0 {
		l.p.done(x, nil)
		return nil
	}
	for {
		l.mu.Lock()
		if l.waiting == 0 || l.waiting+len(x.messages) <= maxQueued {
			l.add(x)
			l.mu.Unlock()
			signal(l.work)
			return nil
		}
		l.mu.Unlock()
		select {
		case <-l.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes the next parts out of the queue.
func (l *lane) take() (parts []part, messages []events.Wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		x := l.queue[0]
		if l.most > 0 && len(messages) > 0 && len(messages)+len(x.messages) > l.most {
			break
		}
		l.queue = l.queue[1:]
		parts, messages = append(parts, x), append(messages, x.messages...)
	}
	if len(l.queue) == 0 {
		l.queue = nil
	}
	return parts, messages
}

// run publishes until the context ends, and then what is in the queue already, until the second one
// ends.
func (l *lane) run(ctx, drain context.Context) {
	for {
		l.publish(drain)
		select {
		case <-l.work:
			l.linger(ctx)
		case <-ctx.Done():
			l.publish(drain)
			l.sending.Wait()
			return
		}
	}
}

// linger waits for what goes together with what is there, or takes it back.
func (l *lane) linger(ctx context.Context) {
	if l.rest == 0 {
		return
	}
	select {
	case <-time.After(l.rest):
	case <-ctx.Done():
	}
}

// publish publishes everything that is in the queue, as much as may be in one go.
func (l *lane) publish(ctx context.Context) {
	for ctx.Err() == nil {
		parts, messages := l.take()
		if len(parts) == 0 {
			return
		}
		if l.each {
			l.sending.Go(func() { l.send(ctx, parts, messages) })
		} else {
			l.send(ctx, parts, messages)
		}
	}
}

// send publishes parts.
func (l *lane) send(ctx context.Context, parts []part, messages []events.Wire) {
	began := time.Now()
	err := Send(ctx, l.p.broker, l.p.prefix, messages, l.p.log, l.p.watcher)
	l.p.watcher.Published(l == &l.p.later || l == &l.p.far, len(messages), time.Since(began), err)
	if err != nil {
		l.p.log.Warn("what was promised could not be published; a sweep will", "messages", len(messages), "error", err)
	}
	for _, x := range parts {
		l.p.done(x, err)
	}
	l.mu.Lock()
	l.waiting -= len(messages)
	l.age = time.Now()
	l.count(messages, -1)
	free := l.freed()
	l.mu.Unlock()
	signal(l.room)
	l.p.later.give(free)
}

// give passes on what has waited elsewhere.
func (l *lane) give(parts []part) {
	if len(parts) == 0 {
		return
	}
	l.mu.Lock()
	for _, x := range parts {
		l.add(x)
	}
	l.mu.Unlock()
	signal(l.work)
}

// done notes that a part was published, or not. When all parts are, the promise is kept.
func (p *Publisher) done(x part, err error) {
	if err != nil {
		x.whole.failed.Store(true)
	}
	if x.whole.parts.Add(-1) > 0 || x.whole.failed.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == 0 {
		p.oldest = time.Now()
	}
	p.kept = append(p.kept, x.whole.keys...)
}

// Kept gives the promises that were kept since the last call, to be removed with the next commit.
// If that fails, they must be given to [Publisher.Keep]: a sweep would publish them again.
func (p *Publisher) Kept() []history.PromiseKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.kept
	p.kept = nil
	return kept
}

// Keep takes back promises that were kept and could not be removed, to be removed later.
func (p *Publisher) Keep(keys []history.PromiseKey) {
	if len(keys) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, keys...)
	p.oldest = time.Now()
}

// Waiting tells how many messages wait to be published, and for how long the first one.
func (p *Publisher) Waiting() (messages int, since time.Duration) {
	for _, l := range p.lanes() {
		l.mu.Lock()
		for _, x := range l.behind {
			messages += len(x.messages)
		}
		if l.waiting > 0 {
			messages, since = messages+l.waiting, max(since, time.Since(l.age))
		}
		l.mu.Unlock()
	}
	return messages, since
}

// Run publishes until the context ends, and then what is in the queue already, until the second one
// ends.
func (p *Publisher) Run(ctx, drain context.Context) {
	var lanes sync.WaitGroup
	for _, l := range p.lanes() {
		lanes.Go(func() { l.run(ctx, drain) })
	}
	tick := time.NewTicker(keptFor)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			p.removeKept(ctx)
		case <-ctx.Done():
		}
	}
	lanes.Wait()
	p.later.publish(drain) // what has waited for the last of the work
	p.removeAll(drain)
}

// removeKept removes promises that no commit has come to remove.
func (p *Publisher) removeKept(ctx context.Context) {
	p.mu.Lock()
	due := len(p.kept) > 0 && time.Since(p.oldest) >= keptFor
	p.mu.Unlock()
	if due {
		p.removeAll(ctx)
	}
}

func (p *Publisher) removeAll(ctx context.Context) {
	keys := p.Kept()
	for len(keys) > 0 && ctx.Err() == nil {
		n := min(len(keys), maxRemoved)
		if err := p.store.RemovePromises(ctx, keys[:n]); err != nil {
			p.log.Warn("outbox entries could not be removed; trying again", "promises", len(keys), "error", err)
			p.Keep(keys)
			return
		}
		keys = keys[n:]
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Send publishes messages that were promised. What the broker refuses is dead-lettered, and whoever
// waits for an answer to it is told; so the only error is that it could not be done in time. The
// watcher, if there is one, is told of what is dead-lettered.
func Send(ctx context.Context, b Broker, prefix string, messages []events.Wire, log *slog.Logger,
	watcher Watcher) error {
	err := b.Publish(ctx, messages...)
	var refused *broker.Refused
	if !errors.As(err, &refused) {
		return err
	}
	for i, w := range refused.Messages {
		log.With(traceOf(first(w.Header[events.HeaderTrace]))...).Error(
			"the broker refuses a message that was promised", "subject", w.Subject, "bytes", len(w.Body), "error",
			refused.Reasons[i])
		d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, StoredAt: time.Now()}
		if err := b.StoreDeadLetter(ctx, d,
			broker.Cause{Reason: "refused", Detail: refused.Reasons[i].Error(), By: "outbox"}); err != nil {
			return err
		}
		orNobody(watcher).DeadLettered(prefix, w.Subject, "refused")
		answer, ok := answerFor(prefix, w, refused.Reasons[i])
		if !ok {
			continue
		}
		if err := b.Publish(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

// answerFor makes the answer to a message that could not be sent, if somebody waits for one.
func answerFor(prefix string, w events.Wire, why error) (events.Wire, bool) {
	m, err := events.Decode(prefix, w.Subject, w.Header, w.Body, "")
	if err != nil {
		return events.Wire{}, false
	}
	failure := &events.Error{Kind: events.Infrastructure, Final: true, Message: "it could not be sent: " + why.Error()}
	var answer events.Message
	switch c := m.Content.(type) {
	case *events.Work:
		answer = events.Message{ID: events.MessageID(events.VerbFail, m.Instance, c.Ref), Instance: m.Instance,
			Content: &events.WorkFailed{Ref: c.Ref, Error: failure}}
	case *events.Start:
		if c.Parent == nil {
			return events.Wire{}, false
		}
		ref := events.Ref{Incarnation: c.Parent.Incarnation, Execution: c.Parent.Execution, Event: c.Parent.Event}
		answer = events.Message{ID: events.MessageID("refused", c.Parent.Instance, ref), Instance: c.Parent.Instance,
			Content: &events.ChildError{Ref: ref, Error: failure}}
	default:
		return events.Wire{}, false
	}
	out, err := events.Encode(prefix, answer)
	return out, err == nil
}
