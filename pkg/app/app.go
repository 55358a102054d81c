// Package app makes one binary of a user's orchestrations and activities, which is started in
// several ways:
//
//	func main() { app.Main(orders.Fulfil.With(fulfil), orders.Charge.With(charge)) }
//
//	orders dev             everything in this process: a NATS server, a SQLite file, the orchestrator, the worker
//	orders orchestrator    the service that decides; it needs NATS and the database
//	orders worker          the service that executes activities; it needs NATS only
//	orders migrate         brings the tables up to date, and with --streams what is needed in NATS
//	orders version, help
//
// So what is tested on a laptop is what runs in production, and nobody has to keep the versions of
// several binaries together. Parts that a service has no use for do no harm: a worker does not look
// at orchestrations.
//
// # Settings
//
// A setting is a flag (--database), or else an environment variable (RONDO_DATABASE_URL), or else
// what the program says ([Configure]), or else has a default. A secret can also stand in a file
// that the variable with _FILE at its end names. All settings stand in one table, [Settings];
// `orders help worker` prints those of a command, `orders worker --print-config` how they are now
// and where each comes from, without the secrets, and settings.md beside this file lists them. What
// is wrong with them is told all at once.
//
// # Starting and ending
//
// A service waits for NATS and the database for a while (--wait), and says what it is waiting for.
// Then it serves /livez, /readyz and /version (--listen).
//
// SIGINT or SIGTERM ends it in order: nothing new is taken, what is under way gets some time
// (--grace), and what is left comes again elsewhere. A second signal ends it at once. That is safe,
// too: it is what a crash does.
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

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Part is what a program is made of: orchestrations and activities bound to their code, and what
// [Configure] and [Demo] give.
type Part = coro.Part

// Configure changes the settings that a program begins with. Flags and the environment are read
// after that.
//
//	app.Main(app.Configure(func(c *app.Config) { c.Orchestrator.KeepEnded = 30 * 24 * time.Hour }), …)
func Configure(change func(*Config)) Part { return configure(change) }

type configure func(*Config)

// Pin makes new instances of an orchestration take exactly this version, also when there are newer
// ones: see [orchestration.Registry.Pin].
func Pin(name, version string) Part { return pin{name, version} }

type pin struct{ name, version string }

// RondoPart marks what a program is made of.
func (pin) RondoPart() {}

// PinnedTo tells what is pinned, also to tests.
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
	config         Config
	log            *slog.Logger
	logs           *logs
	orchestrations *orchestration.Registry
	activities     *activity.Registry
	demo           demo
	telemetry      *telemetry.Telemetry
	queues         jobs.Store // of the database, once that is open
	recovered      int        // streams that the NATS server of dev had to recover

	mu      sync.Mutex
	ran     bool
	where   Addresses
	started chan struct{}
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
	// Queues is the address of the queues, "" if they are not served.
	Queues string `json:"queues,omitempty"`
}

// New makes a program of its parts; what they say with [Configure] counts if the config is made
// with [Defaults] of them. The error lists everything that is wrong with them and with the
// settings. Nothing is opened yet.
func New(config Config, parts ...Part) (*App, error) {
	a := &App{config: config, started: make(chan struct{})}
	a.config.openOutput()
	var orchestrations []orchestration.Binding
	var activities []activity.Binding
	var pins []pin
	var errs []error
	for _, p := range parts {
		switch p := p.(type) {
		case orchestration.Binding:
			orchestrations = append(orchestrations, p)
		case activity.Binding:
			activities = append(activities, p)
		case configure: // Defaults has asked it
		case pin:
			pins = append(pins, p)
		case demo:
			a.demo = p
		default:
			errs = append(errs, fmt.Errorf("a program cannot be made of a %T", p))
		}
	}
	var err error
	a.orchestrations, err = orchestration.NewRegistry(orchestrations...)
	errs = append(errs, err)
	for _, p := range pins {
		if err == nil {
			errs = append(errs, a.orchestrations.Pin(p.name, p.version))
		}
	}
	if err = notHere(activities); err == nil {
		a.activities, err = activity.NewRegistry(activities...)
	}
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("the parts of the program: %w", err)
	}
	errs = append(a.config.problems(), a.missing()...)
	if len(errs) > 0 {
		return nil, &SettingsError{Problems: errs}
	}
	a.openLogs()
	return a, nil
}

// missing lists what the program has not, for what it is to do.
func (a *App) missing() (errs []error) {
	orchestrations, activities := a.orchestrations.Names(), a.activities.Names()
	switch c := a.config.Command; {
	case c == Orchestrator && len(orchestrations) == 0:
		errs = append(errs, errors.New(
			"the program has no orchestrations, so there is nothing for an orchestrator to do; pass them to app.Main"))
	case c == Worker && len(activities) == 0:
		errs = append(errs, errors.New(
			"the program has no activities, so there is nothing for a worker to do; pass them to app.Main"))
	case c == Dev && len(orchestrations)+len(activities) == 0:
		errs = append(errs, errors.New("the program has neither orchestrations nor activities; pass them to app.Main"))
	case c == Dev && a.config.Demo && a.demo == nil:
		errs = append(errs, errors.New("--demo: the program has nothing to show; pass app.Demo to app.Main"))
	}
	for _, limits := range []struct {
		name string
		of   []string
	}{{"slots-per-activity", keys(a.config.Worker.SlotsPerActivity)},
		{"rate-per-activity", keys(a.config.Worker.RatePerActivity)}} {
		for _, name := range limits.of {
			if _, ok := a.activities.Lookup(name); !ok {
				errs = append(errs, fmt.Errorf("--%s: the program has no activity %q%s", limits.name, name,
					DidYouMean(name, activities)))
			}
		}
	}
	return errs
}

// Run does what the settings say. For a service it returns when the context has ended and
// everything was put away in order, or when something has failed.
func (a *App) Run(ctx context.Context) error {
	a.mu.Lock()
	again := a.ran
	a.ran = true
	a.mu.Unlock()
	if again {
		return errors.New("the program was run before; make a new one")
	}
	if a.config.Command != Migrate {
		end, err := a.startTelemetry(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	switch a.config.Command {
	case Dev:
		return a.dev(ctx)
	case Orchestrator:
		return a.orchestrator(ctx)
	case Worker:
		return a.worker(ctx)
	case Migrate:
		return a.migrate(ctx)
	}
	return fmt.Errorf("there is no command %q", a.config.Command)
}

// Started is closed when the services are ready for the first time.
func (a *App) Started() <-chan struct{} { return a.started }

// Addresses tells where the program is found, once it has started.
func (a *App) Addresses() Addresses {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.where
}

func (a *App) found(set func(*Addresses)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	set(&a.where)
}

// name is what the program calls itself.
func (a *App) name() string { return cmp.Or(a.config.Program, programName()) }
