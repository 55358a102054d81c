package schedules_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator/schedules"
)

// world has the schedules and instances of a database, and the orchestrators that look after them.
// An instance begins when its start is published, unless the broker has lost that, and ends after
// lasts.
type world struct {
	t *testing.T

	mu        sync.Mutex
	rows      map[string]history.Schedule
	changes   int64
	starts    map[string][]time.Time // of each instance, by the message
	instances map[string]time.Time   // when they end
	ended     map[string]string      // before that
	messages  map[string]bool        // that arrived
	begunBy   map[string]string      // the messages that have begun instances
	lasts     time.Duration
	lose      bool  // the broker loses all that is published
	has       bool  // but it has all starts, which wait
	fault     error // of the database
	faults    int
	away      bool          // the orchestrators are
	takes     time.Duration // how long a change takes
	slow      string        // the schedule whose changes take 9 seconds
	metrics   *telemetry.ScheduleMetrics
	log       *slog.Logger
}

func newWorld(t *testing.T) *world {
	return &world{t: t, rows: make(map[string]history.Schedule), starts: make(map[string][]time.Time),
		instances: make(map[string]time.Time), ended: make(map[string]string), messages: make(map[string]bool),
		begunBy: make(map[string]string), log: slog.New(slog.DiscardHandler)}
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) ChangeSchedule(_ context.Context, c history.ScheduleChange) ([]history.OutboxKey, bool, error) {
	w.mu.Lock()
	takes := w.takes
	if c.ID == w.slow {
		takes = 9 * time.Second
	}
	w.mu.Unlock()
	<-time.After(takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil {
		w.faults++
		return nil, false, w.fault
	}
	if err := c.Check(); err != nil {
		return nil, false, err
	}
	if w.rows[c.ID].Version != c.Expected {
		return nil, false, nil
	}
	if c.Delete {
		delete(w.rows, c.ID)
		return nil, true, nil
	}
	c.Schedule.Version = c.Expected + 1
	if c.Expected == 0 {
		w.changes += 1000
		c.Schedule.Version = w.changes
	}
	w.rows[c.ID] = c.Schedule
	for _, m := range c.Messages {
		w.take(m)
	}
	return nil, true, nil
}

// take does what a message of the outbox says. mu is held.
func (w *world) take(x events.Wire) {
	m, err := events.Decode("rondo", x.Subject, x.Header, x.Body, "")
	if err != nil {
		w.t.Errorf("a message cannot be read: %v", err)
		return
	}
	switch c := m.Content.(type) {
	case *events.Start:
		w.starts[m.Instance] = append(w.starts[m.Instance], time.Now())
		if w.lose || w.messages[m.ID] {
			return
		}
		w.messages[m.ID] = true
		if c.Attributes[events.AttributeSchedule] == "" {
			w.t.Errorf("%s does not name its schedule: %v", m.Instance, c.Attributes)
		}
		if _, ok := w.instances[m.Instance]; !ok {
			w.instances[m.Instance], w.begunBy[m.Instance] = time.Now().Add(w.lasts), m.ID
		}
	case *events.Control:
		if time.Now().Before(w.instances[m.Instance]) {
			w.instances[m.Instance], w.ended[m.Instance] = time.Now(), string(c.How)
		}
	default:
		w.t.Errorf("a schedule sends %s", m.Content.Verb())
	}
}

func (w *world) Schedule(_ context.Context, id string) (history.Schedule, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	row, ok := w.rows[id]
	return row, ok, w.fault
}

func (w *world) ListSchedules(_ context.Context, f history.ScheduleFilter, _ history.Page) (out history.ScheduleList,
	err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, row := range w.rows {
		if strings.HasPrefix(id, f.IDPrefix) {
			out.Schedules = append(out.Schedules, row)
		}
	}
	slices.SortFunc(out.Schedules, func(x, y history.Schedule) int { return cmp.Compare(x.ID, y.ID) })
	return out, w.fault
}

func (w *world) DueSchedules(_ context.Context, before time.Time, limit int) (out []history.Schedule, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range w.rows {
		if !row.WakeAt.IsZero() && row.WakeAt.Before(before) {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(x, y history.Schedule) int { return x.WakeAt.Compare(y.WakeAt) })
	return out[:min(limit, len(out))], w.fault
}

// Within gives a reader of instances whose pages have a single one: each is as large as a page may
// be.
func (w *world) Within(int) history.BoundedReader { return instances{world: w} }

type instances struct {
	history.BoundedReader
	world *world
}

func (x instances) List(_ context.Context, f history.Filter, p history.Page) (out history.InstanceList, err error) {
	w := x.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range slices.Sorted(slices.Values(f.IDs)) {
		if id <= p.Cursor {
			continue
		}
		if len(out.Instances) > 0 {
			out.Next = out.Instances[0].Instance
			break
		}
		ends, ok := w.instances[id]
		if !ok {
			continue
		}
		is := history.Info{Instance: id, Row: round.Row{Status: round.Running, StartMessage: w.begunBy[id]}}
		if !ends.After(time.Now()) {
			is.Status = round.Completed
		}
		out.Instances = append(out.Instances, is)
	}
	return out, w.fault
}

func (w *world) Tombstones(context.Context, []string) ([]string, error) { return nil, nil }

func (w *world) Publish(context.Context, outbox.Committed) error { return nil }

// manager returns the part of an orchestrator. The first one has all schedules.
func (w *world) manager(first bool) *schedules.Manager {
	return schedules.New(w, w, schedules.Config{Prefix: "rondo",
		Now: func(ctx context.Context) (time.Time, error) {
			for {
				w.mu.Lock()
				away := w.away
				w.mu.Unlock()
				if !away {
					return time.Now(), ctx.Err()
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return time.Time{}, ctx.Err()
				}
			}
		},
		First: func(uint32) bool { return first },
		CheckStart: func(s *events.Start) (bool, *failure.Error) {
			if string(s.Input) == `"bad"` {
				return true, &failure.Error{Message: "the input is bad"}
			}
			return s.Orchestration == "report", nil
		},
		Members: func() []broker.Member {
			return []broker.Member{{Code: map[string][]string{"report": {"1.0.0"}, "elsewhere": {"1.0.0"}}}}
		},
		Has: func(context.Context, events.Wire) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.has, nil
		},
		Metrics: w.metrics, Log: w.log})
}

// inWorld runs a test on virtual time, with two orchestrators. It begins at midnight.
func inWorld(t *testing.T, test func(t *testing.T, w *world, m *schedules.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m, other := w.manager(true), w.manager(false)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { m.Run(ctx) })
		all.Go(func() { other.Run(ctx) })
		defer all.Wait()
		defer cancel()
		test(t, w, m)
	})
}

func put(t *testing.T, m *schedules.Manager, s query.Schedule) query.Schedule {
	t.Helper()
	if s.ID == "" {
		s.ID = "s"
	}
	s.Run.Orchestration = "report"
	got, err := m.Put(t.Context(), query.PutSchedule{Schedule: s})
	if err != nil {
		t.Fatal(err)
	}
	return got.Schedule
}

// wantStarts checks the starts of instances: their ids after "s@", and how late each was.
func (w *world) wantStarts(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for id, at := range w.starts {
		got = append(got, strings.TrimPrefix(id, "s@"))
		if len(at) != 1 {
			w.t.Errorf("%s is started %d times", id, len(at))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("started are %v, want %v", got, want)
	}
}

// cron is a schedule of some pattern.
func cron(pattern string, overlap schedule.Overlap) query.Schedule {
	return query.Schedule{Spec: schedule.Spec{Cron: pattern, Overlap: overlap}}
}

func TestEachTimeOnceAndInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("*/15 * * * *", ""))
		<-time.After(time.Hour + time.Second)
		w.wantStarts("2000-01-01T00:15:00Z", "2000-01-01T00:30:00Z", "2000-01-01T00:45:00Z", "2000-01-01T01:00:00Z")
		for id, at := range w.starts {
			if d, err := time.Parse(time.RFC3339, strings.TrimPrefix(id, "s@")); err != nil || !at[0].Equal(d) {
				t.Errorf("%s started at %v", id, at[0])
			}
		}
	})
}

// TestAnIDInUseIsTold: a client starts an instance with the id of a run before that is due. The run
// does not begin, and does not hold up the next one.
func TestAnIDInUseIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("@hourly", schedule.Skip))
		const taken = "s@2000-01-01T01:00:00Z"
		w.set(func() { w.instances[taken], w.begunBy[taken] = time.Now().Add(5*time.Hour), "of a client" })
		<-time.After(2*time.Hour + time.Minute)
		w.wantStarts("2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z")
		s, err := m.Get(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Runs) != 2 || s.Runs[0].Status != "completed" || s.Runs[1].Status != "id_in_use" {
			t.Errorf("the runs are %+v", s.Runs)
		}
	})
}

// TestAnotherOneStandsIn: the orchestrator that is first to look is stopped.
func TestAnotherOneStandsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		other := w.manager(false)
		all.Go(func() { other.Run(ctx) })
		defer all.Wait()
		defer cancel()
		put(t, w.manager(true), cron("@hourly", ""))
		<-time.After(time.Hour + 3*time.Second)
		w.wantStarts("2000-01-01T01:00:00Z")
	})
}

// TestManyOrchestratorsAtOnce has ten look at the same moment.
func TestManyOrchestratorsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range 10 {
			m := w.manager(true)
			all.Go(func() { m.Run(ctx) })
		}
		m := w.manager(true)
		for i := range 20 {
			s := cron("* * * * * *", schedule.Allow)
			s.ID, s.Limit = fmt.Sprintf("s%d", i), 60
			put(t, m, s)
		}
		<-time.After(2 * time.Minute)
		if len(w.starts) != 20*60 {
			t.Errorf("%d runs were started, want %d", len(w.starts), 20*60)
		}
		for id, at := range w.starts {
			if len(at) != 1 {
				t.Errorf("%s is started %d times", id, len(at))
			}
		}
	})
}

func TestWhatCameDueMeanwhileIsStarted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("@hourly", schedule.Allow))
		<-time.After(time.Minute)
		w.set(func() { w.away = true })
		<-time.After(2 * time.Hour)
		w.set(func() { w.away = false })
		<-time.After(time.Minute)
		w.wantStarts("2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z")
		put(t, m, cron("@hourly", schedule.Allow)) // as a deployment does: nothing changes
		w.wantStarts("2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z")
	})
}

// TestAPutOfTheSameDropsNothing puts the schedule again while its time has come and nothing has
// looked.
func TestAPutOfTheSameDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.manager(true)
		put(t, m, cron("@hourly", "")) // m does not run yet
		<-time.After(time.Hour + time.Minute)
		put(t, m, cron("@hourly", ""))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { m.Run(ctx) })
		<-time.After(10 * time.Second)
		w.wantStarts("2000-01-01T01:00:00Z")
		cancel()
		all.Wait()
	})
}

// TestALostStartIsSaidAgain has the broker lose everything for a while.
func TestALostStartIsSaidAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("@daily", ""))
		w.set(func() { w.lose = true })
		<-time.After(24*time.Hour + 30*time.Second)
		w.set(func() { w.lose = false })
		<-time.After(5 * time.Minute)
		w.set(func() {
			const id = "s@2000-01-02T00:00:00Z"
			if _, ok := w.instances[id]; !ok || len(w.starts[id]) != 2 || len(w.messages) != 1 {
				t.Errorf("started at %v, with the messages %v", w.starts[id], w.messages)
			}
		})
	})
}

// TestAStartThatWaitsIsNotSaidAgain: nothing has its code, for example.
func TestAStartThatWaitsIsNotSaidAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("@daily", ""))
		w.set(func() { w.lose, w.has = true, true })
		<-time.After(25 * time.Hour)
		w.wantStarts("2000-01-02T00:00:00Z")
		w.set(func() { w.lose, w.has = false, false })
		<-time.After(2 * time.Minute)
		if n := len(w.starts["s@2000-01-02T00:00:00Z"]); n != 2 {
			t.Errorf("it is lost now, and was sent %d times", n)
		}
	})
}

func TestAFaultOfTheDatabasePasses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("@hourly", ""))
		<-time.After(time.Hour - time.Millisecond) // both have read the row
		if err := m.Err(); err != nil {
			t.Errorf("without a fault: %v", err)
		}
		w.set(func() {
			w.fault = &history.Error{Class: history.Retry, Op: "x", Err: errors.New("it is away")}
		})
		<-time.After(10 * time.Minute)
		w.wantStarts()
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), "since 2000-01-01T01:00:0") ||
			!strings.Contains(err.Error(), "it is away") {
			t.Errorf("during a fault: %v", err)
		}
		if w.faults > 2*11*60 {
			t.Errorf("the database was asked %d times in ten minutes", w.faults)
		}
		w.set(func() { w.fault = nil })
		<-time.After(10 * time.Second)
		w.wantStarts("2000-01-01T01:00:00Z")
		if err := m.Err(); err != nil {
			t.Errorf("after a fault: %v", err)
		}
	})
}

func TestOverlap(t *testing.T) {
	for overlap, want := range map[schedule.Overlap]string{
		schedule.Skip:           "[00:01 00:03]",
		schedule.BufferAll:      "[00:01 00:02 00:03 00:04]",
		schedule.Allow:          "[00:01 00:02 00:03 00:04]",
		schedule.TerminateOther: "[00:01 00:02 00:03 00:04] terminate terminate terminate",
		schedule.CancelOther:    "[00:01 00:02 00:03 00:04] cancel cancel cancel",
	} {
		t.Run(string(overlap), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
				w.lasts = 90 * time.Second
				s := cron("* * * * *", overlap)
				s.End = time.Now().Add(4*time.Minute + time.Second)
				put(t, m, s)
				<-time.After(10 * time.Minute)
				var ids, how []string
				for id := range w.starts {
					ids = append(ids, id[len("s@2000-01-01T"):len("s@2000-01-01T00:00")])
				}
				for _, h := range w.ended {
					how = append(how, h)
				}
				slices.Sort(ids)
				got := strings.TrimSpace(fmt.Sprint(ids) + " " + strings.Join(how, " "))
				if got != want {
					t.Errorf("started %s, want %s", got, want)
				}
				x, err := m.Get(t.Context(), "s")
				if err != nil || !x.Finished || len(x.Runs) != len(ids) || int(x.Started) != len(ids) ||
					x.Skipped != int64(4-len(ids)) {
					t.Errorf("it is %+v, %v", x, err)
				}
			})
		})
	}
}

// TestPauseAndPutAtTheSameTime: neither undoes the other.
func TestPauseAndPutAtTheSameTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("0 3 * * *", ""))
		other := w.manager(false)
		for try := range 50 {
			want := fmt.Sprintf("%d 4 * * *", try)
			var both sync.WaitGroup
			both.Go(func() { put(t, m, cron(want, "")) })
			both.Go(func() {
				for _, c := range []query.ScheduleChange{{Pause: true, Note: "why"}, {Resume: true}} {
					if _, err := other.Change(t.Context(), "s", c); err != nil {
						t.Error(err)
					}
				}
			})
			both.Wait()
			if x, err := m.Get(t.Context(), "s"); err != nil || x.Cron != want || x.Paused {
				t.Fatalf("try %d: it is %+v, %v", try, x, err)
			}
		}
	})
}

func TestAPausedScheduleStaysPaused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		put(t, m, cron("@hourly", ""))
		if _, err := m.Change(t.Context(), "s", query.ScheduleChange{Pause: true, Note: "the shop moves"}); err != nil {
			t.Fatal(err)
		}
		if x := put(t, m, cron("30 * * * *", "")); !x.Paused || x.Note != "the shop moves" || len(x.Next) > 0 {
			t.Errorf("it is %+v", x)
		}
		<-time.After(2 * time.Hour)
		w.wantStarts()
		if _, err := m.Change(t.Context(), "s", query.ScheduleChange{Trigger: true}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		w.wantStarts("2000-01-01T02:00:00.000Z")
		if _, err := m.Change(t.Context(), "s", query.ScheduleChange{Resume: true}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		w.wantStarts("2000-01-01T02:00:00.000Z", "2000-01-01T02:30:00Z")
	})
}

// TestTheDelayIsThatOfTheCommit: 20 schedules are due at the same second, and each commit takes a
// while. Eight of them are committed at the same time.
func TestTheDelayIsThatOfTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		metrics, err := telemetry.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		w.metrics = metrics.Schedules()
		m := w.manager(true)
		for i := range 20 {
			s := cron("@hourly", "")
			s.ID = fmt.Sprint("s", i)
			put(t, m, s)
		}
		w.takes = 200 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { m.Run(ctx) })
		<-time.After(time.Hour + time.Minute)
		cancel()
		all.Wait()
		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		for _, s := range got.ScopeMetrics {
			for _, x := range s.Metrics {
				if h, ok := x.Data.(metricdata.Histogram[float64]); ok && x.Name == telemetry.MetricScheduleDelay {
					last, _ := h.DataPoints[0].Max.Value()
					if h.DataPoints[0].Count != 20 || last < 0.6 {
						t.Errorf("the last of %d runs was %v s late, want 20 and 0.6 s", h.DataPoints[0].Count, last)
					}
					return
				}
			}
		}
		t.Error("there is no delay")
	})
}

func TestBackfill(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		<-time.After(5 * 24 * time.Hour)
		put(t, m, cron("@daily", ""))
		from := time.Now().Add(-72 * time.Hour)
		if _, err := m.Change(t.Context(), "s", query.ScheduleChange{Backfill: &query.Backfill{From: from,
			To: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Minute)
		w.wantStarts("2000-01-03T00:00:00Z", "2000-01-04T00:00:00Z", "2000-01-05T00:00:00Z")
	})
}

func TestRefusals(t *testing.T) {
	inWorld(t, func(t *testing.T, _ *world, m *schedules.Manager) {
		first := put(t, m, cron("@daily", ""))
		for name, c := range map[string]struct {
			put  query.PutSchedule
			want string
			is   error
		}{
			"a name that nothing has": {query.PutSchedule{Schedule: query.Schedule{ID: "x",
				Run: query.Start{Orchestration: "reprot"}, Spec: schedule.Spec{Cron: "@daily"}}}, `has "reprot"; did you mean report?; they have elsewhere, report`, nil},
			"a bad input": {query.PutSchedule{Schedule: query.Schedule{ID: "x",
				Run:  query.Start{Orchestration: "report", Input: codec.Payload(`"bad"`)},
				Spec: schedule.Spec{Cron: "@daily"}}}, "the input is bad", nil},
			"a bad cron": {query.PutSchedule{Schedule: query.Schedule{ID: "x",
				Run: query.Start{Orchestration: "report"}, Spec: schedule.Spec{Cron: "at night"}}}, "want 5 fields",
				nil},
			"a long note": {query.PutSchedule{Schedule: query.Schedule{ID: "x", Note: strings.Repeat("x", 1025),
				Run: query.Start{Orchestration: "report"}, Spec: schedule.Spec{Cron: "@daily"}}},
				"note of a schedule (bytes): 1025 is over the limit of 1024", nil},
			"one that is there": {query.PutSchedule{New: true, Schedule: query.Schedule{ID: "s",
				Run: query.Start{Orchestration: "report"}, Spec: schedule.Spec{Cron: "@daily"}}},
				"there is one already", nil},
			"another revision": {query.PutSchedule{Expected: first.Revision + 1, Schedule: query.Schedule{ID: "s",
				Run: query.Start{Orchestration: "report"}, Spec: schedule.Spec{Cron: "@hourly"}}}, "",
				query.ErrScheduleChanged},
		} {
			_, err := m.Put(t.Context(), c.put)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %v; want %q, %v", name, err, c.want, c.is)
			}
		}
		for name, c := range map[string]struct {
			id     string
			change query.ScheduleChange
			want   string
		}{
			"nothing":          {"s", query.ScheduleChange{}, "want one of"},
			"two things":       {"s", query.ScheduleChange{Pause: true, Trigger: true}, "want one of"},
			"no such schedule": {"x", query.ScheduleChange{Pause: true}, "no such schedule"},
			"a bad overlap":    {"s", query.ScheduleChange{Trigger: true, Overlap: "often"}, `"often" is unknown`},
			"the future": {"s", query.ScheduleChange{Backfill: &query.Backfill{From: time.Now(),
				To: time.Now().Add(time.Hour)}}, "future"},
		} {
			if _, err := m.Change(t.Context(), c.id, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want %q", name, err, c.want)
			}
		}
		if err := m.Drop(t.Context(), "x"); !errors.Is(err, query.ErrNoSchedule) {
			t.Error(err)
		}
		if err := m.Drop(t.Context(), "s"); err != nil {
			t.Error(err)
		}
		if _, err := m.Get(t.Context(), "s"); !errors.Is(err, query.ErrNoSchedule) {
			t.Error(err)
		}
		unchecked := query.PutSchedule{Unchecked: true, Schedule: cron("@daily", "")}
		unchecked.Schedule.ID, unchecked.Schedule.Run.Orchestration = "later", "not-yet"
		if _, err := m.Put(t.Context(), unchecked); err != nil {
			t.Error(err)
		}
	})
}

// TestARowThatCannotBeRead is listed with its problem, and can be put again and dropped.
func TestARowThatCannotBeRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		w.set(func() {
			w.rows["s"] = history.Schedule{ID: "s", Version: 7, WakeAt: time.Now(), Data: []byte("{")}
		})
		<-time.After(time.Minute)
		if l, err := m.List(t.Context(), "", history.Page{}); err != nil || len(l.Schedules) != 1 ||
			l.Schedules[0].Problem == "" {
			t.Errorf("%+v, %v", l, err)
		}
		put(t, m, cron("@hourly", ""))
		<-time.After(time.Hour)
		w.wantStarts("2000-01-01T01:00:00Z")
	})
}
