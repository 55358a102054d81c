package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Decide is one round. It takes the messages and fires the timers in the order of their moments:
// see order.go. It gives the turn; the instance is then ahead of the store by that turn.
func (in *Instance) Decide(inbox []Delivery, now time.Time) Turn {
	x := &in.run
	x.busy, x.continues = busyWith(Turn{Instance: x.id, Receipts: make([]Receipt, len(inbox)),
		Expected: x.expected()}), 0
	x.interrupt.Store(false) // an interrupt that came too late was for the round before
	x.rounds++
	x.peek()
	x.now = events.Instant(now)
	if x.now.Before(x.ledger.tail.lastAt) {
		x.now = x.ledger.tail.lastAt // clocks differ between machines; history's never runs backwards
	}
	x.watermark, in.watermark = in.watermark, time.Time{}
	x.starts, in.starts = in.starts, Starts{}
	receives := receiver{x, in.former}
	if blocked := x.prepare(); blocked.Verdict != 0 {
		receives.turnAway(inbox, blocked)
	} else if receives.takeAll(inbox) {
		x.fireDue(time.Time{})
	}
	in.former = nil
	x.closeTurn()
	turn := *x.turn
	x.busy = nil
	return turn
}

// prepare brings the code to where history ends. A verdict says that no message can be taken, and
// why.
func (x *execution) prepare() Receipt {
	switch {
	case x.stored().Engine > events.Engine:
		return Receipt{Verdict: Returned, Reason: NewerEngine, Detail: newerEngine(x.stored().Engine)}
	case x.unreadable != nil:
		return Receipt{Verdict: Returned, Reason: CannotRead, Detail: x.unreadable.Error()}
	case x.cold != nil:
		return x.rehydrate()
	case x.pending:
		return x.runPending()
	}
	return Receipt{}
}

// closeTurn fills in what follows from where the instance now stands.
func (x *execution) closeTurn() {
	t := x.turn
	x.said = 0
	t.keepOrder()
	x.noteUnread()
	t.Steps = slices.DeleteFunc(t.Steps, func(s Step) bool { return !x.stillWanted(s) })
	t.Messages = slices.DeleteFunc(t.Messages, func(m events.Message) bool { return m.Content == nil })
	if len(t.Executions) > 0 {
		t.Row = x.describe()
	}
	if x.ledger.tail.lastID > 0 {
		x.row = nil // the ledger knows better
	}
	if x.program == nil && !t.Again {
		t.Evict = true
	}
}
