package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Taking over delayed messages. The receiver of a partition moves delayed messages from the inbox
// to the stream of delayed messages. Of starts and control messages with one subject, the one that
// was accepted last counts, until it is due: each has the time of its acceptance, and gives way to
// one that was accepted later, but before it was due. All steps follow the order of the partition,
// so that a due message is compared with all messages that were accepted before it arrived.
//
//	delayed, far       store it for later, in place of the one before     then acknowledge it
//	delayed, near      remove the one that is stored for later            then hold it until its time
//	its time has come  look whether a newer one is stored for later,      then deliver or acknowledge it
//	                   and remove an older one

// takenOver is the maximum number of independent tasks done at once.
const takenOver = 32

// task is a step for a delayed message before it continues.
type task struct {
	w    *waiting
	kind taskKind
}

type taskKind int

const (
	storeForLater taskKind = iota
	replaceStored          // it is near: the one stored for later under its subject is older
	compareStored          // its time has come
)

// wireOf returns a delivery as it was published.
func wireOf(w *waiting) events.Wire {
	return events.Wire{Subject: w.d.Subject, Header: w.d.Header, Body: w.d.Body, NotBefore: w.notBefore}
}

// takeOver does the tasks for delayed messages, until the context ends.
func (r *receiver) takeOver(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		some := r.delays.some()
		r.mu.Unlock()
		if len(some) == 0 {
			select {
			case <-r.delays.todo:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := r.do(ctx, some)
		r.mu.Lock()
		if err == nil {
			r.delays.tasks = r.delays.tasks[len(some):]
			r.more()
		}
		r.mu.Unlock()
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			r.log.Warn("NATS: delayed messages cannot be stored; retrying", "partition", r.partition, "error", err)
		}
		select {
		case <-time.After(forwardAgain):
		case <-ctx.Done():
		}
	}
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
	if t.w.done { // another task of its round failed
		return nil
	}
	subject := r.laterOf(wireOf(t.w))
	var newer, older bool
	var place uint64
	if t.kind == replaceStored || r.delays.lastCounts(t.w) && (t.kind == compareStored || t.w.again) {
		stored, at, err := r.store.storedForLater(ctx, subject)
		if err != nil {
			return err
		}
		place = at
		newer = place > 0 && stored.replaces(t.w)
		older = place > 0 && stored.compare(t.w.accepted) < 0
	}
	if t.kind == storeForLater && !newer && r.store.shares.later.Load() != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.w.done = true
		if r.state.phase != closed {
			t.w.d.Hold.Nak(time.Duration(r.store.shares.wait.Load()))
		}
		return nil
	}
	var err error
	switch {
	case newer:
	case t.kind == storeForLater:
		err = r.store.storeForLater(ctx, t.w)
	case older: // kind is replaceStored or compareStored
		err = r.store.dropLater(ctx, subject, place)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.w.done = true
	switch {
	case r.state.phase == closed:
	case newer:
		t.w.d.Hold.Ack()
	case t.kind == storeForLater:
		if r.delays.lastCounts(t.w) {
			r.delays.giveWay(t.w) // one that was accepted before may be held by now
		}
		t.w.d.Hold.Ack()
	case t.kind == replaceStored:
		if r.delays.giveWay(t.w) {
			t.w.d.Hold.Ack()
		} else {
			r.delays.hold(t.w)
		}
	default:
		r.queue.push(t.w)
	}
	return nil
}

// laterStore is the stream of delayed messages, where receivers store what they take over.
type laterStore struct {
	*resources
	reader reader
	dead   *deadLetters
}

// storeForLater stores a message until its time. The message keeps its id.
func (l *laterStore) storeForLater(ctx context.Context, w *waiting) error {
	x := wireOf(w)
	id := first(x.Header, nats.MsgIdHdr)
	if first(x.Header, events.HeaderMsgID) == "" && id == "" {
		id = w.d.ID()
	}
	if id != "" {
		x = withHeader(x, events.HeaderMsgID, id)
	}
	if first(x.Header, events.HeaderSent) == "" { // the moment of its copies would differ
		x = withHeader(x, events.HeaderSent, time.UnixMicro(w.accepted.at).UTC().Format(time.RFC3339Nano))
	}
	m := l.schedule(x, l.dueOf(x.Subject), "later/"+w.accepted.String())
	m.Header[headerAccepted] = []string{w.accepted.String()}
	_, err := l.js.PublishMsg(ctx, m)
	if err == nil || !permanent(err) {
		return err
	}
	l.log.Error("NATS: a delayed message was refused and dead-lettered", "subject", w.d.Subject, "error", err)
	return l.dead.StoreDeadLetter(ctx, w.d, broker.Cause{Reason: "refused", Detail: err.Error(), By: "delay"})
}

// storedForLater returns the acceptance and the place of the message that waits for its time under
// a subject; 0 if there is none. The leader of the stream answers: another replica may not have the
// newest message yet.
func (l *laterStore) storedForLater(ctx context.Context, subject string) (a acceptance, place uint64, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	m, err := l.reader.askLeader(ctx, l.names.later, fmt.Appendf(nil, `{"last_by_subj":%q}`, subject))
	if m == nil || err != nil {
		return a, 0, problem("look for "+subject, err)
	}
	h, err := m.header()
	return readAcceptance(events.Header(h)), m.Sequence, problem("read "+subject, err)
}

// dropLater removes the message that waits for its time under a subject, up to a place. If this
// process was frozen or cut off, the request may arrive late: another receiver may have stored a
// newer message by then.
func (l *laterStore) dropLater(ctx context.Context, subject string, place uint64) error {
	st, err := l.laterStream()
	if err != nil {
		return err
	}
	return problem("remove "+subject,
		st.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(place+1)))
}
