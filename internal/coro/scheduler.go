package coro

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// scheduler runs the branches of one execution, one at a time, in the order in which they were made
// ready. It also guards the calls of the code: code that was stopped does not come back from one.
type scheduler struct {
	interrupt  *atomic.Bool
	coroutines *Coroutines
	checked    bool // each call of the code's must come from the goroutine of the current branch

	current  *branch
	ready    []*branch // [next:] are to run, in order
	next     int
	branches []*branch // all that have not ended
	ops      int       // calls of the code since it has waited last

	failure *failure.Error // the code must be stopped because of this
	dead    bool           // unwinding: no call of the code's comes back
}

// branch is one coroutine.
type branch struct {
	task  *Task // what others wait for; nil for the main branch
	index int   // in scheduler.branches
	on    *coroutine
	// goroutine is the one that runs the branch, if calls are checked.
	goroutine string
}

// unwound is the panic that carries the end of a coroutine over its edge when it did not return.
type unwound struct{}

// exit ends the current coroutine. Its deferred calls run, but nothing in it can hold the end up:
// recover does not see it.
func exit() { runtime.Goexit() }

// take returns the next branch that is to run; nil if there is none.
func (s *scheduler) take() *branch {
	if s.next == len(s.ready) {
		s.ready, s.next = s.ready[:0], 0
		return nil
	}
	if s.dead {
		return nil
	}
	b := s.ready[s.next]
	s.ready[s.next] = nil
	s.next++
	return b
}

// step runs one branch until it parks (true) or has ended (false).
func (s *scheduler) step(b *branch) (more bool) {
	s.current = b
	more = s.resume(b)
	s.current = nil
	return more
}

// resume switches to a coroutine and comes back when it parks (true) or has ended (false).
func (s *scheduler) resume(b *branch) (more bool) {
	defer func() {
		if r := recover(); r != nil && r != (unwound{}) {
			panic(r)
		}
	}()
	return b.on.resume()
}

// unwind ends the coroutine of a branch.
func (s *scheduler) unwind(b *branch) {
	defer func() {
		s.current = nil
		if r := recover(); r != nil && r != (unwound{}) {
			panic(r)
		}
	}()
	s.current = b
	b.on.stop()
}

// remove forgets a branch that has ended.
func (s *scheduler) remove(b *branch) {
	last := len(s.branches) - 1
	s.branches[b.index] = s.branches[last]
	s.branches[b.index].index = b.index
	s.branches[last] = nil
	s.branches = s.branches[:last]
}

// spawn makes a branch and queues it.
func (s *scheduler) spawn(t *Task, run func()) {
	b := &branch{task: t, index: len(s.branches)}
	s.branches = append(s.branches, b)
	b.on = s.coroutines.begin(func() (clean bool) {
		defer func() {
			switch r := recover(); {
			case r != nil:
				s.fail(panicError(r, debug.Stack()))
			case clean:
			default:
				// runtime.Goexit was called: by the program itself (see exit), or by the code, as
				// t.FailNow does. It would go on to end the goroutine that runs the round, unless a
				// panic takes its place at the coroutine's edge.
				if !s.dead {
					s.fail(&failure.Error{Kind: failure.Panicked, NonRetryable: true, Stack: string(debug.Stack()),
						Message: "the code called runtime.Goexit (t.FailNow does); return an error instead"})
				}
				panic(unwound{})
			}
		}()
		if s.checked {
			b.goroutine = goroutine()
		}
		run()
		return true
	})
	s.ready = append(s.ready, b)
}

func panicError(r any, stack []byte) *failure.Error {
	e := &failure.Error{Kind: failure.Panicked, NonRetryable: true, Stack: string(stack)}
	switch r := r.(type) {
	case string:
		e.Message = "panic: " + r
	default:
		e.Message = "panic: " + sprint(r) // which bears with an Error or String that panics
	}
	return events.Bounded(e)
}

// park hands control back until the branch is made ready again.
func (s *scheduler) park() {
	b := s.current
	if !b.on.yield(true) || s.dead {
		s.dead = true
		exit()
	}
	s.ops = 0
}

// enter guards every call of the code's. It ends the caller only if that is a branch which is being
// unwound: exit would end the coroutine of another instance without its true reason.
func (s *scheduler) enter() {
	switch {
	case s.current == nil, s.checked && s.current.goroutine != goroutine():
		panic("an orchestration.Context was used outside of its orchestration (from a goroutine of yours, or after " +
			"it ended); use orchestration.Go for concurrency")
	case s.dead:
		exit()
	}
	s.ops++
	switch {
	case s.interrupt != nil && s.interrupt.Load():
		s.stopCode(&failure.Error{Kind: failure.Runaway, NonRetryable: true,
			Message: "the code ran for too long without waiting for anything; move long computations into an activity"})
	case s.ops > events.MaxTurnOperations:
		s.stopCode(&failure.Error{Kind: failure.Runaway, NonRetryable: true,
			Message: sprintf("the code made %d calls without waiting for anything; is there a loop that never waits?",
				s.ops-1)})
	}
}

// goroutine names the goroutine that runs this. That takes microseconds.
func goroutine() string {
	var buf [40]byte
	text := string(buf[:runtime.Stack(buf[:], false)]) // goroutine 7 [running]: …
	name, _, _ := strings.Cut(text, " [")
	return name
}

// fail stops the execution from now on.
func (s *scheduler) fail(e *failure.Error) {
	if s.failure == nil {
		s.failure = e
	}
	s.dead = true
}

// stopCode is fail from within the code: it does not return.
func (s *scheduler) stopCode(e *failure.Error) {
	s.fail(e)
	exit()
}

// check unwinds the code if its last call was refused.
func (s *scheduler) check() {
	if s.dead {
		exit()
	}
}
