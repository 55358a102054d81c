package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// gauge counts how many are running at once.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// sendMany sends work of an activity for as many instances.
func (w *world) sendMany(n int, work events.Work) {
	w.t.Helper()
	var messages []events.Message
	for i := range n {
		one := work
		messages = append(messages, w.message(fmt.Sprintf("%s-%s-%d", work.Tag, work.Activity, i), &one))
	}
	w.publish(messages...)
}

// fullRound waits for n held calls, makes sure that there is no further one, and lets them go.
func (w *world) fullRound(calls chan call, n int) {
	w.t.Helper()
	var round []call
	for range n {
		round = append(round, receive(w.t, calls, "a slot is used"))
	}
	select {
	case <-calls:
		w.t.Fatalf("more than %d run at once", n)
	case <-time.After(100 * time.Millisecond):
	}
	for _, c := range round {
		c.done("y")
	}
}

func TestSlotsBoundWhatRunsAtOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config worker.Config
		want   int
	}{
		{"all", worker.Config{Slots: 3, Tags: worker.Any()}, 3},
		{"of an activity", worker.Config{SlotsPerActivity: map[string]int{"block": 2}, Tags: worker.Any()}, 2},
		{"of a tag", worker.Config{SlotsPerTag: map[string]int{"gpu": 4}, Tags: worker.Tags("gpu")}, 4},
		{"of no tag", worker.Config{SlotsPerTag: map[string]int{"": 1}}, 1},
		{"the least", worker.Config{Slots: 5, SlotsPerTag: map[string]int{"gpu": 4},
			SlotsPerActivity: map[string]int{"block": 3}, Tags: worker.Any()}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newPatientWorld(t)
			calls := make(chan call, 100)
			tag := "gpu"
			if tt.name == "of no tag" {
				tag = ""
			}
			w.sendMany(3*tt.want, events.Work{Activity: "block", Input: events.Payload(`"x"`), Tag: tag})
			w.start(tt.config, held(block, calls))
			for range 3 {
				w.fullRound(calls, tt.want)
			}
			for range 3 * tt.want {
				w.done()
			}
			w.settled(broker.Queue{Tag: tag, Activity: "block"})
		})
	}
}

func TestAFullActivityLeavesTheOtherSlotsToOthers(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 100)
	w.start(worker.Config{Slots: 4, SlotsPerActivity: map[string]int{"block": 3}}, held(block, calls), echoing())
	w.sendMany(10, events.Work{Activity: "block", Input: events.Payload(`"x"`)})
	var round []call
	for range 3 {
		round = append(round, receive(t, calls, "a slot is used"))
	}
	w.sendMany(50, events.Work{Activity: "echo", Input: events.Payload(`"x"`)})
	for range 50 {
		w.done()
	}
	for range 7 {
		round = append(round, func() call {
			round[0].done("y")
			round = round[1:]
			return receive(t, calls, "a slot is used again")
		}())
	}
	for _, c := range round {
		c.done("y")
	}
	for range 10 {
		w.done()
	}
}

// A queue that waits for work must not keep the only slot from another one that has work.
func TestOneSlotServesManyQueues(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	var all gauge
	var bindings []activity.Binding
	const queues = 8
	for i := range queues {
		bindings = append(bindings, activity.Define[string,
			string](fmt.Sprint("a", i)).With(func(_ context.Context, s string) (string, error) {
			all.enter()
			defer all.leave()
			return s, nil
		}))
	}
	r := w.start(worker.Config{Slots: 1}, bindings...)
	if n := len(r.Status().Queues); n != queues {
		t.Errorf("%d queues are open", n)
	}
	for round := range 3 {
		for i := range queues {
			w.send(fmt.Sprint("i", round), events.Work{Activity: fmt.Sprint("a", i), Input: events.Payload(`"x"`),
				Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
			if round == 0 { // one after the other: whoever waits here waits for a slot that nobody needs
				before := time.Now()
				w.done()
				if took := time.Since(before); took > 5*time.Second {
					t.Errorf("queue %d was served after %v", i, took)
				}
			}
		}
	}
	for range 2 * queues {
		w.done()
	}
	if most := all.most.Load(); most != 1 {
		t.Errorf("%d ran at once", most)
	}
}

func TestQueuesShareTheSlots(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const n = 300
	for _, name := range []string{"echo", "other"} {
		w.sendMany(n, events.Work{Activity: name, Input: events.Payload(`"x"`)})
	}
	w.start(worker.Config{Slots: 4}, echoing(), other.With(func(_ context.Context, s string) (string, error) {
		return s, nil
	}))
	var order []string
	for range 2 * n {
		instance, _ := w.done()
		order = append(order, instance[1:5])
	}
	// Neither of them is done before the other has had a good part of its turn.
	first := slices.Index(order, "echo")
	second := slices.Index(order, "othe")
	if first > n/2 || second > n/2 {
		t.Errorf("one begins at %d, the other at %d of %d", first, second, 2*n)
	}
}

func TestARateIsKept(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const rate, n = 20, 24
	w.sendMany(n, events.Work{Activity: "echo", Input: events.Payload(`"x"`)})
	w.sendMany(n, events.Work{Activity: "other", Input: events.Payload(`"x"`)})
	var first, last time.Time
	w.start(worker.Config{RatePerActivity: map[string]float64{"echo": rate}},
		echo.With(func(_ context.Context, s string) (string, error) { return s, nil }),
		other.With(func(_ context.Context, s string) (string, error) { return s, nil }))
	others := 0
	for range 2 * n {
		instance, _ := w.done()
		if instance[1:5] == "othe" {
			others++
			continue
		}
		if last = time.Now(); first.IsZero() {
			first = last
		}
		if others < n && time.Since(first) > 500*time.Millisecond {
			t.Fatal("the activity without a rate has to wait for the one with a rate")
		}
	}
	took := last.Sub(first)
	want := time.Duration(float64(n-1-rate/10) / rate * float64(time.Second))
	if took < want-50*time.Millisecond || took > 3*want {
		t.Errorf("%d took %v, want about %v", n, took, want)
	}
	w.settled(broker.Queue{Activity: "echo"})
}

// ---- Tags.

func TestTagsSayWhichWorkIsTaken(t *testing.T) {
	t.Parallel()
	all := []string{"", "cpu", "gpu", "_", "a b.c"}
	tests := []struct {
		filter worker.TagFilter
		want   []string
	}{
		{worker.TagFilter{}, []string{""}},
		{worker.DefaultOnly(), []string{""}},
		{worker.Tags("gpu", "_"), []string{"_", "gpu"}},
		{worker.DefaultAnd("a b.c"), []string{"", "a b.c"}},
		{worker.Any(), []string{"", "_", "a b.c", "cpu", "gpu"}},
		{worker.None(), nil},
	}
	for _, tt := range tests {
		t.Run(tt.filter.String(), func(t *testing.T) {
			t.Parallel()
			w := newPatientWorld(t)
			w.start(worker.Config{Tags: tt.filter, Discover: 50 * time.Millisecond},
				echo.With(func(ctx context.Context, _ string) (string, error) {
					return activity.InfoOf(ctx).Tag, nil
				}))
			for i, tag := range all {
				w.send("i", events.Work{Activity: "echo", Tag: tag,
					Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
			}
			var got []string
			for range tt.want {
				_, result := w.done()
				got = append(got, result[1:len(result)-1])
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("took %q, want %q", got, tt.want)
			}
			w.nothing(150 * time.Millisecond)
		})
	}
}

func TestAnyFindsNewTags(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	r := w.start(worker.Config{Tags: worker.Any(), Discover: 50 * time.Millisecond}, echoing())
	if q := r.Status().Queues; len(q) != 1 {
		t.Errorf("it takes from %v", q)
	}
	w.send("i", events.Work{Activity: "echo", Input: events.Payload(`"x"`), Tag: "brand new"})
	w.send("j", events.Work{Activity: "unknown here", Tag: "brand new"})
	w.done()
	want := []process.Queue{{Activity: "echo"}, {Tag: "brand new", Activity: "echo"}}
	if q := r.Status().Queues; !slices.Equal(q, want) {
		t.Errorf("it takes from %v, want %v", q, want)
	}
}

// Work for an activity that nobody has registered waits, and is taken when somebody has.
func TestWorkForAnUnknownActivityWaits(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{}, echoing())
	w.send("i", events.Work{Activity: "other", Input: events.Payload(`"x"`)})
	w.nothing(100 * time.Millisecond)
	w.start(worker.Config{}, other.With(func(_ context.Context, s string) (string, error) { return s, nil }))
	w.done()
}
