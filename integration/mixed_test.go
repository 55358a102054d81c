package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/check"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is work of all sorts for systems that are disturbed while they do it. What each instance returns is known beforehand.

var (
	double = activity.Define[int, int]("double")
	flaky  = activity.Define[int, int]("flaky", activity.Retry(5, activity.Fixed(20*time.Millisecond)))
	slow   = activity.Define[int, int]("slow")

	letters = orchestration.DefineQueue[int]("letters")
	go_     = orchestration.DefineEvent[int]("go")
	total   = orchestration.DefineKey[int]("total")
	stage   = orchestration.DefineStatus[string]()

	chain   = orchestration.Define[int, int]("chain")
	fan     = orchestration.Define[int, int]("fan")
	family  = orchestration.Define[int, int]("family")
	nap     = orchestration.Define[int, int]("nap")
	mail    = orchestration.Define[int, []int]("mail")
	retried = orchestration.Define[int, int]("retried")
	roll    = orchestration.Define[[2]int, int]("roll")
	racing  = orchestration.Define[int, string]("racing")
	asking  = orchestration.Define[int, int]("asking")
	steps   = orchestration.Define[int, int]("steps")
)

// plays are the orchestrations, works the activities.
var plays = append([]orchestration.Binding{
	chain.With(func(ctx *orchestration.Context, n int) (int, error) {
		for range 3 {
			var err error
			if n, err = double.Call(ctx, n); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
	fan.With(func(ctx *orchestration.Context, n int) (int, error) {
		var all []*orchestration.Future[int]
		for i := range 5 {
			all = append(all, double.Start(ctx, n+i))
		}
		results, err := orchestration.All(ctx, all...).Get(ctx)
		sum := 0
		for _, r := range results {
			sum += r
		}
		return sum, err
	}),
	family.With(func(ctx *orchestration.Context, n int) (int, error) {
		a, b := chain.StartChild(ctx, n), nap.StartChild(ctx, n)
		x, errA := a.Get(ctx)
		y, errB := b.Get(ctx)
		return x + y, errors.Join(errA, errB)
	}),
	nap.With(func(ctx *orchestration.Context, n int) (int, error) {
		if err := ctx.Sleep(time.Duration(20+n%200) * time.Millisecond); err != nil {
			return 0, err
		}
		return double.Call(ctx, n)
	}),
	mail.With(func(ctx *orchestration.Context, n int) ([]int, error) {
		var got []int
		for range n {
			x, err := letters.Receive(ctx)
			if err != nil {
				return got, err
			}
			got = append(got, x)
			total.Set(ctx, x)
		}
		return got, nil
	}),
	retried.With(func(ctx *orchestration.Context, n int) (int, error) { return flaky.Call(ctx, n) }),
	roll.With(func(ctx *orchestration.Context, in [2]int) (int, error) {
		left, n := in[0], in[1]
		stage.Set(ctx, fmt.Sprint(left))
		n, err := double.Call(ctx, n)
		if err != nil || left == 0 {
			return n, err
		}
		return roll.ContinueAsNew(ctx, [2]int{left - 1, n})
	}),
	racing.With(func(ctx *orchestration.Context, n int) (string, error) {
		late := ctx.Timer(50 * time.Millisecond)
		if ctx.Select(slow.Start(ctx, n), late) == late {
			return "too slow", nil
		}
		return "in time", nil
	}),
	asking.With(func(ctx *orchestration.Context, n int) (int, error) {
		x, err := go_.Wait(ctx)
		return x + n, err
	}),
	steps.With(func(ctx *orchestration.Context, n int) (int, error) {
		for range 3 {
			var err error
			if n, err = orchestration.Step(ctx, "increment", func(context.Context) (int, error) { return n + 1, nil }); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
}, slices.Concat(basics, timing, overloaded)...)

var works = []activity.Binding{
	double.With(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
	flaky.With(func(ctx context.Context, n int) (int, error) {
		if a := activity.InfoOf(ctx).Attempt; a < 3 {
			return 0, fmt.Errorf("attempt %d fails", a)
		}
		return 2 * n, nil
	}),
	slow.With(func(ctx context.Context, n int) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Minute):
			return n, nil
		}
	}),
	ping.With(func(_ context.Context, s string) (string, error) { return s, nil }),
}

// job is an instance with what it returns, and what has to be said to it.
type job struct {
	id, name    string
	input, want any
	said        []events.Message
}

// mixed makes n jobs of all sorts.
func mixed(prefix string, n int) []job {
	var jobs []job
	for i := range n {
		id := fmt.Sprint(prefix, i)
		j := job{id: id, input: i}
		switch i % 10 {
		case 0:
			j.name, j.want = "chain", 8*i
		case 1:
			j.name, j.want = "fan", 10*i+20
		case 2:
			j.name, j.want = "family", 10*i
		case 3:
			j.name, j.want = "nap", 2*i
		case 4:
			j.name, j.input, j.want = "mail", 4, []int{1, 2, 3, 4}
			for k := range 4 {
				j.said = append(j.said, events.Message{ID: fmt.Sprint(id, "-letter-", k), Instance: id, Content: &events.QueueSent{Queue: "letters", Data: events.Payload(fmt.Sprint(k + 1))}})
			}
		case 5:
			j.name, j.want = "retried", 2*i
		case 6:
			j.name, j.input, j.want = "roll", [2]int{3, i}, 16*i
		case 7:
			j.name, j.want = "racing", "too slow"
		case 8:
			j.name, j.want = "asking", i+7
		case 9:
			j.name, j.want = "steps", i+3
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// begin starts jobs and says to them what there is to say. If doubled, each message is sent twice.
func (s *system) begin(jobs []job, double bool) {
	s.t.Helper()
	const portion = 200
	for len(jobs) > 0 {
		n := min(portion, len(jobs))
		var wires []events.Wire
		var said []events.Message
		add := func(m events.Message) {
			w, err := events.Encode(s.bus.Prefix(), m)
			if err != nil {
				s.t.Fatal(err)
			}
			wires, said = append(wires, w), append(said, m)
		}
		for _, j := range jobs[:n] {
			add(events.Message{ID: "start-" + j.id, Instance: j.id, Content: &events.Start{Orchestration: j.name, Input: encode(s.t, j.input)}})
			for _, m := range j.said {
				add(m)
			}
		}
		if double {
			wires = doubled(wires)
		}
		if err := s.bus.Publish(s.t.Context(), wires...); err != nil {
			s.t.Fatal(err)
		}
		s.acknowledged(said...)
		jobs = jobs[n:]
	}
}

// letGo raises the events that some jobs wait for, when they wait.
func (s *system) letGo(jobs []job) {
	s.t.Helper()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, j := range jobs {
		if j.name != "asking" {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			s.reaches(j.id, events.KindEventAwaited)
			s.say(events.Message{ID: j.id + "-go", Instance: j.id, Content: &events.EventRaised{Name: "go", Data: events.Payload("7")}})
		})
	}
	wait.Wait()
}

// finished waits until all jobs have completed with what they should return, and checks their histories and those of their children.
func (s *system) finished(jobs []job, within time.Duration) {
	s.t.Helper()
	until := time.Now().Add(within)
	left := make(map[string]job, len(jobs))
	for _, j := range jobs {
		left[j.id] = j
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(left) > 0 {
		for _, info := range s.list(history.Filter{Statuses: []round.Status{round.Completed, round.Failed, round.Cancelled, round.Terminated}}) {
			j, ok := left[info.Instance]
			if !ok {
				continue
			}
			if want := encode(s.t, j.want); info.Status != round.Completed || string(info.Output) != string(want) {
				s.t.Errorf("%s (%s) is %s with output %s, error %v; want %s", j.id, j.name, info.Status, info.Output, info.Error, want)
			}
			delete(left, info.Instance)
		}
		if time.Now().After(until) {
			for id, j := range left {
				s.t.Errorf("%s (%s) has not ended: %v", id, j.name, s.kindsIfThere(id))
				if s.t.Failed() && len(left) > 5 {
					break
				}
			}
			s.t.Fatalf("%d of %d instances have not ended within %v", len(left), len(jobs), within)
		}
		<-tick.C
	}
	s.check()
}

func (s *system) kindsIfThere(id string) any {
	x, err := history.Export(s.t.Context(), s.store, id, 0)
	if err != nil {
		return err
	}
	var kinds []events.Kind
	for _, e := range x.Events {
		kinds = append(kinds, e.Fact.Kind())
	}
	return kinds
}

// list gives all instances that fit a filter.
func (s *system) list(f history.Filter) []history.Info {
	s.t.Helper()
	var all []history.Info
	page := history.Page{Limit: 1000}
	for {
		got, err := s.store.List(s.t.Context(), f, page)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, got.Instances...)
		if page.Cursor = got.Next; got.Next == "" {
			return all
		}
	}
}

// checkOne checks the history of an instance.
func (s *system) checkOne(info history.Info) {
	s.t.Helper()
	in := check.Instance{ID: info.Instance, Row: info.Row, History: make(map[int64][]events.Event), Values: make(map[string]events.Payload)}
	for x := int64(1); x <= info.Execution; x++ {
		in.History[x] = s.events(info.Instance, x)
	}
	values, err := s.store.Values(s.t.Context(), info.Instance)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range values {
		in.Values[k] = v.Data
	}
	if err := in.Check(); err != nil {
		s.t.Errorf("the history is not in order:\n%v", err)
	}
}
