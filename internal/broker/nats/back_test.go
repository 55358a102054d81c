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
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

const longEnough = time.Minute // to wait for what must happen

// ways is who publishes work and receives its results, and who does it.
type ways struct {
	t            *testing.T
	server       *embedded.Server
	orchestrator *natsbroker.Bus
	worker       *natsbroker.Bus
	came         chan broker.Delivery
	stop         func() // receiving
}

func newWays(t *testing.T, config natsbroker.Config) *ways {
	t.Helper()
	s := natstest.Start(t)
	config.Partitions = 4
	w := &ways{t: t, server: s, orchestrator: natstest.Connect(t, s, config), worker: natstest.Connect(t, s, config)}
	w.worker.WaitShort(longEnough)
	w.receive(nil)
	return w
}

// newWaysOverLine has the worker connected by a line that can be broken.
func newWaysOverLine(t *testing.T) (*ways, *natstest.Line) {
	t.Helper()
	server := natstest.Start(t)
	line := natstest.NewLine(t, server)
	w := &ways{t: t, server: server, orchestrator: natstest.Connect(t, server, natsbroker.Config{Partitions: 4}),
		worker: natstest.Connect(t, line, natsbroker.Config{})}
	w.receive(nil)
	return w, line
}

// receive receives from all partitions. Each delivery waits for the gate, if there is one.
func (w *ways) receive(gate <-chan struct{}) {
	w.t.Helper()
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
				came <- d
			})
		})
	}
	w.stop = func() { stop(); all.Wait() }
	natstest.Eventually(w.t, "results may come by the short way, from all partitions", func() bool {
		return w.orchestrator.Offered() == 4
	})
}

func (w *ways) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// way is where results of work go that is published now, as who does the work sees it.
func (w *ways) way(instance string) string {
	w.t.Helper()
	w.must(w.orchestrator.Publish(w.t.Context(), events.Wire{Subject: "rondo.work._.a.1-2." + instance}))
	var q broker.WorkQueue
	natstest.Eventually(w.t, "there is the queue, which the orchestrator makes", func() (is bool) {
		var err error
		q, err = w.worker.OpenQueue(w.t.Context(), broker.Queue{Activity: "a"})
		return err == nil
	})
	var back []string
	n, err := q.Take(w.t.Context(), 1, func(d broker.Delivery) {
		back = d.Header[events.HeaderBack]
		d.Hold.Ack()
	})
	if err != nil || n != 1 || len(back) > 1 {
		w.t.Fatalf("%d pieces of work came (%v), with %q", n, err, back)
	}
	return strings.Join(back, "")
}

func result(instance, back string) events.Wire {
	return events.Wire{Subject: "rondo.work-done.1-2." + instance,
		Header: events.Header{events.HeaderMsgID: {"d-" + instance}, "X": {"y"}}, Body: []byte("7"), Back: back}
}

// send publishes results, and tells when they are said to be stored.
func (w *ways) send(wires ...events.Wire) <-chan error {
	stored := make(chan error, 1)
	go func() { stored <- w.worker.Publish(w.t.Context(), wires...) }()
	return stored
}

// next is the next delivery.
func (w *ways) next() broker.Delivery {
	w.t.Helper()
	select {
	case d := <-w.came:
		return d
	case <-time.After(longEnough):
		w.t.Fatal("nothing comes")
	}
	return broker.Delivery{}
}

func (w *ways) stored(done <-chan error) {
	w.t.Helper()
	select {
	case err := <-done:
		w.must(err)
	case <-time.After(longEnough):
		w.t.Fatal("it is not said to be stored")
	}
}

// wantShort checks how many results were taken by the short way, and how many had to take the other
// one.
func (w *ways) wantShort(taken, passed uint64) {
	w.t.Helper()
	if is := w.worker.Traffic(); is.ShortWay != taken || is.PassedOn != passed {
		w.t.Errorf("%d results were taken by the short way, and %d passed on; want %d and %d", is.ShortWay, is.PassedOn,
			taken, passed)
	}
}

func isShort(d broker.Delivery) bool { return d.Sequence >= natsbroker.FirstShort }

func TestResultsTakeTheShortWay(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	r := result("i", w.way("i"))
	done := w.send(r)
	d := w.next()
	want := map[string][]string{events.HeaderMsgID: {"d-i"}, "X": {"y"}}
	if !isShort(d) || d.Subject != r.Subject || !maps.EqualFunc(d.Header, want, slices.Equal[[]string]) ||
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

// The partition is the one that the broker computes.
func TestShortWayKnowsThePartition(t *testing.T) {
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
		if !isShort(d) {
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
		if is, known := partition[d.Subject]; isShort(d) || !known || is != d.Partition {
			t.Errorf("%s came from partition %d by the short way, and from %d through the stream", d.Subject,
				is, d.Partition)
		}
		d.Hold.Ack()
	}
	w.stored(done)
	w.wantShort(0, 100)
}

// What comes through the stream after all can be handed over, and what has come by the short way
// goes back instead.
func TestShortWayAndHandovers(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	handed := make(chan broker.Delivery, 1)
	stop, err := w.worker.ReceiveHandovers("other", func(d broker.Delivery) error { handed <- d; return nil })
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
	if h := <-handed; h.Subject != d.Subject || h.NumDelivered != 1 { // as the stream counts
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

// Who receives no more, or is gone, does not lose anything.
func TestShortWayThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *ways){
		"not receiving": func(w *ways) { w.stop() },
		"gone": func(w *ways) {
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
				if isShort(d) || name == "not receiving" && d.NumDelivered != 1 {
					t.Errorf("%s came at place %d, for the %d. time", d.Subject, d.Sequence, d.NumDelivered)
				}
				d.Hold.Ack()
			}
			w.wantShort(0, 2)
		})
	}
}

// What waits to be handed out when the receiver ends goes through the stream, and so does what is
// too much.
func TestShortWayIsBounded(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	w.stop()
	gate := make(chan struct{})
	w.receive(gate)
	back := w.way("i")
	var wires []events.Wire
	for i := range 6000 { // more than all partitions hold
		wires = append(wires, result(fmt.Sprint("i", i), back))
	}
	done := w.send(wires...)
	natstest.Eventually(t, "some were too much", func() bool { return w.worker.Traffic().PassedOn > 0 })
	close(gate)
	seen := make(map[string]bool)
	for len(seen) < len(wires) {
		d := w.next()
		d.Hold.Ack()
		seen[d.Subject] = true
	}
	w.stored(done)
	is := w.worker.Traffic()
	if is.ShortWay == 0 || is.ShortWay+is.PassedOn > uint64(len(wires)) {
		t.Errorf("%d came by the short way, %d were passed on", is.ShortWay, is.PassedOn)
	}
}

// Who does not answer in time is passed over, and so is what else would be sent there.
func TestShortWayWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	w.worker.WaitShort(300 * time.Millisecond)
	back := w.way("i")
	done := w.send(result("j", back))
	lost := w.next()
	lost.Hold.InProgress() // it makes no difference
	d := w.next()
	if !isShort(lost) || isShort(d) || d.Subject != lost.Subject || d.NumDelivered < 2 {
		t.Errorf("came at place %d, then at %d, for the %d. time", lost.Sequence, d.Sequence, d.NumDelivered)
	}
	d.Hold.Ack()
	w.stored(done)
	lost.Hold.Ack() // too late: it changes nothing
	w.stored(w.send(result("k", back)))
	if d := w.next(); isShort(d) {
		t.Error("the next one is sent by the way at whose end nobody answered")
	}
	w.wantShort(0, 1)
}

// When the connection breaks, nobody knows what has become of a result.
func TestShortWayWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	w, line := newWaysOverLine(t)
	done := w.send(result("i", w.way("i")))
	first := w.next()
	line.Break()
	d := w.next()
	if !isShort(first) || d.Subject != first.Subject {
		t.Errorf("came %s, then %s", first.Subject, d.Subject)
	}
	d.Hold.Ack()
	first.Hold.Ack()
	w.stored(done)
}

// What anybody writes into work, or sends where results come, does no harm.
func TestShortWayIsForResultsOnly(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	odd := []string{"rondo.start.o.i", "$JS.API.STREAM.DELETE.RONDO", "rondo.notice.handover.to.*",
		"rondo.notice.handover.to.>", "rondo.notice.handover.to.", "rondo.notice.handover.to.a b", back + ".x", " ",
		"rondo.notice.handover.to.somebody", "rondo.notice.handover.to.results-",
		"rondo.notice.handover.to.results-" + strings.Repeat("a", natsbroker.MaxShortName+1),
		"rondo.notice.handover.to.results-" + strings.Repeat("a", 5000), "rondo.notice.handover.to.results-a%20b"}
	for i, o := range odd {
		w.stored(w.send(result(fmt.Sprint("i", i), o)))
		d := w.next()
		if isShort(d) || d.Subject != fmt.Sprintf("rondo.work-done.1-2.i%d", i) {
			t.Errorf("%q: came %s at %d", o, d.Subject, d.Sequence)
		}
		d.Hold.Ack()
	}
	w.wantShort(0, 0)

	nc, err := nats.Connect(w.server.URL())
	w.must(err)
	defer nc.Close()
	for _, subject := range []string{"", "rondo", "rondo.start.o.i", "rondo.event.e.i", "rondo.work._.a.1-2.i",
		"rondo.work-done.1-2.*", "rondo.work-done.1-2", "other.work-done.1-2.i",
		"rondo.work-done.1-2." + strings.Repeat("a", 3600)} {
		answer, err := nc.RequestMsg(&nats.Msg{Subject: back, Header: nats.Header{"Rondo-Subject": {subject}},
			Data: []byte("7")}, longEnough)
		if err != nil || !strings.HasPrefix(string(answer.Data), "-") {
			t.Errorf("%q is taken: %v, %v", subject, answer, err)
		}
	}
	good := nats.Header{"Rondo-Subject": {"rondo.work-done.1-2.i"}}
	for _, to := range []string{"", "rondo.control.terminate.i", "$JS.API.STREAM.DELETE.RONDO"} {
		// nobody who may be answered
		w.must(nc.PublishMsg(&nats.Msg{Subject: back, Reply: to, Header: good}))
	}
	w.must(nc.Flush())
	w.stored(w.send(result("last", "")))
	if d := w.next(); d.Subject != "rondo.work-done.1-2.last" {
		t.Errorf("came %s", d.Subject)
	}
}

// With the rights that are shipped, results take the short way; with those from before there was
// one, everything comes through the stream.
func TestShortWayNeedsRights(t *testing.T) {
	t.Parallel()
	shippedNow, err := os.ReadFile(shipped + "single.conf")
	if err != nil {
		t.Fatal(err)
	}
	const allowed = "as they are shipped"
	for name, change := range map[string][2]string{
		allowed:                           {"", ""},
		"the orchestrator may not answer": {`"_INBOX_worker.*.said.*", "_INBOX_client.>" # answers, to workers about results, too`, `"_INBOX_client.>"`},
		"the worker may not send":         {`"rondo.dead.work.>", "rondo.notice.handover.to.*"`, `"rondo.dead.work.>"`},
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
				return natstest.Connect(t, s, natsbroker.Config{User: user, Password: user, InboxPrefix: inboxOf(user),
					Setup: setup, Partitions: 4, Logger: slog.New(slog.NewTextHandler(said, nil))})
			}
			as("setup", natsbroker.Make)
			w := &ways{t: t, server: s, orchestrator: as("orchestrator", natsbroker.Verify),
				worker: as("worker", natsbroker.Verify)}
			if name == allowed {
				w.worker.WaitShort(longEnough)
			}
			w.receive(nil)
			back := w.way("i")
			for i := range 3 {
				done := w.send(result(fmt.Sprint("i", i), back))
				for through := false; !through; {
					d := w.next()
					d.Hold.Ack()
					through = !isShort(d) || name == allowed
				}
				w.stored(done)
			}
			if is := w.worker.Traffic(); name == allowed && is.ShortWay != 3 || name != allowed &&
				(is.ShortWay > 0 || is.PassedOn == 0) {
				t.Errorf("%d results were taken by the short way, %d passed on", is.ShortWay, is.PassedOn)
			}
			if name == "the orchestrator may not answer" {
				if back := w.way("j"); back != "" {
					t.Errorf("work still says that results may go to %s", back)
				}
				if !strings.Contains(said.String(), "this user may not answer those who pass it something") {
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
