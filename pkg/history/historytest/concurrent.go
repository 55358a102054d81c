package historytest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var raceTime = flag.Duration("history.race", 5*time.Second, "how long the store's suite lets many write at once")

// concurrentTests let many do everything at once, for a while.
var concurrentTests = []test{
	{"concurrency/sixteen_writers", manyWriters},
}

// The sizes of the race.
const (
	raceWriters   = 16
	raceInstances = 40
	raceBatch     = 12
	raceSends     = "sent"
	raceEnough    = 600 // turns that are committed when time is short
)

// writers has the turns of many writers on the same instances, and the outcomes they received.
type writers struct {
	*testing.T
	stores []history.Store

	mu       sync.Mutex
	taken    map[eventKey][]string // each event as the turns that were taken have it, encoded
	sent     map[string]bool       // the messages of turns that were taken
	deleted  map[string]bool       // instances that were deleted at least once
	verdicts map[history.CommitStatus]int
	turns    atomic.Int64
	pruned   atomic.Int64
	enough   func() // ends the race; nil if only its time does
}

type eventKey struct {
	instance, incarnation string
	execution, event      int64
}

// manyWriters lets 16 writers, of up to four processes, commit batches that overlap, while other
// goroutines delete instances, read and sweep. Afterwards each history is dense and in order, each
// event has exactly one winner, and nothing that was taken is lost.
func manyWriters(t *testing.T, db *Database) {
	r := &writers{T: t, taken: make(map[eventKey][]string), sent: make(map[string]bool), deleted: make(map[string]bool),
		verdicts: make(map[history.CommitStatus]int)}
	processes := 1
	if db.Shared {
		processes = 4
	}
	for range processes {
		r.stores = append(r.stores, db.Open(t, Options{}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), *raceTime)
	if testing.Short() {
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		r.enough = cancel
	}
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	for w := range raceWriters {
		all.Go(func() { r.write(ctx, w) })
	}
	all.Go(func() { r.delete(ctx) })
	all.Go(func() { r.watch(ctx) })
	all.Wait()
	took := time.Since(began)
	if t.Failed() {
		return
	}
	for _, s := range r.stores[1:] {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	r.check(newStore(t, r.stores[0], db, &Clock{time.Now()}))
	t.Logf("%d turns in %v: %v, %d instances were deleted in between, %d executions pruned",
		r.turns.Load(), took.Round(time.Millisecond), r.verdicts, len(r.deleted), r.pruned.Load())
	if r.verdicts[history.Committed] < raceWriters || r.verdicts[history.Conflict] == 0 {
		t.Errorf("the turns were %v: this shows nothing", r.verdicts)
	}
	if db.Deadlocks != nil {
		if n := db.Deadlocks(t); n > 0 {
			t.Errorf("the database had to resolve %d deadlocks", n)
		}
	}
}

// name is one of the instances. Those whose number is divisible by eight are deleted now and then.
func (r *writers) name(i int) string { return fmt.Sprintf("racer-%02d", i) }

func mortal(id string) bool {
	var n int
	_, err := fmt.Sscanf(id, "racer-%d", &n)
	return err == nil && n%8 == 0
}

// write loads some instances, takes each further, and commits all of them, again and again.
func (r *writers) write(ctx context.Context, w int) {
	random := rand.New(rand.NewPCG(uint64(w), 7))
	s := r.stores[w%len(r.stores)]
	var published []history.OutboxKey
	for n := 0; ctx.Err() == nil; n++ {
		var ids []string
		for _, i := range random.Perm(raceInstances)[:1+random.IntN(raceBatch)] {
			ids = append(ids, r.name(i))
		}
		// The test's own time does not run out within a commit: each is seen through, so that its
		// end is known.
		known, err := s.Load(context.WithoutCancel(ctx), ids, nil)
		if err != nil {
			r.Errorf("load: %v", err)
			return
		}
		var batch history.Batch
		for i, k := range known {
			if k.Unreadable != nil {
				r.Errorf("load %q: %v", ids[i], k.Unreadable)
				return
			}
			batch.Turns = append(batch.Turns, Decided(r.T, racersTurn(k, random, fmt.Sprintf("%d-%d-%d", w, n, i))))
		}
		if random.IntN(2) == 0 { // the others stay for the check at the end
			batch.Published = published
		}
		result, err := s.Commit(context.WithoutCancel(ctx), batch)
		if err != nil {
			r.Errorf("commit: %v", err)
			return
		}
		published = r.record(batch, result)
	}
}

// racersTurn decides one of many turns for an instance. It writes the tag into every event, so that
// the test knows the writer of each.
func racersTurn(k round.Known, random *rand.Rand, tag string) *round.Turn {
	a := Resume(k, Began)
	note := func() *round.Turn {
		return a.Say(&events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(`"` + tag + `"`)})
	}
	var t *round.Turn
	switch {
	case k.Row.Execution == 0 || k.Row.Status.Ended():
		t = Together(a.Start(WithMessage(tag), WithAttributes(map[string]string{"tag": tag})), note())
	case random.IntN(10) == 0:
		t = Together(note(), a.Complete(`"`+tag+`"`))
	case random.IntN(10) == 0:
		t = Together(note(), a.ContinueAsNew(), note())
	case random.IntN(4) == 0:
		t = Together(note(), a.Set("k", `"`+tag+`"`))
	case random.IntN(10) == 0:
		t = Together(note(), a.Remove("k"))
	default:
		t = note()
		for range random.IntN(4) {
			t = Together(t, note())
		}
	}
	return Sends(t, tag, raceSends)
}

// record records the outcomes that a writer received.
func (r *writers) record(batch history.Batch, result history.Result) []history.OutboxKey {
	r.turns.Add(int64(len(batch.Turns)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range result.Outcomes {
		t := batch.Turns[i].Turn
		r.verdicts[o.Status]++
		switch o.Status {
		case history.Committed:
			r.sent[t.Messages[len(t.Messages)-1].ID] = true
			for _, x := range t.Executions {
				for _, e := range x.Events {
					key := eventKey{t.Instance, t.Row.Incarnation, x.ID, e.ID}
					r.taken[key] = append(r.taken[key], encoded(r.T, e))
				}
			}
		case history.Conflict:
			if o.Actual == t.Expected && o.Actual.Execution > 0 {
				r.Errorf("the turn of %q was refused, and it stands where it was decided: %+v", t.Instance, o.Actual)
			}
		case history.Deleted, history.Deleting:
			if !mortal(t.Instance) {
				r.Errorf("the turn of %q is %v, and nobody has deleted it", t.Instance, o.Status)
			}
		default:
			r.Errorf("the turn of %q: %v %v", t.Instance, o.Status, o.Err)
		}
	}
	if r.enough != nil && r.verdicts[history.Committed] >= raceEnough && r.verdicts[history.Conflict] >= raceWriters {
		r.enough()
	}
	return result.Entries
}

func encoded(tb testing.TB, e events.Event) string {
	data, err := events.EncodeEvent(e)
	if err != nil {
		tb.Error(err)
	}
	return string(data)
}

// delete deletes and prunes instances, several at once, in any order.
func (r *writers) delete(ctx context.Context) {
	random := rand.New(rand.NewPCG(99, 7))
	s := r.stores[len(r.stores)-1]
	for ctx.Err() == nil {
		var ids []string
		for _, i := range random.Perm(raceInstances) {
			if id := r.name(i); mortal(id) && random.IntN(2) == 0 {
				ids = append(ids, id)
			}
		}
		_, err := s.Delete(context.WithoutCancel(ctx), ids, history.Deletion{Force: true})
		switch {
		case err == nil:
			r.mu.Lock()
			for _, id := range ids {
				r.deleted[id] = true
			}
			r.mu.Unlock()
		case !strings.Contains(err.Error(), history.ErrNoInstance.Error()):
			r.Errorf("delete: %v", err)
			return
		}
		d, err := s.Prune(context.WithoutCancel(ctx), r.name(random.IntN(raceInstances)), history.Keep{Last: 2})
		if err != nil && !strings.Contains(err.Error(), history.ErrNoInstance.Error()) {
			r.Errorf("prune: %v", err)
			return
		}
		r.pruned.Add(d.Executions)
	}
}

// watch lists, sweeps and tidies beside the writers.
func (r *writers) watch(ctx context.Context) {
	s := r.stores[0]
	seen := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		list, err := s.List(seen, history.Filter{}, history.Page{})
		if err == nil && len(list.Instances) > raceInstances {
			r.Errorf("%d of %d instances are listed", len(list.Instances), raceInstances)
		}
		for _, f := range []func() error{
			func() error { return err },
			func() error { _, err := s.Tidy(seen); return err },
			func() error { _, err := s.Metrics(seen); return err },
			func() error {
				_, err := s.LeaseOverdue(seen,
					history.Lease{Before: Began.Add(time.Hour), Until: Began.Add(2 * time.Hour), Limit: 10})
				return err
			},
		} {
			if err := f(); err != nil {
				r.Errorf("beside the writers: %v", err)
				return
			}
		}
	}
}

// check compares the stored rows with the outcomes that the writers received.
func (r *writers) check(s *store) {
	for key, winners := range r.taken {
		if len(winners) != 1 {
			r.Errorf("event %+v has %d winners: %q", key, len(winners), winners)
		}
	}
	stored := 0
	for i := range raceInstances {
		stored += r.checkInstance(s, r.name(i))
	}
	r.Logf("%d events were taken, %d are stored", len(r.taken), stored)
	r.checkOutbox(s)
}

// checkInstance checks each execution of an instance: reading a history fails if there is a gap in
// it.
func (r *writers) checkInstance(s *store, id string) (stored int) {
	if s.load(id).Row.Execution == 0 {
		if !mortal(id) {
			r.Errorf("%q is gone, and nobody has deleted it", id)
		}
		return 0
	}
	kept := make(map[eventKey]bool)
	first := int64(0) // of the executions that were not pruned: none is missing behind it
	for _, x := range must[[]history.ExecutionInfo](s, "executions of "+id)(s.Executions(s.ctx(), id, 0, 0)) {
		if first == 0 {
			first = x.Execution
		}
		list := must[events.Export](s, "history of "+id)(history.Export(s.ctx(), s.Store, id, x.Execution)).Events
		if int64(len(list)) != x.Events {
			r.Errorf("execution %d of %q has %d events, its row says %d", x.Execution, id, len(list), x.Events)
		}
		for n, e := range list {
			key := eventKey{id, x.Incarnation, x.Execution, e.ID}
			kept[key] = true
			if e.ID != int64(n)+1 || !slices.Equal(r.taken[key], []string{encoded(r.T, e)}) {
				r.Errorf("event %+v is %s, the winners wrote %q", key, encoded(r.T, e), r.taken[key])
			}
		}
	}
	if !mortal(id) {
		for key := range r.taken {
			if key.instance == id && key.execution >= first && !kept[key] {
				r.Errorf("event %+v was taken and is not there", key)
			}
		}
	}
	return len(kept)
}

// checkOutbox checks that the messages left in the outbox are of turns that were taken, each
// message once.
func (r *writers) checkOutbox(s *store) {
	seen := make(map[string]bool)
	for {
		list := s.lease(1000, time.Hour)
		if len(list) == 0 {
			break
		}
		for _, id := range s.messages(list) {
			if seen[id] || !r.sent[id] {
				r.Errorf("message %s is there: seen before %v, of a turn that was taken %v", id,
					seen[id], r.sent[id])
			}
			seen[id] = true
		}
	}
	r.Logf("%d messages were stored, %d are in the outbox", len(r.sent), len(seen))
}
