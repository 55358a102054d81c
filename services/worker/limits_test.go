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
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// gauge counts how many activities run at once.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// sendMany publishes tasks of an activity for as many instances.
func (w *world) sendMany(n int, work events.Task) {
	w.t.Helper()
	var messages []events.Message
	for i := range n {
		one := work
		messages = append(messages, w.message(fmt.Sprintf("%s-%s-%d", work.Tag, work.Activity, i), &one))
	}
	w.publish(messages...)
}

// fullRound waits for n held calls, checks that there is no further one, and lets them return.
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
			w.sendMany(3*tt.want, events.Task{Activity: "block", Input: codec.Payload(`"x"`), Tag: tag})
			w.start(tt.config, held(block, calls))
			for range 3 {
				w.fullRound(calls, tt.want)
			}
			for range 3 * tt.want {
				w.done()
			}
			w.settled(broker.TaskQueueName{Tag: tag, Activity: "block"})
		})
	}
}

func TestAFullActivityLeavesTheOtherSlotsToOthers(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 100)
	w.start(worker.Config{Slots: 4, SlotsPerActivity: map[string]int{"block": 3}}, held(block, calls), echoing())
	w.sendMany(10, events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	var round []call
	for range 3 {
		round = append(round, receive(t, calls, "a slot is used"))
	}
	w.sendMany(50, events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
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

// TestOneSlotServesManyQueues: a queue that waits for tasks does not keep the only slot from
// another queue that has a task.
func TestOneSlotServesManyQueues(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		var all gauge
		var bindings []activity.Binding
		const queues = 8
		for i := range queues {
			bindings = append(bindings, activity.Define[string,
				string](fmt.Sprint("a", i)).Bind(func(_ context.Context, s string) (string, error) {
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
				w.send(fmt.Sprint("i", round), events.Task{Activity: fmt.Sprint("a", i), Input: codec.Payload(`"x"`),
					Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
				if round == 0 { // one after the other: a task that waits here waits for an unused slot
					before := time.Now()
					w.done()
					if took := time.Since(before); took > 100*time.Millisecond {
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
	})
}

func TestQueuesShareTheSlots(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const n, slots = 300, 4
	release, holds := make(chan struct{}), make(chan struct{}, slots)
	hold := activity.Define[string, string]("hold")
	w.start(worker.Config{Slots: slots}, echoing(), other.Bind(func(_ context.Context, s string) (string, error) {
		return s, nil
	}), hold.Bind(func(_ context.Context, s string) (string, error) {
		holds <- struct{}{}
		<-release
		return s, nil
	}))
	names := []string{"echo", "other"}
	for _, name := range names { // afterwards the worker receives from both queues
		w.sendMany(1, events.Task{Activity: name, Input: codec.Payload(`"x"`),
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: 3}})
		w.done()
	}
	w.sendMany(slots, events.Task{Activity: hold.Name(), Input: codec.Payload(`"x"`)})
	for range slots {
		<-holds
	}
	for _, name := range names {
		w.sendMany(n, events.Task{Activity: name, Input: codec.Payload(`"x"`)})
	}
	close(release)
	for range slots {
		w.done()
	}
	var order []string
	for range 2 * n {
		instance, _ := w.done()
		order = append(order, instance[1:5])
	}
	// Neither queue is done before the other has had a good part of its turn.
	first := slices.Index(order, "echo")
	second := slices.Index(order, "othe")
	if first > n/2 || second > n/2 {
		t.Errorf("one begins at %d, the other at %d of %d", first, second, 2*n)
	}
}

// TestARateHoldsUpNoOtherActivity executes all tasks of an activity without a rate while another
// activity may begin once per hour.
func TestARateHoldsUpNoOtherActivity(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const n = 24
	w.sendMany(n, events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	w.sendMany(n, events.Task{Activity: "other", Input: codec.Payload(`"x"`)})
	w.start(worker.Config{RatePerActivity: map[string]float64{"echo": 1. / 3600}},
		echo.Bind(func(_ context.Context, s string) (string, error) { return s, nil }),
		other.Bind(func(_ context.Context, s string) (string, error) { return s, nil }))
	for others := 0; others < n; {
		if instance, _ := w.done(); instance[1:5] == "othe" {
			others++
		}
	}
}

func TestARateIsKept(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		const rate, n = 20, 24
		w.sendMany(n, events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
		w.sendMany(n, events.Task{Activity: "other", Input: codec.Payload(`"x"`)})
		began := make(chan time.Time, n)
		w.start(worker.Config{RatePerActivity: map[string]float64{"echo": rate}},
			echo.Bind(func(_ context.Context, s string) (string, error) {
				began <- time.Now()
				return s, nil
			}),
			other.Bind(func(_ context.Context, s string) (string, error) { return s, nil }))
		for range 2 * n {
			w.done()
		}
		first := <-began
		last := first
		for range n - 1 {
			last = <-began
		}
		const atOnce = rate / 10
		want := (n - atOnce) * time.Second / rate
		if took := last.Sub(first); took < want || took > want*3/2 {
			t.Errorf("%d executions began within %v, want %v or little more", n, took, want)
		}
		w.settled(broker.TaskQueueName{Activity: "echo"})
	})
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
				echo.Bind(func(ctx context.Context, _ string) (string, error) {
					return activity.Info(ctx).Tag, nil
				}))
			for i, tag := range all {
				w.send("i", events.Task{Activity: "echo", Tag: tag,
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
	w.send("i", events.Task{Activity: "echo", Input: codec.Payload(`"x"`), Tag: "brand new"})
	w.send("j", events.Task{Activity: "unknown here", Tag: "brand new"})
	w.done()
	want := []process.Queue{{Activity: "echo"}, {Tag: "brand new", Activity: "echo"}}
	if q := r.Status().Queues; !slices.Equal(q, want) {
		t.Errorf("it takes from %v, want %v", q, want)
	}
}

// A task for an activity that no worker has registered waits until one has.
func TestWorkForAnUnknownActivityWaits(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{}, echoing())
	w.send("i", events.Task{Activity: "other", Input: codec.Payload(`"x"`)})
	w.nothing(100 * time.Millisecond)
	w.start(worker.Config{}, other.Bind(func(_ context.Context, s string) (string, error) { return s, nil }))
	w.done()
}
