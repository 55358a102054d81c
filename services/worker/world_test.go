package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	// patience is how long a test waits for an event that must happen.
	patience    = 5 * time.Minute
	incarnation = "9f1c5a0b7e3d2648"
)

// world is a broker with its clients; the test itself is the orchestrator.
type world struct {
	t      testing.TB
	server *embedded.Server  // nil: the broker is simulated
	sim    *brokersim.Broker // then
	open   func() bus        // makes another connection
	bus    bus
	wait   time.Duration
	lease  time.Duration       // of sessions
	came   chan events.Message // what workers have published
	log    *logs
}

// bus is a connection to NATS or to a simulated broker.
type bus interface {
	worker.Broker
	broker.Inbox
	Close() error
}

// short is an ack wait and a lease for tests in which a worker dies: the test waits until it has
// expired. On a slow machine it may expire although the worker runs.
const short = 1500 * time.Millisecond

// newHastyWorld starts a broker that soon redelivers the tasks of a worker that dies. A test must
// allow a redelivery to a worker that runs, but is late.
func newHastyWorld(t testing.TB) *world { return worldOf(t, short, short) }

// newPatientWorld starts one in which no ack wait and no session expires while a test waits. So a
// slow machine causes no redelivery.
func newPatientWorld(t testing.TB) *world { return worldOf(t, 2*patience, 2*patience) }

// worldOf starts NATS with an ack wait of tasks, and a lease of sessions.
func worldOf(t testing.TB, wait, lease time.Duration) *world {
	t.Helper()
	w := newWorld(t, wait, lease)
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	t.Cleanup(func() { _ = server.Close() })
	w.begins(func() bus { return w.connect() })
	return w
}

// inVirtualTime runs a test with a simulated broker and virtual time, which passes only while all
// goroutines wait. So each moment is exact, however slow the machine is.
func inVirtualTime(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 30*time.Second, 30*time.Second)
		b := brokersim.NewBroker(brokersim.Options{Partitions: 2, InboxAckWait: w.wait, TaskAckWait: w.wait,
			MemberLease: w.lease, SessionLease: w.lease})
		w.sim = b
		w.begins(func() bus {
			c := brokersim.Connect(b, nil)
			t.Cleanup(func() { _ = c.Close() })
			return c
		})
		test(t, w)
	})
}

func newWorld(t testing.TB, wait, lease time.Duration) *world {
	return &world{t: t, wait: wait, lease: lease, came: make(chan events.Message, 100_000), log: &logs{t: t}}
}

// begins connects the test, which receives the messages of the workers until it ends.
func (w *world) begins(open func() bus) {
	w.t.Helper()
	w.open = open
	w.bus = open()
	ctx, cancel := context.WithCancel(context.Background())
	var receivers sync.WaitGroup
	partitions, err := w.bus.Partitions(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range partitions.All() {
		receivers.Go(func() { w.receiveFrom(ctx, p) })
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the log of the workers and of NATS's client:\n%s", w.log)
		}
		cancel()
		receivers.Wait()
	})
}

// receiveFrom receives from a partition until the context ends, as an orchestrator does.
func (w *world) receiveFrom(ctx context.Context, partition int) {
	for ctx.Err() == nil {
		err := w.bus.Receive(ctx, partition, w.receive)
		if err == nil {
			continue
		}
		_, _ = fmt.Fprintf(w.log, "receiving from partition %d has failed: %v\n", partition, err)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// connect makes another connection to NATS.
func (w *world) connect() *natsbroker.Bus {
	w.t.Helper()
	b, err := natsbroker.Connect(context.Background(), natsbroker.Config{
		InProcess: w.server, Memory: true, Partitions: 2, TaskAckWait: w.wait, SessionLease: w.lease, Timeout: patience,
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

func (w *world) receive(d broker.Delivery) {
	d.Hold.Ack()
	m, err := events.Decode(w.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		w.t.Errorf("a worker has published what cannot be read: %v", err)
		return
	}
	w.came <- m
}

// send publishes a task, as the orchestrator would.
func (w *world) send(instance string, work events.Task) events.Ref {
	w.t.Helper()
	w.publish(w.message(instance, &work))
	return work.Ref
}

func (w *world) message(instance string, work *events.Task) events.Message {
	if work.Ref == (events.Ref{}) {
		work.Ref = events.Ref{Incarnation: incarnation, Execution: 1, Event: 2}
	}
	work.Attempt = max(work.Attempt, 1)
	work.Orchestration, work.Version = "test", "1.0.0"
	work.IdempotencyKey = events.IdempotencyKey(instance, work.Ref.Incarnation, 1, 2)
	return events.Message{ID: events.MessageID(events.VerbTask, instance, work.Ref), Instance: instance, Content: work}
}

func (w *world) publish(messages ...events.Message) {
	w.t.Helper()
	wires := make([]events.Wire, len(messages))
	for i, m := range messages {
		wire, err := events.Encode(w.bus.Prefix(), m)
		if err != nil {
			w.t.Fatal(err)
		}
		wires[i] = wire
	}
	if err := w.bus.Publish(context.Background(), wires...); err != nil {
		w.t.Fatal(err)
	}
}

// withdraw withdraws a task.
func (w *world) withdraw(instance string, work events.Task) {
	w.t.Helper()
	w.message(instance, &work)
	w.publish(events.Message{Instance: instance,
		Content: &events.WithdrawTask{Ref: work.Ref, Tag: work.Tag, Activity: work.Activity}})
}

// next waits for the next message of a worker.
func (w *world) next() events.Message {
	w.t.Helper()
	select {
	case m := <-w.came:
		return m
	case <-time.After(patience):
		w.t.Fatalf("nothing came within %v; %s", patience, w.standing())
		return events.Message{}
	}
}

// standing tells which messages the broker has.
func (w *world) standing() string {
	var all []string
	queues, err := w.bus.ListTaskQueues(context.Background())
	for _, q := range queues {
		b, err := w.bus.TaskBacklog(context.Background(), q)
		all = append(all, fmt.Sprintf("tasks of %q: %+v %v", q.Activity, b, err))
	}
	partitions, failed := w.bus.Partitions(context.Background())
	for _, p := range partitions.All() {
		b, err := w.bus.Backlog(context.Background(), p)
		all = append(all, fmt.Sprintf("partition %d: %+v %v", p, b, err))
	}
	return fmt.Sprint(strings.Join(all, "; "), errors.Join(err, failed))
}

// done waits for a result, and returns it.
func (w *world) done() (instance, result string) {
	w.t.Helper()
	m := w.next()
	c, ok := m.Content.(*events.TaskDone)
	if !ok {
		w.t.Fatalf("%T came: %s", m.Content, describe(m))
	}
	return m.Instance, c.Result.String()
}

// failed waits for a failure, and returns it.
func (w *world) failed() (string, *events.TaskFailed) {
	w.t.Helper()
	m := w.next()
	c, ok := m.Content.(*events.TaskFailed)
	if !ok {
		w.t.Fatalf("%T came: %s", m.Content, describe(m))
	}
	return m.Instance, c
}

func describe(m events.Message) string {
	switch c := m.Content.(type) {
	case *events.TaskFailed:
		return fmt.Sprintf("instance %q: %s: %v", m.Instance, c.Error.Kind, c.Error)
	case *events.TaskDone:
		return fmt.Sprintf("instance %q: %s", m.Instance, c.Result)
	default:
	}
	return fmt.Sprintf("instance %q", m.Instance)
}

// nothing checks that no worker publishes a message for a while.
func (w *world) nothing(for_ time.Duration) {
	w.t.Helper()
	select {
	case m := <-w.came:
		w.t.Fatalf("%T came: %s", m.Content, describe(m))
	case <-time.After(for_):
	}
}

// settled waits until a task queue is empty: all tasks are acknowledged or withdrawn.
func (w *world) settled(q broker.TaskQueueName) {
	w.t.Helper()
	w.until("the queue is empty", func() bool {
		b, err := w.bus.TaskBacklog(context.Background(), q)
		if err != nil {
			w.t.Fatal(err)
		}
		return b.Waiting+b.Held == 0
	})
}

// until waits for a condition that must be polled.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	if !slowtest.Until(patience, is) {
		w.t.Fatalf("not so within %v: %s", patience, what)
	}
}

// running is a running worker.
type running struct {
	*worker.Worker
	bus  bus
	stop context.CancelFunc
	err  chan error
}

// start runs a worker with a connection of its own until the test ends.
func (w *world) start(c worker.Config, bindings ...activity.Binding) *running {
	w.t.Helper()
	return w.startOn(w.open(), c, bindings...)
}

func (w *world) startOn(b bus, c worker.Config, bindings ...activity.Binding) *running {
	w.t.Helper()
	r := &running{Worker: w.make(b, c, bindings...), bus: b, err: make(chan error, 1)}
	w.runs(r)
	return r
}

// runs runs a worker until the test ends, and returns when it takes tasks.
func (w *world) runs(r *running) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.err <- r.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		_ = r.ended(w.t)
	})
	w.until("the worker is ready", func() bool { return r.Ready() == nil })
}

// [letter] has the headers of a dead letter.
type letter struct{ reason, detail, subject string }

// deadLetters returns the dead letters from now on.
func (w *world) deadLetters() <-chan letter {
	w.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(w.server), nats.Timeout(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	came := make(chan letter, 100)
	_, err = nc.Subscribe("rondo.dead.>", func(m *nats.Msg) {
		came <- letter{m.Header.Get(natsbroker.HeaderDeadReason), m.Header.Get(natsbroker.HeaderDeadDetail),
			m.Header.Get(natsbroker.HeaderDeadSubject)}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return came
}

// make makes a worker that ends quickly.
func (w *world) make(b worker.Broker, c worker.Config, bindings ...activity.Binding) *worker.Worker {
	w.t.Helper()
	code, err := activity.NewRegistry(bindings...)
	if err != nil {
		w.t.Fatal(err)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(w.log, nil))
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = 100 * time.Millisecond
	}
	if c.CancelGrace == 0 {
		c.CancelGrace = 100 * time.Millisecond
	}
	c.SessionLease = w.lease
	made, err := worker.New(b, code, c)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// ended waits until a worker has ended, and returns its error.
func (r *running) ended(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.err:
		r.err <- err
		return err
	case <-time.After(patience):
		t.Errorf("the worker does not end")
		return nil
	}
}

// drain shuts a worker down, and waits until it has ended.
func (r *running) drain(t testing.TB) error {
	t.Helper()
	r.stop()
	return r.ended(t)
}

// kill breaks a worker's connection, as if the process had died.
func (r *running) kill() { _ = r.bus.Close() }

// logs keeps the log, and shows it when the test fails.
type logs struct {
	t    testing.TB
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func receive[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}
