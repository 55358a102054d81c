package jobserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/events"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// fakeBroker stores published starts, each id once, as the instances take them.
type fakeBroker struct {
	mu     sync.Mutex
	order  []string // the inputs, in the order in which they were first stored
	stored map[string]events.Message
	came   int
	more   chan struct{} // has a value when a start was stored, or was to be

	away    error                    // if set, it stores nothing
	refuses func(events.Start) error // the error for starts that are never stored
	stores  func(events.Start)       // called with a start that is stored for the first time
	after   func()                   // called after a start was stored
	blocks  bool                     // it does not answer
}

func newBroker() *fakeBroker {
	return &fakeBroker{stored: make(map[string]events.Message), more: make(chan struct{}, 1)}
}

func (b *fakeBroker) Prefix() string   { return "rondo" }
func (b *fakeBroker) Connected() error { return nil }

func (b *fakeBroker) Has(context.Context, events.Wire) (bool, error) { return false, nil }

func (b *fakeBroker) Publish(ctx context.Context, wires ...events.Wire) error {
	b.mu.Lock()
	defer func() {
		b.mu.Unlock()
		select {
		case b.more <- struct{}{}:
		default:
		}
	}()
	if b.blocks {
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return ctx.Err()
	}
	if b.away != nil {
		b.came++
		return b.away
	}
	var refused broker.Refused
	for _, w := range wires {
		m, err := events.Decode("rondo", w.Subject, w.Header, w.Body, "")
		if err != nil {
			return err
		}
		start := m.Content.(*events.Start)
		if b.refuses != nil {
			if err := b.refuses(*start); err != nil {
				refused.Messages, refused.Reasons = append(refused.Messages, w), append(refused.Reasons, err)
				continue
			}
		}
		b.came++
		if _, again := b.stored[m.ID]; !again {
			b.order = append(b.order, string(start.Input))
			if b.stores != nil {
				b.stores(*start)
			}
		}
		b.stored[m.ID] = m
	}
	if b.after != nil {
		b.after()
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

// inputs are those of the starts, in their order.
func (b *fakeBroker) inputs() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.order, " ")
}

// starting makes a queue start an orchestration, and pushes numbers to it.
func starting(t *testing.T, store jobs.Store, settings jobs.Settings, numbers ...int) {
	t.Helper()
	if settings.Start == nil {
		settings.Start = &jobs.Start{Orchestration: "fulfil"}
	}
	do(t, store, jobs.Configure{Settings: settings})
	for _, n := range numbers {
		do(t, store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage(fmt.Sprint(n))}}})
	}
}

func do(t *testing.T, store jobs.Store, operations ...jobs.Operation) []jobs.Result {
	t.Helper()
	results, err := store.Do(t.Context(), "jobs", operations...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	return results
}

// begin runs a Starter until the test ends, or until the test calls end.
func begin(t *testing.T, store jobs.Store, b jobserver.StartBroker,
	c jobserver.StarterConfig) (s *jobserver.Starter, end func()) {
	t.Helper()
	if c.Every == 0 {
		c.Every = 2 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = silence
	}
	s = jobserver.NewStarter(store, b, c)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return s, end
}

// patience is how long a test waits for an event that must happen.
const patience = 5 * time.Minute

// eventually waits until the queue has an expected state.
func eventually(t *testing.T, store jobs.Store, what string, is func(jobs.Info) bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(patience); ; <-tick.C {
		i, err := store.Look(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		if is(i) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: the queue is %+v", what, i)
		}
	}
}

func empty(i jobs.Info) bool { return i.Depth()+i.Locked+i.Delayed+i.Dead == 0 }

func TestJobsStartInstancesInTheirOrder(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		starting(t, s.store, jobs.Settings{Start: &jobs.Start{Orchestration: "fulfil", Version: "2.0.0"}}, 3, 4)
		do(t, s.store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage(`{"sku": "a1"}`), Trace: trace}}})
		do(t, s.store, jobs.Configure{Settings: jobs.Settings{Priorities: 3}})
		do(t, s.store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("9"), Priority: 1}}})
		do(t, s.store, jobs.Configure{Settings: jobs.Settings{Priorities: 3,
			Start: &jobs.Start{Orchestration: "fulfil", Version: "2.0.0"}}})
		b := newBroker()
		x, _ := begin(t, s.store, b, jobserver.StarterConfig{})
		eventually(t, s.store, "all are started", empty)
		if got := b.inputs(); got != `3 4 {"sku":"a1"} 9` {
			t.Errorf("started were %s", got)
		}
		i, err := s.store.Look(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		m := b.stored[jobserver.InstanceOf("jobs", i.Incarnation, 3)]
		c, ok := m.Content.(*events.Start)
		if !ok || m.Instance != m.ID || m.Trace != trace || c.Orchestration != "fulfil" || c.Version != "2.0.0" ||
			c.Conflict != events.KeepExisting ||
			c.Attributes[jobserver.AttributeQueue] != "jobs" || events.CheckChosenInstance(m.Instance) != nil {
			t.Errorf("the third item gave %+v, %+v", m, c)
		}
		eventually(t, s.store, "it is counted", func(jobs.Info) bool {
			return x.Counts() == jobserver.StarterCounts{Started: 4}
		})
		if i.Totals.Acknowledged != 4 {
			t.Errorf("%+v", i.Totals)
		}
	})
}

// A queue of the same name that is made later has jobs of the same numbers. They are others.
func TestAnotherQueueOfTheSameName(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		b := newBroker()
		begin(t, s.store, b, jobserver.StarterConfig{})
		for n := range 3 {
			starting(t, s.store, jobs.Settings{}, n)
			eventually(t, s.store, "it is started", empty)
			do(t, s.store, jobs.Forget{})
		}
		if got := b.inputs(); got != "0 1 2" || len(b.stored) != 3 {
			t.Errorf("started were %s", got)
		}
	})
}

// dying is a store whose process dies before it acknowledges.
type dying struct {
	jobs.Store
	died chan struct{}
	once sync.Once
}

func (d *dying) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	if slices.ContainsFunc(operations, func(o jobs.Operation) bool { _, is := o.(jobs.Acknowledge); return is }) {
		d.once.Do(func() { close(d.died) })
	}
	select {
	case <-d.died:
		return nil, errors.New("nobody is there any more")
	default:
		return d.Store.Do(ctx, name, operations...)
	}
}

func TestAStartThatWasNotAcknowledgedComesAgainAsTheSame(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
			starting(t, s.store, jobs.Settings{Mode: mode}, 1, 2, 3)
			b := newBroker()
			d := &dying{Store: s.store, died: make(chan struct{})}
			_, end := begin(t, d, b, jobserver.StarterConfig{})
			<-d.died
			end()
			eventually(t, s.store, "they are locked", func(i jobs.Info) bool { return i.Locked == 3 })
			if len(b.stored) != 3 || b.came != 3 {
				t.Errorf("%s: %d were started", mode, len(b.stored))
			}
			s.clock.move(jobs.DefaultTTL)
			_, end = begin(t, s.store, b, jobserver.StarterConfig{})
			eventually(t, s.store, "they are started again", empty)
			end()
			if len(b.stored) != 3 || b.came != 6 || b.inputs() != "1 2 3" {
				t.Errorf("%s: %d came, and are %s", mode, b.came, b.inputs())
			}
		}
	})
}

// forgetful is a store of which two answers of five are lost.
type forgetful struct {
	jobs.Store
	mu sync.Mutex
	n  int
}

func (f *forgetful) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := f.Store.Do(ctx, name, operations...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n%5 == 1 || f.n%5 == 3 {
		return nil, errors.New("the answer is lost")
	}
	return results, err
}

func TestADatabaseLosesAnswers(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
			starting(t, s.store, jobs.Settings{Mode: mode}, 1, 2, 3)
			b := newBroker()
			_, end := begin(t, &forgetful{Store: s.store}, b, jobserver.StarterConfig{})
			eventually(t, s.store, "all are started", func(i jobs.Info) bool {
				if i.Locked > 0 {
					s.clock.move(time.Second) // locks that could not be returned expire
				}
				return empty(i)
			})
			end()
			if got := strings.Fields(b.inputs()); len(b.stored) != 3 || len(got) != 3 {
				t.Errorf("%s: started were %s", mode, got)
			}
		}
	})
}

func TestTheBrokerIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		starting(t, s.store, jobs.Settings{MaxAttempts: 3}, 1, 2)
		b := newBroker()
		b.away = errors.New("no answer")
		x, _ := begin(t, s.store, b, jobserver.StarterConfig{})
		eventually(t, s.store, "they went back", func(i jobs.Info) bool { return i.Delayed == 2 })
		b.mu.Lock()
		b.away = nil
		b.mu.Unlock()
		s.clock.move(time.Second)
		eventually(t, s.store, "they are started", empty)
		if b.inputs() != "1 2" || b.came != 3 {
			t.Errorf("%d came, and are %s", b.came, b.inputs())
		}
		eventually(t, s.store, "it is counted", func(jobs.Info) bool {
			return x.Counts() == jobserver.StarterCounts{Started: 2, Returned: 2, Failed: 1}
		})
	})
}

// One job that cannot be started does not hold up the others, and its attempts are its own.
func TestAJobThatCanNeverBeStarted(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		large := json.RawMessage(`"` + strings.Repeat("x", events.MaxPayload) + `"`)
		starting(t, s.store, jobs.Settings{MaxAttempts: 2}, 1)
		do(t, s.store, jobs.Push{Jobs: []jobs.NewJob{{Data: large}, {Data: json.RawMessage("2")},
			{Data: json.RawMessage("3")}}})
		b := newBroker()
		b.refuses = func(s events.Start) error {
			if string(s.Input) == "2" {
				return errors.New("two is one too many")
			}
			return nil
		}
		x, _ := begin(t, s.store, b, jobserver.StarterConfig{})
		eventually(t, s.store, "two went back", func(i jobs.Info) bool { return i.Delayed == 2 && i.Locked == 0 })
		if b.inputs() != "1 3" {
			t.Errorf("started were %s", b.inputs())
		}
		s.clock.move(time.Second)
		eventually(t, s.store, "two are dead", func(i jobs.Info) bool {
			return i.Dead == 2 && i.Totals.Acknowledged == 2
		})
		dead, err := s.store.Dead(t.Context(), "jobs", jobs.DeadID{}, 10)
		if err != nil || len(dead) != 2 {
			t.Fatalf("%d, %v", len(dead), err)
		}
		if why := dead[0].Reason + dead[1].Reason; !strings.Contains(why,
			`orchestration "fulfil" cannot be started with it`) || dead[0].Attempts != 2 {
			t.Errorf("they have died because of %q", why)
		}
		eventually(t, s.store, "it is counted", func(jobs.Info) bool {
			return x.Counts() == jobserver.StarterCounts{Started: 2, Returned: 4, Died: 2}
		})
	})
}

// Without max_attempts it is retried ever more rarely, and those behind it proceed.
func TestAJobThatCanNeverBeStartedIsNoHurry(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		starting(t, s.store, jobs.Settings{}, 1)
		b := newBroker()
		b.refuses = func(s events.Start) error {
			if string(s.Input) == "1" {
				return errors.New("no")
			}
			return nil
		}
		begin(t, s.store, b, jobserver.StarterConfig{})
		for n, delay := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600} {
			eventually(t, s.store, "it went back", func(i jobs.Info) bool {
				return i.Totals.Returned == int64(n+1) && i.Delayed == 1
			})
			do(t, s.store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("2")}}})
			eventually(t, s.store, "another one is started", func(i jobs.Info) bool {
				return i.Totals.Acknowledged == int64(n+1)
			})
			s.clock.move(delay*time.Second - time.Microsecond)
			if i, err := s.store.Look(t.Context(), "jobs"); err != nil || i.Delayed != 1 {
				t.Fatalf("it does not wait for %d s: %+v, %v", delay, i, err)
			}
			s.clock.move(time.Microsecond)
		}
	})
}

func TestWhatNobodyKnowsStaysInTheQueue(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		starting(t, s.store, jobs.Settings{Start: &jobs.Start{Orchestration: "new", Version: "2.0.0"}}, 1)
		var mu sync.Mutex
		asked, known := make(chan string, 1000), false
		b := newBroker()
		begin(t, s.store, b, jobserver.StarterConfig{Knows: func(name, version string) bool {
			mu.Lock()
			defer mu.Unlock()
			select {
			case asked <- name + " " + version:
			default:
			}
			return known
		}})
		for range 3 {
			if got := <-asked; got != "new 2.0.0" {
				t.Errorf("asked for %s", got)
			}
		}
		if i, err := s.store.Look(t.Context(), "jobs"); err != nil || i.Depth() != 1 || i.Totals.Popped != 0 {
			t.Errorf("%+v, %v", i, err)
		}
		mu.Lock()
		known = true
		mu.Unlock()
		eventually(t, s.store, "it is started", empty)
	})
}

func TestTwoProcessesStartEachJobOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
			starting(t, s.store, jobs.Settings{Mode: mode})
			var items []jobs.NewJob
			for n := range 500 {
				items = append(items, jobs.NewJob{Data: json.RawMessage(fmt.Sprint(n)), Priority: n % 3})
			}
			do(t, s.store, jobs.Push{Jobs: items})
			b := newBroker()
			_, end1 := begin(t, s.store, b, jobserver.StarterConfig{})
			_, end2 := begin(t, s.store, b, jobserver.StarterConfig{})
			eventually(t, s.store, "all are started", empty)
			end1()
			end2()
			if len(b.stored) != 500 || b.came != 500 {
				t.Errorf("%s: %d came, of %d items", mode, b.came, len(b.stored))
			}
		}
	})
}

// A push in the process of a Starter wakes it, so that it need not look.
func TestWhatIsPushedHereIsStartedAtOnce(t *testing.T) {
	s := onSQLite(t)
	starting(t, s.store, jobs.Settings{}, 1)
	b := newBroker()
	x, _ := begin(t, s.store, b, jobserver.StarterConfig{Every: time.Hour})
	eventually(t, s.store, "it is started", empty)
	for range 20 {
		do(t, x.Hear(s.store), jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("2")}}})
		eventually(t, s.store, "it is started", empty)
	}
	if len(b.stored) != 21 {
		t.Errorf("%d were started", len(b.stored))
	}
}

// TestTheRateIsKept starts jobs at the rate, neither sooner nor much later. It has virtual time.
func TestTheRateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, perSecond, atOnce = 20, 50, 5
		store := inMemory(t)
		starting(t, store, jobs.Settings{Start: &jobs.Start{Orchestration: "fulfil", MaxPerSecond: perSecond}},
			make([]int, n)...)
		begun := time.Now()
		begin(t, store, newBroker(), jobserver.StarterConfig{})
		eventually(t, store, "all are started", empty)
		least := (n - atOnce) * time.Second / perSecond
		if took := time.Since(begun); took < least || took > least*3/2 {
			t.Errorf("%d jobs were started within %v, want %v or little more", n, took, least)
		}
	})
}

// When the process shuts down, locked jobs are returned at once, if the broker does not store
// their starts within the grace.
func TestTheEndGivesBackWhatIsLocked(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		starting(t, s.store, jobs.Settings{}, 1, 2)
		b := newBroker()
		b.blocks = true
		_, end := begin(t, s.store, b, jobserver.StarterConfig{Grace: time.Millisecond})
		eventually(t, s.store, "they are locked", func(i jobs.Info) bool { return i.Locked == 2 })
		end()
		if i, err := s.store.Look(t.Context(), "jobs"); err != nil || i.Depth() != 2 || i.Exclusive != nil {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// Some jobs of a lock can go back while the others are done.
func TestSomeJobsOfALockGoBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
			do(t, s.store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("1")}, {Data: json.RawMessage("2")},
				{Data: json.RawMessage("3")}}})
			r := do(t, s.store, jobs.Pop{Count: 3, LockID: "a", Mode: mode})
			r = do(t, s.store, jobs.Return{LockID: "a", Only: []int64{r[0].Items[1].ID, 999}},
				jobs.Pop{Count: 9, LockID: "b", Mode: mode})
			if r[0].Count != 1 || len(r[1].Items) != 1 || string(r[1].Items[0].Data) != "2" ||
				r[1].Items[0].Attempts != 2 {
				t.Errorf("%s: %+v", mode, r)
			}
			do(t, s.store, jobs.Acknowledge{LockID: "b"})
		}
		if i, err := s.store.Look(t.Context(), "jobs"); err != nil || !empty(i) ||
			i.Totals != (jobs.Totals{Pushed: 6, Popped: 8, Acknowledged: 6, Returned: 2}) {
			t.Errorf("%+v, %v", i, err)
		}
	})
}
