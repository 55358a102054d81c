package query_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// told publishes the notifications of a turn, and returns those that a subscriber got.
func told(t *testing.T, turn *round.Turn) (heard []query.Notification) {
	t.Helper()
	b := newBroker()
	stop, err := query.Listen(t.Context(), b, broker.Any, func(n query.Notification) { heard = append(heard, n) })
	must(t, err)
	defer stop()
	must(t, query.NotifyTurn(b, turn))
	return heard
}

func topics(list []query.Notification) string {
	var all []string
	for _, n := range list {
		all = append(all, string(n.Topic))
	}
	return strings.Join(all, " ")
}

func TestTurnsAreAnnounced(t *testing.T) {
	a := historytest.NewActor("order 7")
	for _, c := range []struct {
		what string
		turn *round.Turn
		want string
	}{
		{"nothing", &round.Turn{Instance: a.ID}, ""},
		{"a start", a.Start(historytest.WithMessage("m1")), ""},
		{"a note", a.Note(), ""},
		{"a status", a.SetStatus(`"half"`), "status"},
		{"a value", a.Set("k", "1"), "values"},
		{"a continue-as-new", a.ContinueAsNew(), ""},
		{"the end", a.Complete(`"done"`), "ended"},
		{"a new incarnation of what has ended", a.Start(historytest.WithMessage("m2")), "status values"},
		{"status, value and end at once", historytest.Together(a.SetStatus(`1`), a.Set("k", "1"), a.Fail("no")),
			"status values ended"},
	} {
		if got := topics(told(t, c.turn)); got != c.want {
			t.Errorf("%s: told %q, want %q", c.what, got, c.want)
		}
	}
}

func TestEndedSaysHow(t *testing.T) {
	a := historytest.NewActor("order 7")
	a.Start(historytest.WithMessage("m1"))
	heard := told(t, a.Complete(`{"a":1}`))
	e, ok := heard[0].Ended()
	if !ok || e.Instance != a.ID || e.Name != "orders" || e.Version != "1.0.0" || e.Incarnation != a.Row.Incarnation ||
		e.Execution != 1 || e.Status != round.Completed ||
		e.StartMessage != "m1" || string(e.Output) != `{"a":1}` || e.Error != nil || e.Large || e.Replaced ||
		!e.EndedAt.Equal(a.Row.EndedAt) {
		t.Errorf("heard %+v", e)
	}
	if n := heard[0]; n.Name != "orders" || n.Instance != a.ID {
		t.Errorf("under the words %+v", n)
	}
	if _, ok := heard[0].Changed(); ok {
		t.Error("an end is no change")
	}
	if _, ok := heard[0].Settled(); ok {
		t.Error("an end is no receipt")
	}
}

// TestReplacedIncarnation: a running incarnation that a start has replaced has ended, too; there is
// no second notification of one that had ended before.
func TestReplacedIncarnation(t *testing.T) {
	a := historytest.NewActor("a")
	a.Start(historytest.WithMessage("m1"))
	former := a.Row.Incarnation
	turn := historytest.Together(a.Terminate("replaced"), a.Start(historytest.WithMessage("m2")))
	heard := told(t, turn)
	e, ok := heard[0].Ended()
	if topics(heard) != "ended values" || !ok || !e.Replaced || e.Incarnation != former || e.StartMessage != "m1" ||
		e.Status != round.Terminated {
		t.Errorf("heard %s: %+v", topics(heard), e)
	}
}

func TestLargeThingsAreLeftOut(t *testing.T) {
	large := `"` + strings.Repeat("x", 100<<10) + `"`
	a := historytest.NewActor("a")
	a.Start()
	heard := told(t, historytest.Together(a.SetStatus(large), a.Complete(large)))
	c, ok := heard[0].Changed()
	if !ok || !c.Large || c.Data != nil || c.Version != 1 {
		t.Errorf("heard %+v", c)
	}
	e, ok := heard[1].Ended()
	if !ok || !e.Large || e.Output != nil || e.Status != round.Completed {
		t.Errorf("heard %+v", e)
	}

	b := historytest.NewActor("b")
	b.Start()
	turn := b.Fail("x")
	deep := turn.Row.Error
	for range events.MaxErrorCauses {
		deep.Message = strings.Repeat("é", events.MaxErrorText/2)
		deep.Cause = &failure.Error{Kind: failure.Application, Stack: strings.Repeat("s", events.MaxErrorText)}
		deep = deep.Cause
	}
	if e, ok := told(t, turn)[0].Ended(); !ok || !e.Large || e.Error != nil || e.Status != round.Failed {
		t.Errorf("heard %+v", e)
	}
}

func TestReceipts(t *testing.T) {
	b := newBroker()
	var heard []query.Notification
	stop, err := query.Listen(t.Context(), b, "a", func(n query.Notification) {
		heard = append(heard, n)
	}, query.TopicSettled)
	must(t, err)
	defer stop()
	row := round.Row{Incarnation: "l", Execution: 2, Status: round.Running, StartMessage: "m0"}
	long := strings.Repeat("m", 500)
	message := func(id string) events.Message {
		return events.Message{ID: id, Instance: "a", Content: &events.EventRaised{Name: "e"}}
	}
	for _, c := range []struct {
		receipt round.Receipt
		message string
		want    string
		taken   bool
	}{
		{round.Receipt{Verdict: round.Accepted, Reason: round.Taken}, "m", query.VerdictAccepted, true},
		{round.Receipt{Verdict: round.Ignored, Reason: round.Duplicate}, long, query.VerdictIgnored, true},
		{round.Receipt{Verdict: round.Ignored, Reason: round.Exists, Detail: "it is there"}, "m",
			query.VerdictIgnored, false},
		{round.Receipt{Verdict: round.Dead, Reason: round.TriedTooOften}, "m", query.VerdictDead, false},
		{round.Receipt{Verdict: round.Returned}, "m", "", false},
		{round.Receipt{Verdict: round.Again}, "m", "", false},
	} {
		heard = nil
		must(t, query.NotifyReceipt(b, row, message(c.message), c.receipt))
		if c.want == "" {
			if len(heard) != 0 {
				t.Errorf("%+v was announced", c.receipt)
			}
			continue
		}
		s, ok := heard[0].Settled()
		if !ok || !s.IsOf(c.message, events.VerbEvent) || s.IsOf(c.message, events.VerbStart) ||
			s.Verdict != c.want || s.Taken() != c.taken ||
			s.Reason != c.receipt.Reason || s.Detail != c.receipt.Detail ||
			s.Incarnation != "l" || s.Execution != 2 || s.Status != round.Running || s.StartMessage != "m0" {
			t.Errorf("%+v: heard %+v", c.receipt, s)
		}
		if len(heard[0].Name) > 128 {
			t.Errorf("a word of %d bytes", len(heard[0].Name))
		}
	}
	w := events.Wire{}
	if query.WantsReceipt(w.Header) {
		t.Error("nobody has asked for a receipt")
	}
	query.AskReceipt(&w)
	if !query.WantsReceipt(w.Header) {
		t.Error("a receipt was asked for")
	}
}

func TestBrokerThatFails(t *testing.T) {
	b := newBroker()
	b.fail = errors.New("no connection")
	a := historytest.NewActor("a")
	a.Start()
	if err := query.NotifyTurn(b,
		historytest.Together(a.SetStatus("1"), a.Set("k", "1"), a.Complete("1"))); !errors.Is(err, b.fail) {
		t.Errorf("got %v", err)
	}
	if err := query.NotifyReceipt(b, a.Row, events.Message{ID: "m", Instance: "a", Content: &events.Start{}},
		round.Receipt{Verdict: round.Accepted}); !errors.Is(err, b.fail) {
		t.Errorf("got %v", err)
	}
	if _, err := query.Listen(t.Context(), b, "a", nil); !errors.Is(err, b.fail) {
		t.Errorf("got %v", err)
	}
	if _, err := query.Answer(b, nil, query.Options{}); !errors.Is(err, b.fail) {
		t.Errorf("got %v", err)
	}
}

// FuzzNotice: a notification with any body is read or refused, without a panic.
func FuzzNotice(f *testing.F) {
	for _, s := range []string{``, `{}`, `null`, `[]`, `{"instance":"a","status":"completed"}`,
		`{"instance":"a","verdict":"accepted"}`, `{"instance":"a","output":{"$bytes":"x"}}`} {
		f.Add("ended", []byte(s))
	}
	f.Fuzz(func(t *testing.T, topic string, body []byte) {
		b := newBroker()
		stop, err := query.Listen(t.Context(), b, "a", func(n query.Notification) {
			if e, ok := n.Ended(); ok && (e.Instance != "a" || !e.Status.Ended()) {
				t.Errorf("believed %+v", e)
			}
			if c, ok := n.Changed(); ok && c.Instance != "a" {
				t.Errorf("believed %+v", c)
			}
			if s, ok := n.Settled(); ok &&
				(s.Instance != "a" || !slices.Contains([]string{"accepted", "ignored", "dead"}, s.Verdict)) {
				t.Errorf("believed %+v", s)
			}
		})
		must(t, err)
		defer stop()
		must(t, b.Notify([]string{topic, "x", "a"}, nil, body))
	})
}
