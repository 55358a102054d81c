// Package query lets programs read and remove instances, and notifies them of changes, over the
// broker: without access to the database.
//
// # Requests
//
// A request is a JSON object, sent to rondo.api.<method>; the answer is JSON, too. Operators can
// send one by hand:
//
//	nats req rondo.api.instance '{"instance":"order-7"}'
//	nats req rondo.api.waiting  '{"instance":"order-7"}'
//	nats req rondo.api.list     '{"filter":{"statuses":["failed"]},"limit":20}'
//	nats req rondo.api.pending  '{"filter":{"name":"fulfil"},"limit":20}'
//
// The orchestrators answer ([Answer]); the one that gets the request reads the database. [Reader]
// sends requests for programs. It is a [history.Reader], and its errors are those of the store, so
// errors.Is finds [history.ErrNoInstance] and [history.ClassOf] the class.
//
// A request with an unknown field is refused, so that a misspelt filter does not delete everything.
// Readers ignore unknown fields of an answer, so that newer orchestrators can add some.
//
// # Large answers
//
// The server bounds messages, but not histories. An answer with a list or a history has one page,
// and the client requests the next one. A larger answer (one output of a megabyte) is compressed
// and kept for a moment by the orchestrator that answers, and the answer says where its parts can
// be requested:
//
//	{"$parts": {"method": "parts-3f2a…", "token": "8c1e…", "count": 2, "bytes": 1310829}}
//
// # Frozen orchestrators
//
// The broker gives a request to one orchestrator, frozen ones included. A [Reader] that gets no
// answer finds one that answers pings, and sends it the request on a method of its own:
//
//	rondo.api.ping-all   -> {"id": "orders-4711-…", "method": "to-9be1…"}
//	rondo.api.to-9be1…   <- {"method": "instance", "question": {"instance": "order-7"}}
//
// # Notifications
//
// Changes of instances are published at once to the subscribers of the moment (see [Notification]).
// Notifications are not stored: a client that relies on one has to poll as well, more rarely. They
// are published after the commit, so a request finds the changes that they report.
//
//	rondo.notification.ended.<orchestration>.<instance>     it has ended, and how
//	rondo.notification.status.<orchestration>.<instance>    its custom status has changed
//	rondo.notification.values.<orchestration>.<instance>    these values of it have changed
//	rondo.notification.settled.<message id>.<instance>      the receipt of a message, if it wants one
//	rondo.notification.deleted.-.<instance>                 it was deleted
package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
)

// The methods.
const (
	MethodList       = "list"
	MethodCount      = "count"
	MethodInstance   = "instance"
	MethodExecutions = "executions"
	MethodEvents     = "events"
	MethodStats      = "stats"
	MethodValues     = "values"
	MethodValue      = "value"
	MethodStatus     = "status"
	MethodTree       = "tree"
	MethodMetrics    = "metrics"
	MethodWaiting    = "waiting"
	MethodSystem     = "system"
	MethodRecover    = "recover"
	MethodCheckStart = "check-start"
	MethodPending    = "pending"

	MethodDelete      = "delete"
	MethodDeleteEnded = "delete-ended"
	MethodPrune       = "prune"
	MethodPruneAll    = "prune-all"
	MethodWithdraw    = "withdraw"
)

// Broker is the part of the broker that requests and notifications need.
type Broker interface {
	broker.Requests
	broker.Discovery
	broker.Notifications
}

// Options say how requests are answered. The zero value is good.
type Options struct {
	// ID names the process that answers.
	ID string
	// ReadOnly refuses requests that remove.
	ReadOnly bool
	// MaxAnswer is the size from which an answer is sent in parts: 512 KiB. It must be well below
	// the largest message of the servers.
	MaxAnswer int
	// AtOnce bounds the requests that are answered at the same time: 32. Others wait.
	AtOnce int
	// Explain adds notes that the history does not have: that no worker takes tasks from a task
	// queue, say.
	Explain func(ctx context.Context, w *Waiting)
	// System describes the running system; nil: such requests are not answered.
	System func(ctx context.Context) (System, error)
	// Recover lets the orchestrators check soon whether the broker has everything that it should
	// have. Such requests are not answered if it is nil, or with ReadOnly.
	Recover func(ctx context.Context) (Recovery, error)
	// Await returns nil once the database may be used, or an error when the context ends first.
	// Requests that need the database wait for it. nil: it may be used at once.
	Await func(ctx context.Context) error
	// CheckStart reports whether the code of a start is here, and why its input would fail the
	// instance. Such requests are not answered if it is nil.
	CheckStart func(s *events.Start) (known bool, bad *failure.Error)
	// Schedules has the schedules; nil: such requests are not answered.
	Schedules Schedules
	// Pending has the starts that wait in the broker; nil: such requests are not answered.
	Pending broker.PendingStarts
	// Now returns the time; nil is time.Now.
	Now func() time.Time
	// Publisher publishes the terminations of instances that are deleted by force, which bounds the
	// wait for them to WithdrawWithin: 3 s. nil: such instances are deleted as they are.
	Publisher      broker.Publisher
	WithdrawWithin time.Duration
	// Prefix begins the subjects of messages; empty is [events.DefaultPrefix].
	Prefix string
	// Logger gets warnings and errors for operators; nil is slog.Default.
	Logger *slog.Logger
}

const (
	defaultMaxAnswer = 512 << 10
	defaultAtOnce    = 32
	minMaxAnswer     = 16 << 10
)

// Store is the part of the store that answers need.
type Store interface {
	history.Reader
	history.Bounded
	history.Remover
	history.Families
}

// Answer answers requests from a store until stop is called.
func Answer(broker Broker, store Store, o Options) (stop func(), err error) {
	if o.MaxAnswer == 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	if o.MaxAnswer < minMaxAnswer {
		return nil, fmt.Errorf("query: answers of %d bytes; want at least %d", o.MaxAnswer, minMaxAnswer)
	}
	if o.AtOnce <= 0 {
		o.AtOnce = defaultAtOnce
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Prefix == "" {
		o.Prefix = events.DefaultPrefix
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	a := &answerer{store: store, broker: broker, o: o, slots: make(chan struct{}, o.AtOnce),
		whole: make(chan struct{}, wholeAtOnce), deletions: make(chan struct{}, deletionsAtOnce),
		parts: newParts(o.MaxAnswer)}
	a.deletes = &Deletions{Store: store, Publisher: o.Publisher, Prefix: o.Prefix, Within: o.WithdrawWithin,
		Logger: o.Logger, whole: a.whole}
	var stops []func()
	stop = func() { // all at once: each waits for the requests that it handles
		var all sync.WaitGroup
		for _, s := range stops {
			all.Go(s)
		}
		all.Wait()
	}
	added := func(s func(), e error) {
		if e == nil {
			stops = append(stops, s)
		}
		err = errors.Join(err, e)
	}
	handlers := make(map[string]handler)
	for name, m := range a.methods() {
		handlers[name] = a.answer(name, m)
		if added(broker.Handle(name, handlers[name])); err != nil { // each takes as long as NATS does not answer
			stop()
			return nil, err
		}
	}
	added(broker.Handle(a.parts.method, a.parts.answer))
	ping, takes, method := a.ping(handlers)
	added(broker.Handle(method, takes))
	added(broker.Handle(MethodPing, ping))
	added(broker.HandleDiscovery(MethodPingAll, ping))
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
