package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// A broker that is gone does not keep an orchestrator from ending: not when saying good-bye takes
// all of the grace, nor when it takes less.
func TestShutdownWithoutABroker(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 10 * time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, openSQLite(t), plays...)
			v := s.orchestrate(func(c *orchestrator.Config) { c.ShutdownTimeout = grace })
			s.server.Close()
			began := time.Now()
			v.stop()
			v.over = true
			select {
			case err := <-v.ended:
				t.Logf("it has ended after %v: %v", time.Since(began), err)
			case <-time.After(grace + soon):
				t.Fatal("the orchestrator does not end")
			}
		})
	}
}

// stuckCode is an orchestration whose code does not return before the test ends. entered is closed
// when the code begins.
func stuckCode(t *testing.T) (code orchestration.Binding, entered <-chan struct{}) {
	release, begun := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	var once sync.Once
	return orchestration.Define[string, string]("stuck").Bind(func(*orchestration.Context, string) (string, error) {
		once.Do(func() { close(begun) })
		<-release
		return "after all", nil
	}), begun
}

// endsSoon waits until an instance has ended, although another one is in trouble.
func (s *system) endsSoon(instance string) {
	s.t.Helper()
	within(s.t, soon, "instance "+instance+" ends", func() error {
		i, err := s.store.Instance(s.t.Context(), instance)
		if err == nil && !i.Status.Ended() {
			err = errors.New(string(i.Status))
		}
		return err
	})
}

// TestMessagesOfAStuckInstanceTakeNobodysRoom: messages for an instance whose code does not return
// do not fill the memory: the others go on.
func TestMessagesOfAStuckInstanceTakeNobodysRoom(t *testing.T) {
	t.Parallel()
	code, entered := stuckCode(t)
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{code}, basics...)...)
	v := s.orchestrate(func(c *orchestrator.Config) {
		c.RunawayAfter, c.StuckAfter = 200*time.Millisecond, 400*time.Millisecond
		c.Memory.MaxMessages, c.MaxInbox = 50, 10
	})
	s.start("stuck", "stuck", "")
	s.await(entered, "the code is stuck")
	var all []events.Message
	for i := range 100 {
		all = append(all, events.Message{ID: fmt.Sprint("l", i), Instance: "stuck",
			Content: &events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(fmt.Sprint(i))}})
	}
	s.say(all...)
	s.eventually("the memory is full, or was emptied", func() error {
		st, err := v.Status(t.Context())
		if err == nil && st.Stuck == 0 {
			err = errors.New("no orchestrator has noticed it")
		}
		return err
	})
	s.start("sleeper", "good", 1)
	s.endsSoon("good")
}

// TestDeferredCodeThatBlocksWhenForgotten: deferred code that blocks while its instance is evicted
// does not hold up the loop.
func TestDeferredCodeThatBlocksWhenForgotten(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	blocks := orchestration.Define[string, string]("blocks")
	s := newSystem(t, openSQLite(t),
		append([]orchestration.Binding{blocks.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
			defer func() { <-release }()
			_, err := work.Letters.Receive(ctx)
			return "", err
		})}, basics...)...)
	s.orchestrate(func(c *orchestrator.Config) {
		c.RunawayAfter, c.StuckAfter, c.Memory.MaxInstances = 200*time.Millisecond, 400*time.Millisecond, 1
	})
	for i := range 3 {
		s.start("blocks", fmt.Sprint("b", i), "")
	}
	for i := range 3 {
		s.start("sleeper", fmt.Sprint("good", i), 1)
	}
	for i := range 3 {
		within(t, soon, "an innocent instance ends", func() error {
			i, err := s.store.Instance(t.Context(), fmt.Sprint("good", i))
			if err == nil && !i.Status.Ended() {
				err = errors.New(string(i.Status))
			}
			return err
		})
	}
}

// TestSlowDeferredCodeIsNotCalledStuck: the orchestrator logs that deferred code does not return
// only if it does not; not if it takes a moment, or if the machine is busy.
func TestSlowDeferredCodeIsNotCalledStuck(t *testing.T) {
	t.Parallel()
	const complaint = "does not return when the instance is evicted"
	for name, blocks := range map[string]bool{"for a moment": false, "for ever": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release, moment, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(release) })
			close(moment)
			wait := moment
			if blocks {
				wait = release
			}
			var once sync.Once
			deferring := orchestration.Define[string, string]("deferring")
			s := newSystem(t, openSQLite(t), append(
				[]orchestration.Binding{deferring.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
					defer func() {
						<-time.After(50 * time.Millisecond)
						<-wait
						once.Do(func() { close(over) })
					}()
					_, err := work.Letters.Receive(ctx)
					return "", err
				})}, basics...)...)
			said := &lockedBuffer{}
			s.orchestrate(func(c *orchestrator.Config) {
				c.Memory.MaxInstances, c.Logger = 1, slog.New(slog.NewTextHandler(said, nil))
				if blocks {
					c.RunawayAfter = 100 * time.Millisecond
				}
			})
			s.start("deferring", "d", "")
			s.reaches("d", events.KindMailboxRead)
			s.start("waiter", "w", "") // there is room for one
			if !blocks {
				s.await(over, "the deferred code ends")
				if strings.Contains(said.String(), complaint) {
					t.Errorf("the orchestrator complained:\n%s", said)
				}
				return
			}
			s.eventually("the orchestrator complains", func() error {
				if !strings.Contains(said.String(), complaint) {
					return errors.New("it has not")
				}
				return nil
			})
		})
	}
}

// TestHandedOverInOrder: forwarded messages keep their order, unless one of them is nacked because
// the other orchestrator did not answer in time.
func TestHandedOverInOrder(t *testing.T) {
	t.Parallel()
	const m = 4
	n := racetest.Size(100, 30)
	s := newSystem(t, openSQLite(t), basics...)
	said := &lockedBuffer{}
	logs := func(c *orchestrator.Config) {
		c.Logger = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s.orchestrate(logs)
	s.orchestrate(logs)
	reader := orchestration.Define[int, []int]("reader")
	s.deploy(reader.Bind(func(ctx *orchestration.Context, n int) (got []int, err error) {
		for range n {
			x, err := work.Letters.Receive(ctx)
			if err != nil {
				return nil, err
			}
			got = append(got, x)
		}
		return got, nil
	}))
	s.orchestrate()
	for j := range m {
		s.start("reader", fmt.Sprint("r", j), n)
	}
	for j := range m {
		s.reaches(fmt.Sprint("r", j), events.KindStarted)
	}
	for i := range n {
		var all []events.Message
		for j := range m {
			all = append(all, events.Message{ID: fmt.Sprint("l", i, "-", j), Instance: fmt.Sprint("r", j),
				Content: &events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(fmt.Sprint(i))}})
		}
		s.say(all...)
	}
	for j := range m {
		info := s.ended(fmt.Sprint("r", j))
		var want []int
		for i := range n {
			want = append(want, i)
		}
		var got []int
		if err := json.Unmarshal(info.Output, &got); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said.String(), "nacked") {
			t.Log("messages were nacked: their order is not promised")
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("r%d got %v", j, got)
		}
	}
}

// TestWorkGoesOnAtOnceAfterTheBrokerWasAway: after an outage of some seconds, work goes on as soon
// as the broker is back: services leave no pull requests behind that take messages for a reader
// that is gone.
func TestWorkGoesOnAtOnceAfterTheBrokerWasAway(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), plays...)
	s.config.TaskAckWait, s.config.InboxAckWait = time.Minute, time.Minute
	s.orchestrate(func(c *orchestrator.Config) { c.Round.Patience = time.Minute })
	s.labour()
	s.start("once", "before", "a")
	s.completed("before", "a")
	s.server.Close()
	away := time.NewTimer(5 * time.Second)
	<-away.C
	s.startBroker()
	for i := range 6 {
		s.start("once", fmt.Sprint("after", i), "a")
	}
	within(t, soon, "all end", func() error {
		for i := range 6 {
			x, err := s.store.Instance(t.Context(), fmt.Sprint("after", i))
			if err != nil || !x.Status.Ended() {
				return errors.Join(err, fmt.Errorf("after%d is %s", i, x.Status))
			}
		}
		return nil
	})
}

// TestReplayEachHaltsAtOnce: with a replay before each round, as dev has it, code that differs from
// run to run is halted at its next event, without a restart.
func TestReplayEachHaltsAtOnce(t *testing.T) {
	t.Parallel()
	odd := orchestration.Define[string, string]("odd")
	var runs atomic.Int64
	s := newSystem(t, openSQLite(t), odd.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		if runs.Add(1) == 1 {
			if _, err := approval.Wait(ctx); err != nil {
				return "", err
			}
		}
		return "", ctx.Sleep(time.Hour)
	}))
	s.orchestrate(func(c *orchestrator.Config) { c.Memory.ReplayEach = true })
	s.start("odd", "i", "")
	s.reaches("i", events.KindEventAwaited)
	s.say(events.Message{ID: "e", Instance: "i",
		Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"x"`)}})
	s.reaches("i", events.KindSuspended)
}

// TestReplayEachHaltsAtOtherData: with a replay before each round, code that does the same with
// other data is halted too, if this process has recorded the data. Another process may have had
// other code: what it recorded stands.
func TestReplayEachHaltsAtOtherData(t *testing.T) {
	t.Parallel()
	odd := orchestration.Define[string, string]("odd")
	var runs atomic.Int64
	s := newSystem(t, openSQLite(t), odd.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		run := runs.Add(1)
		for {
			shapeTotal.Set(ctx, int(run))
			if _, err := approval.Wait(ctx); err != nil {
				return "", err
			}
		}
	}))
	each := func(c *orchestrator.Config) { c.Memory.ReplayEach = true }
	raise := func(id string) {
		s.say(events.Message{ID: id, Instance: "i",
			Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"x"`)}})
	}
	v := s.orchestrate(each)
	s.start("odd", "i", "")
	s.reaches("i", events.KindEventAwaited)
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	s.orchestrate(each)
	raise("a")
	s.reaches("i", events.KindEventReceived) // and waits again: one turn
	raise("b")
	s.reaches("i", events.KindSuspended)
	x, err := s.store.Instance(t.Context(), "i")
	if err != nil {
		t.Fatal(err)
	}
	if e := x.Error; e == nil || e.Kind != failure.Nondeterminism || e.Type != failure.ChangedData || e.Event <= 3 {
		t.Errorf("it is %s with %+v", x.Status, e)
	}
}

// TestAHaltedInstanceGoesOnWithCodeThatFits: a halted instance goes on once fitting code is
// deployed, even without a message for it.
func TestAHaltedInstanceGoesOnWithCodeThatFits(t *testing.T) {
	t.Parallel()
	odd := orchestration.Define[string, string]("odd")
	good := odd.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		if _, err := approval.Wait(ctx); err != nil {
			return "", err
		}
		return "fits", ctx.Sleep(time.Hour)
	})
	bad := odd.Bind(func(ctx *orchestration.Context, _ string) (string, error) { return "", ctx.Sleep(time.Hour) })
	long := func(c *orchestrator.Config) { c.Round.HaltedFor = time.Hour }
	s := newSystem(t, openSQLite(t), good)
	v := s.orchestrate(long)
	s.start("odd", "i", "")
	s.reaches("i", events.KindEventAwaited)
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	s.deploy(bad)
	v = s.orchestrate(long)
	s.say(events.Message{ID: "e", Instance: "i",
		Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"x"`)}})
	s.reaches("i", events.KindSuspended)
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	s.deploy(good)
	s.orchestrate(long)
	s.reaches("i", events.KindResumed)
	s.reaches("i", events.KindTimerCreated)
}

// narrow is a store that cannot read more than a few instances within the time limit.
type narrow struct {
	*probedStore
	most    int
	tooMany *atomic.Int64 // reads that exceed the time limit
}

func (n narrow) Load(ctx context.Context, ids []string, admit func(string, round.Row) bool) ([]round.Known, error) {
	if len(ids) > n.most {
		n.tooMany.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.probedStore.Load(ctx, ids, admit)
}

// Instances that are too large to be read all at once within the time limit are read a few at a
// time.
func TestManyLargeInstancesAreRead(t *testing.T) {
	t.Parallel()
	n := racetest.Size(200, 60)
	reader := orchestration.Define[string, int]("narrow-reader")
	s := newSystem(t, openSQLite(t),
		append([]orchestration.Binding{reader.Bind(func(ctx *orchestration.Context, _ string) (int, error) {
			return work.Letters.Receive(ctx)
		})}, basics...)...)
	first := s.orchestrate()
	for i := range n {
		s.start("narrow-reader", fmt.Sprint("r", i), "")
	}
	for i := range n {
		s.reaches(fmt.Sprint("r", i), events.KindStarted)
	}
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s.say(events.Message{ID: fmt.Sprint("l", i), Instance: fmt.Sprint("r", i),
			Content: &events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(fmt.Sprint(i))}})
	}
	v := s.prepare()
	c := s.hasty()
	c.LoadTimeout = time.Second
	const most = 8
	store := narrow{v.store, most, new(atomic.Int64)}
	o, err := orchestrator.New(v.broker, store, s.code, c)
	if err != nil {
		t.Fatal(err)
	}
	v.Orchestrator = o
	v.start()
	for i := range n {
		s.completed(fmt.Sprint("r", i), i)
	}
	// At first the orchestrator halves its reads. Later it doubles them after each read that
	// succeeds, so that about each second one exceeds the time limit.
	if is, allowed := store.tooMany.Load(), int64(2*n/most+20); is > allowed {
		t.Errorf("%d reads of %d instances exceeded the time limit, want at most %d", is, n, allowed)
	}
}

// TestOneTurnThatIsNeverStored: a turn that the database never manages to store (its statement
// takes too long, or too much memory) does not hold up other instances.
func TestOneTurnThatIsNeverStored(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	v := s.prepare()
	v.store.before = func(b history.Batch) error {
		for _, d := range b.Turns {
			if d.Turn.Instance == "bad" {
				return &history.Error{Class: history.Retry, Op: "commit",
					Err: errors.New("memory budget exceeded (SQLSTATE 53200)")}
			}
		}
		return nil
	}
	v.start()
	s.start("sleeper", "bad", 1)
	s.journal.await("received rondo.start.sleeper.bad", 1)
	for i := range 20 {
		s.start("sleeper", fmt.Sprint("good", i), 1)
	}
	for i := range 20 {
		within(t, soon, "an innocent instance ends", func() error {
			i, err := s.store.Instance(t.Context(), fmt.Sprint("good", i))
			if err == nil && !i.Status.Ended() {
				err = errors.New(string(i.Status))
			}
			return err
		})
	}
}

// stepping begins instances whose first run of an inline step lasts until it is stopped.
func stepping(t *testing.T, n int) (s *system, first *service) {
	var mu sync.Mutex
	begun := make(map[string]bool)
	all := make(chan struct{})
	s = newSystem(t, openSQLite(t), main.Bind(func(ctx *orchestration.Context, in string) (string, error) {
		return orchestration.Step(ctx, "once more", func(ctx context.Context) (string, error) {
			mu.Lock()
			again := begun[in]
			begun[in] = true
			if !again && len(begun) == n {
				close(all)
			}
			mu.Unlock()
			if again {
				return "done", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
	}))
	first = s.orchestrate(patient)
	for i := range n {
		s.start("main", fmt.Sprint("i", i), fmt.Sprint("i", i))
	}
	s.await(all, "the steps begin")
	return s, first
}

// patient does not let the sweep help.
func patient(c *orchestrator.Config) {
	c.Round.StepPatience, c.ShutdownTimeout = time.Minute, 5*time.Second
}

// Steps run again at once where their partition has moved to.
func TestStepsMoveWithTheirPartition(t *testing.T) {
	t.Parallel()
	s, first := stepping(t, 1)
	s.orchestrate(patient)
	if err := first.end(); err != nil {
		t.Error(err)
	}
	s.completed("i0", "done")
}

// TestStepsMoveToANewOrchestrator: the same while the former owner keeps running.
func TestStepsMoveToANewOrchestrator(t *testing.T) {
	t.Parallel()
	const n = 16
	s, first := stepping(t, n)
	second := s.orchestrate(patient)
	s.eventually("the partitions are shared", func() error {
		if a, b := len(first.Owned()), len(second.Owned()); a == 0 || b == 0 || a+b != 4 {
			return fmt.Errorf("%d and %d", a, b)
		}
		return nil
	})
	silence := time.NewTimer(3 * time.Second)
	<-silence.C
	st, err := first.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.store.List(t.Context(), running, history.Page{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Instances) != st.Steps {
		t.Errorf("%d instances run still, %d have their steps with the first orchestrator",
			len(list.Instances), st.Steps)
	}
}

// TestStreamIsMadeAgainWhileMessagesAreHeld: a stream that is deleted and created again counts its
// messages from one again. Messages held from the old stream must not settle, nor hide, messages of
// the new one.
func TestStreamIsMadeAgainWhileMessagesAreHeld(t *testing.T) {
	t.Parallel()
	const n = 20
	s := newSystem(t, openSQLite(t), basics...)
	r := s.raw()
	v := s.prepare()
	var hold atomic.Bool
	hold.Store(true)
	v.store.before = func(b history.Batch) error {
		if hold.Load() {
			return &history.Error{Class: history.Retry, Op: "commit", Err: errors.New("the database is away")}
		}
		return nil
	}
	v.start()
	for i := range n {
		s.start("sleeper", fmt.Sprint("before", i), 1)
	}
	s.journal.await("received rondo.start.sleeper.before", n)
	if err := r.js.DeleteStream(t.Context(), "RONDO"); err != nil {
		t.Fatal(err)
	}
	s.eventually("the stream is made again", func() error {
		_, err := r.js.Stream(t.Context(), "RONDO")
		return err
	})
	for i := range n {
		s.start("sleeper", fmt.Sprint("after", (i+1)%n), 1) // so that some have place and partition of one before
	}
	s.journal.await("received rondo.start.sleeper.after", n)
	hold.Store(false)
	s.settledWithin(patience)
	silence := time.NewTimer(2 * time.Second)
	<-silence.C
	for i := range n {
		if _, err := s.store.Instance(t.Context(), fmt.Sprint("after", i)); err != nil {
			t.Errorf("after%d is lost: %v", i, err)
		}
	}
}
