package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// These tests use the features of both services as applications do: each is an orchestration whose
// activity runs on a worker.

// job1 and main are the definitions that most of these tests share.
var (
	job1 = activity.Define[string, string]("job")
	main = orchestration.Define[string, string]("main")
)

// calling is an orchestration that calls the activity, with options.
func calling(opts ...activity.Option) orchestration.Binding {
	return main.Bind(func(ctx *orchestration.Context, s string) (string, error) { return job1.Call(ctx, s, opts...) })
}

// onFull makes a system with one orchestration and one activity, with its services running.
func onFull(t *testing.T, o orchestration.Binding, fn func(context.Context, string) (string, error),
	change ...func(*worker.Config)) *system {
	t.Helper()
	t.Parallel()
	s := newSystem(t, openSQLite(t), o)
	s.orchestrate()
	s.employ([]activity.Binding{job1.Bind(fn)}, change...)
	return s
}

// failsWith waits until an instance has failed, and checks its error.
func (s *system) failsWith(instance string, kind failure.Kind, says string) {
	s.t.Helper()
	info := s.ended(instance)
	if info.Status != round.Failed || info.Error == nil || info.Error.Kind != kind ||
		!strings.Contains(info.Error.Error(), says) {
		s.t.Errorf("instance %s is %s with %+v; want it to have failed with %s: %s", instance, info.Status,
			info.Error, kind, says)
	}
}

func (s *system) control(instance string, how events.How) {
	s.t.Helper()
	s.say(events.Message{ID: fmt.Sprint(how, "-", instance, "-", time.Now().UnixNano()), Instance: instance,
		Content: &events.Control{How: how, Reason: "a test"}})
}

// TestCancellationReachesTheActivity cancels an instance while its activity runs. The worker asks
// the broker about an activity only when it extends the ack wait, here after the test's patience:
// only the withdrawal ends the activity sooner.
func TestCancellationReachesTheActivity(t *testing.T) {
	t.Parallel()
	begun, told := make(chan struct{}), make(chan struct{})
	s := newSystem(t, openSQLite(t), calling())
	s.config.TaskAckWait = 12 * patience
	s.orchestrate()
	s.employ([]activity.Binding{job1.Bind(func(ctx context.Context, _ string) (string, error) {
		close(begun)
		<-ctx.Done()
		close(told)
		return "", ctx.Err()
	})})
	s.start("main", "i", "")
	s.await(begun, "the activity begins")
	s.control("i", events.Cancel)
	info := s.ended("i")
	s.await(told, "the activity is told")
	if info.Status != round.Cancelled {
		t.Errorf("it is %s", info.Status)
	}
}

func TestTerminationReachesTheActivity(t *testing.T) {
	begun, told := make(chan struct{}), make(chan struct{})
	s := onFull(t, calling(), func(ctx context.Context, _ string) (string, error) {
		close(begun)
		<-ctx.Done()
		close(told)
		return "", ctx.Err()
	})
	s.start("main", "i", "")
	s.await(begun, "the activity begins")
	s.control("i", events.Terminate)
	s.await(told, "the activity is told")
	if info := s.ended("i"); info.Status != round.Terminated {
		t.Errorf("it is %s", info.Status)
	}
}

// TestCancelledBeforeAWorkerTookIt: a task that is withdrawn before a worker takes it is never
// executed.
func TestCancelledBeforeAWorkerTookIt(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), calling())
	s.orchestrate()
	s.start("main", "i", "")
	s.reaches("i", events.KindActivityScheduled)
	s.control("i", events.Cancel)
	s.ended("i")
	s.eventually("the work is withdrawn", func() error {
		has, err := s.bus.Has(t.Context(), events.Wire{Subject: "rondo.task._.job." + s.token("i", 2) + ".i"})
		if err == nil && has {
			err = errors.New("it is there")
		}
		return err
	})
	var ran atomic.Bool
	s.employ([]activity.Binding{job1.Bind(func(context.Context, string) (string, error) {
		ran.Store(true)
		return "", nil
	})})
	s.start("main", "j", "") // when this one is done, the other would have been
	s.ended("j")
	if n := len(s.journal.find("received rondo.task-done.1-2.i")); n > 0 {
		t.Error("the withdrawn work was done")
	}
}

func TestSuspendAndResume(t *testing.T) {
	release := make(chan struct{})
	s := onFull(t, main.Bind(func(ctx *orchestration.Context, in string) (string, error) {
		a, err := job1.Call(ctx, in)
		if err != nil {
			return "", err
		}
		return job1.Call(ctx, a)
	}), func(_ context.Context, in string) (string, error) {
		<-release
		return in + "x", nil
	})
	s.start("main", "i", "a")
	s.reaches("i", events.KindActivityScheduled)
	s.control("i", events.Suspend)
	s.reaches("i", events.KindSuspended)
	close(release)
	s.reaches("i", events.KindActivityCompleted) // it is taken in, and the code does not go on
	s.settled()
	s.wantKinds("i", events.KindStarted, events.KindActivityScheduled, events.KindSuspended,
		events.KindActivityCompleted)
	s.control("i", events.Resume)
	s.completed("i", "axx")
}

func TestHeartbeatsAreReadByTheNextAttempt(t *testing.T) {
	var read atomic.Value
	s := onFull(t, calling(activity.Retry(3, activity.Fixed(10*time.Millisecond))),
		func(ctx context.Context, _ string) (string, error) {
			at, ok, err := activity.LastHeartbeat[int](ctx)
			if err != nil {
				return "", err
			}
			if ok {
				read.Store(at)
				return fmt.Sprint("from page ", at), nil
			}
			if err := activity.Heartbeat(ctx, 7); err != nil {
				return "", err
			}
			return "", errors.New("the connection broke")
		})
	s.start("main", "i", "")
	s.completed("i", "from page 7")
}

func TestHeartbeatTimeout(t *testing.T) {
	s := onFull(t, calling(activity.HeartbeatTimeout(150*time.Millisecond)),
		func(ctx context.Context, _ string) (string, error) {
			for range 3 {
				if err := activity.Heartbeat(ctx, "alive"); err != nil {
					return "", err
				}
			}
			<-ctx.Done() // and then nothing more
			return "", ctx.Err()
		})
	s.start("main", "i", "")
	s.failsWith("i", failure.Timeout, "heartbeat")
}

func TestStartToCloseTimeout(t *testing.T) {
	s := onFull(t, calling(activity.StartToClose(100*time.Millisecond)),
		func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	s.start("main", "i", "")
	s.failsWith("i", failure.Timeout, "longer than")
}

// ScheduleToClose is the orchestrator's business: no worker is needed.
func TestScheduleToCloseWithoutAWorker(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t),
		calling(activity.ScheduleToClose(300*time.Millisecond), activity.Tag("nobody-serves-this")))
	s.orchestrate()
	s.start("main", "i", "")
	s.failsWith("i", failure.Timeout, "from schedule to close")
}

func TestScheduleToStartRescuesUntendedTags(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t),
		calling(activity.ScheduleToStart(300*time.Millisecond), activity.Tag("nobody-serves-this")))
	s.orchestrate()
	s.start("main", "i", "")
	s.failsWith("i", failure.Timeout, "no worker took it up in time")
}

func TestActivityPanics(t *testing.T) {
	s := onFull(t, calling(), func(context.Context, string) (string, error) { panic("out of cheese") })
	s.start("main", "i", "")
	info := s.ended("i")
	if info.Status != round.Failed || !strings.Contains(info.Error.Error(), "out of cheese") {
		t.Errorf("it is %s with %+v", info.Status, info.Error)
	}
}

func TestTagsFindTheirWorkers(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), main.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		a, b := job1.Start(ctx, "plain"), job1.Start(ctx, "tagged", activity.Tag("gpu"))
		x, errA := a.Get(ctx)
		y, errB := b.Get(ctx)
		return x + ", " + y, errors.Join(errA, errB)
	}))
	s.orchestrate()
	at := func(where string) []activity.Binding {
		return []activity.Binding{job1.Bind(func(_ context.Context, s string) (string, error) {
			return s + " at " + where, nil
		})}
	}
	s.employ(at("default"))
	s.employ(at("gpu"), func(c *worker.Config) { c.Tags = worker.Tags("gpu") })
	for i := range 5 {
		s.start("main", fmt.Sprint("i", i), "")
		s.completed(fmt.Sprint("i", i), "plain at default, tagged at gpu")
	}
}

func TestSessionsStayWithOneWorker(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), main.Bind(func(ctx *orchestration.Context, session string) (string, error) {
		seen := map[string]bool{}
		for range 6 {
			who, err := job1.Call(ctx, "", activity.Session(session))
			if err != nil {
				return "", err
			}
			seen[who] = true
		}
		return fmt.Sprint(len(seen)), nil
	}))
	s.orchestrate()
	for range 3 {
		s.employ([]activity.Binding{job1.Bind(func(ctx context.Context, _ string) (string, error) {
			return activity.Info(ctx).Worker, nil
		})})
	}
	for i := range 6 {
		s.start("main", fmt.Sprint("i", i), fmt.Sprint("session ", i))
	}
	for i := range 6 {
		s.completed(fmt.Sprint("i", i), "1")
	}
}

func TestCompletedByToken(t *testing.T) {
	tokens := make(chan string, 1)
	s := onFull(t, calling(), func(ctx context.Context, _ string) (string, error) {
		tokens <- activity.Token(ctx)
		return "", activity.ErrResultPending
	})
	s.start("main", "i", "")
	var token string
	select {
	case token = <-tokens:
	case <-time.After(patience):
		t.Fatal("the activity does not begin")
	}
	s.reaches("i", events.KindActivityBegun)
	s.settled()
	instance, ref, err := events.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	// The sweep does not have it executed again, although it has been silent for longer than it is
	// patient.
	silence := time.NewTimer(2 * time.Second)
	<-silence.C
	s.say(events.Message{ID: "by hand", Instance: instance,
		Content: &events.TaskDone{Ref: ref, Result: codec.Payload(`"by hand"`)}})
	s.completed("i", "by hand")
	if n := len(s.journal.find("published rondo.task")); n != 1 {
		t.Errorf("the work was published %d times", n)
	}
}

// TestRateLimit compares when executions begin with when they may: a slow machine begins them
// later.
func TestRateLimit(t *testing.T) {
	const n, rate, atOnce = 30, 20, 2
	var mu sync.Mutex
	var at []time.Time
	before := time.Now() // the worker does not exist yet
	s := onFull(t, calling(), func(context.Context, string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return "", nil
	}, func(c *worker.Config) { c.RatePerActivity = map[string]float64{"job": rate} })
	for i := range n {
		s.start("main", fmt.Sprint("i", i), "")
	}
	for i := range n {
		s.ended(fmt.Sprint("i", i))
	}
	mu.Lock()
	defer mu.Unlock()
	for i, began := range at {
		if due := before.Add(time.Duration(i+1-atOnce) * time.Second / rate); began.Before(due) {
			t.Errorf("execution %d began %v early: the rate is %d per second, %d at once", i+1, due.Sub(began), rate,
				atOnce)
		}
	}
}

// TestUnregisteredWaitsForAReplicaThatKnowsIt: a message of an unregistered orchestration waits for
// a replica that has it registered, and shows among the unknown ones.
func TestUnregisteredWaitsForAReplicaThatKnowsIt(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	first := s.orchestrate()
	s.start("main", "i", "a")
	s.eventually("it is visible", func() error {
		u := first.Unknown()
		if len(u) != 1 || u[0].Instance != "i" || !strings.Contains(u[0].Detail, `"main" is not registered`) {
			return fmt.Errorf("it shows %+v", u)
		}
		return nil
	})
	s.deploy(main.Bind(func(_ *orchestration.Context, in string) (string, error) { return in + "!", nil }))
	s.orchestrate()
	s.completed("i", "a!")
	// From then on, orchestrators forward them at once, whichever owns the partition.
	for i := range 8 {
		id := fmt.Sprint("j", i)
		s.start("main", id, id)
		s.start("sleeper", id+"s", 1)
	}
	for i := range 8 {
		id := fmt.Sprint("j", i)
		s.completed(id, id+"!")
		s.completed(id+"s", "slept")
	}
}

// Instances of an old version go on where it is known, beside the new one.
func TestTwoVersionsSideBySide(t *testing.T) {
	t.Parallel()
	version := func(v string) orchestration.Binding {
		return main.Bind(func(ctx *orchestration.Context, in string) (string, error) {
			got, err := approval.Wait(ctx)
			return v + " " + got, err
		}, orchestration.Version(v))
	}
	s := newSystem(t, openSQLite(t), version("1.0.0"))
	old := s.orchestrate()
	for i := range 6 {
		s.start("main", fmt.Sprint("old", i), "")
		s.reaches(fmt.Sprint("old", i), events.KindEventAwaited)
	}
	s.deploy(version("2.0.0"))
	s.orchestrate()
	for i := range 6 {
		s.say(events.Message{ID: fmt.Sprint("new", i), Instance: fmt.Sprint("new", i),
			Content: &events.Start{Orchestration: "main", Version: "2.0.0", Input: codec.Payload(`""`)}})
		s.reaches(fmt.Sprint("new", i), events.KindEventAwaited)
	}
	for i := range 6 {
		for _, id := range []string{fmt.Sprint("old", i), fmt.Sprint("new", i)} {
			s.say(events.Message{ID: id + "-e", Instance: id,
				Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"yes"`)}})
		}
	}
	for i := range 6 {
		s.completed(fmt.Sprint("old", i), "1.0.0 yes")
		s.completed(fmt.Sprint("new", i), "2.0.0 yes")
	}
	_ = old
}

// A message that cannot be processed in many attempts ends its instance, is dead-lettered, and does
// not hold up others.
func TestPoison(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	cautious := func(c *orchestrator.Config) { c.Round.MaxAttempts, c.QuarantineAfter = 3, 1 }
	first := s.orchestrate(cautious)
	s.start("sleeper", "good", 1)
	s.completed("good", "slept")
	s.start("waiter", "bad", "")
	s.reaches("bad", events.KindEventAwaited)
	if err := first.end(); err != nil { // so that no orchestrator has it in memory
		t.Fatal(err)
	}
	s.corrupt("bad")
	s.orchestrate(cautious)
	s.say(events.Message{ID: "e", Instance: "bad", Content: &events.EventRaised{Name: "approval"}})
	s.start("sleeper", "good2", 1)
	s.completed("good2", "slept")
	info := s.ended("bad")
	if info.Status != round.Failed || info.Error == nil || info.Error.Kind != failure.Unreadable {
		t.Errorf("it is %s with %+v", info.Status, info.Error)
	}
	m := s.dead(s.raw(), "rondo.event.approval.bad")
	if m.Header.Get("Rondo-Dead-Reason") != "poison" {
		t.Errorf("the dead letter says %v", m.Header)
	}
}

// TestRunawayAndStuckCode: code that never returns is interrupted when it makes a call, and other
// instances go on meanwhile.
func TestRunawayAndStuckCode(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	stuck := orchestration.Define[string, string]("stuck")
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{
		main.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
			for {
				ctx.Now() // it never waits
				_, _, _ = work.Total.Get(ctx)
			}
		}),
		stuck.Bind(func(*orchestration.Context, string) (string, error) {
			<-release
			return "after all", nil
		}),
	}, basics...)...)
	s.orchestrate(func(c *orchestrator.Config) {
		c.RunawayAfter, c.StuckAfter, c.RoundConcurrency = 200*time.Millisecond, 400*time.Millisecond, 1
	})
	s.start("main", "runaway", "")
	s.failsWith("runaway", failure.Runaway, "")
	s.start("stuck", "stuck", "")
	for i := range 5 {
		s.start("sleeper", fmt.Sprint("good", i), 1)
	}
	for i := range 5 {
		s.completed(fmt.Sprint("good", i), "slept")
	}
	once.Do(func() { close(release) })
	s.completed("stuck", "after all")
}

// Inline steps run again after the process was killed.
func TestStepRunsAgainAfterACrash(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	begun := make(chan struct{})
	s := newSystem(t, openSQLite(t), main.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		return orchestration.Step(ctx, "once more", func(ctx context.Context) (string, error) {
			if runs.Add(1) == 1 {
				close(begun)
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "done", nil
		})
	}))
	v := s.orchestrate()
	s.start("main", "i", "")
	s.await(begun, "the step begins")
	v.kill()
	_ = v.wait() // it was killed
	s.orchestrate()
	s.completed("i", "done")
}

// What one instance has stored, another one reads.
func TestReadingAValueOfAnotherInstance(t *testing.T) {
	t.Parallel()
	reader := orchestration.Define[string, string]("reader")
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{
		main.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
			work.Total.Set(ctx, 42)
			return "", nil
		}),
		reader.Bind(func(ctx *orchestration.Context, of string) (string, error) {
			v, err := work.Total.ReadFrom(ctx, of).Get(ctx)
			if err != nil || v == nil {
				return "nothing", err
			}
			return fmt.Sprint(*v), nil
		}),
	}, basics...)...)
	s.orchestrate()
	s.start("main", "i", "")
	s.ended("i")
	s.start("reader", "r", "i")
	s.completed("r", "42")
	s.start("reader", "r2", "nobody")
	s.completed("r2", "nothing")
}

// TestHeadersRepeatNoStart publishes a start with headers that ask to repeat it. It begins one
// instance, with the id that the subject names.
func TestHeadersRepeatNoStart(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate()
	r := s.raw()
	repeating := map[string][]string{"Rondo-Each": {"true"}, "Rondo-Schedule": {"nightly"},
		"Rondo-Schedule-Revision": {"1"}, "Rondo-Fired": {"2001-01-01T00:00:00Z"}}
	for range 2 {
		if err := r.publish("rondo.start.sleeper.nightly", repeating, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	s.completed("nightly", "slept")
	s.settled()
	if all := s.list(rootsOnly); len(all) != 1 {
		t.Errorf("there are %+v", all)
	}
}

// TestDeletedWhileWorkIsInFlight: the instance is deleted while its activity runs: the result does
// not bring it back.
func TestDeletedWhileWorkIsInFlight(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := onFull(t, calling(), func(context.Context, string) (string, error) {
		close(begun)
		<-release
		return "late", nil
	})
	s.start("main", "i", "")
	s.await(begun, "the activity begins")
	if _, err := s.store.Delete(t.Context(), []string{"i"}, force); err != nil {
		t.Fatal(err)
	}
	close(release)
	s.journal.await("acknowledged rondo.task-done.1-2.i", 1)
	s.settled()
	if all := s.list(rootsOnly); len(all) != 0 {
		t.Errorf("there is %+v", all)
	}
}
