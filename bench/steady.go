package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// steady looks how many of the mix can be done in a second, and then starts half as many each second, or as many as somebody says, whether those before have ended or not.
func steady(ctx context.Context, r *run) error {
	if err := r.warmUp(ctx, 64, r.mix); err != nil {
		return err
	}
	rate := r.o.rate
	if rate == 0 {
		peak, err := r.peak(ctx)
		if err != nil {
			return err
		}
		rate = peak / 2
	}
	duration := r.window(2*time.Second, 20*time.Second, 5*time.Minute)
	samples := &samples{begun: time.Now()}
	stop := samples.collect(ctx, r.system, max(duration/300, 200*time.Millisecond))
	warm := r.started
	err := r.measure(ctx, func() (int, error) {
		err := r.driver.pace(ctx, rate, duration, r.mix)
		return r.started - warm, err
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	r.noteSteady(r.driver.endedSince(warm), samples)
	return nil
}

// peak is how many of the mix can be done in a second.
func (r *run) peak(ctx context.Context) (float64, error) {
	const inFlight = 256
	warm, begun := r.started, time.Now()
	err := r.driver.flood(ctx, inFlight, forAWhile(pick(r, time.Second/2, 5*time.Second, 10*time.Second), r.mix))
	peak := float64(r.started-warm) / time.Since(begun).Seconds()
	r.result.Figures["peak_per_second"] = rounded(peak, 1)
	return peak, err
}

// noteSteady notes how long instances took, of each kind, and how memory grew.
func (r *run) noteSteady(ended []*begun, samples *samples) {
	var took, undisturbed []time.Duration
	kinds := make(map[string][]time.Duration)
	for _, b := range ended {
		t := b.ended.Sub(b.started)
		if b.orchestration == wait.Name() {
			t -= timerTime
		}
		took = append(took, t)
		kinds[b.orchestration] = append(kinds[b.orchestration], t)
		if !samples.disturbed(b.started.Sub(samples.begun), b.ended.Sub(samples.begun)) {
			undisturbed = append(undisturbed, t)
		}
	}
	r.noteLatencies(took)
	r.result.Compared = "p99_ms"
	r.result.Figures["undisturbed_percent"] = rounded(100*float64(len(undisturbed))/float64(max(1, len(took))), 1)
	if len(undisturbed) > 0 {
		r.result.Figures["p99_ms_undisturbed"] = rounded(percentile(milliseconds(undisturbed), 0.99), 2)
	}
	for kind, took := range kinds {
		r.result.Figures["p99_ms_"+strings.ReplaceAll(kind, "-", "_")] = rounded(percentile(milliseconds(took), 0.99), 2)
	}
	half := len(samples.seconds) / 2 // what is needed at all is there by then
	for name, mb := range samples.memory {
		if name != "client" { // it remembers everything that it has started
			r.result.Figures["rss_mb_per_minute_"+name] = rounded(60*slope(samples.seconds[half:], mb[half:]), 2)
		}
	}
	r.result.MemoryAt, r.result.Memory, r.result.Stolen = samples.seconds, samples.memory, samples.stolen
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

// samples are how much memory the processes had, and how much of the processors others took, over time.
type samples struct {
	begun   time.Time
	seconds []float64
	memory  map[string][]float64 // MB
	stolen  []float64            // percent of all processors, since the sample before
}

// A machine of whose processors others took so much is disturbed, and for as long afterwards as it may take until what has piled up is done.
const (
	stolenMuch = 2.0 // percent
	aftermath  = 1.0 // seconds
)

// disturbed tells whether the machine did not get its processors at some time from a moment to another, or shortly before. It does not look at what was measured.
func (s *samples) disturbed(from, to time.Duration) bool {
	first, _ := slices.BinarySearch(s.seconds, from.Seconds()-aftermath)
	for i := first; i < len(s.seconds); i++ { // each sample is about the time before it
		if s.stolen[i] >= stolenMuch {
			return true
		}
		if s.seconds[i] >= to.Seconds() {
			return false
		}
	}
	return false
}

// collect samples until it is stopped.
func (s *samples) collect(ctx context.Context, of *system, every time.Duration) (stop func() error) {
	s.memory = make(map[string][]float64)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		before, err := timesOfMachine()
		for err == nil {
			select {
			case <-tick.C:
				before, err = s.add(of, before)
			case <-ctx.Done():
				ended <- nil
				return
			}
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

func (s *samples) add(of *system, before machineTimes) (machineTimes, error) {
	now, err := timesOfMachine()
	if err != nil {
		return before, err
	}
	usages, err := of.usages()
	if err != nil {
		return before, err
	}
	s.seconds = append(s.seconds, rounded(time.Since(s.begun).Seconds(), 2))
	s.stolen = append(s.stolen, rounded(100*(now.stolen-before.stolen).Seconds()/max(now.all-before.all, time.Millisecond).Seconds(), 1))
	for name, u := range usages {
		s.memory[name] = append(s.memory[name], rounded(float64(u.rss)/(1<<20), 1))
	}
	return now, nil
}
