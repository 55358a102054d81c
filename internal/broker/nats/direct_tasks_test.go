package natsbroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// direct is an orchestrator that publishes tasks and a worker that has free slots.
type direct struct {
	t                    *testing.T
	server               *embedded.Server
	orchestrator, worker *natsbroker.Bus
	queue                broker.TaskQueue // as the worker sees it
	came                 chan broker.Delivery
	takes                func(broker.Delivery) bool
	stop                 func()
}

// passedQueue is the task queue of these tests.
var passedQueue = broker.TaskQueueName{Activity: "a"}

func newDirect(t *testing.T) *direct {
	t.Helper()
	s := natstest.Start(t)
	return (&direct{t: t, server: s, orchestrator: natstest.Connect(t, s, natsbroker.Config{}),
		worker: natstest.Connect(t, s, natsbroker.Config{})}).begin()
}

// begin makes the worker offer its slots. No time limit passes, however slow the machine is, unless
// a test sets one: see lasts.
func (p *direct) begin() *direct {
	p.t.Helper()
	for _, b := range []*natsbroker.Bus{p.orchestrator, p.worker} {
		b.WaitDirect(longEnough)
		b.LastsAfter(longEnough)
	}
	p.came, p.takes = make(chan broker.Delivery, 1000), func(broker.Delivery) bool { return true }
	var err error
	p.queue, err = p.worker.OpenTaskQueue(p.t.Context(), passedQueue)
	p.must(err)
	p.stop, err = p.queue.Offer("w1", func(d broker.Delivery) bool {
		took := p.takes(d)
		if took {
			p.came <- d
		}
		return took
	})
	p.must(err)
	p.heard(p.worker)
	return p
}

// lasts makes the executions of all tasks that the worker has take long.
func (p *direct) lasts() { p.worker.LastsAfter(1) }

// heard waits until the server has processed everything that a connection has sent.
func (p *direct) heard(b *natsbroker.Bus) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), longEnough)
	defer cancel()
	_, err := b.RoundTrip(ctx)
	p.must(err)
}

func (p *direct) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func taskOf(instances ...string) (all []events.Wire) {
	for _, i := range instances {
		all = append(all, events.Wire{Subject: "rondo.task._.a.1-2." + i,
			Header: events.Header{events.HeaderMsgID: {"w-" + i}, events.HeaderVersion: {"y"}}, Body: []byte(i),
			Direct: true})
	}
	return all
}

// publish publishes tasks. The channel gets the error when Publish has returned.
func (p *direct) publish(work ...events.Wire) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.orchestrator.Publish(p.t.Context(), work...) }()
	return done
}

func (p *direct) next() broker.Delivery {
	p.t.Helper()
	select {
	case d := <-p.came:
		return d
	case <-time.After(longEnough):
		p.t.Fatal("nothing is passed on")
		return broker.Delivery{}
	}
}

// stored takes n tasks from the stream, in the order of their instances, and acknowledges them.
func (p *direct) stored(n int) (all []broker.Delivery) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), longEnough)
	defer cancel()
	for len(all) < n {
		_, err := p.queue.Take(ctx, n-len(all), func(d broker.Delivery) {
			d.Hold.Ack()
			all = append(all, d)
		})
		if p.must(err); ctx.Err() != nil {
			p.t.Fatalf("%d activity tasks came from the stream; want %d", len(all), n)
		}
	}
	slices.SortFunc(all, func(a, b broker.Delivery) int { return strings.Compare(a.Subject, b.Subject) })
	return all
}

func (p *direct) returned(done <-chan error) {
	p.t.Helper()
	select {
	case err := <-done:
		p.must(err)
	case <-time.After(longEnough):
		p.t.Fatal("publishing does not return")
	}
}

// returnsNot checks that publishing has not returned, after a request and its response.
func (p *direct) returnsNot(done <-chan error) {
	p.t.Helper()
	p.heard(p.orchestrator)
	select {
	case err := <-done:
		p.t.Fatalf("publishing has returned (%v), and the work is not done", err)
	default:
	}
}

// backlog checks the number of the queue's tasks in the stream.
func (p *direct) backlog(want int64) {
	p.t.Helper()
	natstest.Eventually(p.t, fmt.Sprintf("%d are stored", want), func() bool {
		is, err := p.orchestrator.TaskBacklog(p.t.Context(), passedQueue)
		p.must(err)
		return is.Waiting+is.Held == want
	})
}

func (p *direct) want(passed, stored uint64) {
	p.t.Helper()
	if is := p.orchestrator.Traffic(); is.Direct != passed || is.DirectRefused != stored {
		p.t.Errorf("%d activity tasks were passed on, and %d stored after all; want %d and %d", is.Direct,
			is.DirectRefused, passed, stored)
	}
}

func TestTasksAreDeliveredDirectly(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	done := p.publish(taskOf("i", "j", "k")...)
	var places []uint64
	for _, want := range []string{"i", "j", "k"} {
		d := p.next()
		if !d.Direct || d.NumDelivered != 1 || d.Subject != "rondo.task._.a.1-2."+want || string(d.Body) != want ||
			d.Header[events.HeaderVersion][0] != "y" || d.Header[events.HeaderMsgID][0] != "w-"+want ||
			d.Hold.AckSubject() != "" {
			t.Errorf("came %+v", d)
		}
		if places = append(places, d.Sequence); slices.Contains(places[:len(places)-1], d.Sequence) {
			t.Errorf("places %v", places)
		}
		p.returnsNot(done)
		d.Hold.Ack()
		d.Hold.Nak(0) // it is settled
	}
	p.returned(done)
	p.want(3, 0)
	p.backlog(0)
	if has, err := p.orchestrator.Has(t.Context(), taskOf("i")[0]); err != nil || has {
		t.Errorf("the stream has it: %v, %v", has, err)
	}
}

// Only a small task that is marked, and without a delay, is delivered directly, and only to a free
// slot.
func TestWorkIsStored(t *testing.T) {
	t.Parallel()
	plain, later, large := taskOf("i")[0], taskOf("i")[0], taskOf("i")[0]
	plain.Direct, later.NotBefore, large.Body = false, time.Now().Add(100*time.Millisecond), make([]byte, 10<<10)
	for name, c := range map[string]struct {
		work   events.Wire
		before func(p *direct)
		stored uint64 // those for which direct delivery was tried
	}{
		"it does not say that it may be": {work: plain},
		"it is for later":                {work: later},
		"it is large":                    {work: large},
		"nobody has room": {work: taskOf("i")[0], before: func(p *direct) {
			p.takes = func(broker.Delivery) bool { return false }
		}, stored: 1},
		"nobody offers any": {work: taskOf("i")[0], before: func(p *direct) {
			p.stop()
			p.heard(p.worker)
		}, stored: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newDirect(t)
			p.t = t
			if c.before != nil {
				c.before(p)
			}
			p.returned(p.publish(c.work))
			d := p.stored(1)[0]
			if d.Direct || d.NumDelivered != 1 || d.Header[events.HeaderMsgID][0] != "w-i" ||
				len(d.Header[events.HeaderHeld]) > 0 {
				t.Errorf("came %+v", d)
			}
			p.want(0, c.stored)
			if len(p.came) > 0 {
				t.Error("it was passed on")
			}
		})
	}
}

// A task that a worker nacks is stored at once, as if it had never been delivered.
func TestDirectTaskIsGivenBack(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	done := p.publish(taskOf("i", "j")...)
	p.next().Hold.Nak(time.Hour)
	last := p.next()
	if d := p.stored(1)[0]; d.Subject != "rondo.task._.a.1-2.i" || d.NumDelivered != 1 {
		t.Errorf("came %+v", d)
	}
	p.returnsNot(done)
	last.Hold.Ack()
	p.returned(done)
	p.want(1, 1)
}

// A task without an answer is stored, and may have begun.
func TestDirectTaskIsLost(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	p.orchestrator.WaitDirect(300 * time.Millisecond)
	p.returned(p.publish(taskOf("i")...))
	lost := p.next()
	if d := p.stored(1)[0]; d.NumDelivered != 2 || len(d.Header[events.HeaderHeld]) > 0 {
		t.Errorf("came %+v", d)
	}
	lost.Hold.Ack() // too late: it changes nothing
	p.returned(p.publish(taskOf("j")...))
	p.stored(1)
	if len(p.came) > 0 {
		t.Error("work goes where nobody has answered")
	}
	p.want(0, 1)
}

// The orchestrator's connection breaks while the worker has a task, which counts as begun.
func TestDirectTaskWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	line := natstest.NewLine(t, s)
	p := (&direct{t: t, server: s, orchestrator: natstest.Connect(t, line, natsbroker.Config{}),
		worker: natstest.Connect(t, s, natsbroker.Config{})}).begin()
	done := p.publish(taskOf("i")...)
	p.next()
	line.Break()
	p.returned(done)
	if d := p.stored(1)[0]; d.NumDelivered != 2 {
		t.Errorf("came %+v", d)
	}
}

// A task whose execution takes long is stored with the name of its worker. Its publisher does not
// wait any longer.
func TestDirectTaskThatLasts(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	done := p.publish(taskOf("i", "j", "k")...)
	first, second := p.next(), p.next()
	p.next().Hold.Ack()
	if is, err := p.worker.Stored(t.Context(), first); err != nil || !is {
		t.Errorf("it counts as withdrawn (%v) before it was stored", err)
	}
	p.lasts()
	p.returned(done)
	p.want(1, 2)
	p.backlog(2)
	second.Hold.Ack()
	first.Hold.Nak(0)
	first.Hold.InProgress()
	p.must(p.orchestrator.Publish(t.Context(), events.Wire{Subject: second.Subject, Purge: true}))
	natstest.Eventually(t, "who has the one that was withdrawn can see it", func() bool {
		is, err := p.worker.Stored(t.Context(), second)
		p.must(err)
		return !is
	})
	if is, err := p.worker.Stored(t.Context(), first); err != nil || !is {
		t.Errorf("the other one counts as withdrawn, too (%v)", err)
	}
	d := p.stored(1)[0]
	if d.Subject != first.Subject || d.NumDelivered != 1 || d.Direct ||
		strings.Join(d.Header[events.HeaderHeld], ",") != "w1" {
		t.Errorf("came %+v", d)
	}
}

// Each bundle goes to one of the workers.
func TestManyWorkersHaveRoom(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	other := natstest.Connect(t, p.server, natsbroker.Config{})
	other.LastsAfter(longEnough)
	q, err := other.OpenTaskQueue(t.Context(), passedQueue)
	p.must(err)
	theirs := 0
	_, err = q.Offer("w2", func(d broker.Delivery) bool { theirs++; d.Hold.Ack(); return true })
	p.must(err)
	p.heard(other)
	p.takes = func(d broker.Delivery) bool { d.Hold.Ack(); return true }
	const n = 200
	for i := range n { // each is a message of its own
		p.must(p.orchestrator.Publish(t.Context(), taskOf(fmt.Sprint("i", i))...))
	}
	if mine := len(p.came); mine+theirs != n || mine < n/10 || theirs < n/10 {
		t.Errorf("one has got %d, the other one %d of %d", mine, theirs, n)
	}
	p.want(n, 0)
}

// Forged direct deliveries of tasks do no harm.
func TestStrangersPassNoWork(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	nc, err := nats.Connect(p.server.URL(), nats.Timeout(time.Minute))
	p.must(err)
	t.Cleanup(nc.Close)
	const to = "rondo.direct.task.to.w___a"
	for name, m := range map[string]*nats.Msg{
		"no bundle":           {Data: []byte("work")},
		"no number":           {Header: nats.Header{"Rondo-Results": {"many"}}, Data: []byte("work")},
		"of another activity": bundled(1, text("rondo.task._.b.1-2.i"), "\x00", text("7")),
		"of another kind":     bundled(1, text("rondo.task-done.1-2.i"), "\x00", text("7")),
		"of another system":   bundled(1, text("other.task._.a.1-2.i"), "\x00", text("7")),
		"with a wildcard":     bundled(1, text("rondo.task._.a.1-2.>"), "\x00", text("7")),
	} {
		m.Subject = to
		unread, most := strings.HasPrefix(name, "no "), longEnough
		if unread {
			most = time.Second / 2 // none comes
		}
		answer, err := sendDirect(nc, "task", m, most)
		if unread != (err != nil) || !unread && string(answer.Data) != "N" {
			t.Errorf("%s: answered %+v (%v)", name, answer, err)
		}
	}
	for _, reply := range []string{"", "rondo.start.o.i", "$JS.API.STREAM.DELETE.RONDO", "_INBOX.x.y",
		"rondo.direct.answer.result.x.1"} {
		p.must(nc.PublishMsg(&nats.Msg{Subject: to, Reply: reply, Header: nats.Header{"Rondo-Results": {"1"}},
			Data: []byte(text("rondo.task._.a.1-2.i") + "\x00" + text("7"))}))
	}
	p.must(nc.Flush())
	done := p.publish(taskOf("real")...)
	if d := p.next(); string(d.Body) != "real" {
		t.Errorf("came %+v", d)
	} else {
		d.Hold.Ack()
	}
	p.returned(done)
}

func text(s string) string { return string(rune(len(s))) + s } // shorter than 128

func bundled(n int, parts ...string) *nats.Msg {
	return &nats.Msg{Header: nats.Header{"Rondo-Results": {fmt.Sprint(n)}}, Data: []byte(strings.Join(parts, ""))}
}

// TestRightsToPassWork delivers tasks directly with the shipped permissions, and through the stream
// if one is missing.
func TestRightsToPassWork(t *testing.T) {
	t.Parallel()
	conf, err := os.ReadFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	const allowed = "as they are shipped"
	for name, change := range map[string][2]string{
		allowed:                         {"", ""},
		"the worker may not answer":     {`"rondo.direct.result.to.*", "rondo.direct.answer.task.*.*"`, `"rondo.direct.result.to.*"`},
		"the worker may not hear":       {`"rondo.direct.task.to.*", "rondo.direct.answer.result.*.*"`, `"rondo.direct.answer.result.*.*"`},
		"the orchestrator may not send": {`"rondo.direct.task.to.*", "rondo.direct.system.to.*"`, `"rondo.direct.system.to.*"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(string(conf), change[0], change[1], 1)
			if changed == string(conf) && name != allowed {
				t.Fatalf("%s is not in the rights that are shipped", change[0])
			}
			s := natstest.StartWith(t, embedded.Options{Config: configFile(t, changed)})
			said := new(lockedBuffer)
			as := func(user string, setup natsbroker.Setup) *natsbroker.Bus {
				return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
					InboxPrefix: inboxOf(user),
					Setup:       setup, Partitions: 4, Logger: slog.New(slog.NewTextHandler(said, nil))})
			}
			setup := as("setup", natsbroker.Make)
			_, err := setup.OpenTaskQueue(t.Context(), passedQueue)
			if err != nil {
				t.Fatal(err)
			}
			p := (&direct{t: t, server: s, orchestrator: as("orchestrator", natsbroker.Verify),
				worker: as("worker", natsbroker.Verify)}).begin()
			if name != allowed {
				p.orchestrator.WaitDirect(0) // no answer comes
			}
			p.takes = func(d broker.Delivery) bool { d.Hold.Ack(); return true }
			for i := range 3 {
				p.must(p.orchestrator.Publish(t.Context(), taskOf(fmt.Sprint("i", i))...))
			}
			if name == allowed {
				p.want(3, 0)
				return
			}
			p.stored(3)
			if is := p.orchestrator.Traffic(); is.Direct > 0 {
				t.Errorf("%d activity tasks were passed on", is.Direct)
			}
			if len(p.came) > 1 {
				t.Errorf("%d activity tasks are done twice", len(p.came))
			}
			if name == "the worker may not answer" &&
				!strings.Contains(said.String(), "this user has no permission to answer direct deliveries") {
				t.Errorf("it said:\n%s", said)
			}
		})
	}
}

// TestShortTasksShowAsLoad: a queue is busy with short tasks in direct delivery. No look at the
// stream sees any, and each look at the load does.
func TestShortTasksShowAsLoad(t *testing.T) {
	t.Parallel()
	p := newDirect(t)
	for i := range 50 {
		done := p.publish(taskOf(fmt.Sprint("i", i))...)
		p.next().Hold.Ack()
		p.must(<-done)
		if load := p.orchestrator.DirectLoad()[passedQueue]; load <= 0 {
			t.Fatalf("after task %d the load is %v", i, load)
		}
		b, err := p.orchestrator.TaskBacklog(t.Context(), passedQueue)
		if p.must(err); b.Waiting+b.Held > 0 {
			t.Fatalf("task %d is in the stream: %+v", i, b)
		}
	}
}
