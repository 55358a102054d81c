package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file is the workloads in which one instance is alone: W3, W4 and W5.

// wide is W3: one instance starts many activities or steps at once, repeatedly. The median run
// counts.
func wide(orchestration string) []variant {
	return []variant{{name: "500 in parallel", run: func(ctx context.Context, r *run) error {
		count := pick(r, 50, 500, 500)
		next := r.sized(orchestration, count)
		if err := r.warmUp(ctx, 1, r.sized(orchestration, 5)); err != nil {
			return err
		}
		var took []float64
		warm := r.started
		err := r.measure(ctx, func() (int, error) {
			for range pick(r, 3, 20, 50) {
				t, err := r.driver.one(ctx, next())
				if err != nil {
					return 0, err
				}
				took = append(took, t.Seconds())
			}
			return (r.started - warm) * count, nil
		})
		r.result.latencies = latenciesOf(durationsOf(r.driver.endedSince(warm)))
		r.result.PerSecond = rounded(float64(count)/median(took), 1)
		return err
	}}}
}

// sized plans instances of so many activities or steps.
func (r *run) sized(orchestration string, count int) func() plan {
	return func() plan {
		return r.plan(orchestration, count, job{Count: count})
	}
}

// one runs one instance, and returns how long that took.
func (d *driver) one(ctx context.Context, p plan) (time.Duration, error) {
	begun := time.Now()
	err := d.start(ctx, nil, p)
	if err == nil {
		err = d.allEnd(ctx)
	}
	return time.Since(begun), err
}

// idle is W4: the latency of one orchestration of one activity or step for the client that starts
// it, without other load.
func idle(o orchestration.Definition[job, echoed]) []variant {
	return []variant{{name: "one at a time", run: func(ctx context.Context, r *run) (err error) {
		c, err := client.Connect(ctx, r.natsURL, client.Prefix(r.prefix()), client.Name("bench-client"),
			client.Logger(quiet()))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		again := func(n int) (took []time.Duration, err error) {
			for range n {
				t, err := r.startAndWait(ctx, c, o)
				if err != nil {
					return nil, err
				}
				took = append(took, t)
			}
			return took, nil
		}
		if _, err := again(pick(r, 5, 50, 100)); err != nil {
			return err
		}
		var took []time.Duration
		err = r.measure(ctx, func() (int, error) {
			took, err = again(pick(r, 20, 1000, 1000))
			return len(took), err
		})
		r.result.latencies = latenciesOf(took)
		r.result.Compared = "p50_ms"
		return err
	}}}
}

func (r *run) startAndWait(ctx context.Context, c *client.Client,
	o orchestration.Definition[job, echoed]) (time.Duration, error) {
	p := r.sized(o.Name(), 1)()
	p.open = true // the waiting client notices if it does not end
	r.driver.expect(p)
	begun := time.Now()
	h, err := o.Start(ctx, c, p.in, orchestration.ID(p.instance))
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := h.Wait(ctx)
	took := time.Since(begun)
	if want := (echoed{p.count, p.in.Data}); err == nil && got != want {
		err = fmt.Errorf("%s gave %+v, want %+v", p.instance, got, want)
	}
	return took, err
}

// long is W5: one instance of many activities or steps, one after the other. Its history grows, and
// the last ones must not take longer than the first ones.
func long(orchestration string) []variant {
	return []variant{{name: "1000 in sequence", run: func(ctx context.Context, r *run) error {
		count, part := pick(r, 100, 1000, 1000), pick(r, 20, 100, 100)
		next := r.sized(orchestration, count)
		if err := r.warmUp(ctx, 1, r.sized(orchestration, 1)); err != nil {
			return err
		}
		var took, ratios []float64
		err := r.measure(ctx, func() (int, error) {
			for range pick(r, 1, 3, 5) {
				p := next()
				t, err := r.driver.one(ctx, p)
				if err != nil {
					return 0, err
				}
				took = append(took, t.Seconds())
				ends, err := r.endsOf(ctx, p.instance)
				if err != nil {
					return 0, err
				}
				if len(ends) != count+1 {
					return 0, fmt.Errorf("%s has %d ends of activities or steps, want %d", p.instance,
						len(ends)-1, count)
				}
				ratios = append(ratios, ends[count].Sub(ends[count-part]).Seconds()/ends[part].Sub(ends[0]).Seconds())
			}
			return len(took) * count, nil
		})
		if err != nil {
			return err
		}
		r.result.PerSecond = rounded(float64(count)/median(took), 1)
		r.result.Figures["seconds"] = rounded(median(took), 3)
		r.result.Figures["last_100_to_first_100"] = rounded(median(ratios), 3)
		return nil
	}}}
}

// endsOf gives when an instance began, and when each of its activities or steps was done, as its
// history tells.
func (r *run) endsOf(ctx context.Context, instance string) (ends []time.Time, err error) {
	for after := int64(0); ; {
		list, err := r.store.Events(ctx, instance, 0, after, 1000)
		if err != nil || len(list) == 0 {
			return ends, err
		}
		for _, e := range list {
			switch e.Fact.(type) {
			case *events.Started, *events.ActivityCompleted, *events.StepCompleted:
				ends = append(ends, e.At)
			default:
			}
			after = e.ID
		}
	}
}
