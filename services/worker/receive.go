package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/events"
)

// queue is the work of one activity with one tag.
type queue struct {
	name broker.Queue
	line *line

	mu  sync.Mutex
	err error // why nothing can be taken from it just now
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

// receive takes from all queues.
func (r *run) receive() {
	for _, tag := range r.config.Tags.first() {
		for _, name := range r.code.Names() {
			r.add(broker.Queue{Tag: tag, Activity: name})
		}
	}
	if r.config.Tags.kind == anyTag {
		r.takers.Go(r.discover)
	}
}

// add begins to take from a queue.
func (r *run) add(name broker.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queues[name] != nil {
		return
	}
	q := &queue{name: name, line: r.limits.line(name),
		err: fmt.Errorf("the queue of activity %q, tag %q is not open yet", name.Activity, name.Tag)}
	r.queues[name] = q
	r.takers.Go(func() { r.takeFrom(q) })
}

// discover looks for tags that somebody has put work under.
func (r *run) discover() {
	tick := time.NewTicker(r.config.Discover)
	defer tick.Stop()
	for {
		queues, err := r.bus.Queues(r.taking)
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

// takeFrom takes from a queue until the worker drains.
func (r *run) takeFrom(q *queue) {
	for failed := 0; r.taking.Err() == nil; failed++ {
		work, err := r.bus.OpenQueue(r.taking, q.name)
		if err == nil {
			var took bool
			if took, err = r.takeAll(q, work); took {
				failed = 0
			}
		}
		if r.taking.Err() != nil {
			return
		}
		delay := min(100*time.Millisecond<<min(failed, 6), 5*time.Second)
		if errors.Is(err, broker.ErrNoQueue) { // an orchestrator makes it with the first work
			if failed == 0 {
				r.log.Info("worker: there has been no work for an activity yet", "activity", q.name.Activity, "tag",
					q.name.Tag, "error", err)
			}
			q.setProblem(nil)
			delay = r.config.Discover
		} else {
			q.setProblem(err)
			r.log.Warn("worker: cannot take work; trying on", "activity", q.name.Activity, "tag", q.name.Tag, "error",
				err, "after", delay)
		}
		select {
		case <-time.After(delay):
		case <-r.taking.Done():
		}
	}
}

// takeAll takes from an open queue until something goes wrong.
func (r *run) takeAll(q *queue, work broker.WorkQueue) (took bool, err error) {
	stop, err := work.Offer(r.config.ID, func(d broker.Delivery) bool { return r.passed(q, d) })
	if err != nil {
		return false, err
	}
	defer stop()
	q.setProblem(nil)
	for {
		g := r.limits.ask(r.taking, q.line)
		if g == nil {
			return took, nil
		}
		n, err := work.Take(r.taking, g.n, func(d broker.Delivery) { r.arrive(q, g, d) })
		g.close(n)
		if err != nil || r.taking.Err() != nil {
			return took, err
		}
		took = true
	}
}

// arrive takes a delivery in.
func (w *Worker) arrive(q *queue, g *grant, d broker.Delivery) {
	a := w.read(q, d)
	w.config.Metrics.Delivered(a.measured(), d.NumDelivered > 1, false)
	if w.held.add(a) == joined {
		g.unused()
		return
	}
	after := w.limits.arrive(q.line, g, standFor, func() { w.execute(a) }, func() { a.giveBack(0) })
	if after > 0 {
		w.limited(a, after)
	}
}

// passed takes in work that comes past the broker, if there is room for it. What it does not take
// waits in the broker for whoever has.
func (w *Worker) passed(q *queue, d broker.Delivery) bool {
	if w.draining.Load() || len(d.Header[events.HeaderSession]) > 0 || !w.limits.hasRoom(q.line) {
		return false
	}
	a := w.read(q, d)
	if a.unreadable != nil {
		return false
	}
	w.config.Metrics.Delivered(a.measured(), false, false)
	if w.held.add(a) == joined {
		return true
	}
	after := w.limits.arrive(q.line, nil, standFor, func() { w.execute(a) }, func() { a.giveBack(0) })
	if after > 0 {
		w.limited(a, after)
	}
	return true
}

// limited gives back work that the rate does not allow to begin.
func (w *Worker) limited(a *attempt, after time.Duration) {
	w.config.Metrics.RateLimited(a.q.name.Activity)
	a.giveBack(after)
}

// read makes an attempt of a delivery. What cannot be read becomes one, too, that says why.
func (w *Worker) read(q *queue, d broker.Delivery) *attempt {
	a := &attempt{w: w, q: q, d: d, holds: []broker.Hold{d.Hold}, since: time.Now()}
	a.extendedAt = a.since
	m, err := events.Decode(w.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err == nil {
		work, ok := m.Content.(*events.Work)
		switch {
		case !ok:
			err = fmt.Errorf("a message that says %T is no work", m.Content)
		case work.Activity != q.name.Activity:
			err = fmt.Errorf("work for activity %q is in the queue of %q", work.Activity, q.name.Activity)
		default:
			a.m, a.work, a.last = m, work, work.Heartbeat
		}
	}
	a.unreadable = err
	return a
}

// handedOver takes in what another worker has passed on because of its session. It may stand for
// longer: nobody else may have it.
func (w *Worker) handedOver(d broker.Delivery) error {
	switch {
	case first(d.Header[events.HeaderHeld]) == w.config.ID:
		return w.mine(d)
	case w.draining.Load():
		return errors.New("it drains")
	case w.limits.crowded():
		return errors.New("it has as much to do as it can hold")
	}
	m, err := events.Decode(w.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	work, ok := m.Content.(*events.Work)
	if err != nil || !ok {
		return errors.New("it is no work") // the receiver dead-letters it
	}
	w.mu.Lock()
	q := w.queues[broker.Queue{Tag: work.Tag, Activity: work.Activity}]
	w.mu.Unlock()
	if q == nil {
		return fmt.Errorf("activity %q, tag %q is not executed here", work.Activity, work.Tag)
	}
	if !w.sessions.enterOwn(work.Session) {
		return fmt.Errorf("session %q is not here any more", work.Session)
	}
	a := &attempt{w: w, q: q, d: d, m: m, work: work, last: work.Heartbeat, holds: []broker.Hold{d.Hold},
		since: time.Now(), inSession: true}
	a.extendedAt = a.since
	w.config.Metrics.Delivered(a.measured(), d.NumDelivered > 1, true)
	if w.held.add(a) == joined {
		w.sessions.leave(work.Session)
		return nil
	}
	after := w.limits.arrive(q.line, nil, w.wait/2, func() {
		w.execute(a)
	}, func() { a.giveBack(sessionDelay(d.NumDelivered)) })
	if after > 0 {
		w.limited(a, after)
	}
	return nil
}

// ---- What is held.

// held is everything a worker holds, from the delivery to the acknowledgement.
type held struct {
	mu      sync.Mutex
	byName  map[string]*attempt // by subject; those of the same subject are linked
	n       int
	stuck   map[*attempt]struct{}
	waiters []chan struct{} // closed when nothing is held
}

func newHeld() *held {
	return &held{byName: make(map[string]*attempt), stuck: make(map[*attempt]struct{})}
}

type added int

const (
	kept added = iota
	joined
)

// add takes an attempt in. If the same work is here already, handed out a second time, there is one
// more acknowledgement to be made, and nothing to be executed.
func (h *held) add(a *attempt) added {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.byName[a.d.Subject]
	for b := first; b != nil; b = b.next {
		if a.sameAs(b) && b.join(a.d.Hold) {
			return joined
		}
	}
	a.next = first
	h.byName[a.d.Subject] = a
	h.n++
	return kept
}

// remove lets an attempt go.
func (h *held) remove(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.byName[a.d.Subject]
	if at == a {
		if a.next == nil {
			delete(h.byName, a.d.Subject)
		} else {
			h.byName[a.d.Subject] = a.next
		}
	} else {
		for at != nil && at.next != a {
			at = at.next
		}
		if at == nil {
			return
		}
		at.next = a.next
	}
	a.next = nil
	if h.n--; h.n == 0 {
		for _, c := range h.waiters {
			close(c)
		}
		h.waiters = nil
	}
}

// all lists what is held.
func (h *held) all() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*attempt, 0, h.n)
	for _, a := range h.byName {
		for ; a != nil; a = a.next {
			all = append(all, a)
		}
	}
	return all
}

// of lists what is held of a subject.
func (h *held) of(subject string) (all []*attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a := h.byName[subject]; a != nil; a = a.next {
		all = append(all, a)
	}
	return all
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// waitEmpty waits until nothing is held, and reports whether that is so.
func (h *held) waitEmpty(patience time.Duration) bool {
	h.mu.Lock()
	if h.n == 0 {
		h.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	h.waiters = append(h.waiters, empty)
	h.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-empty:
		return true
	case <-timer.C:
		return false
	}
}

// ---- Functions that do not return.

func (h *held) lost(a *attempt) {
	h.mu.Lock()
	h.stuck[a] = struct{}{}
	h.mu.Unlock()
}

func (h *held) returned(a *attempt) {
	h.mu.Lock()
	delete(h.stuck, a)
	h.mu.Unlock()
}

func (h *held) countStuck() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.stuck)
}

// stuckOnes lists the functions that were given up and still run, the oldest first.
func (h *held) stuckOnes() []process.Held {
	h.mu.Lock()
	stuck := make([]*attempt, 0, len(h.stuck))
	for a := range h.stuck {
		stuck = append(stuck, a)
	}
	h.mu.Unlock()
	out := make([]process.Held, len(stuck))
	for i, a := range stuck {
		out[i] = a.status()
	}
	slices.SortFunc(out, func(a, b process.Held) int { return a.Since.Compare(b.Since) })
	return out
}

// keepEvery is how often it is looked after what is held.
func (w *Worker) keepEvery() time.Duration {
	return min(max(w.wait/12, 20*time.Millisecond), 500*time.Millisecond)
}

// keep looks after what is held until the context ends: leases, progress to be noted, and whether
// it is still wanted.
func (w *Worker) keep(ctx context.Context) {
	tick := time.NewTicker(w.keepEvery())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.keptAt.Store(now.UnixNano())
			w.awake.Tick(now)
			for _, a := range w.held.all() {
				a.lookAfter(now)
			}
		}
	}
}
