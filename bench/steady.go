package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// This file is W10: half of what the machine can do, for long.

// timerTime is how long the timers of the mix are. It is not counted as latency.
const timerTime = 100 * time.Millisecond

// mix plans a fourth of each: an activity, an inline step, a timer, and an event, which is raised at once.
func (r *run) mix() plan {
	data := hundredBytes(r.started)
	in, want := job{Data: data}, echoed{1, data}
	switch r.started % 4 {
	case 0:
		return r.plan(once.Name(), in, want)
	case 1:
		return r.plan(onceStep.Name(), in, want)
	case 2:
		in.For = timerTime
		return r.plan(wait.Name(), in, want)
	}
	in.For = parkedFor
	p := r.plan(parked.Name(), in, want)
	p.wake = true
	return p
}

// steady looks how many of the mix can be done in a second, and then starts half as many each second, whether those before have ended or not.
func steady(ctx context.Context, r *run) error {
	const inFlight = 256
	if err := r.warmUp(ctx, 64, r.mix); err != nil {
		return err
	}
	warm, begun := r.started, time.Now()
	if err := r.driver.flood(ctx, inFlight, forAWhile(pick(r, time.Second/2, 5*time.Second, 10*time.Second), r.mix)); err != nil {
		return err
	}
	peak := float64(r.started-warm) / time.Since(begun).Seconds()
	r.result.Figures["peak_per_second"] = rounded(peak, 1)
	duration := r.window(2*time.Second, 20*time.Second, 5*time.Minute)
	samples := &samples{}
	stop := samples.collect(ctx, r.system, max(duration/300, 100*time.Millisecond))
	warm = r.started
	err := r.measure(ctx, func() (int, error) {
		err := r.driver.pace(ctx, peak/2, duration, r.mix)
		return r.started - warm, err
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	var took []time.Duration
	kinds := make(map[string][]time.Duration)
	for _, b := range r.driver.endedSince(warm) {
		t := b.ended.Sub(b.started)
		if b.orchestration == wait.Name() {
			t -= timerTime
		}
		took = append(took, t)
		kinds[b.orchestration] = append(kinds[b.orchestration], t)
	}
	r.noteLatencies(took)
	for kind, took := range kinds {
		r.result.Figures["p99_ms_"+strings.ReplaceAll(kind, "-", "_")] = rounded(percentile(milliseconds(took), 0.99), 2)
	}
	r.result.Compared = "p99_ms"
	half := len(samples.seconds) / 2 // what is needed at all is there by then
	for name, mb := range samples.memory {
		if name != "client" { // it remembers everything that it has started
			r.result.Figures["rss_mb_per_minute_"+name] = rounded(60*slope(samples.seconds[half:], mb[half:]), 2)
		}
	}
	r.result.MemoryAt, r.result.Memory = samples.seconds, samples.memory
	return nil
}

// pace starts so many instances in a second, for a while, and waits until all have ended. They count from when they should have been started: who is late to start them
// is not to hide that others wait.
func (d *driver) pace(ctx context.Context, perSecond float64, duration time.Duration, next func() plan) error {
	ctx, cancel := d.watched(ctx)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	begun, done := time.Now(), 0
	for done < int(perSecond*duration.Seconds()) {
		var plans []plan
		for due := int(perSecond * time.Since(begun).Seconds()); done < due && len(plans) < 256; done++ {
			p := next()
			p.at = begun.Add(time.Duration(float64(done) / perSecond * float64(time.Second)))
			plans = append(plans, p)
		}
		if len(plans) > 0 {
			wait.Go(func() {
				if err := d.start(ctx, nil, plans...); err != nil {
					mu.Lock()
					failed = fmt.Errorf("starting: %w", err)
					mu.Unlock()
				}
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	wait.Wait()
	if failed != nil {
		return failed
	}
	return d.allEnd(ctx)
}

// samples are how much memory the processes had, over time.
type samples struct {
	seconds []float64
	memory  map[string][]float64 // MB
}

// collect samples until it is stopped.
func (s *samples) collect(ctx context.Context, of *system, every time.Duration) (stop func() error) {
	s.memory = make(map[string][]float64)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	begun := time.Now()
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			usages, err := of.usages()
			if err != nil {
				ended <- err
				return
			}
			s.seconds = append(s.seconds, rounded(time.Since(begun).Seconds(), 1))
			for name, u := range usages {
				s.memory[name] = append(s.memory[name], rounded(float64(u.rss)/(1<<20), 1))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				ended <- nil
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}
