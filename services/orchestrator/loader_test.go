package orchestrator

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// largeStore has an instance of each number, with a large history. It counts the bytes of those
// that were read.
type largeStore struct {
	size          func(n int) int64
	held, largest atomic.Int64
	loads         atomic.Int64
	read          sync.Map // by id
}

func (s *largeStore) Load(_ context.Context, ids []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	s.loads.Add(1)
	known := make([]round.Known, len(ids))
	for i, id := range ids {
		n, _ := strconv.Atoi(id)
		row := round.Row{Execution: 1, Engine: events.Engine, HistoryBytes: s.size(n)}
		known[i] = round.Known{Instance: id, Row: row}
		if admit(id, row) {
			s.read.Store(id, true)
			if is := s.held.Add(row.HistoryBytes); is > s.largest.Load() {
				s.largest.Store(is)
			}
		}
	}
	return known, nil
}

// TestHistoriesInMemoryAreBounded: messages for many instances with large histories arrive at once.
// The histories that are read, or wait for a decider, have a bounded size, and all messages are
// decided.
func TestHistoriesInMemoryAreBounded(t *testing.T) {
	const mib = 1 << 20
	for name, x := range map[string]struct {
		size func(n int) int64
		most int64
	}{
		"equal":       {func(int) int64 { return 8 * mib }, 64 * mib},
		"some larger": {func(n int) int64 { return int64(8+72*(n/200%2)) * mib }, 80 * mib},
		"small":       {func(int) int64 { return 1000 }, 64 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 300
				store := &largeStore{size: x.size}
				s := newDeadSystem(t.Context(), n, crowded{})
				defer s.stop()
				free := make(chan struct{})
				s.loader.store = store
				s.begun = func(e *entry) {
					<-free
					if _, is := store.read.Load(e.id); !is {
						t.Errorf("instance %s is decided without its history", e.id)
					}
					i, _ := strconv.Atoi(e.id)
					store.held.Add(-x.size(i))
					s.loader.room.release(e)
				}
				for i := range uint64(n) {
					s.deliver(i + 1)
				}
				synctest.Wait()
				before := store.loads.Load()
				close(free)
				for range n {
					if got := <-s.how; got != "ack" {
						t.Fatalf("a message is settled with %s", got)
					}
				}
				if is := store.largest.Load(); is > x.most {
					t.Errorf("%d MiB of histories are in memory, want at most %d", is/mib, x.most/mib)
				}
				if loads := store.loads.Load(); before > 10 || loads > 2*n {
					t.Errorf("%d loads, %d of them before a decider was free", loads, before)
				}
			})
		})
	}
}
