package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobpushed"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	jobserver "github.com/rondo-run/rondo/services/jobs"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file has jobs of one job queue start instances, each of which pushes a job to another job
// queue. However often processes die meanwhile, the second queue gets one job for each of the
// first.

var relay = orchestration.Define[int, int]("relay")

func relayed(ctx *orchestration.Context, n int) (int, error) {
	return n, jobpush.Push(ctx, "out", jobpush.Job{Data: n, Priority: n % 3})
}

// bridgeBroker is the part of the broker that the bridges use.
type bridgeBroker interface {
	worker.Broker
	jobserver.StartBroker
}

// bridged is an orchestrator with the bridges of the job queues.
type bridged struct {
	bridgeBroker
	queues jobs.Store
	// published is called after starts of jobs were published, pushed after an orchestration has
	// pushed a job; both before the acknowledgement.
	published, pushed func()
}

// Publish implements broker.Publisher, for starts of jobs.
func (b bridged) Publish(ctx context.Context, messages ...events.Wire) error {
	err := b.bridgeBroker.Publish(ctx, messages...)
	if err == nil {
		b.published()
	}
	return err
}

// pushedTo is a store that calls pushed after each push.
type pushedTo struct {
	jobs.Store
	pushed func()
}

// Do implements jobs.Store.
func (p pushedTo) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := p.Store.Do(ctx, name, operations...)
	if err == nil {
		p.pushed()
	}
	return results, err
}

// run runs the bridges until the context ends.
func (b bridged) run(ctx context.Context, o *orchestrator.Orchestrator, id string, log *slog.Logger) error {
	code, err := activity.NewBuiltInRegistry(jobpushed.Handler(pushedTo{b.queues, b.pushed}))
	if err != nil {
		return err
	}
	w, err := worker.New(b.bridgeBroker, code, worker.Config{
		Inside: true, ID: id + "/queues", Tags: worker.Tags(jobpush.Tag), Slots: 8, MaxSessions: -1,
		ShutdownTimeout: 5 * time.Second, CancelGrace: time.Second, Logger: log,
	})
	if err != nil {
		return err
	}
	s := jobserver.NewStarter(b.queues, b,
		jobserver.StarterConfig{Knows: o.Knows, Ready: o.Takes, Every: 50 * time.Millisecond, Logger: log})
	var wait sync.WaitGroup
	var errs [2]error
	wait.Go(func() { errs[0] = s.Run(ctx) })
	wait.Go(func() { errs[1] = w.Run(ctx) })
	wait.Wait()
	return errors.Join(errs[:]...)
}

// The points at which a process kills itself.
const (
	diesNowhere   = "nowhere"
	diesStarted   = "items were started, and are not acknowledged"
	diesPushed    = "an item was pushed, and its activity is not completed"
	hurriedClocks = 20 // how much faster the clocks of queues are: a lock lasts half a minute
)

// playBridges is a process with an orchestrator and the bridges.
func playBridges(ctx context.Context, r role, log *slog.Logger) error {
	b, err := natstest.Dial(ctx, r.Broker)
	if err != nil {
		return err
	}
	store, err := cockroach.Open(ctx, r.Database, cockroach.Options{WakeStep: wakeStep, MaxConns: 4, Log: log,
		ConnectTimeout: connects})
	if err != nil {
		return err
	}
	kept, err := fastQueues(ctx, r.Database, r.Begun)
	if err != nil {
		return err
	}
	code, err := orchestration.NewRegistry(relay.Bind(relayed))
	if err != nil {
		return err
	}
	r.Config.ID, r.Config.Logger = r.ID, log
	o, err := orchestrator.New(b, store, code, r.Config)
	if err != nil {
		return err
	}
	// The process dies at the second batch of jobs, so that most are left for the next process to
	// die of, or at the third job that is pushed.
	dies := func(at string, time int64) func() {
		var n atomic.Int64
		return func() {
			if r.Bridges == at && n.Add(1) == time {
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	var wait sync.WaitGroup
	var errs [2]error
	wait.Go(func() {
		errs[1] = bridged{b, kept.Queues(), dies(diesStarted, 2), dies(diesPushed, 3)}.run(ctx, o, r.ID, log)
	})
	go func() {
		for o.Ready(ctx) != nil && ctx.Err() == nil {
			<-time.After(5 * time.Millisecond)
		}
		fmt.Println(ready)
	}()
	errs[0] = o.Run(ctx)
	wait.Wait()
	return errors.Join(errs[0], errs[1], b.Close(), store.Close(), kept.Close())
}

// fastQueues opens a database with a clock that runs fast.
func fastQueues(ctx context.Context, address string, begun int64) (*cockroach.Store, error) {
	base := time.Unix(0, begun)
	return cockroach.Open(ctx, address, cockroach.Options{
		MaxConns: 4, Log: quiet(), ConnectTimeout: connects,
		Now: func() time.Time { return base.Add(hurriedClocks * time.Since(base)) },
	})
}

const bridgedItems = 400

// fill makes the queue that starts instances, and pushes numbers to it.
func fill(t *testing.T, store jobs.Store, mode jobs.Mode) {
	t.Helper()
	var items []jobs.NewJob
	for n := range bridgedItems {
		items = append(items, jobs.NewJob{Data: json.RawMessage(fmt.Sprint(n)), Priority: n % 4})
	}
	settings := jobs.Settings{Mode: mode, Start: &jobs.Start{Orchestration: relay.Name(), MaxPerSecond: 1000}}
	if _, err := store.Do(t.Context(), "in", jobs.Configure{Settings: settings},
		jobs.Push{Jobs: items}); err != nil {
		t.Fatal(err)
	}
}

// wantEachOnce waits until everything has arrived, and checks that each number is there once, and
// that each has had one instance.
func (s *system) wantEachOnce(store jobs.Store) {
	s.t.Helper()
	s.eventually("everything has arrived", func() error {
		in, err := store.Look(s.t.Context(), "in")
		if err != nil {
			return err
		}
		ended, err := s.store.List(s.t.Context(), history.Filter{Statuses: []round.Status{round.Completed}},
			history.Page{Limit: 1000})
		if err != nil {
			return err
		}
		if left := in.Depth() + in.Locked + in.Delayed; left > 0 || len(ended.Instances) < bridgedItems {
			return fmt.Errorf("%d items are left, %d instances have completed", left, len(ended.Instances))
		}
		return nil
	})
	all, err := s.store.List(s.t.Context(),
		history.Filter{Attributes: map[string]string{jobserver.AttributeQueue: "in"}},
		history.Page{Limit: 1000})
	if err != nil || len(all.Instances) != bridgedItems {
		s.t.Errorf("%d instances of the queue, %v", len(all.Instances), err)
	}
	r, err := store.Do(s.t.Context(), "out", jobs.Pop{Count: jobs.MaxCount})
	if err != nil || r[0].Refused != nil {
		s.t.Fatal(err, r)
	}
	seen := make(map[string]bool)
	for _, i := range r[0].Items {
		seen[string(i.Data)] = true
	}
	if len(r[0].Items) != bridgedItems || len(seen) != bridgedItems {
		s.t.Errorf("%d items have arrived, %d different ones, of %d", len(r[0].Items), len(seen), bridgedItems)
	}
}

// TestBridgesWhoseProcessesAreKilled has processes die where exactly-once is at stake, two more
// work beside each other, and NATS stop meanwhile.
func TestBridgesWhoseProcessesAreKilled(t *testing.T) {
	for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
		t.Run(string(mode), func(t *testing.T) {
			p := onProcesses(t)
			begun := time.Now().UnixNano()
			kept, err := fastQueues(t.Context(), p.database, begun)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { kept.Close() })
			fill(t, kept.Queues(), mode)
			bridge := func(at string) func(*role) {
				return func(r *role) { r.Bridges, r.Begun = at, begun }
			}
			// A process that dies with the second batch has acknowledged one of at most 100 jobs:
			// the 400 jobs are enough for all three.
			for n, at := range []string{diesStarted, diesStarted, diesPushed} {
				x := p.launch("orchestrator", fmt.Sprint("dies", n), bridge(at))
				p.await(x.done, "the process dies: "+at)
				var exit *exec.ExitError
				if !errors.As(x.err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
					t.Fatalf("it has ended by itself: %v\n%s", x.err, x.said)
				}
			}
			one, two := p.run("orchestrator", "one", bridge(diesNowhere)),
				p.run("orchestrator", "two", bridge(diesNowhere))
			p.server.Close()
			p.startBroker()
			p.wantEachOnce(kept.Queues())
			one.terminate()
			two.terminate()
		})
	}
}

// TestBridgesOnEachDatabase has two orchestrators work beside each other while NATS stops, and
// answers of the database are lost.
func TestBridgesOnEachDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, s *system) {
		kept := s.store.(interface{ Queues() jobs.Store }).Queues()
		fill(t, kept, jobs.Concurrent)
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		some := make(chan struct{})
		once := sync.OnceFunc(func() { close(some) })
		for n := range 2 {
			o := s.orchestrate()
			b := bridged{o.broker, &losing{Store: kept}, func() {}, once}
			wait.Go(func() {
				if err := b.run(ctx, o.Orchestrator, fmt.Sprint("o", n), quiet()); err != nil {
					t.Error(err)
				}
			})
		}
		s.await(some, "something is pushed")
		s.server.Close()
		s.startBroker()
		s.wantEachOnce(kept)
		stop()
		wait.Wait()
	}, relay.Bind(relayed))
}

// losing is a store of which one answer of seven is lost.
type losing struct {
	jobs.Store
	n atomic.Int64
}

// Do implements jobs.Store.
func (l *losing) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := l.Store.Do(ctx, name, operations...)
	if l.n.Add(1)%7 == 0 {
		return nil, errors.New("the answer is lost")
	}
	return results, err
}
