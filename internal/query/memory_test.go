package query_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// measured is a store that measures the data of the largest page that is read at once.
type measured struct {
	query.Store
	reader history.BoundedReader
	most   *int
}

func (m measured) note(sizes ...int) {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	*m.most = max(*m.most, sum)
}

func (m measured) Within(bytes int) history.BoundedReader {
	return measured{m.Store, m.Store.Within(bytes), m.most}
}

func (m measured) List(ctx context.Context, f history.Filter, p history.Page) (history.InstanceList, error) {
	list, err := m.reader.List(ctx, f, p)
	var sizes []int
	for _, i := range list.Instances {
		sizes = append(sizes, len(i.Output))
	}
	m.note(sizes...)
	return list, err
}

func (m measured) Executions(ctx context.Context, id string, after int64, limit int) ([]history.ExecutionInfo, error) {
	list, err := m.reader.Executions(ctx, id, after, limit)
	var sizes []int
	for _, x := range list {
		sizes = append(sizes, len(x.Output))
	}
	m.note(sizes...)
	return list, err
}

func (m measured) Events(ctx context.Context, id string, x, after int64, limit int) ([]events.Event, error) {
	list, err := m.reader.Events(ctx, id, x, after, limit)
	var sizes []int
	for _, e := range list {
		sizes = append(sizes, e.Fact.Size())
	}
	m.note(sizes...)
	return list, err
}

func (m measured) ListSchedules(ctx context.Context, f history.ScheduleFilter,
	p history.Page) (history.ScheduleList, error) {
	list, err := m.reader.ListSchedules(ctx, f, p)
	var sizes []int
	for _, s := range list.Schedules {
		sizes = append(sizes, len(s.Data))
	}
	m.note(sizes...)
	return list, err
}

// TestPagesAreReadWithinBytes: however large the rows are, a request has few of them read at once,
// and the pages together have all of them.
func TestPagesAreReadWithinBytes(t *testing.T) {
	const rows, size = 12, 256 << 10
	s := newSystem(t, query.Options{})
	output := `"` + strings.Repeat("x", size-2) + `"`
	for n := range rows {
		a := historytest.NewActor(fmt.Sprint("listed-", n))
		s.commit(t, a.Start(), a.Complete(output))
	}
	a := historytest.NewActor("a")
	for n := range rows {
		s.commit(t, a.Start(historytest.WithMessage(fmt.Sprint(n))), a.Complete(output))
	}
	b := historytest.NewActor("b")
	s.commit(t, b.Start())
	for range rows {
		s.commit(t, b.Say(&events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(output)}))
	}
	m := measured{s.store, s.store, new(int)}
	broker := newBroker()
	stop, err := query.Answer(broker, m, query.Options{})
	must(t, err)
	defer stop()
	r := query.NewPatientReader(broker)
	for what, read := range map[string]func() (int, error){
		"list": func() (n int, err error) {
			for p := (history.Page{}); err == nil; {
				var list history.InstanceList
				list, err = r.List(t.Context(), history.Filter{IDPrefix: "listed-"}, p)
				n += len(list.Instances)
				if p.Cursor = list.Next; p.Cursor == "" {
					break
				}
			}
			return n, err
		},
		"executions": func() (int, error) {
			list, err := r.Executions(t.Context(), "a", 0, 100)
			return len(list), err
		},
		"events": func() (int, error) {
			list, err := r.Events(t.Context(), "b", 0, 0, 100)
			return len(list) - 1, err
		},
	} {
		*m.most = 0
		if n, err := read(); n != rows || err != nil {
			t.Errorf("%s: got %d of %d rows, %v", what, n, rows, err)
		}
		if *m.most < size || *m.most > 3*size {
			t.Errorf("%s: %d bytes are read at once, with rows of %d", what, *m.most, size)
		}
	}
}

// whole is a store that counts how many histories are read at once.
type whole struct {
	query.Store
	mu        sync.Mutex
	now, most int
	began     chan struct{}
	proceed   chan struct{}
}

func (w *whole) Instance(ctx context.Context, id string) (history.Info, error) {
	w.mu.Lock()
	w.now++
	w.most = max(w.most, w.now)
	w.mu.Unlock()
	w.began <- struct{}{}
	<-w.proceed
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}()
	return w.Store.Instance(ctx, id)
}

// TestFewHistoriesAreReadAtOnce: requests that need a whole history wait for one another, and not
// in the place of other requests.
func TestFewHistoriesAreReadAtOnce(t *testing.T) {
	s := newSystem(t, query.Options{})
	a := historytest.NewActor("a")
	s.commit(t, a.Start())
	const requests = 40 // more than are answered at once
	w := &whole{Store: s.store, began: make(chan struct{}, requests), proceed: make(chan struct{})}
	broker := newBroker()
	stop, err := query.Answer(broker, w, query.Options{})
	must(t, err)
	defer stop()
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if _, err := broker.Request(t.Context(), query.MethodWaiting, []byte(`{"instance":"a"}`)); err != nil {
				t.Error(err)
			}
		})
	}
	<-w.began
	if _, err := broker.Request(t.Context(), query.MethodMetrics, nil); err != nil {
		t.Errorf("another request: %v", err)
	}
	close(w.proceed)
	all.Wait()
	if w.most > 2 {
		t.Errorf("%d histories are read at once", w.most)
	}
}
