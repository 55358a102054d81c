package rondotest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Chaos makes the system behave as badly as a real one may: answers come late, twice and in another
// order, batches are larger or smaller, and the process crashes before and after commits. The same
// seed gives the same chaos. What people send keeps its order, as it does in a real system.
func Chaos(seed uint64) Part {
	return option(func(e *Env) {
		e.chaos = &chaos{seed: seed, rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
		e.t.Cleanup(func() {
			if e.t.Failed() {
				e.t.Logf("rondotest: the chaos had seed %d", seed)
			}
		})
	})
}

type chaos struct {
	seed    uint64
	rand    *rand.Rand
	crashes int
}

// maxCrashes bounds the crashes, so that a test ends.
const maxCrashes = 200

func (c *chaos) chance(percent int) bool { return c.rand.IntN(100) < percent }

// answers reports whether an envelope comes from the services, whose messages keep no order.
func answers(v *envelope) bool {
	switch v.message.Content.(type) {
	case *events.WorkDone, *events.WorkFailed, *events.WorkBegun, *events.TimerDue, *events.ChildDone,
		*events.ChildError, *events.Work:
		return true
	}
	return false
}

// post delays and duplicates.
func (c *chaos) post(e *Env, v *envelope) {
	if v.run == nil && c.chance(15) {
		twin := *v
		if again := e.now.Add(time.Duration(c.rand.IntN(3000)) * time.Millisecond); again.After(v.due) {
			twin.due = again
		}
		defer e.queue(&twin)
	}
	if v.run == nil && answers(v) && c.chance(20) {
		late := e.now.Add(time.Duration(c.rand.IntN(1000)) * time.Millisecond)
		if late.After(v.due) {
			v.due = late
		}
	}
	e.queue(v)
}

// pick chooses what happens next: any answer, or the oldest of what people sent to one instance.
func (c *chaos) pick(e *Env) int {
	i := c.rand.IntN(len(e.ready))
	v := e.ready[i]
	if v.run != nil || answers(v) {
		return i
	}
	for j, w := range e.ready[:i] {
		if w.run == nil && !answers(w) && w.message.Instance == v.message.Instance {
			return j
		}
	}
	return i
}

func (c *chaos) batch() int { return c.rand.IntN(4) }

// crashBeforeCommit loses a turn: nothing of it was stored, and its messages come again.
func (c *chaos) crashBeforeCommit(e *Env, in *instance, batch []*envelope) bool {
	if c.crashes >= maxCrashes || !c.chance(5) {
		return false
	}
	c.crashes++
	e.crash(in)
	for i := len(batch) - 1; i >= 0; i-- { // in front of the others, in their order
		if batch[i].owner == "" && batch[i].sequence > 0 {
			e.ready = append([]*envelope{batch[i]}, e.ready...)
		}
	}
	if len(batch) > 0 && batch[0].sequence == 0 {
		e.publish(events.Message{Instance: in.id, Content: &events.Wake{Reason: fmt.Sprint("after crash ", c.crashes)}})
	}
	return true
}

// crashAfterCommit loses what followed a commit: the acknowledgements and the steps. What the turn
// has promised is published all the same, as the outbox does.
func (c *chaos) crashAfterCommit(e *Env, in *instance, batch []*envelope, turn round.Turn) bool {
	if c.crashes >= maxCrashes || turn.Again || !c.chance(5) {
		return false
	}
	c.crashes++
	e.crash(in)
	return true
}
