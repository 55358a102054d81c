package round

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/x/smallmap"
)

// calls are the open calls of an execution: what its code has started and has no answer to.
type calls struct {
	open     smallmap.Map[*open]
	awaited  int   // open activities and children whose answers the services owe
	waits    waits // open event waits
	due      dueHeap
	answered []closedOpen // by the last event
}

// openUp adds a call.
func (c *calls) openUp(id int64, o *open, now time.Time) {
	o.since = now
	if o.asked == nil {
		o.asked = &nothingAsked
	}
	c.open.Set(id, o)
	if o.owed() {
		c.awaited++
	}
	c.schedule(id, o)
}

// find returns the open call of an event. It is an error of history if there is none.
func (c *calls) find(id int64, kind openKind) (*open, error) {
	o := c.open.Get(id)
	if o == nil || o.kind != kind {
		return nil, fmt.Errorf("history answers event %d, which is not open", id)
	}
	return o, nil
}

// begin notes that a worker has begun an activity, or that another program completes it. It reports
// whether the activity is due at another time now.
func (c *calls) begin(id int64, pending bool) (retimed bool) {
	o := c.open.Get(id)
	before := o.next()
	o.begun = true
	if pending && !o.pending {
		o.pending = true
		c.awaited--
	}
	if o.next().Equal(before) {
		return false
	}
	c.schedule(id, o)
	return true
}

// settle closes an open call because it is answered.
func (c *calls) settle(id int64) {
	c.answered = append(c.answered, closedOpen{id, c.shut(id)})
}

// shut closes an open call, answered or not.
func (c *calls) shut(id int64) *open {
	o := c.open.Get(id)
	if o.owed() {
		c.awaited--
	}
	c.open.Delete(id)
	return o
}

// shutAll closes all open calls, and returns them, oldest first.
func (c *calls) shutAll() []closedOpen {
	closed := make([]closedOpen, 0, c.open.Len())
	for _, id := range c.open.Numbers() {
		closed = append(closed, closedOpen{id, c.open.Get(id)})
	}
	slices.SortFunc(closed, func(a, b closedOpen) int { return int(a.id - b.id) })
	c.open, c.waits, c.due, c.awaited = smallmap.Map[*open]{}, nil, nil, 0
	return closed
}

// schedule notes when something is due.
func (c *calls) schedule(id int64, o *open) {
	if at := o.next(); !at.IsZero() {
		heap.Push(&c.due, dueEntry{at, id})
	}
}

// nextDue gives the earliest moment at which something is due, and what.
func (c *calls) nextDue() (dueEntry, bool) {
	for len(c.due) > 0 {
		top := c.due[0]
		if o := c.open.Get(top.id); o != nil && o.next().Equal(top.at) {
			return top, true
		}
		heap.Pop(&c.due)
	}
	return dueEntry{}, false
}

// waits are those for events, by name. There are few names at once.
type waits []waited

type waited struct {
	name string
	ids  []int64 // oldest first
}

func (w waits) place(name string) (int, bool) {
	return slices.BinarySearchFunc(w, name, func(a waited, name string) int { return cmp.Compare(a.name, name) })
}

// of lists the waits for an event, oldest first.
func (w waits) of(name string) []int64 {
	if i, ok := w.place(name); ok {
		return w[i].ids
	}
	return nil
}

func (w *waits) add(name string, id int64) {
	i, ok := w.place(name)
	if !ok {
		*w = slices.Insert(*w, i, waited{name: name})
	}
	(*w)[i].ids = append((*w)[i].ids, id)
}

func (w *waits) remove(name string, id int64) {
	i, ok := w.place(name)
	if !ok {
		return
	}
	if ids := slices.DeleteFunc((*w)[i].ids, func(x int64) bool { return x == id }); len(ids) > 0 {
		(*w)[i].ids = ids
		return
	}
	*w = slices.Delete(*w, i, i+1)
}

// dueHeap finds the next due call.
type dueHeap []dueEntry

type dueEntry struct {
	at time.Time
	id int64
}

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].id < h[j].id
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueEntry)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
