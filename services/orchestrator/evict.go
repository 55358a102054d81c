package orchestrator

import "time"

// evict forgets an instance's code; its messages stay.
func (l *loop) evict(e *entry) {
	if e.live != nil {
		l.unwind(e)
		e.live = nil
		l.alive--
		l.weigh(e)
	}
}

// unwindFor is how long the loop waits for code that is forgotten: its deferred calls run, and they
// are the author's.
const unwindFor = 10 * time.Millisecond

// unwind ends the coroutines of an instance. If a deferred call blocks, the loop goes on without
// it.
func (l *loop) unwind(e *entry) {
	if !e.live.Hydrated() {
		return
	}
	live, done := e.live, make(chan struct{})
	go func() {
		defer close(done)
		live.Evict()
	}()
	late := time.NewTimer(unwindFor)
	defer late.Stop()
	select {
	case <-done:
		return
	case <-late.C: // it takes longer, or the machine has much else to do
	}
	log := l.of(e)
	time.AfterFunc(l.o.config.RunawayAfter, func() {
		select {
		case <-done:
		default:
			log.Error("deferred code of an instance does not come back when it is forgotten: it must not block; " +
				"going on without it")
		}
	})
}

// forget forgets an instance that nothing waits for.
func (l *loop) forget(e *entry) {
	l.unrest(e)
	l.evict(e)
	if l.o.steps.has(e.id) { // it moves: who has its partition now shall run them
		l.o.steps.drop(e.id)
		l.o.wakeElsewhere(e.id)
	}
	delete(l.entries, e.id)
}

// forgetAll ends the coroutines of all instances but those that deciders have: see
// [loop.forgetRest].
func (l *loop) forgetAll() {
	for _, e := range l.entries {
		if e.stage != deciding {
			l.evict(e)
		}
	}
}

// forgetRest ends the coroutines of instances that no decider has begun with, or whose decisions
// were not taken. The loop and the deciders have ended; a decider that has not will do it itself.
func (l *loop) forgetRest() {
	for {
		select {
		case e := <-l.o.deciders.jobs:
			l.evict(e)
		case d := <-l.decided:
			l.evict(d.entry)
		default:
			return
		}
	}
}
