package integration_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file is the system that the tests of this package run: a real NATS server and a real
// database, both private to a test, and services that can be stopped or killed at any point.

// patience is how long a test waits for a condition. It is only used up when something is wrong.
const patience = 20 * time.Minute

// soon bounds an action that is to happen at once, on a busy machine. It is shorter than the time
// after which recovery would cause the action anyway.
const soon = 30 * time.Second

// atOnce is how many tests run at once: most of the time they wait for time to pass.
const atOnce = "12"

func TestMain(m *testing.M) {
	if r := os.Getenv(roleVariable); r != "" {
		if err := play(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue &&
		flag.Lookup("test.fuzz").Value.String() == "" {
		if err := f.Value.Set(atOnce); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// system is a broker and a database with services on them.
type system struct {
	t       *testing.T
	dir     string // of the broker
	server  *embedded.Server
	store   history.Store // the test's own connection
	open    func() history.Store
	journal *journal
	code    *orchestration.Registry
	bus     *natsbroker.Bus // the test's own
	config  natsbroker.Config
	pace    int // see newSystemAt

	mu     sync.Mutex
	acked  []check.Acknowledged // the acknowledgements of the broker to the test
	spoilt bool                 // the test has damaged stored data
}

// onEach runs a test on each database that is there. With -short, it runs the test on one of them:
// half of the tests on SQLite, the others on PostgreSQL, the same ones each time.
func onEach(t *testing.T, test func(t *testing.T, s *system), parts ...orchestration.Binding) {
	t.Helper()
	t.Parallel()
	all := databases
	if _, err := pgtest.Found(); err == nil && testing.Short() {
		i := crc32.ChecksumIEEE([]byte(t.Name())) % uint32(len(all))
		all = all[i : i+1]
	}
	for _, db := range all {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			test(t, newSystem(t, db.open(t), parts...))
		})
	}
}

var databases = []struct {
	name string
	open func(t *testing.T) func() history.Store
}{{"sqlite", openSQLite}, {"postgres", openPostgres}}

// wakeStep makes databases exact about wake times.
const wakeStep = 100 * time.Millisecond

// connects is how long PostgreSQL may take to answer a test: the machine may stand still meanwhile.
const connects = 15 * time.Minute

func openSQLite(t *testing.T) func() history.Store { return openObserved(t, nil) }

// openObserved opens a SQLite store that has an observer.
func openObserved(t *testing.T, o history.Observer) func() history.Store {
	path := filepath.Join(t.TempDir(), fileName)
	s, err := sqlite.Open(t.Context(), path,
		sqlite.Options{WakeStep: wakeStep, Sync: sqlite.Checkpoints, Observer: o, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	sqliteFiles.Store(t, path)
	return func() history.Store { return s } // a file has one process, and so one store
}

const fileName = "history.db"

// sqliteFiles has where the file of each test's system is.
var sqliteFiles sync.Map

// emptyOutbox empties the outbox.
func (s *system) emptyOutbox() {
	s.t.Helper()
	entries, err := s.store.LeaseOutbox(s.t.Context(),
		history.Lease{Before: time.Now().Add(time.Minute), Until: time.Now().Add(time.Hour), Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	var keys []history.OutboxKey
	for _, p := range entries {
		keys = append(keys, p.Key)
	}
	if err := s.store.RemoveOutbox(s.t.Context(), keys); err != nil || len(keys) == 0 {
		s.t.Fatalf("%d outbox entries were forgotten (%v)", len(keys), err)
	}
}

// corrupt makes the history of an instance unreadable, behind the back of the store.
func (s *system) corrupt(instance string) {
	s.t.Helper()
	path, ok := sqliteFiles.Load(s.t)
	if !ok {
		s.t.Fatal("only histories on SQLite can be corrupted")
	}
	db, err := sql.Open("sqlite", path.(string))
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	r, err := db.ExecContext(s.t.Context(),
		"UPDATE rondo_history SET data = x'00' WHERE instance = ? AND event = 1", instance)
	if err != nil {
		s.t.Fatal(err)
	}
	if n, err := r.RowsAffected(); n != 1 || err != nil {
		s.t.Fatalf("%d events were corrupted (%v)", n, err)
	}
	s.spoilt = true
}

func openPostgres(t *testing.T) func() history.Store {
	pgtest.Need(t)
	address := pgtest.Database(t)
	return func() history.Store {
		s, err := cockroach.Open(t.Context(), address, cockroach.Options{WakeStep: wakeStep, MaxConns: 4, Log: quiet(),
			ConnectTimeout: connects})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

func newSystem(t *testing.T, open func() history.Store, parts ...orchestration.Binding) *system {
	t.Helper()
	slowtest.Room(t)
	return newSystemAt(t, slowtest.Pace(), open, parts...)
}

// newCalmSystem makes one for tests with much work in which nothing has to be noticed soon.
func newCalmSystem(t *testing.T, open func() history.Store, parts ...orchestration.Binding) *system {
	t.Helper()
	slowtest.Room(t)
	return newSystemAt(t, slowtest.Slowest, open, parts...)
}

// newSystemAt makes one whose services wait pace times as long as is enough on a quick machine with
// little work. A service that gives up too early for its machine repeats its work, and the more it
// repeats, the less the machine keeps up.
func newSystemAt(t *testing.T, pace int, open func() history.Store, parts ...orchestration.Binding) *system {
	t.Helper()
	s := &system{t: t, dir: t.TempDir(), open: open, journal: newJournal(t), pace: pace}
	s.config = natsbroker.Config{Logger: quiet(), Timeout: s.wait(5 * time.Second), InboxAckWait: s.wait(time.Second),
		TaskAckWait: s.wait(2 * time.Second),
		MemberLease: s.wait(time.Second), Partitions: 4}
	s.startBroker()
	t.Cleanup(func() { s.server.Close() })
	s.bus = s.connect()
	s.store = open()
	s.deploy(parts...)
	return s
}

func (s *system) startBroker() {
	s.t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: s.dir, Listen: s.address()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
}

// address is where the broker listens: where it did before, if it was there.
func (s *system) address() string {
	if s.server == nil {
		return "127.0.0.1:0"
	}
	return s.server.URL()[len("nats://"):]
}

func (s *system) connect() *natsbroker.Bus {
	s.t.Helper()
	c := s.config
	c.URLs = s.server.URL()
	return natstest.Connected(s.t, func() (*natsbroker.Bus, error) { return natsbroker.Connect(s.t.Context(), c) })
}

// deploy sets the orchestrations of the orchestrators that are started from now on.
func (s *system) deploy(parts ...orchestration.Binding) {
	s.t.Helper()
	code, err := orchestration.NewRegistry(parts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.code = code
}

// service is an orchestrator that runs.
type service struct {
	*orchestrator.Orchestrator
	s      *system
	broker *probe
	store  *probedStore
	stop   context.CancelFunc
	ended  chan error
	over   bool
}

// hasty are settings with which tests need not wait long.
func (s *system) hasty() orchestrator.Config {
	return orchestrator.Config{
		Logger: quiet(),
		Sweep: orchestrator.Sweep{Every: s.wait(300 * time.Millisecond), OverdueGrace: s.wait(300 * time.Millisecond),
			OutboxAfter: s.wait(time.Second), BeatEvery: s.wait(600 * time.Millisecond)},
		ShutdownTimeout: 30 * time.Second, // many tests want an end in order, also on a slow machine
		Round: round.Config{Patience: s.wait(time.Second), StepPatience: s.wait(time.Second),
			UnknownFor: s.wait(2 * time.Second), HaltedFor: s.wait(time.Second)},
	}
}

// wait scales a duration that is enough on a quick machine.
func (s *system) wait(quick time.Duration) time.Duration { return time.Duration(s.pace) * quick }

// orchestrate starts an orchestrator and waits until it takes messages.
func (s *system) orchestrate(change ...func(*orchestrator.Config)) *service {
	s.t.Helper()
	v := s.prepare(change...)
	v.start()
	return v
}

// prepare makes an orchestrator that does not run yet.
func (s *system) prepare(change ...func(*orchestrator.Config)) *service {
	s.t.Helper()
	c := s.hasty()
	for _, f := range change {
		f(&c)
	}
	v := &service{s: s, broker: &probe{Bus: s.connect(), journal: s.journal},
		store: &probedStore{Store: s.open(), journal: s.journal}}
	v.uses(v.broker, c)
	return v
}

// uses makes an orchestrator that uses a broker, instead of the one that prepare has made.
func (v *service) uses(b orchestrator.Broker, c orchestrator.Config) {
	v.s.t.Helper()
	o, err := orchestrator.New(b, v.store, v.s.code, c)
	if err != nil {
		v.s.t.Fatal(err)
	}
	v.Orchestrator = o
}

func (v *service) start() {
	v.s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	v.stop, v.ended = stop, make(chan error, 1)
	go func() { v.ended <- v.Run(ctx) }()
	v.s.t.Cleanup(func() {
		v.kill()
		_ = v.wait() // it was killed
	})
	if !slowtest.Until(patience, func() bool {
		select {
		case err := <-v.ended:
			v.ended <- err // for wait
			if !v.broker.dead.Load() {
				v.s.t.Fatalf("the orchestrator has ended before it owned a partition: %v", err)
			}
			return true
		default:
			return len(v.Owned()) > 0 || v.broker.dead.Load()
		}
	}) {
		v.s.t.Fatalf("the orchestrator owns no partitions within %v (%v):\n%s", patience, v.Ready(context.Background()),
			slowtest.Goroutines())
	}
}

// end stops it in order.
func (v *service) end() error {
	v.stop()
	return v.wait()
}

func (v *service) wait() error {
	if v.over {
		return nil
	}
	v.over = true
	select {
	case err := <-v.ended:
		return err
	case <-time.After(patience):
		v.s.t.Error("the orchestrator does not end:\n" + slowtest.Goroutines())
		return nil
	}
}

// kill is the death of its process: from now on, nothing that it does has any effect.
func (v *service) kill() {
	v.broker.cut()
	v.store.dead.Store(true)
	v.stop()
}

// ---- What the world does.

// start starts an instance as any NATS client can.
func (s *system) start(name, instance string, input any) {
	s.t.Helper()
	s.say(events.Message{ID: "start-" + instance, Instance: instance,
		Content: &events.Start{Orchestration: name, Input: encode(s.t, input)}})
}

// say publishes messages.
func (s *system) say(messages ...events.Message) {
	s.t.Helper()
	var wires []events.Wire
	for _, m := range messages {
		w, err := events.Encode(s.bus.Prefix(), m)
		if err != nil {
			s.t.Fatal(err)
		}
		wires = append(wires, w)
	}
	if err := s.bus.Publish(s.t.Context(), wires...); err != nil {
		s.t.Fatal(err)
	}
	s.acknowledged(messages...)
}

// acknowledged notes that the broker has stored messages: from now on they must not be lost.
func (s *system) acknowledged(messages ...events.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if p, ok := check.AcknowledgedBy(m, time.Now()); ok {
			s.acked = append(s.acked, p)
		}
	}
}

func encode(t *testing.T, v any) codec.Payload {
	t.Helper()
	p, err := codec.JSON{}.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ---- What the test sees.

// eventually waits until a check passes. Not every fact about a database has a signal, so it polls.
func (s *system) eventually(what string, check func() error) {
	s.t.Helper()
	eventually(s.t, what, check)
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	within(t, patience, what, check)
}

func within(t *testing.T, most time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	if !slowtest.Until(most, func() bool { err = check(); return err == nil }) {
		t.Fatalf("%s: not within %v: %v", what, most, err)
	}
}

// ended waits until an instance has ended.
func (s *system) ended(instance string) history.Info {
	s.t.Helper()
	var info history.Info
	s.eventually("instance "+instance+" ends", func() (err error) {
		if info, err = s.store.Instance(s.t.Context(), instance); err != nil {
			return err
		}
		if !info.Status.Ended() {
			return fmt.Errorf("it is %s", info.Status)
		}
		return nil
	})
	return info
}

// completed waits until an instance has completed, and checks its output.
func (s *system) completed(instance string, output any) {
	s.t.Helper()
	info := s.ended(instance)
	if want := encode(s.t, output); info.Status != round.Completed || string(info.Output) != string(want) {
		s.t.Errorf("instance %s is %s with output %s, error %v; want %s", instance, info.Status, info.Output,
			info.Error, want)
	}
}

// await waits for a signal.
func (s *system) await(signal <-chan struct{}, what string) {
	s.t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		s.t.Fatalf("%s: not within %v:\n%s", what, patience, s.journal)
	}
}

// events reads the history of an execution, 0 for the current one.
func (s *system) events(instance string, execution int64) []events.Event {
	s.t.Helper()
	x, err := history.Export(s.t.Context(), s.store, instance, execution)
	if err != nil {
		s.t.Fatal(err)
	}
	return x.Events
}

// kinds is a history in one word for each event.
func (s *system) kinds(instance string) []events.Kind {
	s.t.Helper()
	var kinds []events.Kind
	for _, e := range s.events(instance, 0) {
		kinds = append(kinds, e.Fact.Kind())
	}
	return kinds
}

func (s *system) wantKinds(instance string, want ...events.Kind) {
	s.t.Helper()
	if got := s.kinds(instance); !slices.Equal(got, want) {
		s.t.Errorf("the history of %s is\n  %v\nwant\n  %v", instance, got, want)
	}
}

// token is the word for an event of an instance's first execution in the subjects of work and
// timers.
func (s *system) token(instance string, event int) string {
	s.t.Helper()
	return fmt.Sprintf("1-%d-%s", event, s.events(instance, 0)[0].Fact.(*events.Started).Incarnation)
}

// reaches waits until the current history of an instance has an event of a kind.
func (s *system) reaches(instance string, kind events.Kind) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("instance %s has %s", instance, kind), func() error {
		x, err := history.Export(s.t.Context(), s.store, instance, 0)
		if err != nil {
			return err
		}
		for _, e := range x.Events {
			if e.Fact.Kind() == kind {
				return nil
			}
		}
		return fmt.Errorf("it has %d events, none of that kind", len(x.Events))
	})
}

// settled waits until nothing is left in the inbox, and then checks everything.
func (s *system) settled() {
	s.t.Helper()
	s.settledWithin(patience)
}

func (s *system) settledWithin(most time.Duration) {
	s.t.Helper()
	within(s.t, most, "the inbox is empty", func() error {
		p, err := s.bus.Partitions(s.t.Context())
		if err != nil {
			return err
		}
		for _, i := range p.All() {
			b, err := s.bus.Backlog(s.t.Context(), i)
			if err != nil {
				return err
			}
			if b.Waiting+b.Held > 0 {
				return fmt.Errorf("partition %d has %d messages waiting and %d held", i, b.Waiting, b.Held)
			}
		}
		return nil
	})
	s.check()
}

// check proves that histories and stores agree, and that nothing was lost.
func (s *system) check() {
	s.t.Helper()
	if s.spoilt {
		return
	}
	r, err := check.System(s.t.Context(), s.store,
		check.Options{Broker: s.bus, Dead: s.bus, Prefix: s.bus.Prefix(), Acknowledgements: s.acks()})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		s.t.Errorf("checking %d instances and %d acknowledgements has found:\n%v", r.Instances, r.Acknowledgements, err)
	}
}

// quiet drops the logs of services, unless RONDO_TEST_LOG is set.
func quiet() *slog.Logger {
	if os.Getenv("RONDO_TEST_LOG") != "" {
		return slog.Default()
	}
	return slog.New(slog.DiscardHandler)
}

var (
	rootsOnly = history.Filter{RootsOnly: true}
	running   = history.Filter{Statuses: []round.Status{round.Running}}
)

// loseBroker stops the broker, deletes everything that it had, and starts it again, empty.
func (s *system) loseBroker() {
	s.t.Helper()
	s.server.Close()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatal(err)
	}
	s.startBroker()
	s.bus = s.connect()
	s.mu.Lock()
	s.acked = nil // messages that no service had processed are lost with the broker
	s.mu.Unlock()
}

var force = history.Deletion{Force: true}

// employ runs a worker of some activities.
func (s *system) employ(parts []activity.Binding, change ...func(*worker.Config)) (kill func()) {
	s.t.Helper()
	code, err := activity.NewRegistry(parts...)
	if err != nil {
		s.t.Fatal(err)
	}
	c := worker.Config{Logger: quiet(), ShutdownTimeout: time.Second, CancelGrace: time.Second}
	for _, f := range change {
		f(&c)
	}
	b := s.connect()
	w, err := worker.New(b, code, c)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var once sync.Once
	kill = func() {
		once.Do(func() {
			b.Close()
			stop()
			<-ended
		})
	}
	s.t.Cleanup(func() {
		once.Do(func() {
			stop()
			if err := <-ended; err != nil {
				s.t.Errorf("the worker: %v", err)
			}
		})
	})
	return kill
}

// labour runs a worker of all activities of the mixed work, and returns how to kill it.
func (s *system) labour(change ...func(*worker.Config)) (kill func()) {
	s.t.Helper()
	return s.employ(works, change...)
}
