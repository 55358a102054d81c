package round_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestCopiesOfADetachedStartAreKnownAgain sends detached starts again: each copy has the id and the
// time of the first one, also if it is published after the delay.
func TestCopiesOfADetachedStartAreKnownAgain(t *testing.T) {
	due := began.Add(time.Hour)
	message := []events.StartMessage{{Mailbox: "orders", Data: []byte(`"x"`)}}
	for name, c := range map[string]struct {
		launched  events.Launched
		notBefore time.Time
		sent      time.Time
	}{
		"plain":    {launched: events.Launched{}}, // an instance of the id is kept, so no copy has an effect
		"delayed":  {launched: events.Launched{NotBefore: due}, notBefore: due},
		"restarts": {launched: events.Launched{Conflict: events.RestartFinished}, sent: began},
		"replaces": {launched: events.Launched{Conflict: events.ReplaceRunning, NotBefore: due}, notBefore: due,
			sent: due},
		"message": {launched: events.Launched{Messages: message}, sent: began},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.launched
			f.Name, f.Instance, f.Attributes = "o", "x", map[string]string{"a": "b"}
			known := round.Known{Instance: "i", Row: round.Row{Execution: 1}, History: []events.Event{
				{ID: 1, At: began, Fact: &events.Started{Name: "s", Version: "1.0.0", Incarnation: "n", Engine: 1}},
				{ID: 2, At: began, Fact: &f},
			}}
			for range 2 {
				list, err := round.Unanswered(known, began)
				if err != nil || len(list) != 1 {
					t.Fatalf("got %v, %v", list, err)
				}
				m, s := list[0], list[0].Content.(*events.Start)
				if m.ID != "start/1-2/n/i" || !m.NotBefore.Equal(c.notBefore) || !m.Sent.Equal(c.sent) {
					t.Errorf("message %s, not before %v, sent %v", m.ID, m.NotBefore, m.Sent)
				}
				if s.Conflict != f.Conflict || s.Attributes["a"] != "b" || len(s.Messages) != len(f.Messages) {
					t.Errorf("got %+v", s)
				}
			}
		})
	}
}
