package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// ---- The work that is measured.

var (
	treble   = activity.Define[int, int]("treble")
	wobble   = activity.Define[int, int]("wobble", activity.Retry(3, activity.Fixed(time.Millisecond)))
	refuse   = activity.Define[int, int]("refuse")
	explode  = activity.Define[int, int]("explode")
	linger   = activity.Define[int, int]("linger")
	endless  = activity.Define[int, int]("endless")
	pulse    = activity.Define[int, int]("pulse")
	counting = activity.Define[int, int]("counting")

	household = orchestration.Define[int, int]("household")
	pupil     = orchestration.Define[int, int]("pupil")
	naughty   = orchestration.Define[int, int]("naughty")
	stumble   = orchestration.Define[int, int]("stumble")
	doomed    = orchestration.Define[int, int]("doomed")
	hurried   = orchestration.Define[int, int]("hasty")
	hesitant  = orchestration.Define[int, int]("hesitant")
	abiding   = orchestration.Define[int, int]("abiding")
	tagged    = orchestration.Define[string, int]("tagged")
	plainly   = orchestration.Define[int, int]("plainly")
	numbered  = orchestration.Define[int, int]("numbered")

	never = orchestration.DefineEvent[int]("never")
	halt  = orchestration.DefineEvent[int]("halt")
)

var measuredOrchestrations = []orchestration.Binding{
	// A child, a timer, a step, activities with and without retries; then all of it once more as a
	// new execution.
	household.Bind(func(ctx *orchestration.Context, left int) (int, error) {
		n, err := pupil.StartChild(ctx, 1).Get(ctx)
		if err != nil {
			return 0, err
		}
		if err := ctx.Sleep(20 * time.Millisecond); err != nil {
			return 0, err
		}
		if _, err := orchestration.Step(ctx, "look", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return 0, err
		}
		if _, err := wobble.Call(ctx, n); err != nil {
			return 0, err
		}
		if left > 0 {
			return household.ContinueAsNew(ctx, left-1)
		}
		_, err = naughty.StartChild(ctx, 0).Get(ctx)
		if err == nil {
			return 0, errors.New("a child that fails has not")
		}
		return n, nil
	}),
	pupil.Bind(func(ctx *orchestration.Context, n int) (int, error) { return treble.Call(ctx, n) }),
	naughty.Bind(func(ctx *orchestration.Context, n int) (int, error) { return refuse.Call(ctx, n) }),
	stumble.Bind(func(*orchestration.Context, int) (int, error) { panic("it stumbles") }),
	doomed.Bind(func(ctx *orchestration.Context, n int) (int, error) { return explode.Call(ctx, n) }),
	hurried.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		return linger.Call(ctx, n, activity.StartToClose(30*time.Millisecond))
	}),
	hesitant.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		wanted := halt.Next(ctx)
		if ctx.Race(endless.Start(ctx, n), wanted) == wanted {
			return -1, nil
		}
		return n, nil
	}),
	abiding.Bind(func(ctx *orchestration.Context, n int) (int, error) { return never.Wait(ctx) }),
	tagged.Bind(func(ctx *orchestration.Context, tag string) (int, error) {
		return treble.Call(ctx, 1, activity.Tag(tag))
	}),
	plainly.Bind(func(ctx *orchestration.Context, n int) (int, error) { return pulse.Call(ctx, n) }),
	numbered.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		ctx.Metrics().Count("shop.orders", 2, slog.String("kind", "gift"))
		ctx.Metrics().Measure("shop.order.price", 9.5)
		return counting.Call(ctx, n)
	}),
}

func measuredActivities(endlessBegins chan<- struct{}) []activity.Binding {
	untilStopped := func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return []activity.Binding{
		treble.Bind(func(_ context.Context, n int) (int, error) { return 3 * n, nil }),
		wobble.Bind(func(ctx context.Context, n int) (int, error) {
			if activity.Info(ctx).Attempt == 1 {
				return 0, errors.New("not yet")
			}
			return n, nil
		}),
		refuse.Bind(func(context.Context, int) (int, error) { return 0, activity.Errorf("no", "it does not want to") }),
		explode.Bind(func(context.Context, int) (int, error) { panic("it explodes") }),
		linger.Bind(untilStopped),
		endless.Bind(func(ctx context.Context, n int) (int, error) {
			close(endlessBegins)
			return untilStopped(ctx, n)
		}),
		pulse.Bind(func(ctx context.Context, n int) (int, error) { return n, activity.Heartbeat(ctx, n) }),
		// What an activity measures itself goes where everything else goes: OpenTelemetry's global
		// meter is set.
		counting.Bind(func(ctx context.Context, n int) (int, error) {
			parcels, err := otel.Meter("example.com/parcels").Int64Counter("shop.parcels", metric.WithUnit("{parcel}"),
				metric.WithDescription("Parcels that were sent."))
			if err != nil {
				return 0, err
			}
			parcels.Add(ctx, int64(n), metric.WithAttributes(attribute.String("size", "small")))
			return n, nil
		}),
	}
}

// ---- Scraping.

// scraped has the samples of /metrics: values by series.
type scraped map[string]float64

var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$`)

func scrapeOf(t *testing.T, x *telemetry.Telemetry) (text string, all scraped) {
	t.Helper()
	answer := httptest.NewRecorder()
	x.Scrape.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	text, all = answer.Body.String(), scraped{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			m := sample.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("this is no sample: %s", line)
			}
			v, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			all[m[1]+m[2]] = v
		}
	}
	return text, all
}

// own are the series of Rondo's metrics.
func (s scraped) own() []string {
	var own []string
	for name := range s {
		if strings.HasPrefix(name, "rondo_") {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	return own
}

// measured is a system all of whose services record metrics.
func measured(t *testing.T, orchestrations []orchestration.Binding, activities []activity.Binding,
	change ...func(*worker.Config)) (*system, *telemetry.Telemetry) {
	t.Helper()
	x, err := telemetry.Start(context.Background(), telemetry.Service{Name: "rondo-test", Version: "test",
		Instance: "test", Logger: quiet(), Environment: func(string) (string, bool) {
			return "", false
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.End(context.Background()) })
	open := openObserved(t, x.Metrics.StoreObserver())
	t.Cleanup(x.Metrics.Pool(open().(history.Pooled)))
	s := newSystem(t, open, orchestrations...)
	t.Cleanup(x.Metrics.Bus(s.bus))
	s.orchestrate(func(c *orchestrator.Config) {
		c.Metrics, c.MeasureEvery, c.Sweep.OutboxAfter = x.Metrics, 500*time.Millisecond, 10*time.Second
	})
	s.employ(activities, append([]func(*worker.Config){func(c *worker.Config) {
		c.Metrics, c.Slots = x.Metrics, 20
	}}, change...)...)
	return s, x
}

// tells waits until series have these values.
func tells(t *testing.T, x *telemetry.Telemetry, want scraped) {
	t.Helper()
	eventually(t, "the metrics", func() error {
		_, all := scrapeOf(t, x)
		var wrong []string
		for series, v := range want {
			if got, ok := all[series]; !ok || got != v {
				wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", series, got, v))
			}
		}
		if len(wrong) > 0 {
			slices.Sort(wrong)
			return errors.New(strings.Join(wrong, "\n"))
		}
		return nil
	})
}

// TestMetrics runs some of everything, and checks the metrics. It does not run in parallel with
// tests that set the global providers.
func TestMetrics(t *testing.T) {
	begun := make(chan struct{})
	s, x := measured(t, measuredOrchestrations, measuredActivities(begun))
	s.start("household", "home", 1)
	s.start("stumble", "oops", 0)
	s.start("doomed", "boom", 0)
	s.start("hasty", "quick", 0)
	s.start("hesitant", "now", 0)
	s.start("plainly", "plain", 7)
	s.start("numbered", "parcels", 5)
	s.start("abiding", "stopped", 0)
	s.start("abiding", "dropped", 0)
	s.start("nobody knows this", "lost", 0)
	s.say(
		events.Message{ID: "again", Instance: "plain",
			Content: &events.Start{Orchestration: "plainly", Input: encode(t, 7)}},
		events.Message{ID: "e1", Instance: "stopped", Content: &events.EventRaised{Name: "something else"}},
		events.Message{ID: "e2", Instance: "who", Content: &events.EventRaised{Name: "never"}},
	)
	s.await(begun, "an activity that does not end begins")
	s.say(events.Message{ID: "e3", Instance: "now",
		Content: &events.EventRaised{Name: halt.Name(), Data: encode(t, 0)}})
	s.eventually("two instances wait", func() error {
		for _, id := range []string{"stopped", "dropped"} {
			if _, err := s.store.Instance(t.Context(), id); err != nil {
				return err
			}
		}
		return nil
	})
	s.say(
		events.Message{ID: "c1", Instance: "stopped", Content: &events.Control{How: events.Cancel}},
		events.Message{ID: "c2", Instance: "dropped", Content: &events.Control{How: events.Terminate}},
	)
	if err := s.bus.Publish(t.Context(), events.Wire{Subject: "rondo.control.bewitch.somebody",
		Header: events.Header{events.HeaderMsgID: {"m1"}}}); err != nil {
		t.Fatal(err)
	}
	s.completed("home", 3)
	for _, id := range []string{"oops", "boom", "quick", "now", "plain", "parcels", "stopped", "dropped"} {
		s.ended(id)
	}
	tells(t, x, want)
	// Its first runs were missed, one is started, and the next ones are skipped.
	old := schedule.New("old", time.Now().Add(-48*time.Hour), schedule.Spec{Cron: "* * * * * *",
		CatchUp: events.Duration(10 * time.Second)}, []byte(`{"orchestration":"abiding","input":0}`), false)
	data, err := old.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.store.ChangeSchedule(t.Context(), history.ScheduleChange{
		Schedule: history.Schedule{ID: "old", WakeAt: time.Now(), Data: data}}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	s.eventually("a run of the schedule is skipped", func() error {
		text, _ := scrapeOf(t, x)
		if !strings.Contains(text, "rondo_schedule_skipped_total") {
			return errors.New("none was")
		}
		return nil
	})

	text, all := scrapeOf(t, x)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	checkPlausible(t, all)
	checkNoIDs(t, text)
	checkAllTold(t, all)
}

// want has the counts that follow from the work above.
var want = scraped{
	`rondo_orchestration_starts_total{initiated_by="client",orchestration="household",version="1.0.0"}`:    1,
	`rondo_orchestration_starts_total{initiated_by="continued",orchestration="household",version="1.0.0"}`: 1,
	`rondo_orchestration_starts_total{initiated_by="parent",orchestration="pupil",version="1.0.0"}`:        2,
	`rondo_orchestration_starts_total{initiated_by="client",orchestration="abiding",version="1.0.0"}`:      2,

	`rondo_orchestration_completions_total{orchestration="household",status="completed",version="1.0.0"}`: 1,
	`rondo_orchestration_completions_total{orchestration="pupil",status="completed",version="1.0.0"}`:     2,
	`rondo_orchestration_completions_total{orchestration="naughty",status="failed",version="1.0.0"}`:      1,
	`rondo_orchestration_completions_total{orchestration="abiding",status="cancelled",version="1.0.0"}`:   1,
	`rondo_orchestration_completions_total{orchestration="abiding",status="terminated",version="1.0.0"}`:  1,

	`rondo_orchestration_failures_total{error_kind="application",orchestration="naughty",version="1.0.0"}`: 1,
	`rondo_orchestration_failures_total{error_kind="panicked",orchestration="stumble",version="1.0.0"}`:    1,
	`rondo_orchestration_failures_total{error_kind="panicked",orchestration="doomed",version="1.0.0"}`:     1,
	`rondo_orchestration_failures_total{error_kind="timeout",orchestration="hasty",version="1.0.0"}`:       1,
	`rondo_orchestration_faults_total{error_kind="panicked",orchestration="stumble"}`:                      1,
	`rondo_orchestration_continuations_total{orchestration="household",version="1.0.0"}`:                   1,

	`rondo_orchestration_duration_seconds_count{orchestration="household",status="completed",version="1.0.0"}`:    1,
	`rondo_execution_duration_seconds_count{orchestration="household",status="completed",version="1.0.0"}`:        1,
	`rondo_execution_duration_seconds_count{orchestration="household",status="continued_as_new",version="1.0.0"}`: 1,
	`rondo_execution_history_events_count{orchestration="household"}`:                                             2,
	`rondo_execution_rounds_count{orchestration="household"}`:                                                     2,
	`rondo_child_calls_total{child="pupil",orchestration="household"}`:                                            2,
	`rondo_child_duration_seconds_count{child="pupil",orchestration="household",outcome="completed"}`:             2,
	`rondo_child_duration_seconds_count{child="naughty",orchestration="household",outcome="failed"}`:              1,
	`rondo_activity_call_duration_seconds_count{activity="wobble",outcome="failed"}`:                              2,
	`rondo_activity_call_duration_seconds_count{activity="wobble",outcome="completed"}`:                           2,
	`rondo_activity_call_duration_seconds_count{activity="endless",outcome="given_up"}`:                           1,
	`rondo_receipts_total{reason="taken",verb="event",verdict="accepted"}`:                                        1,
	`rondo_timer_lateness_seconds_count`:                                                                          2,
	`rondo_step_executions_total{orchestration="household",outcome="success"}`:                                    2,
	`rondo_step_duration_seconds_count{orchestration="household",outcome="success"}`:                              2,

	`rondo_activity_executions_total{activity="treble",attempt="1",outcome="success",tag=""}`:                2,
	`rondo_activity_executions_total{activity="wobble",attempt="1",outcome="app_error",tag=""}`:              2,
	`rondo_activity_executions_total{activity="wobble",attempt="2",outcome="success",tag=""}`:                2,
	`rondo_activity_executions_total{activity="refuse",attempt="1",outcome="app_error",tag=""}`:              1,
	`rondo_activity_executions_total{activity="explode",attempt="1",outcome="panic",tag=""}`:                 1,
	`rondo_activity_executions_total{activity="linger",attempt="1",outcome="timeout_start_to_close",tag=""}`: 1,
	`rondo_activity_executions_total{activity="endless",attempt="1",outcome="cancelled",tag=""}`:             1,
	`rondo_activity_duration_seconds_count{activity="treble",outcome="success",tag=""}`:                      2,
	`rondo_activity_queue_duration_seconds_count{activity="wobble",tag=""}`:                                  4,
	`rondo_activity_deliveries_total{activity="wobble",source="new",tag=""}`:                                 4,
	`rondo_activity_heartbeats_total{activity="pulse"}`:                                                      1,
	`rondo_worker_slots`:      20,
	`rondo_worker_slots_used`: 0,
	`rondo_worker_held`:       0,
	`rondo_worker_sessions`:   0,
	`rondo_worker_stuck`:      0,

	`rondo_receipts_total{reason="exists",verb="start",verdict="ignored"}`:           1,
	`rondo_receipts_total{reason="no_waiter",verb="event",verdict="ignored"}`:        1,
	`rondo_receipts_total{reason="unknown_instance",verb="event",verdict="ignored"}`: 1,
	`rondo_receipts_total{reason="taken",verb="control",verdict="accepted"}`:         2,
	`rondo_receipts_total{reason="taken",verb="child-ended",verdict="accepted"}`:     3,
	`rondo_dead_letters_total{reason="malformed",verb="control"}`:                    1,

	`rondo_partitions_owned`:                                                   4,
	`rondo_orchestrators`:                                                      1,
	`rondo_partition_waiting{partition="0"}`:                                   0,
	`rondo_partition_waiting{partition="3"}`:                                   0,
	`rondo_instances_stuck{reason="code"}`:                                     0,
	`rondo_instances_stuck{reason="halted"}`:                                   0,
	`rondo_instances_stuck{reason="unregistered"}`:                             1,
	`rondo_outbox_entries`:                                                     0,
	`rondo_outbox_age_seconds`:                                                 0,
	`rondo_outbox_unpublished`:                                                 0,
	`rondo_task_waiting{activity="treble",tag=""}`:                             0,
	`rondo_task_held{activity="wobble",tag=""}`:                                0,
	`rondo_nats_connected`:                                                     1,
	`rondo_nats_disconnects_total`:                                             0,
	`shop_orders_total{kind="gift"}`:                                           2,
	`shop_order_price_sum`:                                                     9.5,
	`shop_parcels_total{size="small"}`:                                         5,
	`rondo_build_info{build="test",engine="1",go="` + runtime.Version() + `"}`: 1,
}

// checkPlausible checks the values that depend on the speed of the machine.
func checkPlausible(t *testing.T, all scraped) {
	t.Helper()
	sum := func(prefix string) (n float64) {
		for series, v := range all {
			if strings.HasPrefix(series, prefix) {
				n += v
			}
		}
		return n
	}
	between := func(series string, least, most float64) {
		t.Helper()
		if v, ok := all[series]; !ok || v < least || v > most {
			t.Errorf("%s is %v; want something from %v to %v", series, v, least, most)
		}
	}
	const minute = 60
	between(`rondo_timer_lateness_seconds_sum`, 0, 3*minute)
	// two naps of 20 ms
	between(`rondo_orchestration_duration_seconds_sum{orchestration="household",status="completed",version="1.0.0"}`,
		0.04, minute)
	last, first := `rondo_execution_duration_seconds_sum{orchestration="household",status="completed",version="1.0.0"}`,
		`rondo_execution_duration_seconds_sum{orchestration="household",status="continued_as_new",version="1.0.0"}`
	if incarnation := all[`rondo_orchestration_duration_seconds_sum{orchestration="household",status="completed",version="1.0.0"}`]; incarnation < all[last]+all[first]-0.001 {
		t.Errorf("an instance has lived %vs, its executions have taken %vs and %vs", incarnation, all[first], all[last])
	}
	between(`rondo_activity_duration_seconds_sum{activity="linger",outcome="timeout_start_to_close",tag=""}`, 0.03,
		minute)
	between(`rondo_activity_queue_duration_seconds_sum{activity="wobble",tag=""}`, 0, minute)
	between(`rondo_execution_history_size_bytes_sum{orchestration="household"}`, 1000, 100_000)
	between(`rondo_execution_history_events_sum{orchestration="household"}`, 20, 60)
	between(`rondo_payload_size_bytes_sum{payload="orchestration_input"}`, 10, 1000)
	between(`rondo_instances_active`, 0, 20)
	between(`rondo_nats_io_bytes_total{direction="in"}`, 1000, 1e9)
	between(`rondo_nats_round_trip_seconds`, 1e-9, minute)
	between(`rondo_store_connections_limit`, 2, 100)
	between(`rondo_store_operation_duration_seconds_count{operation="commit",status="ok"}`, 10, 1000)
	between(`process_open_fds`, 1, 1e6)
	between(`go_goroutines`, 10, 1e6)
	between(`rondo_rounds_total{orchestration="household",source="new"}`, 1, 1)
	between(`rondo_rounds_total{orchestration="household",source="memory"}`, 8, 30)

	committed := all[`rondo_turns_total{outcome="committed"}`]
	between(`rondo_turns_total{outcome="committed"}`, 30, 300)
	for _, phase := range []string{"batch", "commit", "publish"} {
		between(`rondo_round_duration_seconds_count{phase="`+phase+`"}`, committed, committed)
	}
	// a start that is sent twice at once may be refused
	between(`rondo_commit_turns_sum`, sum("rondo_turns_total"), sum("rondo_turns_total"))
	if rounds := sum("rondo_rounds_total"); rounds < committed ||
		all[`rondo_round_duration_seconds_count{phase="decide"}`] != rounds ||
		all["rondo_round_messages_count"] != rounds {
		t.Errorf("there were %v rounds, %v of them committed, %v decided and %v with messages", rounds, committed,
			all[`rondo_round_duration_seconds_count{phase="decide"}`], all["rondo_round_messages_count"])
	}
	if written, committed := all["rondo_round_events_sum"], all["rondo_commit_events_sum"]; written > committed ||
		written < 60 {
		t.Errorf("rounds have written %v events, commits have tried %v", written, committed)
	}
	if n := sum("rondo_outbox_published_total"); n < 20 ||
		n != all[`rondo_outbox_published_total{lane="now",outcome="published"}`]+
			all[`rondo_outbox_published_total{lane="later",outcome="published"}`] {
		t.Errorf("%v messages were published", n)
	}
	if n := all["rondo_outbox_swept_total"]; n != 0 {
		t.Errorf("%v messages were published by a sweep", n)
	}
}

// label is one label of a sample.
var label = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

// checkNoIDs checks that no label has the id of anything.
func checkNoIDs(t *testing.T, text string) {
	t.Helper()
	ids := []string{"home", "oops", "boom", "quick", "now", "plain", "parcels", "stopped", "dropped", "lost", "again",
		"who", "nobody knows this", "something else"}
	lanes := map[string]bool{"lane": true} // one of them is "now"
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		for _, m := range label.FindAllStringSubmatch(lines.Text(), -1) {
			if slices.Contains(ids, m[2]) && !lanes[m[1]] {
				t.Errorf("a label says what somebody has sent: %s", lines.Text())
			}
		}
	}
}

// rare are metrics that a system without faults does not record, or only whole programs. The tests
// of package telemetry record them, and those of package queues the metrics of job queues.
var rare = []string{
	telemetry.MetricOrchestrationPoison, telemetry.MetricReplayedEvents, telemetry.MetricEvictions,
	telemetry.MetricNearLimit, telemetry.MetricRedeliveries, telemetry.MetricQuarantined, telemetry.MetricHandovers,
	telemetry.MetricOutboxSwept, telemetry.MetricOutboxHealed, telemetry.MetricActivityLimited,
	telemetry.MetricStoreErrors, telemetry.MetricLoads, telemetry.MetricReady, telemetry.MetricDeadLettersDropped,
	telemetry.MetricJobsRequests, telemetry.MetricJobsDuration, telemetry.MetricJobs,
	telemetry.MetricJobsDepth, telemetry.MetricJobsLocked, telemetry.MetricJobsDead, telemetry.MetricJobsOldest,
}

// checkAllTold checks that each described metric is recorded.
func checkAllTold(t *testing.T, all scraped) {
	t.Helper()
	for _, d := range telemetry.Descriptions() {
		name := d.PrometheusName()
		told := slices.ContainsFunc(all.own(), func(series string) bool {
			series, _, _ = strings.Cut(series, "{")
			return series == name || d.Type == telemetry.Histogram && series == name+"_count"
		})
		if !told && !slices.Contains(rare, d.Name) {
			t.Errorf("%s (%s) is not told", d.Name, name)
		}
	}
}

// TestRoundsAreCountedUnderTheirName has a round that writes nothing: it counts for the
// orchestration all the same, and not as one of an unregistered orchestration.
func TestRoundsAreCountedUnderTheirName(t *testing.T) {
	s, x := measured(t, measuredOrchestrations, measuredActivities(nil))
	s.start("plainly", "plain", 7)
	s.ended("plain")
	s.say(events.Message{ID: "late", Instance: "plain", Content: &events.EventRaised{Name: "too late"}})
	tells(t, x, scraped{`rondo_receipts_total{reason="has_ended",verb="event",verdict="ignored"}`: 1})
	_, all := scrapeOf(t, x)
	if n := all[`rondo_rounds_total{orchestration="plainly",source="history"}`]; n != 1 {
		t.Errorf("%v rounds of what had ended", n)
	}
	if n, there := all[`rondo_rounds_total{orchestration="unregistered",source="history"}`]; there {
		t.Errorf("%v rounds of what nobody has registered", n)
	}
}

// ---- How many series there are.

const spreadOver = 100 // activities

var spread = orchestration.Define[int, int]("spread")

// spreading has each instance call one of many activities, and count under a name of its own.
var spreading = spread.Bind(func(ctx *orchestration.Context, n int) (int, error) {
	ctx.Metrics().Count(fmt.Sprintf("spread.%d", n), 1) // a name for each instance
	return activity.Define[int, int](fmt.Sprintf("spread-%d", n%spreadOver)).Call(ctx, n)
})

// TestMetricsAreBounded runs ten thousand instances over a hundred activities, among messages with
// made-up names of all sorts. What they are called does not make the metrics grow: once everything
// that can occur has, twice as many instances add nothing.
func TestMetricsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs ten thousand instances")
	}
	var activities []activity.Binding
	for i := range spreadOver {
		activities = append(activities,
			activity.Define[int, int](fmt.Sprintf("spread-%d", i)).Bind(func(_ context.Context, n int) (int, error) {
				return n, nil
			}))
	}
	s, x := measured(t, []orchestration.Binding{spreading}, activities, func(c *worker.Config) { c.Slots = 200 })
	half := map[bool]int{false: 5000, true: 1000}[racetest.On]
	run := func(from int) {
		var all []events.Message
		for n := from; n < from+half; n++ {
			id := fmt.Sprintf("spread-%d", n)
			all = append(all, events.Message{ID: "s-" + id, Instance: id,
				Content: &events.Start{Orchestration: "spread", Input: encode(t, n)}})
			switch n % 25 {
			case 0:
				all = append(all, events.Message{ID: "u-" + id, Instance: "unknown-" + id,
					Content: &events.Start{Orchestration: "made up " + id, Version: "1.0." + strconv.Itoa(n),
						Input: encode(t, n)}})
			case 1:
				all = append(all, events.Message{ID: "e-" + id, Instance: id,
					Content: &events.EventRaised{Name: "made up " + id}})
			case 2:
				all = append(all, events.Message{ID: "q-" + id, Instance: id,
					Content: &events.MailboxMessage{Mailbox: "made up " + id}})
			}
		}
		s.say(all...)
		within(t, 2*patience, "all instances end", func() error {
			left, err := s.store.Count(t.Context(),
				history.Filter{Name: "spread", Statuses: []round.Status{round.Completed}}, 0)
			if err == nil && left < int64(from+half) {
				err = fmt.Errorf("%d of %d have", left, from+half)
			}
			return err
		})
	}
	atRest := scraped{`rondo_instances_hydrated`: 0} // and all queues have been looked at
	for i := range spreadOver {
		atRest[fmt.Sprintf(`rondo_task_held{activity="spread-%d",tag=""}`, i)] = 0
	}
	own := func() (own []string) {
		tells(t, x, atRest)
		_, all := scrapeOf(t, x)
		for series := range all {
			// The engine's own words are limited in number anyway. Some series exist only when
			// something is slow: a worker nacks a task for want of a slot, which then has no first
			// delivery here; or a task is redelivered, and withdrawn when the first one is through.
			named := strings.Contains(series, `activity="`) || strings.Contains(series, `orchestration="`) ||
				strings.HasPrefix(series, "spread_")
			slow := strings.Contains(series, `"again"`) || strings.Contains(series, `"returned"`) ||
				strings.Contains(series, `"cancelled"`) || strings.HasPrefix(series, "rondo_activity_queue_duration") &&
				!strings.Contains(series, `tag=""`)
			if named && !slow {
				own = append(own, series)
			}
		}
		slices.Sort(own)
		return own
	}
	run(0)
	// An event may come before its instance ends or after; let one have come after.
	s.say(events.Message{ID: "late", Instance: "spread-0", Content: &events.EventRaised{Name: "too late"}})
	eventually(t, "an event is too late", func() error {
		if _, all := scrapeOf(t, x); all[`rondo_rounds_total{orchestration="spread",source="history"}`] == 0 {
			return errors.New("it has not been decided")
		}
		return nil
	})
	before := own()
	run(half)
	after := own()
	t.Logf("%d series after %d instances, %d after %d", len(before), half, len(after), 2*half)
	if !slices.Equal(before, after) {
		for _, series := range after {
			if _, there := slices.BinarySearch(before, series); !there {
				t.Errorf("twice as many instances have added %s", series)
			}
		}
	}
	// A hundred activities have about seventy series each, most of them buckets; and there are 200
	// counters of the authors.
	if most := 9000; len(after) > most {
		t.Errorf("%d series; want %d at most", len(after), most)
	}
	_, all := scrapeOf(t, x)
	if n := len(all); n > 11_000 {
		t.Errorf("%d series in all", n)
	}
}
