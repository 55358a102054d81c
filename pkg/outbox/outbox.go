// Package outbox is what is promised: the messages that must follow from what was committed.
//
//	commit ──► promises in the store ──► Publisher ──► broker
//	                    │                    │
//	                    │                    └─ kept: removed with the next commit, or by itself when there is none
//	                    └─ not kept, because its process died: Sweep publishes it after a while
//
//	history ──► what is outstanding ──► Heal ──► broker
//
// A promise is stored in the transaction that makes it. The [Publisher] publishes promises in the order of the commits; when they are stored by the broker,
// they are kept, and their rows are removed. What a process that died has left behind is published by a [Sweeper] of any other.
//
// The broker may lose what it has taken: a work item, a timer, or everything at once. History knows what each running instance waits for, so a [Healer] asks
// the broker for what it still has, and publishes the rest. Publishing twice is harmless: history takes each answer once.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// Broker is what is needed of the bus.
type Broker interface {
	bus.Publisher
	bus.DeadLetters
}

// Promised is what one commit has promised.
type Promised struct {
	Messages []events.Wire
	Keys     []history.PromiseKey
}

// Publisher publishes what was promised. It is safe for concurrent use.
type Publisher struct {
	broker Broker
	store  history.Outbox
	prefix string
	log    *slog.Logger
	most   int // messages in the queue

	mu      sync.Mutex
	queue   []Promised
	waiting int // messages in the queue
	room    chan struct{}
	work    chan struct{}
	kept    []history.PromiseKey
	oldest  time.Time // since when there is something in kept
	age     time.Time // since when the first in the queue waits
}

const (
	// maxQueued bounds the messages that wait to be published; who promises more has to wait.
	maxQueued = 20_000
	// keptFor is how long a kept promise waits for a commit that removes it.
	keptFor = 500 * time.Millisecond
	// maxRemoved bounds how many rows are removed at once.
	maxRemoved = 1000
)

// NewPublisher makes a publisher. The prefix is that of the subjects.
func NewPublisher(broker Broker, store history.Outbox, prefix string, log *slog.Logger) *Publisher {
	return &Publisher{broker: broker, store: store, prefix: prefix, log: log, most: maxQueued, room: make(chan struct{}, 1), work: make(chan struct{}, 1)}
}

// Publish takes what a commit has promised, to publish it after everything that was promised before. It blocks while too much is waiting, and gives up when
// the context ends: then a sweep publishes it.
func (p *Publisher) Publish(ctx context.Context, x Promised) error {
	for {
		p.mu.Lock()
		if p.waiting == 0 || p.waiting+len(x.Messages) <= p.most {
			if len(p.queue) == 0 {
				p.age = time.Now()
			}
			p.queue = append(p.queue, x)
			p.waiting += len(x.Messages)
			p.mu.Unlock()
			signal(p.work)
			return nil
		}
		p.mu.Unlock()
		select {
		case <-p.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Kept gives the promises that were kept since the last call, to be removed with the next commit. If that fails, a sweep publishes them again, and nobody minds.
func (p *Publisher) Kept() []history.PromiseKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.kept
	p.kept = nil
	return kept
}

// Waiting tells how many messages wait to be published, and for how long the first one.
func (p *Publisher) Waiting() (messages int, since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == 0 {
		return 0, 0
	}
	return p.waiting, time.Since(p.age)
}

// Run publishes until the context ends, and then what is in the queue already, until the second one ends.
func (p *Publisher) Run(ctx, drain context.Context) {
	tick := time.NewTicker(keptFor)
	defer tick.Stop()
	for {
		select {
		case <-p.work:
			p.publish(drain)
		case <-tick.C:
			p.removeKept(ctx)
		case <-ctx.Done():
			p.publish(drain)
			p.removeAll(drain)
			return
		}
	}
}

// publish publishes everything that is in the queue, all that waits in one go.
func (p *Publisher) publish(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		batch := p.queue
		p.queue = nil
		p.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		var messages []events.Wire
		var keys []history.PromiseKey
		for _, x := range batch {
			messages = append(messages, x.Messages...)
			keys = append(keys, x.Keys...)
		}
		err := Send(ctx, p.broker, p.prefix, messages, p.log)
		p.mu.Lock()
		p.waiting -= len(messages)
		p.age = time.Now()
		if err == nil {
			if len(p.kept) == 0 {
				p.oldest = time.Now()
			}
			p.kept = append(p.kept, keys...)
		}
		p.mu.Unlock()
		signal(p.room)
		if err != nil {
			p.log.Warn("what was promised could not be published; a sweep will", "messages", len(messages), "error", err)
		}
	}
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
			p.log.Warn("promises that were kept could not be removed; a sweep will publish them again", "promises", len(keys), "error", err)
			return
		}
		keys = keys[n:]
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Send publishes messages that were promised. What the broker refuses is put aside, and whoever waits for an answer to it is told; so the only error is that it could
// not be done in time.
func Send(ctx context.Context, broker Broker, prefix string, messages []events.Wire, log *slog.Logger) error {
	err := broker.Publish(ctx, messages...)
	var refused *bus.Refused
	if !errors.As(err, &refused) {
		return err
	}
	for i, w := range refused.Messages {
		log.Error("the broker refuses a message that was promised", "subject", w.Subject, "bytes", len(w.Body), "error", refused.Reasons[i])
		d := bus.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, Stored: time.Now()}
		if err := broker.Bury(ctx, d, bus.Cause{Reason: "refused", Detail: refused.Reasons[i].Error(), By: "outbox"}); err != nil {
			return err
		}
		answer, ok := answerFor(prefix, w, refused.Reasons[i])
		if !ok {
			continue
		}
		if err := broker.Publish(ctx, answer); err != nil {
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
		answer = events.Message{ID: events.MessageID(events.VerbFail, m.Instance, c.Ref), Instance: m.Instance, Content: &events.WorkFailed{Ref: c.Ref, Error: failure}}
	case *events.Start:
		if c.Parent == nil {
			return events.Wire{}, false
		}
		ref := events.Ref{Life: c.Parent.Life, Execution: c.Parent.Execution, Event: c.Parent.Event}
		answer = events.Message{ID: events.MessageID("refused", c.Parent.Instance, ref), Instance: c.Parent.Instance, Content: &events.ChildError{Ref: ref, Error: failure}}
	default:
		return events.Wire{}, false
	}
	out, err := events.Encode(prefix, answer)
	return out, err == nil
}
