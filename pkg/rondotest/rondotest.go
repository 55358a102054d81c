// Package rondotest runs orchestrations in tests: the real engine, with a broker, a store, workers
// and a clock in memory. Time is virtual, so a timer of thirty days takes no time at all, and
// everything happens in the test's own goroutine, in the same order each time.
//
//	func TestFulfil(t *testing.T) {
//		env := rondotest.New(t,
//			orders.Fulfil.With(fulfil),
//			orders.Charge.With(func(ctx context.Context, r ChargeRequest) (Receipt, error) {
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
// between rounds. At the end of each test the histories are checked (see [Env.Check]).
//
// To see that tomorrow's code still fits yesterday's instances, export histories ([Env.Export], or
// the command line from a real system) and [Replay] them in a test.
package rondotest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// Part is what an environment is made of: orchestrations and activities bound to their code, and
// the options of this package.
type Part = coro.Part

// Env is a whole system in memory. It is an [orchestration.Client]. It is not safe for concurrent
// use.
type Env struct {
	t      T
	config round.Config
	work   map[string]worker

	now       time.Time
	instances map[string]*instance
	order     []string // instance ids, in the order of their appearance
	ready     []*envelope
	delayed   envelopes
	parked    []*envelope    // messages that wait for code
	purged    map[string]int // subjects, with the sequence up to which they were purged
	sequence  int
	ids       int

	cold      bool
	chaos     *chaos
	trace     io.Writer
	rounds    int
	logs      []slog.Record
	told      []round.Told
	warnings  []string
	dead      []DeadLetter
	ignored   []DeadLetter
	decided   map[string]decided // messages that were taken, found to change nothing, or put aside
	faults    []*events.Error
	published map[string]string // what was said under an id
	problems  []error
	pending   map[string]events.Work // by token
	pushes    map[string]string      // to queues: their digests, by their keys
	pushed    map[string][]jobs.NewItem
}

// worker is an activity as the environment executes it.
type worker struct {
	binding activity.Binding
	takes   time.Duration
}

// T is what is needed of a [testing.TB].
type T interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// DeadLetter is a message that could not be processed, and the reason.
type DeadLetter struct {
	Message events.Message
	Reason  round.Reason
	Detail  string
}

// decided is what became of a message, and how the instance stood then.
type decided struct {
	round.Receipt
	status round.Status
}

type option func(*Env)

// RondoPart implements Part.
func (option) RondoPart() {}

// Cold forgets every instance before each round, so that each round is a replay. A test that passes
// without it and fails with it has found code that does not replay.
func Cold() Part { return option(func(e *Env) { e.cold = true }) }

// StartAt sets the clock, which otherwise starts at the beginning of 2026.
func StartAt(t time.Time) Part { return option(func(e *Env) { e.now = events.Instant(t) }) }

// UseCodec sets the codec.
func UseCodec(c events.Codec) Part { return option(func(e *Env) { e.config.Codec = c }) }

// FailNondeterminism lets an instance whose code does not fit its history fail; otherwise it is
// halted, as in production.
func FailNondeterminism() Part { return option(func(e *Env) { e.config.FailNondeterminism = true }) }

// Trace writes down every round: what came, what was decided.
func Trace(w io.Writer) Part { return option(func(e *Env) { e.trace = w }) }

// Takes makes an activity last, in virtual time. Its code runs when that time is over.
func Takes(b activity.Binding, d time.Duration) Part { return slow{b, d} }

type slow struct {
	binding activity.Binding
	takes   time.Duration
}

// RondoPart implements Part.
func (slow) RondoPart() {}

// New makes an environment. It is checked and closed when the test ends.
func New(t T, parts ...Part) *Env {
	t.Helper()
	e := &Env{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		instances: make(map[string]*instance), purged: make(map[string]int), published: make(map[string]string),
		decided: make(map[string]decided), pending: make(map[string]events.Work),
		pushes: make(map[string]string), pushed: make(map[string][]jobs.NewItem),
	}
	e.config.MaxAttempts = 1000 // chaos crashes more often than reality
	e.config.ShowPayloads = true
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
	var orchestrations []orchestration.Binding
	var activities []activity.Binding
	var pins []coro.Pinned
	e.work = map[string]worker{jobpush.Activity: {binding: jobpush.With(e.push)}}
	for _, p := range parts {
		switch p := p.(type) {
		case orchestration.Binding:
			orchestrations = append(orchestrations, p)
		case activity.Binding:
			if p.Name() != jobpush.Activity {
				activities = append(activities, p)
			}
			e.work[p.Name()] = worker{binding: p}
		case slow:
			activities = append(activities, p.binding)
			e.work[p.binding.Name()] = worker(p)
		case option:
			p(e)
		case coro.Pinned:
			pins = append(pins, p)
		case coro.ForProcess: // how a process runs is not what is tested
		default:
			e.t.Fatalf("rondotest: %T is no part of an environment", p)
		}
	}
	code, err := orchestration.NewRegistry(orchestrations...)
	if err != nil {
		e.t.Fatalf("rondotest: %v", err)
	}
	for _, p := range pins {
		if err := code.Pin(p.PinnedTo()); err != nil {
			e.t.Fatalf("rondotest: %v", err)
		}
	}
	if _, err := activity.NewRegistry(activities...); err != nil {
		e.t.Fatalf("rondotest: %v", err)
	}
	e.config.Code = code
	e.forgetAll()
	parked := e.parked
	e.parked = nil
	for _, v := range parked {
		v.due = time.Time{}
		e.queue(v)
	}
}

// Close forgets all instances. New has it called at the end of the test.
func (e *Env) Close() { e.forgetAll() }

func (e *Env) forgetAll() {
	for _, id := range e.order {
		e.instances[id].forget()
	}
}

// Crash is a crash of the whole system between two rounds: what was in memory is gone, what was
// stored stays, and what had not been acknowledged comes again.
func (e *Env) Crash() {
	for _, id := range e.order {
		e.crash(e.instances[id])
	}
}

// ---- The client.

var _ orchestration.Client = (*Env)(nil)

// Publish implements [orchestration.Client].
func (e *Env) Publish(ctx context.Context, messages ...events.Message) error {
	for _, m := range messages {
		e.publish(withBaggage(ctx, m))
	}
	return nil
}

// Deliver implements [orchestration.Client]: it lets the system run until it is known what became
// of the message.
func (e *Env) Deliver(ctx context.Context, m events.Message) (orchestration.Receipt, error) {
	if m.ID == "" {
		return orchestration.Receipt{}, errors.New("rondotest: a message that is to be delivered needs an id")
	}
	delete(e.decided, m.ID)
	e.publish(withBaggage(ctx, m))
	for {
		if r, ok := e.decided[m.ID]; ok {
			taken := r.Verdict == round.Accepted || r.Reason == round.Duplicate || r.Reason == round.Woken
			return orchestration.Receipt{Taken: taken, Reason: string(r.Reason), Detail: r.Detail,
				Status: string(r.status)}, nil
		}
		if err := ctx.Err(); err != nil {
			return orchestration.Receipt{}, err
		}
		if !e.step() && !e.skip(time.Time{}) {
			return orchestration.Receipt{}, e.stuck(m.Instance)
		}
	}
}

// Outcome implements [orchestration.Client]: it lets the system run until the instance has ended,
// skipping the time in which nothing happens.
func (e *Env) Outcome(ctx context.Context, id, start string) (orchestration.Outcome, error) {
	for {
		if in := e.instances[id]; in != nil && in.row.Status.Ended() && (start == "" || e.decided[start].Verdict != 0) {
			return orchestration.Outcome{Output: in.row.Output, Error: in.row.Error}, nil
		}
		if err := ctx.Err(); err != nil {
			return orchestration.Outcome{}, err
		}
		if !e.step() && !e.skip(time.Time{}) {
			return orchestration.Outcome{}, e.stuck(id)
		}
	}
}

// NewID implements [orchestration.Client].
func (e *Env) NewID() string {
	e.ids++
	return fmt.Sprintf("id-%d", e.ids)
}

// Codec implements [orchestration.Client].
func (e *Env) Codec() events.Codec {
	if e.config.Codec == nil {
		return events.JSON{}
	}
	return e.config.Codec
}

// Settle lets everything happen that can happen without time passing.
func (e *Env) Settle() {
	for e.step() {
	}
}

// Advance lets time pass, and everything happen that is due in it.
func (e *Env) Advance(d time.Duration) {
	until := e.now.Add(d)
	e.Settle()
	for e.skip(until) {
		e.Settle()
	}
	e.now = until
}

// Now is the virtual time.
func (e *Env) Now() time.Time { return e.now }

// ---- What can be looked at.

// Row is what is known of an instance: status, output, custom status. The second result tells
// whether it exists.
func (e *Env) Row(id string) (round.Row, bool) {
	in := e.instances[id]
	if in == nil || in.row.Execution == 0 {
		return round.Row{}, false
	}
	return in.row, true
}

// Instances lists all instances, in the order in which they were started.
func (e *Env) Instances() []string {
	var ids []string
	for _, id := range e.order {
		if e.instances[id].row.Execution > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Status reads the custom status of an instance.
func Status[T any](e *Env, _ orchestration.Status[T], id string) (v T, ok bool) {
	row, _ := e.Row(id)
	if len(row.CustomStatus) == 0 {
		return v, false
	}
	e.decode(row.CustomStatus, &v)
	return v, true
}

// Value reads a value of an instance, as the store shows it.
func Value[T any](e *Env, k orchestration.Key[T], id string) (v T, ok bool) {
	in := e.instances[id]
	if in == nil {
		return v, false
	}
	data, ok := in.values[k.Name()]
	if ok {
		e.decode(data, &v)
	}
	return v, ok
}

func (e *Env) decode(p events.Payload, v any) {
	e.t.Helper()
	if err := e.Codec().Decode(p, v); err != nil {
		e.t.Fatalf("rondotest: %v", err)
	}
}

// History is the history of the current execution of an instance.
func (e *Env) History(id string) []events.Event {
	in := e.instances[id]
	if in == nil {
		return nil
	}
	return in.history[in.row.Execution]
}

// Kinds is the history in one word an event: handy to compare with what is expected.
func (e *Env) Kinds(id string) []events.Kind {
	var kinds []events.Kind
	for _, ev := range e.History(id) {
		kinds = append(kinds, ev.Fact.Kind())
	}
	return kinds
}

// Logs are the records that orchestrations have logged.
func (e *Env) Logs() []slog.Record { return e.logs }

// Counted is the sum of what orchestrations have counted under a name.
func (e *Env) Counted(name string) (sum float64) {
	for _, x := range e.told {
		if x.Kind == coro.ToldCount && x.Name == name {
			sum += x.Value
		}
	}
	return sum
}

// Measured are the values that orchestrations have measured under a name.
func (e *Env) Measured(name string) (values []float64) {
	for _, x := range e.told {
		if x.Kind == coro.ToldValue && x.Name == name {
			values = append(values, x.Value)
		}
	}
	return values
}

// Warnings are what an operator would be told.
func (e *Env) Warnings() []string { return e.warnings }

// DeadLetters are the messages that were dead-lettered.
func (e *Env) DeadLetters() []DeadLetter { return e.dead }

// Ignored are the messages that changed nothing: duplicates, late answers, events that nobody
// waited for.
func (e *Env) Ignored() []DeadLetter { return e.ignored }

// Faults are the reasons for which the engine has halted or failed instances.
func (e *Env) Faults() []*events.Error { return e.faults }

// Rounds counts the rounds that were run.
func (e *Env) Rounds() int { return e.rounds }
