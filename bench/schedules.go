package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is W12: schedules. Most of them wait for the night, and some start a run every other
// second.

const (
	fireEvery = 2 * time.Second
	// Their ids begin so. Those of runs begin with the id of their schedule.
	waitingID, firingID = "nightly-", "often-"
)

// schedules stores many schedules, measures lists of them and what they cost, and has a few start
// runs.
func schedules(ctx context.Context, r *run) (err error) {
	c, err := client.Connect(ctx, r.natsURL, client.Prefix(r.prefix()), client.Name("bench-client"),
		client.Logger(quiet()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	input, err := json.Marshal(job{Data: hundredBytes(0)})
	if err != nil {
		return err
	}
	f := r.result.Figures
	r.result.Compared = "list_p50_ms"
	begun, n := time.Now(), pick(r, 20, 1000, 1000)
	for i := range n {
		if _, err := c.Schedules().Put(ctx, client.Schedule{ID: fmt.Sprintf("%s%04d", waitingID, i),
			Orchestration: onceStep.Name(), Input: input, Cron: "0 3 * * *"}); err != nil {
			return err
		}
	}
	f["put_ms"] = rounded(inMilliseconds(time.Since(begun))/float64(n), 3)
	if err := listSchedules(ctx, r); err != nil {
		return err
	}
	if f["idle_cpu_percent"], err = idleCPU(ctx, r); err != nil {
		return err
	}
	for i := range pick(r, 2, 50, 50) {
		if _, err := c.Schedules().Put(ctx, client.Schedule{ID: fmt.Sprintf("%s%04d", firingID, i),
			Orchestration: onceStep.Name(), Input: input, Cron: fmt.Sprint("@every ", fireEvery),
			Overlap: client.OverlapAllow}); err != nil {
			return err
		}
	}
	err = r.measure(ctx, func() (int, error) { return fire(ctx, r, c) })
	if err != nil {
		return err
	}
	return runsOfSchedules(ctx, r)
}

// listSchedules asks for a page of schedules again and again.
func listSchedules(ctx context.Context, r *run) error {
	all := query.NewSchedules(query.NewReader(r.driver.bus))
	var took []time.Duration
	for range pick(r, 20, 500, 2000) {
		begun := time.Now()
		list, err := all.List(ctx, waitingID, history.Page{})
		if err != nil {
			return err
		}
		if len(list.Schedules) == 0 {
			return fmt.Errorf("a list has no schedules")
		}
		took = append(took, time.Since(begun))
	}
	l := latenciesOf(took)
	r.result.Figures["list_p50_ms"], r.result.Figures["list_p99_ms"] = l.P50, l.P99
	return nil
}

// idleCPU returns how much of a processor the orchestrator uses while nothing is due.
func idleCPU(ctx context.Context, r *run) (float64, error) {
	before, err := usageOf(r.orchestrators[0].pid())
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	select {
	case <-time.After(r.window(2*time.Second, 20*time.Second, time.Minute)):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := usageOf(r.orchestrators[0].pid())
	return rounded(100*(after.cpu-before.cpu).Seconds()/time.Since(begun).Seconds(), 2), err
}

// fire lets the schedules start runs for a while, deletes them, and returns how many runs they have
// started.
func fire(ctx context.Context, r *run, c *client.Client) (started int, err error) {
	select {
	case <-time.After(r.window(5*time.Second, 30*time.Second, 2*time.Minute)):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for s, err := range c.Schedules().All(ctx) {
		if err != nil {
			return 0, err
		}
		if !strings.HasPrefix(s.ID, firingID) {
			continue
		}
		if err := c.Schedules().Pause(ctx, s.ID, "that is enough"); err != nil {
			return 0, err
		}
		if s, err = c.Schedules().Get(ctx, s.ID); err != nil {
			return 0, err
		}
		started += int(s.Started)
		if s.Missed+s.Skipped > 0 {
			return 0, fmt.Errorf("schedule %s has missed %d runs, and skipped %d", s.ID, s.Missed, s.Skipped)
		}
	}
	r.driver.all.scheduled = started // what the check finds besides
	return started, r.await(ctx, time.Second/10, "all runs have ended", func() (bool, error) {
		n, err := r.store.Count(ctx, history.Filter{IDPrefix: firingID, Statuses: []round.Status{round.Completed}}, 0)
		return n == int64(started), err
	})
}

// runsOfSchedules checks that there is a run every other second, and notes how late each has begun.
func runsOfSchedules(ctx context.Context, r *run) error {
	var late []time.Duration
	times := make(map[string][]time.Time) // by schedule
	err := eachInstance(ctx, r.store, func(info history.Info) error {
		id, nominal, _ := strings.Cut(info.Instance, "@")
		at, err := time.Parse(time.RFC3339, nominal)
		times[id], late = append(times[id], at), append(late, info.StartedAt.Sub(at))
		return err
	})
	for id, list := range times {
		slices.SortFunc(list, time.Time.Compare)
		for i, at := range list[1:] {
			if d := at.Sub(list[i]); d != fireEvery {
				err = errors.Join(err, fmt.Errorf("%s has a run at %v, and the next one %v later", id, list[i], d))
			}
		}
	}
	r.result.latencies = latenciesOf(late)
	return err
}
