// Package worker is the service that executes activities. It needs the broker, and no database.
//
// # The way of a task
//
//	receive   from the task queue of its tag and activity, or by direct delivery,
//	          when a slot is free                                     receive.go, scheduler, slots.go
//	admit     its session may belong to another worker, its deadline may be
//	          over, or too many workers may have died while they executed it      admit.go, sessions.go
//	execute   the function, with a context that ends when the result is no longer
//	          wanted                                                        execute.go, withdrawals.go
//	complete  publish the result or error to the instance, together with those of
//	          other tasks that have finished                                              complete.go
//	ack       AFTER the result is stored, or AFTER an orchestrator that got it
//	          by direct delivery has committed it                                          settler.go
//
// Meanwhile the task is an attempt, with the states of lifecycle.go.
//
// So a worker executes a task at least once. If it dies BEFORE the ack, the broker redelivers the
// task after its ack wait. The instance may then get two results; its history takes the first.
// While the worker runs it extends the ack wait, also while it reconnects to the broker.
//
// # What each failure does
//
//   - The function fails, panics or ends its goroutine: the worker publishes TaskFailed. The retry
//     policy of the orchestration decides whether to retry.
//   - A time limit is over (start-to-close, heartbeat, schedule-to-close): the worker ends the
//     context, gives the function a moment to return, and publishes TaskFailed with the timeout and
//     the last heartbeat. If schedule-to-start is over when the task arrives, the worker does not
//     call the function.
//   - The instance no longer wants the result: the broker notifies the worker, and the worker also
//     asks at intervals. It ends the context, gives the function its grace to return, and drops the
//     result. There is nothing to acknowledge.
//   - A function ignores its context: the worker gives it up. Its slot stays taken until it returns,
//     because it still uses the resources that slots share. When all slots are lost that way,
//     [Worker.Live] returns an error.
//   - Publishing fails: the worker retries for as long as it runs, and then nacks the task.
//   - The result is too large for the broker: the worker publishes TaskFailed with that reason.
//   - The task cannot be decoded: the worker dead-letters it.
//   - Workers die with it again and again: each worker notes that it begins a redelivered task. At
//     too many notes, the worker dead-letters the task and publishes TaskFailed with the kind poison.
//     A nack does not count.
//   - The worker shuts down: it takes no new tasks, lets running functions go on until the shutdown
//     timeout, then ends their contexts, and nacks the tasks that do not finish.
//
// # State outside of the process
//
// A bucket of the broker says which worker holds the lease of which session; the other workers hand
// tasks of the session over to that worker. The worker stores the progress in heartbeats as a note,
// once a second at most, for the worker that gets the task if this one dies.
//
// Another program completes an activity that returns [activity.ErrResultPending], with its token
// (see [events.Token]), by publishing the message that a worker would have published. The worker
// publishes that the result is pending, and acknowledges the task.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/awake"
	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/health"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/internal/x/last"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/activity"
)

// Broker is the part of the broker that a worker uses.
type Broker interface {
	broker.Publisher
	broker.TaskQueues
	broker.DeadLetters
	broker.Handovers
	broker.Leases
	broker.KV
	broker.Discovery
	// Prefix begins all subjects. TaskAckWait is the time after which the broker redelivers a task
	// that is neither acknowledged nor extended.
	Prefix() string
	TaskAckWait() time.Duration
}

// Worker executes activities. It is safe for concurrent use.
type Worker struct {
	config Config
	bus    Broker
	code   *activity.Registry
	log    *slog.Logger
	wait   time.Duration // the ack wait of tasks

	slots       *slots
	held        *held
	sessions    *sessions
	lasted      *lasted
	notes       *notes
	withdrawals *withdrawals
	settler     *settler
	completer   *completer
	executor    *executor
	admission   *admission
	side        *side

	mu     sync.Mutex
	queues map[broker.TaskQueueName]*queue

	began          time.Time
	started        atomic.Bool
	draining       atomic.Bool
	keptAt         last.Time    // when leases were last renewed
	awake          *awake.Clock // does not advance while the process is frozen
	publishing     context.Context
	stopPublishing context.CancelFunc
}

// New returns a worker for the activities in the registry. The error lists all problems of the
// config.
func New(b Broker, code *activity.Registry, c Config) (*Worker, error) {
	if code == nil {
		return nil, errors.New("worker: no activities are registered; make a registry, which may be empty")
	}
	c = c.withDefaults()
	if err := c.check(code); err != nil {
		return nil, fmt.Errorf("worker: the configuration:\n%w", err)
	}
	w := &Worker{config: c, bus: b, code: code, log: c.Logger, wait: b.TaskAckWait(),
		held: newHeld(), lasted: new(lasted), queues: make(map[broker.TaskQueueName]*queue)}
	w.publishing, w.stopPublishing = context.WithCancel(context.Background())
	w.awake = awake.New(w.keepEvery())
	w.side = &side{ctx: w.publishing}
	w.sessions = newSessions(c, b, &w.draining, w.side)
	w.notes = &notes{kv: b, side: w.side}
	w.settler = &settler{held: w.held, lasted: w.lasted, sessions: w.sessions, notes: w.notes,
		metrics: c.Metrics.Tasks()}
	dead := &deadLetters{ctx: w.publishing, bus: b, prefix: b.Prefix(), id: c.ID, logPayloads: c.LogPayloads,
		metrics: c.Metrics.Messages(), settler: w.settler}
	w.completer = &completer{ctx: w.publishing, bus: b, prefix: b.Prefix(), id: c.ID,
		metrics: c.Metrics.Tasks(), log: c.Logger, settler: w.settler, dead: dead,
		finished: make(chan completion, maxFinished), room: semaphore.NewWeighted(finishedBytes),
		refusals: semaphore.NewWeighted(finishedBytes),
		warnings: rate.Sometimes{Interval: warnEvery}}
	w.executor = &executor{id: c.ID, grace: c.CancelGrace, code: code, codec: c.Codec, logger: c.Logger,
		tracer: c.Tracer, metrics: c.Metrics.Tasks(), awake: w.awake, held: w.held, settler: w.settler,
		completer: w.completer}
	w.withdrawals = &withdrawals{bus: b, side: w.side, held: w.held, stop: w.executor.withdraw,
		asking: make(chan struct{}, maxAsking)}
	w.admission = &admission{ctx: w.publishing, id: c.ID, paused: c.Paused, maxCrashes: c.MaxTaskCrashes, bus: b,
		lasted: w.lasted, sessions: w.sessions, notes: w.notes, withdrawals: w.withdrawals, settler: w.settler,
		dead: dead, completer: w.completer, executor: w.executor}
	w.slots = newSlots(c, w.execute, w.settler.noSlot)
	return w, nil
}

// Run takes tasks until the context ends, and then drains: see the package comment. It returns when
// the worker holds no task any more, and returns an error if functions that ignore their contexts
// are still running. It can be called once.
func (w *Worker) Run(ctx context.Context) error {
	if w.started.Swap(true) {
		return errors.New("worker: it was started before; make a new one")
	}
	w.began = time.Now().UTC()
	if w.config.Health != "" {
		s, err := health.Serve(health.Config{Address: w.config.Health, Live: w.Live, Ready: w.Ready, Logger: w.log})
		if err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		defer s.Close()
	}
	if !w.config.Inside {
		defer w.config.Metrics.Watch(w.recordMetrics)()
	}
	r := w.begin()
	stops, err := r.listen(ctx)
	if err != nil {
		r.end(stops)
		return fmt.Errorf("worker: %w", err)
	}
	w.log.Info("worker: takes work", "activities", len(w.code.Names()), "tags", w.config.Tags.String(), "slots",
		w.config.Slots)
	r.receive()
	<-ctx.Done()
	return r.drain(stops)
}

// run has the goroutines of one Run.
type run struct {
	*Worker
	taking, keeping         context.Context
	stopTaking, stopKeeping context.CancelFunc
	takers, keepers         sync.WaitGroup
	publishers              sync.WaitGroup
}

// begin starts the goroutines that extend, publish and renew, before the first task arrives.
func (w *Worker) begin() *run {
	r := &run{Worker: w}
	r.taking, r.stopTaking = context.WithCancel(context.Background())
	r.keeping, r.stopKeeping = context.WithCancel(context.Background())
	for range publishers {
		r.publishers.Go(w.completer.run)
	}
	w.keptAt.Set(time.Now())
	r.keepers.Go(func() { w.keep(r.keeping) })
	r.keepers.Go(func() { w.sessions.keep(r.keeping) })
	return r
}

// listen subscribes to withdrawals, handovers and discovery requests. It tries again until ctx ends
// while the broker does not respond in time.
func (r *run) listen(ctx context.Context) (stops []func(), err error) {
	listen := func(to func() (stop func(), err error)) error {
		return broker.Insist(ctx, r.log, func() error {
			stop, err := to()
			if err == nil {
				stops = append(stops, stop)
			}
			return err
		})
	}
	if r.config.Tags.kind != noTag {
		if err := listen(func() (func(), error) {
			return r.bus.Withdrawals(r.config.Tags.withdrawals(), r.withdrawals.withdrawn)
		}); err != nil {
			return nil, err
		}
	}
	kind := broker.HandoverTask
	if r.config.Inside {
		kind = broker.HandoverSystem
	}
	if err := listen(func() (func(), error) {
		return r.bus.ReceiveHandovers(kind, r.config.ID, r.handedOver)
	}); err != nil {
		return stops, err
	}
	if r.config.Inside {
		return stops, nil
	}
	err = listen(func() (func(), error) { return process.Handle(r.bus, r.present) })
	return stops, err
}

// drain ends a run: tasks may finish until the shutdown timeout, and the worker nacks the others.
func (r *run) drain(stops []func()) error {
	r.draining.Store(true)
	r.log.Info("worker: drains", "held", r.held.count(), "for", r.config.ShutdownTimeout)
	r.stopTaking()
	r.slots.close()
	r.takers.Wait()
	var leaving sync.WaitGroup
	leaving.Go(func() { // the broker may not answer, and the activities' time is running
		ctx, cancel := context.WithTimeout(r.publishing, publishFor)
		defer cancel()
		r.sessions.leaveIdle(ctx)
	})
	if !r.held.waitEmpty(r.config.ShutdownTimeout) {
		for _, a := range r.held.all() {
			r.executor.stop(a, stopping, r.config.CancelGrace)
		}
		r.held.waitEmpty(r.config.CancelGrace + time.Second)
	}
	leaving.Wait()
	r.end(stops)
	stuck := r.held.stuckOnes()
	r.log.Info("worker: has ended", "running", len(stuck))
	if len(stuck) > 0 {
		return fmt.Errorf("worker: %s did not stop, the first is %s: activities must return when their contexts end",
			plural.Count(len(stuck), "attempt"), stuck[0])
	}
	return nil
}

// publishFor is the time limit for publishing at the end.
const publishFor = 5 * time.Second

// end stops all goroutines, and nacks the tasks that are left.
func (r *run) end(stops []func()) {
	for _, stop := range stops {
		stop()
	}
	r.stopTaking()
	r.takers.Wait()
	timer := time.AfterFunc(publishFor, r.stopPublishing)
	defer timer.Stop()
	for _, a := range r.held.all() {
		r.executor.giveUp(a)
	}
	r.held.waitEmpty(publishFor) // the results that are being published
	r.sessions.leaveAll(r.publishing)
	r.side.end()
	r.stopPublishing()
	r.publishers.Wait()
	r.stopKeeping()
	r.keepers.Wait()
}

// Live returns an error if the process should be restarted.
func (w *Worker) Live() error {
	if !w.started.Load() {
		return nil
	}
	if since := time.Since(w.keptAt.Get()); since > max(w.wait, 10*time.Second) && !w.draining.Load() {
		return fmt.Errorf("the leases of this worker were not renewed for %v", since.Round(time.Second))
	}
	if n := len(w.held.stuckOnes()); n >= w.config.Slots {
		return fmt.Errorf("no slot is free: activities that ignore the end of their contexts hold all slots (%d)", n)
	}
	return nil
}

// Ready returns an error if the worker takes no tasks.
func (w *Worker) Ready() error {
	switch {
	case !w.started.Load():
		return errors.New("the worker has not been started")
	case w.draining.Load():
		return errors.New("the worker drains: it takes no more work")
	}
	var errs []error
	if b, ok := w.bus.(interface{ Connected() error }); ok {
		errs = append(errs, b.Connected())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := len(w.config.Tags.first()) * len(w.code.Names()); len(w.queues) < want {
		errs = append(errs, fmt.Errorf("%d of %s open", len(w.queues), plural.Count(want, "queue")))
	}
	for _, q := range w.queues {
		if err := q.problem(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Status describes the state of the worker.
func (w *Worker) Status() process.Works {
	s := process.Works{Draining: w.draining.Load(), Slots: w.config.Slots, Used: w.slots.used(),
		Sessions: w.sessions.names(), Tags: w.config.Tags.String(), Activities: w.code.Names(),
		Queues: []process.Queue{}, Holds: w.held.stuckOnes()}
	for _, a := range w.held.all() {
		s.Holds = append(s.Holds, a.status())
	}
	slices.SortFunc(s.Holds, func(a, b process.Held) int { return a.Since.Compare(b.Since) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range w.queues {
		s.Queues = append(s.Queues, process.Queue(q))
	}
	slices.SortFunc(s.Queues, func(a, b process.Queue) int {
		return byName(broker.TaskQueueName(a),
			broker.TaskQueueName(b))
	})
	return s
}

// recordMetrics records the gauges.
func (w *Worker) recordMetrics(record telemetry.Record) {
	record(telemetry.MetricWorkerSlots, float64(w.config.Slots))
	record(telemetry.MetricWorkerSlotsUsed, float64(w.slots.used()))
	record(telemetry.MetricWorkerSessions, float64(w.sessions.count()))
	record(telemetry.MetricWorkerStuck, float64(w.held.countStuck()))
	record(telemetry.MetricWorkerHeld, float64(w.held.count()))
}

// present answers discovery requests.
func (w *Worker) present(context.Context) process.Process {
	s := w.Status()
	p := process.Process{Kind: process.Worker, ID: w.config.ID, Build: w.config.Build, Began: w.began, Works: &s}
	if err := w.Live(); err != nil {
		p.Problem = err.Error()
	}
	return p
}

// ID is the name of the worker.
func (w *Worker) ID() string { return w.config.ID }

func byName(a, b broker.TaskQueueName) int {
	return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Activity, b.Activity))
}
