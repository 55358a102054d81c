package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

var rewrite = flag.Bool("rewrite", false, "write the reference in docs/metrics.md anew")

// recorded are metrics with a reader.
type recorded struct {
	*telemetry.Metrics
	t      testing.TB
	reader *sdkmetric.ManualReader
	log    *bytes.Buffer
}

func record(t testing.TB) *recorded {
	t.Helper()
	r := &recorded{t: t, reader: sdkmetric.NewManualReader(), log: &bytes.Buffer{}}
	m, err := telemetry.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader),
		sdkmetric.WithCardinalityLimit(2000)))
	if err != nil {
		t.Fatal(err)
	}
	m.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	m.Orchestrations(code{"order": {"1.0.0", "2.0.0"}, "parcel": {"1.0.0"}})
	r.Metrics = m
	return r
}

type code map[string][]string

func (c code) Names() []string               { return slices.Sorted(maps.Keys(c)) }
func (c code) Versions(name string) []string { return c[name] }

// values returns all series: counters and gauges with their values, histograms with their counts,
// and with their sums behind " sum".
func (r *recorded) values() map[string]float64 {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		r.t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			series := func(set attribute.Set) string {
				return m.Name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out[series(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					out[series(p.Attributes)] = p.Value
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					out[series(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[series(p.Attributes)] = float64(p.Count)
					out[series(p.Attributes)+" sum"] = p.Sum
				}
			default:
				r.t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return out
}

// has checks some values.
func (r *recorded) has(want map[string]float64) {
	r.t.Helper()
	got := r.values()
	for series, v := range want {
		if have, ok := got[series]; !ok || math.Abs(have-v) > 1e-9 {
			r.t.Errorf("%s is %v, want %v", series, have, v)
		}
	}
	if r.t.Failed() {
		for _, series := range slices.Sorted(maps.Keys(got)) {
			r.t.Logf("%s %v", series, got[series])
		}
	}
}

// ---- The table.

func TestDescriptions(t *testing.T) {
	name := regexp.MustCompile(`^rondo(\.[a-z_]+)+$`)
	prometheus := make(map[string]bool)
	for _, d := range telemetry.Descriptions() {
		if !name.MatchString(d.Name) {
			t.Errorf("%s: this is no name", d.Name)
		}
		if p := d.PrometheusName(); prometheus[p] {
			t.Errorf("%s: there are two", p)
		} else {
			prometheus[p] = true
		}
		if !strings.HasSuffix(d.Help, ".") || strings.Contains(d.Help, "|") {
			t.Errorf("%s: its help is %q; want a sentence without |", d.Name, d.Help)
		}
		if (d.Type == telemetry.Histogram) != (len(d.Buckets) > 0) || !slices.IsSorted(d.Buckets) ||
			len(d.Buckets) > 20 {
			t.Errorf("%s: a %s with buckets %v", d.Name, d.Type, d.Buckets)
		}
		if len(d.Labels) > 4 {
			t.Errorf("%s has %d labels", d.Name, len(d.Labels))
		}
	}
}

// TestReference checks that the reference in the documents equals the table.
func TestReference(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "metrics.md")
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const from, to = "<!-- The rest is written by a test from the table in internal/telemetry. -->\n", ""
	before, _, ok := strings.Cut(string(have), from)
	if !ok {
		t.Fatalf("%s does not say where the reference begins", page)
	}
	want := before + from + telemetry.Reference() + to
	if *rewrite {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(have) != want {
		t.Errorf("%s is not what the table says: run go test ./internal/telemetry -run TestReference -rewrite", page)
	}
}

// ---- Recording.

func TestNobodyRecords(t *testing.T) {
	var m *telemetry.Metrics
	m.Orchestrations(code{"order": {"1.0.0"}})
	m.Instances().Turn(&round.Turn{})
	m.Rounds().Decided("", &round.Turn{}, telemetry.FromMemory, 0, 0)
	m.Rounds().Phase(telemetry.PhaseAck, 0)
	m.Rounds().Appended(1)
	m.Rounds().Commit("stored", 1, 1)
	m.Rounds().CommitStatus("committed", 1)
	m.Rounds().Loaded("found", 1)
	m.Rounds().Evicted()
	m.Messages().Receipt(events.VerbStart, round.Receipt{})
	m.Messages().Redelivered(events.VerbStart, true)
	m.Messages().HandedOver(true)
	m.Messages().DeadLettered("rondo", "rondo.start.a.b", "poison")
	m.Outbox().Published(true, 1, 0, nil)
	m.Outbox().Swept(1)
	m.Outbox().Healed(1)
	m.Instances().Step("order", 0, nil)
	m.Tasks().Finished(telemetry.Task{}, "", nil, 0)
	m.Tasks().Begun(telemetry.Task{}, 0)
	m.Tasks().Delivered(telemetry.Task{}, true, true)
	m.Tasks().Heartbeat("pack")
	m.Tasks().RateLimited("pack")
	m.Tasks().Completed(0, nil)
	m.Custom().Count("a", 1, nil)
	m.Custom().Measure("b", 1, nil)
	m.Watch(nil)()
	m.Bus(nil)()
	m.Pool(nil)()
	if m.Activity("x") != "x" || m.Tag("y") != "y" || m.StoreObserver() != nil {
		t.Error("without metrics, everything is as it was")
	}
}

var (
	monday = time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)
	second = time.Second
)

func TestTurn(t *testing.T) {
	r := record(t)
	in := func(d time.Duration) time.Time { return monday.Add(d) }
	event := func(f events.Fact) events.Event { return events.Event{At: monday, Fact: f} }
	row := round.Row{Name: "order", Version: "2.0.0"}
	// An instance that continues as new twice, as another orchestration the second time.
	r.Instances().Turn(&round.Turn{Row: row, Executions: []round.Execution{{ID: 1, Events: []events.Event{
		event(&events.Started{Name: "order", Version: "2.0.0", Input: codec.Payload("12345"), Message: "somebody's"}),
		event(&events.ChildStarted{Name: "parcel"}), event(&events.ChildStarted{Name: "elsewhere"}),
		event(&events.ActivityScheduled{Name: "pack", Input: codec.Payload("123")}),
	}}}})
	r.Instances().Turn(&round.Turn{Row: round.Row{Name: "parcel", Version: "1.0.0"}, Former: []round.Row{row},
		Executions: []round.Execution{
			{ID: 1, Events: []events.Event{event(&events.ActivityCompleted{Result: codec.Payload("12")}),
				event(&events.ContinuedAsNew{})}},
			{ID: 2, Events: []events.Event{event(&events.Started{Name: "parcel", Version: "1.0.0", Previous: 1,
				Parent: &events.Parent{}, Message: "somebody's"})}},
		}, Over: []round.Over{
			{Kind: round.OverActivity, Name: "pack", Begun: monday, Ended: in(3 * second)},
			{Kind: round.OverChild, Name: "parcel", Begun: monday, Ended: in(5 * second)},
			{Kind: round.OverChild, Name: "elsewhere", Begun: monday, Ended: in(7 * second), Error: &failure.Error{}},
			{Kind: round.OverActivity, Name: "pack", Begun: monday, Ended: in(second), GivenUp: true},
			{Kind: round.OverTimer, Begun: monday, Due: in(2 * second), Ended: in(2500 * time.Millisecond)},
			{Kind: round.OverTimer, Begun: monday, Due: in(2 * second), Ended: in(second), GivenUp: true},
			{Kind: round.OverEvent, Name: "whatever people call it", Begun: monday, Ended: in(second)},
			{Kind: round.OverExecution, Name: "order", Version: "2.0.0", Status: round.ContinuedAsNew, Begun: monday,
				Since: monday, Ended: in(10 * second), Rounds: 4, Events: 9, Bytes: 900},
		}})
	poison := &failure.Error{Kind: failure.Poison}
	r.Instances().Turn(&round.Turn{Row: round.Row{Name: "parcel", Version: "1.0.0"}, Fault: poison,
		Executions: []round.Execution{{ID: 2, Events: []events.Event{event(&events.Failed{Error: poison})}}},
		Over: []round.Over{
			{Kind: round.OverExecution, Name: "parcel", Version: "1.0.0", Status: round.Failed, Error: poison,
				Begun: in(10 * second), Since: monday, Ended: in(time.Minute), Rounds: 1, Events: 3, Bytes: 300},
		}})
	// The origins of executions, and names that are not registered here.
	for _, s := range []*events.Started{
		{Name: "order", Version: "1.0.0", Parent: &events.Parent{}},
		{Name: "order", Version: "1.0.0", Message: events.MessageID(events.VerbStart, "i", events.Ref{})},
		{Name: "order", Version: "1.0.0", Message: "schedule/nightly/1/2027-01-02"}, {Name: "order", Version: "9.9.9"},
		{Name: "made up", Version: "1.0.0"},
	} {
		turn := &round.Turn{Executions: []round.Execution{{Events: []events.Event{event(s)}}}}
		r.Instances().Turn(turn)
	}
	r.has(map[string]float64{
		"rondo.orchestration.starts{initiated_by=client,orchestration=order,version=2.0.0}":               1,
		"rondo.orchestration.starts{initiated_by=continued,orchestration=parcel,version=1.0.0}":           1,
		"rondo.orchestration.starts{initiated_by=parent,orchestration=order,version=1.0.0}":               1,
		"rondo.orchestration.starts{initiated_by=launched,orchestration=order,version=1.0.0}":             1,
		"rondo.orchestration.starts{initiated_by=schedule,orchestration=order,version=1.0.0}":             1,
		"rondo.orchestration.starts{initiated_by=client,orchestration=order,version=unregistered}":        1,
		"rondo.orchestration.starts{initiated_by=client,orchestration=unregistered,version=unregistered}": 1,

		"rondo.child.calls{child=parcel,orchestration=order}":                          1,
		"rondo.child.calls{child=elsewhere,orchestration=order}":                       1,
		"rondo.child.duration{child=parcel,orchestration=order,outcome=completed} sum": 5,
		"rondo.child.duration{child=elsewhere,orchestration=order,outcome=failed} sum": 7,
		"rondo.activity.call.duration{activity=pack,outcome=completed} sum":            3,
		"rondo.activity.call.duration{activity=pack,outcome=given_up}":                 1,
		"rondo.timer.lateness{}":     1,
		"rondo.timer.lateness{} sum": 0.5,
		"rondo.orchestration.continuations{orchestration=order,version=2.0.0}":                    1,
		"rondo.execution.duration{orchestration=order,status=continued_as_new,version=2.0.0} sum": 10,
		"rondo.execution.duration{orchestration=parcel,status=failed,version=1.0.0} sum":          50,
		"rondo.orchestration.duration{orchestration=parcel,status=failed,version=1.0.0} sum":      60,
		"rondo.orchestration.completions{orchestration=parcel,status=failed,version=1.0.0}":       1,
		"rondo.orchestration.failures{error_kind=poison,orchestration=parcel,version=1.0.0}":      1,
		"rondo.orchestration.poison{orchestration=parcel}":                                        1,
		"rondo.orchestration.faults{error_kind=poison,orchestration=parcel}":                      1,
		"rondo.execution.rounds{orchestration=order} sum":                                         4,
		"rondo.execution.history.events{orchestration=order} sum":                                 9,
		"rondo.execution.history.size{orchestration=parcel} sum":                                  300,
		"rondo.payload.size{payload=orchestration_input} sum":                                     5,
		"rondo.payload.size{payload=activity_input} sum":                                          3,
		"rondo.payload.size{payload=activity_result} sum":                                         2,
	})
	if _, ok := r.values()["rondo.orchestration.completions{orchestration=order,"+
		"status=continued_as_new,version=2.0.0}"]; ok {
		t.Error("an execution that continues as new does not complete the instance")
	}
}

func TestRoundsAndMessages(t *testing.T) {
	r := record(t)
	turn := &round.Turn{Row: round.Row{Name: "order"}, Replayed: 40, Receipts: make([]round.Receipt, 3)}
	r.Rounds().Decided("order", turn, telemetry.FromHistory, 2*second, second)
	r.Rounds().Phase(telemetry.PhaseTotal, 9*second)
	r.Rounds().Phase(telemetry.PhaseAck, -second) // clocks differ
	r.Rounds().Appended(5)
	r.Rounds().Commit("stored", 2, 7)
	r.Rounds().Commit(history.Ambiguous.String(), 1, 3)
	r.Rounds().CommitStatus(history.Conflict.String(), 2)
	r.Rounds().Loaded("found", 4)
	r.Rounds().Loaded("failed", 0)
	r.Rounds().Evicted()
	r.Rounds().NearLimit("fulfil", "values")
	r.Messages().Receipt(events.VerbDone, round.Receipt{Verdict: round.Accepted})
	r.Messages().Receipt(events.VerbStart,
		round.Receipt{Verdict: round.Ignored, Reason: round.Reason(history.Deleted.String())})
	r.Messages().Receipt(events.VerbEvent,
		round.Receipt{Verdict: round.Returned, Reason: round.NotKnownHere, After: second})
	r.Messages().Receipt(events.VerbMailbox, round.Receipt{Verdict: round.Dead, Reason: round.MailboxFull})
	r.Messages().Redelivered(events.VerbTimer, false)
	r.Messages().Redelivered(events.VerbTimer, true)
	r.Messages().HandedOver(true)
	r.Messages().HandedOver(false)
	r.Messages().DeadLettered("rondo", "rondo.mailbox.letters.i", "mailbox_full")
	r.Messages().DeadLettered("rondo", "somewhere.else", "refused")
	r.Outbox().Published(false, 6, second, nil)
	r.Outbox().Published(true, 2, second, errors.New("no"))
	r.Outbox().Swept(3)
	r.Outbox().Healed(2)
	r.Instances().Step("order", second, &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutStartToClose})
	r.has(map[string]float64{
		"rondo.rounds{orchestration=order,source=history}":                          1,
		"rondo.replayed.events{orchestration=order}":                                40,
		"rondo.orchestration.decide.duration{orchestration=order} sum":              1,
		"rondo.round.duration{phase=wait} sum":                                      2,
		"rondo.round.duration{phase=decide} sum":                                    1,
		"rondo.round.duration{phase=total} sum":                                     9,
		"rondo.round.duration{phase=ack}":                                           1,
		"rondo.round.duration{phase=ack} sum":                                       0,
		"rondo.round.messages{} sum":                                                3,
		"rondo.round.events{} sum":                                                  5,
		"rondo.commit.attempts{outcome=stored}":                                     1,
		"rondo.commit.attempts{outcome=ambiguous}":                                  1,
		"rondo.commit.turns{} sum":                                                  3,
		"rondo.commit.events{} sum":                                                 10,
		"rondo.turns{outcome=conflict}":                                             2,
		"rondo.instance.loads{outcome=found}":                                       4,
		"rondo.instance.evictions{}":                                                1,
		"rondo.receipts{reason=taken,verb=task-done,verdict=accepted}":              1,
		"rondo.receipts{reason=deleted,verb=start,verdict=ignored}":                 1,
		"rondo.receipts{reason=unregistered,verb=event,verdict=returned}":           1,
		"rondo.receipts{reason=mailbox_full,verb=mailbox,verdict=dead}":             1,
		"rondo.messages.redelivered{verb=timer-due}":                                2,
		"rondo.messages.quarantined{verb=timer-due}":                                1,
		"rondo.messages.handed_over{outcome=accepted}":                              1,
		"rondo.messages.handed_over{outcome=refused}":                               1,
		"rondo.dead_letters{reason=mailbox_full,verb=mailbox}":                      1,
		"rondo.dead_letters{reason=refused,verb=other}":                             1,
		"rondo.outbox.published{lane=now,outcome=published}":                        6,
		"rondo.outbox.published{lane=later,outcome=failed}":                         2,
		"rondo.outbox.publish.duration{lane=now} sum":                               1,
		"rondo.outbox.swept{}":                                                      3,
		"rondo.outbox.healed{}":                                                     2,
		"rondo.step.executions{orchestration=order,outcome=timeout_start_to_close}": 1,
	})
	if _, ok := r.values()["rondo.instance.loads{outcome=failed}"]; ok {
		t.Error("what did not happen was counted")
	}
}

func TestWork(t *testing.T) {
	r := record(t)
	w := func(attempt int) telemetry.Task {
		return telemetry.Task{Activity: "pack", Tag: "gpu", Attempt: attempt}
	}
	r.Tasks().Delivered(w(1), false, false)
	r.Tasks().Delivered(w(1), true, false)
	r.Tasks().Delivered(w(1), true, true)
	r.Tasks().Begun(w(1), 4*second)
	r.Tasks().Heartbeat("pack")
	r.Tasks().RateLimited("pack")
	r.Tasks().Completed(second, nil)
	r.Tasks().Finished(w(1), "", nil, 2*second)
	r.Tasks().Finished(w(2), "", &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat}, second)
	r.Tasks().Finished(w(3), "", &failure.Error{Kind: failure.Timeout, Type: "made up"}, second)
	r.Tasks().Finished(w(4), "", &failure.Error{Kind: "made up"}, second)
	r.Tasks().Finished(w(77), telemetry.TaskReturned, nil, -1)
	r.Tasks().Finished(w(1), "", &failure.Error{Kind: failure.Poison}, -1)
	r.has(map[string]float64{
		"rondo.activity.deliveries{activity=pack,source=new,tag=gpu}":                          1,
		"rondo.activity.deliveries{activity=pack,source=again,tag=gpu}":                        1,
		"rondo.activity.deliveries{activity=pack,source=worker,tag=gpu}":                       1,
		"rondo.activity.queue.duration{activity=pack,tag=gpu} sum":                             4,
		"rondo.activity.heartbeats{activity=pack}":                                             1,
		"rondo.activity.rate_limited{activity=pack}":                                           1,
		"rondo.worker.publish.duration{outcome=published} sum":                                 1,
		"rondo.activity.executions{activity=pack,attempt=1,outcome=success,tag=gpu}":           1,
		"rondo.activity.executions{activity=pack,attempt=2,outcome=timeout_heartbeat,tag=gpu}": 1,
		"rondo.activity.executions{activity=pack,attempt=3,outcome=timeout,tag=gpu}":           1,
		"rondo.activity.executions{activity=pack,attempt=4+,outcome=other,tag=gpu}":            1,
		"rondo.activity.executions{activity=pack,attempt=4+,outcome=returned,tag=gpu}":         1,
		"rondo.activity.executions{activity=pack,attempt=1,outcome=poison,tag=gpu}":            1,
		"rondo.activity.duration{activity=pack,outcome=success,tag=gpu} sum":                   2,
	})
	for series := range r.values() {
		if strings.HasPrefix(series, "rondo.activity.duration") &&
			(strings.Contains(series, "returned") || strings.Contains(series, "poison")) {
			t.Errorf("%s: a function that was not called has taken no time", series)
		}
	}
}

func TestWatch(t *testing.T) {
	r := record(t)
	n := 0.0
	stop := r.Watch(func(record telemetry.Record) {
		n++
		record(telemetry.MetricTaskWaiting, n, "pack", "gpu")
		record(telemetry.MetricPartitions, 2)
	})
	r.has(map[string]float64{"rondo.task.waiting{activity=pack,tag=gpu}": 1, "rondo.partitions.owned{}": 2})
	r.has(map[string]float64{"rondo.task.waiting{activity=pack,tag=gpu}": 2}) // it is asked for each time
	stop()
	if got := r.values(); len(got) != 0 {
		t.Errorf("what nobody tells any more is still there: %v", got)
	}
}

// line is a connection to a broker.
type line struct {
	traffic broker.Traffic
	asked   chan struct{}
}

func (l *line) Traffic() broker.Traffic { return l.traffic }

func (l *line) RoundTrip(context.Context) (time.Duration, error) {
	l.asked <- struct{}{}
	return 3 * time.Millisecond, nil
}

func TestBus(t *testing.T) {
	r := record(t)
	l := &line{broker.Traffic{Connected: true, In: 1, Out: 2, InBytes: 3, OutBytes: 4, Direct: 9, DirectRefused: 10,
		Disconnects: 5, Reconnects: 6, SlowConsumers: 7, Errors: 8}, make(chan struct{})}
	r.Bus(l)
	r.has(map[string]float64{
		"rondo.nats.connected{}": 1, "rondo.nats.messages{direction=in}": 1, "rondo.nats.messages{direction=out}": 2,
		"rondo.nats.io{direction=in}": 3, "rondo.nats.io{direction=out}": 4,
		"rondo.nats.disconnects{}": 5, "rondo.nats.reconnects{}": 6, "rondo.nats.errors{reason=slow_consumer}": 7,
		"rondo.nats.errors{reason=other}":      8,
		"rondo.nats.direct{outcome=delivered}": 9, "rondo.nats.direct{outcome=stored}": 10,
	})
	<-l.asked // beside the export, which does not wait for it
	for r.values()["rondo.nats.round_trip{}"] == 0 {
		runtime.Gosched()
	}
	r.has(map[string]float64{"rondo.nats.round_trip{}": 0.003})
	l.traffic.Connected = false
	r.has(map[string]float64{"rondo.nats.connected{}": 0})
}

// TestReady asks a process that has not begun. The check runs beside the export, which does not
// wait for the answer.
func TestReady(t *testing.T) {
	for want, err := range map[float64]error{0: errors.New("it has not begun"), 1: nil} {
		r := record(t)
		asked := make(chan struct{})
		stop := r.Ready(func() error { asked <- struct{}{}; return err })
		if _, open := r.values()["rondo.ready{}"]; open {
			t.Error("it is told before anybody knows")
		}
		<-asked
		for open := false; !open; _, open = r.values()["rondo.ready{}"] {
			runtime.Gosched()
		}
		r.has(map[string]float64{"rondo.ready{}": want})
		stop()
		if _, open := r.values()["rondo.ready{}"]; open {
			t.Error("it is told after the end")
		}
	}
}

func TestStore(t *testing.T) {
	r := record(t)
	m, err := sqlite.Open(t.Context(), ":memory:", sqlite.Options{Observer: r.StoreObserver()})
	if err != nil {
		t.Fatal(err)
	}
	stop := r.Pool(m)
	if _, err := m.Instance(t.Context(), "nobody"); !errors.Is(err, history.ErrNoInstance) {
		t.Error(err)
	}
	if _, ok, err := m.Value(t.Context(), "nobody", "x"); ok || err != nil && !errors.Is(err, history.ErrNoInstance) {
		t.Error(ok, err)
	}
	for range 3 {
		if _, err := m.Load(t.Context(), []string{"nobody"}, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Commit(t.Context(), history.Batch{Turns: []history.Decided{{}}}); err == nil {
		t.Error("a turn of nobody was committed")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Ping(gone); err == nil {
		t.Error("nobody waits, and it answers")
	}
	got := r.values()
	r.has(map[string]float64{
		"rondo.store.operation.duration{operation=instance,status=ok}":  1, // that it is not there is an answer
		"rondo.store.operation.duration{operation=load,status=ok}":      3,
		"rondo.store.operation.duration{operation=commit,status=error}": 1,
		"rondo.store.errors{class=permanent,operation=commit}":          1,
		"rondo.store.errors{class=retry,operation=ping}":                1,
		"rondo.store.connections{state=used}":                           0,
		"rondo.store.connections.limit{}": got["rondo.store.connections{state=idle}"] +
			unopened(m),
	})
	stop()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := r.values()["rondo.store.connections.limit{}"]; ok {
		t.Error("a store that is closed tells of its connections")
	}
}

func unopened(s *sqlite.Store) float64 { p := s.Pool(); return float64(p.Limit - p.Used - p.Idle) }

// ---- How many series there are.

// [anybody] returns a made-up name.
func anybody(chance *rand.Rand) string { return fmt.Sprintf("made-up-%x", chance.Uint64()) }

// live records instances whose names, tags and errors are made up, as far as clients can make them
// up.
func (r *recorded) live(chance *rand.Rand, instances int) {
	for i := range instances {
		name, version := [...]string{"order", "parcel", anybody(chance)}[chance.IntN(3)],
			[...]string{"1.0.0", "2.0.0", anybody(chance)}[chance.IntN(3)]
		activity := fmt.Sprintf("activity-%d", i%100)
		kind := [...]failure.Kind{failure.Application, failure.Timeout, failure.Poison,
			failure.Kind(anybody(chance))}[i/100%4]
		failed := &failure.Error{Kind: kind, Type: anybody(chance), Message: anybody(chance)}
		status := []round.Status{round.Completed, round.Failed, round.Cancelled, round.Terminated,
			round.ContinuedAsNew}[chance.IntN(5)]
		verb := []events.Verb{events.VerbStart, events.VerbEvent, events.VerbDone, events.VerbTimer}[chance.IntN(4)]
		t := &round.Turn{Instance: anybody(chance), Row: round.Row{Name: name, Version: version},
			Fault: failed, Replayed: 1,
			Executions: []round.Execution{{Events: []events.Event{
				{Fact: &events.Started{Name: name, Version: version, Message: anybody(chance)}},
				{Fact: &events.ChildStarted{Name: anybody(chance), Instance: anybody(chance)}},
				{Fact: &events.ActivityScheduled{Name: activity, Tag: anybody(chance)}},
				{Fact: &events.EventReceived{Name: anybody(chance)}},
			}}}, Over: []round.Over{
				{Kind: round.OverActivity, Name: anybody(chance), Tag: anybody(chance), Error: failed},
				{Kind: round.OverChild, Name: anybody(chance)}, {Kind: round.OverEvent, Name: anybody(chance)},
				{Kind: round.OverMailbox, Name: anybody(chance)}, {Kind: round.OverTimer},
				{Kind: round.OverExecution, Name: name, Version: version, Status: status, Error: failed},
			}}
		r.Instances().Turn(t)
		r.Rounds().Decided(t.Row.Name, t, telemetry.Source(chance.IntN(3)), 0, 0)
		r.Instances().Step(name, 0, failed)
		r.Messages().Receipt(verb,
			round.Receipt{Verdict: round.Ignored, Reason: round.HasEnded, Detail: anybody(chance)})
		r.Messages().DeadLettered("rondo", "rondo."+anybody(chance)+".x",
			[...]string{"poison", "refused", "malformed"}[chance.IntN(3)])
		w := telemetry.Task{Activity: activity, Tag: anybody(chance), Attempt: i / 400 % 6}
		r.Tasks().Delivered(w, i/100%2 == 0, false)
		r.Tasks().Begun(w, 0)
		r.Tasks().Heartbeat(activity)
		r.Tasks().Finished(w, "", failed, 0)
	}
}

// TestSeriesAreBounded checks that the code and the engine bound the series, whatever clients send.
func TestSeriesAreBounded(t *testing.T) {
	r := record(t)
	chance := rand.New(rand.NewPCG(1, 2))
	count := func() map[string]int {
		n := make(map[string]int)
		for series := range r.values() {
			name, _, _ := strings.Cut(series, "{")
			if !strings.HasSuffix(series, " sum") {
				n[name]++
			}
		}
		return n
	}
	const instances = 10_000 // enough that everything that can occur has
	r.live(chance, instances)
	before := count()
	// Two orchestrations, with their two versions and unregistered ones; a hundred activities;
	// fifty tags and the others.
	const orchestrations, versions, tags, children, kinds, outcomes = 3, 6, 51, 201, 4, 4
	for name, most := range map[string]int{
		telemetry.MetricOrchestrationStarts: versions, telemetry.MetricOrchestrationCompletions: versions * 4,
		telemetry.MetricOrchestrationFailures: versions * kinds,
		telemetry.MetricOrchestrationFaults:   orchestrations * kinds, telemetry.MetricExecutionDuration: versions * 5,
		telemetry.MetricChildCalls:    orchestrations * children,
		telemetry.MetricChildDuration: orchestrations * children, telemetry.MetricCallDuration: 201,
		telemetry.MetricTimerLateness: 1, telemetry.MetricRounds: orchestrations * 3,
		telemetry.MetricStepExecutions: orchestrations * outcomes, telemetry.MetricReceipts: 4,
		telemetry.MetricDeadLetters: 3, telemetry.MetricActivityHeartbeats: 100,
		// Almost all of these tags are the others; the first fifty are each seen with one of the
		// activities.
		telemetry.MetricActivityExecutions: (100 + tags - 1) * outcomes * 4,
		telemetry.MetricActivityDuration:   (100 + tags - 1) * outcomes, telemetry.MetricActivityQueue: 100 + tags - 1,
		telemetry.MetricActivityDeliveries: 2 * (100 + tags - 1),
	} {
		if n := before[name]; n == 0 || n > most {
			t.Errorf("%s has %d series, want %d at most", name, n, most)
		}
	}
	r.live(chance, instances)
	if after := count(); !maps.Equal(before, after) {
		for name, n := range after {
			if n != before[name] {
				t.Errorf("%s has %d series, and had %d before twice as many instances", name, n, before[name])
			}
		}
	}
}

// ---- Costs.

// BenchmarkStoreOperation records an operation of the store.
func BenchmarkStoreOperation(b *testing.B) {
	observe := record(b).StoreObserver()
	b.ReportAllocs()
	for b.Loop() {
		observe("commit", time.Millisecond, nil)
	}
}

// BenchmarkMetricsOfRound is everything that is recorded because of one round with one message that
// completes an activity and asks for another one.
func BenchmarkMetricsOfRound(b *testing.B) {
	r := record(b)
	turn := &round.Turn{Row: round.Row{Name: "order", Version: "1.0.0"}, Receipts: make([]round.Receipt, 1),
		Executions: []round.Execution{{ID: 1, Events: []events.Event{
			{Fact: &events.ActivityCompleted{Result: codec.Payload("1")}},
			{Fact: &events.ActivityScheduled{Name: "pack", Input: codec.Payload("1")}},
		}}}, Over: []round.Over{{Kind: round.OverActivity, Name: "pack", Begun: monday, Ended: monday}}}
	b.ReportAllocs()
	for b.Loop() {
		r.Rounds().Decided(turn.Row.Name, turn, telemetry.FromMemory, time.Microsecond, time.Microsecond)
		r.Messages().Receipt(events.VerbDone, round.Receipt{Verdict: round.Accepted, Reason: round.Taken})
		r.Rounds().Phase(telemetry.PhaseAck, time.Microsecond)
		r.Rounds().Phase(telemetry.PhaseTotal, time.Microsecond)
		r.Rounds().CommitStatus("committed", 1)
		r.Rounds().Phase(telemetry.PhaseBatch, time.Microsecond)
		r.Rounds().Phase(telemetry.PhaseCommit, time.Microsecond)
		r.Rounds().Phase(telemetry.PhasePublish, time.Microsecond)
		r.Rounds().Appended(2)
		r.Instances().Turn(turn)
	}
}

// BenchmarkMetricsOfWork is everything that a worker records because of one execution.
func BenchmarkMetricsOfWork(b *testing.B) {
	r := record(b)
	w := telemetry.Task{Activity: "pack", Tag: "gpu", Attempt: 1}
	b.ReportAllocs()
	for b.Loop() {
		r.Tasks().Delivered(w, false, false)
		r.Tasks().Begun(w, time.Millisecond)
		r.Tasks().Finished(w, "", nil, time.Millisecond)
	}
}
