package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// flight is one attempt to publish messages. Those whose order counts wait for each other; all
// others are on their way together.
type flight struct {
	b       *Bus
	ctx     context.Context
	refused *broker.Refused
	strain  int
	stopped error // why nothing can be sent any more

	sent   []sent              // in this order
	flying int                 // how many of them have not landed
	landed chan landed         // what has become of them
	tick   *time.Ticker        // when to look for what is late
	behind map[string][]letter // instances that have a message on its way whose order counts, with what waits for it
	free   []letter            // what has waited, or has to take the other way, and may go now
	late   map[string]bool     // instances of which a message failed: those after it must not be stored before it
	failed []events.Wire       // may be tried again; in order, for each instance
	bundle map[string][]letter // results, or work, that are to be sent together, by where they go
	last   error
}

// letter is a message, with its instance if the order counts.
type letter struct {
	wire     events.Wire
	instance string
	short    bool // it goes by the short way
}

// sent is a message that was sent.
type sent struct {
	letter
	to    string // the subject it was sent on
	token uint64 // of the answer
	cost  int64
	over  bool // it has landed
}

// publishOnce publishes once, and gives those that may be tried again, in their order, with the
// last reason.
func (b *Bus) publishOnce(ctx context.Context, messages []events.Wire,
	refused *broker.Refused) (failed []events.Wire, last error) {
	f := flight{
		b: b, ctx: ctx, refused: refused, strain: b.strain.now(),
		sent: make([]sent, 0, len(messages)), landed: make(chan landed, len(messages)),
	}
	defer f.end()
	for _, w := range messages {
		for len(f.free) > 0 {
			f.send(f.next())
		}
		w, passes := b.passes(w)
		l := letter{wire: w, short: passes || b.goesShort(w)}
		if err := b.canTake(w.Subject); err != nil {
			f.refuse(l, err)
			continue
		}
		if passes || l.short && takesMany(w.Back) && len(w.Body) <= largeResult {
			f.gather(l)
			continue
		}
		l.instance = b.inOrder(w)
		if l.instance != "" && f.behind == nil { // what services send to each other has none
			f.behind, f.late = make(map[string][]letter), make(map[string]bool)
		}
		waiting, flies := f.behind[l.instance]
		switch {
		case l.instance != "" && flies:
			f.behind[l.instance] = append(waiting, l)
		case f.late[l.instance]:
			f.fail(l, f.last)
		default:
			f.send(l)
		}
	}
	for back := range f.bundle {
		f.sendBundle(back)
	}
	for f.flying > 0 || len(f.free) > 0 {
		if len(f.free) > 0 {
			f.send(f.next())
		} else {
			f.land()
		}
	}
	if slices.ContainsFunc(f.sent, func(s sent) bool { return !s.short }) {
		b.strain.note(errors.Is(f.last, errUnanswered))
	}
	return f.failed, f.last
}

func (f *flight) next() letter {
	l := f.free[0]
	f.free = f.free[1:]
	return l
}

func (f *flight) end() {
	if f.tick != nil {
		f.tick.Stop()
	}
}

// send sends a message. If its order counts, those after it wait until it has landed.
func (f *flight) send(l letter) {
	if f.stopped != nil {
		f.fail(l, f.stopped)
		return
	}
	if _, flies := f.behind[l.instance]; l.instance != "" && !flies {
		f.behind[l.instance] = nil
	}
	var m *nats.Msg
	if l.short {
		m = short(l.wire)
	} else {
		m = f.b.message(l.wire, time.Now())
	}
	var cost int64 // what goes by the short way takes nothing from the broker
	if !l.short {
		cost = min((int64(m.Size())+messageCost)<<f.strain, window)
	}
	err := f.acquire(cost)
	if err == nil {
		if err = f.launch(l, m, cost); err == nil {
			return
		}
		f.b.window.Release(cost)
	}
	if l.short { // the way through the stream is another one
		f.free = append(f.free, l.throughTheStream(errNotHere))
		return
	}
	if permanent(err) {
		f.refuse(l, err)
		return
	}
	f.stopped = err // there is no way to the broker now
	f.fail(l, err)
}

// patience is how long an answer is waited for.
func (b *Bus) patience(short bool) time.Duration {
	if d := b.shortWait.Load(); short && d > 0 {
		return time.Duration(d)
	}
	return publishWait
}

// launch sends a message for which there is room. If it fails, it is as if it had never been there.
func (f *flight) launch(l letter, m *nats.Msg, cost int64) (err error) {
	s := sent{letter: l, to: m.Subject, cost: cost}
	s.token, m.Reply, err = f.b.answers.expect(f.b.nc,
		&awaited{to: f.landed, n: len(f.sent), short: l.short, until: time.Now().Add(f.b.patience(l.short))})
	if err != nil {
		return err
	}
	if err = f.b.nc.PublishMsg(m); err != nil && f.b.answers.forget(s.token, false) != nil {
		return err
	}
	// It is on its way, or the connection broke meanwhile, and that is told like an answer.
	f.sent = append(f.sent, s)
	f.flying++
	f.b.noteQueue(l.wire.Subject)
	return nil
}

// throughTheStream is what is sent instead of what has not been settled by the short way.
func (l letter) throughTheStream(why error) letter {
	if l.wire.Pass {
		return letter{wire: notSettled(l.wire, why), instance: l.instance}
	}
	return letter{wire: throughTheStream(l.wire, why), instance: l.instance}
}

// gather keeps a result, or work, until it is sent with others.
func (f *flight) gather(l letter) {
	if f.bundle == nil {
		f.bundle = make(map[string][]letter)
	}
	back := l.wire.Back
	if f.bundle[back] = append(f.bundle[back], l); len(f.bundle[back]) == maxBundle {
		f.sendBundle(back)
	}
}

// sendBundle sends the results, or the work, that go by a short way. Work goes in a bundle even if
// it is alone, as its answer may say more.
func (f *flight) sendBundle(back string) {
	results := f.bundle[back]
	f.bundle[back] = nil
	most := min(maxBundleBytes, int(f.b.nc.MaxPayload())/2)
	for len(results) > 0 {
		var body []byte
		n := 0
		for n < len(results) && len(body) < most {
			body = appendResult(body, results[n].wire)
			n++
		}
		if n == 1 && !results[0].wire.Pass {
			f.send(results[0])
		} else if err := f.launchBundle(back, results[:n], body); err != nil {
			for _, l := range results[:n] {
				f.free = append(f.free, l.throughTheStream(errNotHere))
			}
		}
		results = results[n:]
	}
}

// launchBundle sends results together. If it fails, it is as if they had never been there.
func (f *flight) launchBundle(back string, results []letter, body []byte) error {
	token, reply, err := f.b.answers.expect(f.b.nc, &awaited{to: f.landed, n: len(f.sent), short: true,
		until: time.Now().Add(f.b.patience(true)), said: nothingSaid(len(results))})
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: back, Reply: reply,
		Header: nats.Header{headerResults: {strconv.Itoa(len(results))}}, Data: body}
	if results[0].wire.Pass {
		m.Header[headerPassedAt] = []string{time.Now().UTC().Format(time.RFC3339Nano)}
	}
	if err = f.b.nc.PublishMsg(m); err != nil && f.b.answers.forget(token, false) != nil {
		return err
	}
	for _, l := range results {
		f.sent = append(f.sent, sent{letter: l, to: back, token: token})
		f.flying++
	}
	return nil
}

// acquire waits until there is room for one more message.
func (f *flight) acquire(cost int64) error {
	if cost == 0 {
		return nil
	}
	for !f.b.window.TryAcquire(cost) {
		if f.flying == 0 {
			return f.b.window.Acquire(f.ctx, cost)
		}
		f.land() // first what this call holds itself: two calls must not wait for each other
	}
	return nil
}

// land waits until something is known of a message that is on its way.
func (f *flight) land() {
	select {
	case x := <-f.landed:
		f.touchDown(x)
		return
	default:
	}
	if f.tick == nil {
		f.tick = time.NewTicker(publishWait / 12)
	}
	select {
	case x := <-f.landed:
		f.touchDown(x)
	case <-f.tick.C:
		if f.isLate() {
			// this process may have stood still, and have the answers without having read them
			f.b.answers.catchUp(f.b.nc)
			f.giveUp(errUnanswered, true)
		}
	case <-f.ctx.Done():
		f.giveUp(context.Cause(f.ctx), false)
	case <-f.b.ctx.Done():
		f.giveUp(nats.ErrConnectionClosed, false)
	}
}

// isLate reports whether an answer should have come by now.
func (f *flight) isLate() bool {
	return slices.ContainsFunc(f.sent, func(s sent) bool { return !s.over && f.b.answers.isLate(s.token) })
}

// giveUp waits no longer for what is on its way, or for what of that is late.
func (f *flight) giveUp(why error, onlyLate bool) {
	for n := range f.sent {
		if s := &f.sent[n]; !s.over {
			if w := f.b.answers.forget(s.token, onlyLate); w != nil {
				f.touchDown(w.rest(why))
			}
		}
	}
}

// touchDown does what is to be done when it is known what has become of messages.
func (f *flight) touchDown(x landed) {
	if x.said == nil {
		f.touchDownOne(x.n, x.err)
		return
	}
	for i, letter := range x.said {
		switch {
		case letter == resultOpen:
		case x.err != nil:
			f.touchDownOne(x.n+i, x.err)
		default:
			f.touchDownOne(x.n+i, readBundled(letter, x.by))
		}
	}
}

func (f *flight) touchDownOne(n int, err error) {
	s := &f.sent[n]
	s.over = true
	f.flying--
	f.b.window.Release(s.cost)
	if errors.Is(err, errUnanswered) && f.b.denied.publishing(s.to) {
		err = fmt.Errorf("%w: this user may not publish on %s", nats.ErrPermissionViolation, s.to)
	}
	switch {
	case err == nil:
		if s.short {
			f.b.ways.taken.Add(1)
		}
		f.release(s.instance)
	case s.short && f.ctx.Err() == nil && f.b.ctx.Err() == nil:
		f.b.ways.refused(s.wire, err)
		f.free = append(f.free, s.throughTheStream(err))
	case permanent(err):
		f.refuse(s.letter, err)
	default:
		f.fail(s.letter, err)
	}
}

// release lets the next message of an instance go.
func (f *flight) release(instance string) {
	waiting := f.behind[instance]
	if len(waiting) == 0 {
		delete(f.behind, instance)
		return
	}
	f.free = append(f.free, waiting[0])
	f.behind[instance] = waiting[1:]
}

// refuse gives up a message. Those behind it do not suffer.
func (f *flight) refuse(l letter, why error) {
	f.refused.Messages, f.refused.Reasons = append(f.refused.Messages, l.wire), append(f.refused.Reasons, why)
	f.release(l.instance)
}

// fail keeps a message for the next attempt, and all of its instance that come after it: they must
// not be stored before it.
func (f *flight) fail(l letter, why error) {
	f.failed, f.last = append(f.failed, l.wire), why
	if l.instance == "" {
		return
	}
	for _, waiting := range f.behind[l.instance] {
		f.failed = append(f.failed, waiting.wire)
	}
	delete(f.behind, l.instance)
	f.late[l.instance] = true
}
