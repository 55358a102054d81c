package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

const longEnough = 15 * time.Minute // how long a test waits for an event that must happen

// directRoutes is an orchestrator that publishes tasks and receives their results, and a worker
// that executes them.
type directRoutes struct {
	t            *testing.T
	server       *embedded.Server
	orchestrator *natsbroker.Bus
	worker       *natsbroker.Bus
	came         chan broker.Delivery
	stop         func() // receiving
}

func newWays(t *testing.T, config natsbroker.Config) *directRoutes {
	t.Helper()
	s := natstest.Start(t)
	config.Partitions = 4
	w := &directRoutes{t: t, server: s, orchestrator: natstest.Connect(t, s, config), worker: natstest.Connect(t, s,
		config)}
	w.worker.WaitDirect(longEnough)
	w.receive(nil)
	return w
}

// newWaysOverLine connects the worker over a line that can be broken.
func newWaysOverLine(t *testing.T) (*directRoutes, *natstest.Line) {
	t.Helper()
	server := natstest.Start(t)
	line := natstest.NewLine(t, server)
	w := &directRoutes{t: t, server: server, orchestrator: natstest.Connect(t, server,
		natsbroker.Config{Partitions: 4}),
		worker: natstest.Connect(t, line, natsbroker.Config{})}
	w.receive(nil)
	return w, line
}

// receive receives from all partitions. Each delivery waits for the gate, if there is one.
func (w *directRoutes) receive(gate <-chan struct{}) {
	w.t.Helper()
	w.orchestrator.WaitDirect(longEnough) // it answers for as long
	ps, err := w.orchestrator.Partitions(w.t.Context())
	w.must(err)
	ctx, stop := context.WithCancel(w.t.Context())
	w.came = make(chan broker.Delivery, 10_000)
	came := w.came
	var all sync.WaitGroup
	for _, p := range ps.All() {
		all.Go(func() {
			_ = w.orchestrator.Receive(ctx, p, func(d broker.Delivery) {
				if gate != nil {
					<-gate
				}
				select { // the test may have ended, with messages that are redelivered
				case came <- d:
				case <-ctx.Done():
				}
			})
		})
	}
	w.stop = func() { stop(); all.Wait() }
	natstest.Eventually(w.t, "results may come by direct delivery, from all partitions", func() bool {
		return w.orchestrator.Offered() == 4
	})
}

func (w *directRoutes) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// way returns the subject for the results of a task that is published now, as the worker sees it.
func (w *directRoutes) way(instance string) string {
	w.t.Helper()
	w.must(w.orchestrator.Publish(w.t.Context(), events.Wire{Subject: "rondo.task._.a.1-2." + instance}))
	var q broker.TaskQueue
	natstest.Eventually(w.t, "there is the queue, which the orchestrator makes", func() (is bool) {
		var err error
		q, err = w.worker.OpenTaskQueue(w.t.Context(), broker.TaskQueueName{Activity: "a"})
		return err == nil
	})
	var back []string
	n, err := q.Take(w.t.Context(), 1, func(d broker.Delivery) {
		back = d.Header[events.HeaderDirectReply]
		d.Hold.Ack()
	})
	if err != nil || n != 1 || len(back) > 1 {
		w.t.Fatalf("%d activity tasks came (%v), with %q", n, err, back)
	}
	return strings.Join(back, "")
}

func result(instance, back string) events.Wire {
	return events.Wire{Subject: "rondo.task-done.1-2." + instance,
		Header: events.Header{events.HeaderMsgID: {"d-" + instance}, events.HeaderWorker: {"y"}}, Body: []byte("7"),
		DirectTo: back}
}

// send publishes results. The channel gets the error when Publish has returned.
func (w *directRoutes) send(wires ...events.Wire) <-chan error {
	stored := make(chan error, 1)
	go func() { stored <- w.worker.Publish(w.t.Context(), wires...) }()
	return stored
}

// next returns the next delivery.
func (w *directRoutes) next() broker.Delivery {
	w.t.Helper()
	select {
	case d := <-w.came:
		return d
	case <-time.After(longEnough):
		w.t.Fatal("nothing comes")
	}
	return broker.Delivery{}
}

func (w *directRoutes) stored(done <-chan error) {
	w.t.Helper()
	select {
	case err := <-done:
		w.must(err)
	case <-time.After(longEnough):
		w.t.Fatal("it is not said to be stored")
	}
}

// wantShort checks how many results were delivered directly, and how many had to go through the
// stream.
func (w *directRoutes) wantShort(taken, passed uint64) {
	w.t.Helper()
	if is := w.worker.Traffic(); is.Direct != taken || is.DirectRefused != passed {
		w.t.Errorf("%d results were taken by direct delivery, and %d passed on; want %d and %d", is.Direct,
			is.DirectRefused,
			taken, passed)
	}
}

func isDirect(d broker.Delivery) bool { return d.Direct && d.Sequence >= natsbroker.FirstDirect }

func TestResultsAreDeliveredDirectly(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	r := result("i", w.way("i"))
	done := w.send(r)
	d := w.next()
	want := map[string][]string{events.HeaderMsgID: {"d-i"}, events.HeaderWorker: {"y"}}
	if !isDirect(d) || d.Subject != r.Subject || !maps.EqualFunc(d.Header, want, slices.Equal[[]string]) ||
		string(d.Body) != "7" || d.NumDelivered != 1 {
		t.Errorf("came %+v", d)
	}
	select {
	case err := <-done:
		t.Errorf("it is said to be stored (%v) before it is settled", err)
	default:
	}
	if has, err := w.orchestrator.Has(t.Context(), r); err != nil || has {
		t.Errorf("the stream has it: %v, %v", has, err)
	}
	d.Hold.Ack()
	w.stored(done)
	w.wantShort(1, 0)
}

// The sender computes the same partition as the broker.
func TestDirectDeliveryKnowsThePartition(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	var wires []events.Wire
	for i := range 100 {
		wires = append(wires, result(events.EncodeToken(fmt.Sprint("order ü/", i)), back))
	}
	done := w.send(wires...)
	partition := make(map[string]int)
	for range wires {
		d := w.next()
		if !isDirect(d) {
			t.Fatalf("%s came through the stream", d.Subject)
		}
		partition[d.Subject] = d.Partition
		d.Hold.Nak(time.Hour)
	}
	for range wires {
		d := w.next()
		if d.NumDelivered < 2 || len(d.Header) != 2 {
			t.Errorf("it was handed out %d times, with %v", d.NumDelivered, d.Header)
		}
		if is, known := partition[d.Subject]; isDirect(d) || !known || is != d.Partition {
			t.Errorf("%s came from partition %d by direct delivery, and from %d through the stream", d.Subject,
				is, d.Partition)
		}
		d.Hold.Ack()
	}
	w.stored(done)
	w.wantShort(0, 100)
}

// A result that goes through the stream after all can be handed over. A result that was delivered
// directly cannot, and is nacked instead.
func TestDirectDeliveryAndHandovers(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	handed := make(chan broker.Delivery, 1)
	stop, err := w.worker.ReceiveHandovers(broker.HandoverInbox, "other",
		func(d broker.Delivery) error { handed <- d; return nil })
	w.must(err)
	defer stop()
	done := w.send(result("i", w.way("i")))
	d := w.next()
	if err := w.orchestrator.Handover(t.Context(), "other", d); err == nil {
		t.Error("what only this process can settle was handed over")
	}
	d.Hold.Nak(0)
	d = w.next()
	w.must(w.orchestrator.Handover(t.Context(), "other", d))
	if h := <-handed; h.Subject != d.Subject || h.NumDelivered != d.NumDelivered {
		t.Errorf("handed over was %+v", h)
	} else {
		h.Hold.Ack()
	}
	w.stored(done)
	natstest.Eventually(t, "the stream does not have it", func() bool {
		has, err := w.orchestrator.Has(t.Context(), events.Wire{Subject: d.Subject})
		w.must(err)
		return !has
	})
}

// A result for a receiver that has stopped, or is gone, is not lost.
func TestDirectDeliveryThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *directRoutes){
		"not receiving": func(w *directRoutes) { w.stop() },
		"gone": func(w *directRoutes) {
			w.orchestrator.Close()
			w.orchestrator = natstest.Connect(w.t, w.server, natsbroker.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t, natsbroker.Config{})
			w.t = t
			back := w.way("i")
			end(w)
			w.stored(w.send(result("i", back), result("j", back)))
			if name == "not receiving" && w.way("k") != "" {
				t.Error("work says where results may go at once, and nobody receives")
			}
			w.receive(nil)
			for range 2 {
				d := w.next()
				if isDirect(d) || name == "not receiving" && d.NumDelivered != 1 {
					t.Errorf("%s came at place %d, for the %d. time", d.Subject, d.Sequence, d.NumDelivered)
				}
				d.Hold.Ack()
			}
			w.wantShort(0, 2)
		})
	}
}

// Results that wait when the receiver ends go through the stream, and so do results that exceed its
// limit.
func TestDirectDeliveryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	w.worker.WaitDirect(10 * time.Second) // then a result that the receiver dropped goes through the stream
	w.stop()
	gate := make(chan struct{})
	w.receive(gate)
	back := w.way("i")
	var wires []events.Wire
	for i := range 6000 { // more than all partitions hold
		wires = append(wires, result(fmt.Sprint("i", i), back))
	}
	var tries atomic.Uint64
	done := make(chan error, 1)
	go func() { // as a worker does, which publishes again what NATS did not acknowledge in time
		for {
			tries.Add(1)
			if err := w.worker.Publish(t.Context(), wires...); err == nil || t.Context().Err() != nil {
				done <- err
				return
			}
		}
	}()
	natstest.Eventually(t, "some were too much", func() bool { return w.worker.Traffic().DirectRefused > 0 })
	close(gate)
	seen := make(map[string]bool)
	for len(seen) < len(wires) {
		d := w.next()
		d.Hold.Ack()
		seen[d.Subject] = true
	}
	w.stored(done)
	is := w.worker.Traffic()
	if is.Direct == 0 || is.Direct+is.DirectRefused > tries.Load()*uint64(len(wires)) {
		t.Errorf("%d came by direct delivery, %d were passed on", is.Direct, is.DirectRefused)
	}
}

// If a receiver does not answer in time, its result goes through the stream, and so do the next
// ones.
func TestDirectDeliveryWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	w.worker.WaitDirect(300 * time.Millisecond)
	back := w.way("i")
	done := w.send(result("j", back))
	lost := w.next()
	lost.Hold.InProgress() // it makes no difference
	d := w.next()
	if !isDirect(lost) || isDirect(d) || d.Subject != lost.Subject || d.NumDelivered < 2 {
		t.Errorf("came at place %d, then at %d, for the %d. time", lost.Sequence, d.Sequence, d.NumDelivered)
	}
	d.Hold.Ack()
	w.stored(done)
	lost.Hold.Ack() // too late: it changes nothing
	w.stored(w.send(result("k", back)))
	if d := w.next(); isDirect(d) {
		t.Error("the next one is sent by the way at whose end nobody answered")
	}
	w.wantShort(0, 1)
}

// When the connection breaks, the worker does not know the outcome of a result.
func TestDirectDeliveryWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	w, line := newWaysOverLine(t)
	done := w.send(result("i", w.way("i")))
	first := w.next()
	line.Break()
	d := w.next()
	if !isDirect(first) || d.Subject != first.Subject {
		t.Errorf("came %s, then %s", first.Subject, d.Subject)
	}
	d.Hold.Ack()
	first.Hold.Ack()
	w.stored(done)
}

// Forged headers of tasks, and forged direct deliveries, do no harm.
func TestDirectDeliveryIsForResultsOnly(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	odd := []string{"rondo.start.o.i", "$JS.API.STREAM.DELETE.RONDO", "rondo.direct.result.to.*",
		"rondo.direct.result.to.>", "rondo.direct.result.to.a b", "rondo.direct.task.to.w___a",
		back + ".x", " ",
		"rondo.handover.inbox.to.somebody", "rondo.direct.result.to.",
		"rondo.direct.result.to." + strings.Repeat("a", natsbroker.MaxResultsName+1),
		"rondo.direct.result.to." + strings.Repeat("a", 5000),
		"rondo.direct.result.to.a%20b"}
	for i, o := range odd {
		w.stored(w.send(result(fmt.Sprint("i", i), o)))
		d := w.next()
		if isDirect(d) || d.Subject != fmt.Sprintf("rondo.task-done.1-2.i%d", i) {
			t.Errorf("%q: came %s at %d", o, d.Subject, d.Sequence)
		}
		d.Hold.Ack()
	}
	w.wantShort(0, 0)

	nc, err := nats.Connect(w.server.URL(), nats.Timeout(time.Minute))
	w.must(err)
	defer nc.Close()
	for _, subject := range []string{"", "rondo", "rondo.start.o.i", "rondo.event.e.i", "rondo.task._.a.1-2.i",
		"rondo.task-done.1-2.*", "rondo.task-done.1-2", "other.task-done.1-2.i",
		"rondo.task-done.1-2." + strings.Repeat("a", 3600)} {
		answer, err := sendDirect(nc, "result", &nats.Msg{Subject: back,
			Header: nats.Header{"Rondo-Subject": {subject}}, Data: []byte("7")}, longEnough)
		if err != nil || !strings.HasPrefix(string(answer.Data), "-") {
			t.Errorf("%q is taken: %v, %v", subject, answer, err)
		}
	}
	good := nats.Header{"Rondo-Subject": {"rondo.task-done.1-2.i"}}
	for _, to := range []string{"", "rondo.control.terminate.i", "$JS.API.STREAM.DELETE.RONDO", "_INBOX.x.y",
		"rondo.direct.answer.task.x.1", "rondo.direct.answer.result.x", "rondo.direct.answer.result..1",
		"rondo.direct.answer.result.x.1.2", "rondo.direct.answer.result.x.*"} {
		// a subject to which nothing may be published
		w.must(nc.PublishMsg(&nats.Msg{Subject: back, Reply: to, Header: good}))
	}
	// The next one is taken, and those of one instance come in their order.
	w.must(nc.PublishMsg(&nats.Msg{Subject: back, Reply: "rondo.direct.answer.result.x.1", Header: good,
		Data: []byte("last")}))
	w.must(nc.Flush())
	if d := w.next(); string(d.Body) != "last" {
		t.Errorf("came %s", d.Body)
	}
}

// With the shipped permissions, results are delivered directly; with permissions from before direct
// delivery, all of them go through the stream.
func TestDirectDeliveryNeedsRights(t *testing.T) {
	t.Parallel()
	shippedNow, err := os.ReadFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	const allowed = "as they are shipped"
	for name, change := range map[string][2]string{
		allowed:                           {"", ""},
		"the orchestrator may not answer": {`"rondo.direct.answer.result.*.*", `, ``},
		"the worker may not send":         {`"rondo.handover.task.to.*", "rondo.direct.result.to.*", `, `"rondo.handover.task.to.*", `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := strings.Replace(string(shippedNow), change[0], change[1], 1)
			if conf == string(shippedNow) && name != allowed {
				t.Fatalf("%s is not in the rights that are shipped", change[0])
			}
			s := natstest.StartWith(t, embedded.Options{Config: configFile(t, conf)})
			said := new(lockedBuffer)
			as := func(user string, setup natsbroker.Setup) *natsbroker.Bus {
				return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
					InboxPrefix: inboxOf(user),
					Setup:       setup, Partitions: 4, Logger: slog.New(slog.NewTextHandler(said, nil))})
			}
			as("setup", natsbroker.Make)
			w := &directRoutes{t: t, server: s, orchestrator: as("orchestrator", natsbroker.Verify),
				worker: as("worker", natsbroker.Verify)}
			if name == allowed {
				w.worker.WaitDirect(longEnough)
			}
			w.receive(nil)
			back := w.way("i")
			for i := range 3 {
				done := w.send(result(fmt.Sprint("i", i), back))
				for through := false; !through; {
					d := w.next()
					d.Hold.Ack()
					through = !isDirect(d) || name == allowed
				}
				w.stored(done)
			}
			if is := w.worker.Traffic(); name == allowed && is.Direct != 3 || name != allowed &&
				(is.Direct > 0 || is.DirectRefused == 0) {
				t.Errorf("%d results were taken by direct delivery, %d passed on", is.Direct, is.DirectRefused)
			}
			if name == "the orchestrator may not answer" {
				if back := w.way("j"); back != "" {
					t.Errorf("work still says that results may go to %s", back)
				}
				if !strings.Contains(said.String(), "this user has no permission to answer direct deliveries") {
					t.Errorf("it said:\n%s", said)
				}
			}
		})
	}
}

// lockedBuffer is a buffer for logs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
