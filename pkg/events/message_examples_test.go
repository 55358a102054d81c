package events_test

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// A messageExample is a message with a name, as for events.
type messageExample struct {
	name    string
	message events.Message
}

var ref = events.Ref{Incarnation: "9f1c5a0b7e3d2648", Execution: 1, Event: 4}

func say(c events.Content) events.Message {
	return events.Message{ID: "m-1", Instance: "order-7", Content: c}
}

func traced(c events.Content) events.Message {
	return events.Message{ID: "m-1", Instance: "Käse & Brot.7", Trace: traceparent, TraceState: "vendor=1",
		Baggage: "tenant=acme", Content: c}
}

// internal is what another instance sends.
func internal(c events.Content) events.Message {
	m := traced(c)
	m.Internal = true
	return m
}

func sentBefore(m events.Message) events.Message {
	m.Sent = in(-time.Minute)
	return m
}

func later(d time.Duration, m events.Message) events.Message {
	m.NotBefore = in(d)
	return m
}

// messageExamples has at least one example of everything that a message can say.
var messageExamples = []messageExample{
	{"full", internal(&events.Start{
		Orchestration: "fulfil", Version: "1.4.2", Input: payload(`{"sku":"a<1>"}`),
		Parent:   &events.Parent{Instance: "basket.3", Incarnation: "5b3e91d20c7f6a84", Execution: 1, Event: 12},
		Conflict: events.RestartFinished, Attributes: map[string]string{"customer": "c-9", "region": "eu"},
		IgnoreUnknown: true,
		Messages: []events.StartMessage{{Mailbox: "orders", Data: payload(`{"order":8}`)},
			{Mailbox: "orders", Data: binary}, {Mailbox: "notes"}},
	})},
	{"sent", sentBefore(say(&events.Start{Orchestration: "fulfil"}))},
	{"minimal", say(&events.Start{Orchestration: "fulfil"})},
	{"reject", say(&events.Start{Orchestration: "fulfil", Conflict: events.RejectExisting})},
	{"replace", say(&events.Start{Orchestration: "fulfil", Input: payload("plain words"),
		Conflict: events.ReplaceRunning})},

	{"full", traced(&events.EventRaised{Name: "approve.all", Data: payload(`{"by":"ann"}`), RefuseUnknown: true})},
	{"minimal", say(&events.EventRaised{Name: "approve"})},
	{"binary", say(&events.EventRaised{Name: "approve", Data: binary})},
	{"internal", internal(&events.EventRaised{Name: "approve"})},

	{"full", traced(&events.MailboxMessage{Mailbox: "orders", Data: payload(`{"order":8}`), RefuseUnknown: true})},
	{"minimal", say(&events.MailboxMessage{Mailbox: "orders"})},
	{"internal", internal(&events.MailboxMessage{Mailbox: "orders", Data: payload(`{"order":8}`)})},

	{"full", internal(&events.Control{How: events.Cancel, Reason: "out of stock",
		Parent:      &events.Parent{Instance: "order-7", Incarnation: "ab12", Execution: 1, Event: 4},
		Incarnation: "cd34"})},
	{"minimal", say(&events.Control{How: events.Suspend})},
	{"quoted", say(&events.Control{How: events.Terminate, Reason: `"no"`})},

	{"full", traced(&events.Wake{Reason: "sweep"})},

	{"full", traced(&events.TaskBegun{Ref: ref, Worker: "worker-1", Pending: true})},
	{"minimal", say(&events.TaskBegun{Ref: ref})},
	{"not_pending", say(&events.TaskBegun{Ref: ref, Worker: "worker-1"})},
	{"full", traced(&events.TaskDone{Ref: ref, Result: payload(`{"receipt":"r-1"}`), Worker: "worker-1"})},
	{"minimal", say(&events.TaskDone{Ref: ref})},
	{"full", traced(&events.TaskFailed{Ref: ref, Error: fullError(), Heartbeat: payload(`{"page":7}`),
		Worker: "worker-1"})},
	{"minimal", say(&events.TaskFailed{Ref: ref, Error: shortError()})},
	{"binary_heartbeat", say(&events.TaskFailed{Ref: ref, Error: shortError(), Heartbeat: binary})},

	{"full", later(time.Hour, traced(&events.TimerDue{Ref: ref, Due: in(time.Hour)}))},
	{"minimal", say(&events.TimerDue{Ref: ref})},

	{"full", traced(&events.ChildDone{Ref: ref, Output: payload(`{"boxes":1}`)})},
	{"minimal", say(&events.ChildDone{Ref: ref})},
	{"full", traced(&events.ChildError{Ref: ref, Error: fullError()})},
	{"minimal", say(&events.ChildError{Ref: ref, Error: shortError()})},

	{"full", later(time.Second, traced(&events.Task{
		Ref: ref, Orchestration: "fulfil", Version: "1.4.2", Activity: "charge", Input: payload(`{"amount":100}`),
		Tag: "gpu", Session: "s 1",
		Attempt: 2, IdempotencyKey: "order-7/9f1c5a0b7e3d2648/1/4", StartBy: in(time.Minute), Deadline: in(time.Hour),
		StartToClose: 90 * time.Second, HeartbeatTimeout: 1500 * time.Millisecond, Heartbeat: payload(`{"page":7}`),
	}))},
	{"minimal", say(&events.Task{Ref: ref, Activity: "charge", Attempt: 1})},
	{"tag_named_like_no_tag", say(&events.Task{Ref: ref, Activity: "charge", Tag: "_", Attempt: 1})},

	{"full", say(&events.WithdrawTask{Ref: ref, Tag: "gpu", Activity: "charge"})},
	{"no_tag", say(&events.WithdrawTask{Ref: ref, Activity: "charge"})},
	{"full", say(&events.WithdrawTimer{Ref: ref})},
}

// withdraws reports whether a message takes another one back instead of travelling itself.
func withdraws(m events.Message) bool {
	switch m.Content.(type) {
	case *events.WithdrawTask, *events.WithdrawTimer:
		return true
	default:
	}
	return false
}
