package round_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// The turns of a part of a history are told apart by their times, and each has what it brought to
// its end.
func TestPastSinceGivesTheTurnsFromAMoment(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0).UTC() }
	ref := "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"
	history := []events.Event{
		{ID: 1, At: at(0), Fact: &events.Started{Name: "o", Version: "1", Incarnation: "incarnation",
			Engine:  events.Engine,
			Message: "m", Trace: ref, Begun: at(0)}},
		{ID: 2, At: at(0), Fact: &events.ActivityScheduled{Name: "a", Attempt: 1}},
		{ID: 3, At: at(0), Fact: &events.ActivityScheduled{Name: "given up at the end", Attempt: 1}},
		{ID: 4, At: at(5), Fact: &events.ActivityCompleted{Schedule: 2, Result: codec.Payload("1")}},
		{ID: 5, At: at(5), Fact: &events.ActivityScheduled{Name: "b", Attempt: 1}},
		{ID: 6, At: at(9), Fact: &events.ActivityCompleted{Schedule: 5, Result: codec.Payload("2")}},
		{ID: 7, At: at(9), Fact: &events.Completed{Output: codec.Payload("3")}},
	}
	for since, want := range map[int][][2]int64{0: {{1, 3}, {4, 5}, {6, 7}}, 1: {{4, 5}, {6, 7}},
		9: {{6, 7}}, 10: nil} {
		turns := round.PastSince("i", 1, history, at(since))
		if len(turns) != len(want) {
			t.Fatalf("since %ds there are %d turns, want %d", since, len(turns), len(want))
		}
		for i, turn := range turns {
			all := turn.Executions[0].Events
			if got := [2]int64{all[0].ID, all[len(all)-1].ID}; got != want[i] {
				t.Errorf("since %ds turn %d has the events %v, want %v", since, i, got, want[i])
			}
		}
		if len(want) == 0 {
			continue
		}
		var over []round.OverKind
		for _, o := range turns[len(turns)-1].Over {
			over = append(over, o.Kind)
		}
		if want := []round.OverKind{round.OverActivity, round.OverActivity,
			round.OverExecution}; !slices.Equal(over, want) {
			t.Errorf("since %ds the last turn has brought %v to its end, want %v", since, over, want)
		}
	}
}
