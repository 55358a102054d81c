package orchestrator

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/round"
)

// Config has the settings of an orchestrator. The zero value has the defaults.
type Config struct {
	// ID is unique among the orchestrators. Default: generated.
	ID string
	// Build is the version of the binary, for operators.
	Build string
	// Round has the settings of rounds. New sets its Code.
	Round round.Config

	// Memory bounds the instances and messages in memory.
	Memory Memory
	// Commit bounds commits.
	Commit Commit
	// Sweep has the settings of sweeps for overdue instances and outbox entries.
	Sweep Sweep
	// Clocks say how good the clock must be, and replace it in simulations.
	Clocks Clocks

	// MaxInbox bounds the messages that one instance takes in one round: 500.
	MaxInbox int
	// RoundConcurrency is how many rounds run at once. Default: one for each processor.
	RoundConcurrency int
	// StepConcurrency is how many inline steps run at once. Default: 64.
	StepConcurrency int

	// QuarantineAfter is the number of deliveries after which a message is quarantined. Most
	// redelivered messages are harmless, because a process that dies has many in flight. The
	// orchestrator decides a quarantined message alone, and counts its attempts. Default: 3.
	QuarantineAfter int
	// RunawayAfter is how long the code of a round may compute before the orchestrator interrupts
	// it. Default: 10 seconds. StuckAfter is when the orchestrator reports that the interrupt had
	// no effect. Default: 30 seconds. Neither counts time in which the process was frozen, and
	// computing does not count time without CPU.
	RunawayAfter, StuckAfter time.Duration
	// LoadTimeout bounds one attempt to load: 10 seconds.
	LoadTimeout time.Duration
	// ShutdownTimeout is how long a shutdown may take. Default: 20 seconds.
	ShutdownTimeout time.Duration

	// NoDirectDelivery has the broker store all tasks, instead of delivering them straight to
	// workers that have room for them.
	NoDirectDelivery bool
	// Retention is how long instances are kept after they have ended; 0 keeps them for ever.
	Retention time.Duration
	// KeepExecutions is how many executions of an instance that continues as new are kept, the
	// current one included; 0 keeps all.
	KeepExecutions int
	// KeepFormerFor is how long a former execution stays in any case, because it tells which
	// messages were taken: 10 minutes.
	KeepFormerFor time.Duration

	// Tracer exports spans of rounds and of the activities that they complete. Default: none.
	Tracer *telemetry.Tracer `json:"-"`
	// Metrics records the metrics. Default: none.
	Metrics *telemetry.Metrics `json:"-"`
	// MeasureEvery is the interval at which the backlogs in the broker and the database are
	// measured. Default: 15 seconds.
	MeasureEvery time.Duration
	// LogPayloads lets logs have payloads that cannot be processed, and texts of errors that may
	// have parts of payloads. By default logs have their size and hash.
	LogPayloads bool
	// Logger is the service's logger. Default: slog.Default. CodeLogger is the logger of
	// orchestrations. Default: Logger.
	Logger, CodeLogger *slog.Logger
}

// Memory bounds the instances and messages that an orchestrator has in memory.
type Memory struct {
	// MaxInstances bounds the instances: 10,000. MaxInstanceBytes bounds about how much memory they
	// take: 1 GiB.
	MaxInstances     int
	MaxInstanceBytes int64
	// MaxMessages bounds the messages: 20,000. MaxMessageBytes bounds their size: 256 MiB.
	MaxMessages     int
	MaxMessageBytes int64
	// ReplayEach keeps no instance in memory between two rounds, so that each round replays its
	// history: for development, where it finds nondeterminism at once.
	ReplayEach bool
}

// Commit bounds one commit.
type Commit struct {
	// MaxTurns bounds the turns: 512.
	MaxTurns int
	// MaxEvents and MaxBytes bound the writes, unless one turn alone is larger: 2,000 events,
	// 16 MiB.
	MaxEvents, MaxBytes int
	// Timeout bounds one attempt: 10 seconds.
	Timeout time.Duration
}

// Sweep has the settings of sweeps.
type Sweep struct {
	// Every is the interval of sweeps for overdue instances and outbox entries. Default: 5 seconds.
	// Limit bounds the instances of one query; a sweep repeats the query until no instance is
	// overdue. Default: 500.
	Every time.Duration
	Limit int
	// OverdueGrace is how long an instance may be overdue before an orchestrator that does not own
	// it wakes it. Default: 2 seconds.
	OverdueGrace time.Duration
	// OutboxAfter is the age at which another orchestrator publishes an outbox entry. Default: 10
	// seconds. With less than 5, workers execute directly delivered tasks twice that take a second.
	OutboxAfter time.Duration
	// BeatEvery is the interval of comparing the database and NATS, and of beats: see package
	// identity. All orchestrators of a system must have the same. Default: 10 seconds.
	BeatEvery time.Duration
}

// Clocks bound the difference of clocks, and replace time and randomness in simulations.
type Clocks struct {
	// MaxSkew is by how much the clock of this machine may differ from those of the broker and of
	// the database. While it differs by more, the orchestrator decides nothing. Default: 10
	// seconds.
	MaxSkew time.Duration
	// Now is the clock for the times in histories; nil is [time.Now].
	Now func() time.Time `json:"-"`
	// Jitter returns a delay up to most for the regular jobs of all replicas; nil draws one.
	Jitter func(what string, most time.Duration) time.Duration `json:"-"`
	// CPU returns the CPU time that the process has used, if known; nil asks the operating system.
	CPU func() (used time.Duration, known bool) `json:"-"`
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
	number(&c.Memory.MaxInstances, 10_000)
	number(&c.Memory.MaxMessages, 20_000)
	if c.Memory.MaxInstanceBytes == 0 {
		c.Memory.MaxInstanceBytes = 1 << 30
	}
	if c.Memory.MaxMessageBytes == 0 {
		c.Memory.MaxMessageBytes = 256 << 20
	}
	number(&c.MaxInbox, 500)
	number(&c.Commit.MaxTurns, 512)
	number(&c.Commit.MaxEvents, 2000)
	number(&c.Commit.MaxBytes, 16<<20)
	number(&c.RoundConcurrency, runtime.GOMAXPROCS(0))
	number(&c.StepConcurrency, 64)
	number(&c.QuarantineAfter, 3)
	number(&c.Sweep.Limit, 500)
	duration(&c.RunawayAfter, 10*time.Second)
	duration(&c.Clocks.MaxSkew, 10*time.Second)
	duration(&c.StuckAfter, 30*time.Second)
	duration(&c.Commit.Timeout, 10*time.Second)
	duration(&c.LoadTimeout, 10*time.Second)
	duration(&c.ShutdownTimeout, 20*time.Second)
	duration(&c.Sweep.Every, 5*time.Second)
	duration(&c.Sweep.BeatEvery, identity.Every)
	duration(&c.Sweep.OverdueGrace, 2*time.Second)
	duration(&c.Sweep.OutboxAfter, 10*time.Second)
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
	if c.Clocks.Now == nil {
		c.Clocks.Now = time.Now
	}
	if c.Clocks.CPU == nil {
		c.Clocks.CPU = cpuTime
	}
	if c.Clocks.Jitter == nil {
		c.Clocks.Jitter = func(_ string, most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	return c
}

// check lists all problems of the settings.
func (c Config) check() error {
	var errs []error
	for _, n := range []struct {
		name string
		is   int
	}{
		{"instances in memory", c.Memory.MaxInstances}, {"messages in memory", c.Memory.MaxMessages},
		{"messages in a round", c.MaxInbox}, {"turns in a commit", c.Commit.MaxTurns},
		{"bytes of instances in memory", int(c.Memory.MaxInstanceBytes)}, {"bytes of messages in memory",
			int(c.Memory.MaxMessageBytes)}, {"events in a commit", c.Commit.MaxEvents},
		{"bytes in a commit", c.Commit.MaxBytes},
		{"rounds at once", c.RoundConcurrency}, {"steps at once", c.StepConcurrency}, {"instances in a sweep",
			c.Sweep.Limit},
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
		{"the time after which code counts as stuck", c.StuckAfter}, {"the timeout of commits", c.Commit.Timeout},
		{"the timeout of loading", c.LoadTimeout}, {"the grace of a shutdown", c.ShutdownTimeout},
		{"the time between sweeps", c.Sweep.Every}, {"the grace of the overdue", c.Sweep.OverdueGrace},
		{"the time after which an outbox entry is swept", c.Sweep.OutboxAfter},
		{"the time between two looks for metrics",
			c.MeasureEvery}, {"the time for which former executions stay", c.KeepFormerFor},
	} {
		if d.is <= 0 {
			errs = append(errs, fmt.Errorf("%s: %v; want more than nothing", d.name, d.is))
		}
	}
	if c.Retention < 0 || c.KeepExecutions < 0 {
		errs = append(errs, errors.New("what is kept: want 0 for everything, or more"))
	}
	if c.Memory.MaxMessages < c.MaxInbox {
		errs = append(errs, fmt.Errorf("messages in memory: %d are less than the %d of one round",
			c.Memory.MaxMessages, c.MaxInbox))
	}
	return errors.Join(errs...)
}
