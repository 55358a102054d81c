package round

import (
	"cmp"
	"container/heap"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/internal/x/smallmap"
	"github.com/rondo-run/rondo/pkg/events"
)

// ledger is what the history of one execution says, without running any code: what is open, what is
// unread, what is kept. It decides what a message means; the code only ever learns of what passed
// the ledger.
type ledger struct {
	info    coro.Info
	engine  int
	trace   string
	from    events.Trace   // the same, read
	within  events.Trace   // the span of the execution in it, if anybody follows it
	beside  *beside        // what came with it, nil if nothing did
	input   events.Payload // until the code has taken it
	started time.Time
	begun   time.Time // when the first execution of this incarnation was started
	rounds  int       // that have written to history
	startID string    // the message that started this incarnation
	// When that was sent.
	startSent time.Time
	ended     time.Time

	lastID int64
	lastAt time.Time
	bytes  int64
	// Of them, those that the execution began with.
	baseID, baseBytes int64

	status events.Kind // how the execution ended; empty while it runs
	output events.Payload
	err    *events.Error

	custom        events.Payload
	customVersion int64
	values        map[string]value

	open     smallmap.Map[*open]
	awaited  int   // open activities and children whose answers the services owe
	waits    waits // open event waits
	queues   map[string]*queue
	held     map[int64]letter // queue reads that were answered and that the code has not looked at
	unread   int
	mailSize int64
	due      dueHeap
	closed   numbers       // inline steps that have their result
	failures map[int64]int // attempts of open inline steps that have failed
	seen     seen

	about    []slog.Attr  // what the code says about the whole execution; not from history, but from replaying the code
	answered []closedOpen // by the last event

	carried       int // inherited events still to come
	userSuspended bool
	halt          *events.Error // why the engine halted the code, if it did
	cancel        *events.CancelRequested
}

// beside is what may come beside a trace, and seldom does.
type beside struct {
	state   string
	baggage string
	former  string // the trace of the execution before
}

// besides is that, for reading.
func (l *ledger) besides() beside {
	if l.beside == nil {
		return beside{}
	}
	return *l.beside
}

type value struct {
	data events.Payload
	set  time.Time
}

// queue is one of the instance's mailboxes.
type queue struct {
	letters []letter // unread, oldest first
	reads   []int64  // open reads, oldest first; only when there are no letters
}

type letter struct {
	id      int64
	queue   string
	data    events.Payload
	message string
	sent    time.Time
	restart *events.Restart
}

// effects are what an event changes for others.
type effects struct {
	answers []coro.Answer
	closed  []closedOpen // what was given up
	retimed bool         // what it answers is due at another time than before
}

type closedOpen struct {
	id int64
	*open
}

func (l *ledger) ref(event int64) events.Ref {
	return events.Ref{Incarnation: l.info.Incarnation, Execution: l.info.Execution, Event: event}
}

func (l *ledger) running() bool { return l.lastID > 0 && l.status == "" }

// halted reports whether the code must not advance.
func (l *ledger) halted() bool { return l.userSuspended || l.halt != nil }

// load takes a whole history.
func (l *ledger) load(history []events.Event) error {
	for _, e := range history {
		if err := l.follows(e); err != nil {
			return err
		}
		if _, err := l.apply(e); err != nil {
			return err
		}
	}
	return nil
}

// follows checks that an event is the next one.
func (l *ledger) follows(e events.Event) error {
	switch {
	case e.ID != l.lastID+1:
		return fmt.Errorf("history has event %d after event %d", e.ID, l.lastID)
	case (e.ID == 1) != (e.Fact.Kind() == events.KindStarted):
		return fmt.Errorf("history has %s at event %d", e.Fact.Kind(), e.ID)
	case l.status != "":
		return fmt.Errorf("history has %s at event %d, after %s had ended the execution", e.Fact.Kind(), e.ID, l.status)
	}
	return nil
}

// apply takes one event. An error means that the history contradicts itself.
func (l *ledger) apply(e events.Event) (effects, error) {
	if l.lastID == 0 || !e.At.Equal(l.lastAt) {
		l.rounds++ // what a round appends has one time
	}
	l.lastID, l.lastAt = e.ID, e.At
	l.answered = l.answered[:0]
	l.bytes += int64(e.Fact.Size()) + eventOverhead
	if l.carried > 0 && e.ID > 1 {
		l.carried--
		l.baseID, l.baseBytes = l.lastID, l.bytes
	}
	if r, ok := events.ReceiptOf(e); ok && e.ID > 1 {
		l.seen.take(r)
	}
	switch f := e.Fact.(type) {
	case *events.Started:
		l.start(e.At, f)
		if r, ok := events.ReceiptOf(e); ok {
			l.startSent = r.Sent
			l.seen.take(r) // behind those of earlier executions
		}
	case *events.ActivityScheduled:
		l.openUp(e.ID, askedOpen(open{kind: openActivity, name: f.Name, deadline: f.Deadline},
			asked{tag: f.Tag, attempt: f.Attempt, startBy: f.StartBy, notBefore: f.NotBefore}))
	case *events.TimerCreated:
		l.openUp(e.ID, &open{kind: openTimer, deadline: f.FireAt})
	case *events.EventAwaited:
		l.openUp(e.ID, &open{kind: openWait, name: f.Name})
		l.waits.add(f.Name, e.ID)
	case *events.ChildStarted:
		l.openUp(e.ID, askedOpen(open{kind: openChild, name: f.Name, abandon: f.ParentClose == events.AbandonChild},
			asked{instance: f.Instance}))
	case *events.QueueRead:
		return l.read(e.ID, f)
	case *events.MessageQueued:
		return l.deliver(e, f), nil
	case *events.ActivityBegun:
		o, err := l.find(f.Schedule, openActivity)
		if err != nil {
			return effects{}, err
		}
		return l.begin(f, o), nil
	case *events.ActivityCompleted:
		return l.answer(f.Schedule, openActivity, coro.Answer{Payload: f.Result})
	case *events.ActivityFailed:
		return l.answer(f.Schedule, openActivity, coro.Answer{Err: f.Error, Heartbeat: f.Heartbeat})
	case *events.TimerFired:
		return l.answer(f.Timer, openTimer, coro.Answer{})
	case *events.ChildCompleted:
		return l.answer(f.Schedule, openChild, coro.Answer{Payload: f.Output})
	case *events.ChildFailed:
		return l.answer(f.Schedule, openChild, coro.Answer{Err: f.Error})
	case *events.EventReceived:
		l.waits.remove(f.Name, f.Wait)
		return l.answer(f.Wait, openWait, coro.Answer{Payload: f.Data})
	case *events.StepCompleted:
		l.closeStep(f.Step)
	case *events.StepFailed:
		if l.failures == nil {
			l.failures = make(map[int64]int, 1)
		}
		l.failures[f.Step] = f.Attempt
	case *events.Dropped:
		return l.drop(f), nil
	case *events.StatusSet:
		l.custom, l.customVersion = f.Status, f.Version
	case *events.ValueSet:
		if l.values == nil {
			l.values = make(map[string]value, 1)
		}
		l.values[f.Key] = value{f.Value, f.Set}
	case *events.ValuesCleared:
		for _, k := range f.Keys {
			delete(l.values, k)
		}
	case *events.CancelRequested:
		l.cancel = f
	case *events.Suspended:
		if f.Error != nil {
			l.halt = f.Error
		} else {
			l.userSuspended = true
		}
	case *events.Resumed:
		if f.Healed {
			l.halt = nil
		} else {
			l.userSuspended = false
		}
	default:
		if events.Ends(e.Fact) {
			return l.end(e), nil
		}
	}
	return effects{}, nil
}

// eventOverhead is what an event counts for besides its user data.
const eventOverhead = 64

func (l *ledger) start(at time.Time, f *events.Started) {
	l.info.Name, l.info.Version, l.info.Incarnation = f.Name, f.Version, f.Incarnation
	l.info.Parent, l.info.Attributes = f.Parent, f.Attributes
	l.input = f.Input
	l.engine, l.trace, l.started, l.startID, l.carried = f.Engine, f.Trace, at, f.Message, f.Carried
	if l.begun = f.Begun; l.begun.IsZero() {
		l.begun = at
	}
	l.follow(f.Trace)
	l.beside = nil
	if b := (beside{f.TraceState, f.Baggage, f.Follows}); b != (beside{}) {
		l.beside = &b
	}
	l.seen.load(f, at)
}

// shut closes what was open, answered or not.
func (l *ledger) shut(id int64) *open {
	o := l.open.Get(id)
	if o.owed() {
		l.awaited--
	}
	l.open.Delete(id)
	return o
}

// settle closes what was open because it is answered.
func (l *ledger) settle(id int64) {
	l.answered = append(l.answered, closedOpen{id, l.shut(id)})
}

// owed reports whether one of the services owes the answer.
func (o *open) owed() bool { return o.kind == openActivity && !o.pending || o.kind == openChild }

// begin notes that a worker has taken an activity up, or has passed it on to somebody else.
func (l *ledger) begin(f *events.ActivityBegun, o *open) effects {
	before := o.next()
	o.begun = true
	if f.Pending && !o.pending {
		o.pending = true
		l.awaited--
	}
	if o.next().Equal(before) {
		return effects{}
	}
	l.schedule(f.Schedule, o)
	return effects{retimed: true}
}

// schedule notes when something is due.
func (l *ledger) schedule(id int64, o *open) {
	if at := o.next(); !at.IsZero() {
		heap.Push(&l.due, dueEntry{at, id})
	}
}

// nextDue gives the earliest moment at which something is due, and what.
func (l *ledger) nextDue() (dueEntry, bool) {
	for len(l.due) > 0 {
		top := l.due[0]
		if o := l.open.Get(top.id); o != nil && o.next().Equal(top.at) {
			return top, true
		}
		heap.Pop(&l.due)
	}
	return dueEntry{}, false
}

func (l *ledger) find(id int64, kind openKind) (*open, error) {
	o := l.open.Get(id)
	if o == nil || o.kind != kind {
		return nil, fmt.Errorf("history answers event %d, which is not open", id)
	}
	return o, nil
}

func (l *ledger) answer(id int64, kind openKind, a coro.Answer) (effects, error) {
	if _, err := l.find(id, kind); err != nil {
		return effects{}, err
	}
	l.settle(id)
	a.ID = id
	return effects{answers: []coro.Answer{a}}, nil
}

// waits are those for events, by name. There are few names at once.
type waits []waited

type waited struct {
	name string
	ids  []int64 // oldest first
}

func (w waits) place(name string) (int, bool) {
	return slices.BinarySearchFunc(w, name, func(a waited, name string) int { return cmp.Compare(a.name, name) })
}

// of lists the waits for an event, oldest first.
func (w waits) of(name string) []int64 {
	if i, ok := w.place(name); ok {
		return w[i].ids
	}
	return nil
}

func (w *waits) add(name string, id int64) {
	i, ok := w.place(name)
	if !ok {
		*w = slices.Insert(*w, i, waited{name: name})
	}
	(*w)[i].ids = append((*w)[i].ids, id)
}

func (w *waits) remove(name string, id int64) {
	i, ok := w.place(name)
	if !ok {
		return
	}
	if ids := slices.DeleteFunc((*w)[i].ids, func(x int64) bool { return x == id }); len(ids) > 0 {
		(*w)[i].ids = ids
		return
	}
	*w = slices.Delete(*w, i, i+1)
}

func (l *ledger) queue(name string) *queue {
	q := l.queues[name]
	if q == nil {
		if l.queues == nil {
			l.queues = make(map[string]*queue, 1)
		}
		q = new(queue)
		l.queues[name] = q
	}
	return q
}

// deliver puts a message into its mailbox, or hands it to who waits there.
func (l *ledger) deliver(e events.Event, f *events.MessageQueued) effects {
	q := l.queue(f.Queue)
	r, _ := events.ReceiptOf(e)
	q.letters = append(q.letters,
		letter{id: e.ID, queue: f.Queue, data: f.Data, message: f.Message, sent: r.Sent, restart: f.Restart})
	l.unread++
	l.mailSize += int64(len(f.Data))
	return effects{answers: l.handOut(q)}
}

// handOut gives unread messages to open reads, oldest to oldest.
func (l *ledger) handOut(q *queue) []coro.Answer {
	var answers []coro.Answer
	for len(q.letters) > 0 && len(q.reads) > 0 {
		read := q.reads[0]
		q.reads = slices.Delete(q.reads, 0, 1)
		answers = append(answers, l.take(q, read))
	}
	return answers
}

// take gives the oldest unread message to a read.
func (l *ledger) take(q *queue, read int64) coro.Answer {
	m := q.letters[0]
	q.letters[0] = letter{}
	q.letters = q.letters[1:]
	l.unread--
	l.mailSize -= int64(len(m.data))
	if l.held == nil {
		l.held = make(map[int64]letter, 1)
	}
	l.held[read] = m
	l.settle(read)
	return coro.Answer{ID: read, Payload: m.data}
}

func (l *ledger) read(id int64, f *events.QueueRead) (effects, error) {
	q := l.queue(f.Queue)
	l.openUp(id, &open{kind: openRead, name: f.Queue})
	if f.Message == 0 {
		if len(q.letters) > 0 {
			return effects{}, fmt.Errorf("history waits for queue %q at event %d, which has unread messages", f.Queue,
				id)
		}
		q.reads = append(q.reads, id)
		return effects{}, nil
	}
	if len(q.letters) == 0 || q.letters[0].id != f.Message {
		return effects{}, fmt.Errorf(
			"history takes event %d from queue %q at event %d, which is not its oldest message", f.Message, f.Queue, id)
	}
	return effects{answers: []coro.Answer{l.take(q, id)}}, nil
}

// oldest is the event id of the oldest unread message of a queue, 0 if there is none.
func (l *ledger) oldest(name string) int64 {
	if q := l.queues[name]; q != nil && len(q.letters) > 0 {
		return q.letters[0].id
	}
	return 0
}

// consumed forgets the message that the code has looked at.
func (l *ledger) consumed(read int64) { delete(l.held, read) }

// drop gives up what the code no longer waits for. Messages that were taken and not looked at go
// back to the front of their queue.
func (l *ledger) drop(f *events.Dropped) effects {
	var eff effects
	var touched []*queue
	for _, id := range f.Schedules {
		o := l.open.Get(id)
		switch {
		case o == nil:
			if m, ok := l.held[id]; ok {
				touched = append(touched, l.putBack(id, m))
			}
			continue // otherwise it was answered while the code was suspended
		case o.kind == openWait:
			l.waits.remove(o.name, id)
		case o.kind == openRead:
			q := l.queue(o.name)
			if i := slices.Index(q.reads, id); i >= 0 {
				q.reads = slices.Delete(q.reads, i, i+1)
			}
		}
		l.shut(id)
		eff.closed = append(eff.closed, closedOpen{id, o})
	}
	for _, n := range f.Steps {
		l.closeStep(n)
	}
	for _, q := range touched {
		eff.answers = append(eff.answers, l.handOut(q)...)
	}
	return eff
}

// stepAnswered reports whether history has the result of an attempt of an inline step.
func (l *ledger) stepAnswered(n int64, attempt int) bool {
	return l.closed.has(n) || attempt <= l.failures[n]
}

func (l *ledger) closeStep(n int64) {
	l.closed.add(n)
	delete(l.failures, n)
}

// putBack returns a message to its place in its queue.
func (l *ledger) putBack(read int64, m letter) *queue {
	delete(l.held, read)
	q := l.queue(m.queue)
	at, _ := slices.BinarySearchFunc(q.letters, m.id, func(x letter, id int64) int { return int(x.id - id) })
	q.letters = slices.Insert(q.letters, at, m)
	l.unread++
	l.mailSize += int64(len(m.data))
	return q
}

// end closes everything.
func (l *ledger) end(e events.Event) effects {
	l.status, l.ended = e.Fact.Kind(), e.At
	switch f := e.Fact.(type) {
	case *events.Completed:
		l.output = f.Output
	case *events.Failed:
		l.err = f.Error
	case *events.Cancelled:
		l.output = f.Output
		l.err = &events.Error{Kind: events.CancelledError, Message: because("cancelled", f.Reason),
			Cause: f.Error, Final: true}
	case *events.Terminated:
		l.err = &events.Error{Kind: events.TerminatedError, Message: because("terminated", f.Reason), Final: true}
	}
	eff := effects{closed: make([]closedOpen, 0, l.open.Len())}
	for _, id := range l.open.Numbers() {
		o := l.open.Get(id)
		eff.closed = append(eff.closed, closedOpen{id, o})
	}
	slices.SortFunc(eff.closed, func(a, b closedOpen) int { return int(a.id - b.id) })
	l.open, l.waits, l.due, l.awaited = smallmap.Map[*open]{}, nil, nil, 0
	return eff
}

// unreadLetters lists all unread messages, oldest first, those included that were taken and not
// looked at.
func (l *ledger) unreadLetters() []letter {
	all := l.lettersInQueues()
	for _, m := range l.held {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b letter) int { return int(a.id - b.id) })
	return all
}

// lettersInQueues lists the messages that no read has taken, oldest first. That is all that history
// tells by itself: what a read has taken, the code may have looked at or not.
func (l *ledger) lettersInQueues() []letter {
	var all []letter
	for _, q := range l.queues {
		all = append(all, q.letters...)
	}
	slices.SortFunc(all, func(a, b letter) int { return int(a.id - b.id) })
	return all
}

// because says what happened and why, if somebody said why.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// dueHeap finds what is due next.
type dueHeap []dueEntry

type dueEntry struct {
	at time.Time
	id int64
}

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].id < h[j].id
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueEntry)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// numbers is a set of numbers that are mostly 1, 2, 3, …
type numbers struct {
	upTo int64 // all of 1 … upTo are in
	more map[int64]struct{}
}

func (n *numbers) has(x int64) bool {
	_, ok := n.more[x]
	return x <= n.upTo || ok
}

func (n *numbers) add(x int64) {
	if n.has(x) {
		return
	}
	if x != n.upTo+1 {
		if n.more == nil {
			n.more = make(map[int64]struct{})
		}
		n.more[x] = struct{}{}
		return
	}
	for n.upTo++; len(n.more) > 0; n.upTo++ {
		if _, ok := n.more[n.upTo+1]; !ok {
			break
		}
		delete(n.more, n.upTo+1)
	}
}
