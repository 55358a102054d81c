package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/timeline"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/outbox"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// System is a running system, as [Demo] sees it.
type System struct {
	// Client starts, signals and queries instances.
	Client *client.Client
	Addresses
	// Print prints a line for the developer.
	Print func(format string, args ...any)
}

// NewID makes an ID that begins with a prefix, and is short enough to be typed.
func (s System) NewID(prefix string) string {
	id := s.Client.NewID()
	return prefix + "-" + id[max(0, len(id)-8):]
}

// PrintHistory prints the history of an instance's current execution, one line an event.
func (s System) PrintHistory(ctx context.Context, instance string) error {
	x, err := s.Client.Instances().History(ctx, instance, 0)
	if err != nil {
		return err
	}
	lines := timeline.New(timeline.Options{})
	for _, e := range x.Events {
		s.Print("%s", lines.Line(e))
	}
	return nil
}

// dev runs everything in this process. The directory keeps its data, so the next start resumes it.
func (a *App) dev(ctx context.Context) (err error) {
	dir := a.config.Dir
	if err := writable(dir); err != nil {
		return fmt.Errorf("the directory %s: %w; choose another one with --dir", dir, err)
	}
	q, err := openQueues(&a.config, a.telemetry, a.log)
	if err != nil {
		return err
	}
	d := a.dialer()
	d.timeout = 0
	// The database comes first: its lock keeps a second process out of the whole directory.
	store, err := d.openStore(ctx, a.config.database())
	if err != nil {
		return devProblem(dir, a.config.Database.URL, err)
	}
	defer a.closeInto(&err, store.Close)
	server, err := startNATS(filepath.Join(dir, natsDir), a.config.NATSListen, a.log)
	if err != nil {
		return err
	}
	defer a.closeInto(&err, server.Close)
	c := brokerConfig(&a.config)
	c.InProcess, c.Setup, c.URLs, c.Context = server, natsbroker.Make, "", ""
	a.places.set(func(w *Addresses) { w.NATS = server.URL() })
	b, err := d.connectNATS(ctx, c)
	if err != nil {
		return err
	}
	defer a.closeInto(&err, b.Close)
	h, err := a.openHealth()
	if err != nil {
		return err
	}
	defer a.closeInto(&err, h.close)
	sweep(ctx, b, store.Store, a.log)
	all, queues, err := a.devServices(b, store, q)
	if err != nil {
		return err
	}
	served, err := a.newQueues(q, queues)
	if err != nil {
		return err
	}
	forget, err := devdir.Write(dir, devdir.Addresses(a.Addresses()))
	if err != nil {
		return err
	}
	defer forget()
	files, err := os.Open(filepath.Join(dir, natsDir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	all = append(append(all, served...), a.host(b, store.Store, server.Recovered()), a.keepFiles(files))
	return a.serve(ctx, h, b, all)
}

// closeInto closes what dev has opened, and joins the error to that of dev.
func (a *App) closeInto(err *error, end func() error) {
	a.ending.Set()
	*err = errors.Join(*err, end())
}

// filesEvery is how often dev looks whether its files are still where the next start finds them.
const filesEvery = time.Second

// keepFiles returns a service that fails once the directory of dev was removed, renamed or
// replaced, since the files that are still open can never be found again. Each of these changes the
// directory of NATS in it, which is open so that no other one gets its inode.
func (a *App) keepFiles(open *os.File) service {
	return service{
		name: "dev", live: alive, ready: readyAnyway,
		run: func(ctx context.Context) error {
			made, err := open.Stat()
			if err != nil {
				return err
			}
			tick := time.NewTicker(filesEvery)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil
				}
				now, err := os.Stat(open.Name())
				if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(made, now) {
					return fmt.Errorf("the directory %s was removed, renamed or replaced while dev was running, and "+
						"dev can no longer store its instances there; start dev again", a.config.Dir)
				}
			}
		},
	}
}

// sweep publishes at once the outbox entries of an earlier process, which is dead: no other process
// can have the directory. It publishes nothing if the database does not belong to NATS.
func sweep(ctx context.Context, b *natsbroker.Bus, store history.Store, log *slog.Logger) {
	if err := identity.Check(ctx, store, b); err != nil {
		log.Warn("outbox entries are not published before the orchestrator starts", "error", err)
		return
	}
	s := outbox.Sweeper{Broker: b, Store: store, Prefix: b.Prefix(), Hold: time.Second, Log: log}
	if _, err := s.Sweep(ctx); err != nil {
		log.Warn("outbox entries could not be published; the orchestrator tries again", "error", err)
	}
}

// devServices are those that the program has code for. It returns the queues of the database as
// they are to be served, too.
func (a *App) devServices(b *natsbroker.Bus, store opened, q *jobserver.Config) (all group, queues jobs.Store,
	err error) {
	queues = store.Queues()
	if len(a.code.orchestrations.Names()) > 0 {
		if a.config.Orchestrator.ID == "" {
			a.config.Orchestrator.ID = "dev" // the next one takes its place at once, also when this one is killed
		}
		all, queues, err = a.newOrchestrator(b, store, q)
		if err != nil {
			return nil, nil, err
		}
	}
	if len(a.code.activities.Names()) > 0 {
		s, err := a.newWorker(b)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, s)
	}
	return all, queues, nil
}

// host runs beside the services in dev: it prints their addresses, and shows the demonstration.
func (a *App) host(b *natsbroker.Bus, store history.Store, recovered int) service {
	c := &console{out: a.config.Stdout, name: a.name(), dir: a.config.Dir, code: a.code, try: a.config.Try,
		token: a.config.JobQueues.Access != ""}
	return service{
		name: "dev", live: alive, ready: readyAnyway,
		run: func(ctx context.Context) error {
			select {
			case <-a.started:
			case <-ctx.Done():
				return nil
			}
			c.welcome(a.Addresses(), recovered)
			ends := &ends{tellEnd: c.tellEnd, held: a.config.Demo}
			stop, err := query.Listen(ctx, b, broker.Any, ends.note, query.TopicEnded)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil // the program ends while it starts
			case err != nil:
				return fmt.Errorf("listen for what ends: %w", err)
			}
			defer stop()
			if a.config.Demo {
				if err := a.show(ctx, b, store, c.print); err != nil && ctx.Err() == nil {
					return fmt.Errorf("the demonstration: %w", err)
				}
				ends.release()
			}
			<-ctx.Done()
			return nil
		},
	}
}

// show shows what the program can do.
func (a *App) show(ctx context.Context, b *natsbroker.Bus, store history.Store, print func(string, ...any)) error {
	c := busclient.New[*client.Client](b,
		busclient.Options{Store: store, Codec: a.config.Codec, Name: a.name()})
	err := a.code.demo(ctx, System{Client: c, Addresses: a.Addresses(), Print: print})
	return errors.Join(err, c.Close())
}

const natsDir = "nats"

// startNATS starts a server with its data in a directory. It listens at the usual address, or at
// another one if that is taken, unless an address is configured.
func startNATS(dir, address string, log *slog.Logger) (*embedded.Server, error) {
	if address == "" {
		address = settings.NATSListen
		if listenable(settings.NATSListen) != nil {
			address = "127.0.0.1:0"
			log.Warn("the usual address of NATS is taken; the server listens at another one", "usual",
				settings.NATSListen)
		}
	} else if err := listenable(address); err != nil {
		return nil, fmt.Errorf("start the NATS server: %w; choose another address with --nats-listen", err)
	}
	s, err := embedded.Start(embedded.Options{Dir: dir, Listen: address, Logger: log, Heal: 2 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("at %s, in %s: %w", address, dir, err)
	}
	return s, nil
}

// listenable returns the error of listening at an address, such as that it is in use.
func listenable(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// writable makes the directory if need be, and tries whether files can be written there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "try-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// devProblem says what to do when another process has the directory, or the configured database.
func devProblem(dir, database string, err error) error {
	var locked *sqlite.LockedError
	if errors.As(err, &locked) {
		who := "another process"
		if locked.PID != 0 {
			who = fmt.Sprintf("process %d", locked.PID)
		}
		if database != "" {
			return devError{fmt.Sprintf("%s uses the database %s: end it, or choose another database with --database",
				who, locked.Path), err}
		}
		return devError{fmt.Sprintf("%s is at work in %s: end it, or choose another directory with --dir", who, dir),
			err}
	}
	return err
}

// devError replaces the text of an error by one that says what to do about the directory or the
// database.
type devError struct {
	text string
	err  error
}

func (e devError) Error() string { return e.text }
func (e devError) Unwrap() error { return e.err }

// shellWord quotes a path for a shell, if need be.
func shellWord(path string) string {
	if !strings.ContainsFunc(path, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("/._-+:@%", c)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
