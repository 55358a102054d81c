package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/timeline"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/outbox"
)

// AddressFile is the file in the directory of dev that says where it is found while it runs.
const AddressFile = "dev.json"

// devFile is what is in it.
type devFile struct {
	Addresses
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// System is a running system, as [Demo] sees it.
type System struct {
	// Client starts instances, talks to them, and tells what has become of them.
	Client *client.Client
	Addresses
	// Print prints a line for people.
	Print func(format string, args ...any)
}

// NewID makes an ID that begins with a prefix, and is short enough to be typed.
func (s System) NewID(prefix string) string {
	id := s.Client.NewID()
	return prefix + "-" + id[max(0, len(id)-8):]
}

// PrintHistory prints the history of an instance's current execution, one line an event.
func (s System) PrintHistory(ctx context.Context, instance string) error {
	x, err := s.Client.History(ctx, instance, 0)
	if err != nil {
		return err
	}
	lines := timeline.New(timeline.Options{})
	for _, e := range x.Events {
		s.Print("%s", lines.Line(e))
	}
	return nil
}

// dev runs everything in this process. What is in the directory stays there, so the next start goes
// on where this one ends.
func (a *App) dev(ctx context.Context) (err error) {
	dir := a.config.Dir
	if err := writable(dir); err != nil {
		return fmt.Errorf("the directory %s: %w; choose another one with --dir", dir, err)
	}
	q, err := a.queuesConfig()
	if err != nil {
		return err
	}
	// The database comes first: its lock keeps a second process out of the whole directory.
	a.config.Wait = 0
	store, err := a.openStore(ctx)
	if err != nil {
		return devProblem(dir, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	server, err := a.startNATS()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	a.config.NATS.InProcess, a.config.NATS.Setup = server, natsbroker.Make
	a.config.NATS.URLs, a.config.NATS.Context = "", ""
	a.found(func(w *Addresses) { w.NATS = server.URL() })
	a.recovered = server.Recovered()
	b, err := a.connectNATS(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	h, err := a.openHealth()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	a.sweep(ctx, b, store)
	all, err := a.devServices(b, store)
	if err != nil {
		return err
	}
	served, err := a.newQueues(q)
	if err != nil {
		return err
	}
	forget, err := a.writeAddresses()
	if err != nil {
		return err
	}
	defer forget()
	return a.serve(ctx, h, b, append(append(all, served...), a.host(b, store))...)
}

// sweep publishes at once what a process before has promised and not published, which is dead:
// nobody else can have the directory.
func (a *App) sweep(ctx context.Context, b *natsbroker.Bus, store history.Store) {
	s := outbox.Sweeper{Broker: b, Store: store, Prefix: b.Prefix(), Hold: time.Second, Log: a.log}
	if _, err := s.Sweep(ctx); err != nil {
		a.log.Warn("what was promised before could not be published; the orchestrator tries again", "error", err)
	}
}

// devServices are those that the program has code for.
func (a *App) devServices(b *natsbroker.Bus, store history.Store) (all []service, err error) {
	if len(a.orchestrations.Names()) > 0 {
		if a.config.Orchestrator.ID == "" {
			a.config.Orchestrator.ID = "dev" // the next one takes its place at once, also when this one is killed
		}
		all, err = a.newOrchestrator(b, store)
		if err != nil {
			return nil, err
		}
	}
	if len(a.activities.Names()) > 0 {
		s, err := a.newWorker(b)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// host is who sits beside the services in dev: it says where everything is, and shows the
// demonstration.
func (a *App) host(b *natsbroker.Bus, store history.Store) service {
	fine := func() error { return nil }
	return service{
		name: "dev", live: fine, ready: func(context.Context) error { return nil },
		run: func(ctx context.Context) error {
			select {
			case <-a.started:
			case <-ctx.Done():
				return nil
			}
			a.welcome()
			ends := &ends{a: a, held: a.config.Demo}
			stop, err := query.Listen(ctx, b, broker.Any, ends.tell, query.TopicEnded)
			if err != nil {
				return fmt.Errorf("listen for what ends: %w", err)
			}
			defer stop()
			if a.config.Demo {
				if err := a.show(ctx, b, store); err != nil && ctx.Err() == nil {
					return fmt.Errorf("the demonstration: %w", err)
				}
				ends.release()
			}
			<-ctx.Done()
			return nil
		},
	}
}

// ends tells how instances end. While the demonstration prints, that waits, so that no line comes
// into the middle of it.
type ends struct {
	a *App

	mu      sync.Mutex
	held    bool
	waiting []query.Notice
}

func (e *ends) tell(n query.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held {
		e.waiting = append(e.waiting, n)
		return
	}
	e.a.tellEnd(n)
}

func (e *ends) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.waiting {
		e.a.tellEnd(n)
	}
	e.held, e.waiting = false, nil
}

// tellEnd says how an instance has ended, for whoever has started it by hand.
func (a *App) tellEnd(n query.Notice) {
	e, ok := n.Ended()
	switch {
	case !ok:
	case e.Large:
		a.print("%s: %s is %s", e.Instance, e.Name, e.Status)
	case e.Error != nil:
		a.print("%s: %s is %s: %v", e.Instance, e.Name, e.Status, e.Error)
	default:
		a.print("%s: %s is %s with %s", e.Instance, e.Name, e.Status, e.Output)
	}
}

// show shows what the program can do.
func (a *App) show(ctx context.Context, b *natsbroker.Bus, store history.Store) error {
	c := client.New(b, client.Options{Store: store, Codec: a.config.Orchestrator.Round.Codec, Name: a.name()})
	err := a.demo(ctx, System{Client: c, Addresses: a.Addresses(), Print: a.print})
	return errors.Join(err, c.Close())
}

func (a *App) print(format string, args ...any) {
	fmt.Fprintf(a.config.stdout(), format+"\n", args...)
}

// welcome says where everything is, and how to begin.
func (a *App) welcome() {
	at := a.Addresses()
	a.print("%s runs: %s", a.name(), a.runs())
	if n := a.recovered; n > 0 {
		a.print("The process before was killed; NATS has recovered %d of its streams, and instances resume.", n)
	}
	a.print("")
	a.print("  NATS       %s, streams in %s", at.NATS, filepath.Join(a.config.Dir, natsDir))
	a.print("  database   %s", at.Database)
	if at.Health != "" {
		a.print("  health     %s/readyz", at.Health)
	}
	if at.Queues != "" {
		a.print("  queues     %s", at.Queues)
	}
	names := a.orchestrations.Names()
	switch {
	case a.config.Try != nil:
		a.print("")
		a.print("Try, in another terminal:")
		a.print("")
		for _, command := range a.config.Try(a.config.Dir) {
			a.print("  %s", command)
		}
	case len(names) > 0:
		a.tryStart(names[0], at)
	}
	if at.Queues != "" {
		a.tryQueues(at.Queues)
	}
	a.print("")
	a.print("Ctrl-C ends it. Everything is kept in %s, and the next start goes on from there.", a.config.Dir)
	a.print("")
}

// tryStart says how to start an instance, with an input that the orchestration takes.
func (a *App) tryStart(name string, at Addresses) {
	input := "'<JSON>'"
	if example := a.orchestrations.ExampleInput(name); len(example) > 0 {
		input = quoted(string(example))
	}
	dir, err := filepath.Abs(a.config.Dir)
	if err != nil {
		dir = a.config.Dir
	}
	server := ""
	if at.NATS != defaultNATS {
		server = "--server " + at.NATS + " "
	}
	a.print("")
	a.print("Start an instance in another terminal, with the command rondo or any NATS client. " +
		"How it ends is told here.")
	a.print("")
	a.print("  rondo start %s %s --id my-1 --dir %s", quoted(name), input, quoted(dir))
	a.print("  nats %spub %s.start.%s.my-2 %s", server, at.Prefix, quoted(subjectWord(name)), input)
}

// quoted writes a word as a shell takes it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

const natsDir = "nats"

// startNATS starts the server.
func (a *App) startNATS() (*embedded.Server, error) {
	address := a.config.NATSListen
	if address == "" {
		address = natsListenDefault
		if !free(address) {
			address = "127.0.0.1:0"
			a.log.Warn("the usual address of NATS is taken; the server listens at another one", "usual",
				natsListenDefault)
		}
	} else if !free(address) {
		return nil, fmt.Errorf(
			"the NATS server cannot listen at %s, because somebody does already: choose another address with "+
				"--nats-listen", address)
	}
	s, err := embedded.Start(embedded.Options{Dir: filepath.Join(a.config.Dir, natsDir), Listen: address,
		Logger: a.log})
	if err != nil {
		return nil, fmt.Errorf("at %s, in %s: %w", address, filepath.Join(a.config.Dir, natsDir), err)
	}
	return s, nil
}

// free tells whether nobody listens at an address.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
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

// devProblem says what to do when another process has the directory.
func devProblem(dir string, err error) error {
	var locked *sqlite.LockedError
	if errors.As(err, &locked) {
		who := "another process"
		if locked.PID != 0 {
			who = fmt.Sprintf("process %d", locked.PID)
		}
		return devLocked{fmt.Sprintf("%s is at work in %s: end it, or choose another directory with --dir", who, dir),
			err}
	}
	return err
}

// devLocked says that somebody else has the directory.
type devLocked struct {
	text string
	err  error
}

func (e devLocked) Error() string { return e.text }
func (e devLocked) Unwrap() error { return e.err }

// writeAddresses writes down where everything is, for commands that come later. The file goes when
// dev ends.
func (a *App) writeAddresses() (forget func(), err error) {
	path := filepath.Join(a.config.Dir, AddressFile)
	data, err := json.MarshalIndent(devFile{a.Addresses(), os.Getpid(), time.Now().UTC()}, "", "  ")
	if err != nil {
		return nil, err
	}
	// By another name first, so that nobody reads half of it.
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil // if it stays, its pid tells that nobody is there
}

// ErrNotRunning says that a directory is that of a dev which is not running.
var ErrNotRunning = errors.New("it is not running")

// ReadAddresses reads where a dev that runs in a directory is found. The error wraps
// [fs.ErrNotExist] if there is no such directory, and [ErrNotRunning] if there is one, and nobody
// at work in it.
func ReadAddresses(dir string) (Addresses, error) {
	if _, err := os.Stat(dir); err != nil {
		return Addresses{}, fmt.Errorf("the dev of %s: %w", dir, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, AddressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Addresses{}, fmt.Errorf("the dev of %s: %w", dir, ErrNotRunning)
	}
	if err != nil {
		return Addresses{}, fmt.Errorf("the dev of %s: %w", dir, err)
	}
	var f devFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Addresses{}, fmt.Errorf("%s: %w", filepath.Join(dir, AddressFile), err)
	}
	if p, err := os.FindProcess(f.PID); err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return Addresses{}, fmt.Errorf("the dev of %s: %w: process %d is gone", dir, ErrNotRunning, f.PID)
	}
	return f.Addresses, nil
}

// subjectWord is a name as a shell takes it in a subject.
func subjectWord(name string) string {
	return events.EncodeToken(name)
}
