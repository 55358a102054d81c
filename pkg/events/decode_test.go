package events_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// header makes headers from keys and values in turn.
func header(pairs ...string) events.Header {
	h := events.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = []string{pairs[i+1]}
	}
	return h
}

func decode(subject string, h events.Header, body string) (events.Message, error) {
	return events.Decode(events.DefaultPrefix, subject, h, []byte(body), "fallback")
}

func mustDecode(t *testing.T, subject string, h events.Header, body string) events.Message {
	t.Helper()
	m, err := decode(subject, h, body)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMessagesThatPeopleWriteAreRead(t *testing.T) {
	incarnation := header(events.HeaderIncarnation, ref.Incarnation)
	tests := []struct {
		name, subject string
		header        events.Header
		body          string
		want          events.Content
	}{
		{"a start", "rondo.start.fulfil.order-7", nil, `{ "sku": "a1" }`,
			&events.Start{Orchestration: "fulfil", Input: payload(`{"sku":"a1"}`)}},
		{"a start without input", "rondo.start.fulfil.order-7", nil, "", &events.Start{Orchestration: "fulfil"}},
		{"a start with plain words", "rondo.start.fulfil.order-7", nil, "a1 ",
			&events.Start{Orchestration: "fulfil", Input: payload("a1 ")}},
		{"an event", "rondo.event.approve%2Eall.order-7", nil, `true`,
			&events.EventRaised{Name: "approve.all", Data: payload(`true`)}},
		{"a mailbox message", "rondo.mailbox.orders.order-7", nil, "", &events.MailboxMessage{Mailbox: "orders"}},
		{"plain words as a reason", "rondo.control.cancel.order-7", nil, "out of stock",
			&events.Control{How: events.Cancel, Reason: "out of stock"}},
		{"JSON text as a reason", "rondo.control.terminate.order-7", nil, `"out of \u0022stock\u0022"`,
			&events.Control{How: events.Terminate, Reason: `out of "stock"`}},
		{"other JSON as a reason", "rondo.control.suspend.order-7", nil, `{"why":1}`,
			&events.Control{How: events.Suspend, Reason: `{"why":1}`}},
		{"no reason", "rondo.control.resume.order-7", nil, "", &events.Control{How: events.Resume}},
		{"JSON null as a reason", "rondo.control.resume.order-7", nil, "null", &events.Control{How: events.Resume}},
		{"a reason that is not UTF-8", "rondo.control.cancel.order-7", nil, "a\xff\xfe",
			&events.Control{How: events.Cancel, Reason: "a?"}},
		{"a completion by hand", "rondo.task-done.1-4.order-7", incarnation, "[ 1 ]",
			&events.TaskDone{Ref: ref, Result: payload("[1]")}},
		{"a time in another zone", "rondo.timer-due.1-4.order-7",
			header(events.HeaderIncarnation, ref.Incarnation, events.HeaderDue,
				"2025-03-14T11:26:53.589793+02:00"), "", &events.TimerDue{Ref: ref, Due: at}},
		{"attributes that are null", "rondo.start.fulfil.order-7", header(events.HeaderAttributes, "null"), "",
			&events.Start{Orchestration: "fulfil"}},
		{"work with a plus before its attempt", "rondo.task._.charge.1-4.order-7",
			header(events.HeaderIncarnation, ref.Incarnation, events.HeaderAttempt, "+2"), "",
			&events.Task{Ref: ref, Activity: "charge", Attempt: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustDecode(t, tt.subject, tt.header, tt.body)
			if want := (events.Message{ID: "fallback", Instance: "order-7", Content: tt.want}); !reflect.DeepEqual(m,
				want) {
				t.Errorf("got %+v %+v\nwant %+v %+v", m, m.Content, want, want.Content)
			}
		})
	}
}

func TestFailuresAreReadAsPeopleWriteThem(t *testing.T) {
	words := func(s string) *failure.Error { return failure.Errorf(failure.Application, "%s", s) }
	tests := []struct {
		name, body string
		want       *failure.Error
	}{
		{"plain words", "the card was declined", words("the card was declined")},
		{"plain words with a percent sign", "100% full", words("100% full")},
		{"JSON text", `"the card was \"declined\""`, words(`the card was "declined"`)},
		{"a JSON object with a message", `{"message":"declined"}`, words("declined")},
		{"a JSON object with more",
			`{"kind":"timeout","type":"heartbeat","non_retryable":true,"details":{ "a": 1 },"color":"red"}`,
			&failure.Error{Kind: failure.Timeout, Type: "heartbeat", NonRetryable: true, Details: payload(`{"a":1}`)}},
		{"a JSON object with neither message nor kind", `{"error":"declined"}`, words(`{"error":"declined"}`)},
		{"a JSON object that does not fit", `{"message":5}`, words(`{"message":5}`)},
		{"a cause without a kind", `{"message":"declined","cause":{"message":"lost"}}`, words("declined")},
		{"a cause", `{"message":"declined","cause":{"kind":"poison","message":"lost"}}`,
			&failure.Error{Kind: failure.Application, Message: "declined", Cause: failure.Errorf(failure.Poison,
				"lost")}},
		{"nothing", "", words("failed without saying why")},
		{"empty text", `""`, words("failed without saying why")},
		{"null", "null", words("failed without saying why")},
		{"a list", `[1]`, words("[1]")},
		{"not UTF-8", "a\xffb", words("a?b")},
		{"too long", strings.Repeat("a", events.MaxErrorText+1),
			words(strings.Repeat("a", events.MaxErrorText-3) + "…")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustDecode(t, "rondo.task-failed.1-4.order-7",
				header(events.HeaderIncarnation, ref.Incarnation), tt.body)
			if got := m.Content.(*events.TaskFailed).Error; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("a failed activity: got %+v, want %+v", got, tt.want)
			}
			m = mustDecode(t, "rondo.child-ended.1-4.order-7",
				header(events.HeaderIncarnation, ref.Incarnation, events.HeaderOutcome, "failed"), tt.body)
			if got := m.Content.(*events.ChildError).Error; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("a failed child: got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestFailuresNestedTooDeepAreCut(t *testing.T) {
	body := strings.Repeat(`{"kind":"poison","cause":`, 5000) + "null" + strings.Repeat("}", 5000)
	m := mustDecode(t, "rondo.task-failed.1-4.order-7", header(events.HeaderIncarnation, ref.Incarnation), body)
	depth := 0
	for e := m.Content.(*events.TaskFailed).Error; e != nil; e = e.Cause {
		depth++
	}
	if depth != events.MaxErrorCauses+1 {
		t.Errorf("%d errors deep", depth)
	}
}

func TestAMessageIsKnownByWhatItsPublisherCallsIt(t *testing.T) {
	long := strings.Repeat("a", 4*events.MaxInstanceID)
	tests := []struct {
		name   string
		header events.Header
		want   string
	}{
		{"nothing", nil, "fallback"},
		{"an empty id", header(events.HeaderMsgID, ""), "fallback"},
		{"a header without values", events.Header{events.HeaderMsgID: nil}, "fallback"},
		{"its own id", header(events.HeaderMsgID, "m 1"), "m 1"},
		{"two ids: the first counts", events.Header{events.HeaderMsgID: {"m-1", "m-2"}}, "m-1"},
		{"a CloudEvents id", header(events.HeaderCloudEventID, "5", events.HeaderCloudEventSource, "/shop"),
			"ce:/shop/5"},
		{"a CloudEvents id without a source", header(events.HeaderCloudEventID, "5"), "ce:/5"},
		{"a CloudEvents source alone", header(events.HeaderCloudEventSource, "/shop"), "fallback"},
		{"both", header(events.HeaderMsgID, "m-1", events.HeaderCloudEventID, "5"), "m-1"},
		{"the longest id", header(events.HeaderMsgID, long), long},
		{"an id that is too long", header(events.HeaderMsgID, long+"b"),
			strings.Repeat("a", 61) + "%E2%80%A6…6a424325ce842da5"},
		{"an id that is not UTF-8", header(events.HeaderMsgID, "a\xff"), "a%3F…089bc907b544c769"},
		{"an id that does not print", header(events.HeaderMsgID, "a\x00"), "a%00…089be207b544f1e4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if m := mustDecode(t, "rondo.event.approve.order-7", tt.header, ""); m.ID != tt.want {
				t.Errorf("got %q, want %q", m.ID, tt.want)
			}
		})
	}
}

func TestDifferentLongIdsStayDifferent(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		id := strings.Repeat("a", 2000) + fmt.Sprint(i)
		m := mustDecode(t, "rondo.event.approve.order-7", header(events.HeaderMsgID, id), "")
		if len(m.ID) > 200 || seen[m.ID] {
			t.Fatalf("%q is long or not the only one", m.ID)
		}
		seen[m.ID] = true
	}
}

func TestHeadersFromOutsideAreCutToSize(t *testing.T) {
	endless := strings.Repeat("日", 10_000)
	h := header(events.HeaderIncarnation, endless, events.HeaderWorker, endless, events.HeaderTrace, endless)
	m := mustDecode(t, "rondo.task-begun.1-4.order-7", h, "")
	begun := m.Content.(*events.TaskBegun)
	for name, got := range map[string]string{"incarnation": begun.Ref.Incarnation, "worker": begun.Worker,
		"trace": m.Trace} {
		if len(got) > 256 || !strings.HasSuffix(got, "日…") {
			t.Errorf("%s is cut to %q", name, got)
		}
	}
	m = mustDecode(t, "rondo.task-begun.1-4.order-7",
		header(events.HeaderIncarnation, "a\xff", events.HeaderWorker, "b\xff", events.HeaderTrace, "c\xff"), "")
	begun = m.Content.(*events.TaskBegun)
	if begun.Ref.Incarnation != "a?" || begun.Worker != "b?" || m.Trace != "c?" {
		t.Errorf("got incarnation %q, worker %q, trace %q", begun.Ref.Incarnation, begun.Worker, m.Trace)
	}
}

// A launched instance is detached, so its start has no parent, but the engine made its id.
func TestAnInstanceMayBeLaunchedUnderTheIdOfAChild(t *testing.T) {
	for _, launcher := range []string{"order-7", "a/b.c~1.2", strings.Repeat("日", events.MaxInstanceID/3)} {
		id := events.ChildID(launcher, 1, 4)
		w := wire(t, events.Message{ID: events.MessageID(events.VerbStart, launcher, ref), Instance: id, Internal: true,
			Content: &events.Start{Orchestration: "audit"}})
		if m := mustDecode(t, w.Subject, w.Header, ""); m.Instance != id {
			t.Errorf("got the instance %q", m.Instance)
		}
	}
	for _, id := range []string{"start", "start/1-4", "start/1-4/l", "start/1-5/l/order-7", "start/1-4/l/order-8",
		"start/x/l/order-7", "start/1-4/l/%", "child-ended/1-4/l/order-7"} {
		_, err := decode("rondo.internal_start.audit.order-7~1%2E4", header(events.HeaderMsgID, id), "")
		wantError(t, err, "reserved for the ids of children")
	}
	_, err := decode("rondo.start.audit.order-7~1%2E4", header(events.HeaderMsgID, "start/1-4/l/order-7"), "")
	wantError(t, err, "reserved for the services") // a client says so
}

// Only the services may say that a message comes from a parent: what a client says of one counts
// for nothing.
func TestClientsHaveNoChildren(t *testing.T) {
	parent := header(events.HeaderParent, "1-4.incarnation.order-7", events.HeaderMsgID, "m")
	for _, verb := range []string{"start.pack", "control.cancel"} {
		parentOf := func(m events.Message) *events.Parent {
			switch c := m.Content.(type) {
			case *events.Start:
				return c.Parent
			case *events.Control:
				return c.Parent
			default:
			}
			t.Fatalf("got %T", m.Content)
			return nil
		}
		if m := mustDecode(t, "rondo."+verb+".pack-9", parent, ""); m.Internal || parentOf(m) != nil {
			t.Errorf("%s of a client comes from %+v", verb, parentOf(m))
		}
		if m := mustDecode(t, "rondo.internal_"+verb+".pack-9", parent, ""); !m.Internal || parentOf(m) == nil {
			t.Errorf("%s of a service comes from nobody", verb)
		}
	}
	for _, verb := range []string{"internal_wake.x", "internal_task-done.1-4", "internal_internal_start.pack",
		"internal_.pack"} {
		_, err := decode("rondo."+verb+".pack-9", parent, "")
		wantError(t, err, "unknown verb")
	}
}

// Services may use the ids that clients may not, and clients all others.
func TestIDsAreReservedByTheirForm(t *testing.T) {
	for id, want := range map[string]bool{"schedule/x": true, "schedule/": true, "delete/l/order-7": true,
		events.MessageID(events.VerbStart, "order-7", ref): true, "control/1-4/l/order-7": true,
		events.StartMessageID("event/1-4/l/order-7", 1): true,
		"schedule": false, "schedules/x": false, "delete": false, "start/order-7": false, "start/1-4": false,
		"start": false, "": false, "start/1-0/l/x": false, "order/1-4/l/x": false,
		events.MessageID(events.VerbDone, "order-7", ref): false} {
		if got := events.ReservedID(id); got != want {
			t.Errorf("%q: got %v", id, got)
		}
		m := events.Message{ID: id, Instance: "i", Internal: true,
			Content: &events.Start{Orchestration: "o", Attributes: map[string]string{events.AttributeSchedule: "x"}}}
		if w := wire(t, m); id != "" && mustDecode(t, w.Subject, w.Header, "").ID != id {
			t.Errorf("%q does not arrive", id)
		}
		m.Internal = false
		_, err := events.Encode("rondo", m)
		wantError(t, err, "reserved")
		m.Content = &events.Start{Orchestration: "o"}
		if _, err := events.Encode("rondo", m); (err != nil) != want {
			t.Errorf("%q from a client: %v", id, err)
		}
	}
}

// Only the services may terminate one incarnation for its deletion, which drops starts that it has
// taken.
func TestClientsDeleteNoIncarnation(t *testing.T) {
	h := header(events.HeaderIncarnation, "ab12", events.HeaderMsgID, "m")
	for verb, want := range map[string]string{"control": "", "internal_control": "ab12"} {
		m := mustDecode(t, "rondo."+verb+".terminate.pack-9", h, "")
		if got := m.Content.(*events.Control).Incarnation; got != want {
			t.Errorf("%s is for incarnation %q, want %q", verb, got, want)
		}
	}
}

// Work and timers name their incarnation in the subject, so that a withdrawal reaches nothing of
// the next one.
func TestIncarnationsHaveSubjectsOfTheirOwn(t *testing.T) {
	other := ref
	other.Incarnation = "another"
	for _, both := range [][2]events.Content{
		{&events.Task{Ref: ref, Activity: "charge", Attempt: 1}, &events.WithdrawTask{Ref: ref, Activity: "charge"}},
		{&events.TimerDue{Ref: ref}, &events.WithdrawTimer{Ref: ref}},
	} {
		sent, withdrawn := wire(t, events.Message{Instance: "i", Content: both[0]}),
			wire(t, events.Message{Instance: "i", Content: both[1]})
		if sent.Subject != withdrawn.Subject {
			t.Errorf("%s is withdrawn under %s", sent.Subject, withdrawn.Subject)
		}
	}
	next := wire(t, events.Message{Instance: "i", Content: &events.TimerDue{Ref: other}})
	if before := wire(t,
		events.Message{Instance: "i", Content: &events.TimerDue{Ref: ref}}); before.Subject == next.Subject {
		t.Errorf("two incarnations have their timers under %s", next.Subject)
	}
}

func TestAChildIsStartedUnderAnyId(t *testing.T) {
	parent := header(events.HeaderParent, "1-4.incarnation.order-7", events.HeaderMsgID, "m")
	for _, id := range []string{"order-7~1%2E4", "pack-9"} {
		m := mustDecode(t, "rondo.internal_start.pack."+id, parent, "")
		want := &events.Parent{Instance: "order-7", Incarnation: "incarnation", Execution: 1, Event: 4}
		if got := m.Content.(*events.Start).Parent; !reflect.DeepEqual(got, want) {
			t.Errorf("got the parent %+v", got)
		}
	}
}

func TestTimesOnTheWireKeepTheirNanoseconds(t *testing.T) {
	due := at.Add(123 * time.Nanosecond)
	w := wire(t, say(&events.TimerDue{Ref: ref, Due: due}))
	m := mustDecode(t, w.Subject, w.Header, "")
	if got := m.Content.(*events.TimerDue).Due; got != due {
		t.Errorf("got %v, want %v", got, due)
	}
}

// Unknown headers of a message, from a newer version or from another client, are ignored.
func TestUnknownHeadersAreNoProblem(t *testing.T) {
	h := header(events.HeaderIncarnation, "incarnation", "Rondo-Something-New", "true", "X-Mine", "1")
	if c := mustDecode(t, "rondo.task-begun.1-4.order-7", h, "").Content.(*events.TaskBegun); c.Pending {
		t.Error("it is pending, and nobody said so")
	}
	h[events.HeaderPending] = []string{"1"}
	if c := mustDecode(t, "rondo.task-begun.1-4.order-7", h, "").Content.(*events.TaskBegun); !c.Pending {
		t.Error("it is not pending")
	}
	h[events.HeaderPending] = []string{"perhaps"}
	_, err := decode("rondo.task-begun.1-4.order-7", h, "")
	wantError(t, err, events.HeaderPending, "perhaps", "neither true nor false")
}
