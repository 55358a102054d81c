package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Passing work on. Work may go to a worker of its queue at once, without being stored by the
// broker, if whoever has promised it keeps it meanwhile. It goes in bundles, as results do, to any
// worker that has said that it has room, and is answered when it is settled: its result is, by
// then. What a worker has no room for, or gives back, goes through the stream at once; what nobody
// answers after the time that one waits for the broker does so then, and counts as handed out
// before. What takes its time goes there, too, before that, and says by whom it is held, so that
// whoever takes it from the stream can hand it over: nothing is held up for long, and nothing that
// takes long depends on who has published it.

const (
	// passName begins the last word of the subjects on which workers take what is passed on; the
	// name of the queue's consumer follows.
	passName = "work-"
	// passGroup is the group of the workers of a queue. Each bundle goes to one of them.
	passGroup = "workers"
	// resultLasts is what the answer to a bundle says of work that takes its time.
	resultLasts = 'L'
)

// lasts is why work goes through the stream that somebody has taken.
type lasts struct{ by string }

func (l lasts) Error() string { return fmt.Sprintf("%q has it, and takes its time", l.by) }

func (b *Bus) passSubject(q broker.Queue) string { return b.handoverSubject(passName + ConsumerOf(q)) }

// passes makes what is passed on of work, if it may be just now.
func (b *Bus) passes(w events.Wire) (events.Wire, bool) {
	if !w.Pass || !w.NotBefore.IsZero() || len(w.Body) > largeResult {
		return w, false
	}
	to := b.passTo(w.Subject)
	if to == "" || !b.ways.may(to) {
		return w, false
	}
	w.Back, w.Header = to, events.Header(b.withWayBack(nats.Header(w.Header)))
	return w, true
}

// passTo is where work of a subject is passed on; "" if the subject is not one of work.
func (b *Bus) passTo(subject string) string {
	words, ok := b.queueWords(subject)
	if !ok {
		return ""
	}
	if to, known := b.passing.Load(words); known {
		return to.(string)
	}
	tag, activity, _ := strings.Cut(words, ".")
	q, err := queueOf(tag, activity)
	if err != nil {
		return ""
	}
	to := b.passSubject(q)
	b.passing.Store(words, to)
	return to
}

// notSettled makes what is published through the stream of work that no worker has settled. What a
// worker has begun with counts as handed out, unless it has it still.
func notSettled(w events.Wire, why error) events.Wire {
	w.Back, w.Pass = "", false
	var l lasts
	switch {
	case errors.As(why, &l) && 0 < len(l.by) && len(l.by) <= events.MaxName:
		return withHeader(w, events.HeaderHeld, l.by)
	case errors.Is(why, jetstream.ErrNoStreamResponse), errors.Is(why, errNotHere), errors.Is(why, errBusy),
		errors.Is(why, errReturned):
		return w
	}
	return withHeader(w, headerAgain, "true")
}

// ---- The worker's side.

// Offer implements broker.WorkQueue.
func (q *workQueue) Offer(name string, take func(broker.Delivery) bool) (stop func(), err error) {
	b := q.b
	o := &offer{q: q, name: name, take: take}
	sub, err := b.nc.QueueSubscribe(b.passSubject(q.queue), passGroup, o.hear)
	if err != nil {
		return nil, problem("offer room for work of "+q.name, err)
	}
	_ = sub.SetPendingLimits(-1, -1)        // what there is no room for is refused at once
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	if err := b.nc.FlushTimeout(b.config.Timeout); err != nil {
		stop()
		return nil, problem("offer room for work of "+q.name, err)
	}
	return stop, nil
}

// offer is a worker's room for work of a queue.
type offer struct {
	q    *workQueue
	name string
	take func(broker.Delivery) bool
}

// hear takes work, or refuses it at once. It may be from anybody who may publish there.
func (o *offer) hear(m *nats.Msg) {
	b := o.q.b
	if !b.mayAnswer(m) || b.back.isDenied() {
		return
	}
	work, err := readBundle(m.Header.Get(headerResults), m.Data)
	if err != nil { // whoever has sent it expects a letter for each of we do not know how many
		b.log.Warn("NATS: work that cannot be read", "error", err)
		return
	}
	now, here := time.Now(), b.passSubject(o.q.queue)
	came, fresh := passedAt(m, now)
	all := newBundle(b.nc, m.Reply, len(work), o.name, came)
	for i, w := range work {
		hold := bundledHold{all, i}
		switch {
		case !fresh:
			hold.say(saidBusy)
		case !all.offer(i): // it goes through the stream
		case b.canTake(w.Subject) != nil || b.passTo(w.Subject) != here:
			b.log.Warn("NATS: work that is none of this queue", "queue", o.q.name, "subject", w.Subject)
			hold.say(saidNotHere)
		default:
			d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body,
				Sequence: firstShort + b.passedOn.Add(1),
				Passed:   true, NumDelivered: 1, StoredAt: now, Hold: hold}
			if o.take(d) {
				all.took(i)
			} else {
				hold.say(saidBusy)
			}
		}
	}
}

// passedAt is when work was passed on, by the clock here. A process that has stood still, or whose
// clock has, finds work that was given up meanwhile: that is not fresh.
func passedAt(m *nats.Msg, now time.Time) (at time.Time, fresh bool) {
	said, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerPassedAt))
	if err != nil {
		return now, true // whoever has sent it does not say so
	}
	age := now.Sub(said)
	return now.Add(-max(age, 0)), -maxAhead < age && age < broker.LastsAfter
}

// storedLate tells whether work that was passed on is stored, which it is not at first. Until it
// must be, whoever has passed it on keeps it.
func (b *Bus) storedLate(ctx context.Context, d broker.Delivery) (bool, error) {
	if time.Since(d.StoredAt) < broker.LastsAfter+2*tellEvery {
		return true, nil
	}
	st, _, err := b.streamOf(d.Subject)
	if err != nil {
		return false, err
	}
	switch _, err := st.GetLastMsgForSubject(ctx, d.Subject); {
	case err == nil:
		return true, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	default:
		return false, problem("look for "+d.Subject, err)
	}
}
