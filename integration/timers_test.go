package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// slept has the time at which a timer was due, and the time at which its instance went on.
type slept struct{ Due, At time.Time }

var (
	sleepUntil = orchestration.Define[int, slept]("sleep-until")
	sleepOften = orchestration.Define[[]int, []slept]("sleep-often")
	impatient  = orchestration.Define[int, string]("impatient")
)

var timing = []orchestration.Binding{
	sleepUntil.Bind(func(ctx *orchestration.Context, ms int) (slept, error) {
		due := ctx.Now().Add(time.Duration(ms) * time.Millisecond)
		_, err := ctx.Timer(time.Duration(ms) * time.Millisecond).Get(ctx)
		return slept{due, ctx.Now()}, err
	}),
	sleepOften.Bind(func(ctx *orchestration.Context, all []int) ([]slept, error) {
		out := make([]slept, len(all))
		var branches []*orchestration.Future[struct{}]
		for i, ms := range all {
			branches = append(branches, orchestration.Go(ctx, func(ctx *orchestration.Context) (struct{}, error) {
				due := ctx.Now().Add(time.Duration(ms) * time.Millisecond)
				err := ctx.Sleep(time.Duration(ms) * time.Millisecond)
				out[i] = slept{due, ctx.Now()}
				return struct{}{}, err
			}))
		}
		_, err := orchestration.All(ctx, branches...).Get(ctx)
		return out, err
	}),
	impatient.Bind(func(ctx *orchestration.Context, ms int) (string, error) {
		answer, late := approval.Next(ctx), ctx.Timer(time.Duration(ms)*time.Millisecond)
		if ctx.Race(answer, late) == late {
			return "late", nil
		}
		return answer.Get(ctx)
	}),
}

// endings collects the results of instances from the notifications of their ends.
type endings struct {
	mu   sync.Mutex
	all  map[string]query.Ended
	more chan struct{}
}

func (s *system) listen() *endings {
	s.t.Helper()
	e := &endings{all: make(map[string]query.Ended), more: make(chan struct{}, 1)}
	stop, err := query.Listen(s.t.Context(), s.bus, broker.Any, func(n query.Notification) {
		if ended, ok := n.Ended(); ok {
			e.mu.Lock()
			e.all[n.Instance] = ended
			e.mu.Unlock()
			select {
			case e.more <- struct{}{}:
			default:
			}
		}
	}, query.TopicEnded)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(stop)
	return e
}

// wait waits until so many instances have ended.
func (e *endings) wait(t *testing.T, n int, most time.Duration) map[string]query.Ended {
	t.Helper()
	timeout := time.After(most)
	for {
		e.mu.Lock()
		have := len(e.all)
		e.mu.Unlock()
		if have >= n {
			return e.all
		}
		select {
		case <-e.more:
		case <-timeout:
			t.Fatalf("%d of %d instances have ended within %v", have, n, most)
		}
	}
}

// lateness checks that no timer was early, and returns their latenesses, sorted.
func lateness(t *testing.T, ended map[string]query.Ended) []time.Duration {
	t.Helper()
	var late []time.Duration
	for id, e := range ended {
		var x slept
		if err := json.Unmarshal(e.Output, &x); err != nil {
			t.Fatalf("%s: %v (%s, %v)", id, err, e.Output, e.Error)
		}
		late = append(late, latenessOf(t, id, x)...)
	}
	slices.Sort(late)
	return late
}

func latenessOf(t *testing.T, id string, all ...slept) (late []time.Duration) {
	t.Helper()
	for _, x := range all {
		if d := x.At.Sub(x.Due); d < 0 {
			t.Errorf("%s: its timer was %v early", id, -d)
		} else {
			late = append(late, d)
		}
	}
	return late
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// TestTimersAreNeverEarlyAndHardlyLate has 10,000 timers between 10 ms and 5 s; in each second,
// 2,000 are set and 2,000 fire. Their lateness depends on the machine and its other load.
func TestTimersAreNeverEarlyAndHardlyLate(t *testing.T) {
	const each = 50
	instances := racetest.Size(200, 40)
	s := newSystem(t, openSQLite(t), timing...)
	s.orchestrate(func(c *orchestrator.Config) { c.Round.Patience, c.Sweep.Every = time.Minute, time.Minute })
	ended := s.listen()
	random := rand.New(rand.NewPCG(1, 2))
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	for i := range instances {
		<-pace.C
		var delays []int
		for range each {
			delays = append(delays, 10+random.IntN(4990))
		}
		s.start("sleep-often", fmt.Sprint("t", i), delays)
	}
	var late []time.Duration
	for id, e := range ended.wait(t, instances, 2*time.Minute) {
		var all []slept
		if err := json.Unmarshal(e.Output, &all); err != nil {
			t.Fatalf("%s: %v (%s, %v)", id, err, e.Output, e.Error)
		}
		late = append(late, latenessOf(t, id, all...)...)
	}
	slices.Sort(late)
	if len(late) != instances*each {
		t.Errorf("%d timers have fired in their time or later, want %d", len(late), instances*each)
	}
	t.Logf("%d timers: p50 %v, p90 %v, p99 %v, most %v late", len(late), quantile(late, 0.5), quantile(late, 0.9),
		quantile(late, 0.99), late[len(late)-1])
}

// TestManyInstancesWithTimers starts as many instances as it can, each with a timer between 10 ms
// and 5 s: the timers compete with the starts.
func TestManyInstancesWithTimers(t *testing.T) {
	n := racetest.Size(10_000, 500)
	s := newSystem(t, openSQLite(t), timing...)
	s.orchestrate(func(c *orchestrator.Config) { c.Round.Patience, c.Sweep.Every = time.Minute, time.Minute })
	ended := s.listen()
	random := rand.New(rand.NewPCG(1, 2))
	begun := time.Now()
	const portion = 500
	for i := 0; i < n; i += portion {
		var messages []events.Message
		for j := i; j < min(i+portion, n); j++ {
			input, _ := json.Marshal(10 + random.IntN(4990))
			messages = append(messages, events.Message{ID: fmt.Sprint("t", j), Instance: fmt.Sprint("t", j),
				Content: &events.Start{Orchestration: "sleep-until", Input: input}})
		}
		s.say(messages...)
	}
	published := time.Since(begun)
	late := lateness(t, ended.wait(t, n, 2*time.Minute))
	t.Logf("%d instances (%v to publish their starts, %v until the last has ended): p50 %v, p90 "+
		"%v, p99 %v, most %v late", len(late), published.Round(time.Millisecond),
		time.Since(begun).Round(time.Millisecond), quantile(late, 0.5), quantile(late, 0.9), quantile(late, 0.99),
		late[len(late)-1])
}

// TestIdleTimersAreHardlyLate has one timer after the other, with nothing else to do.
func TestIdleTimersAreHardlyLate(t *testing.T) {
	s := newSystem(t, openSQLite(t), timing...)
	s.orchestrate(func(c *orchestrator.Config) { c.Round.Patience, c.Sweep.Every = time.Minute, time.Minute })
	ended := s.listen()
	const n = 40
	for i := range n {
		ms := 30 + i
		if i >= n/2 {
			ms = 1600 + 37*i // those that wait in the broker for a while
		}
		s.start("sleep-until", fmt.Sprint("t", i), ms)
	}
	late := lateness(t, ended.wait(t, n, time.Minute))
	t.Logf("%d timers: p50 %v, p90 %v, most %v late", len(late), quantile(late, 0.5), quantile(late, 0.9),
		late[len(late)-1])
}

// TestTimersSurviveARestartOfEverything stops the orchestrator and the broker while timers are
// pending. One that has become due meanwhile fires at once, the others in their time.
func TestTimersSurviveARestartOfEverything(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), timing...)
	v := s.orchestrate()
	for i, ms := range []int{100, 1000, 3000, 4500} {
		s.start("sleep-until", fmt.Sprint("t", i), ms)
	}
	for i := range 4 {
		s.reaches(fmt.Sprint("t", i), events.KindTimerCreated)
	}
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	s.server.Close()
	s.startBroker()
	s.orchestrate()
	ended := make(map[string]query.Ended)
	for i := range 4 {
		id := fmt.Sprint("t", i)
		ended[id] = query.Ended{Output: s.ended(id).Output}
	}
	late := lateness(t, ended)
	t.Log("late by ", late)
}

func TestCancelledTimerNeverFires(t *testing.T) {
	s := newSystem(t, openSQLite(t), timing...)
	s.orchestrate()
	var inTime []string
	for _, ms := range []int{1400, 1800, 2600} { // the first one is published at once
		for try := 0; ; try++ {
			id := fmt.Sprintf("i%d-%d", ms, try)
			s.start("impatient", id, ms)
			s.reaches(id, events.KindTimerCreated)
			s.say(events.Message{ID: id, Instance: id,
				Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"in time"`)}})
			if out := string(s.ended(id).Output); out == `"in time"` {
				inTime = append(inTime, id)
				break
			} else if out != `"late"` || slices.Contains(s.kinds(id), events.KindEventReceived) {
				t.Fatalf("%s is completed with %s", id, out)
			}
			t.Logf("the machine was too slow for %s", id)
		}
	}
	for _, id := range inTime {
		s.eventually("the broker has no timer any more", func() error {
			w, err := events.Encode("rondo", events.Message{Instance: id,
				Content: &events.WithdrawTimer{Ref: events.Ref{Execution: 1, Event: 3}}})
			if err != nil {
				return err
			}
			has, err := s.bus.Has(t.Context(), w)
			if err == nil && has {
				err = fmt.Errorf("it has %s", w.Subject)
			}
			return err
		})
		if slices.Contains(s.kinds(id), events.KindTimerFired) {
			t.Errorf("the timer of %s has fired", id)
		}
	}
}

// TestManyLongTimersCostLittle has many timers of an hour, most of which wait in the broker and in
// the database only.
func TestManyLongTimersCostLittle(t *testing.T) {
	n := racetest.Size(100_000, 500)
	s := newSystem(t, openSQLite(t), timing...)
	before := heap()
	s.orchestrate(func(c *orchestrator.Config) { c.Memory.MaxInstances, c.Sweep.Every = 1000, time.Minute })
	const portion = 1000
	for i := 0; i < n; i += portion {
		var messages []events.Message
		for j := i; j < min(i+portion, n); j++ {
			messages = append(messages, events.Message{ID: fmt.Sprint("t", j), Instance: fmt.Sprint("t", j),
				Content: &events.Start{Orchestration: "sleep-until", Input: codec.Payload("3600000")}})
		}
		s.say(messages...)
	}
	s.settledWithin(3 * time.Minute)
	s.outboxIsEmpty()
	grown := int64(heap()) - int64(before)
	t.Logf("%d timers of an hour: the heap of broker, orchestrator and test has grown by %d MiB, %d bytes for each", n,
		grown>>20, grown/int64(n))
	if most := int64(64<<20) + int64(n)*3000; grown > most {
		t.Errorf("the heap has grown by %d bytes, want at most %d", grown, most)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
