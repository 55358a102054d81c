package jobserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
)

// countJobs counts the changes of jobs. A refused operation may have settled some, too.
func countJobs(m *telemetry.JobMetrics, op jobs.Operation, r jobs.Result) {
	switch op.(type) {
	case jobs.Push:
		if !r.Again {
			m.Changed(telemetry.JobsPushed, r.Count)
		}
	case jobs.Pop:
		m.Changed(telemetry.JobsPopped, r.Count)
	case jobs.Acknowledge:
		m.Changed(telemetry.JobsAcknowledged, r.Count)
	case jobs.Return:
		m.Changed(telemetry.JobsReturned, r.Count)
	default:
	}
	m.Changed(telemetry.JobsExpired, r.Expired)
	m.Changed(telemetry.JobsDied, r.Died)
}

// Counted returns a store that counts the changes of jobs, as the server does for its requests.
func Counted(store jobs.Store, m *telemetry.Metrics) jobs.Store {
	if m == nil {
		return store
	}
	return counted{store, m.Jobs()}
}

type counted struct {
	jobs.Store
	metrics *telemetry.JobMetrics
}

// Do implements [jobs.Store].
func (c counted) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := c.Store.Do(ctx, name, operations...)
	for n, r := range results {
		countJobs(c.metrics, operations[n], r)
	}
	return results, err
}

// watchEvery is the interval of reading the states of queues, watchMost their number.
const (
	watchEvery = 15 * time.Second
	watchMost  = 100
)

// watcher exports the states of the first queues.
type watcher struct {
	store   jobs.Store
	metrics *telemetry.Metrics // nil: no export
	log     *slog.Logger
}

// run reads the states of queues at intervals, and exports them with the metrics.
func (w *watcher) run(ctx context.Context) {
	if w.metrics == nil {
		return
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var stop func()
	for {
		all, err := w.standings(ctx)
		if stop != nil {
			stop()
			stop = nil
		}
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx,
				"how queues stand cannot be read; their metrics have no values until it can", "error", err)
		} else {
			stop = w.metrics.Watch(func(record telemetry.Record) {
				for _, i := range all {
					w.tell(i, record)
				}
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		}
	}
}

func (w *watcher) standings(ctx context.Context) ([]jobs.Info, error) {
	all, err := w.store.List(ctx, "", watchMost)
	for n, i := range all {
		if err != nil {
			return nil, err
		}
		if i.Depth() > 0 {
			all[n], err = w.store.Look(ctx, i.Queue)
		}
	}
	return all, err
}

func (w *watcher) tell(i jobs.Info, record telemetry.Record) {
	name := w.metrics.Jobs().Label(i.Queue)
	record(telemetry.MetricJobsDepth, float64(i.Depth()), name)
	record(telemetry.MetricJobsLocked, float64(i.Locked), name)
	record(telemetry.MetricJobsDead, float64(i.Dead), name)
	if a := age(i); a != nil {
		record(telemetry.MetricJobsOldest, *a, name)
	} else {
		record(telemetry.MetricJobsOldest, 0, name)
	}
}
