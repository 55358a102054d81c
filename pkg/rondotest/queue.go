package rondotest

import (
	"container/heap"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// envelope is a message in flight, or another future event.
type envelope struct {
	sequence             int
	subject              string
	message              events.Message
	due                  time.Time // zero: at once
	attempts, deliveries int
	sent                 time.Time
	// when a start is to happen, zero for at once; due is when it comes, which chaos may delay
	later time.Time
	run   func() // instead of a message: the end of an activity, an inline step
	owner string // the owner of its memory: gone when that crashes
	why   string // it is parked
	name  string // its name in messages about a system that is stuck
}

func (v *envelope) isTask() bool {
	_, ok := v.message.Content.(*events.Task)
	return ok
}

func (v *envelope) isStart() bool {
	_, ok := v.message.Content.(*events.Start)
	return ok
}

// envelopes is a heap, the earliest first.
type envelopes []*envelope

func (h envelopes) Len() int { return len(h) }
func (h envelopes) Less(i, j int) bool {
	return h[i].due.Before(h[j].due) || h[i].due.Equal(h[j].due) && h[i].sequence < h[j].sequence
}
func (h envelopes) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *envelopes) Push(x any)   { *h = append(*h, x.(*envelope)) }
func (h *envelopes) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// queue holds the virtual clock and the envelopes that are not processed yet. Each envelope is in
// one of three places: in ready if it is due, in delayed if its time comes later, in parked if it
// waits for code. Each has a sequence number of its own.
type queue struct {
	now      time.Time
	ready    []*envelope // in the order in which they became due
	delayed  envelopes
	parked   []*envelope
	sequence int            // the last number
	purged   map[string]int // subjects, with the sequence up to which they were purged
}

// number gives the next sequence number.
func (q *queue) number() int {
	q.sequence++
	return q.sequence
}

// add queues an envelope for when it is due.
func (q *queue) add(v *envelope) {
	if v.sequence == 0 {
		v.sequence = q.number()
	}
	if v.due.After(q.now) {
		heap.Push(&q.delayed, v)
	} else {
		q.ready = append(q.ready, v)
	}
}

// take removes a ready envelope.
func (q *queue) take(i int) *envelope {
	v := q.ready[i]
	q.ready = slices.Delete(q.ready, i, i+1)
	return v
}

// takeFor removes the ready messages for an instance, at most so many. Tasks are not for instances.
func (q *queue) takeFor(instance string, most int) []*envelope {
	var batch, rest []*envelope
	for _, v := range q.ready {
		if v.run == nil && v.message.Instance == instance && !v.isTask() && len(batch) < most {
			if !q.isPurged(v) {
				batch = append(batch, v)
			}
			continue
		}
		rest = append(rest, v)
	}
	q.ready = rest
	return batch
}

// putBack puts envelopes in front of the others, in their order.
func (q *queue) putBack(batch []*envelope) { q.ready = slices.Concat(batch, q.ready) }

// purge removes the messages of a subject.
func (q *queue) purge(subject string) { q.purged[subject] = q.sequence }

func (q *queue) isPurged(v *envelope) bool { return v.sequence <= q.purged[v.subject] }

// drop removes what an instance has in memory.
func (q *queue) drop(owner string) {
	owned := func(v *envelope) bool { return v.owner == owner }
	q.ready = slices.DeleteFunc(q.ready, owned)
	q.delayed = slices.DeleteFunc(q.delayed, owned)
	heap.Init(&q.delayed)
}

// has reports whether an envelope of this name will be processed.
func (q *queue) has(name string) bool {
	named := func(v *envelope) bool { return v.name == name }
	return slices.ContainsFunc(q.ready, named) || slices.ContainsFunc(q.delayed, named)
}

// isDelayedStart reports whether an envelope is a start that is not due yet.
func (q *queue) isDelayedStart(v *envelope) bool { return v.isStart() && v.later.After(q.now) }

// replaceDelayed removes the delayed starts of the same instance that are not due yet: the last one
// counts.
func (q *queue) replaceDelayed(by *envelope) {
	q.delayed = slices.DeleteFunc(q.delayed, func(v *envelope) bool {
		return v.run == nil && v.message.Instance == by.message.Instance && v.message.ID != by.message.ID &&
			q.isDelayedStart(v)
	})
	heap.Init(&q.delayed)
}

// nextDue is when the first delayed envelope is due, zero if there is none.
func (q *queue) nextDue() time.Time {
	for len(q.delayed) > 0 && q.delayed[0].run == nil && q.isPurged(q.delayed[0]) {
		heap.Pop(&q.delayed)
	}
	if len(q.delayed) == 0 {
		return time.Time{}
	}
	return q.delayed[0].due
}

// moveTo moves the clock, which never goes back.
func (q *queue) moveTo(at time.Time) {
	if at.After(q.now) {
		q.now = at
	}
}

// release makes the delayed envelopes ready that are due by now.
func (q *queue) release() {
	for len(q.delayed) > 0 && !q.delayed[0].due.After(q.now) {
		q.ready = append(q.ready, heap.Pop(&q.delayed).(*envelope))
	}
}

// park keeps a message until there is code for it.
func (q *queue) park(v *envelope, why string) {
	v.why = why
	q.parked = append(q.parked, v)
}

// unpark queues all parked messages again.
func (q *queue) unpark() {
	parked := q.parked
	q.parked = nil
	for _, v := range parked {
		v.due = time.Time{}
		q.add(v)
	}
}

// whyParked says why the start of an instance waits for a deployment, "" if it does not.
func (q *queue) whyParked(instance string) string {
	for _, v := range q.parked {
		if v.isStart() && v.message.Instance == instance {
			return v.why
		}
	}
	return ""
}
