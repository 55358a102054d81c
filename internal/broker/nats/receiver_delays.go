package natsbroker

import (
	"cmp"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/events"
)

// delays are the delayed messages of a receiver: those that it holds until their time, and the
// tasks for those that must be stored for later, or compared with one that is. The lock of the
// receiver guards it, except todo.
type delays struct {
	names *names
	due   func(w *waiting)    // is called when the time of a message has come
	early map[uint64]*waiting // messages whose time has not come
	held  map[string]*waiting // of those, the ones of which one counts for each subject
	tasks []task
	todo  signal.Signal // gets a value when tasks has a task
}

func newDelays(n *names, due func(w *waiting)) delays {
	return delays{names: n, due: due, early: make(map[uint64]*waiting), held: make(map[string]*waiting),
		todo: signal.New()}
}

// lastCounts reports whether a delayed message replaces another one under its subject.
func (d *delays) lastCounts(w *waiting) bool {
	verb, _ := events.Origin(d.names.verbOf(w.d.Subject))
	return d.names.goesThroughInbox(w.d.Subject) && !eachCounts(verb)
}

// add accepts a message whose time has not come. mu is held.
func (d *delays) add(w *waiting, rest time.Duration) {
	switch {
	case !d.lastCounts(w) && (rest <= near || w.due || !d.names.goesThroughInbox(w.d.Subject)):
		d.hold(w)
	case w.due:
		if d.giveWay(w) {
			w.d.Hold.Ack()
			return
		}
		d.hold(w)
	case rest <= near:
		if d.giveWay(w) {
			w.d.Hold.Ack()
			return
		}
		d.later(task{w, replaceStored})
	default:
		if d.lastCounts(w) && d.giveWay(w) {
			w.d.Hold.Ack()
			return
		}
		d.later(task{w, storeForLater})
	}
}

// late accepts a message of which only the last one of its subject counts, and whose time came
// before it arrived. mu is held.
func (d *delays) late(w *waiting) {
	w.late = true
	if d.giveWay(w) {
		w.d.Hold.Ack()
		return
	}
	d.hold(w) // one that replaces it may be still to arrive
}

// giveWay reports whether a message that is held here replaces this one, under the same subject. If
// this one replaces it, giveWay acknowledges it instead. mu is held.
func (d *delays) giveWay(w *waiting) bool {
	subject := d.names.laterOf(wireOf(w))
	held := d.held[subject]
	if held == nil || held == w {
		return false
	}
	if w.accepted.replaces(held) {
		held.timer.Stop()
		delete(d.early, held.d.Sequence)
		delete(d.held, subject)
		held.d.Hold.Ack()
	}
	return held.accepted.replaces(w)
}

// hold keeps a message until its time. mu is held.
func (d *delays) hold(w *waiting) {
	if before := d.early[w.d.Sequence]; before != nil {
		before.timer.Stop() // it was redelivered
	}
	d.early[w.d.Sequence] = w
	if d.lastCounts(w) {
		d.held[d.names.laterOf(wireOf(w))] = w
	}
	w.timer = time.AfterFunc(time.Until(w.notBefore), func() { d.due(w) })
}

// release removes a message that was held. mu is held.
func (d *delays) release(w *waiting) {
	delete(d.early, w.d.Sequence)
	if subject := d.names.laterOf(wireOf(w)); d.held[subject] == w {
		delete(d.held, subject)
	}
}

// later adds a task. mu is held.
func (d *delays) later(t task) {
	d.tasks = append(d.tasks, t)
	d.todo.Set()
}

// some returns the first tasks that are of one kind and do not depend on each other. They stay
// in the list until they are done. mu is held.
func (d *delays) some() []task {
	subjects := make(map[string]bool)
	for i, t := range d.tasks {
		subject := d.names.laterOf(wireOf(t.w))
		if t.kind != d.tasks[0].kind || i == takenOver || subjects[subject] {
			return d.tasks[:i:i]
		}
		subjects[subject] = true
	}
	return d.tasks[:len(d.tasks):len(d.tasks)]
}

// dueWith returns the messages to deliver when the time of one has come: that message, or all
// messages of its instance that are due by now, in the order of their times, if each of them
// counts. Of two clocks a microsecond apart, the second may be the first.
func (d *delays) dueWith(w *waiting, now time.Time) []*waiting {
	due := []*waiting{w}
	if verb, _ := events.Origin(d.names.verbOf(w.d.Subject)); eachCounts(verb) {
		who := lastWord(w.d.Subject)
		for _, x := range d.early {
			if x != w && !x.notBefore.After(now) && lastWord(x.d.Subject) == who {
				due = append(due, x)
			}
		}
		slices.SortFunc(due, func(a, b *waiting) int {
			return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.d.Sequence, b.d.Sequence))
		})
	}
	return due
}
