package telemetry

import (
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// storeMetrics records the operations of a store.
type storeMetrics struct {
	duration *histogram
	errors   *counter

	byStatus, byClass *labelled
}

func (m *storeMetrics) make(i *instruments) {
	m.duration, m.errors = i.histogram(MetricStoreDuration), i.counter(MetricStoreErrors)
	m.byStatus, m.byClass = newLabelled(LabelOperation, LabelStatus), newLabelled(LabelOperation, LabelClass)
}

// operation records an operation of the store. That something does not exist is an answer, not an
// error.
func (m *storeMetrics) operation(name string, d time.Duration, err error) {
	failed := err != nil && !isAnswer(err)
	took(m.duration, d, m.byStatus.of(key{a: name, b: said(failed, "error", "ok")}))
	if failed {
		add(m.errors, 1, m.byClass.of(key{a: name, b: history.ClassOf(err).String()}))
	}
}

// isAnswer reports whether an error is about the request, and not about the store.
func isAnswer(err error) bool {
	for _, answer := range []error{history.ErrNoInstance, history.ErrNoExecution, history.ErrRunning,
		history.ErrHasParent, history.ErrHasChildren, history.ErrBadCursor} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// StoreObserver returns the recorder of a store's operations, for the options that open the store;
// nil if m is nil.
func (m *Metrics) StoreObserver() history.Observer {
	if m == nil {
		return nil
	}
	return m.store.operation
}

// Pool exports metrics of a store's connections, until stop is called.
func (m *Metrics) Pool(p history.Pooled) (stop func()) {
	return m.Watch(func(record Record) {
		is := p.Pool()
		record(MetricStoreConnections, float64(is.Used), "used")
		record(MetricStoreConnections, float64(is.Idle), "idle")
		record(MetricStoreMax, float64(is.Limit))
		record(MetricStoreWaits, float64(is.Waits))
		record(MetricStoreWaited, is.Waited.Seconds())
	})
}
