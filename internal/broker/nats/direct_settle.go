package natsbroker

import (
	"bytes"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/pkg/events"
)

// stage is the progress of a receiver with a directly delivered message that has no outcome yet.
type stage uint8

const (
	idle    stage = iota // it has not been offered
	offered              // the worker is being asked
	taken                // the worker has it
)

// directEvent is what happens to a directly delivered message at its receiver.
type directEvent uint8

const (
	isOffered directEvent = iota // the worker is asked
	isTaken                      // the worker says that it has it
	isEnded                      // it gets an outcome
	isOverdue                    // its publisher needs an outcome now
)

// advance is the state machine of a directly delivered message: it returns the state and the
// outcome after an event. result is the outcome of the event isEnded. The first outcome counts. A
// task that is being offered stays open when it is overdue.
func advance(s stage, said outcome, e directEvent, result outcome) (stage, outcome) {
	switch {
	case said != outcomeOpen:
		return s, said
	case e == isOffered:
		return offered, outcomeOpen
	case e == isTaken:
		return taken, outcomeOpen
	case e == isEnded:
		return s, result
	case s == idle: // another worker may take it
		return s, outcomeBusy
	case s == taken:
		return s, outcomeLasts
	}
	return s, outcomeOpen
}

// bundle is a received bundle, until all of its messages are settled.
type bundle struct {
	*conn
	reply string
	came  time.Time
	by    string // the worker that has received it, if it has tasks

	mu    sync.Mutex
	said  []outcome // of each message
	stage []stage   // of each message
	open  int       // counts the messages without an outcome
	news  bool      // an outcome has not been sent
	timer *time.Timer
}

func newBundle(c *conn, reply string, n int, by string, came time.Time) *bundle {
	b := &bundle{conn: c, reply: reply, by: by, came: came, said: nothingSaid(n), stage: make([]stage, n), open: n}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(answerEvery, b.look)
	return b
}

// nothingSaid are the outcomes of n messages without any.
func nothingSaid(n int) []outcome { return bytes.Repeat([]outcome{outcomeOpen}, n) }

// settle records the outcome of a message, and returns the outcome that is sent: an earlier one if
// there is one.
func (b *bundle) settle(i int, result outcome) outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.decide(i, result)
}

// decide is settle for callers that hold mu. It sends the answer if it is the last outcome.
func (b *bundle) decide(i int, result outcome) outcome {
	if b.advance(i, isEnded, result) && b.open == 0 {
		b.timer.Stop()
		b.answer()
	}
	return b.said[i]
}

// advance applies an event to a message, and reports whether that gave it its outcome. mu is held.
func (b *bundle) advance(i int, e directEvent, result outcome) (decided bool) {
	wasOpen := b.said[i] == outcomeOpen
	b.stage[i], b.said[i] = advance(b.stage[i], b.said[i], e, result)
	if !wasOpen || b.said[i] == outcomeOpen {
		return false
	}
	b.open--
	b.news = true
	return true
}

// offer reports whether to offer a task to the worker: not after so much time that the publisher
// stores it.
func (b *bundle) offer(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.came) >= b.direct.lastsAfter() {
		b.decide(i, outcomeBusy)
	}
	b.advance(i, isOffered, outcomeOpen)
	return b.said[i] == outcomeOpen
}

// took records that the worker has a task.
func (b *bundle) took(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(i, isTaken, outcomeOpen)
}

// begin reports whether the worker may begin a task: the answer that it has the task is sent, or
// can be sent before the publisher gives the task up.
func (b *bundle) begin(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.came) >= b.direct.beginWithin() {
		b.decide(i, outcomeBusy)
	}
	return b.said[i] == outcomeOpen || b.said[i] == outcomeLasts
}

// look sends the new outcomes while some messages are not settled, until the time limit of the
// sender. After lastsAfter, tasks get their last outcome.
func (b *bundle) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by != "" && time.Since(b.came) >= b.direct.lastsAfter() {
		for i := range b.said {
			b.advance(i, isOverdue, outcomeOpen)
		}
	}
	if b.news {
		b.answer()
	}
	if b.open > 0 && time.Since(b.came) < b.direct.answerWithin() {
		b.timer.Reset(answerEvery)
	}
}

// tell sends the outcomes so far.
func (b *bundle) answer() {
	b.news = false
	var h nats.Header
	if bytes.IndexByte(b.said, outcomeLasts) >= 0 {
		h = nats.Header{events.HeaderWorker: {b.by}}
	}
	// if the answer is lost, the sender publishes the messages; Publish copies the data
	_ = b.nc.PublishMsg(&nats.Msg{Subject: b.reply, Header: h, Data: b.said})
}

// bundledHold settles a message that arrived in a bundle.
type bundledHold struct {
	b *bundle
	i int
}

func (h bundledHold) say(o outcome) { h.b.settle(h.i, o) }

// Ack implements broker.Hold.
func (h bundledHold) Ack() { h.say(outcomeSettled) }

// Begin implements broker.DirectHold.
func (h bundledHold) Begin() bool { return h.b.begin(h.i) }

// Finish implements broker.DirectHold. The publisher may not receive a late outcome.
func (h bundledHold) Finish() (final bool) {
	return h.b.settle(h.i, outcomeSettled) == outcomeSettled && time.Since(h.b.came) < h.b.direct.beginWithin()
}

// Nak implements broker.Hold. The sender publishes the message to the stream at once.
func (h bundledHold) Nak(time.Duration) { h.say(outcomeReturned) }

// InProgress implements broker.Hold. See directResultHold.
func (h bundledHold) InProgress() {}

// AckSubject implements broker.Hold. No other process can settle it.
func (h bundledHold) AckSubject() string { return "" }
