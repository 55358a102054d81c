// Package scheduler shares the slots of a worker among its task queues. It is pure: each method is
// an event, gets the time, and returns decisions, which the caller carries out. The caller has the
// lock, the clock, the timers and the goroutines.
//
// A queue asks how many tasks it may fetch. The scheduler reserves slots only for queues whose last
// request brought all requested tasks. The others wait for tasks that may never arrive, and take a
// slot only when a task is there. So an idle queue blocks no other one, but sometimes there are
// more tasks than slots: such a task waits for a moment, and is nacked then. If activities are
// shorter than that moment, the scheduler lets their queue fetch a few tasks ahead of free slots,
// so that a free slot need not wait for the broker; but not while another queue waits for slots.
//
//	event      of                                    decisions about it       and about others
//	Asked      a queue that wants to fetch           Fetch, Wait              Wake, Gather
//	Left       a queue that asks no more             none                     none
//	Received   a task that a queue has brought       Begin, Hold, Refuse,     none
//	                                                 Delay
//	TimedOut   a task that waits for a slot          Refuse, or none if       none
//	                                                 it has begun
//	Freed      a slot                                none                     Begin, Wake, Gather
//	Answered   a request                             none                     Begin, Wake, Gather
//	Expired    a request whose reservation is over   none                     Begin, Wake, Gather
//	Unused     a slot reserved for a duplicate       none                     Begin, Wake, Gather
//	Gathered   the end of GatherFor                  none                     Begin, Wake, Gather
//	Closed     the shutdown of the worker            Refuse                   none
package scheduler

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

const (
	// GatherFor is how long a queue that has more tasks than there are slots waits for more than
	// one slot, so that it requests several tasks at once.
	GatherFor = time.Millisecond
	// ReservedFor is how long slots are reserved for a queue whose request brings fewer tasks than
	// the last one.
	ReservedFor = 10 * time.Millisecond
	// Patience is how long a task waits for a slot before the worker nacks it for another worker.
	Patience = 100 * time.Millisecond
	// soon is the longest average duration of a queue's activities with which the queue fetches
	// some of their tasks ahead of free slots.
	soon = Patience / 4
	// maxWaiting is the number of waiting tasks from which on a direct delivery needs a free slot.
	maxWaiting = 1000
)

// Limits are the numbers of slots, and the rates. Slots is the maximum of all tasks that run at
// once. SlotsPerTag and SlotsPerActivity are the maximum for a tag and for an activity.
// RatePerActivity is the maximum number of tasks of an activity that begin per second.
type Limits struct {
	Slots                         int
	SlotsPerTag, SlotsPerActivity map[string]int
	RatePerActivity               map[string]float64
}

// Action is what the caller does because of a decision.
type Action int

const (
	// Fetch requests Request.N tasks for the queue. The caller reports each task with Received, and
	// the end of the request with Answered. If slots are reserved, the caller reports Expired after
	// ReservedFor, unless the request was answered before.
	Fetch Action = iota + 1
	// Wait lets the queue wait until Wake, or for the time After if that is not zero. Then it asks
	// again, or leaves.
	Wait
	// Wake lets a waiting queue ask again.
	Wake
	// Begin executes the task, which has a slot now. The caller reports its end with Freed.
	Begin
	// Hold keeps the task until Begin. When its patience is over, the caller reports TimedOut.
	Hold
	// Refuse nacks the task.
	Refuse
	// Delay nacks the task, which the rate does not allow to begin within the time After.
	Delay
	// Gather reports Gathered after GatherFor.
	Gather
)

// QueueID is the number of a queue, from 0 in the order of [Scheduler.Add].
type QueueID int

// Decision is an action, and its object: a queue, a task or a request.
type Decision[T comparable] struct {
	Action  Action
	Queue   QueueID
	Task    T
	Request *Request
	After   time.Duration
}

// Request is a request of a queue for N tasks.
type Request struct {
	N        int
	queue    *queue
	reserved int // slots for tasks that have not arrived yet
}

// Reserved reports whether slots are reserved for tasks of the request.
func (r *Request) Reserved() bool { return r.reserved > 0 }

// Scheduler decides which queues fetch how many tasks, and which tasks begin. T identifies a task.
// It is not safe for concurrent use. The decisions that an event returns are valid until the next
// event.
type Scheduler[T comparable] struct {
	all        *pool
	tags       map[string]*pool
	activities map[string]*pool
	rates      map[string]*rate.Limiter
	queues     []*queue
	asking     []*queue     // those that wait for slots, the longest first
	waiting    []waiting[T] // tasks that wait for slots, the longest first
	gathering  bool
	closed     bool
	decisions  []Decision[T]
}

// pool is a number of slots.
type pool struct{ size, used, reserved int }

func (p *pool) free() int { return p.size - p.used - p.reserved }

// waiting is a task that waits for a slot.
type waiting[T comparable] struct {
	queue *queue
	task  T
}

// New returns a scheduler without queues.
func New[T comparable](c Limits) *Scheduler[T] {
	s := &Scheduler[T]{all: &pool{size: c.Slots}, tags: make(map[string]*pool), activities: make(map[string]*pool),
		rates: make(map[string]*rate.Limiter)}
	for tag, n := range c.SlotsPerTag {
		s.tags[tag] = &pool{size: n}
	}
	for name, n := range c.SlotsPerActivity {
		s.activities[name] = &pool{size: n}
	}
	for name, r := range c.RatePerActivity {
		s.rates[name] = rate.NewLimiter(rate.Limit(r), max(1, int(r/10)))
	}
	return s
}

// Add adds the queue of an activity with a tag.
func (s *Scheduler[T]) Add(tag, activity string) QueueID {
	q := newQueue(QueueID(len(s.queues)), s.rates[activity], s.all, s.tags[tag], s.activities[activity])
	s.queues = append(s.queues, q)
	return q.id
}

// ---- Questions.

// HasRoom reports whether a direct delivery gets a slot at once, or soon, as the average duration
// of the queue's activities tells. Tasks that wait in the broker go first.
func (s *Scheduler[T]) HasRoom(id QueueID) bool {
	q := s.queues[id]
	others := len(s.asking) > 1 || len(s.asking) == 1 && !q.asking
	switch {
	case s.closed, q.busy, q.rate != nil:
		return false
	case q.fits():
		return true
	case others || q.takes == 0 || len(s.waiting) >= maxWaiting:
		return false
	}
	return q.takes*time.Duration(q.waiting+1)/time.Duration(q.most) <= soon
}

// Crowded reports whether enough tasks wait for slots.
func (s *Scheduler[T]) Crowded() bool {
	const least = 16
	return len(s.waiting) >= max(s.all.size, least)
}

// Used returns the number of used slots.
func (s *Scheduler[T]) Used() int { return s.all.used }

// ---- Events of queues.

// Asked decides how many tasks a queue may fetch now. After a wait, the queue takes what there is;
// a busy queue that has not waited yet waits for more than one slot.
func (s *Scheduler[T]) Asked(id QueueID, waited bool, now time.Time) []Decision[T] {
	s.begin()
	q := s.queues[id]
	room := q.room(now)
	if room > 0 && (waited || !q.busy || room >= q.enough) {
		s.request(q, room, now)
		return s.decisions
	}
	if n := s.prefetch(q); room == 0 && n > 0 {
		s.satisfied(q)
		s.decide(Decision[T]{Action: Fetch, Queue: q.id, Request: &Request{N: n, queue: q}})
		return s.decisions
	}
	if !q.asking {
		q.asking = true
		s.asking = append(s.asking, q)
	}
	s.decide(Decision[T]{Action: Wait, Queue: q.id, After: q.untilRate(now)})
	if room > 0 {
		s.gather()
	}
	return s.decisions
}

// request lets a queue fetch tasks for its share of the free slots.
func (s *Scheduler[T]) request(q *queue, room int, now time.Time) {
	s.satisfied(q)
	r := &Request{queue: q}
	if q.busy {
		r.N = max(1, room/(1+len(s.asking)))
		r.reserved = r.N
		q.reserve(r.N)
	} else { // it takes no slot yet: the next queue may ask, too
		r.N = max(1, room/max(1, len(s.queues)))
	}
	s.decide(Decision[T]{Action: Fetch, Queue: q.id, Request: r})
	s.dispatch(now, false)
}

// prefetch returns how many tasks a queue may fetch without a free slot.
func (s *Scheduler[T]) prefetch(q *queue) int {
	alone := len(s.asking) == 0 || len(s.asking) == 1 && q.asking
	if !alone || !q.busy || q.rate != nil || q.takes == 0 || q.takes > soon {
		return 0
	}
	ahead := max(1, q.most/8)
	if missing := ahead - q.waiting; missing >= max(1, ahead/2) { // not for each of many alone
		return missing
	}
	return 0
}

// Left ends the wait of a queue that asks no more.
func (s *Scheduler[T]) Left(id QueueID) { s.satisfied(s.queues[id]) }

func (s *Scheduler[T]) satisfied(q *queue) {
	if q.asking {
		q.asking = false
		s.asking = slices.DeleteFunc(s.asking, func(x *queue) bool { return x == q })
	}
}

// Expired ends the reservation of a request.
func (s *Scheduler[T]) Expired(r *Request, now time.Time) []Decision[T] {
	s.begin()
	r.unreserve(r.reserved)
	s.dispatch(now, false)
	return s.decisions
}

// Answered ends a request that has brought so many tasks.
func (s *Scheduler[T]) Answered(r *Request, taken int, now time.Time) []Decision[T] {
	s.begin()
	r.unreserve(r.reserved)
	r.queue.busy = taken >= r.N
	s.dispatch(now, false)
	return s.decisions
}

// Unused releases the reserved slot of a task that needs none.
func (s *Scheduler[T]) Unused(r *Request, now time.Time) []Decision[T] {
	s.begin()
	if r.reserved > 0 {
		r.unreserve(1)
		s.dispatch(now, false)
	}
	return s.decisions
}

func (r *Request) unreserve(n int) {
	r.reserved -= n
	r.queue.reserve(-n)
}

// ---- Events of tasks.

// Received decides whether a task begins: at once, or soon, or never. A task that was not requested
// has no request.
func (s *Scheduler[T]) Received(id QueueID, r *Request, task T, now time.Time) []Decision[T] {
	s.begin()
	q := s.queues[id]
	reserved := r != nil && r.reserved > 0
	if reserved {
		r.unreserve(1)
	}
	d := Decision[T]{Queue: q.id, Task: task}
	switch {
	case q.rate != nil && !q.rate.AllowN(now, 1):
		d.Action, d.After = Delay, max(q.untilRate(now), time.Millisecond)
	case reserved || q.fits():
		d.Action = Begin
		q.use(1)
	case s.closed:
		d.Action = Refuse
	default:
		d.Action = Hold
		q.waiting++
		s.waiting = append(s.waiting, waiting[T]{q, task})
	}
	s.decide(d)
	return s.decisions
}

// TimedOut ends the wait of a task that has not got a slot.
func (s *Scheduler[T]) TimedOut(task T) []Decision[T] {
	s.begin()
	i := slices.IndexFunc(s.waiting, func(w waiting[T]) bool { return w.task == task })
	if i >= 0 {
		q := s.waiting[i].queue
		s.waiting = slices.Delete(s.waiting, i, i+1)
		q.waiting--
		q.takes = max(q.takes, Patience) // it was not soon
		s.decide(Decision[T]{Action: Refuse, Queue: q.id, Task: task})
	}
	return s.decisions
}

// Freed frees a slot that a task of the queue has used for so long.
func (s *Scheduler[T]) Freed(id QueueID, took time.Duration, now time.Time) []Decision[T] {
	s.begin()
	q := s.queues[id]
	q.note(took)
	q.use(-1)
	s.dispatch(now, false)
	return s.decisions
}

// Closed ends the wait of all tasks, and of later ones that find no slot.
func (s *Scheduler[T]) Closed() []Decision[T] {
	s.begin()
	for _, w := range s.waiting {
		s.decide(Decision[T]{Action: Refuse, Queue: w.queue.id, Task: w.task})
	}
	s.waiting, s.closed = nil, true
	return s.decisions
}

// ---- Free slots.

// dispatch assigns free slots to waiting tasks, and then wakes the queue that has waited longest;
// with all, each queue that has room.
func (s *Scheduler[T]) dispatch(now time.Time, all bool) {
	if len(s.waiting) > 0 {
		s.waiting = slices.DeleteFunc(s.waiting, func(w waiting[T]) bool {
			if !w.queue.fits() {
				return false
			}
			w.queue.waiting--
			w.queue.use(1)
			s.decide(Decision[T]{Action: Begin, Queue: w.queue.id, Task: w.task})
			return true
		})
	}
	for _, q := range s.asking {
		room := q.room(now)
		if room == 0 && s.prefetch(q) == 0 {
			continue
		}
		if !all && 0 < room && room < q.enough && q.busy {
			s.gather()
			continue
		}
		s.decide(Decision[T]{Action: Wake, Queue: q.id})
		if !all {
			return
		}
	}
}

// gather wakes all asking queues a little later.
func (s *Scheduler[T]) gather() {
	if !s.gathering {
		s.gathering = true
		s.decide(Decision[T]{Action: Gather})
	}
}

// Gathered wakes each queue that has room.
func (s *Scheduler[T]) Gathered(now time.Time) []Decision[T] {
	s.begin()
	s.gathering = false
	s.dispatch(now, true)
	return s.decisions
}

// begin begins an event: it has no decisions yet.
func (s *Scheduler[T]) begin() {
	clear(s.decisions) // they hold no task any longer
	s.decisions = s.decisions[:0]
}

func (s *Scheduler[T]) decide(d Decision[T]) { s.decisions = append(s.decisions, d) }

// ---- Queues.

// queue is the state of one task queue.
type queue struct {
	id      QueueID
	pools   []*pool
	rate    *rate.Limiter // nil: no limit
	enough  int           // number of free slots that is worth a request
	most    int           // slots at most
	takes   time.Duration // average duration of a use of a slot, lately; 0: unknown
	busy    bool          // the last request brought all requested tasks
	waiting int           // tasks that wait for a slot
	asking  bool          // it waits for slots
}

// newQueue returns a queue with the slots of some pools; those that are nil do not limit it.
func newQueue(id QueueID, limit *rate.Limiter, pools ...*pool) *queue {
	q := &queue{id: id, rate: limit, most: math.MaxInt}
	for _, p := range pools {
		if p != nil {
			q.pools = append(q.pools, p)
			q.most = min(q.most, p.size)
		}
	}
	q.enough = max(1, q.most/4)
	if limit != nil {
		q.enough = 1
	}
	return q
}

// room returns how many tasks the limits allow now.
func (q *queue) room(now time.Time) int {
	room := math.MaxInt
	for _, p := range q.pools {
		room = min(room, p.free())
	}
	if q.rate != nil {
		room = min(room, int(q.rate.TokensAt(now)))
	}
	return max(room, 0)
}

// fits reports whether a slot is free.
func (q *queue) fits() bool {
	return !slices.ContainsFunc(q.pools, func(p *pool) bool { return p.free() <= 0 })
}

// note records how long a slot was used.
func (q *queue) note(took time.Duration) {
	if q.takes == 0 {
		q.takes = took
	}
	q.takes += (took - q.takes) / 8
	q.takes = max(q.takes, 1)
}

// untilRate returns how long it takes until the rate allows another task.
func (q *queue) untilRate(now time.Time) time.Duration {
	if q.rate == nil {
		return 0
	}
	missing := 1 - q.rate.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing/float64(q.rate.Limit())*float64(time.Second)) + time.Microsecond
}

func (q *queue) use(by int) {
	for _, p := range q.pools {
		p.used += by
	}
}

func (q *queue) reserve(by int) {
	for _, p := range q.pools {
		p.reserved += by
	}
}
