package natsbroker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/events"
)

// awhile is how long a test waits for what happens at once on a machine that is not busy.
const awhile = 2 * time.Minute

// boundsTest is a system with one receiver, whose test decides when it tends its messages.
type boundsTest struct {
	*testing.T
	server *embedded.Server
	bus    *Bus
	r      *receiver
}

func newBoundsTest(t *testing.T) *boundsTest {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	x := &boundsTest{T: t, server: server}
	x.bus = x.connect()
	return x
}

func (x *boundsTest) connect() *Bus {
	x.Helper()
	b, err := Connect(x.Context(), Config{URLs: x.server.URL(), Partitions: 1, InboxAckWait: time.Hour,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = b.Close() })
	return b
}

// publish publishes messages of a size to an instance.
func (x *boundsTest) publish(instance string, n, size int) {
	x.Helper()
	for n > 0 {
		all := make([]events.Wire, min(n, 500))
		for i := range all {
			all[i] = events.Wire{Subject: "rondo.event.e." + instance, Body: make([]byte, size)}
		}
		if err := x.bus.Publish(x.Context(), all...); err != nil {
			x.Fatal(err)
		}
		n -= len(all)
	}
}

// begin makes the receiver, which asks for messages when prepare has returned.
func (x *boundsTest) begin(prepare func()) {
	x.Helper()
	x.r = x.bus.receiver(fromClients, 0)
	x.r.shared = new(sharedRoom) // there is none
	if err := x.r.begin(x.Context()); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(x.r.end)
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	prepare()
	if err := x.r.renew(); err != nil {
		x.Fatal(err)
	}
}

// until waits until a condition holds, which is called with the lock of the receiver.
func (x *boundsTest) until(what string, is func() bool) {
	x.Helper()
	if !slowtest.Until(awhile, func() bool {
		x.r.mu.Lock()
		defer x.r.mu.Unlock()
		return is()
	}) {
		x.Fatalf("after %v it is not so that %s", awhile, what)
	}
}

// asksNoMore reports whether the receiver waits for no message that it has asked for.
func (x *boundsTest) asksNoMore() bool { return x.r.pulls.asked == 0 }

// TestMessagesBehindLostOnesAreBounded: a receiver has died with messages of an instance, and
// thousands follow. The next receiver asks for no more of these than it may hold, and gets the lost
// ones all the same when NATS redelivers them. Then everything arrives in order.
func TestMessagesBehindLostOnesAreBounded(t *testing.T) {
	const lost, n, size = 3, 3_000, 8 << 10
	x := newBoundsTest(t)
	x.publish("i", lost, size)
	dies := x.connect()
	ctx, cancel := context.WithCancel(t.Context())
	var taken []broker.Delivery
	if err := dies.Receive(ctx, 0, func(d broker.Delivery) {
		if taken = append(taken, d); len(taken) == lost {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	x.publish("i", n-lost, size)
	x.begin(func() {})
	r := x.r
	x.until("it asks for no more", func() bool { return x.asksNoMore() || r.order.waits == n-lost })
	r.mu.Lock()
	waits, bytes := r.order.waits, r.order.bytes
	r.mu.Unlock()
	if waits < prefetch/2 || bytes <= prefetchBytes || bytes > 3*prefetchBytes {
		t.Fatalf("%d messages of %d bytes wait for the lost ones", waits, bytes)
	}

	now := time.Now()
	for range 3 { // only the first one asks
		r.probe(now)
		now = now.Add(busyAfter / 4)
	}
	x.until("NATS has answered the request", x.asksNoMore)
	r.mu.Lock()
	if more := r.order.waits - waits; more != 1 {
		t.Errorf("there are %d messages more, want one", more)
	}
	r.mu.Unlock()

	for _, d := range taken {
		d.Hold.Nak(0)
	}
	if !slowtest.Until(awhile, func() bool { // NATS may need a moment for the nacks
		now = now.Add(r.ackWait)
		r.probe(now)
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.order.left["i"]) < lost
	}) {
		t.Fatal("no lost message has come")
	}
	last, seen := uint64(0), 0
	for seen < n {
		d, ok, err := r.pop()
		switch {
		case err != nil:
			t.Fatal(err)
		case !ok:
			now = now.Add(r.ackWait)
			r.probe(now)
			select {
			case <-r.queue.ready:
			case <-time.After(tend):
			}
			continue
		case d.Sequence <= last:
			t.Fatalf("%d came after %d", d.Sequence, last)
		case seen < lost && d.NumDelivered != 2:
			t.Errorf("delivery %d of %d came", d.NumDelivered, d.Sequence)
		}
		last = d.Sequence
		seen++
		d.Hold.Ack()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.order.waits+r.order.bytes+r.queue.bytes+r.asideBytes != 0 {
		t.Errorf("it is empty, and counts %d and %d, %d, %d bytes", r.order.waits, r.order.bytes, r.queue.bytes,
			r.asideBytes)
	}
}

// TestABusyReceiverDoesNotGiveLostOnesUp: a receiver waits for a lost message, and its caller takes
// nothing for longer than NATS needs to redeliver. It asks for nothing meanwhile, so the lost
// message cannot come, and those behind it wait on. So they do if the receiver itself stood still.
func TestABusyReceiverDoesNotGiveLostOnesUp(t *testing.T) {
	x := newBoundsTest(t)
	x.publish("i", 1, 100)
	dies := x.connect()
	ctx, cancel := context.WithCancel(t.Context())
	if err := dies.Receive(ctx, 0, func(broker.Delivery) { cancel() }); err != nil {
		t.Fatal(err)
	}
	x.publish("i", 1, 100)
	x.begin(func() {})
	r := x.r
	x.until("a message waits for the lost one", func() bool { return r.order.waits == 1 })
	for _, c := range []struct{ busy, stood, full, probed bool }{{busy: true}, {stood: true}, {full: true},
		{full: true, probed: true}} {
		r.mu.Lock()
		asked, bytes := r.pulls.asked, r.queue.bytes
		if c.busy { // as if all that it asked for had come
			r.pulls.asked, r.queue.bytes, r.pulls.last = 0, prefetchBytes+1, time.Now().Add(-time.Minute)
		}
		r.order.until, r.order.ticked = time.Now().Add(-time.Hour), time.Now()
		if c.stood {
			r.order.ticked = r.order.ticked.Add(-2 * time.Hour)
		}
		if c.full { // but not of messages to be taken
			r.pulls.asked, r.asideBytes, r.pulls.last = 0, prefetchBytes+1, time.Now()
			r.pulls.probe = r.order.until.Add(-time.Minute)
			if c.probed {
				r.pulls.probe = r.order.until
			}
		}
		r.order.began = r.order.until.Add(-2 * r.ackWait)
		r.mu.Unlock()
		r.checkLeft(t.Context())
		r.mu.Lock()
		if waits := r.order.waits == 1; waits == c.probed {
			t.Errorf("%+v: the message waits: %t", c, waits)
		}
		r.pulls.asked, r.queue.bytes, r.asideBytes = asked, bytes, 0
		r.mu.Unlock()
	}
}

// TestReceiversShareRoom: many messages are behind lost ones in one partition, and few in another.
// The first receiver goes on while the process has room, and again when the other one has made
// some.
func TestReceiversShareRoom(t *testing.T) {
	t.Parallel()
	shared := &sharedRoom{most: 100}
	one, other := newIdleReceiver(shared), newIdleReceiver(shared)
	for _, x := range []struct {
		one, other         int
		oneFull, otherFull bool
	}{
		{prefetchBytes + 100, 0, false, false},
		{prefetchBytes + 101, 0, true, false},
		{prefetchBytes + 101, prefetchBytes, true, false},
		{prefetchBytes + 60, prefetchBytes + 60, true, true},
		{prefetchBytes + 60, prefetchBytes + 40, false, false},
	} {
		one.order.bytes, other.aside, other.asideBytes = x.one, nil, x.other
		one.isFull() // it counts what it has
		if otherFull, oneFull := other.isFull(), one.isFull(); oneFull != x.oneFull || otherFull != x.otherFull {
			t.Errorf("%d and %d bytes: full are %t and %t", x.one, x.other, oneFull, otherFull)
		}
	}
	one.end()
	other.end()
	if n := shared.taken.Load(); n != 0 {
		t.Errorf("%d bytes are taken when the receivers have ended", n)
	}
}

// newIdleReceiver makes a receiver that asks for nothing.
func newIdleReceiver(shared *sharedRoom) *receiver {
	names := namesOf("rondo")
	r := &receiver{conn: &conn{}, delays: newDelays(&names, func(*waiting) {}), queue: newReadyQueue(), shared: shared}
	r.marks = newMarks(r)
	return r
}

// TestDelayedMessagesTakeRoom: a receiver that holds as many bytes of delayed messages as it may
// asks for no more. If one of them waits for a message that is still to arrive, it asks for that
// one: the wait would never end.
func TestDelayedMessagesTakeRoom(t *testing.T) {
	x := newBoundsTest(t)
	x.publish("other", 10, 100)
	x.publish("i", 1, 100)
	x.begin(func() {
		x.r.delays.earlyBytes = prefetchBytes + 1
	})
	r := x.r
	asks := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.more()
		return r.pulls.asked
	}
	if n := asks(); n != 0 {
		t.Fatalf("it asks for %d messages", n)
	}
	wait := func(delayed bool) (told chan bool) {
		told = make(chan bool, 1)
		r.mu.Lock()
		r.marks.add(&mark{who: "i", at: time.Now(), delayed: delayed,
			told: func(_ context.Context, ok bool) { told <- ok }})
		r.mu.Unlock()
		if _, err := r.marks.lookOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return told
	}
	wait(false)
	if n := asks(); n != 0 {
		t.Fatalf("it asks for %d messages, for a timer", n)
	}
	told := wait(true)
	x.until("the message has arrived", func() bool { return len(r.queue.all) == 11 })
	for {
		if _, ok, err := r.pop(); err != nil {
			t.Fatal(err)
		} else if !ok {
			break
		}
	}
	if _, err := r.marks.lookOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	passed := r.marks.takePassed()
	if !r.isFull() {
		t.Error("there is room, although no message is still to arrive")
	}
	r.mu.Unlock()
	for _, m := range passed {
		m.told(t.Context(), true)
	}
	if len(passed) != 2 || !<-told {
		t.Errorf("%d of 2 marks have passed", len(passed))
	}
}

// TestWhatAReceiverHoldsIsCounted compares the numbers and sizes that a receiver counts with a look
// at all messages, while it takes some in and gives some away. The headers of a message that was
// given away change.
func TestWhatAReceiverHoldsIsCounted(t *testing.T) {
	t.Parallel()
	names, random := namesOf("rondo"), rand.New(rand.NewPCG(1, 2))
	d, q := newDelays(&names, func(*waiting) {}), newReadyQueue()
	o := order{upTo: 20, left: make(map[string][]uint64), behind: make(map[string][]*waiting)}
	for i := range uint64(20) {
		who := fmt.Sprint("i", i%4)
		o.left[who] = append(o.left[who], i+1)
	}
	due := time.Now().Add(time.Hour)
	fresh := func(place uint64) *waiting {
		w := delayed(fmt.Sprint([]string{"rondo.event.e.i", "rondo.start.o.i"}[random.IntN(2)], random.IntN(4)), place,
			due.Add(time.Duration(random.IntN(10))*time.Second))
		w.d.Header = events.Header{"h": {"v"}}
		w.d.Body, w.d.Hold = make([]byte, random.IntN(1_000)), noHold{}
		return w
	}
	want := func(what string, got int, all ...*waiting) {
		t.Helper()
		bytes := 0
		for _, w := range all {
			bytes += w.bytes
		}
		if got != bytes {
			t.Fatalf("%s counts %d bytes, want %d", what, got, bytes)
		}
	}
	sum := func() (early, tasks, behind []*waiting) {
		for _, w := range d.early {
			early = append(early, w)
		}
		for _, task := range d.tasks {
			tasks = append(tasks, task.w)
		}
		for _, all := range o.behind {
			behind = append(behind, all...)
		}
		return early, tasks, behind
	}
	for n := range uint64(4_000) {
		early, tasks, _ := sum()
		switch random.IntN(7) {
		case 0:
			if w := fresh(random.Uint64N(100)); !d.lastCounts(w) || !d.giveWay(w) {
				d.hold(w)
			}
		case 1:
			if len(early) > 0 {
				early[0].timer.Stop()
				d.release(early[0])
			}
		case 2:
			d.later(task{w: fresh(n)})
		case 3:
			d.drop(random.IntN(len(tasks) + 1))
		case 4:
			q.pushAll(o.arrive(fresh(21 + random.Uint64N(100))))
		case 5:
			if place := 1 + random.Uint64N(20); random.IntN(100) == 0 {
				q.pushAll(o.came(fmt.Sprint("i", (place-1)%4), place))
			}
		case 6:
			if taken, ok, err := q.pop(); err != nil {
				t.Fatal(err)
			} else if ok {
				taken.Header["more"] = []string{"x"}
			}
		}
		early, tasks, behind := sum()
		want("early", d.earlyBytes, early...)
		want("tasks", d.taskBytes, tasks...)
		want("behind", o.bytes, behind...)
		want("the queue", q.bytes, q.all...)
		if o.waits != len(behind) {
			t.Fatalf("%d messages are behind, want %d", o.waits, len(behind))
		}
	}
	for _, w := range d.early {
		w.timer.Stop()
	}
}
