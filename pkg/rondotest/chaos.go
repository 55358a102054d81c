package rondotest

import (
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Chaos makes the system behave as badly as a real one may: answers are late, twice and in another
// order, batches are larger or smaller, and the process crashes before and after commits. The same
// seed gives the same chaos. The messages of clients keep their order, as in a real system.
func Chaos(seed uint64) Part {
	return option(func(s *settings) {
		s.chaos = &chaos{seed: seed, rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
	})
}

// chaos decides by chance what goes wrong.
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
	case *events.TaskDone, *events.TaskFailed, *events.TaskBegun, *events.TimerDue, *events.ChildDone,
		*events.ChildError, *events.Task:
		return true
	default:
	}
	return false
}

// post delays and duplicates.
func (c *chaos) post(q *queue, v *envelope) {
	if v.run == nil && c.chance(15) {
		twin := *v
		if again := q.now.Add(time.Duration(c.rand.IntN(3000)) * time.Millisecond); again.After(v.due) {
			twin.due = again
		}
		defer q.add(&twin)
	}
	if v.run == nil && answers(v) && c.chance(20) {
		late := q.now.Add(time.Duration(c.rand.IntN(1000)) * time.Millisecond)
		if late.After(v.due) {
			v.due = late
		}
	}
	q.add(v)
}

// pick chooses the next message: any answer, or the oldest one that clients have sent to an
// instance.
func (c *chaos) pick(ready []*envelope) int {
	i := c.rand.IntN(len(ready))
	v := ready[i]
	if v.run != nil || answers(v) {
		return i
	}
	for j, w := range ready[:i] {
		if w.run == nil && !answers(w) && w.message.Instance == v.message.Instance {
			return j
		}
	}
	return i
}

func (c *chaos) batch() int { return c.rand.IntN(4) }

// crash reports whether the process crashes now, and counts the crashes.
func (c *chaos) crash() bool {
	if c.crashes >= maxCrashes || !c.chance(5) {
		return false
	}
	c.crashes++
	return true
}
