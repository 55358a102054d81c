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
	// of has the early messages by the last word of their subjects, in the order of their times.
	// Thousands may be due at the same moment, so none of them looks at all others.
	of    map[string][]*waiting
	tasks []task
	// newest has, for the subjects of tasks of which one message counts, the one that was accepted
	// last: a message that it replaces may become due before its task is done.
	newest map[string]newest
	todo   signal.Signal // gets a value when tasks has a task
	// delivered remembers the delayed messages that were delivered last. NATS may have fired a
	// message that one of them replaces, before this receiver got the newer one. The older one then
	// arrives behind it.
	delivered deliveredLast

	earlyBytes, taskBytes int // size of the messages in early and in tasks
}

// newest is the last acceptance among the tasks of a subject.
type newest struct {
	of    acceptance
	tasks int
}

func newDelays(n *names, due func(w *waiting)) delays {
	return delays{names: n, due: due, early: make(map[uint64]*waiting), held: make(map[string]*waiting),
		of: make(map[string][]*waiting), newest: make(map[string]newest), todo: signal.New()}
}

// deliveredLast has the acceptances of the messages that were delivered last, by subject.
type deliveredLast struct {
	of   map[string]acceptance
	ring []string // their subjects; next is the oldest one
	next int
}

// maxDelivered bounds what a receiver remembers. A message that was fired arrives soon after the
// receiver has begun, or has caught up.
const maxDelivered = 256

func (l *deliveredLast) add(subject string, a acceptance) {
	before, again := l.of[subject]
	switch {
	case again && before.compare(a) >= 0:
		return
	case again:
	case l.of == nil:
		l.of, l.ring = make(map[string]acceptance), []string{subject}
	case len(l.ring) < maxDelivered:
		l.ring = append(l.ring, subject)
	default:
		delete(l.of, l.ring[l.next])
		l.ring[l.next] = subject
		l.next = (l.next + 1) % maxDelivered
	}
	l.of[subject] = a
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

// giveWay reports whether a message that is held, has a task or was delivered here replaces this
// one, under the same subject. If this one replaces a held one, giveWay acknowledges that instead.
// mu is held.
func (d *delays) giveWay(w *waiting) bool {
	subject := d.names.laterOf(wireOf(w))
	if d.delivered.of[subject].replaces(w) || d.newest[subject].of.replaces(w) {
		return true
	}
	held := d.held[subject]
	if held == nil || held == w {
		return false
	}
	if w.accepted.replaces(held) {
		held.timer.Stop()
		d.forget(held)
		delete(d.held, subject)
		held.d.Hold.Ack()
	}
	return held.accepted.replaces(w)
}

// delivering remembers a delayed message that nothing replaces and that is delivered now. mu is
// held.
func (d *delays) delivering(w *waiting) *waiting {
	if d.lastCounts(w) {
		d.delivered.add(d.names.laterOf(wireOf(w)), w.accepted)
	}
	return w
}

// hold keeps a message until its time. mu is held.
func (d *delays) hold(w *waiting) {
	if before := d.early[w.d.Sequence]; before != nil {
		before.timer.Stop() // it was redelivered
		d.forget(before)
	}
	d.early[w.d.Sequence] = w
	d.earlyBytes += w.size()
	who := lastWord(w.d.Subject)
	at, _ := slices.BinarySearchFunc(d.of[who], w, byTime)
	d.of[who] = slices.Insert(d.of[who], at, w)
	if d.lastCounts(w) {
		d.held[d.names.laterOf(wireOf(w))] = w
	}
	w.timer = time.AfterFunc(time.Until(w.notBefore), func() { d.due(w) })
}

// release removes a message that was held. mu is held.
func (d *delays) release(w *waiting) {
	d.forget(w)
	if subject := d.names.laterOf(wireOf(w)); d.held[subject] == w {
		delete(d.held, subject)
	}
}

// forget removes a message from early and of. mu is held.
func (d *delays) forget(w *waiting) {
	if d.early[w.d.Sequence] == w {
		delete(d.early, w.d.Sequence)
		d.earlyBytes -= w.size()
	}
	who := lastWord(w.d.Subject)
	at, there := slices.BinarySearchFunc(d.of[who], w, byTime)
	switch {
	case !there:
	case len(d.of[who]) == 1:
		delete(d.of, who)
	default:
		d.of[who] = slices.Delete(d.of[who], at, at+1)
	}
}

// byTime compares delayed messages by their times, and by their sequences if these are the same.
func byTime(a, b *waiting) int {
	return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.d.Sequence, b.d.Sequence))
}

// waitsFor reports whether a message must wait for all messages that were stored before it is due:
// one of them may replace it, or an earlier one of its instance that must come first. mu is held.
func (d *delays) waitsFor(w *waiting) bool {
	if d.lastCounts(w) {
		return !w.known
	}
	for _, x := range d.of[lastWord(w.d.Subject)] {
		if x == w {
			break
		}
		if d.unknown(x) {
			return true
		}
	}
	return false
}

// unknown reports whether a message is one that another one may still replace.
func (d *delays) unknown(w *waiting) bool { return !w.known && d.lastCounts(w) }

// later adds a task. mu is held.
func (d *delays) later(t task) {
	d.tasks = append(d.tasks, t)
	d.taskBytes += t.w.size()
	if d.lastCounts(t.w) {
		subject := d.names.laterOf(wireOf(t.w))
		n := d.newest[subject]
		if n.tasks++; n.tasks == 1 || t.w.accepted.compare(n.of) > 0 {
			n.of = t.w.accepted
		}
		d.newest[subject] = n
	}
	d.todo.Set()
}

// drop removes the first tasks, which are done. mu is held.
func (d *delays) drop(n int) {
	for _, t := range d.tasks[:n] {
		d.taskBytes -= t.w.size()
		if !d.lastCounts(t.w) {
			continue
		}
		subject := d.names.laterOf(wireOf(t.w))
		n := d.newest[subject]
		if n.tasks--; n.tasks == 0 {
			delete(d.newest, subject)
		} else {
			d.newest[subject] = n
		}
	}
	d.tasks = d.tasks[n:]
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
// counts. Of two clocks a microsecond apart, the second may be the first. Messages behind one that
// may still be replaced are not among them.
func (d *delays) dueWith(w *waiting, now time.Time) []*waiting {
	due := []*waiting{w}
	if verb, _ := events.Origin(d.names.verbOf(w.d.Subject)); eachCounts(verb) {
		for _, x := range d.of[lastWord(w.d.Subject)] {
			if x.notBefore.After(now) || d.unknown(x) {
				break
			}
			if x != w {
				due = append(due, x)
			}
		}
		slices.SortFunc(due, byTime)
	}
	return due
}
