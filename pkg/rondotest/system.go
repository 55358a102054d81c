package rondotest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/round"
)

// system is the parts of a system in memory. It processes one envelope at a time, and moves the
// clock only when nothing is due.
type system struct {
	settings     settings
	queue        queue
	broker       broker
	store        store
	orchestrator orchestrator
	workers      workers
	jobs         jobQueues
	report       report
	problems     problems
}

func newSystem(now time.Time) *system {
	s := &system{
		queue:  queue{now: now, purged: make(map[string]int)},
		jobs:   jobQueues{digests: make(map[string]string), items: make(map[string][]jobpush.Pushed)},
		report: report{decided: make(map[string]decided), changed: make(map[string]bool)},
	}
	s.settings.config.MaxAttempts = 1000 // chaos crashes more often than reality
	s.settings.config.ShowPayloads, s.settings.config.CheckGoroutines = true, true
	s.store = store{instances: make(map[string]*instance), problems: &s.problems}
	s.broker = broker{settings: &s.settings, queue: &s.queue, problems: &s.problems, published: make(map[string]string)}
	s.orchestrator = orchestrator{settings: &s.settings, queue: &s.queue, broker: &s.broker, store: &s.store,
		report: &s.report, problems: &s.problems}
	s.workers = workers{settings: &s.settings, queue: &s.queue, broker: &s.broker, store: &s.store,
		problems: &s.problems, pending: make(map[string]events.Task)}
	return s
}

// step lets one thing happen, and reports whether there was one.
func (s *system) step() bool {
	for len(s.queue.ready) > 0 {
		i := 0
		if c := s.settings.chaos; c != nil {
			i = c.pick(s.queue.ready)
		}
		v := s.queue.take(i)
		switch {
		case v.run != nil:
			v.run()
		case s.queue.isPurged(v):
			continue
		case v.isTask():
			s.workers.take(v)
		default:
			s.orchestrator.round(v)
		}
		return true
	}
	return false
}

// settle lets everything happen that is due.
func (s *system) settle() {
	for s.step() {
	}
}

// skip moves the clock to the next thing that is due, if that is not after the limit, and reports
// whether there was one.
func (s *system) skip(limit time.Time) bool {
	at := s.queue.nextDue()
	swept := s.store.nextSweep()
	if swept != nil && (at.IsZero() || swept.row.WakeAt.Before(at)) {
		at = swept.row.WakeAt
	} else {
		swept = nil
	}
	if at.IsZero() || !limit.IsZero() && at.After(limit) {
		return false
	}
	s.queue.moveTo(at)
	if swept != nil {
		swept.sweep = false
		s.broker.publish(events.Message{Instance: swept.id, Content: &events.Wake{Reason: "sweep"}})
		return true
	}
	s.queue.release()
	return true
}

// runUntil runs the system until done holds, skipping the time in which nothing happens. An error
// tells why an instance will never get there.
func (s *system) runUntil(ctx context.Context, id string, done func() bool) error {
	for !done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !s.step() && !s.skip(time.Time{}) {
			return s.stuck(id)
		}
	}
	return nil
}

func (s *system) forgetAll() { s.store.each((*instance).forget) }

// stuck says why nothing more happens.
func (s *system) stuck(id string) error {
	in := s.store.instances[id]
	if why := s.queue.whyParked(id); why != "" {
		return fmt.Errorf("rondotest: the start of %q waits: %s", id, why)
	}
	if in == nil || in.row.Execution == 0 {
		return fmt.Errorf("rondotest: there is no instance %q; was it started?", id)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rondotest: instance %q is %s, and nothing more will happen", id, in.row.Status)
	if in.row.Error != nil {
		fmt.Fprintf(&b, ": %v", in.row.Error)
	}
	waiting, _, err := round.Waiting(in.known())
	if err != nil {
		return err
	}
	for _, w := range waiting {
		fmt.Fprintf(&b, "\n  it waits for %s (event %d)", w.What, w.Event)
		if _, ok := s.workers.bound[w.Name]; w.Kind == round.WaitsForActivity && !ok {
			fmt.Fprintf(&b, ", which is not registered in this test")
		}
		if why := s.queue.whyParked(w.Instance); why != "" && w.Kind == round.WaitsForChild {
			fmt.Fprintf(&b, ", whose start waits: %s", why)
		}
	}
	return errors.New(b.String())
}
