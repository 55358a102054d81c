package round_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The orchestrations that are measured.
var (
	one   = activity.Define[string, string]("one")
	chain = orchestration.Define[int, int]("chain") // activities one after the other, for ever
	fan   = orchestration.Define[int, int]("fan")   // as many at once, and all their results
	trail = orchestration.Define[int, int]("trail") // inline steps one after the other
)

func measured(tb testing.TB) *round.Config {
	tb.Helper()
	code, err := orchestration.NewRegistry(
		orchestration.Define[string, string]("single").Bind(func(ctx oc, s string) (string, error) {
			return one.Call(ctx, s)
		}),
		chain.Bind(func(ctx oc, n int) (int, error) {
			for {
				if _, err := one.Call(ctx, "a payload of a few words"); err != nil {
					return 0, err
				}
			}
		}),
		fan.Bind(func(ctx oc, n int) (int, error) {
			futures := make([]*orchestration.Future[string], n)
			for i := range futures {
				futures[i] = one.Start(ctx, "x")
			}
			all, err := orchestration.All(ctx, futures...).Get(ctx)
			return len(all), err
		}),
		trail.Bind(func(ctx oc, n int) (int, error) {
			for i := range n {
				if _, err := orchestration.Step(ctx, "step", func(context.Context) (int, error) {
					return i, nil
				}); err != nil {
					return 0, err
				}
			}
			return n, nil
		}),
		orchestration.Define[string, string]("parked").Bind(func(ctx oc, s string) (string, error) {
			return approve.Wait(ctx)
		}),
	)
	if err != nil {
		tb.Fatal(err)
	}
	return &round.Config{Code: code, Coroutines: coroutines(tb)}
}

// coroutines are those of a test. Goleak finds any that are left when it ends.
func coroutines(tb testing.TB) *round.Coroutines {
	c := new(round.Coroutines)
	tb.Cleanup(c.End)
	return c
}

func startOf(name, input string) []round.Delivery {
	return []round.Delivery{{Message: events.Message{ID: "m",
		Content: &events.Start{Orchestration: name, Input: codec.Payload(input)}}, Attempts: 1}}
}

func doneOf(ref events.Ref) []round.Delivery {
	return []round.Delivery{{Message: events.Message{Content: &events.TaskDone{Ref: ref,
		Result: codec.Payload(`"a result of a few words"`)}}, Attempts: 1}}
}

// lastWork is the work that a turn hands out last.
func lastWork(tb testing.TB, t round.Turn) events.Ref {
	tb.Helper()
	for _, m := range slices.Backward(t.Messages) {
		if w, ok := m.Content.(*events.Task); ok {
			return w.Ref
		}
	}
	tb.Fatalf("no work in\n%v", t)
	return events.Ref{}
}

// BenchmarkSingle is a whole one-activity orchestration: two rounds on a hydrated instance, from
// its start to its end.
func BenchmarkSingle(b *testing.B) {
	config := measured(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in := round.New(config, round.Known{Instance: "order-7"})
		t := in.Decide(startOf("single", `"hello"`), began)
		if t = in.Decide(doneOf(lastWork(b, t)), began); t.Row.Status != round.Completed {
			b.Fatal(t)
		}
	}
}

// grown is a chain with a history of at least so many events.
func grown(tb testing.TB, config *round.Config, size int) (in *round.Instance, next events.Ref,
	history []events.Event) {
	tb.Helper()
	in = round.New(config, round.Known{Instance: "i"})
	t := in.Decide(startOf("chain", "0"), began)
	for {
		history = append(history, t.Executions[0].Events...)
		next = lastWork(tb, t)
		if len(history) >= size {
			return in, next, history
		}
		t = in.Decide(doneOf(next), began)
	}
}

// BenchmarkHydratedRound is one round of an instance with a short and with a long history.
func BenchmarkHydratedRound(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprint("history=", size), func(b *testing.B) {
			config := measured(b)
			b.ReportAllocs()
			in, next, _ := grown(b, config, size)
			for rounds := 0; b.Loop(); rounds++ {
				if rounds == 20_000 { // not beyond the limit of a history
					b.StopTimer()
					in.Evict()
					in, next, _ = grown(b, config, size)
					rounds = 0
					b.StartTimer()
				}
				next = lastWork(b, in.Decide(doneOf(next), began))
			}
			in.Evict()
		})
	}
}

// BenchmarkRehydrate is the replay of a history, and one round.
func BenchmarkRehydrate(b *testing.B) {
	for _, size := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint("events=", size), func(b *testing.B) {
			config := measured(b)
			in, next, history := grown(b, config, size)
			in.Evict()
			b.ReportAllocs()
			for b.Loop() {
				in := round.New(config, round.Known{Instance: "i", Row: round.Row{Execution: 1}, History: history})
				in.Decide(doneOf(next), began)
				in.Evict()
			}
		})
	}
}

// BenchmarkFanIn starts so many activities in one round, and takes their results in, one a round.
func BenchmarkFanIn(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) {
			config := measured(b)
			b.ReportAllocs()
			for b.Loop() {
				fanIn(b, config, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/result")
		})
	}
}

func fanIn(tb testing.TB, config *round.Config, n int) {
	tb.Helper()
	in := round.New(config, round.Known{Instance: "i"})
	t := in.Decide(startOf("fan", fmt.Sprint(n)), began)
	var last round.Turn
	for _, m := range t.Messages {
		last = in.Decide(doneOf(m.Content.(*events.Task).Ref), began)
	}
	if last.Row.Status != round.Completed || last.Row.Output.String() != fmt.Sprint(n) {
		tb.Fatalf("it ended with %v", last)
	}
}

// BenchmarkBranches is the fan-in with a branch for each activity.
func BenchmarkBranches(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) {
			code, err := orchestration.NewRegistry(fan.Bind(func(ctx oc, n int) (int, error) {
				futures := make([]*orchestration.Future[string], n)
				for i := range futures {
					futures[i] = orchestration.Go(ctx, func(ctx oc) (string, error) { return one.Call(ctx, "x") })
				}
				all, err := orchestration.All(ctx, futures...).Get(ctx)
				return len(all), err
			}))
			if err != nil {
				b.Fatal(err)
			}
			config := &round.Config{Code: code}
			for b.Loop() {
				fanIn(b, config, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/branch")
		})
	}
}

// BenchmarkSteps is a thousand inline steps, one after the other.
func BenchmarkSteps(b *testing.B) {
	config := measured(b)
	b.ReportAllocs()
	for b.Loop() {
		in := round.New(config, round.Known{Instance: "i"})
		t := in.Decide(startOf("trail", "1000"), began)
		for len(t.Steps) > 0 {
			t = in.Decide([]round.Delivery{{Message: t.Steps[0].Done("i", codec.Payload("1"), nil), Attempts: 1}},
				began)
		}
		if t.Row.Status != round.Completed {
			b.Fatal(t)
		}
	}
}

// fastest is the shortest of several runs: the cost of the code on an idle machine.
func fastest(runs int, run func() time.Duration) time.Duration {
	best := run()
	for range runs - 1 {
		best = min(best, run())
	}
	return best
}

// TestRoundsDoNotGrowWithHistory compares rounds behind a hundred and behind ten thousand events.
func TestRoundsDoNotGrowWithHistory(t *testing.T) {
	config := measured(t)
	rounds := func(size int) func() time.Duration {
		in, next, _ := grown(t, config, size)
		t.Cleanup(in.Evict)
		return timed(300, func() { next = lastWork(t, in.Decide(doneOf(next), began)) })
	}
	short, long := rounds(100), rounds(10_000)
	compare(t, "300 rounds behind 10,000 events against 100", long, short, 1.2)
}

// TestRehydrationIsLinear compares a replay of ten thousand events with ten of a thousand: twelve
// times one of them at most.
func TestRehydrationIsLinear(t *testing.T) {
	config := measured(t)
	replays := func(size, times int) func() time.Duration {
		in, _, history := grown(t, config, size)
		in.Evict()
		return timed(times, func() {
			in := round.New(config, round.Known{Instance: "i", Row: round.Row{Execution: 1}, History: history})
			in.Decide(nil, began)
			in.Evict()
		})
	}
	compare(t, "a replay of 10,000 events against ten of 1,000", replays(10_000, 1), replays(1_000, 10), 1.2)
}

// TestFanInIsLinear compares a fan-in of ten thousand, whose results come one a round, with ten of
// a thousand.
func TestFanInIsLinear(t *testing.T) {
	config := measured(t)
	run := func(n, times int) func() time.Duration {
		return timed(times, func() { fanIn(t, config, n) })
	}
	// quadratic would be 10; more live memory costs some, too
	compare(t, "a fan-in of 10,000 against ten of 1,000", run(10_000, 1), run(1_000, 10), 2.5)
}

// timed measures so many runs together.
func timed(times int, run func()) func() time.Duration {
	return func() time.Duration {
		runtime.GC()
		start := time.Now()
		for range times {
			run()
		}
		return time.Since(start)
	}
}

// compare measures two things in turn, until one is at most so many times the other on an idle
// machine. A machine with other load gets several tries.
func compare(t *testing.T, what string, a, b func() time.Duration, most float64) {
	t.Helper()
	var ratio float64
	for range 10 {
		fa, fb := fastest(5, a), fastest(5, b)
		ratio = float64(fa) / float64(fb)
		t.Logf("%s: %v and %v, %.2f times", what, fa, fb, ratio)
		if ratio <= most {
			return
		}
	}
	t.Errorf("%s: %.2f times, want at most %.2f", what, ratio, most)
}

// TestManyParkedInstances parks a hundred thousand hydrated instances at an await, and evicts them;
// then once more, because the runtime keeps what goroutines were made of for the next ones.
func TestManyParkedInstances(t *testing.T) {
	config := measured(t)
	n := uint64(racetest.Size(100_000, 10_000))
	goroutines := runtime.NumGoroutine()
	park := func() (before, held, after footprint) {
		before = memory()
		parked := make([]*round.Instance, n)
		for i := range parked {
			parked[i] = round.New(config, round.Known{Instance: fmt.Sprint("order-", i)})
			if turn := parked[i].Decide(startOf("parked", `""`), began); turn.Row.Status != round.Running {
				t.Fatal(turn)
			}
		}
		held = memory()
		for _, in := range parked {
			in.Evict()
		}
		return before, held, memory()
	}
	before, held, first := park()
	t.Logf("%d parked instances hold %d bytes each: %d of heap, %d of stacks", n,
		(held.heap-before.heap+held.stacks-before.stacks)/n, (held.heap-before.heap)/n, (held.stacks-before.stacks)/n)
	_, _, second := park()
	if left := runtime.NumGoroutine(); left > goroutines {
		t.Errorf("%d goroutines are left", left-goroutines)
	}
	if kept := int64(second.heap) - int64(first.heap); kept > int64(n)*16 {
		t.Errorf("%d bytes of heap are kept after all were evicted", kept)
	}
	if kept := int64(second.stacks) - int64(before.stacks); kept > int64(n)*16 {
		t.Errorf("%d bytes of stacks are kept after all were evicted", kept)
	}
}

type footprint struct{ heap, stacks uint64 }

func memory() footprint {
	runtime.GC()
	runtime.GC() // the second one frees what finalizers and the first one's sweep have left, and shrinks stacks
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{m.HeapAlloc, m.StackInuse}
}
