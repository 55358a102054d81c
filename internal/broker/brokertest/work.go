package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

var taskTests = []test{
	{"work that is there is handed out at once", Settings{}, workAtOnce},
	{"who takes work waits for it", Settings{}, workWaits},
	{"taking work ends with its context", Settings{}, takeEnds},
	{"what comes after a worker has given up goes to another", Settings{}, abandonedTake},
	{"several workers share a queue", Settings{}, sharedQueue},
	{"work that nobody settles comes again", Settings{TaskAckWait: short}, workAgain},
	{"work on a closed connection", Settings{}, workClosed},
	{"work may be extended, returned and acknowledged", Settings{TaskAckWait: short}, workHold},
	{"queues may have any name", Settings{}, anyQueue},
	{"queues of one activity with two tags are two", Settings{}, tagsApart},
	{"queues are known before a worker was there", Settings{}, queuesKnown},
	{"withdrawn work is not handed out", Settings{}, withdrawnWork},
	{"who holds withdrawn work is told", Settings{}, withdrawnHeld},
	{"withdrawals are told by tag", Settings{}, withdrawalsByTag},
	{"delayed work may be withdrawn", Settings{}, withdrawnDelayedWork},
	{"work that is published again after it was withdrawn stays", Settings{}, withdrawnAndAgain},
	{"many activity tasks are withdrawn at once", Settings{}, withdrawnMany},
	{"the backlog of a queue tells what waits and what is held", Settings{}, workBacklog},
	{"dead letters are kept with the reason", Settings{}, deadLettered},
	{"dead letters are kept whatever their headers are", Settings{}, deadLetteredOdd},
	{"dead letters can be shown, replayed and dropped", Settings{}, deadLetterStore},
}

// open opens a task queue.
func (t *T) open(b Bus, q broker.TaskQueueName) broker.TaskQueue {
	t.Helper()
	w, err := b.OpenTaskQueue(t.Context(), q)
	t.must(err)
	return w
}

// takeWork takes n tasks and leaves them unsettled.
func (t *T) takeWork(b Bus, q broker.TaskQueueName, n int) []got {
	t.Helper()
	w := t.open(b, q)
	var all []got
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(all) < n {
		if ctx.Err() != nil {
			t.Fatalf("%d activity tasks came, want %d", len(all), n)
		}
		_, err := w.Take(ctx, n-len(all), func(d broker.Delivery) { all = append(all, got{d, time.Now().Round(0)}) })
		t.must(err)
	}
	return all
}

// noWork checks that a task queue has no task to deliver.
func (t *T) noWork(b Bus, q broker.TaskQueueName, during time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	_, err := t.open(b, q).Take(ctx, 10, func(d broker.Delivery) { t.Errorf("%s (%s) came", d.Subject, id(d)) })
	t.must(err)
}

func workAtOnce(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Tag: "t", Activity: "a"}
	t.publish(b, work(b, q, "i", "1"), work(b, q, "i", "2"), work(b, q, "j", "3"))
	w := t.open(b, q)
	came := make(chan broker.Delivery, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int)
	go func() {
		n, err := w.Take(ctx, 10, func(d broker.Delivery) { came <- d })
		if err != nil {
			t.Error(err)
		}
		ended <- n
	}()
	for _, want := range []string{"1", "2", "3"} { // while it waits for seven more
		select {
		case d := <-came:
			if id(d) != want || d.NumDelivered != 1 {
				t.Errorf("%q came, delivery %d, want %q", id(d), d.NumDelivered, want)
			}
			d.Hold.Ack()
		case <-time.After(soon):
			t.Fatalf("%q did not come", want)
		}
	}
	cancel()
	if n := <-ended; n != 3 {
		t.Errorf("Take says %d", n)
	}
	t.empty()
}

func workWaits(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	w := t.open(b, q)
	for i := range 3 {
		done := make(chan error, 1)
		var taken got
		go func() {
			n, err := w.Take(t.Context(), 1, func(d broker.Delivery) { taken = got{d, time.Now()} })
			if n != 1 && err == nil {
				err = fmt.Errorf("it took %d", n)
			}
			done <- err
		}()
		t.eventually("somebody asks", func() bool {
			l, err := b.TaskBacklog(t.Context(), q)
			return err == nil && l.Receivers > 0
		})
		t.publish(b, work(b, q, "i", fmt.Sprint(i)))
		select {
		case err := <-done:
			t.must(err)
		case <-time.After(soon):
			t.Fatal("it did not come")
		}
		taken.Hold.Ack()
	}
	t.empty()
}

func takeEnds(t *T) {
	b := t.bus()
	w := t.open(b, broker.TaskQueueName{Activity: "a"})
	for _, n := range []int{1, 64, 1000} {
		ctx, cancel := context.WithTimeout(t.Context(), short/4)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if taken, err := w.Take(ctx, n, func(broker.Delivery) {}); taken != 0 || err != nil {
				t.Errorf("it took %d: %v", taken, err)
			}
		}()
		select {
		case <-ended:
		case <-time.After(soon):
			t.Fatal("it does not end with its context")
		}
		cancel()
	}
}

func abandonedTake(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	w := t.open(b, q)
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Millisecond)
		done := make(chan bool)
		go func() {
			defer close(done)
			if _, err := w.Take(ctx, 10, func(d broker.Delivery) { d.Hold.Ack() }); err != nil {
				t.Error(err)
			}
		}()
		pause(t.Context(), time.Duration(i)*5*time.Millisecond)
		t.publish(b, work(b, q, fmt.Sprint("i", i), ""))
		<-done
		cancel()
	}
	// The ack wait is longer than the patience of the test: a lost task does not arrive in time.
	var left int64
	t.eventually("the rest is taken", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), short/2)
		defer cancel()
		_, err := w.Take(ctx, 10, func(d broker.Delivery) { d.Hold.Ack() })
		t.must(err)
		l, err := b.TaskBacklog(t.Context(), q)
		t.must(err)
		left = l.Waiting + l.Held
		return left == 0
	})
}

func sharedQueue(t *T) {
	const n, workers = 600, 6
	q := broker.TaskQueueName{Activity: "a"}
	a, b := t.bus(), t.bus()
	var mu sync.Mutex
	by, counts := make(map[uint64]int), make([]int, workers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range workers {
		w := t.open([]Bus{a, b}[i%2], q)
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := w.Take(ctx, 5, func(d broker.Delivery) {
					mu.Lock()
					defer mu.Unlock()
					by[d.Sequence]++
					counts[i]++
					d.Hold.Ack()
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	published := 0
	publish := func() {
		var messages []events.Wire
		for range n / 10 {
			messages = append(messages, work(a, q, fmt.Sprint(published), ""))
			published++
		}
		t.publish(a, messages...)
	}
	for range 10 {
		publish()
	}
	t.eventually("all work is taken, and not by one worker alone", func() bool {
		mu.Lock()
		all, most := len(by) == published, slices.Max(counts)
		mu.Unlock()
		if all && most == published { // the others did not get the processor meanwhile
			publish()
			return false
		}
		return all
	})
	cancel()
	all.Wait()
	sum := 0
	for _, c := range counts {
		sum += c
	}
	if sum != published {
		t.Errorf("%v were taken, of %d", counts, published)
	}
	t.empty()
}

func workAgain(t *T) {
	b, other := t.bus(), t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	published := time.Now()
	t.publish(b, work(b, q, "i", "x"))
	first := t.takeWork(other, q, 1)[0]
	t.must(other.Close())
	again := t.takeWork(b, q, 1)[0]
	if again.NumDelivered != 2 || again.at.Before(published.Add(t.TaskAckWait/2)) || again.Sequence != first.Sequence {
		t.Errorf("delivery %d of place %d came %v after the publishing of place %d", again.NumDelivered, again.Sequence,
			again.at.Sub(published), first.Sequence)
	}
	again.Hold.Ack()
	t.empty()
}

// A caller that gets no task and no error takes again at once, and would do so until it ends.
func workClosed(t *T) {
	b := t.bus()
	q, err := b.OpenTaskQueue(t.Context(), broker.TaskQueueName{Activity: "a"})
	t.must(err)
	t.must(b.Close())
	if n, err := q.Take(t.Context(), 1, func(broker.Delivery) {}); n != 0 || err == nil {
		t.Errorf("%d tasks were taken on a closed connection, with error %v", n, err)
	}
}

func workHold(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	t.sometimes(func(try string) (wrong string) {
		t.publish(b, work(b, q, "i", try))
		g := t.takeWork(b, q, 1)[0]
		for range 8 {
			g.Hold.InProgress()
			pause(t.Context(), t.TaskAckWait/4)
		}
		if l, err := b.TaskBacklog(t.Context(), q); err != nil || l.Held != 1 || l.Waiting != 0 {
			wrong = fmt.Sprintf("%+v, %v; want that it is held", l, err)
		}
		g.Hold.Nak(0)
		g = t.takeWork(b, q, 1)[0]
		returned := time.Now()
		g.Hold.Nak(short / 2)
		g = t.takeWork(b, q, 1)[0]
		if after := g.at.Sub(returned); g.at.Before(returned.Add(short/2)) || g.NumDelivered != 3 {
			wrong = fmt.Sprintf("delivery %d came %v after it was returned, want the third after %v", g.NumDelivered,
				after, short/2)
		}
		g.Hold.Ack()
		t.empty()
		return wrong
	})
}

func anyQueue(t *T) {
	b, other := t.bus(), t.bus()
	queues := []broker.TaskQueueName{{Activity: "plain"}, {Tag: "t", Activity: strings.Repeat("a", 128)},
		{Tag: strings.Repeat("ü", 64), Activity: strings.Repeat("é", 64)}}
	for i, name := range oddNames {
		queues = append(queues, broker.TaskQueueName{Activity: name}, broker.TaskQueueName{Tag: name, Activity: "a"},
			broker.TaskQueueName{Tag: name, Activity: oddNames[(i+1)%len(oddNames)]})
	}
	for i, q := range queues {
		t.publish(b, work(b, q, fmt.Sprint(i), fmt.Sprint("q", i)))
	}
	for i, q := range queues {
		g := t.takeWork(other, q, 1)[0]
		if want := fmt.Sprint("q", i); id(g.Delivery) != want {
			t.Errorf("queue %q of tag %q: %s came, want %s", q.Activity, q.Tag, id(g.Delivery), want)
		}
		g.Hold.Ack()
	}
	known, err := other.ListTaskQueues(t.Context())
	t.must(err)
	for _, q := range queues {
		if !slices.Contains(known, q) {
			t.Errorf("queue %q of tag %q is not known", q.Activity, q.Tag)
		}
	}
	if len(known) != len(queues) {
		t.Errorf("%d queues are known, want %d", len(known), len(queues))
	}
	t.empty()
}

func tagsApart(t *T) {
	b := t.bus()
	none, gpu, underscore := broker.TaskQueueName{Activity: "a"}, broker.TaskQueueName{Tag: "gpu", Activity: "a"},
		broker.TaskQueueName{Tag: "_", Activity: "a"}
	for i, q := range []broker.TaskQueueName{none, gpu, underscore} {
		t.publish(b, work(b, q, fmt.Sprint(i), q.Tag+"!"))
	}
	for _, q := range []broker.TaskQueueName{gpu, underscore, none} {
		g := t.takeWork(b, q, 1)[0]
		if id(g.Delivery) != q.Tag+"!" {
			t.Errorf("tag %q was given %q", q.Tag, id(g.Delivery))
		}
		g.Hold.Ack()
		t.noWork(b, q, short/5)
	}
	t.empty()
}

func queuesKnown(t *T) {
	b, other := t.bus(), t.bus()
	if known, err := other.ListTaskQueues(t.Context()); err != nil || len(known) != 0 {
		t.Errorf("%v, %v; want none", known, err)
	}
	t.publish(b, work(b, broker.TaskQueueName{Activity: "a"}, "i", "x"),
		work(b, broker.TaskQueueName{Tag: "t", Activity: "b.c"}, "i", "y"))
	t.open(b, broker.TaskQueueName{Activity: "taken from"})
	want := []broker.TaskQueueName{{Activity: "a"}, {Tag: "t", Activity: "b.c"}, {Activity: "taken from"}}
	t.eventually("the queues are known", func() bool {
		known, err := other.ListTaskQueues(t.Context())
		t.must(err)
		return len(known) == 3 && slices.Contains(known, want[0]) && slices.Contains(known, want[1]) &&
			slices.Contains(known, want[2])
	})
}

func withdrawnWork(t *T) {
	b, other := t.bus(), t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	gone, stays := work(b, q, "i", "gone"), work(b, q, "j", "stays")
	t.publish(b, gone, stays)
	t.publish(other, withdraw(gone))
	g := t.takeWork(b, q, 1)[0]
	if id(g.Delivery) != "stays" {
		t.Errorf("%q came", id(g.Delivery))
	}
	g.Hold.Ack()
	t.noWork(b, q, short/4)
	t.empty()
}

func withdrawnHeld(t *T) {
	b, other := t.bus(), t.bus()
	q := broker.TaskQueueName{Tag: "t", Activity: "a b"}
	w := work(b, q, "i.1", "x")
	t.publish(b, w)
	g := t.takeWork(b, q, 1)[0]
	told := make(chan string, 10)
	stop, err := b.Withdrawals(nil, func(subject string) { told <- subject })
	t.must(err)
	defer stop()
	stored := func() bool {
		is, err := b.Stored(t.Context(), g.Delivery)
		t.must(err)
		return is
	}
	if !stored() {
		t.Error("it is not stored while it is held")
	}
	t.publish(other, withdraw(w))
	if stored() {
		t.Error("it is stored after it was withdrawn")
	}
	select {
	case subject := <-told:
		if subject != w.Subject {
			t.Errorf("told of %q, want %q", subject, w.Subject)
		}
	case <-time.After(soon):
		t.Error("nobody was told")
	}
	g.Hold.InProgress()
	g.Hold.Ack() // harmless
	t.empty()
}

func withdrawalsByTag(t *T) {
	b := t.bus()
	told := make(chan string, 20)
	for _, tags := range [][]string{{""}, {"gpu", "_"}, nil} {
		stop, err := b.Withdrawals(tags, func(subject string) {
			told <- fmt.Sprintf("%q %s", tags, strings.TrimPrefix(subject, b.Prefix()+".task."))
		})
		t.must(err)
		defer stop()
	}
	for _, tag := range []string{"", "gpu", "_", "x.y"} {
		t.publish(b, withdraw(work(b, broker.TaskQueueName{Tag: tag, Activity: "a"}, "i", "")))
	}
	var all []string
	for range 7 {
		select {
		case s := <-told:
			all = append(all, s)
		case <-time.After(soon):
			t.Fatalf("told of %q only", all)
		}
	}
	slices.Sort(all)
	want := []string{
		`[""] _.a.1-2.i`, `["gpu" "_"] %5F.a.1-2.i`, `["gpu" "_"] gpu.a.1-2.i`, `[] %5F.a.1-2.i`, `[] _.a.1-2.i`,
		`[] gpu.a.1-2.i`, `[] x%2Ey.a.1-2.i`,
	}
	if !slices.Equal(all, want) {
		t.Errorf("told of %q, want %q", all, want)
	}
}

func withdrawnDelayedWork(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	for i, delay := range []time.Duration{300 * time.Millisecond, 2 * time.Second, time.Hour} {
		w := work(b, q, fmt.Sprint("i", i), "")
		w.NotBefore = time.Now().Add(delay)
		t.publish(b, w)
		t.publish(b, withdraw(w))
	}
	t.empty()
	t.noWork(b, q, short/2)
}

func withdrawnAndAgain(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	first, second := work(b, q, "i", "first"), work(b, q, "i", "second")
	t.publish(b, first, withdraw(first), second, work(b, q, "j", "third"))
	for i, want := range []string{"second", "third"} {
		g := t.takeWork(b, q, 1)[0]
		if id(g.Delivery) != want {
			t.Errorf("%d: %q came, want %q", i, id(g.Delivery), want)
		}
		g.Hold.Ack()
	}
	t.publish(b, work(b, q, "k", "4"), withdraw(work(b, q, "k", "")))
	t.empty()
}

func withdrawnMany(t *T) {
	const n = 500
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	var publish, back []events.Wire
	for i := range n {
		w := work(b, q, fmt.Sprint("i", i), "")
		publish, back = append(publish, w), append(back, withdraw(w))
	}
	var told counter
	stop, err := b.Withdrawals([]string{""}, func(string) { told.add() })
	t.must(err)
	defer stop()
	t.publish(b, publish...)
	t.publish(b, back...)
	t.empty()
	t.eventually("all are told", func() bool { return told.is() == n })
}

func workBacklog(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	if none, err := b.TaskBacklog(t.Context(), q); err != nil || none != (broker.Backlog{}) {
		t.Errorf("%+v, %v in a queue that is none", none, err)
	}
	if known, err := b.ListTaskQueues(t.Context()); err != nil || len(known) > 0 {
		t.Errorf("asking made %v, %v", known, err)
	}
	t.open(b, q)
	is := func(waiting, held int64) {
		t.Helper()
		t.eventually(fmt.Sprintf("%d wait and %d are held", waiting, held), func() bool {
			l, err := b.TaskBacklog(t.Context(), q)
			t.must(err)
			return l.Waiting == waiting && l.Held == held
		})
	}
	is(0, 0)
	t.publish(b, work(b, q, "1", ""), work(b, q, "2", ""), work(b, q, "3", ""))
	is(3, 0)
	all := t.takeWork(b, q, 2)
	is(1, 2)
	all[0].Hold.Ack()
	all[1].Hold.Nak(0)
	is(1, 1) // a nacked task still counts as held
}

func deadLettered(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Tag: "t", Activity: "a"}
	r := t.receive(b)
	e := event(b, "i.1", "e1")
	e.Header["Rondo-Version"] = []string{"2"}
	t.publish(b, e, work(b, q, "i.2", "w1"))
	for _, g := range append([]got{r.next()}, t.takeWork(b, q, 1)...) {
		why := broker.Cause{Reason: "poison", Detail: "it failed:\nagain and again ü", By: "tester", Attempts: 7}
		t.must(b.StoreDeadLetter(t.Context(), g.Delivery, why))
		t.must(b.StoreDeadLetter(t.Context(), g.Delivery, why)) // as after a crash
		g.Hold.Ack()
	}
	dead := t.Dead(t.T)
	if len(dead) != 2 {
		t.Fatalf("%d dead letters, want 2", len(dead))
	}
	for i, want := range []struct{ subject, was, id, body string }{
		{".dead.event.e.i%2E1", e.Subject, "e1", "e1"},
		{".dead.task.t.a.1-2.i%2E2", b.Prefix() + ".task.t.a.1-2.i%2E2", "w1", "w1"},
	} {
		h := dead[i].Header
		got := fmt.Sprint(dead[i].Subject, h["Rondo-Dead-Reason"], h["Rondo-Dead-Detail"], h["Rondo-Dead-By"],
			h["Rondo-Dead-Attempts"], h["Rondo-Dead-Subject"], h["Rondo-Dead-Id"], string(dead[i].Body))
		wanted := fmt.Sprint(b.Prefix()+want.subject, []string{"poison"}, []string{"it failed: again and again ü"},
			[]string{"tester"}, []string{"7"}, []string{want.was}, []string{want.id}, want.body)
		if got != wanted {
			t.Errorf("%s\nwant %s", got, wanted)
		}
	}
	if v := dead[0].Header["Rondo-Version"]; len(v) != 1 || v[0] != "2" {
		t.Errorf("the letter's own header is %q", v)
	}
	t.empty()
}

func deadLetterStore(t *T) {
	b, c := t.bus(), t.bus()
	if list, err := c.DeadLetters(t.Context(), 0, 10); err != nil || len(list) != 0 {
		t.Errorf("%v, %v; want none", list, err)
	}
	q := broker.TaskQueueName{Tag: "t", Activity: "a"}
	r := t.receive(b)
	e := event(b, "i.1", "e1")
	e.Header["Rondo-Version"] = []string{"2"}
	e.Header["X"] = []string{"of no message of Rondo"}
	t.publish(b, e, work(b, q, "i.2", "w1"))
	why := broker.Cause{Reason: "poison", Detail: "it failed", By: "tester", Attempts: 7}
	for _, g := range append([]got{r.next()}, t.takeWork(b, q, 1)...) {
		t.must(b.StoreDeadLetter(t.Context(), g.Delivery, why))
		g.Hold.Ack()
	}
	for i := range 3 {
		d := broker.Delivery{Subject: b.Prefix() + ".event.e.x", Sequence: uint64(1000 + i),
			StoredAt: time.Now().Add(time.Duration(i)), // no two deliveries have the same time
			Header:   events.Header{"Rondo-Attributes": {strings.Repeat("x", 64<<10)}}}
		t.must(b.StoreDeadLetter(t.Context(), d, why))
	}
	all, err := c.DeadLetters(t.Context(), 0, 10)
	t.must(err)
	if len(all) != 5 {
		t.Fatalf("%d dead letters, want 5", len(all))
	}
	page, err := c.DeadLetters(t.Context(), all[1].Sequence, 2)
	t.must(err)
	if len(page) != 2 || page[0].Sequence != all[2].Sequence || page[1].Sequence != all[3].Sequence {
		t.Errorf("the page behind %d is %+v", all[1].Sequence, page)
	}
	if l := all[0]; l.Subject != e.Subject || l.ID != "e1" || string(l.Body) != "e1" || l.Why != why || l.Lost ||
		len(l.Header) != 1 || l.Header["Rondo-Version"][0] != "2" ||
		l.StoredAt.IsZero() || l.DeadLetteredAt.Before(l.StoredAt) {
		t.Errorf("%+v", l)
	}
	if !all[4].Lost {
		t.Errorf("%+v, want that it is lost", all[4])
	}
	one, err := c.DeadLetter(t.Context(), all[1].Sequence)
	t.must(err)
	if one.ID != "w1" {
		t.Errorf("%+v", one)
	}
	t.must(c.Replay(t.Context(), all[0].Sequence))
	if d := r.next().Delivery; d.Subject != e.Subject || id(d) != "e1" || string(d.Body) != "e1" ||
		d.Header["Rondo-Version"][0] != "2" {
		t.Errorf("%+v came, want what was there at first", d)
	} else {
		d.Hold.Ack()
	}
	t.must(c.Replay(t.Context(), all[1].Sequence))
	g := t.takeWork(b, q, 1)[0]
	if id(g.Delivery) != "w1" {
		t.Errorf("%+v came, want w1", g)
	}
	g.Hold.Ack()
	if err := c.Replay(t.Context(), all[4].Sequence); err == nil || errors.Is(err, broker.ErrNoLetter) {
		t.Errorf("%v, want that it was too large", err)
	}
	t.must(c.Drop(t.Context(), all[4].Sequence))
	for what, err := range map[string]error{
		"replay": c.Replay(t.Context(), all[0].Sequence), "drop": c.Drop(t.Context(), all[4].Sequence),
		"drop the future": c.Drop(t.Context(), 1<<40),
	} {
		if !errors.Is(err, broker.ErrNoLetter) {
			t.Errorf("%s: %v, want that there is none", what, err)
		}
	}
	odd := broker.Delivery{Subject: b.Prefix() + ".event.e.%78", Sequence: 2000, StoredAt: time.Now()}
	t.must(b.StoreDeadLetter(t.Context(), odd, why))
	left, err := c.DeadLetters(t.Context(), 0, 10)
	t.must(err)
	if len(left) != 3 {
		t.Fatalf("%d are left; want 3", len(left))
	}
	if err := c.Replay(t.Context(), left[2].Sequence); err == nil || !strings.Contains(err.Error(), `write "x"`) {
		t.Errorf("replay of another spelling: %v; want the right one", err)
	}
	if l, err := c.DeadLetter(t.Context(), left[2].Sequence); err != nil || l.Subject != odd.Subject {
		t.Errorf("%+v, %v; want that it remains", l, err)
	}
	t.empty()
}

func deadLetteredOdd(t *T) {
	b := t.bus()
	odd := map[string]broker.Delivery{
		"weird": {Subject: b.Prefix() + ".event.e.a", Header: events.Header{"X": {"a\r\nNats-Msg-Id: b\x00\x7f",
			"\xff\xfe"}, "Nats-Rollup": {"all"}, "Nats-Expected-Stream": {"other"}}, Body: []byte("x")},
		"no headers": {Subject: b.Prefix() + ".event.e.b"},
		"headers": {Subject: b.Prefix() + ".event.e.c",
			Header: events.Header{"Rondo-Attributes": {strings.Repeat("x", 64<<10)}}, Body: []byte("x")},
		"body": {Subject: b.Prefix() + ".event.e.d",
			Header: events.Header{"Rondo-Attributes": {strings.Repeat("x", 60<<10)}},
			Body:   make([]byte, 1<<20-60<<10)},
		"elsewhere": {Subject: "other.event.e.i"},
		"no shape":  {Subject: b.Prefix() + ".x"},
		"bad key":   {Subject: b.Prefix() + ".event.e.f", Header: events.Header{"bad key\r\n": {"x"}}},
	}
	for name, d := range odd {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		d.Sequence, d.StoredAt = uint64(len(name)), time.Now()
		if err := b.StoreDeadLetter(ctx, d,
			broker.Cause{Reason: name, Detail: strings.Repeat("\x01 long\n", 10_000)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	reasons := make(map[string]bool)
	for _, w := range t.Dead(t.T) {
		for _, r := range w.Header["Rondo-Dead-Reason"] {
			reasons[r] = true
		}
	}
	for name := range odd {
		if !reasons[name] {
			t.Errorf("%s is not kept", name)
		}
	}
}
