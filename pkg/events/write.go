package events

import (
	"time"

	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/pkg/codec"
)

// This file writes the facts that most histories are made of without reflection.

// appendFact appends the JSON of a fact.
func appendFact(b []byte, f Fact) ([]byte, error) {
	w := writer{jsonw.Begin(b)}
	switch f := f.(type) {
	case *Started:
		w.Text("name", f.Name)
		w.Text("version", f.Version)
		w.payload("input", f.Input)
		w.Text("incarnation", f.Incarnation)
		w.Number("engine", int64(f.Engine))
		w.TextIf("message", f.Message)
		w.NumberIf("age", f.Age)
		w.OtherIf("parent", f.Parent, f.Parent != nil)
		w.OtherIf("attributes", f.Attributes, len(f.Attributes) > 0)
		w.TextIf("trace", f.Trace)
		w.TextIf("trace_state", f.TraceState)
		w.TextIf("baggage", f.Baggage)
		w.TextIf("follows", f.Follows)
		w.NumberIf("previous", f.Previous)
		w.TimeIf("begun", f.Begun)
		w.NumberIf("carried", int64(f.Carried))
		w.OtherIf("seen", f.Seen, len(f.Seen) > 0)
		w.OtherIf("seen_ages", f.SeenAges, len(f.SeenAges) > 0)
		w.TimeIf("forgotten", f.Forgotten)
	case *ActivityScheduled:
		w.Text("name", f.Name)
		w.payload("input", f.Input)
		w.TextIf("tag", f.Tag)
		w.TextIf("session", f.Session)
		w.Number("attempt", int64(f.Attempt))
		w.NumberIf("first", f.First)
		w.TimeIf("not_before", f.NotBefore)
		w.TimeIf("start_by", f.StartBy)
		w.TimeIf("deadline", f.Deadline)
		w.durationIf("start_to_close", f.StartToClose)
		w.durationIf("heartbeat_timeout", f.HeartbeatTimeout)
		w.payload("heartbeat", f.Heartbeat)
		w.retryIf("retry", f.Retry)
	case *ActivityCompleted:
		w.Number("schedule", f.Schedule)
		w.payload("result", f.Result)
		w.TextIf("worker", f.Worker)
	case *StepCompleted:
		w.Number("step", f.Step)
		w.Text("name", f.Name)
		w.payload("result", f.Result)
	case *TimerCreated:
		w.Time("fire_at", f.FireAt)
	case *TimerFired:
		w.Number("timer", f.Timer)
	case *EventAwaited:
		w.Text("name", f.Name)
		w.NumberIf("kept", f.Kept)
		w.NumberIf("again", f.Again)
	case *EventReceived:
		w.NumberIf("wait", f.Wait)
		w.Text("name", f.Name)
		w.payload("data", f.Data)
		w.TextIf("message", f.Message)
		w.NumberIf("age", f.Age)
		w.OtherIf("keep", f.Keep, f.Keep)
		w.NumberIf("instead", f.Instead)
	case *MessageReceived:
		w.Text("mailbox", f.Mailbox)
		w.payload("data", f.Data)
		w.TextIf("message", f.Message)
		w.NumberIf("age", f.Age)
		w.OtherIf("restart", f.Restart, f.Restart != nil)
	case *Completed:
		w.payload("output", f.Output)
	default:
		data, err := jsonw.Marshal(f)
		return append(b, data...), err
	}
	return w.End()
}

// writer writes what only events have, too.
type writer struct{ jsonw.Object }

func (w *writer) payload(name string, p codec.Payload) {
	if len(p) > 0 {
		data, err := p.MarshalJSON()
		w.Raw(name, data, err)
	}
}

func (w *writer) durationIf(name string, d Duration) { durationIf(&w.Object, name, d) }

func durationIf(o *jsonw.Object, name string, d Duration) {
	if d != 0 {
		o.Text(name, time.Duration(d).String())
	}
}

func (w *writer) retryIf(name string, r *RetryPolicy) {
	if r == nil {
		return
	}
	w.Nested(name, func(o *jsonw.Object) {
		o.Number("attempts", int64(r.Attempts))
		durationIf(o, "first", r.First)
		o.TextIf("growth", string(r.Growth))
		o.ShareIf("factor", r.Factor)
		durationIf(o, "most", r.Most)
		o.ShareIf("jitter", r.Jitter)
		o.OtherIf("non_retryable_types", r.NonRetryableTypes, len(r.NonRetryableTypes) > 0)
	})
}
