package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

type storeMetrics struct {
	duration *histogram
	errors   *counter

	byStatus, byClass *labelled
}

func (m *storeMetrics) make(i *instruments) {
	m.duration, m.errors = i.histogram(MetricStoreDuration), i.counter(MetricStoreErrors)
	m.byStatus, m.byClass = newLabelled(LabelOperation, LabelStatus), newLabelled(LabelOperation, LabelClass)
}

// operation records one of the store's. That something is not there is an answer, and no error.
func (m *Metrics) operation(name string, began time.Time, err error) {
	failed := err != nil && !isAnswer(err)
	took(m.store.duration, time.Since(began), m.store.byStatus.of(key{a: name, b: said(failed, "error", "ok")}))
	if failed {
		add(m.store.errors, 1, m.store.byClass.of(key{a: name, b: history.ClassOf(err).String()}))
	}
}

// isAnswer reports whether an error says something about what was asked for, and nothing about the
// store.
func isAnswer(err error) bool {
	for _, answer := range []error{history.ErrNoInstance, history.ErrNoExecution, history.ErrRunning,
		history.ErrHasParent, history.ErrHasChildren, history.ErrBadCursor} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// Store gives a store whose operations are measured; without metrics, the store itself. Of its
// connections it tells if it can; see [history.Pooled].
func (m *Metrics) Store(s history.Store) history.Store {
	if m == nil || s == nil {
		return s
	}
	w := &measuredStore{m: m, s: s, stop: func() {}}
	if p, ok := s.(history.Pooled); ok {
		w.stop = m.Watch(func(tell Tell) {
			is := p.Pool()
			tell(MetricStoreConnections, float64(is.Used), "used")
			tell(MetricStoreConnections, float64(is.Idle), "idle")
			tell(MetricStoreMax, float64(is.Limit))
			tell(MetricStoreWaits, float64(is.Waits))
			tell(MetricStoreWaited, is.Waited.Seconds())
		})
	}
	return w
}

// measuredStore measures each operation of a store. It says nothing else about them: the contract
// is the store's.
type measuredStore struct {
	m    *Metrics
	s    history.Store
	stop func()
}

var _ history.Store = (*measuredStore)(nil)

func measured[T any](w *measuredStore, name string, do func() (T, error)) (T, error) {
	began := time.Now()
	x, err := do()
	w.m.operation(name, began, err)
	return x, err
}

func (w *measuredStore) Close() error {
	w.stop()
	return w.s.Close()
}

func (w *measuredStore) Ping(ctx context.Context) error {
	began := time.Now()
	err := w.s.Ping(ctx)
	w.m.operation("ping", began, err)
	return err
}

func (w *measuredStore) Load(ctx context.Context, instances []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	return measured(w, "load", func() ([]round.Known, error) { return w.s.Load(ctx, instances, admit) })
}

func (w *measuredStore) Commit(ctx context.Context, batch history.Batch) (history.Result, error) {
	return measured(w, "commit", func() (history.Result, error) { return w.s.Commit(ctx, batch) })
}

func (w *measuredStore) TakePromises(ctx context.Context, take history.Take) ([]history.Promise, error) {
	return measured(w, "take_promises", func() ([]history.Promise, error) { return w.s.TakePromises(ctx, take) })
}

func (w *measuredStore) RemovePromises(ctx context.Context, keys []history.PromiseKey) error {
	began := time.Now()
	err := w.s.RemovePromises(ctx, keys)
	w.m.operation("remove_promises", began, err)
	return err
}

func (w *measuredStore) CountPromises(ctx context.Context, limit int) (int, error) {
	return measured(w, "count_promises", func() (int, error) { return w.s.CountPromises(ctx, limit) })
}

func (w *measuredStore) TakeOverdue(ctx context.Context, take history.Take) ([]history.Overdue, error) {
	return measured(w, "take_overdue", func() ([]history.Overdue, error) { return w.s.TakeOverdue(ctx, take) })
}

func (w *measuredStore) List(ctx context.Context, filter history.Filter,
	page history.Page) (history.InstanceList, error) {
	return measured(w, "list", func() (history.InstanceList, error) { return w.s.List(ctx, filter, page) })
}

func (w *measuredStore) Count(ctx context.Context, filter history.Filter, limit int64) (int64, error) {
	return measured(w, "count", func() (int64, error) { return w.s.Count(ctx, filter, limit) })
}

func (w *measuredStore) Instance(ctx context.Context, instance string) (history.Info, error) {
	return measured(w, "instance", func() (history.Info, error) { return w.s.Instance(ctx, instance) })
}

func (w *measuredStore) Executions(ctx context.Context, instance string, after int64,
	limit int) ([]history.ExecutionInfo, error) {
	return measured(w, "executions", func() ([]history.ExecutionInfo, error) {
		return w.s.Executions(ctx, instance, after, limit)
	})
}

func (w *measuredStore) Events(ctx context.Context, instance string, execution, after int64,
	limit int) ([]events.Event, error) {
	return measured(w, "events", func() ([]events.Event, error) {
		return w.s.Events(ctx, instance, execution, after, limit)
	})
}

func (w *measuredStore) Stats(ctx context.Context, instance string) (history.Stats, error) {
	return measured(w, "stats", func() (history.Stats, error) { return w.s.Stats(ctx, instance) })
}

func (w *measuredStore) Values(ctx context.Context, instance string) (map[string]history.Value, error) {
	return measured(w, "values", func() (map[string]history.Value, error) { return w.s.Values(ctx, instance) })
}

func (w *measuredStore) Value(ctx context.Context, instance, key string) (value history.Value, ok bool, err error) {
	value, err = measured(w, "value", func() (v history.Value, err error) {
		v, ok, err = w.s.Value(ctx, instance, key)
		return v, err
	})
	return value, ok, err
}

func (w *measuredStore) CustomStatus(ctx context.Context, instance string, known int64) (history.CustomStatus, error) {
	return measured(w, "custom_status", func() (history.CustomStatus, error) {
		return w.s.CustomStatus(ctx, instance, known)
	})
}

func (w *measuredStore) Tree(ctx context.Context, instance string) ([]history.Node, error) {
	return measured(w, "tree", func() ([]history.Node, error) { return w.s.Tree(ctx, instance) })
}

func (w *measuredStore) Metrics(ctx context.Context) (history.Metrics, error) {
	return measured(w, "metrics", func() (history.Metrics, error) { return w.s.Metrics(ctx) })
}

func (w *measuredStore) ValuesOf(ctx context.Context, instances []string) (map[string]map[string]history.Value, error) {
	return measured(w, "values_of", func() (map[string]map[string]history.Value, error) {
		return w.s.ValuesOf(ctx, instances)
	})
}

func (w *measuredStore) Tombstones(ctx context.Context, instances []string) ([]string, error) {
	return measured(w, "tombstones", func() ([]string, error) { return w.s.Tombstones(ctx, instances) })
}

func (w *measuredStore) OldPromises(ctx context.Context, before time.Time, limit int) ([]history.Promise, error) {
	return measured(w, "old_promises", func() ([]history.Promise, error) { return w.s.OldPromises(ctx, before, limit) })
}

func (w *measuredStore) Delete(ctx context.Context, instances []string,
	how history.Deletion) (history.DeleteResult, error) {
	return measured(w, "delete", func() (history.DeleteResult, error) { return w.s.Delete(ctx, instances, how) })
}

func (w *measuredStore) DeleteEnded(ctx context.Context, filter history.Filter,
	page history.Page) (history.DeleteResultPage, error) {
	return measured(w, "delete_ended", func() (history.DeleteResultPage, error) {
		return w.s.DeleteEnded(ctx, filter, page)
	})
}

func (w *measuredStore) Prune(ctx context.Context, instance string, keep history.Keep) (history.DeleteResult, error) {
	return measured(w, "prune", func() (history.DeleteResult, error) { return w.s.Prune(ctx, instance, keep) })
}

func (w *measuredStore) PruneAll(ctx context.Context, filter history.Filter, keep history.Keep,
	page history.Page) (history.DeleteResultPage, error) {
	return measured(w, "prune_all", func() (history.DeleteResultPage, error) {
		return w.s.PruneAll(ctx, filter, keep, page)
	})
}

func (w *measuredStore) Tidy(ctx context.Context) (bool, error) {
	return measured(w, "tidy", func() (bool, error) { return w.s.Tidy(ctx) })
}
