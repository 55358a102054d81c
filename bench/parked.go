package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file is W7: many instances that wait for an event or a timer, and do nothing.

// parkedFor is how long their timers are: longer than this lasts.
const parkedFor = time.Hour

// parking has many instances wait, looks how much memory they take, wakes some, and starts the
// orchestrator again.
func parking(ctx context.Context, r *run) error {
	n := pick(r, 200, 20_000, 100_000)
	hydrated := min(n/2, 9000) // fewer than are kept in memory by default
	before, err := r.memory()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := r.parkMore(ctx, hydrated); err != nil {
		return err
	}
	some, err := r.memory()
	if err != nil {
		return err
	}
	if err := r.parkMore(ctx, n); err != nil {
		return err
	}
	seconds := time.Since(begun).Seconds()
	all, err := r.memory()
	if err != nil {
		return err
	}
	if r.o.profile != "" { // of the heap in use, too
		if err := r.orchestrators[0].begin(r.o.profile, "allocs",
			filepath.Join(r.o.profile, "parked.allocs")); err != nil {
			return err
		}
	}
	f := r.result.Figures
	f["stack_bytes_each"] = rounded((some.stacks-before.stacks)/float64(hydrated), 0)
	f["heap_bytes_each"] = rounded((some.heap-before.heap)/float64(hydrated), 0)
	f["rss_bytes_each"] = rounded((some.rss-before.rss)/float64(hydrated), 0)
	f["orchestrator_rss_mb"] = rounded(all.rss/(1<<20), 1)
	r.result.throughput = throughputOf(n, seconds)
	r.result.Compared = "served_seconds"
	if err := r.wakeSome(ctx); err != nil {
		return err
	}
	if err := r.lateness(ctx); err != nil {
		return err
	}
	if err := r.restart(ctx); err != nil {
		return err
	}
	usages, err := r.usages()
	r.result.noteMemory(usages)
	return err
}

// memory is the memory of the orchestrator after a garbage collection: reachable heap, stacks, and
// resident memory, without the free pages, which it has returned to the system.
type memory struct{ heap, stacks, rss float64 }

func (r *run) memory() (m memory, err error) {
	heap, err := r.orchestrators[0].order("memory")
	if err != nil {
		return m, err
	}
	stacks, err := r.orchestrators[0].order("stacks")
	if err != nil {
		return m, err
	}
	u, err := usageOf(r.orchestrators[0].pid())
	return memory{float64(heap), float64(stacks), float64(u.rss)}, err
}

// parkMore parks more instances, until there are so many, and waits until all of them wait.
func (r *run) parkMore(ctx context.Context, n int) error {
	err := r.driver.flood(ctx, n, some(n-r.started, func() plan {
		p := r.plan(parked.Name(), 1, job{For: parkedFor})
		p.open = true
		return p
	}))
	if err != nil {
		return err
	}
	return r.await(ctx, time.Second/10, fmt.Sprintf("%d instances wait", n), func() (bool, error) {
		m, err := scrape(ctx, r.orchestrators[0].found.Health)
		return m.sum("rondo_orchestration_starts_total") >= float64(n) && m.sum("rondo_outbox_unpublished") == 0, err
	})
}

// await asks again and again until something is true.
func (r *run) await(ctx context.Context, every time.Duration, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("that was waited for in vain: "+what))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wakeSome raises events for some instances, one after the other, most of which are not in memory,
// and notes how long it takes until they have ended.
func (r *run) wakeSome(ctx context.Context) error {
	var took []time.Duration
	for _, b := range r.anyParked(pick(r, 20, 200, 1000)) {
		begun := time.Now()
		err := r.driver.wake(ctx, b)
		if err == nil {
			err = r.driver.allEnd(ctx)
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(begun))
	}
	r.result.latencies = latenciesOf(took)
	return nil
}

// anyParked gives some of those that wait.
func (r *run) anyParked(n int) (list []*instance) {
	r.driver.mu.Lock()
	r.driver.all.each(1, func(i *instance) bool {
		if i.open && i.ended == 0 {
			list = append(list, i)
		}
		return true
	})
	r.driver.mu.Unlock()
	chance := rand.New(rand.NewPCG(1, 2)) // the same ones each time
	chance.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

// wake raises the event that instances wait for. They have to end then.
func (d *driver) wake(ctx context.Context, list ...*instance) error {
	var wires []events.Wire
	for _, i := range list {
		w, err := wakingUp(d.bus.Prefix(), d.all.id(int(i.number)), i.data())
		if err != nil {
			return err
		}
		wires = append(wires, w)
	}
	d.mu.Lock()
	for _, i := range list {
		i.open = false
		d.due++
	}
	d.lastEnd = time.Now()
	d.mu.Unlock()
	return d.bus.Publish(ctx, wires...)
}

func wakingUp(prefix, instance, data string) (events.Wire, error) {
	payload, err := json.Marshal(data)
	if err != nil {
		return events.Wire{}, err
	}
	return events.Encode(prefix, events.Message{ID: "wake-" + instance, Instance: instance,
		Content: &events.EventRaised{Name: wake.Name(), Data: payload}})
}

// lateness notes how late short timers are with all the others there.
func (r *run) lateness(ctx context.Context) error {
	const long = 3 * time.Second
	plans := some(pick(r, 10, 100, 300), func() plan {
		return r.plan(wait.Name(), 1, job{For: long})
	})
	first := r.started
	if err := r.driver.flood(ctx, 1000, plans); err != nil {
		return err
	}
	var late []time.Duration
	for _, i := range r.driver.endedSince(first) {
		info, err := r.store.Instance(ctx, r.driver.all.id(int(i.number)))
		if err != nil {
			return err
		}
		late = append(late, info.EndedAt.Sub(info.StartedAt)-long)
	}
	r.result.Figures["timer_late_p99_ms"] = rounded(percentile(milliseconds(late), 0.99), 1)
	return nil
}

// restart kills the orchestrator and starts it again, and notes when it answers a question about
// any instance, and when events have reached a sample of all.
func (r *run) restart(ctx context.Context) error {
	o := r.orchestrators[0]
	sample := r.anyParked(pick(r, 20, 200, 1000))
	o.kill()
	killed := time.Now()
	if err := o.spawn(); err != nil {
		return err
	}
	waking := make(chan error, 1)
	go func() {
		err := r.driver.wake(ctx, sample...)
		if err == nil {
			err = r.driver.allEnd(ctx)
		}
		waking <- err
	}()
	asked := r.anyParked(1)[0]
	if err := r.await(ctx, 10*time.Millisecond, "it answers", func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := query.NewReader(r.driver.bus).Instance(ctx, r.driver.all.id(int(asked.number)))
		return err == nil, nil
	}); err != nil {
		return err
	}
	r.result.Figures["answered_seconds"] = rounded(time.Since(killed).Seconds(), 3)
	if err := o.await(); err != nil {
		return err
	}
	r.result.Figures["ready_seconds"] = rounded(time.Since(killed).Seconds(), 3)
	err := <-waking
	r.result.Figures["served_seconds"] = rounded(time.Since(killed).Seconds(), 3)
	return err
}
