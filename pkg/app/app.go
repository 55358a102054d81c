// Package app makes one binary of a user's orchestrations and activities, which is started in
// several ways:
//
//	func main() { app.Main(orders.Fulfil.Bind(fulfil), orders.Charge.Bind(charge)) }
//
//	orders dev             everything in this process: a NATS server, a SQLite file, the orchestrator, the worker
//	orders orchestrator    the service that decides; it needs NATS and the database
//	orders worker          the service that executes activities; it needs NATS only
//	orders migrate         migrates the tables, and with --streams the streams of NATS
//	orders version, help
//
// So tests on a laptop run the code of production, and no operator has to keep the versions of
// several binaries together. Parts that a service has no use for do no harm: a worker does not look
// at orchestrations.
//
// # Settings
//
// A setting is a flag (--database), or else an environment variable (RONDO_DATABASE_URL), or else
// set by the program ([Configure]), or else has a default. A secret can also stand in a file that
// the variable with _FILE at its end names. The fields of [Config] name their flags; `orders help
// worker` prints the settings of a command, `orders worker --print-config` their values and where
// each comes from, without the secrets, and settings.md beside this file lists them. One error
// lists all problems.
//
// # Starting and ending
//
// A service waits for NATS and the database for a while (--connect-timeout), and says what it is
// waiting for. Then it serves /livez, /readyz and /version (--listen).
//
// SIGINT or SIGTERM ends it in order: it takes no new messages and tasks, finishes those in flight
// within --shutdown-timeout, and nacks the rest, which NATS redelivers elsewhere. A second signal
// ends it at once. That is as safe as a crash.
//
// A process that does not end, 8 seconds after all time limits for that, logs the stacks of its
// goroutines and exits with 1. The limits begin with the signal, or when a service fails.
//
// The exit code is 0 after an end in order, 1 after a failure, 2 for wrong settings, and 128 and
// the number of the signal after an end by force.
//
// # Programs as values
//
// [Main] is for main functions. In a test, or inside of another program, [New] and [App.Run] do the
// same without flags, signals and exits.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/internal/version"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Part is what a program is made of: orchestrations and activities bound to their code, and what
// [Configure], [Pin], [Store] and [Demo] give.
type Part = orchestration.Part

// Configure changes the settings that a program begins with. Flags and the environment are read
// after that.
//
//	app.Main(app.Configure(func(c *app.Config) { c.Orchestrator.Retention = 30 * 24 * time.Hour }), …)
func Configure(change func(*Config)) Part { return configure(change) }

type configure func(*Config)

// Pin makes new instances of an orchestration take exactly this version, also when there are newer
// ones: see [orchestration.Registry.Pin].
func Pin(name, version string) Part { return pin{name, version} }

type pin struct{ name, version string }

// RondoPart marks what a program is made of.
func (pin) RondoPart() {}

// PinnedTo gives the pinned versions, also to tests.
func (p pin) PinnedTo() (name, version string) { return p.name, p.version }

// RondoPart marks what a program is made of.
func (configure) RondoPart() {}

// OnlyForProcesses has tests leave it out.
func (configure) OnlyForProcesses() {}

// Demo is something that `dev --demo` does once everything runs: it shows what the program can do.
// Its error ends the program.
func Demo(show func(ctx context.Context, s System) error) Part { return demo(show) }

type demo func(context.Context, System) error

// RondoPart marks what a program is made of.
func (demo) RondoPart() {}

// OnlyForProcesses has tests leave it out.
func (demo) OnlyForProcesses() {}

// App is a program. Make it with New, and run it once.
type App struct {
	config    Config
	code      code
	logs      *logs
	log       *slog.Logger
	telemetry *telemetry.Telemetry
	places    places
	ran       atomic.Bool
	started   chan struct{}
	ending    signal.Signal // set when it begins to end, with or without a request
}

// Addresses say where a running program is found.
type Addresses struct {
	// NATS is the address of the server, Prefix the first word of all subjects.
	NATS   string `json:"nats"`
	Prefix string `json:"prefix"`
	// Database is where the history is; a password is left out.
	Database string `json:"database,omitempty"`
	// Health is the address of /livez and the others, "" if there is none.
	Health string `json:"health,omitempty"`
	// JobQueues is the address of the queues, "" if they are not served.
	JobQueues string `json:"job_queues,omitempty"`
}

// places collects the addresses of a program while it starts. Its methods are safe for concurrent
// use.
type places struct {
	mu sync.Mutex
	at Addresses
}

func (p *places) set(change func(*Addresses)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.at)
}

func (p *places) get() Addresses {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// New makes a program of its parts; what they say with [Configure] counts if the config is made
// with [Defaults] of them. The error lists everything that is wrong with them and with the
// settings. Nothing is opened yet.
func New(config Config, parts ...Part) (*App, error) {
	a := &App{config: config, started: make(chan struct{}), ending: signal.New()}
	a.config.openOutput()
	var err error
	if a.code, err = newCode(parts); err != nil {
		return nil, fmt.Errorf("the parts of the program: %w", err)
	}
	errs := append(a.config.problems(a.code.stores), a.code.missing(&a.config)...)
	if len(errs) > 0 {
		return nil, &SettingsError{Problems: errs}
	}
	a.logs = newLogs(a.config.Log, a.config.Stderr)
	a.log = a.logs.logger(a.logs.level)
	return a, nil
}

// Run does what the settings say. For a service it returns when the context has ended and
// everything was put away in order, or when something has failed.
func (a *App) Run(ctx context.Context) error {
	if a.ran.Swap(true) {
		return errors.New("the program was run before; make a new one")
	}
	if a.config.Command == Migrate {
		return a.migrate(ctx)
	}
	end, err := a.startTelemetry(ctx)
	if err != nil {
		return err
	}
	defer end()
	switch a.config.Command {
	case Dev:
		return a.dev(ctx)
	case Orchestrator:
		return a.orchestrator(ctx)
	case Worker:
		return a.worker(ctx)
	default:
		return fmt.Errorf("there is no command %q", a.config.Command)
	}
}

// Started is closed when the services are ready for the first time.
func (a *App) Started() <-chan struct{} { return a.started }

// Addresses tells where the program is found, once it has started.
func (a *App) Addresses() Addresses { return a.places.get() }

// name is what the program calls itself.
func (a *App) name() string { return cmp.Or(a.config.Program, programName()) }

// build says which binary this is.
func (a *App) build() string { return version.Of(a.name()) }
