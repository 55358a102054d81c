package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// This file is W9: how long it takes until instances go on after processes were killed.

// crashes are the variants of W9, one for each set of processes to kill.
func crashes() []variant {
	return []variant{
		{name: "orchestrator killed", run: func(ctx context.Context, r *run) error {
			return r.crashed(ctx, func() error {
				o := r.orchestrators[0]
				o.kill()
				return o.start()
			})
		}},
		{name: "everything killed", run: func(ctx context.Context, r *run) error { return r.crashed(ctx, r.crashAll) }},
	}
}

// crashed starts many instances of some activities in sequence, kills when the first ones have
// ended, and measures from there.
func (r *run) crashed(ctx context.Context, crash func() error) error {
	n, count := pick(r, 100, 3000, 10_000), pick(r, 20, 5, 5)
	next := r.sized(sequence.Name(), count)
	if err := r.warmUp(ctx, n, next); err != nil {
		return err
	}
	warm := r.started
	all := make(chan error, 1)
	go func() { all <- r.driver.flood(ctx, n, some(n, next)) }()
	if err := r.driver.awaitEnds(ctx, warm+n, n/20, all); err != nil {
		return err
	}
	killed := time.Now()
	if err := crash(); err != nil {
		return err
	}
	ready := time.Since(killed)
	if err := <-all; err != nil {
		return err
	}
	return r.noteRecovery(ctx, warm, killed, ready)
}

// noteRecovery records when instances continued. The end counts as their histories have it: a
// waiting client hears of it a moment later, or, if the connection was lost just then, when it asks
// the store.
func (r *run) noteRecovery(ctx context.Context, warm int, killed time.Time, ready time.Duration) error {
	ends, err := r.endsSince(ctx, warm, killed)
	if err != nil {
		return err
	}
	if len(ends) == 0 {
		return errors.New("everything had ended before something was killed: start more instances")
	}
	usages, err := r.usages()
	if err != nil {
		return err
	}
	r.result.noteMemory(usages)
	last := percentile(ends, 1)
	r.result.throughput = throughputOf(len(ends), last)
	r.result.Compared = "first_seconds"
	r.result.Figures["ready_seconds"] = rounded(ready.Seconds(), 3)
	r.result.Figures["first_seconds"] = rounded(ends[0], 3)
	r.result.Figures["half_seconds"] = rounded(percentile(ends, 0.5), 3)
	r.result.Figures["all_seconds"] = rounded(last, 3)
	return nil
}

// endsSince lists how many seconds after a moment instances have ended.
func (r *run) endsSince(ctx context.Context, warm int, moment time.Time) (ends []float64, err error) {
	var late []time.Duration
	err = eachInstance(ctx, r.store, func(info history.Info) error {
		if i := r.driver.all.of(info.Instance); i != nil && int(i.number) > warm && info.EndedAt.After(moment) {
			late = append(late, info.EndedAt.Sub(moment))
		}
		return nil
	})
	for _, ms := range milliseconds(late) {
		ends = append(ends, ms/1000)
	}
	return ends, err
}

// crashAll kills everything at once, and starts everything at once.
func (r *run) crashAll() error {
	services := []*process{r.nats, r.worker}
	services = append(services, r.orchestrators...)
	if r.nats == nil {
		services = services[1:]
	}
	var wait sync.WaitGroup
	errs := make(chan error, 1+len(services))
	both := func(all, database func()) {
		wait.Go(all)
		if r.database.crash != nil {
			wait.Go(database)
		}
		wait.Wait()
	}
	both(func() {
		for _, p := range services {
			p.kill()
		}
	}, func() { errs <- r.database.crash() })
	both(func() {
		for _, p := range services {
			if err := p.spawn(); err != nil {
				errs <- err
				return
			}
		}
	}, func() { errs <- r.database.revive() })
	close(errs)
	var failed error
	for err := range errs {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return failed
	}
	for _, p := range services {
		failed = errors.Join(failed, p.await())
	}
	return failed
}

// awaitEnds waits until so many are started and so many of them have ended.
func (d *driver) awaitEnds(ctx context.Context, started, ended int, over <-chan error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		d.mu.Lock()
		enough := d.all.n >= started && started-d.due >= ended
		d.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-over:
			return errors.Join(err, errors.New("everything has ended too soon"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// eachInstance shows all instances that a store has.
func eachInstance(ctx context.Context, store history.Reader, see func(history.Info) error) error {
	page := history.Page{Limit: 1000}
	for {
		got, err := store.List(ctx, history.Filter{}, page)
		if err != nil {
			return fmt.Errorf("listing what is stored: %w", err)
		}
		for _, info := range got.Instances {
			if err := see(info); err != nil {
				return err
			}
		}
		if page.Cursor = got.Next; got.Next == "" {
			return nil
		}
	}
}
