package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// wire is a client that keeps published messages and gives prepared outcomes.
type wire struct {
	orchestration.Client // no method of it that is not below is called
	published            []events.Message
	delivered            []events.Message
	receipt              orchestration.Receipt
	refuse               error
	outcomes             map[string]orchestration.Outcome
	ids                  int
}

func (w *wire) Publish(_ context.Context, messages ...events.Message) error {
	w.published = append(w.published, messages...)
	return w.refuse
}

func (w *wire) Deliver(_ context.Context, m events.Message) (orchestration.Receipt, error) {
	w.delivered = append(w.delivered, m)
	return w.receipt, w.refuse
}

func (w *wire) Now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func (w *wire) Outcome(_ context.Context, instance, _ string) (orchestration.Outcome, error) {
	o, ok := w.outcomes[instance]
	if !ok {
		return o, context.Canceled
	}
	return o, nil
}

func (w *wire) NewID() string      { w.ids++; return fmt.Sprint("new-", w.ids) }
func (w *wire) Codec() codec.Codec { return codec.JSON{} }

var large = strings.Repeat("x", events.MaxPayload)

func TestStartTellsEverythingThatIsWrong(t *testing.T) {
	w := &wire{}
	_, err := orchestration.Define[string, string]("rondo.mine").Start(t.Context(), w, large,
		orchestration.ID("i~1.2"), orchestration.Version("one"), orchestration.Attributes(map[string]string{"": "x"}))
	mustSay(t, err, `the prefix "rondo." is reserved`, `instance id "i~1.2"`, `version "one"`, `attribute name`,
		`input (bytes)`)
	if !errors.Is(err, &failure.Error{Kind: failure.LimitExceeded}) {
		t.Errorf("the limit cannot be told from %v", err)
	}
	_, err = orchestration.Define[chan int, string]("subject").Start(t.Context(), w, nil)
	mustSay(t, err, "encode chan int")
	if len(w.published) != 0 {
		t.Errorf("published %v", w.published)
	}
}

// CheckStart refuses what a start refuses, and nothing else.
func TestCheckStart(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []orchestration.StartOption
		want string
	}{
		{"orders", nil, ""},
		{"orders", []orchestration.StartOption{orchestration.RequestID("r"), orchestration.Version("1.0.0")}, ""},
		{"", nil, "orchestration name: it is empty"},
		{"orders", []orchestration.StartOption{orchestration.ID("")}, "instance id: it is empty"},
		{"orders", []orchestration.StartOption{orchestration.RequestID("a\nb")}, "instance id"},
		{"orders", []orchestration.StartOption{orchestration.Version("9")}, "not a semantic version"},
	} {
		err := orchestration.CheckStart(c.name, nil, time.Time{}, c.opts...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q %v: %v, want %q", c.name, c.opts, err, c.want)
		}
	}
}

func TestStartSaysWhatTheOptionsSay(t *testing.T) {
	attributes := map[string]string{"customer": "ann"}
	for name, c := range map[string]struct {
		opts []orchestration.StartOption
		want events.Message
	}{
		"none": {nil, events.Message{ID: "new-2", Instance: "new-1", Content: &events.Start{}}},
		"id": {[]orchestration.StartOption{orchestration.ID("i")},
			events.Message{ID: "new-1", Instance: "i", Content: &events.Start{}}},
		"request": {[]orchestration.StartOption{orchestration.RequestID("r")},
			events.Message{ID: "r", Instance: "r", Content: &events.Start{}}},
		"all": {
			[]orchestration.StartOption{orchestration.ID("i"), orchestration.RequestID("r"),
				orchestration.Version("2.0.0"),
				orchestration.Attributes(attributes), orchestration.RestartFinished()},
			events.Message{ID: "r", Instance: "i",
				Content: &events.Start{Version: "2.0.0", Attributes: attributes, Conflict: events.RestartFinished}},
		},
		"the last one counts": {
			[]orchestration.StartOption{orchestration.ID("a"), orchestration.ID("b"), orchestration.RestartFinished(),
				orchestration.ReplaceRunning()},
			events.Message{ID: "new-1", Instance: "b", Content: &events.Start{Conflict: events.ReplaceRunning}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			h, err := subject.Start(t.Context(), w, "in", c.opts...)
			must(t, err)
			got, want := w.published[0], c.want
			s, ws := got.Content.(*events.Start), want.Content.(*events.Start)
			if len(w.published) != 1 || got.ID != want.ID || got.Instance != want.Instance || h.ID != want.Instance {
				t.Errorf("published %+v for %q, want %+v", w.published, h.ID, want)
			}
			if s.Orchestration != "subject" || string(s.Input) != `"in"` || s.Version != ws.Version ||
				s.Conflict != ws.Conflict ||
				!maps.Equal(s.Attributes, ws.Attributes) || s.Parent != nil {
				t.Errorf("started with %+v, want %+v", s, ws)
			}
		})
	}
}

func TestStartThatMayHaveFailedGivesTheHandle(t *testing.T) {
	w := &wire{refuse: errors.New("no connection")}
	h, err := subject.Start(t.Context(), w, "in", orchestration.ID("i"))
	if !errors.Is(err, w.refuse) || h.ID != "i" {
		t.Errorf("got handle of %q, %v", h.ID, err)
	}
}

func TestWaitGivesOutputOrError(t *testing.T) {
	w := &wire{outcomes: map[string]orchestration.Outcome{
		"done":    {Output: codec.Payload(`"out"`)},
		"empty":   {},
		"failed":  {Error: &failure.Error{Kind: failure.Application, Type: "no_stock", Message: "none left"}},
		"strange": {Output: codec.Payload(`5`)},
	}}
	for id, want := range map[string]string{"done": `"out" <nil>`, "empty": `"" <nil>`, "failed": `"" none left`} {
		out, err := subject.Handle(w, id).Wait(t.Context())
		if got := fmt.Sprintf("%q %v", out, err); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
	if _, err := subject.Handle(w, "failed").Wait(t.Context()); !errors.Is(err, orchestration.OfType("no_stock")) {
		t.Errorf("got %v", err)
	}
	_, err := subject.Handle(w, "strange").Wait(t.Context())
	mustSay(t, err, "decode 5 into *string")
	if _, err := subject.Handle(w, "nobody").Wait(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The id may belong to an instance of another orchestration, whose result is no result here. A
// later execution may have another name, because one orchestration can continue as another.
func TestWaitRefusesAnotherOrchestration(t *testing.T) {
	w := &wire{outcomes: map[string]orchestration.Outcome{
		"own":       {Output: codec.Payload(`"out"`), Orchestration: subject.Name(), Execution: 1},
		"continued": {Output: codec.Payload(`"out"`), Orchestration: "mail", Execution: 2},
		"other":     {Output: codec.Payload(`"out"`), Orchestration: "mail", Execution: 1},
		"failed":    {Error: &failure.Error{Message: "none left"}, Orchestration: "mail", Execution: 1},
	}}
	for _, id := range []string{"own", "continued"} {
		if out, err := subject.Handle(w, id).Wait(t.Context()); out != "out" || err != nil {
			t.Errorf("%s: %q, %v", id, out, err)
		}
	}
	for _, id := range []string{"other", "failed"} {
		out, err := subject.Handle(w, id).Wait(t.Context())
		if out != "" || !errors.Is(err, orchestration.ErrOtherOrchestration) {
			t.Errorf("%s: %q, %v", id, out, err)
		}
		mustSay(t, err, `instance "`+id+`" is of "mail", not of "`+subject.Name()+`"`)
	}
}

func TestHandleSteers(t *testing.T) {
	w := &wire{}
	h := subject.Handle(w, "i")
	for how, do := range map[events.How]func(context.Context, string) error{
		events.Cancel: h.Cancel, events.Terminate: h.Terminate, events.Suspend: h.Suspend, events.Resume: h.Resume,
	} {
		w.published = nil
		must(t, do(t.Context(), "because"))
		m := w.published[0]
		if c, ok := m.Content.(*events.Control); !ok || m.Instance != "i" || m.ID == "" || c.How != how ||
			c.Reason != "because" {
			t.Errorf("%s says %+v %+v", how, m, m.Content)
		}
	}
}

func TestControlRefuses(t *testing.T) {
	w := &wire{}
	mustSay(t, orchestration.Control(t.Context(), w, "", events.Cancel, ""), "instance id: it is empty")
	mustSay(t, orchestration.Control(t.Context(), w, "i", "stop", ""),
		`control "stop" is none of cancel, terminate, suspend and resume`)
	err := orchestration.Control(t.Context(), w, "i", events.Cancel, strings.Repeat("x", events.MaxReason+1))
	mustSay(t, err, "reason (bytes): 4097 is over the limit of 4096; say it in a sentence")
	if !errors.Is(err, &failure.Error{Kind: failure.LimitExceeded}) {
		t.Errorf("the limit cannot be told from %v", err)
	}
	if len(w.published) != 0 {
		t.Errorf("published %v", w.published)
	}
	must(t, orchestration.Control(t.Context(), w, "i", events.Cancel, strings.Repeat("x", events.MaxReason)))
}

func TestRaiseAndPush(t *testing.T) {
	w := &wire{}
	must(t, knock.Raise(t.Context(), w, "i", "hello"))
	must(t, letters.Send(t.Context(), w, "i", "dear"))
	e, q := w.published[0], w.published[1]
	if c, ok := e.Content.(*events.EventRaised); !ok || e.Instance != "i" || e.ID == "" || c.Name != "knock" ||
		string(c.Data) != `"hello"` {
		t.Errorf("raised %+v %+v", e, e.Content)
	}
	if c, ok := q.Content.(*events.MailboxMessage); !ok || q.Instance != "i" || q.ID == "" || c.Mailbox != "letters" ||
		string(c.Data) != `"dear"` {
		t.Errorf("pushed %+v %+v", q, q.Content)
	}

	w.published = nil
	mustSay(t, orchestration.DefineEvent[string]("").Raise(t.Context(), w, "", large), "event name: it is empty",
		"instance id: it is empty", `event "" (bytes)`)
	mustSay(t, orchestration.DefineMailbox[string]("").Send(t.Context(), w, "", large), "mailbox name: it is empty",
		"instance id: it is empty", `mailbox "" (bytes)`)
	mustSay(t, orchestration.DefineMailbox[func()]("q").Send(t.Context(), w, "i", nil), "encode func()")
	if len(w.published) != 0 {
		t.Errorf("published %v", w.published)
	}
}

func TestContractsHaveNames(t *testing.T) {
	for _, name := range []string{subject.Name(), knock.Name(), letters.Name(),
		orchestration.DefineValue[int]("key").Name()} {
		if name == "" {
			t.Error("a contract has lost its name")
		}
	}
}
