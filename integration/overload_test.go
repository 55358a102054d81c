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

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// The orchestrations of TestOverload: many that are started, and some that go on all the time.
var (
	beatOnce = activity.Define[int, int]("beat-once") // in a queue of its own
	enough   = orchestration.DefineEvent[bool]("enough")
	beating  = orchestration.Define[int, int]("beating")
)

var overloaded = []orchestration.Binding{
	beating.Bind(func(ctx *orchestration.Context, _ int) (n int, err error) {
		stop := enough.Next(ctx)
		for {
			if ctx.Select(stop, ctx.Timer(200*time.Millisecond)) == stop {
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
	peak         atomic.Int64 // kilobytes of the orchestrator
	refused      atomic.Int64
}

// phase is a part of the time, with a name.
type phase struct {
	name     string
	from, to time.Time
}

const (
	beats = 16 // instances that go on all the time
	// From this backlog on, the test compares the timers with the starts. Of a smaller one, an
	// orchestrator holds a good part in memory.
	muchWaits = 10_000
)

// TestOverload starts ten times as many instances as can be taken. The memory of the orchestrator
// stays within its bounds, those that run already go on, everything that the broker has
// acknowledged ends, and afterwards all is as it was. docs/operating.md has the figures. `make
// large` runs it for a minute.
func TestOverload(t *testing.T) {
	measure, pressure := 2*time.Second, 2*time.Second
	switch {
	case large:
		measure, pressure = 10*time.Second, time.Minute
	case testing.Short():
		measure, pressure = time.Second/2, time.Second/2
	case racetest.On:
		measure, pressure = time.Second, time.Second
	}
	f := &flood{processes: onProcesses(t)}
	f.config.InboxAckWait, f.config.TaskAckWait, f.config.MemberLease = 0, 0, 0 // the defaults of production
	f.orchestrator = f.run("orchestrator", "orchestrator", func(r *role) {
		r.Config = orchestrator.Config{ShutdownTimeout: 10 * time.Second}
	})
	ctx, stop := context.WithCancel(t.Context())
	var side sync.WaitGroup
	defer side.Wait()
	defer stop()
	side.Go(func() { answerAll(ctx, f.connect()) })
	f.employ([]activity.Binding{beatOnce.Bind(func(_ context.Context, n int) (int, error) { return n, nil })})
	for i := range beats {
		f.start("beating", fmt.Sprint("beat", i), 0)
	}
	side.Go(func() { f.watch(ctx) })

	warm, rate := f.sustainable(measure)
	f.during("before", func() { <-time.After(measure) })
	calm := f.peak.Load()
	var taken int
	f.during("overload", func() { taken = f.press(10*rate, pressure) })
	backlog, begun := f.backlog(), time.Now()
	f.during("drain", func() { f.drained(10*pressure*time.Duration(1+backlog/int64(max(10*rate, 1))) + 5*patience) })
	drained := time.Since(begun)
	f.during("after", func() { <-time.After(measure) })
	for i := range beats {
		f.say(events.Message{ID: fmt.Sprint("enough", i), Instance: fmt.Sprint("beat", i),
			Content: &events.EventRaised{Name: "enough", Data: codec.Payload("true")}})
	}
	for i := range beats {
		f.ended(fmt.Sprint("beat", i))
	}

	t.Logf("sustainable: %d starts a second; offered %d a second for %v; the broker took %d, %.0f "+
		"a second, and refused %d", rate, 10*rate, pressure, taken,
		float64(taken)/pressure.Seconds(), f.refused.Load())
	t.Logf("when the starts ended, %d messages waited in the broker; they were done after %v, %.0f a second", backlog,
		drained.Round(time.Millisecond), float64(backlog)/drained.Seconds())
	t.Logf("the orchestrator had taken %d MB at most before, and %d MB in the end", calm>>10, f.peak.Load()>>10)
	for _, p := range f.phases {
		timers, rounds := f.latencies(p)
		t.Logf("%-9s %4d timers: p50 %v, p99 %v, most %v late; %4d activities: p50 %v, p99 %v, most %v to the result",
			p.name+":", len(timers), quantileOr(timers, .5),
			quantileOr(timers, .99), quantileOr(timers, 1), len(rounds), quantileOr(rounds, .5),
			quantileOr(rounds, .99), quantileOr(rounds, 1))
	}
	f.timersGoAhead(backlog)
	for line := range strings.Lines(f.orchestrator.said.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Log(strings.TrimSpace(line))
		}
	}
	f.settled()
	f.outboxIsEmpty()
	f.allEnded(warm+taken+beats, int(f.refused.Load()))
	if most := int64(1 << 20); f.peak.Load() > most && !racetest.On {
		t.Errorf("the orchestrator took %d kB, want at most %d: what it holds is bounded, whatever waits in the broker",
			f.peak.Load(), most)
	}
}

// allEnded checks that so many instances have completed, and no others exist but those of
// unacknowledged starts.
func (f *flood) allEnded(want, doubtful int) {
	f.t.Helper()
	m, err := f.store.Metrics(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if n := m.Instances[round.Completed]; n < int64(want) || n > int64(want+doubtful) || m.Executions != n {
		f.t.Errorf("%d instances have completed in %d executions; want %d, and %d more at most: %v", n, m.Executions,
			want, doubtful, m.Instances)
	}
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
	w, err := events.Encode(f.bus.Prefix(), events.Message{ID: "start-" + instance, Instance: instance,
		Content: &events.Start{Orchestration: "once", Input: codec.Payload(`"a"`)}})
	if err != nil {
		panic(err)
	}
	return w
}

// sustainable measures how many starts a second complete while at most 256 are in flight.
func (f *flood) sustainable(d time.Duration) (started, rate int) {
	f.t.Helper()
	const flying = 256
	slots := make(chan struct{}, flying)
	for range flying {
		slots <- struct{}{}
	}
	var done atomic.Int64
	client := f.connect()
	stop, err := query.Listen(f.t.Context(), client, broker.Any, func(n query.Notification) {
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
	var wait sync.WaitGroup
	for ; time.Since(begun) < d; started++ {
		<-slots
		w := f.startWire(fmt.Sprint("warm", started))
		wait.Go(func() {
			if err := client.Publish(f.t.Context(), w); err != nil {
				f.t.Error(err)
			}
		})
	}
	rate = int(float64(done.Load()) / time.Since(begun).Seconds())
	wait.Wait()
	f.drained(patience)
	return started, max(rate, 1)
}

// press publishes so many starts a second, or as many as the broker takes.
func (f *flood) press(rate int, d time.Duration) int {
	f.t.Helper()
	const step = 20 * time.Millisecond
	client := f.connect()
	tick := time.NewTicker(step)
	defer tick.Stop()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 64) // concurrent calls; the client itself bounds the bytes in flight
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
					f.t.Log(err)
					return
				}
				taken.Add(int64(len(wires)))
			})
		}
	}
	wait.Wait()
	return int(taken.Load())
}

// backlog counts the messages that wait in the broker.
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
func (f *flood) drained(most time.Duration) {
	f.t.Helper()
	within(f.t, most, "all that was started is done", func() error {
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
	begun, n := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n++; n%10 == 0 {
			f.note(begun)
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

// note logs the progress.
func (f *flood) note(begun time.Time) {
	p, err := f.bus.Partitions(f.t.Context())
	if err != nil {
		return
	}
	var inbox, held int64
	for _, i := range p.All() {
		if b, err := f.bus.Backlog(f.t.Context(), i); err == nil {
			inbox, held = inbox+b.Waiting, held+b.Held
		}
	}
	work, err := f.bus.TaskBacklog(f.t.Context(), broker.TaskQueueName{Activity: "ping"})
	if err != nil {
		return
	}
	n, err := f.store.CountOutbox(f.t.Context(), 10000)
	f.t.Logf("%4.0f s: %d messages wait for instances, %d are held; %d activity tasks wait, %d are held; %d rows of "+
		"outbox entries (%v); %d MB", time.Since(begun).Seconds(), inbox, held, work.Waiting, work.Held, n, err,
		f.peak.Load()>>10)
}

// latencies reads from the histories of those that run all the time how late their timers were, and
// how long an activity took, in a phase.
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
			default:
			}
		}
	}
	slices.Sort(timers)
	slices.Sort(rounds)
	return timers, rounds
}

// timersGoAhead checks that the timers of instances that run do not wait behind the starts in the
// broker: it counts the instances that have started between the moment of a timer and its event.
func (f *flood) timersGoAhead(backlog int64) {
	f.t.Helper()
	var starts []time.Time
	page := history.Page{Limit: 1000}
	for {
		got, err := f.store.List(f.t.Context(), history.Filter{}, page)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, i := range got.Instances {
			if strings.HasPrefix(i.Instance, "flood") {
				starts = append(starts, i.StartedAt)
			}
		}
		if page.Cursor = got.Next; got.Next == "" {
			break
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	before := func(at time.Time) int {
		n, _ := slices.BinarySearchFunc(starts, at, time.Time.Compare)
		return n
	}
	var ahead []int
	for i := range beats {
		due := make(map[int64]time.Time)
		for _, e := range f.events(fmt.Sprint("beat", i), 1) {
			switch x := e.Fact.(type) {
			case *events.TimerCreated:
				due[e.ID] = x.FireAt
			case *events.TimerFired:
				ahead = append(ahead, before(e.At)-before(due[x.Timer]))
			default:
			}
		}
	}
	slices.Sort(ahead)
	p99 := ahead[len(ahead)*99/100]
	f.t.Logf("with a backlog of %d messages, p50 %d, p99 %d, most %d instances started before a timer that was due",
		backlog, ahead[len(ahead)/2], p99, ahead[len(ahead)-1])
	if backlog >= muchWaits && int64(p99) > backlog/4 {
		f.t.Errorf("%d instances started before a timer that was due, want a quarter of the backlog of %d at most", p99,
			backlog)
	}
}

// answerAll is a worker whose activities do nothing.
func answerAll(ctx context.Context, b *natsbroker.Bus) {
	q, err := b.OpenTaskQueue(ctx, broker.TaskQueueName{Activity: "ping"})
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		work := make(chan broker.Delivery, 256)
		go func() {
			defer close(work)
			_, _ = q.Take(ctx, 256, func(d broker.Delivery) { work <- d })
		}()
		for d := range work {
			batch := []broker.Delivery{d}
		more:
			for {
				select {
				case d, ok := <-work:
					if !ok {
						break more
					}
					batch = append(batch, d)
				default:
					break more
				}
			}
			answerBatch(ctx, b, batch)
		}
	}
}

func answerBatch(ctx context.Context, b *natsbroker.Bus, batch []broker.Delivery) {
	var wires []events.Wire
	for _, d := range batch {
		m, err := events.Decode(b.Prefix(), d.Subject, d.Header, d.Body, "")
		if err != nil {
			continue
		}
		if w, err := events.Encode(b.Prefix(), done(m, "b")); err == nil {
			wires = append(wires, w)
		}
	}
	if b.Publish(ctx, wires...) != nil {
		return
	}
	for _, d := range batch {
		d.Hold.Ack()
	}
}
