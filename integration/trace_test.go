package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file checks traces: the whole tree of spans of the example, whatever happens to the
// processes that export it.

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// watched is a backend that keeps every span that a process exports to it.
type watched struct {
	mu    sync.Mutex
	spans []exported
	by    int // how many processes export
}

// exported is a span, and the process that has exported it.
type exported struct {
	sdktrace.ReadOnlySpan
	by int
}

// tracer is that of one process, which exports nothing once it is dead.
func (w *watched) tracer(dead func() bool) *telemetry.Tracer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by++
	return telemetry.NewTracer(sdktrace.NewSimpleSpanProcessor(toldBy{w, w.by, dead}), nil, nil)
}

type toldBy struct {
	*watched
	process int
	dead    func() bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (w toldBy) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dead() {
		for _, s := range spans {
			w.spans = append(w.spans, exported{s, w.process})
		}
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (toldBy) Shutdown(context.Context) error { return nil }

// all returns each span once. If a span was exported again from history, with the same id, all
// returns the copy with the most attributes and links.
func (w *watched) all() (spans []sdktrace.ReadOnlySpan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	copies := make(map[trace.SpanID][]exported)
	at := make(map[trace.SpanID]int)
	for _, s := range w.spans {
		id := s.SpanContext().SpanID()
		before := copies[id]
		copies[id] = append(before, s)
		switch fault := slices.ContainsFunc(before, func(b exported) bool { return !mayBeAgain(b, s) }); {
		case len(before) == 0 || fault: // a fault shows as a span that is there twice
			at[id] = len(spans)
			spans = append(spans, s)
		case says(s) > says(spans[at[id]]):
			spans[at[id]] = s
		}
	}
	return spans
}

// mayBeAgain reports whether two spans with one id may both be exported. They are the same one, and
// another process has exported it again from history. A process exports a span twice itself only if
// it is a round of which it knew no messages at first.
func mayBeAgain(a, b exported) bool {
	same := a.Name() == b.Name() && a.Parent().SpanID() == b.Parent().SpanID() &&
		a.SpanContext().TraceID() == b.SpanContext().TraceID()
	word, _, _ := strings.Cut(a.Name(), " ")
	past := func(s exported) bool { return value(s, "rondo.past").AsBool() }
	switch {
	case !same:
		return false
	case word != "round":
		return a.by != b.by
	case a.by != b.by:
		return past(a) || past(b)
	default:
		return past(a) && past(b) && fromHistoryAlone(a) && !fromHistoryAlone(b)
	}
}

// fromHistoryAlone reports whether a round was exported from history alone, which knows no
// messages.
func fromHistoryAlone(s sdktrace.ReadOnlySpan) bool {
	return value(s, "messaging.batch.message_count").AsInt64() == 0
}

func says(s sdktrace.ReadOnlySpan) int { return len(s.Links()) + len(s.Attributes()) }

// caller is the trace context of the client that starts instances.
const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// differs are the attributes that differ each time; toldDifferently are those about the course of a
// round, and not its subject.
var (
	differs         = strings.Fields("rondo.due rondo.lateness rondo.wait rondo.decide rondo.commit rondo.partition")
	toldDifferently = strings.Fields("rondo.hydrated rondo.replayed rondo.batch rondo.deliveries rondo.past")
)

// tree prints spans as a tree: names, attributes and links, those of the same parent by the event
// that they are about. Attributes in hidden are left out. Wrong ids are an error.
func tree(spans []sdktrace.ReadOnlySpan, hidden ...string) (string, error) {
	var errs []error
	names := make(map[trace.SpanID]string)
	children := make(map[trace.SpanID][]sdktrace.ReadOnlySpan)
	from, _ := events.ParseTrace(caller)
	names[trace.SpanID(from.Span)] = "the caller"
	for _, s := range spans {
		id := s.SpanContext().SpanID()
		if _, taken := names[id]; taken {
			errs = append(errs, fmt.Errorf("span %s (%s) is told twice", s.Name(), id))
		}
		names[id] = s.Name()
		children[s.Parent().SpanID()] = append(children[s.Parent().SpanID()], s)
	}
	var b strings.Builder
	seen := 0
	var walk func(id trace.SpanID, indent string)
	walk = func(id trace.SpanID, indent string) {
		slices.SortStableFunc(children[id], func(a, b sdktrace.ReadOnlySpan) int {
			return strings.Compare(sortKey(a), sortKey(b))
		})
		for _, s := range children[id] {
			seen++
			b.WriteString(indent + lineOf(s, names, hidden) + "\n")
			walk(s.SpanContext().SpanID(), indent+"    ")
		}
	}
	var roots []trace.SpanID
	for id := range children {
		if _, told := names[id]; !told && id.IsValid() {
			errs = append(errs, fmt.Errorf("%s lies in a span that nobody has told of", children[id][0].Name()))
		} else if !told || id == trace.SpanID(from.Span) {
			roots = append(roots, id)
		}
	}
	slices.SortFunc(roots, func(a, b trace.SpanID) int { return strings.Compare(a.String(), b.String()) })
	for _, id := range roots {
		walk(id, "")
	}
	if seen != len(spans) {
		errs = append(errs, fmt.Errorf("%d of %d spans are connected", seen, len(spans)))
	}
	return b.String(), errors.Join(errs...)
}

func value(s sdktrace.ReadOnlySpan, key string) attribute.Value {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value
		}
	}
	return attribute.Value{}
}

// sortKey gives an order that does not depend on clocks: by the event in history that a span is
// about.
func sortKey(s sdktrace.ReadOnlySpan) string {
	word, _, _ := strings.Cut(s.Name(), " ")
	return fmt.Sprintf("%s %06d %06d %s", word, value(s, "rondo.event").AsInt64(),
		value(s, "rondo.history").AsInt64(), s.Name())
}

func lineOf(s sdktrace.ReadOnlySpan, names map[trace.SpanID]string, hidden []string) string {
	out := s.Name() + " (" + s.SpanKind().String() + ")"
	attributes := slices.SortedFunc(slices.Values(s.Attributes()), func(a, b attribute.KeyValue) int {
		return strings.Compare(string(a.Key), string(b.Key))
	})
	for _, kv := range attributes {
		switch {
		case slices.Contains(hidden, string(kv.Key)):
		case slices.Contains(differs, string(kv.Key)):
			out += fmt.Sprintf(" %s=…", kv.Key)
		default:
			out += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
		}
	}
	for _, l := range s.Links() {
		name, ok := names[l.SpanContext.SpanID()]
		if !ok {
			name = "nobody"
		}
		out += " → " + name
	}
	if d := s.Status().Description; d != "" {
		out += " ! " + d
	}
	return out
}

// shopParts are the example's.
func shopParts() (orchestrations []orchestration.Binding, activities []activity.Binding) {
	for _, p := range shop.Parts {
		switch p := p.(type) {
		case orchestration.Binding:
			orchestrations = append(orchestrations, p)
		case activity.Binding:
			activities = append(activities, p)
		default:
		}
	}
	return orchestrations, activities
}

// tracedSystem is a system with the example, whose services export to a backend.
func tracedSystem(t *testing.T) (*system, *watched) {
	t.Helper()
	orchestrations, activities := shopParts()
	s := newSystem(t, openSQLite(t), append(orchestrations, basics...)...)
	w := &watched{}
	s.employ(activities, func(c *worker.Config) { c.ID, c.Tracer = "w", w.tracer(func() bool { return false }) })
	return s, w
}

// telling makes an orchestrator that exports to a backend until it is killed.
func (s *system) telling(w *watched, change ...func(*orchestrator.Config)) *service {
	s.t.Helper()
	var v *service
	v = s.prepare(append(change, func(c *orchestrator.Config) {
		c.Tracer = w.tracer(func() bool { return v != nil && v.broker.dead.Load() })
	})...)
	return v
}

// order sends a large order with a flaky card, has it approved, and waits until it is fulfilled.
// Between is called before each thing that happens from outside.
func (s *system) order(between func()) {
	s.t.Helper()
	between()
	input := encode(s.t, contract.Order{SKU: "piano", Cents: 900_000, Card: shop.FlakyCard, ShipTo: "Bremen"})
	s.say(events.Message{ID: "start-o", Instance: "o", Trace: caller, Baggage: "tenant=acme",
		Content: &events.Start{Orchestration: "fulfil", Input: input}})
	s.reaches("o", events.KindEventAwaited)
	between()
	s.say(events.Message{ID: "approve-o", Instance: "o", Trace: caller,
		Content: &events.EventRaised{Name: "approve", Data: encode(s.t, contract.Approval{By: "ann", OK: true})}})
	if info := s.ended("o"); info.Error != nil {
		s.t.Fatal(info.Error)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\nrun the test with -rewrite to write it", err)
	}
	if got != string(want) {
		t.Errorf("the trace is\n%s\nand should be\n%s", got, want)
	}
}

// whole waits until a trace is complete, and returns it as a tree.
func (w *watched) whole(s *system, hidden ...string) (got string) {
	s.t.Helper()
	s.settled()
	s.eventually("the trace is whole", func() (err error) {
		got, err = tree(w.all(), hidden...)
		if err == nil && !strings.Contains(got, "rondo.status=completed") {
			err = errors.New("its end is missing")
		}
		return err
	})
	return got
}

func TestTraceOfAnOrder(t *testing.T) {
	t.Parallel()
	s, w := tracedSystem(t)
	v := s.telling(w)
	v.start()
	s.order(func() {})
	s.settled()
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	golden(t, "order.trace", w.whole(s))
}

// withoutHow is the golden trace without attributes about the course of rounds.
func withoutHow(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "order.trace"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for l := range strings.Lines(string(data)) {
		words := slices.DeleteFunc(strings.Split(strings.TrimSuffix(l, "\n"), " "), func(word string) bool {
			key, _, _ := strings.Cut(word, "=")
			return slices.Contains(toldDifferently, key)
		})
		out = append(out, strings.Join(words, " ")+"\n")
	}
	return strings.Join(out, "")
}

// sameButRestored reports whether a trace is the same except for rounds that were exported from
// history alone: these have neither their numbers of messages, nor the span that sent the messages.
func sameButRestored(got, want string) bool {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	return slices.EqualFunc(a, b, func(got, want string) bool {
		if got == want || !strings.Contains(got, "messaging.batch.message_count=0") {
			return got == want
		}
		want, _, _ = strings.Cut(want, " → ")
		words := slices.DeleteFunc(strings.Split(want, " "), func(word string) bool {
			return strings.HasPrefix(word, "rondo.sent=")
		})
		return got == strings.Replace(strings.Join(words, " "), "message_count=1", "message_count=0", 1)
	})
}

// TestTraceIsTheSame has the same order fulfilled under worse circumstances: the spans are the
// same.
func TestTraceIsTheSame(t *testing.T) {
	t.Parallel()
	same := func(t *testing.T, s *system, w *watched) {
		t.Helper()
		want := withoutHow(t)
		if got := w.whole(s, toldDifferently...); got != want && !sameButRestored(got, want) {
			t.Errorf("the trace is\n%s\nand should be\n%s", got, want)
		}
	}
	t.Run("each round in another process", func(t *testing.T) {
		t.Parallel()
		s, w := tracedSystem(t)
		var v *service
		s.order(func() {
			if v != nil {
				s.settled()
				if err := v.end(); err != nil {
					t.Fatal(err)
				}
			}
			v = s.telling(w)
			v.start()
		})
		same(t, s, w)
	})
	t.Run("every message comes again", func(t *testing.T) {
		t.Parallel()
		s, w := tracedSystem(t)
		v := s.telling(w)
		var mu sync.Mutex
		first := make(map[uint64]bool)
		v.broker.onAck = func(d broker.Delivery) bool { // the first acknowledgement of each is lost
			mu.Lock()
			defer mu.Unlock()
			before := first[d.Sequence]
			first[d.Sequence] = true
			return before
		}
		v.start()
		s.order(func() {})
		same(t, s, w)
	})
	t.Run("nobody knows whether commits have happened", func(t *testing.T) {
		t.Parallel()
		s, w := tracedSystem(t)
		v := s.telling(w)
		var n int
		v.store.after = func(history.Batch) error {
			if n++; n%2 == 1 {
				return &history.Error{Class: history.Ambiguous, Op: "commit", Err: errors.New("made up")}
			}
			return nil
		}
		v.start()
		s.order(func() {})
		same(t, s, w)
	})
	for n, c := range crashes {
		for nth := int32(1); nth <= 6; nth++ {
			if !large && int(nth) != 1+(n+2)%6 {
				continue
			}
			t.Run(fmt.Sprintf("killed %s, time %d", c.name, nth), func(t *testing.T) {
				t.Parallel()
				s, w := tracedSystem(t)
				v, others := s.telling(w), []*service{s.telling(w), s.telling(w), s.telling(w)}
				killed := v.arm(c, nth)
				v.start()
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					select {
					case <-killed:
						for _, next := range others { // on a busy machine, a service may end before it is ready
							err := next.Run(ctx)
							if err == nil || ctx.Err() != nil {
								return
							}
							t.Logf("the next orchestrator has ended: %v", err)
						}
					case <-ctx.Done():
					}
				})
				defer running.Wait()
				defer stop()
				s.order(func() {})
				same(t, s, w)
			})
		}
	}
}

// heard has the headers of a request that a third-party server received.
type heard struct{ traceparent, baggage string }

// everything is an orchestration that does all that shows in a trace, and goes on as new once.
func everything(server string) (orchestration.Binding, []activity.Binding) {
	call := activity.Define[string, string]("call")
	parcels := orchestration.DefineMailbox[string]("parcels")
	self := orchestration.Define[string, string]("everything")
	binding := self.Bind(func(ctx *orchestration.Context, s string) (string, error) {
		ctx.SetSpanAttributes(slog.String("customer", s))
		if ctx.Execution() > 1 {
			return "done", nil
		}
		packing := ctx.Span("packing", slog.Int("parcels", 2))
		quote, err := orchestration.Step(ctx, "quote", func(c context.Context) (string, error) {
			if activity.Info(c).Attempt == 1 {
				return "", errors.New("not yet")
			}
			return "7", nil
		}, activity.Retry(2, activity.Fixed(time.Millisecond)))
		if err != nil {
			return "", err
		}
		if _, err := childless.Call(ctx, quote); err != nil {
			return "", err
		}
		packing.Set(slog.String("quote", quote))
		packing.End()
		if err := ctx.Sleep(5 * time.Millisecond); err != nil {
			return "", err
		}
		if _, err := call.Call(ctx, server); err != nil {
			return "", err
		}
		if _, err := parcels.Receive(ctx); err != nil {
			return "", err
		}
		return self.ContinueAsNew(ctx, s)
	})
	return binding, []activity.Binding{call.Bind(func(ctx context.Context, url string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return "", err
		}
		// as the transport of otelhttp does
		propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}).Inject(ctx,
			propagation.HeaderCarrier(r.Header))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		return "called", answer.Body.Close()
	})}
}

// TestTraceOfEverything checks every part of a trace: the author's own spans, steps, children,
// timers, mailboxes, calls of activities, and the next execution.
func TestTraceOfEverything(t *testing.T) {
	t.Parallel()
	calls := make(chan heard, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- heard{r.Header.Get("traceparent"), r.Header.Get("baggage")}
	}))
	t.Cleanup(server.Close)
	code, works := everything(server.URL)
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{code}, basics...)...)
	w := &watched{}
	s.employ(works, func(c *worker.Config) { c.ID, c.Tracer = "w", w.tracer(func() bool { return false }) })
	v := s.telling(w, func(c *orchestrator.Config) { c.ID = "o" })
	v.start()
	s.say(events.Message{ID: "start-e", Instance: "e", Baggage: "tenant=acme",
		Content: &events.Start{Orchestration: "everything", Input: encode(t, "acme")}})
	s.reaches("e", events.KindMailboxRead)
	s.say(events.Message{ID: "queue-e", Instance: "e",
		Content: &events.MailboxMessage{Mailbox: "parcels", Data: encode(t, "1")}})
	s.completed("e", "done")
	s.settled()
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	golden(t, "everything.trace", w.whole(s, "rondo.batch"))
	got := <-calls
	at, ok := events.ParseTrace(got.traceparent)
	if !ok || !at.Sampled || got.baggage != "tenant=acme" {
		t.Fatalf("the server was told %+v", got)
	}
	for _, span := range w.all() {
		if span.SpanContext().SpanID() == trace.SpanID(at.Span) {
			if span.Name() != "execute call" {
				t.Errorf("the server was called by %q", span.Name())
			}
			return
		}
	}
	t.Errorf("nobody has told of the span %s, by which the server was called", got.traceparent)
}
