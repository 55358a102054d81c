package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/events"
)

var inboxTests = []test{
	{"messages arrive as they were published", Settings{}, arriveAsPublished},
	{"messages keep the headers that services know", Settings{}, knownHeaders},
	{"messages of an instance come in their order", Settings{}, inOrder},
	{"messages of an instance are in one partition", Settings{}, onePartition},
	{"what instances wait for goes ahead of starts", Settings{Partitions: 1}, goesAhead},
	{"an instance may have any id", Settings{}, anyInstance},
	{"a message published again under its id is stored once", Settings{}, dedupes},
	{"messages with one id under different subjects are different ones", Settings{}, sameIDs},
	{"a message without an id has the same name each time", Settings{InboxAckWait: short}, sameName},
	{"what is not settled comes again", Settings{InboxAckWait: short}, comesAgain},
	{"order is kept behind what an ended receiver nacks", Settings{}, orderAfterLateNak},
	{"after a leap of the broker's clock, what is not settled comes again in its order", Settings{}, afterLeap},
	{"order is kept when a receiver dies", Settings{InboxAckWait: short}, orderAfterDeath},
	{"order is kept when a receiver dies with many messages", Settings{InboxAckWait: short}, orderAfterDeathOfMany},
	{"newer messages wait for what the receiver before settles late", Settings{}, settledLate},
	{"what is returned comes again at once", Settings{}, returned},
	{"what is returned with a delay comes after it", Settings{}, returnedLater},
	{"what is extended stays", Settings{InboxAckWait: short}, extended},
	{"what waits to be taken is handed out once", Settings{InboxAckWait: 4 * time.Second, Partitions: 1},
		blockedReceiver},
	{"what a receiver leaves goes to the next one at once", Settings{Partitions: 1}, leftBehind},
	{"two receivers share a partition", Settings{Partitions: 1}, twoReceivers},
	{"the backlog tells what waits and what is held", Settings{Partitions: 1}, backlog},
	{"what the broker never takes is refused, and the rest is stored", Settings{}, refused},
	{"the largest payload arrives", Settings{}, largest},
	{"publishing ends with its context", Settings{}, publishEnds},
}

func arriveAsPublished(t *T) {
	b := t.bus()
	r := t.receive(b)
	w := events.Wire{
		Subject: b.Prefix() + ".start.order%20it.i%2E1", Body: []byte("{\"a\": \"ü\"}\x00\r\n"),
		Header: events.Header{events.HeaderMsgID: {"m/1"}, "Rondo-Version": {"1.2.3"}, "traceparent": {"a", "b"},
			"Rondo-Worker": {""}},
	}
	began := time.Now().Add(-time.Minute) // clocks may differ
	t.publish(b, w)
	g := r.take(1)[0]
	if g.Subject != w.Subject || !bytes.Equal(g.Body, w.Body) || !reflect.DeepEqual(g.Header, w.Header) {
		t.Errorf("%s %v %q arrived, want %s %v %q", g.Subject, g.Header, g.Body, w.Subject, w.Header, w.Body)
	}
	if g.NumDelivered != 1 || g.Sequence == 0 || g.StoredAt.Before(began) ||
		g.StoredAt.After(began.Add(2*time.Minute)) {
		t.Errorf("delivery %d, place %d, stored %v", g.NumDelivered, g.Sequence, g.StoredAt)
	}
	t.publish(b, events.Wire{Subject: b.Prefix() + ".wake.now.i"})
	if g := r.take(1)[0]; len(g.Body) != 0 || len(g.Header) != 0 {
		t.Errorf("a message of nothing arrived with %v and %q", g.Header, g.Body)
	}
	t.empty()
}

func inOrder(t *T) {
	b := t.bus()
	r := t.receive(b)
	const instances, each = 10, 60
	for call := range 3 {
		var messages []events.Wire
		for i := call * each / 3; i < (call+1)*each/3; i++ {
			for j := range instances {
				messages = append(messages, event(b, fmt.Sprint("x", j), fmt.Sprintf("x%d/%d", j, i)))
			}
		}
		t.publish(b, messages...)
	}
	all := r.take(instances * each)
	t.must(perInstance(all))
	places := make(map[int]uint64)
	for _, g := range all {
		if g.Sequence <= places[g.Partition] {
			t.Fatalf("place %d came after %d", g.Sequence, places[g.Partition])
		}
		places[g.Partition] = g.Sequence
	}
}

func goesAhead(t *T) {
	b := t.bus()
	const starts = 3000 // more than a receiver holds
	var messages []events.Wire
	for i := range starts {
		messages = append(messages, events.Wire{Subject: fmt.Sprint(b.Prefix(), ".start.o.i", i)})
	}
	want := []string{"task-begun.1-2.i0", "task-done.1-2.i0", "task-failed.1-3.i0", "timer-due.1-4.i0",
		"child-ended.1-5.i0", "not-a-verb.1-6.i0"}
	for _, w := range want {
		messages = append(messages, events.Wire{Subject: b.Prefix() + "." + w})
	}
	t.publish(b, messages...)
	stored := t.Stored(t.T) // more than were published, if the machine is so slow that some were published again
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came := make(chan string, len(want))
	ended := make(chan error, 1)
	var settled int
	go func() {
		known := make(map[string]bool)
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			if strings.HasPrefix(d.Subject, b.Prefix()+".start.") {
				<-ctx.Done() // there is no room for it
				d.Hold.Nak(0)
				return
			}
			if subject := strings.TrimPrefix(d.Subject, b.Prefix()+"."); !known[subject] {
				known[subject] = true
				came <- subject
			}
			settled++
			d.Hold.Ack()
		})
	}()
	for _, w := range want {
		select {
		case got := <-came:
			if got != w {
				t.Errorf("%s came, want %s", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("%s does not come while nobody takes starts", w)
		}
	}
	cancel()
	t.must(<-ended)
	if left, err := b.Backlog(t.Context(), 0); err != nil || int(left.Waiting+left.Held) != stored-settled {
		t.Errorf("%d wait and %d are held (%v), want %d in all", left.Waiting, left.Held, err, stored-settled)
	}
}

func onePartition(t *T) {
	b, other := t.bus(), t.bus()
	r := t.receive(b)
	subjects := []string{"start.o", "event.e", "queue.q", "control.cancel", "wake.w", "task-begun.1-2", "task-done.1-2",
		"task-failed.1-3", "timer-due.1-4", "child-ended.1-5"}
	used := make(map[int]bool)
	for i := range 20 {
		for j, verb := range subjects {
			from := []Bus{b, other}[j%2]
			t.publish(from, events.Wire{Subject: fmt.Sprintf("%s.%s.i%d", b.Prefix(), verb, i)})
		}
		var all []got
		for len(all) < len(subjects) {
			g := r.take(1)[0]
			if !strings.HasSuffix(g.Subject, fmt.Sprintf(".i%d", i)) && len(used) > 0 {
				continue // it was published twice, because the machine is slow
			}
			all = append(all, g)
		}
		for _, g := range all {
			if g.Partition != all[0].Partition {
				t.Fatalf("%s is in partition %d, %s in %d", g.Subject, g.Partition, all[0].Subject, all[0].Partition)
			}
		}
		used[all[0].Partition] = true
	}
	if len(used) < 2 {
		t.Errorf("20 instances are all in one of %d partitions", t.Partitions)
	}
}

// oddNames are texts that are hard to encode in a subject.
var oddNames = []string{
	"a b", "a.b", "*", ">", "a*b>c", "é ü 漢字 🎵", "_", "__", "a_b", "a/b", "/", ":", "a:b@c~d+e=f,g", "%", "%2E", "%5F",
	"..", "tab\tin it", strings.Repeat("漢", 42) + "ab",
}

func anyInstance(t *T) {
	b := t.bus()
	r := t.receive(b)
	ids := append([]string{strings.Repeat("x", 1024), strings.Repeat("ü", 128)}, oddNames...)
	partitions := make(map[string]int)
	for round := range 2 {
		for _, instance := range ids {
			w := event(b, instance, "")
			t.publish(b, w)
			g := r.take(1)[0]
			if g.Subject != w.Subject {
				t.Errorf("instance %q: %q arrived, want %q", instance, g.Subject, w.Subject)
			}
			if round == 1 && partitions[instance] != g.Partition {
				t.Errorf("instance %q: in partition %d, then in %d", instance, partitions[instance], g.Partition)
			}
			partitions[instance] = g.Partition
		}
	}
}

func dedupes(t *T) {
	b, other := t.bus(), t.bus()
	r := t.receive(b)
	t.publish(b, event(b, "i", "one"), event(b, "i", "two"), event(b, "i", "one"))
	t.publish(other, event(b, "i", "two"), event(b, "i", "three"))
	var ids []string
	for len(ids) == 0 || ids[len(ids)-1] != "three" {
		ids = append(ids, id(r.take(1)[0].Delivery))
	}
	// A message that another process publishes again may be stored twice: the receiver recognises
	// it by its id.
	if got := fmt.Sprint(ids); got != "[one two three]" && got != "[one two two three]" {
		t.Errorf("%v arrived", ids)
	}
	r.nothing(short / 2)
}

// sameIDs publishes different messages with one id: their subjects differ.
func sameIDs(t *T) {
	b := t.bus()
	r := t.receive(b)
	want := make(map[string]bool)
	for _, subject := range []string{".start.o.i", ".start.o.j", ".event.e.i", ".queue.e.i"} {
		w := event(b, "i", "4711")
		w.Subject = b.Prefix() + subject
		t.publish(b, w)
		want[w.Subject] = true
	}
	for range len(want) {
		g := r.take(1)[0]
		if !want[g.Subject] || id(g.Delivery) != "4711" {
			t.Errorf("%s came with id %q", g.Subject, id(g.Delivery))
		}
		delete(want, g.Subject)
	}
	t.empty()
}

func sameName(t *T) {
	b := t.bus()
	r := t.receive(b)
	t.publish(b, event(b, "i", ""), event(b, "i", ""))
	first, second := r.next(), r.next()
	again := r.next()
	if first.ID() == second.ID() || again.ID() != first.ID() {
		t.Errorf("names %q and %q, then %q", first.ID(), second.ID(), again.ID())
	}
}

func comesAgain(t *T) {
	b := t.bus()
	r := t.receive(b)
	published := time.Now()
	t.publish(b, event(b, "i", "x"))
	first := r.expect("x")[0]
	second := r.expect("x")[0]
	if second.NumDelivered != 2 || second.Sequence != first.Sequence || !second.StoredAt.Equal(first.StoredAt) {
		t.Errorf("delivery %d, place %d, stored %v; want the second of place %d, stored %v", second.NumDelivered,
			second.Sequence, second.StoredAt, first.Sequence, first.StoredAt)
	}
	if second.at.Before(published.Add(t.InboxAckWait / 2)) {
		t.Errorf("it came again %v after its publishing; the wait is %v", second.at.Sub(published), t.InboxAckWait)
	}
	second.Hold.Ack()
	r.settleRest(func(g got) { g.Hold.Ack() }) // on a slow machine, the ack wait may expire before the ack arrives
	r.nothing(t.InboxAckWait + short/2)
	t.empty()
}

func returned(t *T) {
	b := t.bus()
	r := t.receive(b)
	t.publish(b, event(b, "i", "x"))
	for n := 1; n <= 5; n++ {
		g := r.expect("x")[0]
		if g.NumDelivered != n {
			t.Errorf("delivery %d, want %d", g.NumDelivered, n)
		}
		if n == 5 {
			g.Hold.Ack()
		} else {
			g.Hold.Nak(0)
		}
	}
	t.empty()
}

func returnedLater(t *T) {
	b := t.bus()
	r := t.receive(b)
	t.publish(b, event(b, "i", "x"))
	g := r.expect("x")[0]
	returned := time.Now()
	g.Hold.Nak(short)
	t.publish(b, event(b, "i", "y"))
	r.expect("y")[0].Hold.Ack() // y does not wait for the nacked message
	again := r.expect("x")[0]
	again.Hold.Ack()
	if again.at.Before(returned.Add(short)) {
		t.Errorf("it came after %v, want %v", again.at.Sub(returned), short)
	}
	t.empty()
}

func extended(t *T) {
	b := t.bus()
	r := t.receive(b)
	t.sometimes(func(try string) (wrong string) {
		t.publish(b, event(b, "i", try))
		g := r.expect(try)[0]
		defer r.settleRest(func(g got) { g.Hold.Ack() })
		defer g.Hold.Ack()
		for range 10 {
			g.Hold.InProgress()
			select {
			case again := <-r.came:
				return fmt.Sprintf("delivery %d came in spite of an extension", again.NumDelivered)
			case <-time.After(t.InboxAckWait / 4):
			}
		}
		last := time.Now()
		g.Hold.InProgress()
		again := r.next()
		if id(again.Delivery) != try || again.NumDelivered != 2 || again.at.Before(last.Add(t.InboxAckWait/2)) {
			return fmt.Sprintf("delivery %d of %s came %v after it was last extended", again.NumDelivered,
				id(again.Delivery), again.at.Sub(last))
		}
		return ""
	})
}

func blockedReceiver(t *T) {
	n := racetest.Size(10_000, 4_000) // more than a receiver fetches ahead
	b := t.bus()
	machine, begun := slowtest.Begin(t.T), time.Now()
	var messages []events.Wire
	for i := range n {
		messages = append(messages, events.Wire{Subject: fmt.Sprintf("%s.task-done.1-2.i%d", b.Prefix(), i),
			Header: headerWith(fmt.Sprint(i))})
	}
	t.publish(b, messages...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var counts struct {
		first, more int
		held        broker.Delivery
	}
	blocked, free, done := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		done <- b.Receive(ctx, 0, func(d broker.Delivery) {
			switch {
			case counts.first == 0:
				counts.first, counts.held = 1, d
				close(blocked)
				<-free
			case d.Sequence == counts.held.Sequence: // it was held for longer than the ack wait
			case d.NumDelivered == 1:
				counts.first++
			default:
				counts.more++
			}
			d.Hold.Ack()
			if counts.first+counts.more == n {
				cancel()
			}
		})
	}()
	<-blocked
	pause(ctx, 3*t.InboxAckWait)
	now, err := b.Backlog(t.Context(), 0)
	t.must(err)
	if now.Held > int64(n/2) || now.Waiting < int64(n/2) {
		t.Errorf("%d are handed out to one who takes nothing", now.Held)
	}
	close(free)
	t.must(<-done)
	if lost := machine.Since(begun); lost > t.InboxAckWait/4 {
		t.Logf("the machine stood still for %v: %d of %d came more than once", lost, counts.more, n)
	} else if counts.more > n/50 { // some, if the machine is so busy that InProgress comes too late
		t.Errorf("%d of %d came more than once", counts.more, n)
	}
}

func leftBehind(t *T) {
	const n = 200
	a, b := t.bus(), t.bus()
	var messages []events.Wire
	for i := range n {
		messages = append(messages, event(a, fmt.Sprint("x", i%10), fmt.Sprintf("x%d/%d", i%10, i/10)))
	}
	t.publish(a, messages...)
	ctx, cancel := context.WithCancel(t.Context())
	var some []got
	t.must(a.Receive(ctx, 0, func(d broker.Delivery) {
		some = append(some, got{d, time.Now()})
		d.Hold.Ack()
		if len(some) == n/4 {
			cancel()
		}
	}))
	r := t.receive(b, 0)
	rest := r.take(n - len(some)) // before the ack wait expires, which is longer than the patience of the test
	t.must(perInstance(append(some, rest...)))
	t.empty()
}

func twoReceivers(t *T) {
	const n = 3000 // a receiver may have asked twice for its part
	a, b := t.bus(), t.bus()
	var mu sync.Mutex
	stored, came := make(map[uint64]bool), make(map[string]bool) // by place, and by id
	counts, firsts := make([]int, 2), 0
	first := []chan bool{make(chan bool), make(chan bool)} // closed with the first message of each receiver
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i, from := range []Bus{a, b} {
		all.Go(func() {
			err := from.Receive(ctx, 0, func(d broker.Delivery) {
				mu.Lock()
				stored[d.Sequence], came[id(d)] = true, true
				if d.NumDelivered == 1 {
					firsts++
				}
				counts[i]++
				n := counts[i]
				mu.Unlock()
				if n == 1 {
					close(first[i])
					select { // the other receiver gets the messages that exceed one prefetch
					case <-first[1-i]:
					case <-ctx.Done():
					}
				}
				d.Hold.Ack()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for k := range 10 {
		var messages []events.Wire
		for i := range n / 10 {
			messages = append(messages, event(a, fmt.Sprint(k*n+i), fmt.Sprintf("%d/%d", k, i)))
		}
		t.publish(a, messages...)
	}
	told := func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%d of %d messages came, %d were stored, %v deliveries, %d of them the first ones",
			len(came), n, len(stored), counts, firsts)
	}
	defer func() {
		if t.Failed() {
			t.Log(told())
		}
	}()
	t.eventually("all have come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(came) == n
	})
	t.empty() // on a machine that stalls, a message may be stored twice
	cancel()
	all.Wait()
	if counts[0] == 0 || counts[1] == 0 || firsts != len(stored) {
		t.Error(told())
	}
}

func backlog(t *T) {
	b := t.bus()
	t.publish(b, event(b, "i", "1"), event(b, "i", "2"), event(b, "i", "3"))
	is := func(waiting, held int64) {
		t.Helper()
		var now broker.Backlog
		t.eventually(fmt.Sprintf("%d wait and %d are held", waiting, held), func() (ok bool) {
			var err error
			now, err = b.Backlog(t.Context(), 0)
			t.must(err)
			return now.Waiting == waiting && now.Held == held
		})
	}
	is(3, 0)
	r := t.receive(b)
	all := r.expect("1", "2", "3")
	is(0, 3)
	if now, err := b.Backlog(t.Context(), 0); err != nil || now.Receivers == 0 {
		t.Errorf("%d receivers, %v", now.Receivers, err)
	}
	all[1].Hold.Ack()
	is(0, 2)
}

func refused(t *T) {
	b := t.bus()
	r := t.receive(b)
	bad := []events.Wire{
		{Subject: b.Prefix() + ".event.e.too.many.words"},
		{Subject: b.Prefix() + ".event"},
		{Subject: "elsewhere.event.e.i"},
		{Subject: ""},
		{Subject: b.Prefix() + ".event.e.*"},
		{Subject: b.Prefix() + ".event..i"},
		{Subject: b.Prefix() + ".event.e.with space"},
		{Subject: b.Prefix() + ".task._.a.i"},
		{Subject: b.Prefix() + ".event.e.large", Body: make([]byte, 4<<20)},
		{Subject: b.Prefix() + ".event.e.headers", Header: events.Header{"X": {strings.Repeat("x", 100_000)}}},
		{Subject: b.Prefix() + ".event.e.key", Header: events.Header{"bad key": {"x"}}},
	}
	var messages []events.Wire
	for i, w := range bad {
		messages = append(messages, w, event(b, "i", fmt.Sprint(i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := b.Publish(ctx, messages...)
	var refused *broker.Refused
	if !errors.As(err, &refused) {
		t.Fatalf("%v, want that messages are refused", err)
	}
	said := make(map[string]bool)
	for i, w := range refused.Messages {
		said[w.Subject] = true
		if errors.Is(refused.Reasons[i], broker.ErrMisconfigured) {
			t.Errorf("%q: a setting is taken for the reason", w.Subject)
		}
		t.Logf("%q: %v", w.Subject, refused.Reasons[i])
	}
	for _, w := range bad {
		if !said[w.Subject] {
			t.Errorf("%q is not refused", w.Subject)
		}
	}
	n := 0
	for range 2*len(bad) - len(refused.Messages) {
		if g := r.take(1)[0]; strings.HasSuffix(g.Subject, ".event.e.i") {
			if want := fmt.Sprint(n); id(g.Delivery) != want {
				t.Errorf("%q came, want %q", id(g.Delivery), want)
			}
			n++
		}
	}
	if n != len(bad) {
		t.Errorf("%d good messages arrived, want %d", n, len(bad))
	}
}

func largest(t *T) {
	b, other := t.bus(), t.bus()
	body := bytes.Repeat([]byte("0123456789abcdef"), events.MaxPayload/16)
	check := func(what string, d broker.Delivery) {
		t.Helper()
		if !bytes.Equal(d.Body, body) {
			t.Errorf("%s: %d bytes arrived, want %d", what, len(d.Body), len(body))
		}
	}
	r := t.receive(b)
	w := event(b, "i", "x")
	w.Body, w.Header["Attributes"] = body, []string{strings.Repeat("x", 16<<10)}
	t.publish(b, w)
	g := r.next()
	check("at once", g.Delivery)

	given := make(chan broker.Delivery, 1)
	stop, err := other.ReceiveHandovers(broker.HandoverInbox, "other",
		func(d broker.Delivery) error { given <- d; return nil })
	t.must(err)
	defer stop()
	t.eventually("it is handed over", func() bool { return b.Handover(t.Context(), "other", g.Delivery) == nil })
	d := <-given
	check("handed over", d)
	t.must(other.StoreDeadLetter(t.Context(), d,
		broker.Cause{Reason: "poison", Detail: "too large to swallow", By: "test", Attempts: 3}))
	d.Hold.Ack()

	later := timer(b, "i", "later", time.Now().Add(1700*time.Millisecond))
	later.Body = body
	t.publish(b, later)
	check("delayed", r.take(1)[0].Delivery)
	q := broker.TaskQueueName{Activity: "a"}
	wk := work(b, q, "i", "w")
	wk.Body = body
	t.publish(b, wk)
	for _, g := range t.takeWork(b, q, 1) {
		check("work", g.Delivery)
		g.Hold.Ack()
	}
	dead := t.Dead(t.T)
	if len(dead) != 1 || !bytes.Equal(dead[0].Body, body) {
		t.Errorf("%d dead letters, want the one of %d bytes", len(dead), len(body))
	}
	t.empty()
}

func publishEnds(t *T) {
	b := t.bus()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Publish(ctx, event(b, "i", "x")); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context has ended", err)
	}
	if err := b.Publish(t.Context()); err != nil {
		t.Errorf("publishing nothing: %v", err)
	}
}
