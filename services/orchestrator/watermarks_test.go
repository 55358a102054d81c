package orchestrator

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// silentBroker never answers a question for a watermark.
type silentBroker struct{}

func (silentBroker) AwaitWatermark(int, string, time.Time, func(context.Context, bool)) bool {
	return true
}

// countedHold counts the extensions of an ack wait.
type countedHold struct {
	noHold
	extended int
}

func (h *countedHold) InProgress() { h.extended++ }

// heldLetter returns a held mailbox message for instance "i".
func heldLetter(h *heldMessages, sequence uint64) (*item, *countedHold) {
	hold := new(countedHold)
	i := &item{message: events.Message{Instance: "i", Content: &events.MailboxMessage{Mailbox: "m"}},
		delivery: broker.Delivery{Sequence: sequence, NumDelivered: 1, Hold: hold}}
	h.add(i)
	return i, hold
}

func marksOf(held *heldMessages, giveBack func(e *entry, after time.Duration)) *watermarks {
	return &watermarks{broker: silentBroker{}, held: held, calls: new(calls), giveBack: giveBack}
}

// TestMessagesOfABarredInstanceTakeNoRoom: the answer about the watermark comes behind other
// messages, so the loop must go on reading them.
func TestMessagesOfABarredInstanceTakeNoRoom(t *testing.T) {
	held := newHeldMessages(4, 1<<20)
	w, e := marksOf(held, func(*entry, time.Duration) { t.Error("messages are nacked") }), &entry{id: "i"}
	first, _ := heldLetter(held, 1)
	second, _ := heldLetter(held, 2)
	w.waits(e, second)
	w.bar(e, []*item{first}, time.Unix(60, 0))
	third, _ := heldLetter(held, 3)
	w.waits(e, third)
	if held.aside != 3 {
		t.Errorf("%d messages are aside, want all 3", held.aside)
	}
	if !w.take(e, watermark{question: 1, at: time.Unix(60, 0)}) {
		t.Fatal("the answer does not count")
	}
	if held.aside != 0 || held.asideBytes != 0 {
		t.Errorf("%d messages of %d bytes are still aside", held.aside, held.asideBytes)
	}
	if len(e.waiting) != 3 || e.waiting[0] != first || e.waiting[2] != third {
		t.Errorf("%d messages wait, want all in their order", len(e.waiting))
	}
}

// TestTooManyMessagesOfABarredInstance: the messages that are set aside are bounded.
func TestTooManyMessagesOfABarredInstance(t *testing.T) {
	held, nacked := newHeldMessages(2, 1<<20), 0
	w, e := marksOf(held, func(*entry, time.Duration) { nacked++ }), &entry{id: "i"}
	first, _ := heldLetter(held, 1)
	w.bar(e, []*item{first}, time.Unix(60, 0))
	if nacked != 0 {
		t.Error("a message is nacked although there is room")
	}
	second, _ := heldLetter(held, 2)
	w.waits(e, second)
	if nacked != 1 {
		t.Error("the messages are not nacked although there is no room")
	}
}

// endingBroker answers a question when Receive has ended, or, if failed is set, without an end.
type endingBroker struct{ ok, failed bool }

func (b endingBroker) AwaitWatermark(_ int, _ string, _ time.Time, reached func(context.Context, bool)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !b.failed {
		cancel()
	}
	reached(ctx, b.ok)
	return true
}

// TestTheNextReceiverGetsMessagesAtOnce: the loop learns of a partition that it gives away, and of
// the watermarks that it will not get, at the same moment and in any order. Either way it nacks the
// messages without a delay.
func TestTheNextReceiverGetsMessagesAtOnce(t *testing.T) {
	for _, c := range []struct {
		broker endingBroker
		want   time.Duration
	}{
		{endingBroker{ok: false}, 0},
		{endingBroker{ok: true}, 0}, // the watermark has risen too late
		{endingBroker{failed: true}, unknownFor},
	} {
		held, got := newHeldMessages(10, 1<<20), []time.Duration(nil)
		w := marksOf(held, func(_ *entry, after time.Duration) { got = append(got, after) })
		w.broker, w.calls, w.in = c.broker, newCalls(t.Context()), make(chan *item, 1)
		letter, _ := heldLetter(held, 1)
		w.bar(&entry{id: "i"}, []*item{letter}, time.Unix(60, 0))
		if len(w.in) > 0 {
			t.Errorf("%+v: the watermark counts", c.broker)
		}
		for len(w.calls.waiting) > 0 {
			(<-w.calls.waiting)()
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%+v: the messages are nacked with the delays %v, want %v", c.broker, got, c.want)
		}
	}
}

// TestTheAckWaitOfMessagesAsideIsNotExtended: the broker may have delivered one of them to another
// process while this one stood still. The watermark rises only AFTER the broker has delivered it
// here again, which an extension would put off for ever.
func TestTheAckWaitOfMessagesAsideIsNotExtended(t *testing.T) {
	held := newHeldMessages(10, 1<<20)
	w, e := marksOf(held, nil), &entry{id: "i"}
	barred, barredHold := heldLetter(held, 1)
	w.bar(e, []*item{barred}, time.Unix(60, 0))
	behind, behindHold := heldLetter(held, 2)
	w.waits(e, behind)
	_, otherHold := heldLetter(held, 3)
	held.touch(time.Unix(100, 0), time.Second)
	if barredHold.extended+behindHold.extended != 0 {
		t.Error("the ack wait of a message is extended that waits for the watermark")
	}
	if otherHold.extended != 1 {
		t.Error("the ack wait of a message is not extended that waits for its round")
	}
	w.forget(e)
	held.touch(time.Unix(100, 0), time.Second)
	if barredHold.extended != 1 || behindHold.extended != 1 {
		t.Error("the ack wait of messages is not extended after they were brought back")
	}
}

// TestNoTimerWaitsForAMessageBehindIt: what waits behind a timer keeps its watermark from rising
// only if it is older, and then it would not be behind. Otherwise the two would wait for each other
// for ever: a result that was delivered directly, which has the sequence of no stored message, and
// a message that a server with a slow clock has stored.
func TestNoTimerWaitsForAMessageBehindIt(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	stored := func(place uint64, s int64) *item {
		return &item{delivery: broker.Delivery{Sequence: place, StoredAt: at(s), Hold: new(countedHold)}}
	}
	timer := stored(1, 1)
	timer.message.Content = &events.TimerDue{Due: at(4)}
	timer.quarantined = true
	direct := stored(1<<62, 3)
	direct.delivery.Direct = true
	plain := stored(1, 1)
	plain.message.Content = timer.message.Content
	alone := stored(3, 3)
	alone.quarantined = true
	for name, x := range map[string]struct {
		timer  *item
		behind []*item
		most   int // messages of a round
		first  *item
	}{
		"a clock set back":                          {timer, []*item{stored(2, 5), stored(3, 2)}, 10, timer},
		"a clock set back, and one quarantined":     {plain, []*item{stored(2, 5), alone}, 10, plain},
		"a clock set back, and more than one round": {plain, []*item{stored(2, 5), stored(3, 2)}, 2, plain},
		"a direct result":                           {timer, []*item{stored(2, 5), direct}, 10, direct},
	} {
		e := &entry{waiting: append([]*item{x.timer}, x.behind...), watermark: at(4)}
		inOrder(e.waiting)
		e.takeMessages(x.most)
		if e.taken[0] != x.first {
			t.Errorf("%s: the first is %+v", name, e.taken[0].delivery)
		}
		if until := e.knownUntil(); e.taken[0] == x.timer && until.Before(at(4)) {
			t.Errorf("%s: all messages are known until %v, when the timer is due at %v", name, until, at(4))
		}
	}
}

// TestAForwardedEventKeepsItsMoment: an event was due before a timer, and both waited in the broker
// until an orchestrator ran. What a client says about the time of its message does not count.
func TestAForwardedEventKeepsItsMoment(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	event := func(sequence uint64, d broker.Delivery) *item {
		d.Sequence, d.Hold = sequence, noHold{}
		return &item{message: events.Message{Instance: "i", Content: &events.EventRaised{Name: "e"}}, delivery: d}
	}
	timer := &item{message: events.Message{Instance: "i", Content: &events.TimerDue{Due: at(60)}},
		delivery: broker.Delivery{Sequence: 1, StoredAt: at(120), Hold: noHold{}}}
	late := event(2, broker.Delivery{StoredAt: at(120), NotBefore: at(30)})
	after := event(3, broker.Delivery{AcceptedAt: at(10), StoredAt: at(121), NotBefore: at(90)})
	before := event(4, broker.Delivery{AcceptedAt: at(10), StoredAt: at(122), NotBefore: at(30)})
	items := []*item{timer, late, after, before}
	inOrder(items)
	for n, want := range []*item{before, timer, after, late} {
		if items[n] != want {
			t.Errorf("message %d is %d, want %d", n, items[n].delivery.Sequence, want.delivery.Sequence)
		}
	}
}
