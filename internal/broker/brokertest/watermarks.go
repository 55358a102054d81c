package brokertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

var watermarkTests = []test{
	{"a watermark comes behind the messages before it", Settings{Partitions: 1}, watermarkBehind},
	{"a watermark waits for a message that another receiver has", Settings{InboxAckWait: short, Partitions: 1},
		watermarkLeft},
	{"a watermark does not wait for other instances", Settings{Partitions: 1}, watermarkOthers},
	{"a watermark does not wait for later messages", Settings{Partitions: 1}, watermarkLater},
	{"a watermark that cannot be reached is given up", Settings{Partitions: 1}, watermarkEnds},
}

// awaits asks for a watermark as soon as the process receives. It returns a channel for the answer.
func (t *T) awaits(b Bus, instance string, at time.Time) <-chan bool {
	t.Helper()
	answer := make(chan bool, 1)
	t.eventually("the process receives", func() bool {
		return b.AwaitWatermark(0, instance, at, func(_ context.Context, ok bool) { answer <- ok })
	})
	return answer
}

// moment returns a time after everything that has happened, also on a clock that stands still.
func (t *T) moment() time.Time {
	time.Sleep(time.Millisecond)
	return time.Now()
}

// reached waits for the answer about a watermark.
func (t *T) reached(answer <-chan bool) (ok bool) {
	t.Helper()
	select {
	case ok = <-answer:
	case <-time.After(patience):
		t.Fatalf("no answer about a watermark within %v", patience)
	}
	return ok
}

// watermarkBehind stores messages in both lanes before a process receives. Whatever the lanes
// deliver first, all of them are taken before the watermark is reached.
func watermarkBehind(t *T) {
	b, other := t.bus(), t.bus()
	if b.AwaitWatermark(0, "i", time.Now(), func(context.Context, bool) { t.Error("an answer without a receiver") }) {
		t.Error("a watermark of a partition without a receiver")
	}
	const each = 200
	for round := range 3 {
		var messages []events.Wire
		for n := range each {
			id := fmt.Sprint(round, "/", n)
			messages = append(messages, event(b, "i", "e"+id), event(b, fmt.Sprint("other", n), "o"+id),
				events.Wire{Subject: b.Prefix() + ".task-done.1-2.i", Header: headerWith("d" + id)})
		}
		t.publish(other, messages...)
		at := t.moment()
		var taken atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
				if d.Subject != event(b, "i", "").Subject && d.Subject != b.Prefix()+".task-done.1-2.i" {
					d.Hold.Ack()
					return
				}
				taken.Add(1)
				d.Hold.Ack()
			})
		}()
		if !t.reached(t.awaits(b, "i", at)) {
			t.Fatal("the watermark was given up")
		}
		if n := taken.Load(); n < 2*each {
			t.Fatalf("the watermark was reached after %d of %d messages", n, 2*each)
		}
		if !t.reached(t.awaits(b, "without-messages", at)) || !t.reached(t.awaits(b, "i", time.Now())) {
			t.Error("the watermark of an idle instance was given up")
		}
		cancel()
		t.must(<-ended)
		t.empty()
	}
}

// watermarkLeft has a message delivered to a receiver that dies. It is redelivered before the
// watermark is reached.
func watermarkLeft(t *T) {
	dying := t.bus()
	first := t.receive(dying)
	t.publish(dying, event(dying, "i", "one"))
	first.expect("one")
	at := t.moment()
	t.must(dying.Close())
	first.stop()
	b := t.bus()
	second := t.receive(b)
	answer := t.awaits(b, "i", at)
	if !t.reached(answer) {
		t.Fatal("the watermark was given up")
	}
	select {
	case g := <-second.came:
		g.Hold.Ack()
	default:
		t.Error("the watermark was reached before the message came again")
	}
	t.empty()
}

// watermarkOthers fills a lane with messages of other instances that are not taken.
func watermarkOthers(t *T) {
	b := t.bus()
	var messages []events.Wire
	for n := range 3000 { // more than a receiver holds
		messages = append(messages, event(b, fmt.Sprint("other", n), fmt.Sprint("o", n)))
	}
	t.publish(b, messages...)
	mine := event(b, "mine", "mine")
	t.publish(b, mine)
	at := t.moment()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	room, ended := make(chan struct{}), make(chan error, 1)
	var taken atomic.Bool
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			<-room
			if d.Subject == mine.Subject {
				taken.Store(true)
			}
			d.Hold.Ack()
		})
	}()
	behind := t.awaits(b, "mine", at)
	if !t.reached(t.awaits(b, "i", at)) {
		t.Error("the watermark of an instance without messages was given up")
	}
	select {
	case <-behind:
		t.Error("a watermark was reached before its message")
	default:
	}
	close(room)
	if !t.reached(behind) || !taken.Load() {
		t.Error("a watermark was reached before its message was taken, or given up")
	}
	t.empty()
	cancel()
	t.must(<-ended)
}

// watermarkLater stores a message after the moment that it asks about, which is not taken.
func watermarkLater(t *T) {
	b := t.bus()
	at := t.moment()
	time.Sleep(short) // clocks may differ a little
	t.publish(b, event(b, "i", "late"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	room, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			<-room
			d.Hold.Ack()
		})
	}()
	if !t.reached(t.awaits(b, "i", at)) {
		t.Error("the watermark was given up")
	}
	close(room)
	t.empty()
	cancel()
	t.must(<-ended)
}

// watermarkEnds stops receiving while a message before the watermark is not taken.
func watermarkEnds(t *T) {
	b := t.bus()
	t.publish(b, event(b, "i", "one"))
	at := t.moment()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came, room, ended := make(chan broker.Delivery), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			came <- d
			<-room
		})
	}()
	d := <-came
	answer := t.awaits(b, "i", at)
	cancel()
	close(room)
	t.must(<-ended)
	d.Hold.Ack()
	t.reached(answer) // either way, there is an answer
	t.empty()
}
