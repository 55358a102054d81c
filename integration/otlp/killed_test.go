package otlp_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/pkg/events"
)

// unsent bounds the age of spans that may be lost with their process. A process exports twenty
// times a second; the rest is for busy machines.
const unsent = time.Second

// TestOrchestratorIsKilled kills the orchestrator in the middle of many orders, and starts another
// one. The worker stays. Only these may be lost: spans of instances that the killed orchestrator
// has ended within [unsent] before its death, by the times in history, and the spans inside them.
// For instances that go on, the other one exports such spans again, with the same ids: a backend
// has each span once, and finds every parent.
func TestOrchestratorIsKilled(t *testing.T) {
	t.Parallel()
	const many = 30
	c := startCollector(t)
	s := newSystem(t, ordersProgram(t), c, append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.endpoint("grpc"),
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "RONDO_MEMBER_LEASE=1s", "RONDO_INBOX_ACK_WAIT=2s",
		"RONDO_SWEEP_EVERY=500ms")...)
	first, worker := s.run()
	of := make(map[string]string) // the trace of each order
	for n := range many {
		id := fmt.Sprintf("order-%d", n)
		of[id] = s.web.request(t.Context(), "POST /orders", func(ctx context.Context) {
			s.say(ctx, "rondo.start.fulfil."+id, piano)
		}).TraceID().String()
	}
	for id := range of {
		s.waitStatus(id, contract.Approving)
	}
	c.await(t, "that goods are reserved", func(spans []span) bool { return named(spans, "activity reserve") == many })
	for id := range of {
		s.say(t.Context(), "rondo.event.approve."+id, contract.Approval{By: "ann", OK: true})
	}
	c.await(t, "the first charge", func(spans []span) bool { return named(spans, "activity charge") > 0 })
	first.kill()
	killed := time.Now()
	second := s.start("orchestrator", "--database", s.database)
	var wanted []wantedSpan
	for id, trace := range of {
		s.completed(id)
		x, err := s.client.Instances().History(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		wanted = append(wanted, wantedOf(trace, x)...)
	}
	worker.end()
	second.end()
	s.web.end(t)

	spans := onceEach(c.received())
	there, lost := byPlace(spans), make(map[link]bool)
	for _, w := range wanted {
		if _, ok := there[w.at]; ok {
			continue
		}
		if lost[w.at] = true; !w.over.Before(killed) || w.over.Before(killed.Add(-unsent)) {
			t.Errorf("%s, which ended %v before the orchestrator was killed, is not there", w.name, killed.Sub(w.ended))
		}
	}
	for _, p := range problemsBut(spans, lost) {
		t.Error(p)
	}
	tellers := make(map[string][]string) // of each trace
	for _, x := range spans {
		if x.Parent == "" && x.Service != webService {
			t.Errorf("%v begins a trace, not the client", x)
		}
		if who, _ := x.Resource["service.instance.id"].(string); x.sort() == "activity" &&
			!slices.Contains(tellers[x.Trace], who) {
			tellers[x.Trace] = append(tellers[x.Trace], who)
		}
	}
	executed := make(map[link]bool)
	for _, x := range spans {
		if x.sort() == "execute" {
			executed[x.above()] = true
		}
	}
	for _, w := range wanted {
		if w.executed && !executed[w.at] {
			t.Errorf("the worker has not told that it has executed %s", w.name)
		}
	}
	middle := 0
	for _, who := range tellers {
		if len(who) == 2 {
			middle++
		}
	}
	if middle == 0 {
		t.Error("no order was told of by both orchestrators: it was not killed in the middle")
	}
	t.Logf("both orchestrators have told of %d orders; lost are %d of %d spans of activities and executions", middle,
		len(lost), len(wanted))
}

// onceEach has each span once, as a backend does that received some twice.
func onceEach(spans []span) (out []span) {
	seen := make(map[link]bool)
	for _, s := range spans {
		if !seen[s.place()] {
			seen[s.place()] = true
			out = append(out, s)
		}
	}
	return out
}

func named(spans []span, name string) (n int) {
	for _, s := range spans {
		if s.Name == name {
			n++
		}
	}
	return n
}

// wantedSpan is a span that has ended, by history.
type wantedSpan struct {
	at       link
	name     string
	ended    time.Time
	over     time.Time // when its execution ended
	executed bool      // by a worker
}

// wantedOf reads them out of a history.
func wantedOf(trace string, x events.Export) (out []wantedSpan) {
	incarnation := x.Events[0].Fact.(*events.Started).Incarnation
	over := x.Events[len(x.Events)-1].At
	want := func(kind, name string, opened int64, ended time.Time) wantedSpan {
		id := events.SpanOf(kind, x.Instance,
			events.Ref{Incarnation: incarnation, Execution: x.Execution, Event: opened})
		return wantedSpan{at: link{trace, hex.EncodeToString(id[:])}, name: fmt.Sprintf("%s of %s", name, x.Instance),
			ended: ended, over: over, executed: kind == "activity"}
	}
	names := make(map[int64]string)
	for _, e := range x.Events {
		switch f := e.Fact.(type) {
		case *events.ActivityScheduled:
			names[e.ID] = f.Name
		case *events.ActivityCompleted:
			out = append(out, want("activity", names[f.Schedule], f.Schedule, e.At))
		case *events.ActivityFailed:
			out = append(out, want("activity", names[f.Schedule], f.Schedule, e.At))
		case *events.Completed:
			out = append(out, want("execution", "the execution", 1, e.At))
		default:
		}
	}
	return out
}
