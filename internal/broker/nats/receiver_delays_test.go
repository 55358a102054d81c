package natsbroker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

func delayed(subject string, place uint64, due time.Time) *waiting {
	return &waiting{d: broker.Delivery{Subject: subject, Sequence: place, Header: events.Header{}}, notBefore: due,
		accepted: acceptance{at: due.Add(-time.Minute).UnixMicro(), place: place}}
}

func subjectsOf(all []*waiting) (out []string) {
	for _, w := range all {
		out = append(out, w.d.Subject)
	}
	return out
}

// TestDelaysLookAtOneInstance has a delayed message look for those that it depends on. It must not
// look at those of other instances: thousands may be due at the same moment, and while each looks
// at all others, the partition delivers nothing. Here, a look at the others would panic.
func TestDelaysLookAtOneInstance(t *testing.T) {
	t.Parallel()
	names := namesOf("rondo")
	r := &receiver{conn: &conn{}, delays: newDelays(&names, func(*waiting) {}), queue: newReadyQueue()}
	r.marks = newMarks(r)
	d, due := &r.delays, time.Now().Add(time.Hour)
	d.early[1] = nil
	event := delayed("rondo.event.e.i", 2, due)
	d.hold(event)
	later := due.Add(time.Second)
	if got := d.dueWith(event, later); !slices.Equal(got, []*waiting{event}) {
		t.Errorf("due are %v", subjectsOf(got))
	}
	r.marks.reached = later
	for who, want := range map[string]bool{"i": false, "j": true} {
		if got := r.marks.hasArrived(&mark{who: who, at: later}); got != want {
			t.Errorf("everything has arrived for %s: %t, want %t", who, got, want)
		}
	}
	d.release(event)
	if len(d.of) > 0 || len(d.early) != 1 {
		t.Errorf("left are %v and %v", d.of, d.early)
	}
}

// TestADueMessageBringsNoStartAlong: an event is due after a delayed start of its instance, which
// another start may still replace. The event waits for the start, and does not take it along.
func TestADueMessageBringsNoStartAlong(t *testing.T) {
	t.Parallel()
	names := namesOf("rondo")
	d := newDelays(&names, func(*waiting) {})
	due := time.Now().Add(time.Hour)
	before := delayed("rondo.event.before.i", 4, due.Add(-time.Second))
	start := delayed("rondo.start.o.i", 2, due)
	event := delayed("rondo.event.e.i", 1, due.Add(time.Second))
	for _, w := range []*waiting{event, start, before} {
		d.hold(w)
	}
	now := due.Add(time.Minute)
	want := func(what string, got []*waiting, want ...*waiting) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: due are %v, want %v", what, subjectsOf(got), subjectsOf(want))
		}
	}
	if d.waitsFor(before) || !d.waitsFor(start) || !d.waitsFor(event) {
		t.Error("the wrong ones wait")
	}
	want("the start may be replaced", d.dueWith(before, now), before)
	start.known = true
	if d.waitsFor(start) || d.waitsFor(event) {
		t.Error("something waits for what is known")
	}
	want("the start is known", d.dueWith(event, now), before, start, event)
	start.known = false
	next := delayed("rondo.start.o.i", 5, due)
	next.accepted.at = start.accepted.at + 1
	next.d.Hold = noHold{}
	start.d.Hold = noHold{}
	if d.giveWay(next); d.waitsFor(event) {
		t.Error("the event waits for a start that was replaced")
	}
	want("the start is replaced", d.dueWith(event, now), before, event)
}

// TestAMessageGivesWayToOneThatHasATask: two starts whose time is near arrive together. While the
// receiver looks whether a third one is stored, the first one becomes due. The second one has
// replaced it.
func TestAMessageGivesWayToOneThatHasATask(t *testing.T) {
	t.Parallel()
	names := namesOf("rondo")
	d := newDelays(&names, func(*waiting) {})
	due := time.Now().Add(time.Second)
	first, second := delayed("rondo.start.o.i", 1, due), delayed("rondo.start.o.i", 2, due.Add(time.Second))
	second.accepted.at = first.accepted.at + 1
	for _, w := range []*waiting{first, second} {
		d.add(w, near/2)
	}
	if d.giveWay(second) {
		t.Error("the second one gives way")
	}
	for left := 2; left > 0; left-- {
		if got := d.giveWay(first); !got {
			t.Errorf("with %d tasks left, the first one does not give way", left)
		}
		d.drop(1)
	}
	if d.giveWay(first) || len(d.newest) > 0 {
		t.Errorf("something of the tasks is left: %v", d.newest)
	}
}

// TestAFiredMessageGivesWayToADeliveredOne: the receiver was busy, or away, while NATS fired a
// delayed start. Before that was due, another start replaced it, which is due and delivered first.
func TestAFiredMessageGivesWayToADeliveredOne(t *testing.T) {
	t.Parallel()
	names := namesOf("rondo")
	d := newDelays(&names, func(*waiting) {})
	due := time.Now().Add(time.Hour)
	first, second := delayed("rondo.start.o.i", 1, due), delayed("rondo.start.o.i", 2, due.Add(-time.Minute))
	first.accepted, second.accepted = acceptance{due.Add(-2 * time.Minute).UnixMicro(), 1},
		acceptance{due.Add(-2 * time.Minute).UnixMicro(), 2}
	after := delayed("rondo.start.o.i", 3, due.Add(time.Minute))
	after.accepted = acceptance{due.Add(-time.Second).UnixMicro(), 3}
	d.delivered.add(names.laterOf(wireOf(second)), second.accepted)
	for _, x := range []struct {
		w    *waiting
		want bool
	}{{first, true}, {second, false}, {after, false}, {delayed("rondo.start.o.j", 4, due), false}} {
		if got := d.giveWay(x.w); got != x.want {
			t.Errorf("%s, place %d: it gives way: %t, want %t", x.w.d.Subject, x.w.d.Sequence, got, x.want)
		}
	}
	d.delivered.add(names.laterOf(wireOf(first)), first.accepted) // it is older
	if !d.giveWay(first) {
		t.Error("the older one replaces the newer one")
	}
	for i := range 3 * maxDelivered {
		d.delivered.add(fmt.Sprint("other", i), first.accepted)
	}
	if n := len(d.delivered.of); n != maxDelivered || len(d.delivered.ring) != n || d.giveWay(first) {
		t.Errorf("%d are remembered, and %d in order; it may be %d", n, len(d.delivered.ring), maxDelivered)
	}
}

type noHold struct{ broker.Hold }

func (noHold) Ack() {}

// TestTheLastMessageOfAnInstance compares readyQueue.last with a look at all messages.
func TestTheLastMessageOfAnInstance(t *testing.T) {
	t.Parallel()
	random, q, from := rand.New(rand.NewPCG(1, 2)), newReadyQueue(), time.Now()
	var taken *waiting // take has not returned for it
	n := uint64(0)
	for range 5_000 {
		switch random.IntN(5) {
		case 0, 1:
			at := from.Add(time.Duration(random.IntN(10)) * time.Second)
			n++
			q.push(&waiting{d: broker.Delivery{Subject: fmt.Sprint("rondo.event.e.i", random.IntN(4)), StoredAt: at,
				Sequence: n}})
		case 2:
			if _, ok, err := q.pop(); err != nil {
				t.Fatal(err)
			} else if taken = nil; ok {
				taken = q.next
			}
		default:
			who, before := fmt.Sprint("i", random.IntN(4)), from.Add(time.Duration(random.IntN(11))*time.Second)
			var want uint64
			for _, w := range append([]*waiting{taken}, q.all...) {
				if w != nil && lastWord(w.d.Subject) == who && w.d.StoredAt.Before(before) {
					want = w.d.Sequence // all are numbered in their order
				}
			}
			if got := q.last(who, before); got != want {
				t.Fatalf("the last one of %s is %d, want %d", who, got, want)
			}
		}
	}
}
