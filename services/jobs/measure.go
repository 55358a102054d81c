package jobserver

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
)

// count counts what has become of items. What was refused may have put items back all the same.
func (s *Server) count(op jobs.Operation, r jobs.Result) { countItems(s.config.Metrics, op, r) }

func countItems(m *telemetry.Metrics, op jobs.Operation, r jobs.Result) {
	switch op.(type) {
	case jobs.Push:
		if !r.Again {
			m.QueueItems(telemetry.ItemsPushed, r.Count)
		}
	case jobs.Pop:
		m.QueueItems(telemetry.ItemsPopped, r.Count)
	case jobs.Acknowledge:
		m.QueueItems(telemetry.ItemsAcknowledged, r.Count)
	case jobs.Return:
		m.QueueItems(telemetry.ItemsReturned, r.Count)
	}
	m.QueueItems(telemetry.ItemsExpired, r.Expired)
	m.QueueItems(telemetry.ItemsDied, r.Died)
}

// Counted is a store that counts what becomes of items, as the server does for what it is asked.
func Counted(store jobs.Store, m *telemetry.Metrics) jobs.Store {
	if m == nil {
		return store
	}
	return counted{store, m}
}

type counted struct {
	jobs.Store
	metrics *telemetry.Metrics
}

// Do implements [jobs.Store].
func (c counted) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := c.Store.Do(ctx, name, operations...)
	for n, r := range results {
		countItems(c.metrics, operations[n], r)
	}
	return results, err
}

// watchEvery is how often is looked how queues stand, and watchMost at how many of them.
const (
	watchEvery = 15 * time.Second
	watchMost  = 100
)

// watch looks how queues stand from time to time, and tells that whenever somebody reads the
// metrics.
func (s *Server) watch(ctx context.Context) {
	if s.config.Metrics == nil {
		return
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var stop func()
	for {
		all, err := s.standings(ctx)
		if stop != nil {
			stop()
			stop = nil
		}
		if err != nil && ctx.Err() == nil {
			s.config.Logger.WarnContext(ctx,
				"how queues stand cannot be read; their metrics have no values until it can", "error", err)
		} else {
			stop = s.config.Metrics.Watch(func(tell telemetry.Tell) {
				for _, i := range all {
					s.tell(i, tell)
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

func (s *Server) standings(ctx context.Context) ([]jobs.Info, error) {
	all, err := s.store.List(ctx, "", watchMost)
	for n, i := range all {
		if err != nil {
			return nil, err
		}
		if i.Depth() > 0 {
			all[n], err = s.store.Look(ctx, i.Queue)
		}
	}
	return all, err
}

func (s *Server) tell(i jobs.Info, tell telemetry.Tell) {
	name := s.config.Metrics.Queue(i.Queue)
	tell(telemetry.MetricQueueDepth, float64(i.Depth()), name)
	tell(telemetry.MetricQueueLocked, float64(i.Locked), name)
	tell(telemetry.MetricQueueDead, float64(i.Dead), name)
	if a := age(i); a != nil {
		tell(telemetry.MetricQueueOldest, *a, name)
	} else {
		tell(telemetry.MetricQueueOldest, 0, name)
	}
}
