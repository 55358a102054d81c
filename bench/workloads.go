package main

import (
	"context"
	"fmt"
	"time"
)

// workload is something that is measured, in one or several variants.
type workload struct {
	name     string
	about    string
	unit     string // what is counted
	database string // the only one that it can be measured with, "" if any
	variants []variant
}

// variant is one way to run a workload.
type variant struct {
	name       string
	needs      needs
	leavesOpen bool // instances wait at its end
	run        func(ctx context.Context, r *run) error
}

// workloads are all workloads, in the order in which they run.
var workloads = []workload{
	{name: "W1", about: "orchestrations of one activity", unit: "orchestrations", variants: flows(once.Name(), 1, 128, 1000)},
	{name: "W1s", about: "orchestrations of one inline step", unit: "orchestrations", variants: flows(onceStep.Name(), 1, 128, 1000)},
}

// flows are variants with so many instances under way at once.
func flows(orchestration string, count int, inFlight ...int) (list []variant) {
	for _, n := range inFlight {
		list = append(list, variant{name: fmt.Sprintf("%d in flight", n), run: func(ctx context.Context, r *run) error { return r.flow(ctx, orchestration, count, n) }})
	}
	return list
}

// flow keeps instances of so many activities or steps under way for a while.
func (r *run) flow(ctx context.Context, orchestration string, count, inFlight int) error {
	next := func() plan {
		data := hundredBytes(r.started)
		return r.plan(orchestration, job{Count: count, Data: data}, echoed{count, data})
	}
	inFlight = min(inFlight, pick(r, 50, inFlight, inFlight))
	if err := r.warmUp(ctx, inFlight, next); err != nil {
		return err
	}
	plans := some(200, next)
	if d := r.window(0, 8*time.Second, 20*time.Second); d > 0 {
		plans = forAWhile(d, next)
	}
	warm := r.started
	err := r.measure(ctx, func() (int, error) {
		err := r.driver.flood(ctx, inFlight, plans)
		return (r.started - warm) * count, err
	})
	r.latencies(r.driver.endedSince(warm))
	return err
}

// window is how long something is measured: what somebody says, or what is right for the size.
func (r *run) window(tiny, small, full time.Duration) time.Duration {
	if r.o.time > 0 {
		return r.o.time
	}
	return pick(r, tiny, small, full)
}

// warmUp runs a few instances, so that connections, plans and caches are there.
func (r *run) warmUp(ctx context.Context, inFlight int, next func() plan) error {
	return r.driver.flood(ctx, min(inFlight, 64), some(pick(r, 20, 300, 300), next))
}
