package brokertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

var delayTests = []test{
	{"delayed messages are never early and hardly late", Settings{}, punctual},
	{"a delayed message keeps its id and its headers", Settings{}, delayedKeepsHeaders},
	{"a delay in the past is none", Settings{}, pastDelay},
	{"a delayed message replaces the one before it", Settings{}, replaced},
	{"a delayed start replaces the one before it until that is due", Settings{}, replacedStart},
	{"a delayed start that is replaced while nothing runs does not come", Settings{}, replacedMeanwhile},
	{"a delayed start replaces the one before it, even if it arrives late", Settings{}, replacedLate},
	{"a delayed start does not replace one that was due before", Settings{}, notReplaced},
	{"a delayed message that is withdrawn does not come", Settings{}, withdrawnDelay},
	{"delayed messages of people are all kept, and come in the order of their times", Settings{}, delayedOfPeople},
	{"a delayed message may be withdrawn when it has come", Settings{}, withdrawnLate},
	{"a delay may be as long as can be", Settings{}, farDelay},
	{"delayed work is not early", Settings{}, delayedWork},
	{"a delayed message keeps its moment while nothing is received", Settings{}, keepsMoment},
	{"a delayed message outlives its receiver", Settings{InboxAckWait: 4 * time.Second}, delayedOutlives},
	{"the broker tells whether it still has a message", Settings{}, has},
	{"the broker lists the messages of a subject", Settings{}, storedUnder},
}

func punctual(t *T) {
	const n = 400
	b := t.bus()
	r := t.receive(b)
	random := rand.New(rand.NewPCG(1, 2))
	due := make(map[string]time.Time)
	var messages []events.Wire
	for i := range n {
		delay := 10*time.Millisecond + time.Duration(random.Int64N(int64(4*time.Second)))
		instance := fmt.Sprint("i", i)
		due[instance] = time.Now().Add(delay)
		messages = append(messages, timer(b, instance, instance, due[instance]))
	}
	t.publish(b, messages...)
	var late []time.Duration
	for range n {
		g := r.next()
		g.Hold.Ack()
		by := g.at.Sub(due[id(g.Delivery)])
		if by < 0 {
			t.Errorf("%s is %v early", id(g.Delivery), -by)
		}
		if g.NumDelivered != 1 {
			t.Errorf("%s came for the %d. time", id(g.Delivery), g.NumDelivered)
		}
		late = append(late, by)
	}
	slices.Sort(late)
	t.Logf("late by: p50 %v, p99 %v, most %v", late[n/2], late[n*99/100], late[n-1])
	t.empty()
}

func delayedKeepsHeaders(t *T) {
	b := t.bus()
	r := t.receive(b)
	for i, delay := range []time.Duration{300 * time.Millisecond, 1800 * time.Millisecond} {
		w := timer(b, fmt.Sprint(i), fmt.Sprint("timer/", i), time.Now().Add(delay))
		w.Header["Rondo-Due"] = []string{"a", "b"}
		t.publish(b, w, w)
	}
	for i, g := range r.take(2) {
		want := fmt.Sprintf("map[Rondo-Due:[a b] Rondo-Id:[timer/%d]]", i)
		if got := fmt.Sprint(g.Header); got != want || g.Subject != fmt.Sprintf("%s.timer-due.1-2.%d", b.Prefix(), i) {
			t.Errorf("%s with %s, want %s", g.Subject, got, want)
		}
	}
	t.empty()
}

func pastDelay(t *T) {
	b := t.bus()
	r := t.receive(b)
	t.publish(b, timer(b, "i", "x", time.Now().Add(-time.Hour)), timer(b, "i", "y", time.Unix(1, 0)))
	r.take(2)
	t.empty()
}

func replaced(t *T) {
	b := t.bus()
	r := t.receive(b)
	now := time.Now()
	for i := range 5 {
		t.publish(b, timer(b, "i", fmt.Sprint("far", i), now.Add(time.Hour)))
	}
	if n := t.Stored(t.T); n != 1 {
		t.Errorf("%d are stored, want the last one only", n)
	}
	t.publish(b, timer(b, "i", "near", time.Now().Add(2*time.Second)))
	if g := r.take(1)[0]; id(g.Delivery) != "near" {
		t.Errorf("%q came, want the last one", id(g.Delivery))
	}
	t.empty()
	r.nothing(short / 4)
}

// replacedStart publishes two delayed starts for each of some instances. Only the second one must
// be delivered, however near the first one was.
func replacedStart(t *T) {
	b, other := t.bus(), t.bus()
	r := t.receive(b)
	starts := []struct{ first, pause, second time.Duration }{
		{10 * time.Second, 0, 2 * time.Second},
		{10 * time.Second, 0, 300 * time.Millisecond},
		{900 * time.Millisecond, 0, 2 * time.Second},
		{1200 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond},
		{2500 * time.Millisecond, 1800 * time.Millisecond, 2 * time.Second}, // the receiver already has the first one
		{2500 * time.Millisecond, 1800 * time.Millisecond, 300 * time.Millisecond},
	}
	start := func(i int, verb, id string, delay time.Duration) events.Wire {
		return events.Wire{Subject: fmt.Sprintf("%s.%s.i%d", b.Prefix(), verb, i), Header: headerWith(id),
			NotBefore: time.Now().Add(delay)}
	}
	var all sync.WaitGroup
	// tooLate has the subjects whose first message was due before the second one was stored, or
	// whose second one was due by then: a message whose time has passed is not a delayed one.
	var tooLate sync.Map
	for i, s := range starts {
		for _, verb := range []string{"start.o", "control.cancel"} {
			all.Go(func() {
				first := start(i, verb, "first", s.first)
				t.publish(b, first)
				<-time.After(s.pause) // the test is about a message that becomes due before another is published
				second := start(i, verb, "second", s.second)
				t.publish(other, second)
				if now := time.Now(); !now.Before(first.NotBefore) || !now.Before(second.NotBefore) {
					tooLate.Store(first.Subject, true)
				}
			})
		}
	}
	all.Wait()
	came := make(map[string]bool)
	take := func(g got) {
		g.Hold.Ack()
		if id(g.Delivery) == "second" {
			came[g.Subject] = true
		} else if _, allowed := tooLate.Load(g.Subject); !allowed {
			t.Errorf("%s: the first one came, too", g.Subject)
		}
	}
	for len(came) < 2*len(starts) {
		take(r.next())
	}
	r.settleRest(take) // also of first ones that came behind the second ones
	r.nothing(short)
}

// delayedStart is a start or a cancellation that is due after a while.
func delayedStart(b Bus, verb, id string, delay time.Duration) events.Wire {
	return events.Wire{Subject: fmt.Sprintf("%s.%s.i", b.Prefix(), verb), Header: headerWith(id),
		NotBefore: time.Now().Add(delay)}
}

// replacedLate publishes two delayed starts while nothing is received. The second one is due when
// it arrives. If the machine is so slow that it was due when the broker stored it, it was not
// delayed, and another one is published.
func replacedLate(t *T) {
	b, published := t.bus(), 0
	for _, verb := range []string{"start.o", "control.cancel"} {
		t.publish(b, delayedStart(b, verb, "first", time.Hour))
		for delay := 300 * time.Millisecond; ; delay *= 2 {
			second := delayedStart(b, verb, fmt.Sprint("second in ", delay), delay)
			t.publish(b, second)
			published++
			if time.Now().Before(second.NotBefore) {
				<-time.After(time.Until(second.NotBefore)) // the test is about a message that is due when it arrives
				break
			}
		}
	}
	r := t.receive(b)
	for _, g := range r.take(published) {
		if id(g.Delivery) == "first" {
			t.Errorf("%s: the first one came", g.Subject)
		}
	}
	t.empty()
}

// replacedMeanwhile publishes a second start before the first one is due, while nothing is
// received. Both are due when something is received again.
func replacedMeanwhile(t *T) {
	b := t.bus()
	r := t.receive(b)
	first := delayedStart(b, "start.o", "first", 3*time.Second)
	t.publish(b, first)
	r.nothing(time.Second) // the broker stores it for later
	r.stop()
	second := delayedStart(b, "start.o", "second", 300*time.Millisecond)
	t.publish(b, second)
	// On a slow machine, it may be too late, or not delayed any more. Then the first one may come,
	// too.
	now := time.Now()
	tooLate := !now.Before(first.NotBefore) || !now.Before(second.NotBefore)
	<-time.After(time.Until(first.NotBefore)) // the test is about messages that are due when something runs
	r = t.receive(b)
	var came []string
	take := func(g got) {
		g.Hold.Ack()
		came = append(came, id(g.Delivery))
	}
	for !slices.Contains(came, "second") {
		take(r.next())
	}
	r.settleRest(take)
	r.nothing(short)
	if slices.Contains(came, "first") && !tooLate {
		t.Errorf("came %v, want the second one only", came)
	}
	t.empty()
}

// notReplaced publishes a second start after the first one is due, while nothing is received.
func notReplaced(t *T) {
	b := t.bus()
	r := t.receive(b)
	first := delayedStart(b, "start.o", "first", 3*time.Second)
	t.publish(b, first)
	r.nothing(time.Second) // the broker stores it for later
	r.stop()
	<-time.After(time.Until(first.NotBefore)) // the test is about a message that is due before another is published
	t.publish(b, delayedStart(b, "start.o", "second", 3*time.Second))
	var came []string
	r = t.receive(b)
	for _, g := range r.take(2) {
		came = append(came, id(g.Delivery))
	}
	slices.Sort(came) // on a slow machine, both are due
	if fmt.Sprint(came) != "[first second]" {
		t.Errorf("came %v, want both", came)
	}
	t.empty()
}

// delayedOfPeople publishes delayed messages whose times are close together. On a slow machine, the
// broker may have the first ones for later while the receiver gets the others when their time is
// near, and holds them itself. Then only the order of those and the order of these is kept.
func delayedOfPeople(t *T) {
	b := t.bus()
	r := t.receive(b)
	for _, delay := range []time.Duration{600 * time.Millisecond, 2500 * time.Millisecond} {
		due := time.Now().Add(delay)
		var want []string
		for i := range 5 {
			name := fmt.Sprint(delay, "/", i)
			w := event(b, "i", name)
			w.Subject = b.Prefix() + ".mailbox.q.i"
			w.NotBefore = due.Add(time.Duration(i) * time.Microsecond)
			t.publish(b, w, w)
			want = append(want, name)
		}
		came := make(map[bool][]string) // by whether the broker had them for later
		for _, g := range r.take(len(want)) {
			if g.at.Before(due) {
				t.Errorf("%s came %v early", id(g.Delivery), due.Sub(g.at))
			}
			later := !g.AcceptedAt.IsZero()
			came[later] = append(came[later], id(g.Delivery))
		}
		if !slices.IsSorted(came[true]) || !slices.IsSorted(came[false]) ||
			!slices.Equal(slices.Sorted(slices.Values(slices.Concat(came[true], came[false]))), want) {
			t.Errorf("stored for later by the broker came %q, the others %q, want %q", came[true], came[false], want)
		}
	}
	t.empty()
}

// withdraw returns the message that withdraws a published one.
func withdraw(w events.Wire) events.Wire {
	return events.Wire{Subject: w.Subject, NotBefore: w.NotBefore, Purge: true}
}

// keepsMoment publishes delayed messages whose time comes while nothing is received, and then
// another one that says that its time was before. A delivery that is handed over has the same
// moment.
func keepsMoment(t *T) {
	b, other := t.bus(), t.bus()
	r := t.receive(b)
	began := time.Now()
	due := began.Add(3 * time.Second)
	want := make(map[string]bool) // subjects, and whether they were delayed
	for _, verb := range []string{"start.o", "event.e", "mailbox.q", "control.cancel"} {
		w := events.Wire{Subject: b.Prefix() + "." + verb + ".i", Header: headerWith(verb), NotBefore: due}
		t.publish(b, w)
		want[w.Subject] = true
	}
	r.nothing(time.Second) // the broker stores them for later
	r.stop()
	<-time.After(time.Until(due)) // the test is about messages that become due before they are received
	late := events.Wire{Subject: b.Prefix() + ".event.late.i", Header: headerWith("late"), NotBefore: began}
	t.publish(b, late)
	want[late.Subject] = false
	given := make(chan broker.Delivery, 1)
	stop, err := other.ReceiveHandovers(broker.HandoverInbox, "other",
		func(d broker.Delivery) error { given <- d; return nil })
	t.must(err)
	defer stop()
	r = t.receive(b)
	for range len(want) {
		d := r.next().Delivery
		t.eventually("it is handed over", func() bool { return b.Handover(t.Context(), "other", d) == nil })
		handed := <-given
		for how, d := range map[string]broker.Delivery{"delivered": d, "handed over": handed} {
			wasDelayed, known := want[d.Subject]
			switch moment := d.Moment(); {
			case !known || d.WasDelayed() != wasDelayed:
				t.Errorf("%s: %q was delayed: %t", how, d.Subject, d.WasDelayed())
			case wasDelayed && !moment.Equal(due):
				t.Errorf("%s: the moment of %q is %v, want %v", how, d.Subject, moment, due)
			case !wasDelayed && moment.Before(due):
				t.Errorf("%s: the moment of %q is %v, which is before it was published", how, d.Subject, moment)
			}
		}
		handed.Hold.Ack()
	}
	t.empty()
}

func withdrawnDelay(t *T) {
	b, other := t.bus(), t.bus()
	r := t.receive(b)
	now := time.Now()
	gone, stays := timer(b, "i", "gone", now.Add(2500*time.Millisecond)),
		timer(b, "j", "stays", now.Add(2500*time.Millisecond))
	t.publish(b, gone, stays)
	t.publish(other, withdraw(gone))
	if g := r.take(1)[0]; id(g.Delivery) != "stays" {
		t.Errorf("%q came", id(g.Delivery))
	}
	t.empty()
	r.nothing(short / 4)
}

func withdrawnLate(t *T) {
	b := t.bus()
	r := t.receive(b)
	due := time.Now().Add(200 * time.Millisecond)
	w := timer(b, "i", "x", due)
	t.publish(b, w)
	r.take(1)
	t.publish(b, withdraw(w))
	w.NotBefore = time.Now().Add(time.Hour)
	t.publish(b, withdraw(w), withdraw(w))
	t.empty()
}

func farDelay(t *T) {
	b := t.bus()
	r := t.receive(b)
	now := time.Now()
	var all []events.Wire
	for i, due := range []time.Time{now.Add(24 * time.Hour), now.Add(events.MaxDelay), now.AddDate(1000, 0, 0),
		time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		all = append(all, timer(b, fmt.Sprint("i", i), fmt.Sprint(i), due))
	}
	t.publish(b, all...)
	r.nothing(short)
	if n := t.Stored(t.T); n != len(all) {
		t.Errorf("%d are stored, want %d", n, len(all))
	}
	for i := range all {
		all[i] = withdraw(all[i])
	}
	t.publish(b, all...)
	t.empty()
}

func delayedWork(t *T) {
	b := t.bus()
	q := broker.TaskQueueName{Tag: "gpu", Activity: "a"}
	due := make(map[string]time.Time)
	var messages []events.Wire
	for i, delay := range []time.Duration{50 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond,
		1600 * time.Millisecond, 2500 * time.Millisecond} {
		w := work(b, q, fmt.Sprint("i", i), fmt.Sprint("w/", i))
		w.NotBefore = time.Now().Add(delay)
		due[w.Header[events.HeaderMsgID][0]] = w.NotBefore
		messages = append(messages, w)
	}
	t.publish(b, messages...)
	var late []time.Duration
	for _, g := range t.takeWork(b, q, len(messages)) {
		by := g.at.Sub(due[id(g.Delivery)])
		late = append(late, by)
		if by < 0 || g.NumDelivered != 1 {
			t.Errorf("%s came %v late, delivery %d", id(g.Delivery), by, g.NumDelivered)
		}
		g.Hold.Ack()
	}
	t.Logf("late by: %v", late)
	t.empty()
}

func delayedOutlives(t *T) {
	a, b := t.bus(), t.bus()
	dead := t.receive(a)
	due := time.Now().Add(2 * time.Second)
	t.publish(b, timer(b, "i", "x", due), timer(b, "j", "y", due.Add(500*time.Millisecond)))
	t.eventually("the first receiver holds them until their time", func() bool {
		var held int64
		for p := range t.Partitions {
			l, err := b.Backlog(t.Context(), p)
			t.must(err)
			held += l.Held
		}
		return held == 2 || time.Now().After(due.Add(-100*time.Millisecond))
	})
	dead.stop() // nacks the messages that it held
	r := t.receive(b)
	for _, g := range r.take(2) {
		want := due
		if id(g.Delivery) == "y" {
			want = due.Add(500 * time.Millisecond)
		}
		if g.at.Before(want) {
			t.Errorf("%s is %v early", id(g.Delivery), want.Sub(g.at))
		}
	}
	t.empty()
}

// storedUnder: messages under one subject are told apart by their ids, delayed or not.
func storedUnder(t *T) {
	b, other := t.bus(), t.bus()
	start := func(id string, delay time.Duration) events.Wire {
		w := events.Wire{Subject: b.Prefix() + ".start.order.i", Header: events.Header{events.HeaderMsgID: {id}}}
		if delay > 0 {
			w.NotBefore = time.Now().Add(delay)
		}
		return w
	}
	mail := func(id string) events.Wire {
		return events.Wire{Subject: b.Prefix() + ".mailbox.m.i", Header: events.Header{events.HeaderMsgID: {id}},
			NotBefore: time.Now().Add(time.Hour)}
	}
	lists := func(what string, messages []events.Wire, limit int, wantMore bool, want ...string) {
		t.Helper()
		t.within(soon, fmt.Sprintf("%s: stored are %v", what, want), func() bool {
			list, more, err := other.StoredUnder(t.Context(), messages, limit)
			t.must(err)
			var got []string
			for _, m := range list {
				if !m.NotBefore.IsZero() {
					m.ID += " delayed"
				}
				got = append(got, m.ID)
			}
			slices.Sort(got)
			return slices.Equal(got, want) && more == wantMore
		})
	}
	absent := start("absent", 0)
	lists("nothing", []events.Wire{absent}, 10, false)
	t.publish(b, start("a", 0), start("b", 0), start("c", time.Hour))
	t.publish(b, mail("m"), mail("n"))
	lists("starts", []events.Wire{absent}, 10, false, "a", "b", "c delayed")
	lists("too many starts", []events.Wire{absent}, 1, true, "a")
	lists("delayed messages", []events.Wire{mail("m"), mail("n"), mail("absent")}, 10, false, "m delayed", "n delayed")
	r := t.receive(b)
	r.take(2)
	lists("acknowledged starts", []events.Wire{absent}, 10, false, "c delayed")
}

// knowsMany reports whether the broker finds a message among missing ones. It reports true if the
// broker does not implement broker.Many.
func knowsMany(t *T, b Bus, w events.Wire, want bool) bool {
	many, ok := b.(broker.Many)
	if !ok {
		return true
	}
	nowhere, never := w, w
	nowhere.Subject, never.Subject = w.Subject+"-nowhere", w.Subject+"-never"
	never.NotBefore = time.Now().Add(time.Hour)
	has, err := many.HasMany(t.Context(), []events.Wire{nowhere, w, never, w})
	t.must(err)
	return slices.Equal(has, []bool{false, want, false, want})
}

func has(t *T) {
	b, other := t.bus(), t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	is := func(what string, w events.Wire, want bool) {
		t.Helper()
		var got bool
		t.within(soon, fmt.Sprintf("%s: stored is %v", what, want), func() bool { // a replica may be a little behind
			var err error
			got, err = other.Has(t.Context(), w)
			t.must(err)
			return got == want && knowsMany(t, other, w, want)
		})
	}
	wk, far := work(b, q, "i", "w"), timer(b, "i", "t", time.Now().Add(time.Hour))
	later := work(b, q, "j", "l")
	later.NotBefore = time.Now().Add(time.Hour)
	near := timer(b, "k", "n", time.Now().Add(300*time.Millisecond))
	for _, w := range []events.Wire{wk, far, later, near} {
		is("before it was published", w, false)
		t.publish(b, w)
		is("after it was published", w, true)
	}
	held := t.takeWork(b, q, 1)[0]
	is("work that is held", wk, true)
	held.Hold.Ack()
	is("work that was acknowledged", wk, false)
	r := t.receive(b)
	r.take(1)
	is("a timer that was acknowledged", near, false)
	t.publish(b, withdraw(far), withdraw(later))
	is("a timer that was withdrawn", far, false)
	is("work that was withdrawn", later, false)
	if strings.Contains(far.Subject, "later") {
		t.Error("the subject was changed")
	}
}
