package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// weighing is a store that notes how large the histories of one load are together.
type weighing struct {
	*store
	loads   [][]string
	largest int64 // of several together
}

func (s *weighing) Load(ctx context.Context, ids []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	var sum int64
	var read []string
	known, err := s.store.Load(ctx, ids, func(id string, row round.Row) bool {
		if !admit(id, row) {
			return false
		}
		if !admit(id, row) { // a store may ask again
			panic("another decision")
		}
		sum, read = sum+row.HistoryBytes, append(read, id)
		return true
	})
	if len(read) > 1 {
		s.largest = max(s.largest, sum)
	}
	s.loads = append(s.loads, read)
	return known, err
}

// TestHistoriesAreReadInPortions: a process must not have the histories of a whole page in memory.
func TestHistoriesAreReadInPortions(t *testing.T) {
	const n, size, most = 50, 8 << 20, 16 << 20
	for name, heal := range map[string]func(*fakeBroker, *weighing) error{
		"overdue": func(b *fakeBroker, s *weighing) error {
			h := healer(b, s.store)
			h.Store = s
			_, err := h.Overdue(t.Context(), 500)
			return err
		},
		"all": func(b *fakeBroker, s *weighing) error {
			h := healer(b, s.store)
			h.Store = s
			_, err := h.All(t.Context(), time.Now())
			return err
		},
		"sweep": func(b *fakeBroker, s *weighing) error {
			sweeper := outbox.Sweeper{Broker: b, Store: s, Prefix: "rondo", After: time.Second, Hold: time.Minute,
				Log: silent}
			_, err := sweeper.Sweep(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := &fakeBroker{}, &weighing{store: &store{known: make(map[string]round.Known)}}
			for i := range n {
				id := fmt.Sprint("i", i)
				k := parked(round.Running, &events.ActivityScheduled{Name: "a", Attempt: 1})
				if k.Row.HistoryBytes = size; i%10 == 0 {
					k.Row.HistoryBytes = events.MaxHistoryBytes // more than a portion
				}
				s.known[id], s.overdue = k, append(s.overdue, id)
				ref := events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2}
				w, err := events.Encode("rondo", events.Message{Instance: id,
					ID:      events.MessageID(events.VerbTask, id, ref),
					Content: &events.Task{Ref: ref, Activity: "a", Attempt: 1}})
				if err != nil {
					t.Fatal(err)
				}
				s.entries = append(s.entries, history.OutboxEntry{Key: history.OutboxKey{ID: int64(i)},
					Messages: []events.Wire{w}})
			}
			if err := heal(b, s); err != nil {
				t.Fatal(err)
			}
			published := make(map[string]bool)
			for _, subject := range b.subjects() {
				published[subject] = true
			}
			for i := range n {
				if task := fmt.Sprintf("rondo.task._.a.1-2-incarnation.i%d", i); !published[task] {
					t.Errorf("%s is not published", task)
				}
			}
			if s.largest > most || s.largest == 0 {
				t.Errorf("%d MiB of histories were read at once, want at most %d", s.largest>>20, int64(most)>>20)
			}
			if len(s.loads) > n {
				t.Errorf("%d loads of %d instances: %v", len(s.loads), n, s.loads)
			}
		})
	}
}
