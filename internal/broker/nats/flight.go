package natsbroker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// flight is one attempt to publish messages. Messages whose order counts wait for each other; all
// others are in flight together.
type flight struct {
	p          *publisher
	ctx        context.Context
	refused    *broker.Refused
	congestion int
	stopped    error // why no message can be sent any more

	sent     []sent                // in this order
	inFlight int                   // number of messages in flight
	outcomes chan publishResult    // the outcomes of messages
	tick     *time.Ticker          // when to look for late answers
	behind   map[string][]outgoing // instances with an ordered message in flight, and the messages that wait for it
	free     []outgoing            // messages to send now: they have waited, or direct delivery has failed
	late     map[string]bool       // instances of which a message failed: those after it must not be stored before it
	failed   []events.Wire         // for the next attempt; in order, for each instance
	bundle   map[string][]outgoing // results, or tasks, to send together, by their subject
	last     error
}

// outgoing is a message of a flight, with its instance if its order counts.
type outgoing struct {
	wire     events.Wire
	instance string
	direct   bool // it goes by direct delivery
}

// sent is a message that was sent.
type sent struct {
	outgoing
	answers *answers // where its answer arrives
	token   uint64   // of the answer
	cost    int64
	began   time.Time // of a task in direct delivery
	over    bool      // its outcome is known
}

// publishOnce makes one attempt to publish. It returns the messages to try again, in their order,
// with the last error.
func (p *publisher) publishOnce(ctx context.Context, messages []events.Wire,
	refused *broker.Refused) (failed []events.Wire, last error) {
	f := flight{
		p: p, ctx: ctx, refused: refused, congestion: p.congestion.now(),
		sent: make([]sent, 0, len(messages)), outcomes: make(chan publishResult, len(messages)),
	}
	defer f.end()
	for _, w := range messages {
		for len(f.free) > 0 {
			f.send(f.next())
		}
		w, way := p.direct.wayOf(w)
		l := outgoing{wire: w, direct: way != stored}
		if err := p.canTake(w.Subject); err != nil {
			f.refuse(l, err)
			continue
		}
		if way == bundled {
			f.gather(l)
			continue
		}
		l.instance = p.inOrder(w)
		if l.instance != "" && f.behind == nil { // what services send to each other has none
			f.behind, f.late = make(map[string][]outgoing), make(map[string]bool)
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
	for f.inFlight > 0 || len(f.free) > 0 {
		if len(f.free) > 0 {
			f.send(f.next())
		} else {
			f.await()
		}
	}
	if slices.ContainsFunc(f.sent, func(s sent) bool { return !s.direct }) {
		p.congestion.note(errors.Is(f.last, errUnanswered))
	}
	return f.failed, f.last
}

func (f *flight) next() outgoing {
	l := f.free[0]
	f.free = f.free[1:]
	return l
}

func (f *flight) end() {
	if f.tick != nil {
		f.tick.Stop()
	}
}

// send sends a message. If its order counts, the messages after it wait until it has landed.
func (f *flight) send(l outgoing) {
	if f.stopped != nil {
		f.fail(l, f.stopped)
		return
	}
	if _, flies := f.behind[l.instance]; l.instance != "" && !flies {
		f.behind[l.instance] = nil
	}
	var m *nats.Msg
	if l.direct {
		m = directMessage(l.wire)
	} else {
		m = f.p.message(l.wire, time.Now())
	}
	var cost int64 // what goes by direct delivery takes nothing from the broker
	if !l.direct {
		cost = min((int64(m.Size())+messageCost)<<f.congestion, window)
	}
	err := f.acquire(cost)
	if err == nil {
		if err = f.start(l, m, cost); err == nil {
			return
		}
		f.p.window.Release(cost)
	}
	if l.direct { // the way through the stream is another one
		f.free = append(f.free, l.throughTheStream(errNotHere))
		return
	}
	if permanent(err) {
		f.refuse(l, f.p.tooLarge(m, err))
		return
	}
	f.stopped = err // there is no way to the broker now
	f.fail(l, err)
}

// patience is how long a flight waits for an answer.
func (p *publisher) patience(short bool) time.Duration {
	if short {
		return p.direct.limits.answerWithin()
	}
	return publishWait
}

// answersTo is where the answer to a message arrives.
func (p *publisher) answersTo(l outgoing) *answers {
	switch {
	case !l.direct:
		return p.answers[""]
	case !l.wire.Direct:
		return p.answers[aboutResults]
	case strings.HasPrefix(l.wire.DirectTo, p.subject(directWord, string(aboutSystemTasks))+"."):
		return p.answers[aboutSystemTasks]
	}
	return p.answers[aboutTasks]
}

// launch sends a message for which there is room. If launch fails, the flight has no trace of it.
func (f *flight) start(l outgoing, m *nats.Msg, cost int64) (err error) {
	s := sent{outgoing: l, cost: cost}
	s.answers = f.p.answersTo(l)
	s.token, m.Reply, err = s.answers.expect(f.p.nc,
		&awaited{to: f.outcomes, n: len(f.sent), on: m.Subject, short: l.direct,
			until: time.Now().Add(f.p.patience(l.direct))})
	if err != nil {
		return err
	}
	if err = f.p.nc.PublishMsg(m); err != nil && s.answers.forget(s.token, false) != nil {
		return err
	}
	// It is in flight, or the connection broke meanwhile, which counts as an answer.
	f.sent = append(f.sent, s)
	f.inFlight++
	f.p.queues.noteQueue(l.wire.Subject)
	return nil
}

// throughTheStream returns the message to send if direct delivery has not settled this one.
func (l outgoing) throughTheStream(why error) outgoing {
	return outgoing{wire: fallback(l.wire, why), instance: l.instance}
}

// gather keeps a result, or a task, until it is sent with others.
func (f *flight) gather(l outgoing) {
	if f.bundle == nil {
		f.bundle = make(map[string][]outgoing)
	}
	back := l.wire.DirectTo
	if f.bundle[back] = append(f.bundle[back], l); len(f.bundle[back]) == maxBundle {
		f.sendBundle(back)
	}
}

// sendBundle sends the results, or the tasks, for direct delivery to one subject. Even a single
// task goes in a bundle, because the answer to a bundle may say more.
func (f *flight) sendBundle(back string) {
	results := f.bundle[back]
	f.bundle[back] = nil
	most := min(maxBundleBytes, int(f.p.nc.MaxPayload())/2)
	for len(results) > 0 {
		var body []byte
		n := 0
		for n < len(results) && len(body) < most {
			body = appendResult(body, results[n].wire)
			n++
		}
		if n == 1 && !results[0].wire.Direct {
			f.send(results[0])
		} else if err := f.startBundle(back, results[:n], body); err != nil {
			for _, l := range results[:n] {
				f.free = append(f.free, l.throughTheStream(errNotHere))
			}
		}
		results = results[n:]
	}
}

// startBundle sends results together. If startBundle fails, the flight has no trace of them.
func (f *flight) startBundle(back string, results []outgoing, body []byte) error {
	answers := f.p.answersTo(results[0])
	token, reply, err := answers.expect(f.p.nc, &awaited{to: f.outcomes, n: len(f.sent), on: back, short: true,
		until: time.Now().Add(f.p.patience(true)), said: nothingSaid(len(results))})
	if err != nil {
		return err
	}
	now := time.Now()
	m := bundleMessage(back, reply, len(results), results[0].wire.Direct, body, now)
	if err = f.p.nc.PublishMsg(m); err != nil && answers.forget(token, false) != nil {
		return err
	}
	for _, l := range results {
		f.sent = append(f.sent, sent{outgoing: l, answers: answers, token: token, began: now})
		f.inFlight++
	}
	return nil
}

// acquire waits until there is room for one more message.
func (f *flight) acquire(cost int64) error {
	if cost == 0 {
		return nil
	}
	for !f.p.window.TryAcquire(cost) {
		if f.inFlight == 0 {
			return f.p.window.Acquire(f.ctx, cost)
		}
		f.await() // first the messages of this call: two calls must not wait for each other
	}
	return nil
}

// land waits for the outcome of a message in flight.
func (f *flight) await() {
	select {
	case x := <-f.outcomes:
		f.finish(x)
		return
	default:
	}
	if f.tick == nil {
		f.tick = time.NewTicker(publishWait / 12)
	}
	select {
	case x := <-f.outcomes:
		f.finish(x)
	case <-f.tick.C:
		if f.isLate() {
			// The process may have been frozen, and not have read answers that have arrived.
			f.p.catchUp()
			f.giveUp(errUnanswered, true)
		}
	case <-f.ctx.Done():
		f.giveUp(context.Cause(f.ctx), false)
	case <-f.p.ctx.Done():
		f.giveUp(nats.ErrConnectionClosed, false)
	}
}

// isLate reports whether an answer is late.
func (f *flight) isLate() bool {
	return slices.ContainsFunc(f.sent, func(s sent) bool { return !s.over && s.answers.isLate(s.token) })
}

// giveUp stops waiting for the messages in flight, or for the late ones only.
func (f *flight) giveUp(why error, onlyLate bool) {
	for n := range f.sent {
		if s := &f.sent[n]; !s.over {
			if w := s.answers.forget(s.token, onlyLate); w != nil {
				f.finish(w.rest(why))
			}
		}
	}
}

// finish handles the outcomes of messages.
func (f *flight) finish(x publishResult) {
	if x.said == nil {
		f.finishOne(x.n, x.err)
		return
	}
	for i, letter := range x.said {
		switch {
		case letter == outcomeOpen:
		case x.err != nil:
			f.finishOne(x.n+i, x.err)
		default:
			f.finishOne(x.n+i, readBundled(letter, x.by))
		}
	}
}

func (f *flight) finishOne(n int, err error) {
	s := &f.sent[n]
	s.over = true
	f.inFlight--
	f.p.window.Release(s.cost)
	f.noteLoad(s)
	switch {
	case err == nil:
		if s.direct {
			f.p.direct.routes.taken.Add(1)
		}
		f.release(s.instance)
	case s.direct && f.ctx.Err() == nil && f.p.ctx.Err() == nil:
		f.p.direct.routes.refused(s.wire, err)
		f.free = append(f.free, s.throughTheStream(err))
	case permanent(err):
		f.refuse(s.outgoing, err)
	default:
		f.fail(s.outgoing, err)
	}
}

// noteLoad records how long a task was in direct delivery.
func (f *flight) noteLoad(s *sent) {
	if !s.direct || !s.wire.Direct || s.began.IsZero() {
		return
	}
	if words, ok := f.p.queueWords(s.wire.Subject); ok {
		f.p.direct.loads.note(words, s.began, time.Now())
	}
}

// release frees the next message of an instance.
func (f *flight) release(instance string) {
	waiting := f.behind[instance]
	if len(waiting) == 0 {
		delete(f.behind, instance)
		return
	}
	f.free = append(f.free, waiting[0])
	f.behind[instance] = waiting[1:]
}

// refuse gives up a message. The messages behind it continue.
func (f *flight) refuse(l outgoing, why error) {
	f.refused.Messages, f.refused.Reasons = append(f.refused.Messages, l.wire),
		append(f.refused.Reasons, explained(why))
	f.release(l.instance)
}

// fail keeps a message for the next attempt, and all later messages of its instance, which must not
// be stored before it.
func (f *flight) fail(l outgoing, why error) {
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
