package natsbroker

import "testing"

// TestDirectMessageStates goes through every event in every state of a directly delivered message.
func TestDirectMessageStates(t *testing.T) {
	t.Parallel()
	const open, lasts, busy, settled = outcomeOpen, outcomeLasts, outcomeBusy, outcomeSettled
	for _, c := range []struct {
		from      stage
		said      outcome
		by        directEvent
		wantStage stage
		want      outcome
	}{
		{idle, open, isOffered, offered, open},
		{idle, open, isTaken, taken, open},
		{idle, open, isEnded, idle, settled}, // a result
		{idle, open, isOverdue, idle, busy},

		{offered, open, isOffered, offered, open},
		{offered, open, isTaken, taken, open},
		{offered, open, isEnded, offered, settled},
		{offered, open, isOverdue, offered, open},

		{taken, open, isOffered, offered, open},
		{taken, open, isTaken, taken, open},
		{taken, open, isEnded, taken, settled},
		{taken, open, isOverdue, taken, lasts},

		// The first outcome counts.
		{taken, lasts, isEnded, taken, lasts},
		{taken, lasts, isOverdue, taken, lasts},
		{idle, busy, isOffered, idle, busy},
		{idle, busy, isTaken, idle, busy},
		{idle, busy, isOverdue, idle, busy},
	} {
		if s, said := advance(c.from, c.said, c.by, settled); s != c.wantStage || said != c.want {
			t.Errorf("stage %d, outcome %c, event %d: stage %d, outcome %c; want %d, %c", c.from, c.said, c.by, s, said,
				c.wantStage, c.want)
		}
	}
}
