package coro

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// call is what is needed to try an activity or a step again.
type call struct {
	policy   *events.RetryPolicy
	attempt  int
	first    int64 // the event (or number) of the first attempt
	deadline time.Time

	// Activities: what to schedule again, and how long each attempt has to begin.
	fact    *events.ActivityScheduled
	toStart time.Duration

	// Steps: what to run again.
	name    string
	run     func(context.Context) (events.Payload, error)
	timeout time.Duration
	after   time.Time
	key     string
}

// open lists a task that outside will settle.
func (p *Program) open(t *Task) {
	p.tasks.Set(t.id, t)
}

// start records the fact that opens a task. In a cancelled scope it gives a task that is cancelled
// already.
func (p *Program) start(s *Scope, t *Task, fact events.Fact) *Task {
	p.enter()
	if s.err != nil {
		return p.refused(t, s.err)
	}
	event, answers, ok := p.record(fact)
	if !ok {
		exit()
	}
	if f, ok := event.Fact.(*events.CallRefused); ok {
		return p.refused(t, t.attributed(f.Error))
	}
	t.id = event.ID
	if f, ok := event.Fact.(*events.ActivityScheduled); ok && f.Retry != nil {
		t.call = &call{policy: f.Retry, fact: f, attempt: f.Attempt, first: event.ID, deadline: f.Deadline}
		if !f.StartBy.IsZero() {
			t.call.toStart = f.StartBy.Sub(p.host.Now())
		}
	}
	s.add(t)
	p.open(t)
	for _, a := range answers {
		p.Resolve(a)
	}
	p.check()
	return t
}

// refused is a task that fails at once and leaves no event.
func (p *Program) refused(t *Task, err *events.Error) *Task {
	t.kind, t.err, t.abandoned = branchTask, err, err.Kind == events.CancelledError || err.Kind == events.Timeout
	p.settle(t)
	return t
}

// Activity schedules an activity.
func (p *Program) Activity(s *Scope, name string, input events.Payload, o Options) *Task {
	t := &Task{program: p, what: anActivity, name: name}
	if err := o.check(); err != nil {
		p.enter()
		return p.refused(t, t.attributed(err))
	}
	now := p.host.Now()
	p.start(s, t, &events.ActivityScheduled{
		Name: name, Input: input, Tag: o.Tag, Session: o.Session, Priority: o.Priority, Attempt: 1,
		StartBy: until(now, o.ToStart), Deadline: until(now, o.Overall),
		StartToClose: events.Duration(o.Timeout), HeartbeatTimeout: events.Duration(o.Heartbeat), Retry: o.Retry,
	})
	return t
}

func until(now time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return events.Instant(now.Add(d))
}

// retry schedules the next attempt of a failed activity, if there is to be one.
func (p *Program) retry(t *Task, a Answer) bool {
	c := t.call
	at, ok := c.next(p.host, a.Err)
	if !ok {
		return false
	}
	fact := *c.fact
	fact.Attempt, fact.First, fact.NotBefore, fact.Heartbeat = c.attempt+1, c.first, at, a.Heartbeat
	if !fact.StartBy.IsZero() {
		fact.StartBy = events.Instant(at.Add(c.toStart))
	}
	event, _, ok := p.record(&fact)
	if !ok {
		return true
	}
	if _, refused := event.Fact.(*events.CallRefused); refused {
		return false
	}
	c.attempt++
	t.id = event.ID
	p.open(t)
	return true
}

// next tells when to try again.
func (c *call) next(h Host, err *events.Error) (time.Time, bool) {
	if c.policy == nil || !c.policy.Again(err, c.attempt) {
		return time.Time{}, false
	}
	info := h.Info()
	at := events.Instant(h.Now().Add(c.policy.Delay(c.attempt, info.Incarnation, info.Execution, c.first)))
	if !c.deadline.IsZero() && !at.Before(c.deadline) {
		return time.Time{}, false
	}
	return at, true
}

// Step starts an inline step.
func (p *Program) Step(s *Scope, name string, run func(context.Context) (events.Payload, error), o Options) *Task {
	p.enter()
	t := &Task{program: p, kind: stepTask, what: aStep, name: name}
	if err := o.check(); err != nil {
		return p.refused(t, t.attributed(err))
	}
	if s.err != nil {
		return p.refused(t, s.err)
	}
	p.lastStep++
	t.id = p.lastStep
	info := p.host.Info()
	t.call = &call{
		name: name, run: run, policy: o.Retry, timeout: o.Timeout, attempt: 1, first: t.id,
		deadline: until(p.host.Now(), o.Overall),
		key:      events.IdempotencyKey(info.Instance, info.Incarnation, info.Execution, t.id) + "/step",
	}
	s.add(t)
	if p.steps == nil {
		p.steps = make(map[int64]*Task, 1)
	}
	p.steps[t.id] = t
	p.host.StartStep(t.call.step(t.id))
	return t
}

func (c *call) step(number int64) Step {
	return Step{Number: number, Name: c.name, Attempt: c.attempt, NotBefore: c.after, Deadline: c.deadline,
		Timeout: c.timeout, IdempotencyKey: c.key, Run: c.run}
}

func (p *Program) retryStep(t *Task, err *events.Error) bool {
	at, ok := t.call.next(p.host, err)
	if !ok {
		return false
	}
	t.call.attempt++
	t.call.after = at
	p.host.StartStep(t.call.step(t.id))
	return true
}

// Timer opens a timer.
func (p *Program) Timer(s *Scope, at time.Time) *Task {
	return p.start(s, &Task{program: p, what: aTimer}, &events.TimerCreated{FireAt: events.Instant(at)})
}

// WaitEvent waits for the next event of a name. What accepts gives an error for is not taken; nil
// takes everything.
func (p *Program) WaitEvent(s *Scope, name string, accepts func(events.Payload) error) *Task {
	return p.start(s, &Task{program: p, what: anEvent, name: name, accepts: accepts}, &events.EventAwaited{Name: name})
}

// ReadQueue takes the oldest message of a queue, or waits for one. A message that accepts gives an
// error for is skipped; nil takes everything.
func (p *Program) ReadQueue(s *Scope, queue string, accepts func(events.Payload) error) *Task {
	return p.start(s, &Task{program: p, kind: queueTask, what: aQueue, name: queue, accepts: accepts},
		&events.QueueRead{Queue: queue})
}

// Child starts an instance and waits for its outcome. With an empty id it gets one made from its
// place in history.
func (p *Program) Child(s *Scope, fact *events.ChildStarted) *Task {
	return p.start(s, &Task{program: p, what: anOrchestration, name: fact.Name}, fact)
}

// Say records a fact that nothing answers.
func (p *Program) Say(s *Scope, fact events.Fact) (int64, *events.Error) {
	p.enter()
	if s.err != nil {
		return 0, s.err
	}
	return p.Note(fact)
}

// Note is Say for what also a cancelled scope may do: showing and keeping things.
func (p *Program) Note(fact events.Fact) (int64, *events.Error) {
	p.enter()
	event, ok := p.note(fact)
	if !ok {
		exit()
	}
	if f, ok := event.Fact.(*events.CallRefused); ok {
		return 0, f.Error
	}
	return event.ID, nil
}

// Stop fails the execution from within its code.
func (p *Program) Stop(err *events.Error) {
	p.enter()
	p.stopCode(err)
}

// Patched tells whether the code may take the new path of a change. Once it may, it may for the
// rest of the execution.
func (p *Program) Patched(id string) bool {
	p.enter()
	if p.patches[id] {
		return true
	}
	if !p.host.Patched(id) {
		return false
	}
	if _, ok := p.note(&events.Patched{ID: id}); !ok {
		exit()
	}
	if p.patches == nil {
		p.patches = make(map[string]bool)
	}
	p.patches[id] = true
	return true
}

// Host gives what the code runs in, for what is only read.
func (p *Program) Host() Host {
	p.enter()
	return p.host
}

// Log passes a log record on.
func (p *Program) Log(r slog.Record) {
	p.enter()
	p.host.Log(r)
}

// Tell passes on what the code measures.
func (p *Program) Tell(t Told) {
	p.enter()
	p.host.Tell(t)
}

// Describe adds to what is told of the whole execution.
func (p *Program) Describe(about []slog.Attr) {
	p.enter()
	p.host.Describe(about)
}

// NewSpan numbers a span, the same in every replay.
func (p *Program) NewSpan() int64 {
	p.enter()
	p.lastSpan++
	return p.lastSpan
}

// Silent reports whether log records would be dropped.
func (p *Program) Silent() bool { return p.host.Replaying() }

type randomSource struct{ *rand.Rand }

func (p *Program) seed(what string, n uint64) [32]byte {
	info := p.host.Info()
	h := sha256.New()
	h.Write([]byte(what))
	h.Write([]byte{0})
	h.Write([]byte(info.Instance))
	h.Write([]byte{0})
	h.Write([]byte(info.Incarnation))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(info.Execution)))
	h.Write(binary.BigEndian.AppendUint64(nil, n))
	return [32]byte(h.Sum(nil))
}

// Random gives the execution's source of random numbers: the same ones in every replay.
func (p *Program) Random() *rand.Rand {
	p.enter()
	if p.random == nil {
		p.random = &randomSource{rand.New(rand.NewChaCha8(p.seed("random", 0)))}
	}
	return p.random.Rand
}

// NewID gives a fresh UUID: the same one in every replay.
func (p *Program) NewID() string {
	p.enter()
	p.ids++
	b := p.seed("id", p.ids)
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // variant 10
	x := hex.EncodeToString(b[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func sortByOrder(tasks []*Task) {
	slices.SortFunc(tasks, func(a, b *Task) int { return int(a.order - b.order) })
}

func quote(s string) string { return sprintf("%q", s) }

// Failed gives a task that has failed.
func (p *Program) Failed(err *events.Error) *Task {
	p.enter()
	return p.refused(&Task{program: p}, err)
}
