package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// What happens to an instance happens in the order of its moments: the moment of a message is when
// the broker stored it, and that of a timer or deadline is when it is due. So a message that was
// stored before a deadline is in time, and one that was stored later is late, whenever the round
// looks at them. For that, everything that the broker stored before a timer is due must be known
// before the timer fires: up to the watermark it is. A timer that is due later waits until the
// watermark has risen, and so do the messages that were stored after it.

// SetWatermark sets, for the next round, the moment before which no message of the instance was
// stored that has not been presented yet, in this round or an earlier one. Without it, there is
// none.
func (in *Instance) SetWatermark(at time.Time) { in.watermark = at }

// Starts says which starts of an instance are known that the broker has stored.
type Starts struct {
	// Known is the moment before which no start was stored that has not been presented yet; zero:
	// there is none.
	Known time.Time
	// Waiting says that a start is among the messages of the round, or waits for a later one.
	Waiting bool
}

// SetStarts sets, for the next round, which starts are known. It differs from the watermark,
// because other messages that wait for a later round do not count.
func (in *Instance) SetStarts(s Starts) { in.starts = s }

// knows reports whether all messages are known that the broker stored before a moment. If not, the
// turn waits for them.
func (x *execution) knows(at time.Time) bool {
	if x.watermark.IsZero() || !at.After(x.watermark) {
		return true
	}
	x.turn.Awaits = later(x.turn.Awaits, at)
	return false
}

// fireDue fires the timers and time limits that are due before a moment, the earliest first, even
// if the broker has not delivered them. The zero time stands for now. It reports false if one has
// to wait, for the watermark or for the next round.
func (x *execution) fireDue(before time.Time) bool {
	for fired := 0; x.ledger.running() && !x.pending; fired++ {
		next, ok := x.ledger.calls.nextDue()
		switch {
		case !ok || next.at.After(x.now) || !before.IsZero() && !next.at.Before(before):
			return true
		case !x.knows(next.at):
			return false
		case fired == events.MaxTurnEvents, x.large(): // a later round fires the rest
			x.turn.Again = x.turn.Again || x.turn.Question == nil
			return false
		}
		x.fire(next.id)
	}
	return true
}

// byMoment returns the indices of deliveries in the order of their moments; nil if they are in that
// order already. A delivery without a moment stays behind the one before it.
func byMoment(inbox []Delivery) []int {
	var last time.Time
	for _, d := range inbox {
		if !d.Moment.IsZero() && d.Moment.Before(last) {
			return sortByMoment(inbox)
		}
		last = later(last, d.Moment)
	}
	return nil
}

func sortByMoment(inbox []Delivery) []int {
	order, moments := make([]int, len(inbox)), make([]time.Time, len(inbox))
	var last time.Time
	for i, d := range inbox {
		if !d.Moment.IsZero() {
			last = d.Moment
		}
		order[i], moments[i] = i, last
	}
	slices.SortStableFunc(order, func(a, b int) int { return moments[a].Compare(moments[b]) })
	return order
}
