package natsbroker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Taking over what is for later. The receiver of a partition moves delayed messages from the inbox
// to the stream of what waits for its time. Of starts and control messages with one subject, the
// one that was accepted last counts, until it is due: each says when it was accepted, and whatever
// finds a newer one gives way. All of it is done in the order of the partition, so that a message
// that is due is compared with all that were accepted before it came.
//
//	delayed, far       store it for later, in place of the one before     then acknowledge it
//	delayed, near      remove the one that is stored for later            then hold it until its time
//	its time has come  look whether a newer one is stored for later       then hand it out, or acknowledge it

// takenOver is how many of those that do not depend on each other are done at once.
const takenOver = 32

// task is something to be done for a delayed message before it goes on.
type task struct {
	w    *waiting
	kind taskKind
}

type taskKind int

const (
	storeForLater taskKind = iota
	replaceStored          // it is near: what is stored for later under its subject is older
	compareStored          // its time has come
)

// wireOf is a delivery as it was published.
func wireOf(w *waiting) events.Wire {
	return events.Wire{Subject: w.d.Subject, Header: w.d.Header, Body: w.d.Body, NotBefore: w.notBefore}
}

// lastCounts tells whether a delayed message takes the place of another one under its subject.
func (r *receiver) lastCounts(w *waiting) bool {
	verb, _ := events.Origin(r.b.verbOf(w.d.Subject))
	return r.b.goesThroughInbox(w.d.Subject) && !eachCounts(verb)
}

// delayed takes a message whose time has not come. mu is held.
func (r *receiver) delayed(w *waiting, rest time.Duration) {
	switch {
	case !r.lastCounts(w) && (rest <= near || w.due || !r.b.goesThroughInbox(w.d.Subject)):
		r.hold(w)
	case w.due:
		if r.giveWay(w) {
			w.d.Hold.Ack()
			return
		}
		r.hold(w)
	case rest <= near:
		if r.giveWay(w) {
			w.d.Hold.Ack()
			return
		}
		r.later(task{w, replaceStored})
	default:
		if r.lastCounts(w) && r.giveWay(w) {
			w.d.Hold.Ack()
			return
		}
		r.later(task{w, storeForLater})
	}
}

// giveWay tells whether a message that is held here was accepted after this one, under the same
// subject. If it was accepted before, it gives way itself. mu is held.
func (r *receiver) giveWay(w *waiting) bool {
	subject := r.b.laterOf(wireOf(w))
	held := r.held[subject]
	if held == nil || held == w {
		return false
	}
	switch held.accepted.compare(w.accepted) {
	case 1:
		return true
	case -1:
		held.timer.Stop()
		delete(r.early, held.d.Sequence)
		delete(r.held, subject)
		held.d.Hold.Ack()
	}
	return false
}

// hold keeps a message until its time. mu is held.
func (r *receiver) hold(w *waiting) {
	if before := r.early[w.d.Sequence]; before != nil {
		before.timer.Stop() // it came once more
	}
	r.early[w.d.Sequence] = w
	if r.lastCounts(w) {
		r.held[r.b.laterOf(wireOf(w))] = w
	}
	w.timer = time.AfterFunc(time.Until(w.notBefore), func() { r.due(w) })
}

// release forgets a message that was held. mu is held.
func (r *receiver) release(w *waiting) {
	delete(r.early, w.d.Sequence)
	if subject := r.b.laterOf(wireOf(w)); r.held[subject] == w {
		delete(r.held, subject)
	}
}

// later notes that something is to be done. mu is held.
func (r *receiver) later(t task) {
	r.tasks = append(r.tasks, t)
	select {
	case r.todo <- struct{}{}:
	default:
	}
}

// takeOver does what is to be done for delayed messages, until the context ends.
func (r *receiver) takeOver(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		some := r.someTasks()
		r.mu.Unlock()
		if len(some) == 0 {
			select {
			case <-r.todo:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := r.do(ctx, some)
		r.mu.Lock()
		if err == nil {
			r.tasks = r.tasks[len(some):]
			r.more()
		}
		r.mu.Unlock()
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			r.b.log.Warn("NATS: delayed messages cannot be stored; retrying", "partition", r.partition, "error", err)
		}
		select {
		case <-time.After(forwardAgain):
		case <-ctx.Done():
		}
	}
}

// someTasks takes those from the front that are of one kind and do not depend on each other. They
// stay in the list until they are done. mu is held.
func (r *receiver) someTasks() []task {
	subjects := make(map[string]bool)
	for i, t := range r.tasks {
		subject := r.b.laterOf(wireOf(t.w))
		if t.kind != r.tasks[0].kind || i == takenOver || subjects[subject] {
			return r.tasks[:i:i]
		}
		subjects[subject] = true
	}
	return r.tasks[:len(r.tasks):len(r.tasks)]
}

// do does tasks of one kind.
func (r *receiver) do(ctx context.Context, tasks []task) error {
	errs := make([]error, len(tasks))
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() { errs[i] = r.doOne(ctx, t) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *receiver) doOne(ctx context.Context, t task) error {
	if t.w.done { // the others of its round failed
		return nil
	}
	subject := r.b.laterOf(wireOf(t.w))
	var newer bool
	if r.lastCounts(t.w) && (t.kind == compareStored || t.w.again) { // only then can there be one
		stored, there, err := r.b.storedForLater(ctx, subject)
		if err != nil {
			return err
		}
		newer = there && stored.compare(t.w.accepted) > 0
	}
	var err error
	switch {
	case newer:
	case t.kind == storeForLater:
		err = r.storeForLater(ctx, t.w)
	case t.kind == replaceStored:
		err = r.b.dropLater(ctx, subject)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.w.done = true
	switch {
	case r.over:
	case newer:
		t.w.d.Hold.Ack()
	case t.kind == storeForLater:
		if r.lastCounts(t.w) {
			r.giveWay(t.w) // one may be held by now that was accepted before
		}
		t.w.d.Hold.Ack()
	case t.kind == replaceStored:
		if r.giveWay(t.w) {
			t.w.d.Hold.Ack()
		} else {
			r.hold(t.w)
		}
	default:
		r.push(t.w)
	}
	return nil
}

// storeForLater stores a message until its time. It keeps the id that it would have had.
func (r *receiver) storeForLater(ctx context.Context, w *waiting) error {
	x := wireOf(w)
	id := first(x.Header, nats.MsgIdHdr)
	if first(x.Header, events.HeaderMsgID) == "" && id == "" {
		id = w.d.ID()
	}
	if id != "" {
		x = withHeader(x, events.HeaderMsgID, id)
	}
	x = withHeader(x, headerAccepted, w.accepted.String())
	if first(x.Header, events.HeaderSent) == "" { // the moment of its copies would differ
		x = withHeader(x, events.HeaderSent, time.UnixMicro(w.accepted.at).UTC().Format(time.RFC3339Nano))
	}
	m := r.b.schedule(x, r.b.dueOf(x.Subject), "later/"+w.accepted.String())
	_, err := r.b.js.PublishMsg(ctx, m)
	if err == nil || !permanent(err) {
		return err
	}
	r.b.log.Error("NATS: a delayed message was refused and dead-lettered", "subject", w.d.Subject, "error", err)
	return r.b.StoreDeadLetter(ctx, w.d, broker.Cause{Reason: "refused", Detail: err.Error(), By: "delay"})
}

// storedForLater tells what waits for its time under a subject, by when it was accepted.
func (b *Bus) storedForLater(ctx context.Context, subject string) (a acceptance, there bool, err error) {
	st, err := b.laterStream()
	if err != nil {
		return a, false, err
	}
	m, err := st.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return a, false, nil
	case err != nil:
		return a, false, problem("look for "+subject, err)
	}
	return readAcceptance(events.Header(m.Header)), true, nil
}

// dropLater removes what waits for its time under a subject.
func (b *Bus) dropLater(ctx context.Context, subject string) error {
	st, err := b.laterStream()
	if err != nil {
		return err
	}
	return problem("remove "+subject, st.Purge(ctx, jetstream.WithPurgeSubject(subject)))
}
