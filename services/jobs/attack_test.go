package jobserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// allocated tells how many bytes a function allocates.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int((after.TotalAlloc - before.TotalAlloc) >> 20)
}

// large opens a store with a queue of 200 jobs of 256 KiB: 50 MiB. Its clock stands still, so that
// no lock expires while a slow machine reads them.
func large(t *testing.T) jobs.Store {
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Now: newClock().now, Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	do(t, db.Queues(), jobs.Configure{})
	data := json.RawMessage(`"` + strings.Repeat("x", 256<<10-2) + `"`)
	for range 200 {
		do(t, db.Queues(), jobs.Push{Jobs: []jobs.NewJob{{Data: data}}})
	}
	return db.Queues()
}

// TestAttackReadAhead: a pop of one job, together with another that asks for many, does not read
// them all.
func TestAttackReadAhead(t *testing.T) {
	s := large(t)
	for _, x := range []struct {
		what string
		ops  []jobs.Operation
	}{
		{"one alone", []jobs.Operation{jobs.Pop{Count: 1, LockID: "a", Bytes: 8 << 20}}},
		{"one beside one of 1000 (which is refused)", []jobs.Operation{jobs.Pop{Count: 1, LockID: "b",
			Bytes: 8 << 20}, jobs.Pop{Count: 1000, LockID: "c", Bytes: 8 << 20}}},
		{"16 beside 15 others of 16 (which are refused)", []jobs.Operation{jobs.Pop{Count: 16, LockID: "d"},
			jobs.Pop{Count: 16, LockID: "e"}, jobs.Pop{Count: 100, LockID: "f"}, jobs.Pop{Count: 100, LockID: "g"}}},
	} {
		n := allocated(func() {
			if _, err := s.Do(t.Context(), "jobs", x.ops...); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %d MiB", x.what, n)
		if strings.Contains(x.what, "1000") && n > 16 {
			t.Errorf("%s: %d MiB are read for a pop of one item", x.what, n)
		}
		do(t, s, jobs.Return{LockID: x.ops[0].(jobs.Pop).LockID})
	}
}

// TestAttackDead: a page of dead jobs takes as much memory as its answer, not as all of them.
func TestAttackDead(t *testing.T) {
	store := large(t)
	do(t, store, jobs.Configure{Settings: jobs.Settings{MaxAttempts: 1}})
	do(t, store, jobs.Pop{Count: 200, LockID: "a"})
	do(t, store, jobs.Return{LockID: "a"})
	s, end := serve(t, store, jobserver.Config{})
	defer end()
	one := allocated(func() { s.ask("GET", "/queue/jobs/dead?limit=1", "").is(200, nil) })
	n := allocated(func() { s.ask("GET", "/queue/jobs/dead?limit=1000", "").is(200, nil) })
	requeued := allocated(func() { s.post("/queue/jobs/dead/requeue", `{"limit": 1000}`).is(200, nil) })
	t.Logf("limit=1: %d MiB; limit=1000: %d MiB; requeue: %d MiB", one, n, requeued)
	if n > racetest.Size(120, 240) || requeued > 16 {
		t.Errorf("limit=1: %d MiB; limit=1000: %d MiB; requeue: %d MiB", one, n, requeued)
	}
}

// TestAttackLockID: a lock_id that can be none is refused before the database sees it.
func TestAttackLockID(t *testing.T) {
	s, end := serve(t, large(t), jobserver.Config{})
	defer end()
	s.post("/queue/jobs/acknowledge", `{"lock_id": "`+strings.Repeat("x", 4<<20-100)+`"}`).is(400,
		map[string]any{"error_code": "INVALID_REQUEST"})
}

// counting is a context that knows how many functions wait for its end.
type counting struct {
	context.Context
	done  chan struct{}
	those atomic.Int64
}

func (c *counting) Done() <-chan struct{} { return c.done }
func (c *counting) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}
func (c *counting) AfterFunc(f func()) func() bool {
	c.those.Add(1)
	var once atomic.Bool
	go func() {
		<-c.done
		if once.CompareAndSwap(false, true) {
			f()
		}
	}()
	return func() bool {
		if once.CompareAndSwap(false, true) {
			c.those.Add(-1)
			return true
		}
		return false
	}
}

// TestAttackStarterLeak: a rate that is used up leaves nothing behind, and a rate that allows
// nothing more has the Starter look no more often than usual. The test has virtual time.
func TestAttackStarterLeak(t *testing.T) {
	for _, most := range []float64{100, 1e-12} {
		synctest.Test(t, func(t *testing.T) {
			const every = 100 * time.Millisecond
			store := &looked{Store: inMemory(t), often: make(chan struct{})}
			var items []jobs.NewJob
			for range 1000 {
				items = append(items, jobs.NewJob{Data: json.RawMessage("1")})
			}
			do(t, store, jobs.Configure{Settings: jobs.Settings{Start: &jobs.Start{Orchestration: "fulfil",
				MaxPerSecond: most}}})
			do(t, store, jobs.Push{Jobs: items})
			st := jobserver.NewStarter(store, newBroker(), jobserver.StarterConfig{Logger: silence, Every: every})
			ctx := &counting{Context: context.Background(), done: make(chan struct{})}
			ended, begun := make(chan error), time.Now()
			go func() { ended <- st.Run(ctx) }()
			<-store.often
			took := time.Since(begun)
			t.Logf("max_per_second %v: started %d, functions that wait for the end %d, %d looks took %v", most,
				st.Counts().Started, ctx.those.Load(), oftenLooks, took)
			if n := ctx.those.Load(); n > 20 {
				t.Errorf("max_per_second %v: after %d looks, %d functions wait for the end", most, oftenLooks, n)
			}
			if most < 1 && took < oftenLooks/4*every {
				t.Errorf("max_per_second %v: %d looks took %v only", most, oftenLooks, took)
			}
			close(ctx.done)
			<-ended
		})
	}
}

type looked struct {
	jobs.Store
	n     atomic.Int64
	often chan struct{} // closed when it was looked often
}

const oftenLooks = 12

func (l *looked) Starting(ctx context.Context) ([]jobs.Info, error) {
	if l.n.Add(1) == oftenLooks {
		close(l.often)
	}
	return l.Store.Starting(ctx)
}

// TestAttackBody: the memory of a body is bounded.
func TestAttackBody(t *testing.T) {
	s, end := serve(t, large(t), jobserver.Config{})
	defer end()
	var b bytes.Buffer
	b.WriteString(`{"items":[{}`)
	for b.Len() < 4<<20-10 {
		b.WriteString(`,{}`)
	}
	b.WriteString(`]}`)
	n := allocated(func() { s.post("/queue/jobs/push", b.String()).is(400, nil) })
	t.Logf("4 MiB of {}: %d MiB", n)
	if n > 64 {
		t.Errorf("4 MiB of {} have made the server allocate %d MiB", n)
	}
	s.ask("PUT", "/queue/jobs", `{"start":{"orchestration":"`+strings.Repeat("x", 4<<20-100)+`"}}`).is(400, nil)
}
