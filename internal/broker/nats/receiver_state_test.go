package natsbroker

import "testing"

// TestReceiverStates goes through every event in every state.
func TestReceiverStates(t *testing.T) {
	t.Parallel()
	is := func(p phase, looks int) receiverState { return receiverState{p, looks} }
	last := maxLooks - 1
	for _, c := range []struct {
		from receiverState
		by   receiverEvent
		want receiverState
	}{
		{is(live, 0), otherServed, is(shared, 0)},
		{is(live, 0), lineChanged, is(lost, 0)},
		{is(live, 0), lookBegun, is(lost, 0)},
		{is(live, 0), lookBegunOnNewLine, is(lost, 0)},
		{is(live, 0), lookDone, is(live, 0)},
		{is(live, 0), lookFailed, is(live, 1)},
		{is(live, 0), ended, is(closed, 0)},

		{is(shared, 1), otherServed, is(shared, 1)},
		{is(shared, 1), lineChanged, is(shared, 1)},
		{is(shared, 1), lookBegun, is(shared, 1)},
		{is(shared, 1), lookBegunOnNewLine, is(lost, 1)},
		{is(shared, 1), lookDone, is(live, 0)},
		{is(shared, 0), lookFailed, is(shared, 1)},
		{is(shared, last), lookFailed, is(live, 0)},
		{is(shared, 1), ended, is(closed, 0)},

		{is(lost, 1), otherServed, is(lost, 1)},
		{is(lost, 1), lineChanged, is(lost, 1)},
		{is(lost, 1), lookBegun, is(lost, 1)},
		{is(lost, 1), lookBegunOnNewLine, is(lost, 1)},
		{is(lost, 1), lookDone, is(live, 0)},
		{is(lost, 0), lookFailed, is(lost, 1)},
		{is(lost, last), lookFailed, is(live, 0)},
		{is(lost, 1), ended, is(closed, 0)},

		{is(closed, 0), otherServed, is(closed, 0)},
		{is(closed, 0), lineChanged, is(closed, 0)},
		{is(closed, 0), lookBegun, is(closed, 0)},
		{is(closed, 0), lookBegunOnNewLine, is(closed, 0)},
		{is(closed, 0), lookDone, is(closed, 0)},
		{is(closed, 0), lookFailed, is(closed, 0)},
		{is(closed, 0), ended, is(closed, 0)},
	} {
		if got := transition(c.from, c.by); got != c.want {
			t.Errorf("%+v, event %d: %+v, want %+v", c.from, c.by, got, c.want)
		}
	}
}
