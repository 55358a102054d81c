package integration_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/detector"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/query"
)

// The orchestrations of TestOverload: many that are started, and some that go on all the time.
var (
	beatOnce = activity.Define[int, int]("beat-once") // in a queue of its own
	enough   = orchestration.DefineEvent[bool]("enough")
	beating  = orchestration.Define[int, int]("beating")
)

var overloaded = []orchestration.Binding{
	beating.With(func(ctx *orchestration.Context, _ int) (n int, err error) {
		stop := enough.Next(ctx)
		for {
			if ctx.WaitAny(stop, ctx.Timer(200*time.Millisecond)) == stop {
				return n, nil
			}
			if _, err := beatOnce.Call(ctx, n); err != nil {
				return n, err
			}
			n++
		}
	}),
}

// flood is a system that gets more starts than it can take.
type flood struct {
	*processes
	orchestrator *process
	phases       []phase
	stop         context.CancelFunc
	peak         atomic.Int64 // kilobytes of the orchestrator
	refused      atomic.Int64
	lastRefusal  atomic.Value
}

// phase is a part of the time, with a name.
type phase struct {
	name     string
	from, to time.Time
}

const beats = 16 // instances that go on all the time

// TestOverload starts ten times as many instances as can be taken. The memory of the orchestrator stays within its bounds, those that run already go on, and everything that was
// acknowledged ends, once. `make large` runs it for a minute.
func TestOverload(t *testing.T) {
	measure, pressure := 3*time.Second, 5*time.Second
	if large {
		measure, pressure = 10*time.Second, time.Minute
	}
	if detector.On {
		measure, pressure = time.Second, 2*time.Second
	}
	f := &flood{processes: onProcesses(t)}
	f.orchestrator = f.run("orchestrator", "orchestrator", func(r *role) { r.Config.Round.Patience = time.Minute })
	ctx, stop := context.WithCancel(t.Context())
	var side sync.WaitGroup
	defer side.Wait()
	defer stop()
	side.Go(func() { answerAll(ctx, f.connect()) })
	f.employ([]activity.Binding{beatOnce.With(func(_ context.Context, n int) (int, error) { return n, nil })})
	for i := range beats {
		f.start("beating", fmt.Sprint("beat", i), 0)
	}
	side.Go(func() { f.watch(ctx) })

	rate := f.sustainable(measure)
	f.during("before", func() { <-time.After(measure) })
	var started int
	f.during("overload", func() { started = f.press(10*rate, pressure) })
	backlog := f.backlog()
	begun := time.Now()
	f.during("drain", func() { f.drained(started, 20*pressure+5*patience) })
	drained := time.Since(begun)
	f.during("after", func() { <-time.After(measure) })

	for i := range beats {
		f.say(events.Message{ID: fmt.Sprint("enough", i), Instance: fmt.Sprint("beat", i), Content: &events.EventRaised{Name: "enough", Data: events.Payload("true")}})
	}
	for i := range beats {
		f.ended(fmt.Sprint("beat", i))
	}
	t.Logf("sustainable: %d starts a second; offered: %d a second, taken by the broker: %d in %v (%.0f a second); refused: %d (%v)", rate, 10*rate, started, pressure,
		float64(started)/pressure.Seconds(), f.refused.Load(), f.lastRefusal.Load())
	t.Logf("when the starts ended, %d messages waited in the broker; they were done after %v (%.0f a second)", backlog, drained.Round(time.Millisecond), float64(backlog)/drained.Seconds())
	t.Logf("the orchestrator took %d MB at most", f.peak.Load()>>10)
	for _, p := range f.phases {
		timers, rounds := f.latencies(p)
		t.Logf("%-10s timers late by p50 %v, p99 %v, most %v (%d); an activity and back p50 %v, p99 %v, most %v (%d)", p.name, quantileOr(timers, .5), quantileOr(timers, .99), quantileOr(timers, 1), len(timers),
			quantileOr(rounds, .5), quantileOr(rounds, .99), quantileOr(rounds, 1), len(rounds))
	}
	f.settled()
	f.nothingPromised()
}

func quantileOr(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return quantile(sorted, q).Round(100 * time.Microsecond)
}

func (f *flood) during(name string, do func()) {
	p := phase{name: name, from: time.Now()}
	do()
	p.to = time.Now()
	f.phases = append(f.phases, p)
}

// startWire is the start of an instance that is over after one activity.
func (f *flood) startWire(instance string) events.Wire {
	w, err := events.Encode(f.bus.Prefix(), events.Message{ID: "start-" + instance, Instance: instance, Content: &events.Start{Orchestration: "once", Input: events.Payload(`"a"`)}})
	if err != nil {
		panic(err)
	}
	return w
}

// sustainable measures how many starts a second are done when there are never more than some hundred under way.
func (f *flood) sustainable(d time.Duration) int {
	f.t.Helper()
	const flying = 256
	slots := make(chan struct{}, flying)
	for range flying {
		slots <- struct{}{}
	}
	var done atomic.Int64
	client := f.connect()
	stop, err := query.Listen(f.t.Context(), client, bus.Any, func(n query.Notice) {
		if strings.HasPrefix(n.Instance, "warm") {
			done.Add(1)
			slots <- struct{}{}
		}
	}, query.TopicEnded)
	if err != nil {
		f.t.Fatal(err)
	}
	defer stop()
	begun := time.Now()
	n := 0
	for ; time.Since(begun) < d; n++ {
		<-slots
		w := f.startWire(fmt.Sprint("warm", n))
		go func() { _ = client.Publish(f.t.Context(), w) }()
	}
	took := time.Since(begun)
	rate := int(float64(done.Load()) / took.Seconds())
	f.drained(n, patience)
	return max(rate, 1)
}

// press publishes so many starts a second, or as many as the broker takes.
func (f *flood) press(rate int, d time.Duration) int {
	f.t.Helper()
	const step = 20 * time.Millisecond
	client := f.connect()
	tick := time.NewTicker(step)
	defer tick.Stop()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 64) // calls at once; the client itself bounds what is on its way
	n := 0
	var taken atomic.Int64
	for begun := time.Now(); time.Since(begun) < d; <-tick.C {
		due := int(float64(rate) * time.Since(begun).Seconds())
		for n < due && time.Since(begun) < d {
			var wires []events.Wire
			for ; n < due && len(wires) < 256; n++ {
				wires = append(wires, f.startWire(fmt.Sprint("flood", n)))
			}
			slots <- struct{}{}
			wait.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(f.t.Context(), patience)
				defer cancel()
				if err := client.Publish(ctx, wires...); err != nil {
					f.refused.Add(int64(len(wires)))
					f.lastRefusal.Store(err.Error())
					return
				}
				taken.Add(int64(len(wires)))
			})
		}
	}
	wait.Wait()
	return int(taken.Load())
}

// backlog is what waits in the broker.
func (f *flood) backlog() (n int64) {
	f.t.Helper()
	p, err := f.bus.Partitions(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, i := range p.All() {
		b, err := f.bus.Backlog(f.t.Context(), i)
		if err != nil {
			f.t.Fatal(err)
		}
		n += b.Waiting + b.Held
	}
	return n
}

// drained waits until no instance but those that beat runs.
func (f *flood) drained(started int, most time.Duration) {
	f.t.Helper()
	within(f.t, most, fmt.Sprintf("%d starts are done", started), func() error {
		if n := f.backlog(); n > 2*beats {
			<-time.After(100 * time.Millisecond)
			return fmt.Errorf("%d messages wait", n)
		}
		n, err := f.store.Count(f.t.Context(), running, beats+1)
		if err == nil && n > beats {
			err = fmt.Errorf("%d run", n)
		}
		if err != nil {
			<-time.After(100 * time.Millisecond)
		}
		return err
	})
}

// watch notes how much memory the orchestrator takes.
func (f *flood) watch(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.orchestrator.cmd.Process.Pid))
		if err != nil {
			continue // there is no such file on this system
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				f.peak.Store(max(f.peak.Load(), n))
			}
		}
	}
}

// latencies reads from the histories of those that run all the time how late their timers were, and how long an activity took, in a phase.
func (f *flood) latencies(p phase) (timers, rounds []time.Duration) {
	f.t.Helper()
	for i := range beats {
		due := make(map[int64]time.Time)
		scheduled := make(map[int64]time.Time)
		for _, e := range f.events(fmt.Sprint("beat", i), 1) {
			in := e.At.After(p.from) && e.At.Before(p.to)
			switch x := e.Fact.(type) {
			case *events.TimerCreated:
				due[e.ID] = x.FireAt
			case *events.TimerFired:
				if in {
					timers = append(timers, e.At.Sub(due[x.Timer]))
				}
			case *events.ActivityScheduled:
				scheduled[e.ID] = e.At
			case *events.ActivityCompleted:
				if in {
					rounds = append(rounds, e.At.Sub(scheduled[x.Schedule]))
				}
			}
		}
	}
	slices.Sort(timers)
	slices.Sort(rounds)
	return timers, rounds
}
