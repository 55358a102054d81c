package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// A timer does not fire before all messages are known that the broker stored before it is due (see
// package round). So a timer that arrives, and a message that a round could not take yet, is set
// aside, and the broker is asked for the watermark of the instance. The answer comes to the loop
// behind the messages that it is about. If this process stops receiving before, it nacks the
// messages of the instance: the next receiver gets them in their order.
//
// The ack wait of such messages is not extended. The broker may have delivered one of them to
// another process since, while this one stood still: then the watermark rises only AFTER the broker
// has delivered it here again.

// unknownFor is the delay of messages that are nacked because this process does not receive from
// their partition just now.
const unknownFor = 100 * time.Millisecond

// watermark is the answer to a question for one.
type watermark struct {
	question uint64
	at       time.Time
}

// watermarkBroker is the part of [broker.Inbox] that knows which messages are still to come.
type watermarkBroker interface {
	AwaitWatermark(partition int, instance string, at time.Time, reached func(ctx context.Context, ok bool)) bool
}

// watermarks keeps messages aside until the watermarks of their instances have risen. The goroutine
// of the loop calls its methods.
type watermarks struct {
	broker watermarkBroker
	held   *heldMessages
	calls  *calls
	in     chan<- *item
	nack   func(i *item, after time.Duration)
	// giveBack nacks the messages that wait for an instance, with a delay.
	giveBack func(e *entry, after time.Duration)

	questions uint64 // counts them
}

// holds reports whether a message is a timer that has to wait for the watermark, and sets it aside.
// If too many are, it nacks the timer.
func (w *watermarks) holds(e *entry, i *item) bool {
	timer, ok := i.message.Content.(*events.TimerDue)
	switch {
	case !ok, i.handed, !timer.Due.After(e.watermark):
		return false
	case w.held.asideFull():
		w.nack(i, time.Second)
	default:
		w.setAside(e, []*item{i})
		w.ask(e, timer.Due)
	}
	return true
}

// setAside keeps messages of an instance until its watermark has risen.
func (w *watermarks) setAside(e *entry, items []*item) {
	e.aside = append(e.aside, items...)
	for _, i := range items {
		w.held.setAside(i, true)
	}
}

// bar sets messages of a round aside that could not be taken yet. No message that came behind them
// is taken before them. If too many are aside, it nacks all of them.
func (w *watermarks) bar(e *entry, items []*item, at time.Time) {
	w.setAside(e, items)
	if len(items) > 0 {
		e.barred = true
		for _, i := range e.waiting {
			w.held.setAside(i, true)
		}
	}
	w.ask(e, at)
	if e.barred && w.held.asideFull() {
		w.giveBack(e, unknownFor)
	}
}

// waits has a message wait for its round. If the instance is barred, it is set aside as well: it
// must not take the room of those that the instance waits for.
func (w *watermarks) waits(e *entry, i *item) {
	e.waiting = append(e.waiting, i)
	if !e.barred {
		if i.quarantined { // nacked messages come again in any order
			inOrder(e.waiting)
		}
		return
	}
	w.held.setAside(i, true)
	if w.held.asideFull() {
		w.giveBack(e, unknownFor)
	}
}

// bringBack puts the messages that were set aside before those that wait. All of them are in the
// order of their moments then, because a round that takes a quarantined message takes no other.
func (w *watermarks) bringBack(e *entry) {
	for _, items := range [][]*item{e.aside, e.waiting} {
		for _, i := range items {
			w.held.setAside(i, false)
		}
	}
	e.waiting = append(slices.Clone(e.aside), e.waiting...)
	e.aside, e.barred = nil, false
	inOrder(e.waiting)
}

// inOrder sorts messages by their moments. A message without a moment stays behind the one before
// it.
func inOrder(items []*item) {
	places := make(map[*item]time.Time, len(items))
	var last time.Time
	for n, at := range moments(items) {
		if !at.IsZero() {
			last = at
		}
		places[items[n]] = last
	}
	slices.SortStableFunc(items, func(a, b *item) int { return places[a].Compare(places[b]) })
}

// ask asks for the watermark of an instance, unless that was done.
func (w *watermarks) ask(e *entry, at time.Time) {
	if at.After(e.awaits) {
		e.awaits = at
		w.request(e, at)
	}
}

func (w *watermarks) request(e *entry, at time.Time) {
	id := e.id
	w.questions++
	question := w.questions
	if e.asked == 0 {
		e.asked = question
	}
	giveBack := func(after time.Duration) func() {
		return func() {
			if e.asked > 0 && e.asked <= question {
				w.giveBack(e, after)
			}
		}
	}
	asked := w.broker.AwaitWatermark(e.partition, id, at, func(ctx context.Context, ok bool) {
		answer := &item{message: events.Message{Instance: id}, watermark: &watermark{question, at}}
		switch {
		case ctx.Err() != nil: // another process gets the partition, and does not wait: see giveUp
			w.calls.run(w.calls.lifetime, giveBack(0))
		case !ok:
			w.calls.run(w.calls.lifetime, giveBack(unknownFor))
		default:
			select {
			case w.in <- answer:
			case <-ctx.Done():
				w.calls.run(w.calls.lifetime, giveBack(0))
			}
		}
	})
	if !asked {
		w.calls.after(0, giveBack(unknownFor))
	}
}

// take takes an answer, and reports whether the instance may go on.
func (w *watermarks) take(e *entry, x watermark) bool {
	if e.asked == 0 || x.question < e.asked {
		return false // the partition has moved, and may be back
	}
	if e.awaits.Equal(x.at) {
		e.awaits = time.Time{}
	}
	if x.at.After(e.watermark) {
		e.watermark = x.at
	}
	// Where messages wait, one of them begins the next round. A wake-up before them would come
	// again and again while a quarantined one keeps the timer from firing.
	if len(e.aside) == 0 && len(e.waiting) == 0 {
		e.aside = []*item{wakeUp(e.id, "watermark")}
	}
	w.bringBack(e)
	return true
}

// forget forgets the watermark of an instance, and brings back the messages that were set aside.
func (w *watermarks) forget(e *entry) {
	w.bringBack(e)
	e.watermark, e.awaits, e.asked = time.Time{}, time.Time{}, 0
}
