package check_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// FuzzAnyHistory feeds arbitrary histories. For each, the checker ends, and has the same findings
// each time. That correct histories have no finding is shown by random orchestrations:
// TestRandomOrchestrations of package round checks every store that it leaves behind.
func FuzzAnyHistory(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 2, 2})
	f.Add([]byte{0, 0, 8, 0, 9, 2, 11, 3, 9, 2, 8, 0})
	f.Add([]byte{0, 0, 8, 1, 9, 2, 14, 0, 0, 1, 8, 1, 9, 2, 9, 2, 11, 3, 11, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := historyOf(data)
		a, b := in.Findings(), in.Findings()
		if !reflect.DeepEqual(count(a), count(b)) {
			t.Errorf("found are\n%v\nand then\n%v", a, b)
		}
		if (in.Check() == nil) != (len(a) == 0) {
			t.Errorf("%v, %v", in.Check(), a)
		}
		if err := check.Together(in); err != nil && len(a) == 0 && len(in.History) == 1 && in.Row.Parent == nil &&
			!startsChild(in) {
			t.Errorf("by itself nothing is wrong with it, together: %v", err)
		}
	})
}

func count(findings []check.Finding) map[check.Rule]int {
	n := make(map[check.Rule]int)
	for _, f := range findings {
		n[f.Rule]++
	}
	return n
}

func startsChild(in check.Instance) bool {
	for _, h := range in.History {
		for _, e := range h {
			if e.Fact.Kind() == events.KindChildStarted {
				return true
			}
		}
	}
	return false
}

// historyOf reads two bytes for each event: its kind, and the event that it is about.
func historyOf(data []byte) check.Instance {
	in := check.Instance{ID: "i", History: make(map[int64][]events.Event),
		Row: round.Row{Execution: 1, Status: round.Running}}
	x, id := int64(1), int64(0)
	for i := 0; i+1 < len(data); i += 2 {
		about := int64(data[i+1])
		f := fact(data[i]%20, about)
		if _, ok := f.(*events.Started); ok && len(in.History[x]) > 0 {
			x, id = x+1+about%2, 0
		}
		if id++; about > 250 {
			id = about % 5
		}
		in.History[x] = append(in.History[x],
			events.Event{ID: id, At: began.Add(time.Duration(i) * time.Second), Fact: f})
		in.Row.Execution, in.Row.LastEvent = x, id
	}
	return in
}

func fact(kind byte, about int64) events.Fact {
	switch kind {
	case 0:
		return &events.Started{Name: "order", Version: "1.0.0", Incarnation: "incarnation", Previous: about % 3,
			Carried: int(about % 4)}
	case 1:
		return &events.ActivityScheduled{Name: "charge", Attempt: 1}
	case 2:
		return &events.ActivityCompleted{Schedule: about}
	case 3:
		return &events.ActivityFailed{Schedule: about, Error: &failure.Error{Message: "x"}}
	case 4:
		return &events.ActivityBegun{Schedule: about, Pending: about%2 == 0}
	case 5:
		return &events.TimerCreated{FireAt: began.Add(time.Duration(about) * time.Second)}
	case 6:
		return &events.TimerFired{Timer: about}
	case 7:
		return &events.EventAwaited{Name: "go"}
	case 8:
		return &events.MessageReceived{Mailbox: string(rune('a' + about%2)), Message: string(rune('a' + about%26))}
	case 9:
		return &events.MailboxRead{Mailbox: string(rune('a' + about%2)), Message: about}
	case 10:
		return &events.MailboxRead{Mailbox: string(rune('a' + about%2))}
	case 11:
		return &events.Dropped{Schedules: []int64{about, about / 2}, Steps: []int64{about}}
	case 12:
		return &events.Completed{}
	case 13:
		return &events.Failed{Error: &failure.Error{Message: "x"}}
	case 14:
		return &events.ContinuedAsNew{Name: "order", Version: "1.0.0"}
	case 15:
		return &events.ChildStarted{Name: "order", Instance: "i"}
	case 16:
		return &events.ChildCompleted{Schedule: about}
	case 17:
		return &events.ValueSet{Key: "k", Value: codec.Payload("1")}
	case 18:
		return &events.StepCompleted{Step: about}
	}
	return &events.Suspended{Message: string(rune('a' + about%26))}
}
