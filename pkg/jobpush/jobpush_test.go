package jobpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobpushed"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// push is what the orchestration of these tests is told to push.
type push struct {
	Queue string
	Items []jobpush.Job
}

var pushing = orchestration.Define[push, string]("pushing")

func pushIt(ctx *orchestration.Context, p push) (string, error) {
	return "done", jobpush.Push(ctx, p.Queue, p.Items...)
}

func open(t *testing.T) jobs.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "rondo.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Queues()
}

// run has an orchestration push something to the queues of a database, and gives its error.
func run(t *testing.T, store jobs.Store, p push, parts ...rondotest.Part) error {
	t.Helper()
	env := rondotest.New(t, append(parts, pushing.Bind(pushIt), jobpushed.Handler(store))...)
	h, err := pushing.Start(t.Context(), env, p, orchestration.ID("p"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	return err
}

// one is a push of a job.
func one(name string, i jobpush.Job) push { return push{name, []jobpush.Job{i}} }

func TestWhatIsPushedIsInTheQueue(t *testing.T) {
	store := open(t)
	err := run(t, store, push{"jobs",
		[]jobpush.Job{{Data: map[string]int{"n": 1}, Priority: 3}, {Data: nil}, {Data: "later", Delay: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Do(t.Context(), "jobs", jobs.Pop{Count: 10})
	if err != nil || len(r[0].Items) != 2 || string(r[0].Items[0].Data) != "null" ||
		string(r[0].Items[1].Data) != `{"n":1}` || r[0].Items[1].Priority != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if i, err := store.Look(t.Context(), "jobs"); err != nil || i.Delayed != 1 {
		t.Errorf("%+v, %v", i, err)
	}
}

// Whatever is delivered twice, late or after a crash: each push happens once.
func TestAPushHappensOnce(t *testing.T) {
	for seed := range uint64(20) {
		store := open(t)
		if err := run(t, store, one("jobs", jobpush.Job{Data: seed}), rondotest.Chaos(seed)); err != nil {
			t.Fatal(err)
		}
		if i, err := store.Look(t.Context(), "jobs"); err != nil || i.Depth() != 1 || i.Totals.Pushed != 1 {
			t.Errorf("seed %d: %+v, %v", seed, i, err)
		}
	}
}

// The activity is called as a worker calls it, twice for the same call, and once for another one.
func TestTheKeyIsThatOfTheCall(t *testing.T) {
	store := open(t)
	handler := jobpushed.Handler(store)
	for n, call := range []string{"a/1/1/2", "a/1/1/2", "a/1/1/5", strings.Repeat("long", 1000) + "/1/1/2"} {
		ctx := activity.NewContext(t.Context(),
			activity.Environment{Info: activity.ExecutionInfo{IdempotencyKey: call}})
		if _, err := handler.Run(ctx, codec.JSON{},
			codec.Payload(`{"queue": "jobs", "items": [{"item": 1}]}`)); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
	if i, err := store.Look(t.Context(), "jobs"); err != nil || i.Depth() != 3 {
		t.Errorf("%+v, %v", i, err)
	}
	ctx := activity.NewContext(t.Context(),
		activity.Environment{Info: activity.ExecutionInfo{IdempotencyKey: "a/1/1/2"}})
	_, err := handler.Run(ctx, codec.JSON{}, codec.Payload(`{"queue": "jobs", "items": [{"item": 2}]}`))
	if !errors.Is(err, orchestration.OfType(jobpush.TypeInvalid)) {
		t.Errorf("another push of the same call gives %v", err)
	}
}

func TestRefusedPushes(t *testing.T) {
	store := open(t)
	if _, err := store.Do(t.Context(), "small",
		jobs.Configure{Settings: jobs.Settings{Priorities: 2, MaxJobs: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		push push
		typ  string
		want string
	}{
		{"no such priority", one("small", jobpush.Job{Priority: 2}), jobpush.TypeInvalid,
			"priority: 2; want 0 to 1"},
		{"full", push{"small", make([]jobpush.Job, 2)}, jobpush.TypeFull, "and may have 1"},
		{"name", one("not good", jobpush.Job{}), jobpush.TypeInvalid, "the name of a queue has"},
		{"nothing", push{"small", nil}, jobpush.TypeInvalid, "push 1 to 1000 items at once, not 0"},
		{"too many", push{"small", make([]jobpush.Job, 1001)}, jobpush.TypeInvalid, "not 1001"},
		{"negative priority", one("small", jobpush.Job{Priority: -1}), jobpush.TypeInvalid,
			"item 1 of 1: priority -1"},
		{"negative delay", one("small", jobpush.Job{Delay: -1}), jobpush.TypeInvalid, "item 1 of 1: delay -1ns"},
		{"long delay", one("small", jobpush.Job{Delay: 366 * 24 * time.Hour}), jobpush.TypeInvalid,
			"delay 8784h0m0s"},
	} {
		err := run(t, store, c.push)
		var e *failure.Error
		if !errors.Is(err, orchestration.OfType(c.typ)) || !errors.As(err, &e) ||
			!strings.Contains(err.Error(), c.want) || e.NonRetryable != (c.typ == jobpush.TypeInvalid) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if i, err := store.Look(t.Context(), "small"); err != nil || i.Totals.Pushed != 0 {
		t.Errorf("%+v, %v", i, err)
	}
}

// A job that is larger than the queues take is refused with the limit, and is not tried again.
func TestAJobThatIsTooLarge(t *testing.T) {
	store := open(t)
	err := run(t, jobpushed.Bounded(store, 10), push{"jobs", []jobpush.Job{{Data: 1}, {Data: "123456789"}}})
	var e *failure.Error
	if !errors.Is(err, orchestration.OfType(jobpush.TypeInvalid)) || !errors.As(err, &e) || !e.NonRetryable ||
		!strings.Contains(err.Error(), "item 2 of 2 has 11 bytes, and may have 10 (--jobs-max-size") {
		t.Error(err)
	}
	if err := run(t, jobpushed.Bounded(store, 10), one("jobs", jobpush.Job{Data: "12345678"})); err != nil {
		t.Error(err)
	}
	if i, err := store.Look(t.Context(), "jobs"); err != nil || i.Totals.Pushed != 1 {
		t.Errorf("%+v, %v", i, err)
	}
	// Of several operations, only such a push is refused.
	small, large := jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("2")}}}, jobs.Push{Jobs: []jobs.NewJob{
		{Data: []byte(`"123456789"`)}}}
	r, err := jobpushed.Bounded(store, 10).Do(t.Context(), "jobs", large, small, large, jobs.Pop{Count: 9})
	if err != nil || len(r) != 4 || r[0].Refused == nil || r[1].Refused != nil || r[2].Refused == nil ||
		len(r[3].Items) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	// A push that was taken under another bound is a duplicate: its caller does not know its end.
	large.Key, large.KeyFor, large.Digest = "k", time.Hour, "d"
	for _, most := range []int{100, 10} {
		r, err := jobpushed.Bounded(store, most).Do(t.Context(), "jobs", large)
		if err != nil || r[0].Refused != nil || r[0].Again != (most == 10) {
			t.Errorf("bound %d: %+v, %v", most, r, err)
		}
	}
	if jobpushed.Bounded(nil, 10) != nil {
		t.Error("no store has become one")
	}
}

// A job that cannot be encoded as JSON is refused before anything is executed.
func TestAJobThatIsNotJSON(t *testing.T) {
	env := rondotest.New(t, pushing.Bind(func(ctx *orchestration.Context, _ push) (string, error) {
		return "", jobpush.Push(ctx, "jobs", jobpush.Job{Data: 1}, jobpush.Job{Data: func() {}})
	}))
	h, err := pushing.Start(t.Context(), env, push{}, orchestration.ID("p"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = h.Wait(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "item 2 of 2 cannot be written as JSON") {
		t.Error(err)
	}
	if got := env.Pushed("jobs"); len(got) != 0 {
		t.Errorf("%d items were pushed", len(got))
	}
}

// broken is a store that fails some times.
type broken struct {
	jobs.Store
	times int
	done  func()
}

func (b *broken) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	if b.times--; b.times == 0 {
		b.done()
	}
	if b.times >= 0 {
		return nil, errors.New("the database is away")
	}
	return b.Store.Do(ctx, name, operations...)
}

func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	store := &broken{open(t), 2, func() {}}
	if err := run(t, store, one("jobs", jobpush.Job{Data: 1})); err != nil || store.times != -1 {
		t.Errorf("%d more times, %v", store.times, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody waits any more")
	store = &broken{open(t), 1, func() { cancel(why) }}
	_, err := jobpushed.Handler(store).Run(ctx, codec.JSON{},
		codec.Payload(`{"queue": "jobs", "items": [{"item": 1}]}`))
	if !errors.Is(err, why) {
		t.Errorf("%v, want that it ends with its context", err)
	}
}

// A pushed job is JSON, whatever the codec of the orchestration is.
func TestAnotherCodec(t *testing.T) {
	store := open(t)
	if err := run(t, store, one("jobs", jobpush.Job{Data: json.RawMessage(`{"n": 1}`)}),
		rondotest.UseCodec(shouting{})); err != nil {
		t.Fatal(err)
	}
	r, err := store.Do(t.Context(), "jobs", jobs.Pop{Count: 1})
	if err != nil || len(r[0].Items) != 1 || string(r[0].Items[0].Data) != `{"n":1}` {
		t.Errorf("%+v, %v", r, err)
	}
}

// shouting is a codec whose payloads are no JSON.
type shouting struct{ codec.JSON }

func (s shouting) Encode(v any) (codec.Payload, error) {
	p, err := s.JSON.Encode(v)
	return append(codec.Payload("!"), p...), err
}

func (s shouting) Decode(p codec.Payload, v any) error {
	if len(p) == 0 {
		return nil
	}
	if p[0] != '!' {
		return errors.New("this was not shouted")
	}
	return s.JSON.Decode(p[1:], v)
}

// A registry refuses the name of the engine's activity.
func TestTheNameIsTheEnginesOwn(t *testing.T) {
	_, err := activity.NewRegistry(activity.Define[int,
		int](jobpush.Activity).Bind(func(context.Context, int) (int, error) {
		return 0, nil
	}))
	if err == nil || !strings.Contains(err.Error(), `the prefix "rondo." is reserved for the engine`) {
		t.Error(err)
	}
	if _, err := activity.NewBuiltInRegistry(jobpushed.Handler(nil)); err != nil {
		t.Error(err)
	}
	_, err = activity.NewBuiltInRegistry(activity.Define[int,
		int]("mine").Bind(func(context.Context, int) (int, error) {
		return 0, nil
	}))
	if err == nil || !strings.Contains(err.Error(), "none of the engine's own") {
		t.Error(err)
	}
}
