package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker/scheduler"
)

// queue is the task queue of one activity with one tag.
type queue struct {
	name broker.TaskQueueName
	id   scheduler.QueueID

	mu  sync.Mutex
	err error // why the worker cannot take tasks from it now
}

func (q *queue) problem() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *queue) setProblem(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
}

// receive takes tasks from all queues.
func (r *run) receive() {
	for _, tag := range r.config.Tags.first() {
		for _, name := range r.code.Names() {
			r.add(broker.TaskQueueName{Tag: tag, Activity: name})
		}
	}
	if r.config.Tags.kind == anyTag {
		r.takers.Go(r.discover)
	}
}

// add begins to take tasks from a queue.
func (r *run) add(name broker.TaskQueueName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queues[name] != nil {
		return
	}
	q := &queue{name: name, id: r.slots.add(name),
		err: fmt.Errorf("the queue of activity %q, tag %q is not open yet", name.Activity, name.Tag)}
	r.queues[name] = q
	r.takers.Go(func() { r.takeFrom(q) })
}

// discover looks for tags of published tasks.
func (r *run) discover() {
	tick := time.NewTicker(r.config.Discover)
	defer tick.Stop()
	for {
		queues, err := r.bus.ListTaskQueues(r.taking)
		if err != nil && r.taking.Err() == nil {
			r.log.Warn("worker: cannot look for new tags", "error", err)
		}
		for _, q := range queues {
			if _, ok := r.code.Lookup(q.Activity); ok {
				r.add(q)
			}
		}
		select {
		case <-tick.C:
		case <-r.taking.Done():
			return
		}
	}
}

// takeFrom takes tasks from a queue until the worker drains.
func (r *run) takeFrom(q *queue) {
	for failed := 0; r.awaitUnpaused(); failed++ {
		work, err := r.bus.OpenTaskQueue(r.taking, q.name)
		if err == nil {
			var took bool
			if took, err = r.takeAll(q, work); took {
				failed = 0
			}
		}
		if r.taking.Err() != nil {
			return
		}
		if errors.Is(err, errPaused) {
			failed = -1
			continue
		}
		delay := backoff.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}.After(failed)
		if errors.Is(err, broker.ErrNoTaskQueue) { // an orchestrator creates it with the first task
			if failed == 0 {
				r.log.Info("worker: there has been no work for an activity yet", "activity", q.name.Activity, "tag",
					q.name.Tag, "error", err)
			}
			q.setProblem(nil)
			delay = r.config.Discover
		} else {
			q.setProblem(err)
			r.log.Warn("worker: tasks cannot be received; retrying",
				"activity", q.name.Activity, "tag", q.name.Tag, "error", err, "after", delay)
		}
		select {
		case <-time.After(delay):
		case <-r.taking.Done():
		}
	}
}

// errPaused reports that the worker takes no tasks now.
var errPaused = errors.New("the worker is paused")

const (
	// pausedAgain is the interval at which a paused worker looks whether it may take tasks again.
	pausedAgain = 100 * time.Millisecond
	// pausedFor is the delay of the redelivery of a task that a paused worker has received.
	pausedFor = time.Second
)

// awaitUnpaused reports true once the worker may take tasks, and false when it drains.
func (r *run) awaitUnpaused() bool {
	for r.taking.Err() == nil {
		if r.config.Paused() == nil {
			return true
		}
		sleep(r.taking, nil, pausedAgain)
	}
	return false
}

// takeAll takes tasks from an open queue until an error.
func (r *run) takeAll(q *queue, work broker.TaskQueue) (took bool, err error) {
	stop, err := work.Offer(r.config.ID, func(d broker.Delivery) bool { return r.passed(q, d) })
	if err != nil {
		return false, err
	}
	defer stop()
	q.setProblem(nil)
	for {
		if r.config.Paused() != nil {
			return took, errPaused
		}
		f, ok := r.slots.ask(r.taking, q.id)
		if !ok {
			return took, nil
		}
		n, err := work.Take(r.taking, f.N, func(d broker.Delivery) { r.arrive(q, f, d) })
		f.answered(n)
		if err != nil || r.taking.Err() != nil {
			return took, err
		}
		took = true
	}
}

// arrive accepts a delivery.
func (w *Worker) arrive(q *queue, f fetch, d broker.Delivery) {
	a := w.read(q, d)
	w.config.Metrics.Tasks().Delivered(a.measured(), d.NumDelivered > 1, false)
	if w.held.add(a) == joined {
		f.unused()
		return
	}
	if after := w.slots.received(q.id, f.Request, a, scheduler.Patience); after > 0 {
		w.settler.limited(a, after)
	}
}

// passed accepts a direct delivery if there is room for it. Otherwise the publisher stores the task
// for any worker with room.
func (w *Worker) passed(q *queue, d broker.Delivery) bool {
	if w.draining.Load() || w.config.Paused() != nil || len(d.Header[events.HeaderSession]) > 0 ||
		!w.slots.hasRoom(q.id) {
		return false
	}
	a := w.read(q, d)
	if a.unreadable != nil {
		return false
	}
	w.config.Metrics.Tasks().Delivered(a.measured(), false, false)
	if w.held.add(a) == joined {
		return true
	}
	if after := w.slots.received(q.id, nil, a, scheduler.Patience); after > 0 {
		w.settler.limited(a, after)
	}
	return true
}

// read makes an attempt of a delivery. If the task cannot be decoded, the attempt has the error.
func (w *Worker) read(q *queue, d broker.Delivery) *attempt {
	a := newAttempt(q, d, w.log)
	m, err := events.Decode(w.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err == nil {
		work, ok := m.Content.(*events.Task)
		switch {
		case !ok:
			err = fmt.Errorf("a message that says %T is no work", m.Content)
		case work.Activity != q.name.Activity:
			err = fmt.Errorf("work for activity %q is in the queue of %q", work.Activity, q.name.Activity)
		default:
			a.decoded(m, work)
		}
	}
	a.unreadable = err
	return a
}

// handedOver accepts a delivery that another worker has handed over because of its session. It may
// wait longer for a slot, because no other worker may execute it.
func (w *Worker) handedOver(d broker.Delivery) error {
	switch {
	case first(d.Header[events.HeaderHeld]) == w.config.ID:
		return w.mine(d)
	case w.draining.Load():
		return errors.New("it drains")
	case w.slots.crowded():
		return errors.New("it has as much to do as it can hold")
	}
	m, err := events.Decode(w.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	work, ok := m.Content.(*events.Task)
	if err != nil || !ok {
		return errors.New("it is no work") // the receiver dead-letters it
	}
	w.mu.Lock()
	q := w.queues[broker.TaskQueueName{Tag: work.Tag, Activity: work.Activity}]
	w.mu.Unlock()
	if q == nil {
		return fmt.Errorf("activity %q, tag %q is not executed here", work.Activity, work.Tag)
	}
	if !w.sessions.enterOwn(work.Session) {
		return fmt.Errorf("session %q is not here any more", work.Session)
	}
	a := newAttempt(q, d, w.log)
	a.decoded(m, work)
	a.inSession = true
	w.config.Metrics.Tasks().Delivered(a.measured(), d.NumDelivered > 1, true)
	if w.held.add(a) == joined {
		w.sessions.leave(work.Session)
		return nil
	}
	if after := w.slots.received(q.id, nil, a, w.wait/2); after > 0 {
		w.settler.limited(a, after)
	}
	return nil
}

// execute processes an attempt that has a slot, until its completion is published. It is the
// attempt's goroutine.
func (w *Worker) execute(a *attempt) {
	returned, began := false, time.Now()
	defer func() {
		if !returned { // runtime.Goexit, which cannot be stopped, only noticed
			w.executor.end(a, nil, goexited)
		}
		w.slots.freed(a.q.id, time.Since(began))
	}()
	if w.admission.admit(a) {
		result, err := w.executor.run(a)
		w.executor.end(a, result, err)
	}
	returned = true
}

// keepEvery is the interval at which the worker looks after the held tasks.
func (w *Worker) keepEvery() time.Duration {
	return min(max(w.wait/12, 20*time.Millisecond), 500*time.Millisecond)
}

// keep looks after the held tasks until the context ends: their ack waits, progress to note, and
// whether they are still wanted.
func (w *Worker) keep(ctx context.Context) {
	tick := time.NewTicker(w.keepEvery())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.keptAt.Set(now)
			w.awake.Tick(now)
			for _, a := range w.held.all() {
				if a.extend(now, w.wait/3) {
					w.withdrawals.wonder(a)
				}
				w.notes.keep(a, now)
			}
		}
	}
}
