// Package orchestrator is the service that runs orchestrations: it receives messages for instances
// from the broker, runs rounds of their code, commits the turns and publishes the messages in them.
//
//	receive ─────► order ─────► load ──────► decide ─────► commit ──────► publish ────► settle
//	(receive.go)   (loop.go)    (loader.go)  (decide.go)   (committer.go) (pkg/outbox)  (settle.go)
//
// # The loop
//
// One goroutine, the loop, knows every instance in memory: the messages that wait for it, in their
// order, and its stage. The loop never blocks: other goroutines load, decide and commit, and send
// the outcome to the loop. An instance is in one stage at a time, so that its batches of messages
// are decided one after the other, while other instances proceed. A commit takes the turns that
// were decided during the commit before. So under light load each turn is committed at once, and
// under heavy load hundreds share a transaction. In between, the group commit delays a small batch
// for half a millisecond after the commit before, so that turns which follow from that commit join
// it.
//
// # Order of effects
//
//   - The orchestrator publishes the messages of a turn AFTER its commit, and an outbox entry in that
//     commit keeps them until the broker has stored them.
//   - It acknowledges the messages of a round AFTER the commit of its turn.
//   - It acknowledges a message that no instance can take AFTER the broker has stored the dead letter.
//   - It sends notifications AFTER the commit, at most once.
//
// # What each failure does
//
//	the commit finds another version          the orchestrator loads the instance and decides the same messages
//	                                          again, in their order
//	the commit may or may not have happened   likewise: history tells which messages were taken
//	the database does not respond             the orchestrator retries the commit; meanwhile it receives no
//	                                          messages
//	the code does not return                  the orchestrator interrupts it at its next call; without a call,
//	                                          the other instances proceed and the goroutine is lost
//	the process dies                          the broker redelivers the messages; a sweep of another
//	                                          orchestrator publishes the outbox entries
//	a message kills the process               after some deliveries the orchestrator decides it alone and counts
//	                                          the attempts, and in the end dead-letters it
//	this orchestrator lacks the code          it forwards the message to one that has the code, or nacks it
//	a newer engine wrote the history          likewise; it does not read the history
//
// # Ownership
//
// Each orchestrator renews its entry in the members' bucket, and all compute from the members which
// of them owns which partition (package ownership). For a moment two may own the same one: then the
// fence refuses one of two commits, and no other harm is done.
package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator/maintenance"
	"github.com/rondo-run/rondo/services/orchestrator/ownership"
	"github.com/rondo-run/rondo/services/orchestrator/report"
	"github.com/rondo-run/rondo/services/orchestrator/schedules"
	"github.com/rondo-run/rondo/services/orchestrator/steps"
)

// Broker is the part of the broker that an orchestrator uses.
type Broker interface {
	broker.Publisher
	broker.Inbox
	broker.DeadLetters
	broker.PendingStarts
	broker.AwaitedStarts
	broker.TaskQueues
	broker.Members
	broker.Handovers
	broker.Leases
	broker.KV
	broker.Repairer
	broker.Notifications
	broker.Requests
	broker.Discovery
	broker.Connection
	// Prefix begins all subjects. InboxAckWait is the time after which the broker redelivers a
	// message that is neither acknowledged nor extended.
	Prefix() string
	InboxAckWait() time.Duration
	// Connected returns an error while the connection is down.
	Connected() error
}

// Code finds the orchestrations. [orchestration.Registry] implements it.
type Code interface{ round.Code }

// Orchestrator is the service. Make it with New, and run it once.
type Orchestrator struct {
	config     Config
	log        *slog.Logger
	broker     Broker
	store      history.Store
	background *background
	publisher  *outbox.Publisher
	steps      *steps.Runner
	own        *ownership.Ownership
	quarantine *quarantine
	receiver   *receiver
	deciders   *deciders
	loop       *loop
	keeper     *maintenance.Keeper
	schedules  *schedules.Manager
	values     *valueReader
	gauges     *report.Gauges
	clock      *clock
	system     *identity.Watch

	running atomic.Bool
	began   time.Time
}

// New returns an orchestrator that runs the code on the broker and the store. The error lists all
// problems of the settings.
func New(broker Broker, store history.Store, code Code, config Config) (*Orchestrator, error) {
	config = config.withDefaults()
	config.Round.Code, config.Round.Coroutines = code, new(round.Coroutines)
	if config.Tracer != nil {
		config.Round.NewTrace = config.Tracer.Sample
	}
	if config.Metrics != nil {
		config.Round.ReportOver = true
		config.Metrics.Orchestrations(code)
	}
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("the settings of the orchestrator:\n%w", err)
	}
	o := &Orchestrator{config: config, log: config.Logger.With("orchestrator", config.ID), broker: broker, store: store}
	o.background = newBackground()
	o.clock = newClock(clockConfig{now: config.Clocks.Now, most: config.Clocks.MaxSkew, every: compareEvery,
		others: []otherClock{{"nats", broker.Now, broker.RedeliverAfterLeap}, {"database", store.Clock, nil}}}, o.log)
	o.publisher = outbox.NewPublisher(broker, store, broker.Prefix(), o.log)
	o.publisher.Watch(config.Metrics.Outbox())
	if !config.NoDirectDelivery {
		o.publisher.DeliverTasksDirectly()
	}
	o.steps = steps.New(steps.Config{By: config.ID, Concurrency: config.StepConcurrency, Codec: config.Round.Codec,
		CodeLogger: config.CodeLogger, Logger: o.log, Tracer: config.Tracer, Metrics: config.Metrics,
		Deliver: func(ctx context.Context, m events.Message) { o.loop.deliver(ctx, m) }})
	o.own = ownership.New(config.ID, config.Build, code, broker, o.log)
	o.system = identity.New(identity.Config{Store: store, Broker: broker, Every: config.Sweep.BeatEvery,
		Beats: func() bool { return slices.Contains(o.own.Owned(), 0) }, Log: o.log,
		Lost: func(ctx context.Context, since time.Time) error { return o.keeper.LostSince(ctx, since) }})
	o.newPipeline()
	o.newHelpers()
	return o, nil
}

// newPipeline makes what messages pass through, from the receiver to the settler.
func (o *Orchestrator) newPipeline() {
	c, prefix, texts := &o.config, o.broker.Prefix(), texts{o.config.LogPayloads}
	arrivals, returned, calls := newArrivals(), newReturned(), newCalls(o.background.lifetime)
	dead := &deadLetters{by: c.ID, now: time.Now, broker: o.broker, prefix: prefix, texts: texts,
		background: o.background, metrics: c.Metrics.Messages(), log: o.log}
	o.quarantine = newQuarantine(o.broker, c.StuckAfter, texts, o.background, o.log)
	o.receiver = &receiver{prefix: prefix, ackWait: o.broker.InboxAckWait(), quarantineAfter: c.QuarantineAfter,
		arrivals: arrivals, quarantine: o.quarantine, returned: returned, dead: dead, crowded: o.broker.Crowded,
		metrics: c.Metrics.Messages()}
	rounds, room := &roundMetrics{metrics: c.Metrics, background: o.background}, newHistoryRoom()
	o.deciders = newDeciders(deciderConfig{concurrency: c.RoundConcurrency, runawayAfter: c.RunawayAfter,
		stuckAfter: c.StuckAfter, prefix: prefix, now: o.mayDecide, cpu: c.Clocks.CPU,
		traced: c.Tracer != nil, room: room}, rounds, o.log)
	waker := &waker{broker: o.broker, prefix: prefix, background: o.background, log: o.log}
	held := newHeldMessages(c.Memory.MaxMessages, c.Memory.MaxMessageBytes)
	settler := &settler{held: held, quarantine: o.quarantine, returned: returned, members: o.own,
		handovers: &handovers{broker: o.broker, returned: returned, background: o.background,
			metrics: c.Metrics.Messages(), log: o.log, waiting: make(map[string][]handover)},
		dead: dead, calls: calls, notifier: &notifier{broker: o.broker, log: o.log}, texts: texts,
		metrics: c.Metrics.Messages(), log: o.log}
	o.loop = &loop{
		config: loopConfig{ackWait: o.broker.InboxAckWait(), maxInbox: c.MaxInbox, maxAttempts: c.Round.MaxAttempts,
			stuckAfter: c.StuckAfter, measured: c.Metrics != nil},
		table: newInstances(instanceLimits{most: c.Memory.MaxInstances, mostBytes: c.Memory.MaxInstanceBytes,
			none: c.Memory.ReplayEach, runawayAfter: c.RunawayAfter}, &c.Round, o.steps, waker.wake,
			c.Metrics.Rounds(), o.log),
		held:     held,
		marks:    &watermarks{broker: o.broker, held: held, calls: calls, in: arrivals.in, nack: settler.nack},
		ready:    &readyQueue{jobs: o.deciders.jobs},
		deciders: o.deciders,
		loader: &loader{store: o.store, room: room, timeout: c.LoadTimeout, measure: rounds.loaded, log: o.log,
			done: make(chan *loaded, maxLoads)},
		former: &formerReader{store: o.store, done: make(chan *formerRead, maxFormerReads)},
		noops: &noops{store: o.store, broker: o.broker, starts: o.broker, prefix: prefix, timeout: c.LoadTimeout,
			patient: c.Round.WaitsForStart(),
			metrics: c.Metrics.Outbox(), log: o.log, done: make(chan *checked, 1),
			refusals: rate.Sometimes{Interval: outbox.RefusedEvery},
			untold:   rate.Sometimes{Interval: outbox.RefusedEvery}},
		commits: &committer{limits: batchLimits{turns: c.Commit.MaxTurns, events: c.Commit.MaxEvents,
			bytes: c.Commit.MaxBytes},
			timeout: c.Commit.Timeout, store: o.store, publisher: o.publisher, measure: rounds.committed,
			after: calls.after, log: o.log, done: make(chan *committed, maxCommits)},
		settler: settler,
		steps:   o.steps, wake: waker.wake, refuse: waker.refuse,
		spans:  &spans{tracer: c.Tracer, store: o.store, background: o.background},
		rounds: rounds, turnLog: &turnLog{code: c.CodeLogger, service: o.log, texts: texts}, log: o.log,
		in: arrivals.in, calls: calls, drained: make(chan struct{}),
	}
	o.loop.marks.giveBack = o.loop.giveBack
	o.values = &valueReader{by: c.ID, broker: o.broker, prefix: prefix, store: o.store, system: o.system, dead: dead,
		background: o.background, reading: make(chan struct{}, readAtOnce), log: o.log}
}

// newHelpers makes what runs beside the pipeline.
func (o *Orchestrator) newHelpers() {
	c := &o.config
	o.keeper = maintenance.New(o.broker, o.store, maintenance.Config{
		By: c.ID, Every: c.Sweep.Every, Limit: c.Sweep.Limit, OverdueGrace: c.Sweep.OverdueGrace,
		Patience:    c.Round.Patience,
		OutboxAfter: c.Sweep.OutboxAfter, Retention: c.Retention, KeepExecutions: c.KeepExecutions,
		KeepFormerFor: c.KeepFormerFor, Clock: o.mayDecide, Jitter: c.Clocks.Jitter, Runs: o.own.MayRun,
		Has:        c.Round.Code.Has,
		Background: o.background.do, Metrics: c.Metrics, Logger: o.log,
	})
	o.schedules = schedules.New(o.store, o.publisher, schedules.Config{Prefix: o.broker.Prefix(), Now: o.mayDecide,
		First: o.own.First, CheckStart: c.Round.CheckStart, Members: o.own.Members,
		Has: o.broker.Has, Metrics: c.Metrics.Schedules(),
		Log: o.log})
	o.gauges = &report.Gauges{
		Every: c.MeasureEvery, Members: o.own, Backlogs: o.broker, Store: o.store, Metrics: c.Metrics, Logger: o.log,
		Process: report.Process{
			Limits: report.Limits{Instances: c.Memory.MaxInstances, Messages: c.Memory.MaxMessages,
				InstanceBytes: c.Memory.MaxInstanceBytes, MessageBytes: c.Memory.MaxMessageBytes},
			Memory: o.loop.counted.Load, Unpublished: o.publisher.Waiting, Steps: o.steps.Running,
			Stuck: o.deciders.lostNow, Clocks: o.clock.aheadOf,
		},
	}
}

// mayDecide returns the time once rounds may be decided, and regular jobs may run: the database is
// not behind, and the clock is right.
func (o *Orchestrator) mayDecide(ctx context.Context) (time.Time, error) {
	if err := o.system.Await(ctx); err != nil {
		return time.Time{}, err
	}
	return o.clock.read(ctx)
}

// ID is the name of the orchestrator among the members.
func (o *Orchestrator) ID() string { return o.config.ID }

// Run runs the service until the context ends. Then it receives no more messages, commits the
// decided turns, nacks the other messages and leaves the members, within the shutdown timeout. It
// returns an error if it could not begin, or could not end in order.
func (o *Orchestrator) Run(ctx context.Context) error {
	if o.running.Swap(true) {
		return errors.New("it was run before; make a new one")
	}
	o.began = time.Now()
	stop, err := o.begin(ctx)
	if err != nil {
		return err
	}
	o.log.Info("the orchestrator has begun", "orchestrations", o.config.Round.Code.Names())
	if err = o.system.Run(ctx); err != nil {
		o.log.Error("the orchestrator ends", "error", err)
		return errors.Join(err, stop(err))
	}
	o.log.Info("the orchestrator ends")
	return stop(nil)
}

// begin starts all goroutines, and returns the function that stops them, from receive to publish.
// Rounds that have begun end first, unless there is a reason that they cannot.
func (o *Orchestrator) begin(ctx context.Context) (stop func(reason error) error, err error) {
	if err := awaitDatabase(ctx, o.store, o.config.LoadTimeout, o.log); err != nil {
		return nil, err
	}
	if err := o.system.Join(ctx); err != nil { // BEFORE anything of the database is published
		return nil, err
	}
	looking, looked := context.WithTimeout(ctx, o.config.LoadTimeout)
	err = o.keeper.Begin(looking)
	looked()
	if err != nil {
		o.log.Warn("whether the broker is new could not be seen; looking later", "error", err)
	}
	// Nothing of this ends with ctx: a shutdown has an order of its own.
	taking, stopTaking := context.WithCancel(context.Background())
	working, stopWorking := context.WithCancelCause(context.Background())
	publishing, stopPublishing := context.WithCancel(context.Background())
	var takers, workers, publishers sync.WaitGroup
	publishers.Go(func() { o.publisher.Run(publishing, working) })
	workers.Go(func() { o.clock.run(working) })
	workers.Go(func() { o.deciders.run(working, o.loop.setStuck) })
	workers.Go(func() { o.loop.run(working) })
	answers := func() {} // ends to answer requests, which takes some seconds while the database hangs
	stop = func(reason error) error {
		grace, cancel := context.WithTimeout(context.Background(), o.config.ShutdownTimeout)
		defer cancel()
		context.AfterFunc(grace, func() { stopWorking(errGrace) }) // after it, the shutdown waits no longer
		answers()
		o.own.Leave(grace, o.config.ShutdownTimeout/4)
		stopTaking()
		takers.Wait()
		err := o.loop.drain(grace, reason == nil)
		if reason != nil {
			stopWorking(reason) // rounds would wait for permission to decide until the timeout
		}
		stopPublishing()
		publishers.Wait()
		o.background.wait(grace)
		o.background.end()
		o.steps.Stop()
		stopWorking(errStopped)
		workers.Wait()
		o.deciders.evictRest(o.loop.table.evict)
		o.config.Round.Coroutines.End()
		return err
	}
	if _, err := o.clock.read(ctx); err != nil { // others run the instances meanwhile
		return nil, errors.Join(err, stop(nil))
	}
	consumer := consumer{o.background.lifetime, o.receiver, o.loop}
	if err := broker.Insist(ctx, o.log, func() error { return o.own.Join(ctx, consumer) }); err != nil {
		_ = stop(nil)
		return nil, err
	}
	if err := broker.Insist(ctx, o.log, func() error {
		end, err := report.Serve(o.broker, o.store, report.Config{ID: o.config.ID, Build: o.config.Build,
			Began: o.began, System: o.system.ID, Members: o.own, Ready: o.Ready, Recover: o.keeper.RecoverSoon,
			Rounds: o.deciders.longRounds, Quarantined: o.quarantine.list,
			Await: o.system.Await, CheckStart: o.config.Round.CheckStart, Schedules: o.schedules,
			Logger: o.log})
		if err == nil {
			answers = end
		}
		return err
	}); err != nil {
		_ = stop(nil)
		return nil, err
	}
	takers.Go(func() { o.own.Run(taking, consumer) })
	takers.Go(func() { o.quarantine.run(taking, firstBlocked(o.loop), o.loop.unblock) })
	takers.Go(func() { o.keeper.Run(taking) })
	takers.Go(func() { o.schedules.Run(taking) })
	takers.Go(func() { o.values.run(taking) })
	takers.Go(func() { o.gauges.Run(taking) })
	return stop, nil
}

// pingPauses are the delays between the attempts of awaitDatabase.
var pingPauses = backoff.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}

// awaitDatabase returns nil when the database answers. It tries again until ctx ends while the
// database does not answer within the timeout: a server that hangs was there a moment ago.
func awaitDatabase(ctx context.Context, store interface{ Ping(context.Context) error }, timeout time.Duration,
	log *slog.Logger) error {
	for attempt := 0; ; attempt++ {
		within, cancel := context.WithTimeout(ctx, timeout)
		err := store.Ping(within)
		late := within.Err() != nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the database does not answer: %w", context.Cause(ctx))
		case !late:
			return fmt.Errorf("the database does not answer: %w", err)
		}
		log.Warn("the database does not answer within the time limit; trying again", "after", timeout, "error", err)
		select {
		case <-time.After(pingPauses.After(attempt)):
		case <-ctx.Done():
		}
	}
}

// consumer takes the messages of the owned partitions. It implements [ownership.Consumer].
type consumer struct {
	lifetime context.Context // of the service
	receiver *receiver
	loop     *loop
}

func (c consumer) Receive(ctx context.Context, d broker.Delivery) { c.receiver.receive(ctx, d, false) }
func (c consumer) TakeOver(d broker.Delivery) error               { return c.receiver.takeOver(c.lifetime, d) }
func (c consumer) SetOwned(owned map[int]bool) bool               { return c.loop.setOwned(owned) }

var (
	errStopped = errors.New("the orchestrator has ended")
	errGrace   = errors.New("the grace period of the shutdown is over")
)

// Live returns an error if the loop does not respond, or the clock has been wrong for long. It
// ignores the broker and the database, because a restart would not help them.
func (o *Orchestrator) Live() error {
	return errors.Join(o.loop.pulse.live(), o.deciders.live(), o.clock.live())
}

// Ready returns an error unless the orchestrator is connected and knows its partitions.
func (o *Orchestrator) Ready(ctx context.Context) error {
	if !o.running.Load() {
		return errors.New("it has not begun")
	}
	return errors.Join(o.Live(), o.broker.Connected(), o.own.Ready(), o.loop.commits.failing(), o.clock.err(),
		o.system.Err(), o.schedules.Err(),
		harmful(o.broker.Flaws()), o.store.Ping(ctx))
}

// harmful returns an error about the flaws of the broker with which messages are lost or wait in
// vain.
func harmful(flaws []broker.Flaw) error {
	var errs []error
	for _, f := range flaws {
		if f.Harmful {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return errors.Join(errs...)
}

// Owned lists the partitions that this orchestrator receives from.
func (o *Orchestrator) Owned() []int { return o.own.Owned() }

// Knows reports whether an orchestrator that is running can run some code; an empty version stands
// for any.
func (o *Orchestrator) Knows(name, version string) bool { return o.own.Knows(name, version) }

// Takes returns the reason why it takes no messages now, or nil.
func (o *Orchestrator) Takes() error {
	if err := o.system.Decides(); err != nil {
		return err
	}
	return o.own.Ready()
}

// UsesDatabase returns the reason why nothing may be read from the database or written to it now,
// or nil: until the orchestrator knows that it belongs to NATS, and while it may be a copy.
func (o *Orchestrator) UsesDatabase() error { return o.system.Decides() }

// AwaitDatabase returns nil once UsesDatabase does, or an error when the context ends first.
func (o *Orchestrator) AwaitDatabase(ctx context.Context) error { return o.system.Await(ctx) }

// Unknown is an instance whose messages wait for an orchestrator that can take them.
type Unknown = ownership.Unknown

// Unknown lists the instances whose messages wait for an orchestrator that can take them, as far as
// this one has seen them lately.
func (o *Orchestrator) Unknown() []Unknown { return o.own.Unknown() }
