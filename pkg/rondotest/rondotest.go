// Package rondotest runs orchestrations in tests: the real engine, with a broker, a store, workers
// and a clock in memory. Time is virtual, so a timer of thirty days takes no time at all, and
// everything happens in the test's own goroutine, in the same order each time.
//
//	func TestFulfil(t *testing.T) {
//		env := rondotest.New(t,
//			orders.Fulfil.Bind(fulfil),
//			orders.Charge.Bind(func(ctx context.Context, r ChargeRequest) (Receipt, error) {
//				return Receipt{ID: "r1"}, nil
//			}),
//		)
//		order, err := orders.Fulfil.Start(t.Context(), env, Order{SKU: "a1"}, orchestration.ID("order-7"))
//		…
//		env.Settle()                                                  // everything that can happen now has happened
//		orders.Approve.Raise(t.Context(), env, "order-7", Approval{}) // what the world does
//		receipt, err := order.Wait(t.Context())                       // skips the time until it has ended
//	}
//
// An activity is registered real or faked, there is no difference; one that is not registered is
// never executed, as if no worker were running. [Takes] makes one last. A start of an orchestration
// that is not registered waits for a [Env.Deploy] that brings its code. The parts of a main
// function can be given as they are: app.Pin counts, app.Configure and app.Demo do not.
//
// What differs from a system: there is one worker, for all tags and sessions, and one orchestrator;
// traces, schedules, priorities, rates and rights do not exist, nor do clients that wait (see
// [Env.Outcome]); a withdrawn activity runs to its end, and is not told.
//
// What orchestrations push to queues (see [github.com/rondo-run/rondo/pkg/jobpush]) is
// there to be looked at with [Env.Pushed].
//
// To see that the code replays, run the same test with [Cold], which forgets the instance before
// every round, or with [Chaos], which also delivers twice, late and in another order, and crashes
// between rounds. A replay that gives a call other data than it was recorded with fails the test,
// unless the call was recorded before a [Env.Deploy], or [AllowChangedData] is set. At the end of
// each test the histories are checked (see [Env.Check]).
//
// To see that tomorrow's code still fits yesterday's instances, export histories ([Env.Export], or
// the command line from a real system) and [Replay] them in a test.
package rondotest

import (
	"time"

	"github.com/rondo-run/rondo/internal/jobpushed"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Env is a whole system in memory. It is not safe for concurrent use. It is an
// [orchestration.Client]: contracts start instances in it, send to them and read what they show. A
// call that waits lets the system run until it has its answer.
type Env struct {
	t T
	outside
}

var _ orchestration.Client = (*Env)(nil)

// T is the part of [testing.TB] that tests of orchestrations need.
type T interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// New makes an environment. It is checked and closed when the test ends.
func New(t T, parts ...Part) *Env {
	t.Helper()
	e := &Env{t: t, outside: outside{system: newSystem(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}}
	e.system.settings.log = logger(t, e.Now)
	e.system.report.fail = func(text string) {
		t.Errorf("rondotest: %s\nIf that is meant: rondotest.AllowChangedData()", text)
	}
	e.Deploy(parts...)
	t.Cleanup(func() {
		e.Close()
		if err := e.Check(); err != nil {
			t.Errorf("rondotest: the history is not in order:\n%v", err)
		}
	})
	return e
}

// Deploy replaces the code, as a deployment would: running instances go on with the new code, from
// their histories.
func (e *Env) Deploy(parts ...Part) {
	e.t.Helper()
	s := e.system
	former := s.settings.chaos
	d, err := deploymentOf(parts, &s.settings)
	if c := s.settings.chaos; c != former {
		e.t.Cleanup(func() {
			if e.t.Failed() {
				e.t.Logf("rondotest: the chaos had seed %d", c.seed)
			}
		})
	}
	if err != nil {
		e.t.Fatalf("rondotest: %v", err)
	}
	code, err := d.registry()
	if err != nil {
		e.t.Fatalf("rondotest: %v", err)
	}
	if _, own := d.workers[jobpush.Activity]; !own {
		d.workers[jobpush.Activity] = worker{binding: jobpushed.Bind(s.jobs.push)}
	}
	if at := s.settings.start; at != nil {
		s.queue.now, s.settings.start = *at, nil
	}
	s.settings.config.Code, s.workers.bound = code, d.workers
	s.forgetAll()
	s.store.each(func(in *instance) { in.deployed = in.row.RowVersion() })
	s.queue.unpark()
}

// Close forgets all instances. New has it called at the end of the test.
func (e *Env) Close() { e.system.forgetAll() }

// Crash is a crash of the whole system between two rounds: the memory is gone, the store stays, and
// messages that were not acknowledged are redelivered.
func (e *Env) Crash() { e.system.store.each(e.system.orchestrator.crash) }

// Settle lets everything happen that can happen without time passing.
func (e *Env) Settle() { e.system.settle() }

// Advance lets time pass, and everything happen that is due in it.
func (e *Env) Advance(d time.Duration) {
	until := e.system.queue.now.Add(d)
	e.system.settle()
	for e.system.skip(until) {
		e.system.settle()
	}
	e.system.queue.now = until
}
