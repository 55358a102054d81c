// Package query is how instances are asked about, and how is told what becomes of them, over the
// broker: without access to the database.
//
// # Questions
//
// A question is a JSON object, sent to rondo.api.<method>; the answer is JSON, too. Anybody can ask
// by hand:
//
//	nats req rondo.api.instance '{"instance":"order-7"}'
//	nats req rondo.api.waiting  '{"instance":"order-7"}'
//	nats req rondo.api.list     '{"filter":{"statuses":["failed"]},"limit":20}'
//
// The orchestrators answer ([Answer]); whichever gets the question reads the database. [Reader]
// asks for programs: it is a [history.Reader], and errors come out of it as they went into the
// answer, so errors.Is finds [history.ErrNoInstance] and [history.ClassOf] the class.
//
// What a question does not know is refused, so that a misspelt filter does not delete everything.
// What an answer has besides is not looked at, so that newer orchestrators can say more.
//
// # Large answers
//
// The server bounds messages, and a history does not know of that. Lists and histories are answered
// up to a size, and who asks goes on from there. What is too large all the same (one output of a
// megabyte) is compressed and kept for a moment by the one who answers, and the answer says where
// its parts can be had:
//
//	{"$parts": {"method": "parts-3f2a…", "token": "8c1e…", "count": 2, "bytes": 1310829}}
//
// # Notices
//
// What happens is told at once to whoever listens just then (see [Notice]). Nobody keeps notices:
// whoever relies on one has to ask as well, more rarely. They go out after the commit, so what they
// say can be asked for.
//
//	rondo.notice.ended.<orchestration>.<instance>     it has ended, and how
//	rondo.notice.status.<orchestration>.<instance>    its custom status has changed
//	rondo.notice.values.<orchestration>.<instance>    these values of it have changed
//	rondo.notice.settled.<message id>.<instance>      what became of a message that has the header Rondo-Receipt
//	rondo.notice.deleted.-.<instance>                 it was deleted
package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/rondo-run/rondo/internal/broker"
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

	MethodDelete      = "delete"
	MethodDeleteEnded = "delete-ended"
	MethodPrune       = "prune"
	MethodPruneAll    = "prune-all"
)

// Broker is what questions and notices need of a broker.
type Broker interface {
	broker.Questions
	broker.Notices
}

// Options say how questions are answered. The zero value is good.
type Options struct {
	// ReadOnly answers nothing that removes.
	ReadOnly bool
	// MaxAnswer is the size from which an answer is sent in parts: 512 KiB. It must be well below
	// the largest message of the servers.
	MaxAnswer int
	// AtOnce is how many questions are answered at the same time: 32. Others wait.
	AtOnce int
	// Explain adds to what an instance waits for what is known elsewhere: that nobody takes work
	// from a queue, say.
	Explain func(ctx context.Context, w *Waiting)
	// System tells who is there; if it is nil, nobody is told.
	System func(ctx context.Context) (System, error)
	// Recover lets the orchestrators look soon whether the broker has all that it should have; if
	// it is nil, or with ReadOnly, nobody may ask for it.
	Recover func(ctx context.Context) (Recovery, error)
	// Logger gets what operators should know; nil is slog.Default.
	Logger *slog.Logger
}

const (
	defaultMaxAnswer = 512 << 10
	defaultAtOnce    = 32
	minMaxAnswer     = 16 << 10
)

// Store is what answers are taken from.
type Store interface {
	history.Reader
	history.Remover
}

// Answer answers questions from a store until stop is called.
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
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	a := &answerer{store: store, broker: broker, o: o, slots: make(chan struct{}, o.AtOnce),
		parts: newParts(o.MaxAnswer)}
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	add := func(method string, answer func(context.Context, []byte) ([]byte, error)) {
		s, e := broker.Answer(method, answer)
		if e == nil {
			stops = append(stops, s)
		}
		err = errors.Join(err, e)
	}
	for name, m := range a.methods() {
		add(name, a.answer(name, m))
	}
	add(a.parts.method, a.parts.answer)
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
