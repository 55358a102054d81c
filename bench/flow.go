package main

import (
	"context"
	"fmt"
	"time"
)

// This file is the workloads that keep many instances going: W1, W2 and W6.

// flows are variants, each with a number of instances in flight. Each instance has count activities
// or steps.
func flows(orchestration string, count int, inFlight ...int) (list []variant) {
	for _, n := range inFlight {
		list = append(list, variant{name: fmt.Sprintf("%d in flight", n), run: func(ctx context.Context, r *run) error {
			return r.flow(ctx, orchestration, count, n, count)
		}})
	}
	return list
}

// flow keeps inFlight instances, each of count activities or steps, in flight for a while. Each
// instance adds each to the count of the result.
func (r *run) flow(ctx context.Context, orchestration string, count, inFlight, each int) error {
	next := r.sized(orchestration, count)
	inFlight = pick(r, min(inFlight, 50), inFlight, inFlight)
	if err := r.warmUp(ctx, inFlight, next); err != nil {
		return err
	}
	plans := some(100, next)
	if d := r.window(0, 5*time.Second, 20*time.Second); d > 0 {
		plans = forAWhile(d, next)
	}
	warm := r.started
	err := r.measure(ctx, func() (int, error) {
		err := r.driver.flood(ctx, inFlight, plans)
		return (r.started - warm) * each, err
	})
	r.result.latencies = latenciesOf(durationsOf(r.driver.endedSince(warm)))
	return err
}

// naps is W6 with a number of slots of the worker: the time of the activities themselves bounds the
// rate, and the result is the share of that bound that the engine reaches.
func naps(slots ...int) (list []variant) {
	const activities, inFlight = 5, 20
	for _, n := range slots {
		most := float64(min(n, activities*inFlight)) / activities / napTime.Seconds()
		list = append(list, variant{name: fmt.Sprintf("%d slots", n), needs: needs{workerArgs: []string{"--slots",
			fmt.Sprint(n)}}, run: func(ctx context.Context, r *run) error {
			if err := r.flow(ctx, napFan.Name(), activities, inFlight, 1); err != nil {
				return err
			}
			r.result.Figures["bound_per_second"] = most
			r.result.Figures["percent_of_bound"] = rounded(100*r.result.PerSecond/most, 1)
			return nil
		}})
	}
	return list
}

// window is how long a workload is measured: the flag -time, or the time for the size.
func (r *run) window(tiny, small, full time.Duration) time.Duration {
	if r.o.time > 0 {
		return r.o.time
	}
	return pick(r, tiny, small, full)
}

// warmUp runs a few instances, so that connections, plans and caches are there.
func (r *run) warmUp(ctx context.Context, inFlight int, next func() plan) error {
	return r.driver.flood(ctx, min(inFlight, 64), some(pick(r, 10, 200, 300), next))
}
