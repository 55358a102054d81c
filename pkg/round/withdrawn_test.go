package round_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestWithdrawnAtEnd: the counts from history are those of the messages that the turn has
// sent.
func TestWithdrawnAtEnd(t *testing.T) {
	for _, name := range []string{"kinds", "leaves", "abandons", "plain"} {
		config := &round.Config{Code: cast(t, "v1")}
		in := round.New(config, round.Known{Instance: "i"})
		turn := in.Decide(startOf(name, `""`), began)
		known := round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[0].Events}
		if w, err := round.WithdrawnAtEnd(known.History); err != nil || w != (round.Withdrawn{}) {
			t.Errorf("%s: before its end, or at once: %v, %v", name, w, err)
		}
		if turn.Row.Status.Ended() {
			in.Evict()
			continue
		}
		end := in.Decide([]round.Delivery{{Attempts: 1, Message: events.Message{ID: "d", Content: &events.Control{
			How: events.Terminate, Incarnation: turn.Row.Incarnation}}}}, began.Add(time.Second))
		in.Evict()
		known.Row, known.History = end.Row, append(known.History, end.Executions[0].Events...)
		var want round.Withdrawn
		for _, m := range end.Messages {
			switch m.Content.(type) {
			case *events.WithdrawTask:
				want.Tasks++
			case *events.WithdrawTimer:
				want.Timers++
			case *events.Control: // to a child
			default:
				t.Errorf("%s: it sends %T", name, m.Content)
			}
		}
		if got, err := round.WithdrawnAtEnd(known.History); got != want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	broken := []events.Event{{ID: 5, Fact: &events.Terminated{Deletion: true}}}
	if _, err := round.WithdrawnAtEnd(broken); err == nil {
		t.Error("a broken history has withdrawn something")
	}
}
