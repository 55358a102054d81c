package cockroach_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/jobs/jobstest"
	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
)

// TestEveryStatementOfAQueueMayFail lets each statement of each transaction of a queue's
// incarnation fail in each way. The results are those of the model.
func TestEveryStatementOfAQueueMayFail(t *testing.T) {
	t.Parallel()
	clock := jobstest.NewClock()
	b := newBench(t, cockroach.Options{Now: clock.Now})
	db := &jobstest.Database{Query: func(tb testing.TB, scan func(into func(...any) error) error, query string,
		args ...any) {
		queryRows(tb, b.direct, scan, query, args...)
	}}
	model := jobstest.NewModel(clock.Now)
	incarnation := func(name string, before func(n int)) {
		for n, step := range jobstest.Incarnation() {
			clock.Add(step.Wait)
			before(n)
			jobstest.Same(t, b.store.Queues(), model, name, step.Operations...)
		}
		b.proxy.Inject(nil)
		jobstest.Audit(t, db, name)
	}
	var statements []int // up to each transaction
	from := b.proxy.Count()
	incarnation("counted", func(int) { statements = append(statements, b.proxy.Count()-from) })
	statements = append(statements, b.proxy.Count()-from)
	for i, fault := range slices.Sorted(maps.Keys(faults)) {
		for what, words := range map[string]string{"released": "RELEASE SAVEPOINT", "committed": "COMMIT"} {
			if testing.Short() && (what == "released") != (i%2 == 0) {
				continue
			}
			incarnation(strings.ReplaceAll(fault, " ", "-")+"-"+what, func(int) {
				b.proxy.Inject(pgfault.Once(pgfault.Is(words), faults[fault]))
			})
		}
		step, first := racetest.Size(3, 6), i
		if testing.Short() {
			step, first = 16, 2*i // one for each fault
		}
		for k := 1 + first%step; k <= 16; k += step {
			// The k-th statement of each transaction.
			name := fmt.Sprintf("%s-%d", strings.ReplaceAll(fault, " ", "-"), k)
			incarnation(name, func(n int) {
				if b.inject(k, faults[fault]); k > statements[n+1]-statements[n] {
					b.proxy.Inject(nil)
				}
			})
		}
	}
}

// TestAQueueWhoseCommitIsNeverLookedUp loses the answer to a commit, and lets the look-up of its
// outcome fail, too. The error says that the commit may have happened.
func TestAQueueWhoseCommitIsNeverLookedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	for name, fault := range map[string]pgfault.Fault{"before": pgfault.CutBefore, "after": pgfault.CutAfter} {
		ctx, cancel := context.WithCancel(b.Context())
		over := false
		b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			switch {
			case over:
				cancel()
				return pgfault.CutBefore
			case pgfault.Is(b.commits())(s):
				over = true
				return fault
			}
			return pgfault.Pass
		})
		_, err := b.store.Queues().Do(ctx, name, jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1")}}})
		cancel()
		b.proxy.Inject(nil)
		if !over || history.ClassOf(err) != history.Ambiguous {
			t.Errorf("cut %s the commit: %v: %v", name, history.ClassOf(err), err)
		}
		_, err = b.clear.Queues().Look(b.Context(), name)
		if happened := err == nil; happened != (name == "after") {
			t.Errorf("cut %s the commit: %v", name, err)
		}
	}
}

// commits is the statement that commits a transaction that may be tried again.
func (b *bench) commits() string {
	if b.direct.PgConn().ParameterStatus("crdb_version") != "" {
		return "RELEASE SAVEPOINT"
	}
	return "COMMIT"
}

// ends reports whether a statement ends a transaction with a commit.
func ends(s pgfault.Statement) bool {
	return pgfault.Is("COMMIT")(s) || pgfault.Is("RELEASE SAVEPOINT")(s)
}

// TestAQueueIsRemovedWhileACommitIsInDoubt lets another process empty and remove the queue between
// the commit, whose answer gets lost, and the look-up of its outcome.
func TestAQueueIsRemovedWhileACommitIsInDoubt(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	push := jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1")}}}
	for name, c := range map[string]struct {
		operations []jobs.Operation
		meanwhile  []jobs.Operation
		ambiguous  bool
	}{
		"pushed": {[]jobs.Operation{push},
			[]jobs.Operation{jobs.Pop{Count: 10}, jobs.Forget{}}, true},
		"pushed, made again": {[]jobs.Operation{push},
			[]jobs.Operation{jobs.Pop{Count: 10}, jobs.Forget{}, push}, true},
		"removed":             {[]jobs.Operation{jobs.Forget{}}, nil, false},
		"removed, made again": {[]jobs.Operation{jobs.Forget{}}, []jobs.Operation{push}, false},
		"popped and removed": {[]jobs.Operation{jobs.Push{Jobs: push.Jobs}, jobs.Pop{Count: 10},
			jobs.Forget{}}, nil, true},
		"others in the meantime": {[]jobs.Operation{push}, []jobs.Operation{push, jobs.Pop{Count: 1}}, false},
	} {
		id := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		do := func(s *cockroach.Store, operations ...jobs.Operation) []jobs.Result {
			r, err := s.Queues().Do(t.Context(), id, operations...)
			if err != nil {
				t.Fatal(name, err)
			}
			return r
		}
		do(b.clear, jobs.Configure{}) // it is there before
		lost := false
		b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			if !lost && pgfault.Is(b.commits())(s) {
				lost = true
				return pgfault.CutAfter
			}
			if lost && c.meanwhile != nil && pgfault.Is("BEGIN")(s) {
				do(b.clear, c.meanwhile...)
				c.meanwhile = nil
			}
			return pgfault.Pass
		})
		r, err := b.store.Queues().Do(t.Context(), id, c.operations...)
		b.proxy.Inject(nil)
		if got := history.ClassOf(err) == history.Ambiguous; !lost || got != c.ambiguous || err == nil &&
			r[0].Refused != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestQueuesOfTwoProcessesUnderFaults has two processes push and pop at the same queue, each
// through a proxy that lets statements go wrong. Every push is there once, and every job is handed
// out once.
func TestQueuesOfTwoProcessesUnderFaults(t *testing.T) {
	t.Parallel()
	address := faultyDatabase(t)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	db := queuesAt(t, address)
	clear, _ := db.Open(t, nil)
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(1, 2))
	kinds := []pgfault.Fault{faults["serialization"], faults["deadlock"], faults["ambiguous"], pgfault.CutBefore,
		pgfault.CutAfter}
	var stores []jobs.Store
	hit := 0
	for range 2 {
		proxy := pgfault.Start(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
		stores = append(stores, openStore(t, proxy.DSN(address), cockroach.Options{}).Queues())
		proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if n := chance.IntN(200); n < len(kinds) || n < 25 && ends(s) {
				hit++
				return kinds[n%len(kinds)]
			}
			return pgfault.Pass
		})
		t.Cleanup(func() { proxy.Inject(nil) })
	}
	each := racetest.Size(40, 20)
	const processes, pushers, batch = 2, 3, 3
	popped := make(map[string]int)
	var all sync.WaitGroup
	for n := range processes * pushers {
		all.Go(func() {
			for i := range each {
				var items []jobs.NewJob
				for k := range batch {
					items = append(items, jobs.NewJob{Data: fmt.Appendf(nil, `"%d-%d-%d"`, n, i, k), Priority: k})
				}
				r, err := stores[n%2].Do(t.Context(), "shared", jobs.Push{Jobs: items}, jobs.Pop{Count: 2})
				if err != nil || r[0].Refused != nil || r[1].Refused != nil {
					t.Errorf("%+v, %v", r, err)
					continue
				}
				mu.Lock()
				for _, item := range r[1].Items {
					popped[string(item.Data)]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	jobstest.Audit(t, db, "shared")
	for {
		r, err := clear.Do(t.Context(), "shared", jobs.Pop{Count: 100})
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Count == 0 {
			break
		}
		for _, item := range r[0].Items {
			popped[string(item.Data)]++
		}
	}
	for item, times := range popped {
		if times != 1 {
			t.Errorf("%s was popped %d times", item, times)
		}
	}
	want := processes * pushers * each * batch
	info, err := clear.Look(t.Context(), "shared")
	if len(popped) != want || err != nil || info.Totals.Pushed != int64(want) || info.Totals.Popped != int64(want) {
		t.Errorf("%d items were popped of %d; %+v, %v", len(popped), want, info.Totals, err)
	}
	t.Logf("%d faults", hit)
	if hit < 20 {
		t.Errorf("only %d faults", hit)
	}
}

// TestACrowdOfTwoProcessesUnderFaults is like the suite's test of many at once, with locks, and
// with faults.
func TestACrowdOfTwoProcessesUnderFaults(t *testing.T) {
	t.Parallel()
	address := faultyDatabase(t)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	db, clock := queuesAt(t, address), jobstest.NewClock()
	one, _ := db.Open(t, clock.Now)
	proxy := pgfault.Start(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	two := openStore(t, proxy.DSN(address), cockroach.Options{Now: clock.Now}).Queues()
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(3, 4))
	proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		mu.Lock()
		defer mu.Unlock()
		if chance.IntN(30) == 0 || ends(s) && chance.IntN(10) == 0 {
			return []pgfault.Fault{pgfault.CutAfter, faults["serialization"]}[chance.IntN(2)]
		}
		return pgfault.Pass
	})
	defer proxy.Inject(nil)
	jobstest.Crowd(t, clock, one, two, "crowd", racetest.Size(12, 6))
	jobstest.Audit(t, db, "crowd")
}

// TestWhoWaitsForAQueueGivesUp holds a transaction of a queue. A later caller of that queue in the
// same process waits as long as its context allows, and callers of other queues do not wait.
func TestWhoWaitsForAQueueGivesUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	hold, held := make(chan struct{}), make(chan struct{})
	arrive, isHeld := sync.OnceFunc(func() { close(hold) }), sync.OnceFunc(func() { close(held) })
	t.Cleanup(arrive)
	b.proxy.Inject(pgfault.Once(func(s pgfault.Statement) bool {
		if ends(s) {
			isHeld()
		}
		return ends(s)
	}, pgfault.Hold(hold)))
	push := jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1")}}}
	done := make(chan error, 1)
	go func() {
		_, err := b.store.Queues().Do(b.Context(), "busy", push)
		done <- err
	}()
	<-held
	ctx, cancel := context.WithTimeout(b.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.store.Queues().Do(ctx, "busy", push); !errors.Is(err, context.DeadlineExceeded) ||
		history.ClassOf(err) != history.Retry {
		t.Errorf("%v: %v", history.ClassOf(err), err)
	}
	if _, err := b.store.Queues().Do(b.Context(), "other", push); err != nil {
		t.Error(err)
	}
	arrive()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, err := b.store.Queues().Do(b.Context(), "busy", jobs.Pop{Count: 9}); err != nil || r[0].Count != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
