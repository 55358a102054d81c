package events_test

import (
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// at is the moment of the examples; in gives later ones.
var at = time.Date(2025, time.March, 14, 9, 26, 53, 589793000, time.UTC)

func in(d time.Duration) time.Time { return at.Add(d) }

// An eventExample is a fact with a name. "full" fills every field, "minimal" only the required
// ones; others show a case worth seeing.
type eventExample struct {
	name string
	fact events.Fact
}

func (x eventExample) event() events.Event { return events.Event{ID: 7, At: at, Fact: x.fact} }

// traceparent is an example of a W3C trace.
const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func payload(s string) codec.Payload { return codec.Payload(s) }

// binary is what an encrypting codec may give.
var binary = codec.Payload{0x00, 0xff, 0x80, '{', '}'}

func fullError() *failure.Error {
	return &failure.Error{
		Kind: failure.Application, Type: "card_declined", Message: "the card was declined",
		Source: `activity "charge"`, NonRetryable: true,
		Details: payload(`{"code":51}`), Attempts: 3, Stack: "main.charge\n\tcharge.go:7",
		Cause: &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat, Message: "no heartbeat for 10s"},
		Event: 4, Expected: "activity charge", Got: "activity pack",
	}
}

func shortError() *failure.Error { return failure.Errorf(failure.Application, "no") }

func fullRetry() *events.RetryPolicy {
	return &events.RetryPolicy{
		Attempts: 5, First: events.Duration(time.Second), Growth: events.Linear, Factor: 2,
		Most: events.Duration(time.Minute), Jitter: 0.25,
		NonRetryableTypes: []string{"card_declined", "card_expired"},
	}
}

// eventExamples has at least one example of every kind of fact.
var eventExamples = []eventExample{
	{"full", &events.Started{
		Name: "fulfil", Version: "1.4.2", Input: payload(`{"sku":"a<1>","n":2}`),
		Incarnation: "9f1c5a0b7e3d2648", Engine: 1,
		Message:    "start-1",
		Parent:     &events.Parent{Instance: "basket-3", Incarnation: "5b3e91d20c7f6a84", Execution: 1, Event: 12},
		Attributes: map[string]string{"customer": "c-9", "region": "eu"},
		Trace:      traceparent, TraceState: "vendor=1", Baggage: "tenant=acme", Follows: traceparent, Previous: 2,
		Begun: in(-time.Hour), Carried: 3, Seen: []uint64{1, 18446744073709551615},
		Age: 1500, SeenAges: []int64{70000, -3}, Forgotten: in(-time.Minute),
	}},
	{"minimal", &events.Started{Name: "fulfil", Version: "1.4.2", Incarnation: "9f1c5a0b7e3d2648", Engine: 1}},
	{"full", &events.Completed{Output: payload(`"done"`)}},
	{"minimal", &events.Completed{}},
	{"binary", &events.Completed{Output: binary}},
	{"null", &events.Completed{Output: payload("null")}},
	{"looks_like_binary", &events.Completed{Output: payload(`{"$bytes":"no"}`)}},
	{"full", &events.Failed{Error: fullError()}},
	{"minimal", &events.Failed{Error: shortError()}},
	{"full", &events.Cancelled{Reason: "out of stock", Output: payload(`{"refunded":true}`), Error: fullError()}},
	{"minimal", &events.Cancelled{}},
	{"full", &events.Terminated{Reason: "replaced", Message: "control-1", Age: 1500, Deletion: true}},
	{"minimal", &events.Terminated{}},
	{"full", &events.ContinuedAsNew{Name: "fulfil", Version: "1.5.0", Input: payload(`{"page":2}`)}},
	{"minimal", &events.ContinuedAsNew{Name: "fulfil"}},

	{"full", &events.CancelRequested{Reason: "out of stock", Message: "control-1", Age: 1500}},
	{"minimal", &events.CancelRequested{}},
	{"full", &events.Suspended{Reason: "maintenance", Error: fullError(), Message: "control-1", Age: 1500}},
	{"minimal", &events.Suspended{}},
	{"full", &events.Resumed{Reason: "maintenance is over", Healed: true, Message: "control-2", Age: 1500}},
	{"minimal", &events.Resumed{}},

	{"full", &events.ActivityScheduled{
		Name: "charge", Input: payload(`{"amount":100}`), Tag: "gpu", Session: "s-1", Attempt: 2, First: 4,
		NotBefore: in(time.Second), StartBy: in(time.Minute), Deadline: in(time.Hour),
		StartToClose: events.Duration(90 * time.Second), HeartbeatTimeout: events.Duration(1500 * time.Millisecond),
		Heartbeat: payload(`{"page":7}`), Retry: fullRetry(),
	}},
	{"minimal", &events.ActivityScheduled{Name: "charge", Attempt: 1}},
	{"exponential", &events.ActivityScheduled{Name: "charge", Attempt: 1,
		Retry: &events.RetryPolicy{Attempts: 3, First: events.Duration(time.Second), Factor: 1.5}}},
	{"full", &events.ActivityBegun{Schedule: 4, Worker: "worker-1", Pending: true}},
	{"minimal", &events.ActivityBegun{Schedule: 4}},
	{"not_pending", &events.ActivityBegun{Schedule: 4, Worker: "worker-1"}},
	{"full", &events.ActivityCompleted{Schedule: 4, Result: payload(`{"receipt":"r-1"}`), Worker: "worker-1"}},
	{"minimal", &events.ActivityCompleted{Schedule: 4}},
	{"full", &events.ActivityFailed{Schedule: 4, Error: fullError(), Heartbeat: payload(`{"page":7}`),
		Worker: "worker-1"}},
	{"minimal", &events.ActivityFailed{Schedule: 4, Error: shortError()}},

	{"full", &events.StepCompleted{Step: 2, Name: "new_id", Result: payload(`"id-5"`)}},
	{"minimal", &events.StepCompleted{Step: 2}},
	{"full", &events.StepFailed{Step: 2, Name: "new_id", Attempt: 1, Error: fullError()}},
	{"minimal", &events.StepFailed{Step: 2, Error: shortError()}},

	{"full", &events.TimerCreated{FireAt: in(24 * time.Hour)}},
	{"full", &events.TimerFired{Timer: 5}},

	{"full", &events.EventAwaited{Name: "approve", Kept: 5, Again: 6}},
	{"minimal", &events.EventAwaited{Name: "approve"}},
	{"full", &events.EventReceived{Wait: 6, Name: "approve", Data: payload(`{"by":"ann"}`),
		Message: "event-1", Age: 1500, Keep: true, Instead: 4}},
	{"minimal", &events.EventReceived{Wait: 6, Name: "approve"}},
	{"kept", &events.EventReceived{Name: "approve", Keep: true}},
	{"full", &events.MessageReceived{Mailbox: "orders", Data: payload(`{"order":8}`), Message: "mailbox-1", Age: 1500,
		Restart: &events.Restart{Name: "basket", Version: "2.0.0", Input: payload(`{"items":3}`), IgnoreUnknown: true,
			Attributes: map[string]string{"region": "eu"}}}},
	{"minimal", &events.MessageReceived{Mailbox: "orders"}},
	{"full", &events.MailboxRead{Mailbox: "orders", Message: 6, Again: 5}},
	{"empty_mailbox", &events.MailboxRead{Mailbox: "orders"}},

	{"full", &events.ChildStarted{
		Name: "pack", Version: "2.0.0", Instance: "order-7~1.7", Input: payload(`["a1","a2"]`),
		ParentClose: events.AbandonChild, Attributes: map[string]string{"customer": "c-9", "region": "eu"},
	}},
	{"minimal", &events.ChildStarted{Name: "pack", Instance: "order-7~1.7"}},
	{"full", &events.ChildCompleted{Schedule: 5, Output: payload(`{"boxes":1}`)}},
	{"minimal", &events.ChildCompleted{Schedule: 5}},
	{"full", &events.ChildFailed{Schedule: 5, Error: fullError()}},
	{"minimal", &events.ChildFailed{Schedule: 5, Error: shortError()}},
	{"full", &events.Launched{
		Name: "audit", Version: "1.0.0", Instance: "audit-7", Input: payload(`{"order":7}`), NotBefore: in(time.Hour),
		Conflict: events.RestartFinished, Attributes: map[string]string{"region": "eu"},
		Messages: []events.StartMessage{{Mailbox: "orders", Data: payload(`{"order":7}`)}, {Mailbox: "stop"}},
	}},
	{"replaces", &events.Launched{Name: "audit", Instance: "audit-7", Conflict: events.ReplaceRunning}},
	{"minimal", &events.Launched{Name: "audit", Instance: "audit-7"}},
	{"full", &events.Sent{Instance: "basket-3", To: events.ToEvent, Name: "packed", Data: payload(`{"boxes":1}`)}},
	{"minimal", &events.Sent{Instance: "basket-3", To: events.ToMailbox, Name: "orders"}},
	{"full", &events.Dropped{Schedules: []int64{4, 5}, Steps: []int64{2}}},
	{"minimal", &events.Dropped{Steps: []int64{2}}},

	{"full", &events.StatusSet{Status: payload(`{"phase":"packing"}`), Version: 2}},
	{"removed", &events.StatusSet{Version: 3}},
	{"full", &events.ValueSet{Key: "total", Value: payload("100"), Set: in(-time.Minute)}},
	{"minimal", &events.ValueSet{Key: "total", Set: at}},
	{"full", &events.ValuesCleared{Keys: []string{"total", "note"}}},
	{"full", &events.Patched{ID: "charge-before-pack"}},
	{"full", &events.CallRefused{Call: events.KindValueSet, Name: "total", Error: fullError()}},
	{"minimal", &events.CallRefused{Call: events.KindTimerCreated,
		Error: &failure.Error{Kind: failure.LimitExceeded, Message: "too far"}}},
}
