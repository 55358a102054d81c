package round_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/rondotest"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestTamperedHistoriesAreNoticed takes histories of random orchestrations, and changes one thing
// the code has said: takes it out, does it twice, does it to something else. The replay must notice
// each time, whatever it was.
func TestTamperedHistoriesAreNoticed(t *testing.T) {
	noticed := make(map[string]int)
	for seed := range uint64(racetest.Short(80, 24)) {
		env, _ := randomWorld(seed).play(t, seed)
		for _, id := range env.Instances() {
			for _, raw := range env.ExportAll(id) {
				var x events.Export
				if err := json.Unmarshal(raw, &x); err != nil {
					t.Fatal(err)
				}
				tamper(t, seed, x.Events, noticed)
			}
		}
		env.Close()
	}
	for _, kind := range events.Kinds() {
		if noticed[string(kind)] == 0 && isSaid(kind) {
			t.Errorf("no %s was tampered with", kind)
		}
	}
	t.Log(noticed)
}

// isSaid reports whether the code says facts of a kind.
func isSaid(k events.Kind) bool {
	switch k {
	case events.KindPatched: // may be missing: see the scenario patch_removed
		return false
	case events.KindStarted, events.KindActivityBegun, events.KindActivityCompleted, events.KindActivityFailed,
		events.KindStepCompleted,
		events.KindStepFailed, events.KindTimerFired, events.KindEventReceived, events.KindMessageReceived,
		events.KindChildCompleted,
		events.KindChildFailed, events.KindCancelRequested, events.KindSuspended, events.KindResumed,
		events.KindTerminated:
		return false
	default:
	}
	return true
}

func tamper(t *testing.T, seed uint64, history []events.Event, noticed map[string]int) {
	t.Helper()
	carried := history[0].Fact.(*events.Started).Carried
	for i := 1 + carried; i < len(history); i++ {
		f := history[i].Fact
		if !isSaid(f.Kind()) {
			continue
		}
		ways := map[string][]events.Event{
			"taken out":  slices.Concat(history[:i], history[i+1:]),
			"done twice": slices.Concat(history[:i+1], history[i:]),
		}
		if other := elsewhere(f); other != nil {
			changed := slices.Clone(history)
			changed[i].Fact = other
			ways["done to something else"] = changed
		}
		for way, changed := range ways {
			if err := replayed(changed); err == nil {
				t.Errorf("seed %d: event %d, %s, was %s, and nobody noticed", seed, i+1, f.Kind(), way)
			}
			noticed[string(f.Kind())]++
		}
	}
}

// replayed numbers the events again and replays them.
func replayed(history []events.Event) error {
	history = slices.Clone(history)
	for i := range history {
		history[i].ID = int64(i) + 1
	}
	data, err := json.Marshal(events.Export{Instance: "x", Execution: 1, Events: history})
	if err != nil {
		return err
	}
	return rondotest.TryReplay(data, random.Bind(carryOut))
}

// elsewhere is the same kind of fact, about something else.
func elsewhere(f events.Fact) events.Fact {
	switch f := f.(type) {
	case *events.ActivityScheduled:
		g := *f
		g.Name += "x"
		return &g
	case *events.EventAwaited:
		return &events.EventAwaited{Name: f.Name + "x"}
	case *events.MailboxRead:
		return &events.MailboxRead{Mailbox: f.Mailbox + "x"}
	case *events.ChildStarted:
		g := *f
		g.Name += "x"
		return &g
	case *events.Launched:
		g := *f
		g.Name += "x"
		return &g
	case *events.Sent:
		g := *f
		g.Instance += "x"
		return &g
	case *events.Dropped:
		return &events.Dropped{Schedules: append(slices.Clone(f.Schedules), 1), Steps: f.Steps}
	case *events.ValueSet:
		g := *f
		g.Key += "x"
		return &g
	case *events.ValuesCleared:
		return &events.ValuesCleared{Keys: append(slices.Clone(f.Keys), "x")}
	case *events.StatusSet:
		g := *f
		g.Status = codec.Payload(`"something else"`) // other data is a warning, which the release gate refuses
		return &g
	case *events.CallRefused:
		g := *f
		g.Name += "x"
		return &g
	case *events.ContinuedAsNew:
		g := *f
		g.Name += "x"
		return &g
	default:
	}
	return nil
}

// TestContradictoryHistoriesAreUnreadable gives histories that no engine can have written.
func TestContradictoryHistoriesAreUnreadable(t *testing.T) {
	started := &events.Started{Name: "echo", Version: "1.0.0", Incarnation: "l", Engine: 1}
	for name, facts := range map[string][]events.Fact{
		"no start":        {&events.ActivityScheduled{Name: "echo", Attempt: 1}},
		"two starts":      {started, started},
		"answers nothing": {started, &events.ActivityCompleted{Schedule: 1}},
		"answers twice": {started, &events.ActivityScheduled{Name: "echo", Attempt: 1},
			&events.ActivityCompleted{Schedule: 2}, &events.ActivityCompleted{Schedule: 2}},
		"answers another kind": {started, &events.ActivityScheduled{Name: "echo", Attempt: 1},
			&events.TimerFired{Timer: 2}},
		"goes on after the end": {started, &events.Completed{}, &events.Resumed{}},
		"ends while inheriting": {&events.Started{Name: "echo", Version: "1.0.0", Incarnation: "l",
			Engine: 1, Carried: 2},
			&events.StatusSet{Version: 1}},
		"reads what is not there":  {started, &events.MailboxRead{Mailbox: "q", Message: 1}},
		"waits with unread letter": {started, &events.MessageReceived{Mailbox: "q"}, &events.MailboxRead{Mailbox: "q"}},
	} {
		t.Run(name, func(t *testing.T) {
			known := round.Known{Instance: "i",
				Row: round.Row{Execution: 1, Status: round.Running, LastEvent: int64(len(facts))}}
			for i, f := range facts {
				known.History = append(known.History, events.Event{ID: int64(i) + 1, At: began, Fact: f})
			}
			in := round.New(&round.Config{Code: cast(t, "v1")}, known)
			turn := in.Decide(wake(1), began)
			// A history that the code does not fit is halted, one that no code could have written
			// is unreadable. Both are noticed.
			if turn.Receipts[0].Reason != round.CannotRead && turn.Fault == nil &&
				turn.Receipts[0].Reason != round.HasEnded {
				t.Errorf("nobody noticed:\n%v", turn)
			}
		})
	}
	gap := round.Known{Instance: "i", History: []events.Event{{ID: 1, At: began, Fact: started},
		{ID: 3, At: began, Fact: &events.TimerCreated{FireAt: began}}}}
	if _, err := round.Replay(&round.Config{Code: cast(t, "v1")}, gap); err == nil {
		t.Error("a history with a gap was replayed")
	}
}

func wake(attempts int) []round.Delivery {
	return []round.Delivery{{Message: events.Message{Content: &events.Wake{Reason: "test"}}, Attempts: attempts}}
}

// TestOutstandingIsWhatWasSent compares the messages that can be derived from history with
// those that the turns have sent.
func TestOutstandingIsWhatWasSent(t *testing.T) {
	config := &round.Config{Code: cast(t, "v1")}
	in := round.New(config, round.Known{Instance: "i"})
	defer in.Evict()
	turn := in.Decide(startOf("kinds", `""`), began)
	known := round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[0].Events}
	again, err := round.Outstanding(known)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sentIDs(again), sentIDs(turn.Messages); !slices.Equal(got, want) {
		t.Errorf("outstanding are %q, sent were %q", got, want)
	}
	waiting, _, err := round.Waiting(known)
	if err != nil {
		t.Fatal(err)
	}
	var whats []string
	for _, w := range waiting {
		whats = append(whats, w.What)
	}
	want := []string{`activity "echo"`, "the timer at 2026-01-01T00:01:00Z", `event "approve"`,
		`a message in mailbox "orders"`, `orchestration "echo" as "i~1.6"`, `activity "echo"`}
	if !slices.Equal(whats, want) {
		t.Errorf("it waits for %q, want %q", whats, want)
	}
}

// TestOutstandingTellsTheParentAgain derives the answer of a child that has ended.
func TestOutstandingTellsTheParentAgain(t *testing.T) {
	config := &round.Config{Code: cast(t, "v1")}
	in := round.New(config, round.Known{Instance: "i"})
	inbox := startOf("plain", `""`)
	inbox[0].Message.Content.(*events.Start).Parent = &events.Parent{Instance: "papa", Incarnation: "l",
		Execution: 1, Event: 7}
	turn := in.Decide(inbox, began)
	again, err := round.Outstanding(round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[0].Events})
	if err != nil || !slices.Equal(sentIDs(again), sentIDs(turn.Messages)) || len(again) != 1 {
		t.Errorf("outstanding are %q, %v, sent were %q", sentIDs(again), err, sentIDs(turn.Messages))
	}
	if _, err := round.Outstanding(round.Known{History: []events.Event{{ID: 5, Fact: &events.Resumed{}}}}); err == nil {
		t.Error("a broken history has outstanding messages")
	}
}

func sentIDs(messages []events.Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, fmt.Sprint(m.ID, " ", m.NotBefore.Unix()))
	}
	return out
}

// TestOutstandingLeavesOutWhatIsPending derives the messages about an activity that a worker has
// begun, and then left to another program.
func TestOutstandingLeavesOutWhatIsPending(t *testing.T) {
	config := &round.Config{Code: cast(t, "v1")}
	in := round.New(config, round.Known{Instance: "i"})
	defer in.Evict()
	turn := in.Decide(startOf("late", `"x"`), began)
	known := round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[0].Events}
	ref := events.Ref{Incarnation: turn.Row.Incarnation, Execution: 1, Event: 2}
	later := func(c events.Content) {
		t.Helper()
		turn := in.Decide([]round.Delivery{{Message: events.Message{Content: c}, Attempts: 1}}, began)
		known.Row, known.History = turn.Row, append(known.History, turn.Executions[0].Events...)
	}
	check := func(when string, want ...string) {
		t.Helper()
		again, err := round.Outstanding(known)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range again {
			got = append(got, strings.ReplaceAll(m.ID, "/1-2/"+ref.Incarnation+"/i", "REF"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: outstanding are %q, want %q", when, got, want)
		}
	}
	check("when it is scheduled", "taskREF", "timer-dueREF")
	later(&events.TaskBegun{Ref: ref})
	check("when it has begun", "taskREF", "timer-dueREF/begun")
	later(&events.TaskBegun{Ref: ref, Pending: true})
	check("when it is pending", "timer-dueREF/begun")
	waiting, _, err := round.Waiting(known)
	if err != nil || len(waiting) != 1 || !waiting[0].Pending ||
		waiting[0].What != `activity "echo" to be completed by its token` {
		t.Errorf("it waits for %+v, %v", waiting, err)
	}
}
