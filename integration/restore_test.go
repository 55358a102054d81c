package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// This file follows docs/operating.md about backups, step by step.

var (
	held   = activity.Define[int, int]("held")
	beaten = activity.Define[string, string]("beaten", activity.Retry(3, activity.Fixed(10*time.Millisecond)))

	answer  = orchestration.DefineEvent[string]("answer")
	forking = orchestration.Define[int, string]("forking")
	middle  = orchestration.Define[int, int]("middle")
)

// restored are the orchestrations whose state at the moment of the backup is known.
var restored = []orchestration.Binding{
	middle.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		n, err := work.Double.Call(ctx, n)
		if err != nil {
			return 0, err
		}
		if n, err = held.Call(ctx, n); err != nil {
			return 0, err
		}
		return work.Double.Call(ctx, n)
	}),
	forking.Bind(func(ctx *orchestration.Context, n int) (string, error) {
		s, err := answer.Wait(ctx)
		if err != nil {
			return "", err
		}
		return beaten.Call(ctx, s)
	}),
}

// hands executes the activities of these orchestrations. Until it may let go, it only reports that
// they have begun.
type hands struct {
	mu   sync.Mutex
	open chan struct{}
	keys map[string][]string // by instance
	seen chan string         // instances whose held activity has begun
}

func (h *hands) bindings() []activity.Binding {
	return append(works[:len(works):len(works)],
		held.Bind(func(ctx context.Context, n int) (int, error) {
			info := activity.Info(ctx)
			h.mu.Lock()
			open := h.open
			h.keys[info.Instance] = append(h.keys[info.Instance], info.IdempotencyKey)
			h.mu.Unlock()
			h.seen <- info.Instance
			select {
			case <-open:
				return 2 * n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}),
		beaten.Bind(func(ctx context.Context, s string) (string, error) {
			if before, ok, err := activity.LastHeartbeat[string](ctx); err != nil || ok {
				return before, err
			}
			if s == "no" {
				return "nobody knows of " + s, nil
			}
			if err := activity.Heartbeat(ctx, s); err != nil {
				return "", err
			}
			h.seen <- activity.Info(ctx).Instance
			<-ctx.Done()
			return "", ctx.Err()
		}))
}

// TestRestoredDatabase goes back to a moment while instances are in all sorts of states, with a
// backup and the log of the database, and with a dump of it.
func TestRestoredDatabase(t *testing.T) {
	pgtest.NeedBackups(t)
	t.Parallel()
	for _, way := range []struct {
		name          string
		options       []pgtest.Option
		before        func(*testing.T, *pgtest.Cluster)
		save, restore func(t *testing.T, c *pgtest.Cluster, address string)
	}{
		{"point in time", []pgtest.Option{pgtest.Archived()}, func(t *testing.T, c *pgtest.Cluster) { c.Backup(t) },
			func(t *testing.T, c *pgtest.Cluster, _ string) { c.Mark(t, "moment") },
			func(t *testing.T, c *pgtest.Cluster, _ string) { c.RestoreTo(t, "moment") }},
		{"dump", nil, func(*testing.T, *pgtest.Cluster) {},
			func(t *testing.T, c *pgtest.Cluster, address string) { c.Dump(t, address) },
			func(t *testing.T, c *pgtest.Cluster, address string) { c.Load(t, address) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := pgtest.Start(t, append(way.options, pgtest.Fsync(false))...)
			address, _, err := c.Create() // it goes with the server
			if err != nil {
				t.Fatal(err)
			}
			s := newSystem(t, func() history.Store {
				s, err := cockroach.Open(t.Context(), address,
					cockroach.Options{WakeStep: wakeStep, MaxConns: 4, Log: quiet(), ConnectTimeout: connects})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}, append(plays[:len(plays):len(plays)], restored...)...)
			way.before(t, c)
			restoring(t, s, func() { way.save(t, c, address) }, func() { way.restore(t, c, address) })
		})
	}
}

// unhurried keeps orchestrators from repairing silent instances: `rondo recover` publishes missing
// messages, or they stay missing.
func unhurried(c *orchestrator.Config) { c.Round.Patience = time.Hour }

func restoring(t *testing.T, s *system, save, restore func()) {
	h := &hands{open: make(chan struct{}), keys: make(map[string][]string), seen: make(chan string, 1000)}
	v := s.orchestrate(unhurried)
	stopWorker := s.employ(h.bindings())

	// One instance in each state.
	s.start("chain", "ended", 1)
	s.completed("ended", 8)
	s.start("middle", "works", 1)
	s.await(signalOf(h.seen, "works"), "the activity is executed")
	s.start("sleeper", "sleeps", 3000)
	s.start("forking", "waits", 1)
	s.start("mail", "reads", 2)
	s.say(letter("reads", 1))
	s.reaches("sleeps", events.KindTimerCreated)
	s.reaches("waits", events.KindEventAwaited)
	s.reaches("reads", events.KindMessageReceived)
	s.settled()
	s.mu.Lock()
	promised := s.acked[:len(s.acked):len(s.acked)]
	s.mu.Unlock()
	// And others in the middle of whatever they do.
	jobs := mixed("j", racetest.Size(200, 60))
	s.begin(jobs, false)
	s.reaches("j0", events.KindActivityCompleted)
	save()

	// Messages after the backup.
	s.start("chain", "later", 1)
	s.completed("later", 8)
	s.say(events.Message{ID: "yes", Instance: "waits",
		Content: &events.EventRaised{Name: answer.Name(), Data: work.Payload("yes")}})
	s.await(signalOf(h.seen, "waits"), "the activity that the event has led to is executed")
	close(h.open)
	s.completed("works", 8)
	s.say(letter("reads", 2))
	s.completed("reads", []int{1, 2})
	s.completed("sleeps", "slept")
	s.letGo(jobs)
	notes := s.stream("KV_RONDO_PROGRESS")
	s.eventually("progress is noted", func() error {
		if info, err := notes.Info(t.Context()); err != nil || info.State.Msgs == 0 {
			return fmt.Errorf("none is (%w)", err)
		}
		return nil
	})

	// 1. All orchestrators and workers stop.
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	stopWorker()
	// 2. The database is restored.
	restore()
	there, under := s.there(jobs)
	// 3. The streams, and the progress of activities, are deleted.
	js := s.raw().js
	for _, name := range []string{"RONDO", "RONDO_LATER", "RONDO_TASKS", "KV_RONDO_KV", "KV_RONDO_PROGRESS"} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	// 4. Everything is started; the first service creates the streams again.
	s.mu.Lock()
	s.acked = promised // the acknowledgements from before the backup
	s.mu.Unlock()
	h.mu.Lock()
	key := h.keys["works"][0]
	h.open = make(chan struct{})
	h.mu.Unlock()
	drain(h.seen)
	begun := time.Now()
	s.orchestrate(unhurried)
	s.employ(h.bindings())
	// Without the flag recovered, an orchestrator publishes what the instances wait for.
	s.await(signalOf(h.seen, "works"), "the activity is executed again")
	h.mu.Lock()
	close(h.open)
	if keys := h.keys["works"]; keys[len(keys)-1] != key {
		t.Errorf("the activity had the key %s, and has %s", key, keys[len(keys)-1])
	}
	h.mu.Unlock()
	s.completed("ended", 8)
	s.completed("works", 8)
	s.completed("sleeps", "slept")
	if _, err := s.store.Instance(t.Context(), "later"); !errors.Is(err, history.ErrNoInstance) {
		t.Errorf("what was started after the moment: %v", err)
	}
	// The instances have no messages of clients from after the backup. The clients send them again,
	// or others.
	s.wantKindsNot("waits", events.KindEventReceived)
	s.say(events.Message{ID: "no", Instance: "waits",
		Content: &events.EventRaised{Name: answer.Name(), Data: work.Payload("no")}})
	s.completed("waits", "nobody knows of no")
	s.say(letter("reads", 2))
	s.completed("reads", []int{1, 2})
	s.start("chain", "later", 2)
	s.completed("later", 16)
	for _, j := range there {
		s.say(j.Said...)
	}
	s.letGo(there)
	s.finished(there, patience)
	s.settled()
	s.eventually("nothing is outstanding", func() error {
		r, err := check.System(t.Context(), s.store,
			check.Options{Broker: s.bus, Dead: s.bus, Prefix: s.bus.Prefix(), Quiescent: true,
				Acknowledgements: s.acks()})
		return errors.Join(err, r.Err())
	})
	t.Logf("of %d jobs, %d were there at the moment, %d of them in flight; all had ended %v after everything was "+
		"started again", len(jobs), len(there), under, time.Since(begun).Round(time.Millisecond))
	if under == 0 {
		t.Error("no job was in flight: the moment was too late")
	}
}

// there are the jobs that exist, and how many of them were not done when the database went back.
func (s *system) there(jobs []work.Job) (there []work.Job, inFlight int) {
	s.t.Helper()
	for _, j := range jobs {
		info, err := s.store.Instance(s.t.Context(), j.ID)
		if errors.Is(err, history.ErrNoInstance) {
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		there = append(there, j)
		if info.Status == round.Running {
			inFlight++
		}
	}
	return there, inFlight
}

// wantKindsNot checks that a history does not have an event from after the backup.
func (s *system) wantKindsNot(instance string, not events.Kind) {
	s.t.Helper()
	for _, k := range s.kinds(instance) {
		if k == not {
			s.t.Errorf("the history of %s has %s", instance, not)
		}
	}
}

func (s *system) stream(name string) jetstream.Stream {
	s.t.Helper()
	st, err := s.raw().js.Stream(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// signalOf returns a channel that is closed when a name arrives. It drops other names before.
func signalOf(names <-chan string, name string) <-chan struct{} {
	came := make(chan struct{})
	go func() {
		for n := range names {
			if n == name {
				close(came)
				return
			}
		}
	}()
	return came
}

func drain(names <-chan string) {
	for len(names) > 0 {
		<-names
	}
}
