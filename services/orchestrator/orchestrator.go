// Package orchestrator is the service that decides: it takes messages for instances from the
// broker, lets their code go on, commits what follows and publishes it.
//
//	receive ─────► order ─────► load ─────► decide ─────► commit ─────► publish ─────► settle
//	(receive.go)   (loop.go)    (load.go)   (decide.go)   (commit.go)   (pkg/outbox)   (settle.go)
//
// # The loop
//
// One goroutine, the loop, knows of every instance in memory: which messages wait for it, in their
// order, and what is being done with it. It never blocks: loading, deciding and committing are done
// by others, who tell the loop when they are done. An instance is in one place at a time, so its
// messages are decided one batch after the other, while those of other instances go on. A batch to
// commit is what was decided while the batch before was being committed: when there is little to
// do, each turn is committed at once, and when there is much, hundreds share a transaction. In
// between, a small batch waits for half a millisecond after the commit before, for what that has
// set free.
//
// # What each failure does
//
//	the turn was decided on something else    the instance is loaded and the same messages are decided again, in
//	                                          their order
//	the commit may or may not have happened   likewise: history tells what was taken
//	the database does not answer              the same batch is committed again; meanwhile nothing more is taken
//	                                          from the broker
//	the code does not come back               it is interrupted at its next call; if it makes none, the others
//	                                          go on without that goroutine
//	the process dies                          the broker hands the messages out again; what was promised is
//	                                          published by a sweep
//	a message kills the process               after some deliveries it is tried alone and counted, and in the
//	                                          end dead-lettered
//	this replica does not know the code       the message is handed to one that does, or comes again after a while
//	the history is of a newer engine          likewise, and it is not even read
//
// # Who does what
//
// Each replica says that it is alive, and all compute from that which of them takes which partition
// (own.go). For a moment two may take the same one: then one commit of two is refused, and nothing
// else happens.
package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// Broker is what an orchestrator needs of the bus.
type Broker interface {
	broker.Publisher
	broker.Inbox
	broker.DeadLetters
	broker.WorkBroker
	broker.Members
	broker.Handovers
	broker.Sessions
	broker.Notes
	broker.Marks
	broker.Schedules
	broker.Notices
	broker.Questions
	broker.RollCalls
	// Prefix begins all subjects. InboxWait is how long a message stays with who has it.
	Prefix() string
	InboxWait() time.Duration
	// Connected tells whether there is a connection just now.
	Connected() error
}

// Config says how an orchestrator works. The zero value is good for most.
type Config struct {
	// ID tells it from the others; "" makes one up.
	ID string
	// Build says which binary it is, for people.
	Build string
	// Round is what rounds need to know; its Code is set by New.
	Round round.Config

	// MaxInstances bounds the instances in memory: 10,000. MaxInstanceBytes bounds about how much
	// memory they take: 1 GiB.
	MaxInstances     int
	MaxInstanceBytes int64
	// MaxMessages bounds the messages in memory: 20,000. MaxMessageBytes bounds their size: 256
	// MiB.
	MaxMessages     int
	MaxMessageBytes int64
	// MaxInbox bounds the messages that one instance takes in one round: 500. MaxBatch bounds the
	// turns in one commit: 512.
	MaxInbox, MaxBatch int
	// MaxBatchEvents and MaxBatchBytes bound what one commit writes, unless one turn alone is
	// larger: 2,000 events, 16 MiB.
	MaxBatchEvents, MaxBatchBytes int
	// Deciders is how many rounds are decided at once: one for each processor.
	Deciders int
	// Steps is how many inline steps run at once: 64.
	Steps int

	// SuspectAfter is how often a message may be handed out before it is under suspicion: a process
	// that dies takes all that it holds with it, so most messages that come again are innocent. A
	// suspect is decided alone, and its attempts are counted. 3.
	SuspectAfter int
	// RunawayAfter is how long the code of a round may compute before it is interrupted: 10
	// seconds. StuckAfter is when it is reported that this has not helped: 30 seconds. Time in
	// which the process stood still counts for neither, and time in which it got no CPU does not
	// count as computing.
	RunawayAfter, StuckAfter time.Duration
	// CommitTimeout bounds one attempt to commit, LoadTimeout one to load: 10 seconds.
	CommitTimeout, LoadTimeout time.Duration
	// Grace is how long a shutdown may take: 20 seconds.
	Grace time.Duration

	// SweepEvery is how often overdue instances and promises are looked for: 5 seconds. SweepLimit
	// is how many instances are looked after at a time, one time after the other until none is
	// overdue: 500.
	SweepEvery time.Duration
	SweepLimit int
	// OverdueGrace is how long an instance may be overdue before others than its owner look after
	// it: 2 seconds.
	OverdueGrace time.Duration
	// StoreWork has the broker store all work, instead of passing it to workers that have room for
	// it.
	StoreWork bool
	// PromiseAfter is when a promise is taken for one that nobody keeps: 10 seconds. Less than 5
	// has work executed twice that is passed on and takes a second.
	PromiseAfter time.Duration
	// KeepEnded is how long instances are kept after they have ended; 0 keeps them for ever.
	KeepEnded time.Duration
	// KeepExecutions is how many executions of an instance that continues as new are kept, the
	// current one included; 0 keeps all.
	KeepExecutions int
	// KeepFormerFor is how long a former execution stays in any case, because it tells which
	// messages were taken: 10 minutes.
	KeepFormerFor time.Duration

	// Now is the clock of what stands in histories; nil is [time.Now]. Jitter spreads over time
	// what all replicas do now and then: it gives a time up to most; nil draws one. Both are for
	// simulations.
	Now    func() time.Time                                    `json:"-"`
	Jitter func(what string, most time.Duration) time.Duration `json:"-"`

	// CPU tells how much CPU time the process has used, if that is known; nil asks the operating
	// system. For simulations.
	CPU func() (used time.Duration, known bool) `json:"-"`

	// Tracer is told of rounds and of what they bring to an end; nil: nobody is.
	Tracer *telemetry.Tracer `json:"-"`
	// Metrics counts and measures all that happens; nil: nobody does.
	Metrics *telemetry.Metrics `json:"-"`
	// MeasureEvery is how often it is looked, for metrics, what waits in the broker and in the
	// database: 15 seconds.
	MeasureEvery time.Duration
	// LogPayloads lets logs tell the data of users where something is wrong with it, and texts of
	// errors that may have some of it. Otherwise they tell its size and hash.
	LogPayloads bool
	// Logger gets what operators should know; nil is slog.Default. CodeLogger gets what
	// orchestrations log; nil is Logger.
	Logger, CodeLogger *slog.Logger
}

func (c Config) withDefaults() Config {
	number := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	duration := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	number(&c.MaxInstances, 10_000)
	number(&c.MaxMessages, 20_000)
	if c.MaxInstanceBytes == 0 {
		c.MaxInstanceBytes = 1 << 30
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 256 << 20
	}
	number(&c.MaxInbox, 500)
	number(&c.MaxBatch, 512)
	number(&c.MaxBatchEvents, 2000)
	number(&c.MaxBatchBytes, 16<<20)
	number(&c.Deciders, runtime.GOMAXPROCS(0))
	number(&c.Steps, 64)
	number(&c.SuspectAfter, 3)
	number(&c.SweepLimit, 500)
	duration(&c.RunawayAfter, 10*time.Second)
	duration(&c.StuckAfter, 30*time.Second)
	duration(&c.CommitTimeout, 10*time.Second)
	duration(&c.LoadTimeout, 10*time.Second)
	duration(&c.Grace, 20*time.Second)
	duration(&c.SweepEvery, 5*time.Second)
	duration(&c.OverdueGrace, 2*time.Second)
	duration(&c.PromiseAfter, 10*time.Second)
	duration(&c.MeasureEvery, 15*time.Second)
	duration(&c.KeepFormerFor, 10*time.Minute)
	if c.ID == "" {
		c.ID = newID()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.CodeLogger == nil {
		c.CodeLogger = c.Logger
	}
	c.Logger, c.CodeLogger = telemetry.Logger(c.Logger), telemetry.Logger(c.CodeLogger)
	c.Round.ShowPayloads = c.Round.ShowPayloads || c.LogPayloads
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.CPU == nil {
		c.CPU = cpuTime
	}
	if c.Jitter == nil {
		c.Jitter = func(_ string, most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	return c
}

// check lists everything that is wrong with it.
func (c Config) check() error {
	var errs []error
	for _, n := range []struct {
		name string
		is   int
	}{
		{"instances in memory", c.MaxInstances}, {"messages in memory", c.MaxMessages},
		{"messages in a round", c.MaxInbox}, {"turns in a commit", c.MaxBatch},
		{"bytes of instances in memory", int(c.MaxInstanceBytes)}, {"bytes of messages in memory",
			int(c.MaxMessageBytes)}, {"events in a commit", c.MaxBatchEvents}, {"bytes in a commit", c.MaxBatchBytes},
		{"rounds at once", c.Deciders}, {"steps at once", c.Steps}, {"instances in a sweep", c.SweepLimit},
	} {
		if n.is < 1 {
			errs = append(errs, fmt.Errorf("%s: %d; want at least 1", n.name, n.is))
		}
	}
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"the time after which code is interrupted", c.RunawayAfter},
		{"the time after which code counts as stuck", c.StuckAfter}, {"the timeout of commits", c.CommitTimeout},
		{"the timeout of loading", c.LoadTimeout}, {"the grace of a shutdown", c.Grace},
		{"the time between sweeps", c.SweepEvery}, {"the grace of the overdue", c.OverdueGrace},
		{"the time after which a promise is swept", c.PromiseAfter}, {"the time between two looks for metrics",
			c.MeasureEvery}, {"the time for which former executions stay", c.KeepFormerFor},
	} {
		if d.is <= 0 {
			errs = append(errs, fmt.Errorf("%s: %v; want more than nothing", d.name, d.is))
		}
	}
	if c.KeepEnded < 0 || c.KeepExecutions < 0 {
		errs = append(errs, errors.New("what is kept: want 0 for everything, or more"))
	}
	if c.MaxMessages < c.MaxInbox {
		errs = append(errs, fmt.Errorf("messages in memory: %d are less than the %d of one round",
			c.MaxMessages, c.MaxInbox))
	}
	return errors.Join(errs...)
}

// Code is what an orchestrator needs to know of orchestrations: [orchestration.Registry] is it.
type Code interface{ round.Code }

// Orchestrator is the service. Make it with New, and run it once.
type Orchestrator struct {
	config    Config
	log       *slog.Logger
	broker    Broker
	store     history.Store
	publisher *outbox.Publisher
	steps     *steps
	own       *ownership
	loop      *loop
	deciders  *deciders
	suspects  *suspects
	returned  *returned
	keeper    *keeper
	handovers *handovers
	teller    *teller
	lookout   *lookout

	running  atomic.Bool
	began    time.Time
	asides   sync.WaitGroup
	lifetime context.Context // ends when everything has ended
	end      context.CancelFunc
}

// New makes an orchestrator that runs the code on the broker and the store. The error lists
// everything that is wrong with the settings.
func New(broker Broker, store history.Store, code Code, config Config) (*Orchestrator, error) {
	config = config.withDefaults()
	config.Round.Code, config.Round.Coroutines = code, new(round.Coroutines)
	if config.Tracer != nil {
		config.Round.NewTrace = config.Tracer.Sample
	}
	if config.Metrics != nil {
		config.Round.TellOver = true
		config.Metrics.Orchestrations(code)
	}
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("the settings of the orchestrator:\n%w", err)
	}
	o := &Orchestrator{config: config, log: config.Logger.With("orchestrator", config.ID), broker: broker, store: store}
	o.lifetime, o.end = context.WithCancel(context.Background())
	o.publisher = outbox.NewPublisher(broker, store, broker.Prefix(), o.log)
	o.publisher.Watch(config.Metrics)
	if !config.StoreWork {
		o.publisher.PassWork()
	}
	o.loop = newLoop(o)
	o.teller = &teller{o: o, tracer: config.Tracer}
	o.deciders = newDeciders(o)
	o.steps = newSteps(o)
	o.suspects, o.returned = newSuspects(o), newReturned()
	o.own = newOwnership(o)
	o.keeper = newKeeper(o)
	o.lookout = &lookout{o: o}
	o.handovers = &handovers{o: o, waiting: make(map[string][]handover)}
	return o, nil
}

// ID is what the others know it by.
func (o *Orchestrator) ID() string { return o.config.ID }

// Run works until the context ends. Then it takes nothing new, commits what is decided, gives back
// the rest and leaves, within the grace period. The error is why it could not begin, or why it did
// not end in order.
func (o *Orchestrator) Run(ctx context.Context) error {
	if o.running.Swap(true) {
		return errors.New("orchestrator: it was run before; make a new one")
	}
	o.began = time.Now()
	stop, err := o.begin(ctx)
	if err != nil {
		return fmt.Errorf("orchestrator: %w", err)
	}
	o.log.Info("the orchestrator has begun", "orchestrations", o.config.Round.Code.Names())
	<-ctx.Done()
	o.log.Info("the orchestrator ends")
	return stop()
}

// begin starts everything, and gives how to stop it again: from where messages come to where they
// go.
func (o *Orchestrator) begin(ctx context.Context) (stop func() error, err error) {
	if err := o.store.Ping(ctx); err != nil {
		return nil, fmt.Errorf("the database does not answer: %w", err)
	}
	if err := o.keeper.begin(ctx); err != nil {
		o.log.Warn("whether the broker is new could not be seen; looking later", "error", err)
	}
	// Nothing of this ends with ctx: a shutdown has an order of its own.
	taking, stopTaking := context.WithCancel(context.Background())
	working, stopWorking := context.WithCancelCause(context.Background())
	publishing, stopPublishing := context.WithCancel(context.Background())
	var takers, workers, publishers sync.WaitGroup
	publishers.Go(func() { o.publisher.Run(publishing, working) })
	workers.Go(func() { o.deciders.run(working) })
	workers.Go(func() { o.loop.run(working) })
	stop = func() error {
		grace, cancel := context.WithTimeout(context.Background(), o.config.Grace)
		defer cancel()
		context.AfterFunc(grace, func() { stopWorking(errGrace) }) // when it is over, nobody waits any more
		o.own.leave(grace, o.config.Grace/4)
		stopTaking()
		takers.Wait()
		err := o.loop.drain(grace)
		stopPublishing()
		publishers.Wait()
		o.waitAside(grace)
		o.end()
		o.steps.stop()
		stopWorking(errStopped)
		workers.Wait()
		o.loop.forgetRest()
		o.config.Round.Coroutines.End()
		return err
	}
	if err := o.own.join(ctx); err != nil {
		_ = stop()
		return nil, err
	}
	answers, err := o.serve()
	if err != nil {
		_ = stop()
		return nil, err
	}
	takers.Go(func() { o.own.run(taking) })
	takers.Go(func() { o.suspects.run(taking) })
	takers.Go(func() { o.keeper.run(taking) })
	takers.Go(func() { o.lookout.run(taking) })
	inner := stop
	return func() error {
		answers()
		return inner()
	}, nil
}

// waitAside waits for what is done beside the loop.
func (o *Orchestrator) waitAside(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		o.asides.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

var (
	errStopped = errors.New("the orchestrator has ended")
	errGrace   = errors.New("the grace period of the shutdown is over")
)

// Live tells whether the loop turns. It says nothing about the broker and the database: a restart
// would not help them.
func (o *Orchestrator) Live() error { return errors.Join(o.loop.live(), o.deciders.live()) }

// Ready tells whether it can take messages: it is connected, and knows what it owns.
func (o *Orchestrator) Ready(ctx context.Context) error {
	if !o.running.Load() {
		return errors.New("it has not begun")
	}
	return errors.Join(o.Live(), o.broker.Connected(), o.own.ready(), o.loop.committing(), o.store.Ping(ctx))
}

func newID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "orchestrator"
	}
	return cleanID(host) + "-" + randomWord()
}

// cleanID leaves of a name what an id may have.
func cleanID(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			b[i] = '-'
		}
	}
	return string(b)
}
