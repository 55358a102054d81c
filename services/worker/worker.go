// Package worker is the service that executes activities: receive → execute → complete → ack. It
// needs the broker and nothing else.
//
// # The way of a piece of work
//
//	receive   from the queue of its tag and activity, when a slot is free                      receive.go, limits.go
//	admit     its session may belong to another worker, its time may be over, or it may have
//	          brought down worker after worker                                                 execute.go, sessions.go
//	execute   the function, with a context that ends when nobody waits for the result          execute.go
//	complete  its result or error is published to the instance, in one call for all that
//	          have finished just now                                                           complete.go
//	ack       when that is stored, or committed by who waits for it, and not before
//
// So a piece of work is executed at least once. If the worker dies before the ack, the broker hands
// the work out again when its time is over, and what is published twice is taken once: the
// instance's history is what dedupes. While the worker lives it extends that time, also while it is
// connecting to the broker again.
//
// # What each failure does
//
//   - The function fails or panics, or ends its goroutine: WorkFailed is published. Whether it is
//     tried again is the orchestration's business.
//   - Its time is over (start to close, heartbeat, overall): the context ends, the function has a
//     moment to return, WorkFailed is published with the timeout and the last heartbeat. Time to
//     start by that is over when the work comes: the function is not called.
//   - Nobody waits any more: the broker says so, and is asked now and then in case that was missed.
//     The context ends, the function has the grace to return, and what it returns is dropped. There
//     is nothing to acknowledge.
//   - A function ignores its context: it is given up, and its slot stays taken until it returns,
//     because it still uses what slots are there to share. When all slots are lost that way,
//     [Worker.Live] says so.
//   - Nothing can be published: it is tried again for as long as the worker runs; then the work
//     goes back.
//   - What is published is too large for the broker: WorkFailed is published, which says so.
//   - The work cannot be read: it is dead-lettered.
//   - Workers die with it again and again: each notes that it begins work which was handed out
//     before; at too many notes, the work is dead-lettered and WorkFailed is published as poison.
//     Giving back on purpose does not count.
//   - The worker is told to end: it takes nothing new, lets what runs go on for a while, then ends
//     the contexts, and gives back what does not finish.
//
// # What is kept outside
//
// Of each session, the broker's bucket says which worker has it; the others hand the session's work
// over to that worker. Progress that heartbeats report is noted once a second at most, for whoever
// gets the work if this worker dies.
//
// An activity that returns [activity.ErrPending] is completed by somebody else, with its token (see
// [events.Token]): by publishing what a worker would have published. The worker says that the work
// is pending, and acknowledges it.
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

	"github.com/rondo-run/rondo/internal/awake"
	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/health"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
)

// Broker is what a worker needs of the bus.
type Broker interface {
	broker.Publisher
	broker.WorkBroker
	broker.DeadLetters
	broker.Handovers
	broker.Sessions
	broker.Notes
	broker.RollCalls
	// Prefix begins all subjects. WorkWait is how long work stays with a worker that says nothing.
	Prefix() string
	WorkWait() time.Duration
}

// Worker executes activities. It is safe for concurrent use.
type Worker struct {
	config Config
	bus    Broker
	code   *activity.Registry
	log    *slog.Logger
	wait   time.Duration // how long work stays here if nothing is said

	limits   *limits
	held     *held
	sessions *sessions
	recent   recent
	lasted   lasted
	finished chan completion
	asking   chan struct{} // bounds how many ask at once whether their work is wanted

	mu     sync.Mutex
	queues map[broker.Queue]*queue

	began      time.Time
	started    atomic.Bool
	draining   atomic.Bool
	keptAt     atomic.Int64 // when leases were last looked after
	awake      *awake.Clock // stands still while the process does
	publishing context.Context

	sideMu sync.Mutex
	side   sync.WaitGroup // what is done beside the activities
	ended  bool           // nothing more is to be begun there
}

// maxAsking bounds how many questions are asked at once whether work is still wanted.
const maxAsking = 16

// New makes a worker of the activities in the registry. The error lists everything that is wrong
// with the config.
func New(b Broker, code *activity.Registry, c Config) (*Worker, error) {
	if code == nil {
		return nil, errors.New("worker: no activities are registered; make a registry, which may be empty")
	}
	c = c.withDefaults()
	if err := c.check(code); err != nil {
		return nil, fmt.Errorf("worker: the configuration:\n%w", err)
	}
	w := &Worker{
		config: c, bus: b, code: code, log: c.Logger, wait: b.WorkWait(),
		limits: newLimits(c), held: newHeld(), finished: make(chan completion, maxFinished),
		queues: make(map[broker.Queue]*queue),
		asking: make(chan struct{}, maxAsking),
	}
	w.sessions, w.awake = newSessions(w), awake.New(w.keepEvery())
	return w, nil
}

// Run takes work until the context ends, and then drains: see the package comment. It returns when
// nothing is held any more, and an error if functions are still running that ignore their contexts.
// It can be called once.
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
		defer w.config.Metrics.Watch(w.tellMetrics)()
	}
	r := w.begin()
	stops, err := r.listen()
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

// run is what belongs to one Run.
type run struct {
	*Worker
	taking, keeping         context.Context
	stopTaking, stopKeeping context.CancelFunc
	stopPublishing          context.CancelFunc
	takers, keepers         sync.WaitGroup
	publishers              sync.WaitGroup
}

// begin starts what looks after work, before there is any.
func (w *Worker) begin() *run {
	r := &run{Worker: w}
	r.taking, r.stopTaking = context.WithCancel(context.Background())
	r.keeping, r.stopKeeping = context.WithCancel(context.Background())
	w.publishing, r.stopPublishing = context.WithCancel(context.Background())
	for range publishers {
		r.publishers.Go(w.complete)
	}
	w.keptAt.Store(time.Now().UnixNano())
	r.keepers.Go(func() { w.keep(r.keeping) })
	r.keepers.Go(func() { w.sessions.keep(r.keeping) })
	return r
}

// listen begins to hear what others say.
func (r *run) listen() (stops []func(), err error) {
	if r.config.Tags.kind != noTag {
		stop, err := r.bus.Withdrawals(r.config.Tags.withdrawals(), r.withdrawn)
		if err != nil {
			return nil, err
		}
		stops = append(stops, stop)
	}
	stop, err := r.bus.ReceiveHandovers(r.config.ID, r.handedOver)
	if err != nil {
		return stops, err
	}
	stops = append(stops, stop)
	if r.config.Inside {
		return stops, nil
	}
	stop, err = process.Answer(r.bus, r.present)
	if err != nil {
		return stops, err
	}
	return append(stops, stop), nil
}

// drain ends a run: what may finish finishes, everything else goes back.
func (r *run) drain(stops []func()) error {
	r.draining.Store(true)
	r.log.Info("worker: drains", "held", r.held.count(), "for", r.config.DrainTimeout)
	r.stopTaking()
	r.limits.close()
	r.takers.Wait()
	r.sessions.leaveIdle(r.publishing)
	if !r.held.waitEmpty(r.config.DrainTimeout) {
		for _, a := range r.held.all() {
			a.stop(stopping, r.config.Grace)
		}
		r.held.waitEmpty(r.config.Grace + time.Second)
	}
	r.end(stops)
	stuck := r.held.stuckOnes()
	r.log.Info("worker: has ended", "running", len(stuck))
	if len(stuck) > 0 {
		return fmt.Errorf("worker: %d activities do not stop, the first is %s: they ignore their contexts",
			len(stuck), stuck[0])
	}
	return nil
}

// publishFor bounds how long the end waits for the broker.
const publishFor = 5 * time.Second

// end stops everything, and gives back what is left.
func (r *run) end(stops []func()) {
	for _, stop := range stops {
		stop()
	}
	r.stopTaking()
	r.takers.Wait()
	timer := time.AfterFunc(publishFor, r.stopPublishing)
	defer timer.Stop()
	for _, a := range r.held.all() {
		a.giveUp()
	}
	r.held.waitEmpty(publishFor) // what is just being published
	r.sessions.leaveAll(r.publishing)
	r.sideMu.Lock()
	r.ended = true
	r.sideMu.Unlock()
	r.side.Wait()
	r.stopPublishing()
	r.publishers.Wait()
	r.stopKeeping()
	r.keepers.Wait()
}

// aside does something beside the activities. It reports false if the worker is about to end.
func (w *Worker) aside(do func(ctx context.Context)) bool {
	w.sideMu.Lock()
	defer w.sideMu.Unlock()
	if w.ended {
		return false
	}
	w.side.Go(func() { do(w.publishing) })
	return true
}

// Live tells whether the process should go on: an error means that it should be started again.
func (w *Worker) Live() error {
	if !w.started.Load() {
		return nil
	}
	if since := time.Since(time.Unix(0, w.keptAt.Load())); since > max(w.wait, 10*time.Second) && !w.draining.Load() {
		return fmt.Errorf("nobody has looked after the leases for %v", since.Round(time.Second))
	}
	if n := len(w.held.stuckOnes()); n >= w.config.Slots {
		return fmt.Errorf("all %d slots are taken by activities that ignore that their contexts have ended", n)
	}
	return nil
}

// Ready tells whether the worker takes work.
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
		errs = append(errs, fmt.Errorf("%d of %d queues are open", len(w.queues), want))
	}
	for _, q := range w.queues {
		if err := q.problem(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Status tells what the worker is doing.
func (w *Worker) Status() process.Works {
	s := process.Works{Draining: w.draining.Load(), Slots: w.config.Slots, Used: w.limits.used(),
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
	slices.SortFunc(s.Queues, func(a, b process.Queue) int { return byName(broker.Queue(a), broker.Queue(b)) })
	return s
}

// tellMetrics tells what metrics are asked for.
func (w *Worker) tellMetrics(tell telemetry.Tell) {
	tell(telemetry.MetricWorkerSlots, float64(w.config.Slots))
	tell(telemetry.MetricWorkerSlotsUsed, float64(w.limits.used()))
	tell(telemetry.MetricWorkerSessions, float64(w.sessions.count()))
	tell(telemetry.MetricWorkerStuck, float64(w.held.countStuck()))
	tell(telemetry.MetricWorkerHeld, float64(w.held.count()))
}

// present tells who asks everybody who this is.
func (w *Worker) present(context.Context) process.Process {
	s := w.Status()
	p := process.Process{Kind: process.Worker, ID: w.config.ID, Build: w.config.Build, Began: w.began, Works: &s}
	if err := w.Live(); err != nil {
		p.Problem = err.Error()
	}
	return p
}

// ID is what the worker is known by.
func (w *Worker) ID() string { return w.config.ID }

func byName(a, b broker.Queue) int {
	return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Activity, b.Activity))
}

// stopping is why activities stop when the worker ends.
var stopping = &events.Error{Kind: events.Infrastructure,
	Message: "the worker is ending; the activity will be executed again elsewhere"}
