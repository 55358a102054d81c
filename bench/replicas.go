package main

import (
	"context"
	"fmt"
	"time"
)

// replicas is W8: W1 with several orchestrators. On one machine they share its processors, so W8
// shows the cost of distribution.
func replicas() (list []variant) {
	for _, n := range []int{1, 2, 4} {
		list = append(list, variant{name: fmt.Sprintf("%d at once", n), needs: needs{orchestrators: n},
			run: func(ctx context.Context, r *run) error {
				most, err := r.awaitShares(ctx)
				if err != nil {
					return err
				}
				if err := r.flow(ctx, once.Name(), 1, 1000, 1); err != nil {
					return err
				}
				r.result.Figures["conflicts_percent_of_commits"] = rounded(100*r.result.Conflicts/max(1,
					r.result.Commits),
					2)
				r.result.Figures["most_partitions"] = most
				return nil
			}})
	}
	return list
}

// awaitShares waits until the orchestrators have shared all partitions among themselves, and
// returns the largest number of one orchestrator. They report their numbers once a second.
func (r *run) awaitShares(ctx context.Context) (most float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	shared, err := r.driver.bus.Partitions(ctx)
	if err != nil {
		return 0, err
	}
	partitions := float64(shared.Count)
	before := []float64(nil)
	for {
		var owned []float64
		all, know := 0.0, 0
		for _, p := range r.orchestrators {
			m, err := scrape(ctx, p.found.Health)
			if err != nil {
				return 0, err
			}
			n := m.sum("rondo_partitions_owned")
			owned, all, most = append(owned, n), all+n, max(most, n)
			if m.sum("rondo_orchestrators") == float64(len(r.orchestrators)) {
				know++
			}
		}
		if know == len(r.orchestrators) && all == partitions && fmt.Sprint(owned) == fmt.Sprint(before) {
			return most, nil
		}
		before, most = owned, 0
		select {
		case <-time.After(1100 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("the orchestrators have %v partitions, which must be %v together: %w", owned,
				partitions, ctx.Err())
		}
	}
}
