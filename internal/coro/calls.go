package coro

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// call has the data for further attempts of an activity or a step.
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
	run     func(context.Context) (codec.Payload, error)
	timeout time.Duration
	after   time.Time
	key     string
}

// open lists a task that an answer from outside will settle.
func (p *Program) open(t *Task) {
	p.tasks.Set(t.id, t)
}

// start records the fact that opens a task. In a cancelled scope it gives a task that is cancelled
// already.
func (s *Scope) start(t *Task, fact events.Fact) *Task {
	p := s.program
	p.enter()
	if s.err != nil {
		return t.refuse(s.err)
	}
	event, answers, ok := p.record(fact)
	if !ok {
		exit()
	}
	if f, ok := event.Fact.(*events.CallRefused); ok {
		return t.refuse(t.attributed(f.Error))
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

// refuse settles a task that fails at once and leaves no event.
func (t *Task) refuse(err *failure.Error) *Task {
	t.kind, t.err, t.abandoned = branchTask, err, err.Kind == failure.Cancelled || err.Kind == failure.Timeout
	t.settle()
	return t
}

// retry schedules the next attempt of a failed activity, if there is to be one.
func (t *Task) retry(a Answer) bool {
	p := t.program
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

// retryStep starts the next attempt of an inline step, if there is to be one.
func (t *Task) retryStep(err *failure.Error) bool {
	at, ok := t.call.next(t.program.host, err)
	if !ok {
		return false
	}
	t.call.attempt++
	t.call.after = at
	t.program.host.StartStep(t.call.step(t.id))
	return true
}

// Activity schedules an activity.
func (s *Scope) Activity(name string, input codec.Payload, o Options) *Task {
	p := s.program
	t := &Task{program: p, what: anActivity, name: name}
	if err := o.check(); err != nil {
		p.enter()
		return t.refuse(t.attributed(err))
	}
	now := p.host.Now()
	s.start(t, &events.ActivityScheduled{
		Name: name, Input: input, Tag: o.Tag, Session: o.Session, Attempt: 1,
		StartBy: until(now, o.ScheduleToStart), Deadline: until(now, o.ScheduleToClose),
		StartToClose: events.Duration(o.StartToClose), HeartbeatTimeout: events.Duration(o.HeartbeatTimeout),
		Retry: o.Retry,
	})
	return t
}

func until(now time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return events.Instant(now.Add(d))
}

// next returns the time of the next attempt, and false if there is none.
func (c *call) next(h Host, err *failure.Error) (time.Time, bool) {
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
func (s *Scope) Step(name string, run func(context.Context) (codec.Payload, error), o Options) *Task {
	p := s.program
	p.enter()
	t := &Task{program: p, kind: stepTask, what: aStep, name: name}
	if err := o.check(); err != nil {
		return t.refuse(t.attributed(err))
	}
	if s.err != nil {
		return t.refuse(s.err)
	}
	p.lastStep++
	t.id = p.lastStep
	info := p.host.Info()
	t.call = &call{
		name: name, run: run, policy: o.Retry, timeout: o.StartToClose, attempt: 1, first: t.id,
		deadline: until(p.host.Now(), o.ScheduleToClose),
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

// Timer opens a timer.
func (s *Scope) Timer(at time.Time) *Task {
	return s.start(&Task{program: s.program, what: aTimer}, &events.TimerCreated{FireAt: events.Instant(at)})
}

// Accepts returns an error for data that code which waits cannot decode. Strict data must have no
// field that the code does not know, and must not be missing.
type Accepts func(data codec.Payload, strict bool) error

// WaitEvent waits for the next event of a name. It skips events for which accepts returns an error;
// nil accepts everything.
func (s *Scope) WaitEvent(name string, accepts Accepts) *Task {
	return s.start(&Task{program: s.program, what: anEvent, name: name, accepts: accepts},
		&events.EventAwaited{Name: name})
}

// ReadMailbox takes the oldest message of a mailbox, or waits for one. It skips messages for which
// accepts returns an error; nil accepts everything.
func (s *Scope) ReadMailbox(mailbox string, accepts Accepts) *Task {
	return s.start(&Task{program: s.program, kind: mailboxTask, what: aMailbox, name: mailbox, accepts: accepts},
		&events.MailboxRead{Mailbox: mailbox})
}

// StartChild starts an instance and waits for its outcome. An empty id is replaced by one made from
// the event reference.
func (s *Scope) StartChild(fact *events.ChildStarted) *Task {
	return s.start(&Task{program: s.program, what: anOrchestration, name: fact.Name}, fact)
}

// Say records a fact that has no answer.
func (s *Scope) Say(fact events.Fact) (int64, *failure.Error) {
	p := s.program
	p.enter()
	if s.err != nil {
		return 0, s.err
	}
	return p.Note(fact)
}

// Note is Say for facts that are allowed in a cancelled scope, too: those that show or store data.
func (p *Program) Note(fact events.Fact) (int64, *failure.Error) {
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
func (p *Program) Stop(err *failure.Error) {
	p.enter()
	p.stopCode(err)
}

// Patched reports whether the code may take the new path of a change. Once it may, it may for the
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

// Host returns the host, for calls that only read.
func (p *Program) Host() Host {
	p.enter()
	return p.host
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
func (p *Program) Failed(err *failure.Error) *Task {
	p.enter()
	return (&Task{program: p}).refuse(err)
}
