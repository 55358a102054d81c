package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has systems do the work of package work while they are disturbed.

// plays are the orchestrations, works the activities.
var (
	plays = slices.Concat(work.Orchestrations, basics, timing, overloaded)
	works = append(work.Activities(func(activity.ExecutionInfo) {}),
		ping.Bind(func(_ context.Context, s string) (string, error) {
			return s, nil
		}))
)

// mixed makes n jobs of all sorts.
func mixed(prefix string, n int) []work.Job {
	var jobs []work.Job
	for i := range n {
		jobs = append(jobs, work.NewJob(fmt.Sprint(prefix, i), i%work.Sorts, i))
	}
	return jobs
}

// begin starts jobs and sends their messages. If doubled, each message is sent twice.
func (s *system) begin(jobs []work.Job, double bool) {
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
			add(j.Start())
			for _, m := range j.Said {
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
func (s *system) letGo(jobs []work.Job) {
	s.t.Helper()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, j := range jobs {
		if j.Later == nil {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			s.reaches(j.ID, events.KindEventAwaited)
			s.say(*j.Later)
		})
	}
	wait.Wait()
}

// finished waits until all jobs have completed with the right outputs, and checks their histories
// and those of their children.
func (s *system) finished(jobs []work.Job, within time.Duration) {
	s.t.Helper()
	until := time.Now().Add(within)
	left := make(map[string]work.Job, len(jobs))
	for _, j := range jobs {
		left[j.ID] = j
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(left) > 0 {
		for _, info := range s.list(history.Filter{Statuses: []round.Status{round.Completed, round.Failed,
			round.Cancelled, round.Terminated}}) {
			j, ok := left[info.Instance]
			if !ok {
				continue
			}
			if want := work.Payload(j.Want); info.Status != round.Completed || string(info.Output) != string(want) {
				s.t.Errorf("%s (%s) is %s with output %s, error %v; want %s", j.ID, j.Name, info.Status, info.Output,
					info.Error, want)
			}
			delete(left, info.Instance)
		}
		if time.Now().After(until) {
			for id, j := range left {
				s.t.Errorf("%s (%s) has not ended: %v", id, j.Name, s.kindsIfThere(id))
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

// list returns all instances that fit a filter.
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
