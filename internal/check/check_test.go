package check_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file plants one violation of each rule about a single instance. The instance without it
// passes.

var began = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// story makes a history of facts, one second after the other.
func story(facts ...events.Fact) []events.Event {
	var list []events.Event
	for i, f := range facts {
		list = append(list, events.Event{ID: int64(i) + 1, At: began.Add(time.Duration(i) * time.Second), Fact: f})
	}
	return list
}

func started(change ...func(*events.Started)) *events.Started {
	s := &events.Started{Name: "order", Version: "1.0.0", Incarnation: "incarnation", Engine: 1, Message: "start"}
	for _, f := range change {
		f(s)
	}
	return s
}

func next(carried int) *events.Started {
	return started(func(s *events.Started) { s.Previous, s.Carried = 1, carried })
}

func value(key, v string) *events.ValueSet {
	return &events.ValueSet{Key: key, Value: codec.Payload(v), Set: began}
}

func status(v string, version int64) *events.StatusSet {
	return &events.StatusSet{Status: codec.Payload(v), Version: version}
}

func received(message string) *events.MessageReceived {
	return &events.MessageReceived{Mailbox: "mail", Message: message, Data: codec.Payload(`"` + message + `"`)}
}

func read(message int64) *events.MailboxRead {
	return &events.MailboxRead{Mailbox: "mail", Message: message}
}

func timer(after time.Duration) *events.TimerCreated {
	return &events.TimerCreated{FireAt: began.Add(after)}
}

var (
	call      = &events.ActivityScheduled{Name: "charge", Attempt: 1}
	done      = &events.ActivityCompleted{Schedule: 2, Result: codec.Payload("1")}
	completed = &events.Completed{Output: codec.Payload("1")}
	continued = &events.ContinuedAsNew{Name: "order", Version: "1.0.0"}
)

// kept is an event "go" that the instance keeps.
func kept(message string, change ...func(*events.EventReceived)) *events.EventReceived {
	f := &events.EventReceived{Name: "go", Message: message, Keep: true}
	for _, c := range change {
		c(f)
	}
	return f
}

// awaited is a wait for it, which takes a kept one, unless that is 0.
func awaited(kept int64) *events.EventAwaited { return &events.EventAwaited{Name: "go", Kept: kept} }

// of is an instance with histories, and with the row and the values that follow from them.
func of(histories ...[]events.Event) check.Instance {
	in := check.Instance{ID: "i", History: make(map[int64][]events.Event), Values: make(map[string]codec.Payload)}
	for i, h := range histories {
		in.History[int64(i)+1] = h
	}
	last := histories[len(histories)-1]
	in.Row = round.Row{
		Execution: int64(len(histories)), Incarnation: "incarnation", Engine: 1, Name: "order", Version: "1.0.0",
		StartMessage: "start", Status: round.Running,
		LastEvent: int64(len(last)), StartedAt: last[0].At, UpdatedAt: last[len(last)-1].At,
		WakeAt: began.Add(time.Hour),
	}
	for _, e := range last {
		switch f := e.Fact.(type) {
		case *events.Started:
			in.Row.Parent, in.Row.StartMessage, in.Row.Incarnation = f.Parent, f.Message, f.Incarnation
			in.Row.Name, in.Row.Version = f.Name, f.Version
		case *events.Completed:
			in.Row.Status, in.Row.Output, in.Row.EndedAt, in.Row.WakeAt = round.Completed, f.Output, e.At, time.Time{}
		case *events.Failed:
			in.Row.Status, in.Row.Error, in.Row.EndedAt, in.Row.WakeAt = round.Failed, f.Error, e.At, time.Time{}
		case *events.ValueSet:
			in.Values[f.Key] = f.Value
		case *events.StatusSet:
			in.Row.CustomStatus, in.Row.CustomStatusVersion = f.Status, f.Version
		default:
		}
	}
	return in
}

// unread sets the row's number of unread messages.
func unread(in check.Instance, n int) check.Instance {
	in.Row.Unread = n
	return in
}

// changed changes the row.
func changed(in check.Instance, change func(*check.Instance)) check.Instance {
	change(&in)
	return in
}

var clean = []struct {
	name string
	in   check.Instance
}{
	{"runs", of(story(started(), call))},
	{"ended", of(story(started(), call, done, completed))},
	{"a late timer", of(story(started(), timer(time.Second), &events.TimerFired{Timer: 2}, completed))},
	{"a retry", of(story(started(), call, &events.ActivityFailed{Schedule: 2,
		Error: &failure.Error{Kind: failure.Application, Message: "x"}},
		&events.ActivityScheduled{Name: "charge", Attempt: 2, First: 2}))},
	{"passed on", of(story(started(), call, &events.ActivityBegun{Schedule: 2, Pending: true}, done, completed))},
	{"reads and messages", unread(of(story(started(), read(0), received("a"), received("b"), read(4), received("c"))),
		1)},
	{"a read that gives back",
		of(story(started(), read(0), received("a"), &events.Dropped{Schedules: []int64{2}}, read(3)))},
	{"a read that gives back to another", unread(of(story(started(), read(0), read(0), received("a"),
		&events.Dropped{Schedules: []int64{2}}, received("b"))), 1)},
	{"kept events", unread(of(story(started(), kept("a"), kept("b"), awaited(2), kept("c"))), 2)},
	{"a kept event that replaces another", unread(of(story(started(), kept("a"),
		kept("b", func(f *events.EventReceived) { f.Instead = 2 }), awaited(3), kept("c"))), 1)},
	{"a wait that gives back a kept event", of(story(started(), kept("a"), awaited(2),
		&events.Dropped{Schedules: []int64{3}}, awaited(2)))},
	{"a wait that gives back an event to another", unread(of(story(started(), awaited(0), awaited(0),
		kept("a", func(f *events.EventReceived) { f.Wait = 2 }), &events.Dropped{Schedules: []int64{2}},
		kept("b"))), 1)},
	{"an event that was not kept", of(story(started(), awaited(0), &events.EventReceived{Wait: 2, Name: "go"},
		awaited(0)))},
	{"continues with kept events", unread(of(story(started(), kept("a"), kept("b"), awaited(2), continued),
		story(next(1), kept("b"), call)), 1)},
	{"a select", of(story(started(), call, timer(time.Hour), done, &events.Dropped{Schedules: []int64{3}}, completed))},
	{"continues", unread(of(
		story(started(), status(`"x"`, 1), value("k", "1"), received("a"), received("b"), read(4), continued),
		story(next(3), status(`"x"`, 1), value("k", "1"), received("b"), call),
	), 1)},
	{"continues with a message that it may not have looked at",
		unread(of(story(started(), received("a"), read(2), continued), story(next(1), received("a"), call)), 1)},
	{"a new incarnation", of(story(started(), completed), story(started(func(s *events.Started) {
		s.Incarnation, s.Message = "other", "again"
	}), call))},
	{"pruned", changed(of(story(started(), continued), story(next(0), continued),
		story(started(func(s *events.Started) {
			s.Previous = 2
		}))),
		func(in *check.Instance) { delete(in.History, 1) })},
	{"suspended", changed(of(story(started(), call, &events.Suspended{})), func(in *check.Instance) {
		in.Row.Status = round.Suspended
	})},
}

func TestCorrectHistoriesPass(t *testing.T) {
	for _, c := range clean {
		if err := c.in.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// planted are instances with one violation each.
var planted = []struct {
	rule check.Rule
	in   check.Instance
}{
	{check.EventOrder, changed(of(story(started(), call, done)), func(in *check.Instance) {
		in.History[1][2].ID, in.Row.LastEvent = 4, 4
	})},
	{check.TimeOrder, changed(of(story(started(), call, done)), func(in *check.Instance) {
		in.History[1][2].At = began
	})},
	{check.FirstEvent, of(story(call, done, completed))},
	{check.FirstEvent, of(story(started(), call, started()))},
	{check.TwoOutcomes, of(story(started(), completed, &events.Completed{Output: codec.Payload("2")}))},
	{check.AfterEnd, of(story(started(), completed, received("a")))},
	{check.AnswersNothing, of(story(started(), &events.ActivityCompleted{Schedule: 7}))},
	{check.AnswersNothing, of(story(started(), call, &events.TimerFired{Timer: 2}))},
	{check.AnsweredTwice, of(story(started(), call, done, done))},
	{check.AnsweredTwice, of(story(started(), call, done,
		&events.ActivityFailed{Schedule: 2, Error: &failure.Error{Kind: failure.Application, Message: "x"}}))},
	{check.AnsweredDropped, of(story(started(), call, &events.Dropped{Schedules: []int64{2}}, done))},
	{check.TimerEarly, of(story(started(), timer(time.Hour), &events.TimerFired{Timer: 2}))},
	{check.WrongEvent, of(story(started(), &events.EventAwaited{Name: "go"},
		&events.EventReceived{Wait: 2, Name: "stop"}))},
	{check.ReadNothing, of(story(started(), call, awaited(2)))},
	{check.ReadTwice, of(story(started(), kept("a"), awaited(2), awaited(2)))},
	{check.ReadOrder, unread(of(story(started(), kept("a"), kept("b"), awaited(3))), 1)},
	{check.ReadOrder, unread(of(story(started(), kept("a"), awaited(0))), 1)},
	{check.ReadOrder, of(story(started(), awaited(0), kept("a")))},
	{check.ReadOrder, unread(of(story(started(), kept("a"), kept("b"),
		kept("c", func(f *events.EventReceived) { f.Instead = 3 }))), 2)},
	{check.StepTwice, of(story(started(), &events.StepCompleted{Step: 1, Name: "x"},
		&events.StepCompleted{Step: 1, Name: "x"}))},
	{check.StepTwice, of(story(started(), &events.StepCompleted{Step: 1, Name: "x"},
		&events.StepFailed{Step: 1, Name: "x", Attempt: 1,
			Error: &failure.Error{Kind: failure.Application, Message: "x"}}))},
	{check.MessageTwice, unread(of(story(started(), received("a"), received("a"))), 2)},
	{check.MessageTwice, of(story(started(), received("a"), read(2), continued), story(next(0), received("a"),
		read(2)))},
	{check.MessageTwice, of(story(started(), &events.CancelRequested{Message: "a"}, &events.Suspended{Message: "a"},
		&events.Resumed{Message: "b"}))},
	{check.ReadNothing, of(story(started(), read(9)))},
	{check.ReadNothing, of(story(started(), call, read(2)))},
	{check.ReadTwice, of(story(started(), received("a"), read(2), read(2)))},
	{check.ReadOrder, unread(of(story(started(), received("a"), received("b"), read(3))), 1)},
	{check.ReadOrder, unread(of(story(started(), received("a"), read(0))), 1)},
	{check.NoEnd, of(story(started(), call), story(started(func(s *events.Started) { s.Incarnation = "other" })))},
	{check.ExecutionMissing,
		changed(of(story(started(), continued), story(next(0), continued), story(started(func(s *events.Started) {
			s.Previous = 2
		}))),
			func(in *check.Instance) { delete(in.History, 2) })},
	{check.ContinuedDiffers, of(story(started(), continued), story(started(func(s *events.Started) {
		s.Previous, s.Name = 1, "other"
	})))},
	{check.ContinuedDiffers, of(story(started(), continued), story(started(func(s *events.Started) {
		s.Previous, s.Incarnation = 1, "other"
	})))},
	{check.ContinuedDiffers, of(story(started(), continued), story(started()))},
	{check.ContinuedDiffers, of(story(started(), continued), story(started(func(s *events.Started) {
		s.Previous, s.Input = 1, codec.Payload("7")
	})))},
	{check.CarriedDiffers, of(story(started(), value("k", "1"), continued), story(next(1), value("k", "2")))},
	{check.CarriedDiffers, of(story(started(), status("1", 1), continued), story(next(0), call))},
	{check.MailboxDropped, of(story(started(), received("a"), continued), story(next(0), call))},
	{check.MailboxFromNowhere, unread(of(story(started(), continued), story(next(1), received("a"))), 1)},
	{check.RowDiffers, changed(of(story(started(), call)), func(in *check.Instance) { in.Row.LastEvent = 3 })},
	{check.RowDiffers, changed(of(story(started(), call)), func(in *check.Instance) {
		in.Row.Status = round.Completed
	})},
	{check.RowDiffers, changed(of(story(started(), completed)), func(in *check.Instance) {
		in.Row.Output = codec.Payload("2")
	})},
	{check.RowDiffers, changed(of(story(started(), call)), func(in *check.Instance) {
		in.Row.Error = &failure.Error{Kind: failure.Application, Message: "x"}
	})},
	{check.RowDiffers, changed(of(story(started(), call)), func(in *check.Instance) { in.Row.Unread = 1 })},
	{check.RowDiffers, changed(of(story(started(), call)), func(in *check.Instance) {
		in.Row.Parent = &events.Parent{Instance: "p"}
	})},
	{check.ValuesDiffer, changed(of(story(started(), value("k", "1"))), func(in *check.Instance) {
		in.Values["k"] = codec.Payload("2")
	})},
	{check.ValuesDiffer, changed(of(story(started(), call)), func(in *check.Instance) {
		in.Values["k"] = codec.Payload("2")
	})},
	{check.StatusDiffers, changed(of(story(started(), status("1", 1))), func(in *check.Instance) {
		in.Row.CustomStatus = codec.Payload("2")
	})},
	{check.StatusDiffers, changed(of(story(started(), status("1", 1))), func(in *check.Instance) {
		in.Row.CustomStatusVersion = 7
	})},
	{check.NoWake, changed(of(story(started(), call)), func(in *check.Instance) { in.Row.WakeAt = time.Time{} })},
}

func TestEachViolationIsFound(t *testing.T) {
	for _, c := range planted {
		rules := rulesOf(c.in.Findings())
		if len(rules) == 0 || !slices.Contains(rules, c.rule) {
			t.Errorf("%s is not found in\n%v\nbut %v", c.rule, c.in.History, c.in.Check())
		}
		// Other findings are allowed only if they follow from the planted violation.
		for _, r := range rules {
			if r != c.rule && !slices.Contains(follow[c.rule], r) {
				t.Errorf("%s is found where %s was planted: %v", r, c.rule, c.in.Check())
			}
		}
	}
}

// follow are rules that are broken along with another one.
var follow = map[check.Rule][]check.Rule{
	check.FirstEvent:         {check.AnswersNothing, check.RowDiffers},
	check.TwoOutcomes:        {check.RowDiffers},
	check.AfterEnd:           {check.RowDiffers},
	check.ExecutionMissing:   {check.ContinuedDiffers},
	check.MailboxFromNowhere: {},
}

func rulesOf(findings []check.Finding) (rules []check.Rule) {
	for _, f := range findings {
		if !slices.Contains(rules, f.Rule) {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}

// TestEveryRuleIsPlanted wants that no rule is without a violation of it that is found.
func TestEveryRuleIsPlanted(t *testing.T) {
	found := map[check.Rule]bool{
		check.OutboxOverdue: true, // TestOldPromisesOfTheOutboxAreFound
		check.HistoryUnread: true, // TestWhatIsNoExportIsRefused
	}
	for _, c := range planted {
		found[c.rule] = true
	}
	var more []check.Rule
	for _, c := range families {
		more = append(more, c.want...)
	}
	for _, c := range inFlight {
		more = append(more, c.want...)
	}
	for _, c := range acknowledgements {
		more = append(more, c.want...)
	}
	for _, c := range saidToOthers {
		more = append(more, c.want...)
	}
	for _, r := range more {
		found[r] = true
	}
	for _, r := range check.Rules {
		if !found[r] {
			t.Errorf("nobody plants a violation of %s", r)
		}
		delete(found, r)
	}
	for r := range found {
		t.Errorf("%s is not in the list of rules", r)
	}
}

// TestRulesAreExplained wants each rule in the comment of the package and in the document for
// operators.
func TestRulesAreExplained(t *testing.T) {
	for _, name := range []string{"check.go", filepath.Join("..", "..", "docs", "operating.md")} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range check.Rules {
			if !regexp.MustCompile(`\b` + string(r) + `\b`).Match(text) {
				t.Errorf("%s does not explain %s", name, r)
			}
		}
	}
}
