package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file is W10: half of the machine's peak rate, for long.

// timerTime is how long the timers of the mix are. It is not counted as latency.
const timerTime = 100 * time.Millisecond

// mix plans a fourth of each: an activity, an inline step, a timer, and an event, which is raised
// at once.
func (r *run) mix() plan {
	switch r.started % 4 {
	case 0:
		return r.plan(once.Name(), 1, job{})
	case 1:
		return r.plan(onceStep.Name(), 1, job{})
	case 2:
		return r.plan(wait.Name(), 1, job{For: timerTime})
	}
	p := r.plan(parked.Name(), 1, job{For: parkedFor})
	p.wake = true
	return p
}

// steady measures the peak rate of the mix, and then starts half as many instances each second, or
// as many as the flag -rate says, whether those before have ended or not.
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
	if err := r.settle(ctx, rate, 2*duration/5); err != nil {
		return err
	}
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
	samples.stalls = r.stalls
	r.noteSteady(r.driver.endedSince(warm), samples)
	return nil
}

// settle has the load go on for a while before anything counts. A database that was just made
// writes each file of its log twice, the first time to make it, until it can use old ones again:
// that is after its first checkpoint, which comes after one to two minutes here. And 30 seconds
// after the first write, the system begins to write to the disk beside it.
func (r *run) settle(ctx context.Context, rate float64, duration time.Duration) error {
	warm := r.started
	if err := r.driver.pace(ctx, rate, duration, r.mix); err != nil {
		return err
	}
	var took []time.Duration
	for _, i := range r.driver.endedSince(warm) {
		took = append(took, r.driver.all.latency(i))
	}
	r.result.Figures["settling_p99_ms"] = rounded(percentile(milliseconds(took), 0.99), 2)
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
func (r *run) noteSteady(ended []*instance, samples *samples) {
	var took, undisturbed []time.Duration
	kinds := make(map[string][]time.Duration)
	offset := samples.begun.Sub(r.driver.all.began)
	for _, i := range ended {
		t, kind := r.driver.all.latency(i), r.driver.all.orchestrationOf(i)
		took = append(took, t)
		kinds[kind] = append(kinds[kind], t)
		if !samples.disturbed(i.started-offset, i.ended-offset) {
			undisturbed = append(undisturbed, t)
		}
	}
	r.result.latencies = latenciesOf(took)
	r.result.Compared = "p99_ms"
	r.result.Figures["undisturbed_percent"] = rounded(100*float64(len(undisturbed))/float64(max(1, len(took))), 1)
	if len(undisturbed) > 0 {
		r.result.Figures["p99_ms_undisturbed"] = rounded(percentile(milliseconds(undisturbed), 0.99), 2)
	}
	for kind, took := range kinds {
		r.result.Figures["p99_ms_"+strings.ReplaceAll(kind, "-", "_")] = rounded(percentile(milliseconds(took), 0.99),
			2)
	}
	half := len(samples.seconds) / 2 // caches and pools have their size by then
	for name, mb := range samples.memory {
		if name != "client" { // it remembers everything that it has started
			r.result.Figures["rss_mb_per_minute_"+name] = rounded(60*slope(samples.seconds[half:], mb[half:]), 2)
		}
	}
	r.result.course = course{MemoryAt: samples.seconds, Memory: samples.memory, CPUAt: samples.cpu,
		Stolen: samples.stolen, At99: samples.worst(ended, offset, r.driver.all.latency)}
}

// latency is how long an instance took, without its timer.
func (x *instances) latency(i *instance) time.Duration {
	if x.orchestrationOf(i) == wait.Name() {
		return i.took() - timerTime
	}
	return i.took()
}

// pace starts so many instances in a second, for a while, and waits until all have ended. Their
// latency counts from when they should have been started, so that a driver that starts them late
// does not hide their wait (coordinated omission).
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

// samples are how much memory the processes had, how much of the processors they took, and how much
// others did, over time.
type samples struct {
	begun   time.Time
	seconds []float64
	memory  map[string][]float64 // MB
	cpu     map[string][]float64 // percent of one processor, since the sample before
	stolen  []float64            // percent of all processors, since the sample before
	stalls  []stall              // of the disk
}

// A machine is disturbed if other machines took so much of its processors, or if its disk stalled,
// and for as long afterwards as the backlog may take.
const (
	stolenMuch = 2.0 // percent
	aftermath  = 1.0 // seconds
)

// disturbed reports whether the machine did not get its processors or its disk at some time between
// two moments, or shortly before. It does not depend on the measured latencies.
func (s *samples) disturbed(from, to time.Duration) bool {
	for _, still := range s.stalls {
		if from.Seconds() < still.to.Sub(s.begun).Seconds()+aftermath && to >= still.from.Sub(s.begun) {
			return true
		}
	}
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
	s.memory, s.cpu = make(map[string][]float64), make(map[string][]float64)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		before, err := sampleOf(of)
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

// sample is what processes have used, and the machine was used, until a moment.
type sample struct {
	at      time.Time
	machine machineTimes
	usages  map[string]usage
}

func sampleOf(of *system) (now sample, err error) {
	now.at = time.Now()
	if now.machine, err = timesOfMachine(); err == nil {
		now.usages, err = of.usages()
	}
	return now, err
}

func (s *samples) add(of *system, before sample) (sample, error) {
	now, err := sampleOf(of)
	if err != nil {
		return before, err
	}
	all := max(now.machine.all-before.machine.all, time.Millisecond)
	s.seconds = append(s.seconds, rounded(now.at.Sub(s.begun).Seconds(), 2))
	s.stolen = append(s.stolen, rounded(100*(now.machine.stolen-before.machine.stolen).Seconds()/all.Seconds(), 1))
	for name, u := range now.usages {
		s.memory[name] = append(s.memory[name], rounded(float64(u.rss)/(1<<20), 1))
		s.cpu[name] = append(s.cpu[name],
			rounded(100*(u.cpu-before.usages[name].cpu).Seconds()/now.at.Sub(before.at).Seconds(), 1))
	}
	return now, nil
}

// worst gives, for each sample, the latency that 99 of 100 had of those instances that have ended
// since the sample before; 0 if none has. The offset is when the first sample began.
func (s *samples) worst(ended []*instance, offset time.Duration, latency func(*instance) time.Duration) (at []float64) {
	for _, second := range s.seconds {
		until := offset + time.Duration(second*float64(time.Second))
		n, _ := slices.BinarySearchFunc(ended, until, func(i *instance, t time.Duration) int {
			return cmp.Compare(i.ended, t)
		})
		var took []time.Duration
		for _, i := range ended[:n] {
			took = append(took, latency(i))
		}
		p99 := 0.0
		if n > 0 {
			p99 = rounded(percentile(milliseconds(took), 0.99), 1)
		}
		at, ended = append(at, p99), ended[n:]
	}
	return at
}
