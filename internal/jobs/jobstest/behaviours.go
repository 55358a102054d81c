package jobstest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

func behaviours() []behaviour {
	return slices.Concat(pushes(), pops(), returns(), others())
}

func pushes() []behaviour {
	return []behaviour{
		{"push: first in, first out", func(k *check) {
			k.push(0, "a", "b")
			k.push(0, "c")
			k.counts(3, 0, 0, 0)
			k.pops(2, "a", "b")
			k.pops(5, "c")
			k.pops(1)
		}},
		{"push: priorities", func(k *check) {
			k.push(2, "low")
			k.push(0, "high")
			k.push(99, "last")
			k.push(1, "middle")
			if i := k.look(); fmt.Sprint(i.Ready) != "map[0:1 1:1 2:1 99:1]" {
				k.Fatalf("ready: %v", i.Ready)
			}
			k.pops(10, "high", "middle", "low", "last")
		}},
		{"push: what is known of an item", func(k *check) {
			began := k.clock.Now()
			k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: []byte(`{"a": [1, 2],  "ü": null}`), Trace: "00-a-b-01",
				Priority: 7}}})
			k.wait(time.Second)
			i := k.must(jobs.Pop{Count: 1}).Items[0]
			if string(i.Data) != `{"a": [1, 2],  "ü": null}` || i.Trace != "00-a-b-01" || i.Priority != 7 ||
				i.Attempts != 0 || !i.PushedAt.Equal(began) || !i.ReadyAt.Equal(began) || i.ID == 0 {
				k.Fatalf("%+v", i)
			}
		}},
		{"push: many at once, of large items", func(k *check) {
			var want []string
			for n := range jobs.MaxCount {
				want = append(want, fmt.Sprint(n, strings.Repeat("x", n*4)))
			}
			k.push(3, want...)
			k.pops(jobs.MaxCount, want...)
		}},
		{"push: invalid ones are refused as a whole", refusedPushes},
		{"push: a refused one makes no queue", func(k *check) {
			k.refuses(jobs.Push{Jobs: newJobs(100, "a")}, &jobs.InvalidError{})
			if _, err := k.store.Look(k.Context(), k.queue); !errors.Is(err, jobs.ErrNoQueue) {
				k.Fatal(err)
			}
		}},
		{"push: max_items", func(k *check) {
			k.must(jobs.Configure{Settings: jobs.Settings{MaxJobs: 3, MaxAttempts: 1}})
			k.push(0, "a")
			k.holds("l", 1, "a")
			k.must(jobs.Return{LockID: "l"})
			k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1"), Delay: time.Hour}}})
			k.push(0, "c")
			k.holds("m", 1, "c")
			k.counts(0, 1, 1, 1)
			if full := k.refusal(jobs.Push{Jobs: newJobs(0, "d")},
				&jobs.FullError{}).(*jobs.FullError); full.Items != 3 || full.Limit != 3 {
				k.Fatalf("%+v", full)
			}
			k.must(jobs.Acknowledge{LockID: "m"})
			k.refuses(jobs.Push{Jobs: newJobs(0, "d", "e")}, &jobs.FullError{})
			k.push(0, "d")
		}},
		{"push: idempotency keys", keys},
		{"push: many keys that are over", manyKeys},
		{"push: what was due before comes before", func(k *check) {
			due := k.clock.Now().Add(10 * time.Second)
			k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: quoted("delayed"), Delay: 10 * time.Second}}})
			k.wait(20 * time.Second)
			k.push(0, "later")
			if r := k.pops(2, "delayed", "later"); !r.Items[0].ReadyAt.Equal(due) {
				k.Fatalf("ready at %v, was due at %v", r.Items[0].ReadyAt, due)
			}
		}},
	}
}

func pops() []behaviour {
	return []behaviour{
		{"pop: nothing makes no lock and no queue", func(k *check) {
			if r := k.must(jobs.Pop{Count: 1, LockID: "l"}); r.Lock != nil || r.Count != 0 {
				k.Fatalf("%+v", r)
			}
			if _, err := k.store.Look(k.Context(), k.queue); !errors.Is(err, jobs.ErrNoQueue) {
				k.Fatal(err)
			}
			k.push(0, "a")
			k.pops(1, "a")
			if r := k.must(jobs.Pop{Count: 1, LockID: "l"}); r.Lock != nil {
				k.Fatalf("%+v", r)
			}
			k.push(0, "b")
			k.pops(1, "b")
		}},
		{"pop: count", func(k *check) {
			k.push(0, "a")
			for _, n := range []int{0, -1, jobs.MaxCount + 1} {
				k.refuses(jobs.Pop{Count: n}, &jobs.InvalidError{})
			}
			k.refuses(jobs.Pop{Count: 1, Mode: "shared"}, &jobs.InvalidError{})
			k.pops(jobs.MaxCount, "a")
		}},
		{"pop: bytes", bytesBound},
		{"lock: exclusive", exclusive},
		{"lock: concurrent", concurrent},
		{"lock: exclusive and concurrent", mixed},
		{"lock: its time", lockTimes},
		{"acknowledge: exclusive", acknowledgeExclusive},
		{"acknowledge: concurrent", acknowledgeConcurrent},
		{"extend", extend},
	}
}

func returns() []behaviour {
	return []behaviour{
		{"return: at once, to the front", func(k *check) {
			k.push(1, "a", "b")
			k.push(0, "first")
			k.push(2, "c")
			k.holds("l", 3, "first", "a", "b")
			k.push(0, "second")
			if r := k.must(jobs.Return{LockID: "l"}); r.Count != 3 || r.Died != 0 || r.Lock == nil {
				k.Fatalf("%+v", r)
			}
			r := k.pops(10, "first", "second", "a", "b", "c")
			if r.Items[0].Attempts != 1 || r.Items[1].Attempts != 0 {
				k.Fatalf("attempts: %+v", r.Items)
			}
		}},
		{"return: with a delay, to the front when it is due", func(k *check) {
			k.push(1, "a", "b")
			k.holds("l", 1, "a")
			k.refuses(jobs.Return{LockID: "l", Delay: -1}, &jobs.InvalidError{})
			k.refuses(jobs.Return{LockID: "l", Delay: jobs.MaxDelay + 1}, &jobs.InvalidError{})
			k.must(jobs.Return{LockID: "l", Delay: 10 * time.Second})
			k.counts(1, 1, 0, 0)
			k.wait(10*time.Second - time.Microsecond)
			k.counts(1, 1, 0, 0)
			k.wait(time.Microsecond)
			k.counts(2, 0, 0, 0)
			k.pops(10, "a", "b")
		}},
		{"return: an attempt that does not count", uncounted},
		{"delayed: in the order in which they are due", func(k *check) {
			k.must(jobs.Push{Jobs: []jobs.NewJob{
				{Data: quoted("c"), Delay: 3 * time.Second}, {Data: quoted("a"), Delay: time.Second},
				{Data: quoted("now")}, {Data: quoted("b"), Delay: 2 * time.Second},
				{Data: quoted("b2"), Delay: 2 * time.Second},
				{Data: quoted("high"), Delay: 3 * time.Second, Priority: 0},
			}})
			k.counts(1, 5, 0, 0)
			k.wait(time.Second)
			k.pops(10, "now", "a")
			k.wait(2 * time.Second)
			k.pops(10, "b", "b2", "c", "high")
		}},
		{"delayed: more than one transaction settles", func(k *check) {
			var items []jobs.NewJob
			var want []string
			for n := range 450 {
				items = append(items, jobs.NewJob{Data: quoted(fmt.Sprint(n)), Delay: time.Second})
				want = append(want, fmt.Sprint(n))
			}
			k.must(jobs.Push{Jobs: items})
			k.wait(time.Second)
			var got []string
			for range 5 {
				got = append(got, names(k.must(jobs.Pop{Count: 1000}).Items)...)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				k.Fatalf("got %v", got)
			}
		}},
		{"expiry: to the front of their priority, in their order", func(k *check) {
			k.push(0, "a", "b")
			k.push(5, "c", "d")
			k.holds("l", 3, "a", "b", "c")
			k.push(0, "e")
			k.push(4, "f")
			k.wait(jobs.DefaultTTL)
			k.counts(6, 0, 0, 0)
			r := k.holds("m", 10, "a", "b", "e", "f", "c", "d")
			if r.Items[0].Attempts != 2 || r.Items[2].Attempts != 1 {
				k.Fatalf("%+v", r.Items)
			}
			if i := k.look(); i.Totals.Expired != 3 || i.Totals.Popped != 9 {
				k.Fatalf("%+v", i.Totals)
			}
		}},
	}
}

func others() []behaviour {
	return []behaviour{
		{"dead: after too many attempts", dead},
		{"dead: requeued by id", requeueByID},
		{"dead: pages", deadPages},
		{"dead: removed", func(k *check) {
			kill(k, "a", "b", "c")
			k.push(0, "alive")
			if r := k.must(jobs.Remove{Dead: true, Limit: 2}); r.Count != 2 {
				k.Fatalf("%+v", r)
			}
			k.dead("c")
			if r := k.must(jobs.Remove{Dead: true, Limit: 2}); r.Count != 1 {
				k.Fatalf("%+v", r)
			}
			k.counts(1, 0, 0, 0)
		}},
		{"configure", configure},
		{"remove: everything, locked items too", remove},
		{"forget", forget},
		{"forget in portions", forgetInPortions},
		{"remove many locks", removeManyLocks},
		{"many operations, as if each came alone", batches},
		{"look: what waited for longest", func(k *check) {
			began := k.clock.Now()
			k.push(9, "old")
			k.wait(time.Second)
			k.push(0, "new")
			if i := k.look(); !i.Oldest.Equal(began) || !i.At.Equal(k.clock.Now()) || i.Queue != k.queue ||
				i.Incarnation == "" {
				k.Fatalf("%+v", i)
			}
			k.pops(2, "new", "old")
			if i := k.look(); !i.Oldest.IsZero() || i.Totals.Pushed != 2 || i.Totals.Popped != 2 {
				k.Fatalf("%+v", i)
			}
		}},
		{"look: settles what is due", func(k *check) {
			k.must(jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent}})
			k.push(0, "a", "b")
			k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: quoted("c"), Delay: 20 * time.Second}}})
			k.holds("l", 1, "a")
			if i := k.counts(1, 1, 1, 0); i.Locks != 1 || i.Exclusive != nil {
				k.Fatalf("%+v", i)
			}
			k.wait(time.Minute)
			if i := k.counts(3, 0, 0, 0); i.Locks != 0 {
				k.Fatalf("%+v", i)
			}
		}},
		{"lists of queues", lists},
		{"a clock that goes back", func(k *check) {
			k.push(0, "a")
			r := k.holds("l", 1, "a")
			k.wait(-time.Hour)
			k.locked(jobs.Pop{Count: 1}, r.Lock.ExpiresAt)
			if i := k.look(); i.At.Before(r.Lock.CreatedAt) {
				k.Fatalf("the queue's time is %v, was %v", i.At, r.Lock.CreatedAt)
			}
			if e := k.must(jobs.Extend{LockID: "l",
				TTL: time.Minute}); !e.Lock.ExpiresAt.Equal(r.Lock.CreatedAt.Add(time.Minute)) {
				k.Fatalf("%+v", e.Lock)
			}
			k.wait(time.Hour + time.Minute)
			k.pops(1, "a")
		}},
		{"names", refusedNames},
		{"a queue that is not there", absent},
		{"nothing is retained", func(k *check) {
			data := []byte(`"kept"`)
			items := []jobs.NewJob{{Data: data}}
			k.must(jobs.Push{Jobs: items})
			copy(data, `"lost"`)
			items[0].Priority = 5
			k.pops(1, "kept")
		}},
	}
}

func refusedPushes(k *check) {
	k.push(0, "there")
	for what, p := range map[string]jobs.Push{
		"none":              {},
		"too many":          {Jobs: make([]jobs.NewJob, jobs.MaxCount+1)},
		"one of a priority": {Jobs: append(newJobs(0, "a", "b"), newJobs(100, "c")...)},
		"one below all":     {Jobs: append(newJobs(0, "a"), newJobs(-1, "c")...)},
		"one with a delay": {Jobs: append(newJobs(0, "a"),
			jobs.NewJob{Data: quoted("b"), Delay: jobs.MaxDelay + time.Second})},
		"one in the past":      {Jobs: append(newJobs(0, "a"), jobs.NewJob{Data: quoted("b"), Delay: -1})},
		"a key that is longer": {Jobs: newJobs(0, "a"), Key: strings.Repeat("k", jobs.MaxKey+1)},
	} {
		if r := k.do(p)[0]; !errors.As(r.Refused, new(*jobs.InvalidError)) || r.Count != 0 {
			k.Errorf("%s: %+v", what, r)
		}
	}
	k.counts(1, 0, 0, 0)
	k.must(jobs.Push{Jobs: newJobs(99, "a"), Key: strings.Repeat("k", jobs.MaxKey), KeyFor: time.Hour})
	k.pops(3, "there", "a")
}

func keys(k *check) {
	push := func(digest, item string) jobs.Push {
		return jobs.Push{Jobs: newJobs(0, item, item+"2"), Key: "key", KeyFor: time.Minute, Digest: digest}
	}
	if r := k.must(push("d", "a")); r.Again || r.Count != 2 {
		k.Fatalf("%+v", r)
	}
	if r := k.must(push("d", "b")); !r.Again || r.Count != 2 {
		k.Fatalf("%+v", r)
	}
	k.refuses(push("other", "b"), jobs.ErrKeyReused)
	k.pops(10, "a", "a2")
	k.wait(time.Minute - time.Microsecond)
	if r := k.must(push("d", "b")); !r.Again {
		k.Fatalf("%+v", r)
	}
	k.wait(time.Microsecond)
	if r := k.must(push("other", "c")); r.Again {
		k.Fatalf("%+v", r)
	}
	k.refuses(push("d", "b"), jobs.ErrKeyReused)
	k.pops(10, "c", "c2")
	// A push that is refused leaves no key.
	k.must(jobs.Configure{Settings: jobs.Settings{MaxJobs: 1}})
	full := jobs.Push{Jobs: newJobs(0, "x", "y"), Key: "full", KeyFor: time.Minute}
	k.refuses(full, &jobs.FullError{})
	k.must(jobs.Configure{})
	if r := k.must(full); r.Again {
		k.Fatalf("%+v", r)
	}
}

// manyKeys has more keys that are over than one push forgets.
func manyKeys(k *check) {
	var pushes []jobs.Operation
	for n := range 130 {
		pushes = append(pushes,
			jobs.Push{Jobs: newJobs(0, "a"), Key: fmt.Sprintf("key-%03d", n), KeyFor: time.Minute, Digest: "d"})
	}
	k.do(pushes...)
	k.wait(time.Minute)
	if r := k.must(jobs.Push{Jobs: newJobs(0, "b"), Key: "key-129", KeyFor: time.Hour, Digest: "other"}); r.Again {
		k.Fatalf("a key that is over is remembered: %+v", r)
	}
	for n := range 3 {
		k.must(jobs.Push{Jobs: newJobs(0, "c"), Key: fmt.Sprint("more-", n), KeyFor: time.Hour})
	}
	k.refuses(jobs.Push{Jobs: newJobs(0, "b"), Key: "key-129", KeyFor: time.Hour, Digest: "d"}, jobs.ErrKeyReused)
	if k.db.Query != nil {
		rows := 0
		k.db.Query(k, func(into func(...any) error) error {
			return into(&rows)
		}, "SELECT count(*) FROM rondo_job_keys WHERE queue = $1", k.queue)
		if rows != 4 {
			k.Fatalf("%d keys are left", rows)
		}
	}
}

func bytesBound(k *check) {
	size := len(quoted("aa"))
	k.push(0, "aa", "bb", "cc")
	k.push(1, "dd", "ee")
	pop := func(bytes int, want ...string) {
		k.Helper()
		k.gets(k.must(jobs.Pop{Count: 100, Bytes: bytes}), want...)
	}
	pop(1, "aa")
	pop(2*size+1, "bb", "cc")
	k.push(0, "ff")
	pop(2*size, "ff", "dd")
	pop(0, "ee")
}

// kill has jobs die, of a queue whose jobs have one attempt.
func kill(k *check, data ...string) {
	k.Helper()
	k.must(jobs.Configure{Settings: jobs.Settings{MaxAttempts: 1}})
	for _, d := range data {
		k.push(3, d)
		k.holds("dies", 1, d)
		k.wait(time.Second)
		if r := k.must(jobs.Return{LockID: "dies", Reason: "because of " + d}); r.Died != 1 || r.Count != 1 {
			k.Fatalf("%+v", r)
		}
	}
}

// uncounted returns jobs whose attempt does not count: none dies, and each keeps its position, also
// with a delay, as any job that is returned.
func uncounted(k *check) {
	for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
		k.must(jobs.Configure{Settings: jobs.Settings{MaxAttempts: 1, Mode: mode}})
		k.push(1, "a", "b", "c")
		for n := range 5 {
			if r := k.holds("l", 2, "a", "b"); r.Items[0].Attempts != 1 {
				k.Fatalf("%+v", r.Items)
			}
			back := jobs.Return{LockID: "l", Delay: time.Duration(n%2) * time.Second, Uncounted: true, Reason: "away"}
			if r := k.must(back); r.Count != 2 || r.Died != 0 {
				k.Fatalf("%+v", r)
			}
			k.wait(back.Delay)
		}
		r := k.holds("l", 3, "a", "b", "c")
		ready := r.Items[0].ReadyAt
		if !ready.Equal(r.Items[0].PushedAt) {
			k.Fatalf("%+v", r.Items)
		}
		// Some of a lock: the others are acknowledged.
		k.must(jobs.Return{LockID: "l", Delay: time.Second, Uncounted: true, Only: []int64{r.Items[1].ID}})
		k.push(1, "d")
		k.wait(time.Second)
		k.holds("l", 2, "b", "d")
		if r := k.must(jobs.Return{LockID: "l", Reason: "broken"}); r.Died != 2 {
			k.Fatalf("%+v", r)
		}
		if d := k.dead("b", "d")[0]; d.Attempts != 1 || d.Reason != "broken" {
			k.Fatalf("%+v", d)
		}
		k.must(jobs.Remove{Dead: true, Limit: 10})
	}
}

func dead(k *check) {
	k.must(jobs.Configure{Settings: jobs.Settings{MaxAttempts: 2, TTL: 5}})
	k.push(1, "a", "b")
	k.holds("l", 1, "a")
	if r := k.must(jobs.Return{LockID: "l", Reason: "broken"}); r.Died != 0 {
		k.Fatalf("%+v", r)
	}
	k.holds("l", 2, "a", "b")
	k.wait(time.Second)
	if r := k.must(jobs.Return{LockID: "l", Reason: strings.Repeat("€", jobs.MaxReason),
		Delay: time.Minute}); r.Died != 1 || r.Count != 2 {
		k.Fatalf("%+v", r)
	}
	k.counts(0, 1, 0, 1)
	died := k.clock.Now()
	if d := k.dead("a")[0]; !d.DiedAt.Equal(died) || d.Attempts != 2 || d.Priority != 1 ||
		!strings.HasPrefix(d.Reason, "€€€") || d.Reason != strings.Repeat("€", jobs.MaxReason/3) {
		k.Fatalf("%+v", d)
	}
	// A job whose lock expires too often dies, too.
	k.wait(time.Minute)
	k.holds("m", 1, "b")
	k.wait(5 * time.Second)
	k.pops(1)
	list := k.dead("a", "b")
	if list[1].Reason == "" || list[1].Reason == list[0].Reason {
		k.Fatalf("%+v", list[1])
	}
	if i := k.look(); i.Totals.Died != 2 {
		k.Fatalf("%+v", i.Totals)
	}
	// A requeued job begins again without attempts; the others stay dead.
	if r := k.must(jobs.Requeue{Limit: 1}); r.Count != 1 {
		k.Fatalf("%+v", r)
	}
	k.dead("b")
	r := k.holds("n", 1, "a")
	if i := r.Items[0]; i.Attempts != 1 || !i.ReadyAt.Equal(k.clock.Now()) || i.PushedAt.Equal(i.ReadyAt) {
		k.Fatalf("%+v", i)
	}
}

func requeueByID(k *check) {
	kill(k, "a", "b", "c", "d")
	list := k.dead("a", "b", "c", "d")
	k.push(3, "other")
	id, err := jobs.ParseDeadID(list[2].DeadID().String())
	if err != nil {
		k.Fatal(err)
	}
	nobody := jobs.DeadID{At: 1, Position: 1}
	if r := k.must(jobs.Requeue{IDs: []jobs.DeadID{id, nobody, list[0].DeadID(), id}}); r.Count != 2 {
		k.Fatalf("%+v", r)
	}
	k.dead("b", "d")
	k.pops(10, "other", "c", "a")
	if r := k.must(jobs.Requeue{IDs: []jobs.DeadID{id}}); r.Count != 0 {
		k.Fatalf("%+v", r)
	}
}

func deadPages(k *check) {
	kill(k, "a", "b", "c", "d", "e")
	var got []string
	var after jobs.DeadID
	for range 10 {
		page, err := k.store.Dead(k.Context(), k.queue, after, 2)
		if err != nil || len(page) > 2 {
			k.Fatal(page, err)
		}
		for _, d := range page {
			after = d.DeadID()
			got = append(got, names([]jobs.Job{d.Job})[0]+": "+d.Reason)
		}
	}
	if fmt.Sprint(got) != "[a: because of a b: because of b c: because of c d: because of d e: because of e]" {
		k.Fatal(got)
	}
}

func configure(k *check) {
	for _, bad := range []jobs.Settings{
		{Priorities: -1}, {Priorities: 1001}, {TTL: -1}, {TTL: 301}, {MaxAttempts: -1}, {MaxJobs: -1}, {Mode: "both"},
		{Start: &jobs.Start{}},
		{Start: &jobs.Start{Orchestration: "o", MaxPerSecond: -1}},
	} {
		k.refuses(jobs.Configure{Settings: bad}, &jobs.InvalidError{})
	}
	if _, err := k.store.Look(k.Context(), k.queue); !errors.Is(err, jobs.ErrNoQueue) {
		k.Fatalf("refused settings make a queue: %v", err)
	}
	k.must(jobs.Configure{Settings: jobs.Settings{Priorities: 3, Mode: jobs.Concurrent, TTL: 7}})
	k.push(2, "a")
	k.refuses(jobs.Push{Jobs: newJobs(3, "b")}, &jobs.InvalidError{})
	r := k.holds("l", 1, "a")
	if !r.Lock.ExpiresAt.Equal(k.clock.Now().Add(7 * time.Second)) {
		k.Fatalf("%+v", r.Lock)
	}
	k.must(jobs.Return{LockID: "l"})
	k.refuses(jobs.Configure{Settings: jobs.Settings{Priorities: 2}}, &jobs.InvalidError{})
	k.must(jobs.Configure{Settings: jobs.Settings{Priorities: 4}})
	if s := k.look().Settings; s.Priorities != 4 || s.Mode != jobs.Exclusive || s.TTL != 30 || s.MaxAttempts != 0 {
		k.Fatalf("%+v", s)
	}
	k.push(3, "b")
	k.pops(2, "a", "b")
}

func batches(k *check) {
	r := k.do(
		jobs.Pop{Count: 1}, jobs.Acknowledge{LockID: "l"}, jobs.Requeue{Limit: 1},
		jobs.Push{Jobs: newJobs(1, "a", "b")}, jobs.Push{Jobs: newJobs(1000, "bad")},
		jobs.Push{Jobs: newJobs(0, "c")},
		jobs.Pop{Count: 2, LockID: "l"}, jobs.Pop{Count: 1}, jobs.Acknowledge{LockID: "x"},
		jobs.Acknowledge{LockID: "l"}, jobs.Pop{Count: 9},
		jobs.Forget{}, jobs.Pop{Count: 1}, jobs.Forget{}, jobs.Push{Jobs: newJobs(0, "anew")})
	k.gets(r[0])
	k.gets(r[6], "c", "a")
	k.gets(r[10], "b")
	k.gets(r[12])
	for n, want := range map[int]error{1: jobs.ErrNoLock, 2: jobs.ErrNoQueue, 8: jobs.ErrWrongLock,
		13: jobs.ErrNoQueue} {
		if !errors.Is(r[n].Refused, want) {
			k.Errorf("operation %d: %+v, want %v", n, r[n], want)
		}
	}
	if !errors.As(r[4].Refused, new(*jobs.InvalidError)) || !errors.As(r[7].Refused, new(*jobs.LockedError)) ||
		r[9].Count != 2 || r[11].Refused != nil {
		k.Errorf("%+v", r)
	}
	if i := k.counts(1, 0, 0, 0); i.Totals.Pushed != 1 {
		k.Errorf("%+v", i)
	}
	k.pops(9, "anew")
	k.do()
}

func lists(k *check) {
	name := func(n int) string { return fmt.Sprintf("%s-list-%d", k.queue, n) }
	for n := range 5 {
		other := &check{TB: k.TB, store: k.store, clock: k.clock, queue: name(n), db: k.db}
		settings := jobs.Settings{}
		if n%2 == 0 {
			settings.Start = &jobs.Start{Orchestration: fmt.Sprint("o-", n), MaxPerSecond: 2.5}
		}
		other.must(jobs.Configure{Settings: settings})
		other.push(n, "a")
	}
	var got []string
	after := k.queue + "-list-"
	for range 4 {
		page, err := k.store.List(k.Context(), after, 2)
		if err != nil {
			k.Fatal(err)
		}
		for _, i := range page {
			after = i.Queue
			if strings.HasPrefix(i.Queue, k.queue+"-list-") {
				got = append(got, fmt.Sprint(i.Queue[len(k.queue)+6:], i.Ready))
			}
		}
	}
	if fmt.Sprint(got) != "[0map[0:1] 1map[1:1] 2map[2:1] 3map[3:1] 4map[4:1]]" {
		k.Fatal(got)
	}
	starting := func(want string) {
		k.Helper()
		list, err := k.store.Starting(k.Context())
		if err != nil {
			k.Fatal(err)
		}
		var got []string
		for _, i := range list {
			got = append(got, i.Settings.Start.Orchestration)
		}
		if fmt.Sprint(got) != want {
			k.Fatalf("got %v, want %v", got, want)
		}
	}
	starting("[o-0 o-2 o-4]")
	second := &check{TB: k.TB, store: k.store, clock: k.clock, queue: name(2), db: k.db}
	second.must(jobs.Configure{})
	starting("[o-0 o-4]")
}

func refusedNames(k *check) {
	for _, name := range []string{"", strings.Repeat("q", jobs.MaxName+1), "a/b", "a b", "ü", "a\x00b",
		"a\xff", "*", ">"} {
		_, do := k.store.Do(k.Context(), name, jobs.Push{Jobs: newJobs(0, "a")})
		_, look := k.store.Look(k.Context(), name)
		_, dead := k.store.Dead(k.Context(), name, jobs.DeadID{}, 1)
		for _, err := range []error{do, look, dead} {
			if !errors.As(err, new(*jobs.InvalidError)) {
				k.Errorf("%q: %v", name, err)
			}
		}
	}
	k.queue = strings.Repeat("q", jobs.MaxName-10) + ".A_z-0:9"
	k.push(0, "a")
	k.pops(1, "a")
}

func absent(k *check) {
	for o, want := range map[jobs.Operation]error{
		jobs.Acknowledge{LockID: "l"}: jobs.ErrNoLock, jobs.Extend{LockID: "l"}: jobs.ErrNoLock,
		jobs.Remove{Limit: 1}: jobs.ErrNoQueue, jobs.Forget{}: jobs.ErrNoQueue,
	} {
		k.refuses(o, want)
	}
	k.refuses(jobs.Return{LockID: "l"}, jobs.ErrNoLock)
	k.refuses(jobs.Requeue{Limit: 1}, jobs.ErrNoQueue)
	k.must(jobs.Settle{})
	k.pops(1)
	k.dead()
	if _, err := k.store.Look(k.Context(), k.queue); !errors.Is(err, jobs.ErrNoQueue) {
		k.Fatal(err)
	}
}
