package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file is the work of TestCrashWindows: the shapes that orchestrations have, each as small as
// it can be, and how their histories are compared.

// shape is a small run of a system, and the expected results.
type shape struct {
	name string
	// starts are the instances, said the other messages to them.
	starts []shapeStart
	said   []events.Message
	// unordered says that answers may come in any order, or not at all.
	unordered bool
}

type shapeStart struct {
	instance, name string
	input, want    any
}

var (
	shapeDouble = activity.Define[int, int]("double")
	shapeSoon   = activity.Define[int, int]("soon", activity.ScheduleToStart(time.Minute))
	shapeFlaky  = activity.Define[int, int]("flaky", activity.Retry(5, activity.Fixed(300*time.Millisecond)))
	shapeSlow   = activity.Define[int, int]("slow")
	shapeBeat   = activity.Define[int, int]("beat")
	shapeGather = orchestration.Define[int, int]("gather")
	shapeMail   = orchestration.DefineMailbox[int]("letters")
	shapeTotal  = orchestration.DefineValue[int]("total")
	shapeTick   = orchestration.DefineEvent[int]("tick")
	shapeGo     = orchestration.DefineEvent[int]("go")
)

// simple makes a shape of one orchestration with one number.
func simple(name string, want any) shape {
	return shape{name: name, starts: []shapeStart{{"i", name, 3, want}}}
}

func letter(instance string, n int) events.Message {
	return events.Message{ID: fmt.Sprint(instance, "-letter-", n), Instance: instance,
		Content: &events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(fmt.Sprint(n))}}
}

func event(name string, n int) events.Message {
	return events.Message{ID: fmt.Sprint(name, "-", n), Instance: "i",
		Content: &events.EventRaised{Name: name, Data: codec.Payload(fmt.Sprint(n))}}
}

// shapes are the runs during which services die. There is one instance of each, or two that send
// messages to each other, so that the order of events is always the same.
var shapes = []shape{
	simple("one", 6),
	{name: "fan-out", starts: []shapeStart{{"i", "fan-out", 3, 30}}, unordered: true},
	simple("timer", 6),
	simple("child", 6),
	simple("continue-as-new", 12),
	{name: "queue and values", starts: []shapeStart{{"i", "gather", 3, 6}},
		said: []events.Message{letter("i", 1), letter("i", 2), letter("i", 3)}},
	{name: "kept events", starts: []shapeStart{{"i", "kept", 2, 6}},
		said: []events.Message{event("tick", 1), event("tick", 2), event("go", 3)}},
	{name: "steps", starts: []shapeStart{{"i", "steps", 3, 10}}},
	simple("retry", 6),
	simple("heartbeat", 6),
	{name: "begun", starts: []shapeStart{{"i", "begun", 3, 6}}, unordered: true},
	{name: "withdrawal", starts: []shapeStart{{"i", "withdrawal", 3, "too slow"}}},
	{name: "reading", starts: []shapeStart{{"i", "reading", 3, 0}}},
	{name: "speaking", starts: []shapeStart{{"reader", "gather", 1, 7}, {"i", "speaking", 7, 7}}},
}

// first reports whether it is asked for the first time.
type first struct{ done atomic.Bool }

func (f *first) time() bool { return !f.done.Swap(true) }

// orchestrationsOf is the code of the shapes, which passes a gate.
func orchestrationsOf(g *gate) []orchestration.Binding {
	number := func(name string, fn func(*orchestration.Context, int) (int, error)) orchestration.Binding {
		return orchestration.Define[int, int](name).Bind(func(ctx *orchestration.Context, n int) (int, error) {
			if err := g.code("during", "decide"); err != nil {
				return 0, err
			}
			return fn(ctx, n)
		})
	}
	call := func(a activity.Definition[int, int]) func(*orchestration.Context, int) (int, error) {
		return func(ctx *orchestration.Context, n int) (int, error) { return a.Call(ctx, n) }
	}
	return []orchestration.Binding{
		number("one", call(shapeDouble)), number("retry", call(shapeFlaky)), number("heartbeat", call(shapeBeat)),
		number("begun", call(shapeSoon)),
		number("fan-out", func(ctx *orchestration.Context, n int) (sum int, err error) {
			var all []*orchestration.Future[int]
			for range 5 {
				all = append(all, shapeDouble.Start(ctx, n))
			}
			results, err := orchestration.All(ctx, all...).Get(ctx)
			for _, r := range results {
				sum += r
			}
			return sum, err
		}),
		number("timer", func(ctx *orchestration.Context, n int) (int, error) {
			if err := ctx.Sleep(2500 * time.Millisecond); err != nil { // longer than a timer that is published at once
				return 0, err
			}
			return shapeDouble.Call(ctx, n)
		}),
		number("child", func(ctx *orchestration.Context, n int) (int, error) {
			return orchestration.Define[int, int]("one").Call(ctx, n)
		}),
		orchestration.Define[int, int]("continue-as-new").Bind(func(ctx *orchestration.Context, n int) (int, error) {
			before, _, err := shapeTotal.Get(ctx)
			if err != nil {
				return 0, err
			}
			shapeTotal.Set(ctx, before+1)
			n, err = shapeDouble.Call(ctx, n)
			if err != nil || before > 0 {
				return n, err
			}
			return orchestration.Define[int, int]("continue-as-new").ContinueAsNew(ctx, n)
		}),
		shapeGather.Bind(func(ctx *orchestration.Context, n int) (sum int, err error) {
			for range n {
				x, err := shapeMail.Receive(ctx)
				if err != nil {
					return 0, err
				}
				sum += x
				shapeTotal.Set(ctx, sum)
			}
			return sum, nil
		}),
		orchestration.Define[int, int]("kept").Bind(func(ctx *orchestration.Context, n int) (int, error) {
			sum, err := shapeGo.Wait(ctx)
			for range n {
				tick, err2 := shapeTick.Wait(ctx) // it came before
				sum, err = sum+tick, errors.Join(err, err2)
			}
			return sum, err
		}, orchestration.Buffered(10, shapeTick)),
		stepsOf(g),
		orchestration.Define[int, string]("withdrawal").Bind(func(ctx *orchestration.Context, n int) (string, error) {
			late := ctx.Timer(250 * time.Millisecond)
			if ctx.Race(shapeSlow.Start(ctx, n), late) == late {
				return "too slow", nil
			}
			return "in time", nil
		}),
		number("reading", func(ctx *orchestration.Context, n int) (int, error) {
			v, err := shapeTotal.ReadFrom(ctx, "nobody").Get(ctx)
			if err != nil || v == nil {
				return 0, err
			}
			return *v, nil
		}),
		number("speaking", func(ctx *orchestration.Context, n int) (int, error) {
			_, err := orchestration.Define[int, int]("one").Detach(ctx, n, orchestration.ID("launched"))
			return n, errors.Join(err, shapeMail.SendFrom(ctx, "reader", n))
		}),
	}
}

func stepsOf(g *gate) orchestration.Binding {
	return orchestration.Define[int, int]("steps").Bind(func(ctx *orchestration.Context, n int) (int, error) {
		for range 2 {
			var err error
			n, err = orchestration.Step(ctx, "increment", func(context.Context) (int, error) {
				return n + 1, g.crosses("step")
			})
			if err != nil {
				return 0, err
			}
		}
		return shapeDouble.Call(ctx, n)
	})
}

// crosses passes the points before and after a piece of user code.
func (g *gate) crosses(call string) error {
	return errors.Join(g.code("before", call), g.code("after", call))
}

// activitiesOf is the code of the activities.
func activitiesOf(g *gate) []activity.Binding {
	twice := func(_ context.Context, n int) (int, error) { return 2 * n, g.crosses("execute") }
	var beat first
	return []activity.Binding{
		shapeDouble.Bind(twice), shapeSoon.Bind(twice),
		shapeFlaky.Bind(func(ctx context.Context, n int) (int, error) {
			if a := activity.Info(ctx).Attempt; a < 3 {
				return 0, fmt.Errorf("attempt %d fails", a)
			}
			return 2 * n, nil
		}),
		shapeSlow.Bind(func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}),
		shapeBeat.Bind(func(ctx context.Context, n int) (int, error) {
			if err := activity.Heartbeat(ctx, n); err != nil {
				return 0, err
			}
			if g.at.call == "put" && beat.time() {
				select {
				case <-g.noted:
				case <-time.After(patience):
				}
			}
			return 2 * n, nil
		}),
	}
}

// begins starts a shape.
func (s *system) begins(x shape) {
	s.t.Helper()
	for _, i := range x.starts {
		s.start(i.name, i.instance, i.input)
	}
	s.say(x.said...)
}

// ---- Histories.

// differing are the fields that may differ between two runs: times, names and ids.
var differing = []string{"at", "incarnation", "worker", "fire_at", "not_before", "start_by", "deadline", "set", "trace",
	"begun", "age", "seen_ages"}

// story lists the events of all instances of a system, without the fields that may differ.
func (s *system) story(unordered bool) map[string][]string {
	s.t.Helper()
	out := make(map[string][]string)
	for _, info := range s.list(history.Filter{}) {
		for x := int64(1); x <= info.Execution; x++ {
			var lines []string
			for _, e := range s.events(info.Instance, x) {
				if e.Fact.Kind() == events.KindActivityBegun {
					continue // it counts only if it comes before the result
				}
				data, err := events.EncodeEvent(e)
				if err != nil {
					s.t.Fatal(err)
				}
				var v map[string]any
				if err := json.Unmarshal(data, &v); err != nil {
					s.t.Fatal(err)
				}
				if unordered {
					delete(v, "id")
				}
				lines = append(lines, without(v))
			}
			if unordered {
				slices.Sort(lines)
			}
			out[fmt.Sprint(info.Instance, "/", x)] = lines
		}
	}
	return out
}

func without(v map[string]any) string {
	strip(v)
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return incarnationName.ReplaceAllString(string(data), "incarnation")
}

// incarnationName matches the names of incarnations, also in the ids of messages.
var incarnationName = regexp.MustCompile("[0-9a-f]{16}")

func strip(v map[string]any) {
	for _, name := range differing {
		delete(v, name)
	}
	for _, x := range v {
		if inner, ok := x.(map[string]any); ok {
			strip(inner)
		}
	}
}

// told formats a story for failures.
func told(story map[string][]string) string {
	var b strings.Builder
	var names []string
	for name := range story {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s\n  %s\n", name, strings.Join(story[name], "\n  "))
	}
	return b.String()
}
