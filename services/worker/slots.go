package worker

import (
	"context"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/services/worker/scheduler"
)

// slots carries out the decisions of the scheduler: it has the lock, the clock, the timers and the
// goroutines. It is safe for concurrent use.
type slots struct {
	execute func(*attempt) // executes a task that has a slot, in a goroutine of its own
	refuse  func(*attempt) // nacks a task that has got none

	mu        sync.Mutex
	scheduler *scheduler.Scheduler[*attempt]
	wake      []signal.Signal // by queue
	patience  map[*attempt]*time.Timer
}

func newSlots(c Config, execute, refuse func(*attempt)) *slots {
	return &slots{execute: execute, refuse: refuse, patience: make(map[*attempt]*time.Timer),
		scheduler: scheduler.New[*attempt](scheduler.Limits{Slots: c.Slots, SlotsPerTag: c.SlotsPerTag,
			SlotsPerActivity: c.SlotsPerActivity, RatePerActivity: c.RatePerActivity})}
}

// add adds a queue.
func (s *slots) add(q broker.TaskQueueName) scheduler.QueueID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = append(s.wake, signal.New())
	return s.scheduler.Add(q.Tag, q.Activity)
}

// do carries out decisions. The caller has the lock.
func (s *slots) do(decisions []scheduler.Decision[*attempt]) {
	for _, d := range decisions {
		switch d.Action {
		case scheduler.Begin:
			if t := s.patience[d.Task]; t != nil {
				t.Stop()
				delete(s.patience, d.Task)
			}
			go s.execute(d.Task)
		case scheduler.Refuse:
			go s.refuse(d.Task)
		case scheduler.Wake:
			s.wake[d.Queue].Set()
		case scheduler.Gather:
			time.AfterFunc(scheduler.GatherFor, s.gathered)
		case scheduler.Fetch, scheduler.Wait, scheduler.Hold, scheduler.Delay: // the caller's own
		}
	}
}

func (s *slots) gathered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do(s.scheduler.Gathered(time.Now()))
}

// ---- Requests.

// fetch is a request that a queue may make.
type fetch struct {
	*scheduler.Request
	slots *slots
	timer *time.Timer // ends the reservation of slots; nil: none is reserved
}

// ask waits until a queue may fetch tasks. It returns false when the context ends.
func (s *slots) ask(ctx context.Context, q scheduler.QueueID) (f fetch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for waited := false; ; waited = true {
		decisions := s.scheduler.Asked(q, waited, time.Now())
		first := decisions[0]
		s.do(decisions)
		if first.Action == scheduler.Fetch {
			f = fetch{Request: first.Request, slots: s}
			if f.Reserved() {
				f.timer = time.AfterFunc(scheduler.ReservedFor, f.expire)
			}
			return f, true
		}
		wake := s.wake[q]
		s.mu.Unlock()
		sleep(ctx, wake, first.After)
		s.mu.Lock()
		if ctx.Err() != nil {
			s.scheduler.Left(q)
			return fetch{}, false
		}
	}
}

// sleep waits for a channel, for a time if that is not zero, or for the end of the context.
func sleep(ctx context.Context, wake <-chan struct{}, wait time.Duration) {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-wake:
	case <-over:
	case <-ctx.Done():
	}
}

// expire ends the reservation.
func (f fetch) expire() {
	f.slots.mu.Lock()
	defer f.slots.mu.Unlock()
	f.slots.do(f.slots.scheduler.Expired(f.Request, time.Now()))
}

// answered ends a request that has brought so many tasks.
func (f fetch) answered(taken int) {
	if f.timer != nil {
		f.timer.Stop()
	}
	f.slots.mu.Lock()
	defer f.slots.mu.Unlock()
	f.slots.do(f.slots.scheduler.Answered(f.Request, taken, time.Now()))
}

// unused releases the reserved slot of a task that needs none.
func (f fetch) unused() {
	f.slots.mu.Lock()
	defer f.slots.mu.Unlock()
	f.slots.do(f.slots.scheduler.Unused(f.Request, time.Now()))
}

// ---- Tasks.

// received assigns a slot to a task: at once, or within the patience, or never. The request is nil
// for a task that the worker has not requested. If the rate does not allow the task, received
// returns how long that takes, and calls neither execute nor refuse.
func (s *slots) received(q scheduler.QueueID, r *scheduler.Request, a *attempt, patience time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	decisions := s.scheduler.Received(q, r, a, time.Now())
	switch d := decisions[0]; d.Action {
	case scheduler.Delay:
		return d.After
	case scheduler.Hold:
		s.patience[a] = time.AfterFunc(patience, func() { s.timedOut(a) })
	default:
		s.do(decisions)
	}
	return 0
}

// timedOut refuses a task that has not got a slot.
func (s *slots) timedOut(a *attempt) {
	s.mu.Lock()
	refused := len(s.scheduler.TimedOut(a)) > 0
	if refused {
		delete(s.patience, a)
	}
	s.mu.Unlock()
	if refused {
		s.refuse(a)
	}
}

// freed frees a slot that was used for so long.
func (s *slots) freed(q scheduler.QueueID, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do(s.scheduler.Freed(q, took, time.Now()))
}

// close refuses all waiting tasks, and later ones that find no slot.
func (s *slots) close() {
	var refused []*attempt
	s.mu.Lock()
	for _, d := range s.scheduler.Closed() {
		s.patience[d.Task].Stop()
		delete(s.patience, d.Task)
		refused = append(refused, d.Task)
	}
	s.mu.Unlock()
	for _, a := range refused {
		s.refuse(a)
	}
}

// ---- Questions.

// hasRoom reports whether a direct delivery gets a slot at once, or soon.
func (s *slots) hasRoom(q scheduler.QueueID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scheduler.HasRoom(q)
}

// crowded reports whether enough tasks wait for slots.
func (s *slots) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scheduler.Crowded()
}

// used returns the number of used slots.
func (s *slots) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scheduler.Used()
}
