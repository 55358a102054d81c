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
//	delayed, far       store it for later, in place of an older one       then acknowledge it
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
			r.delays.drop(len(some))
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
	subject, lastCounts := r.laterOf(wireOf(t.w)), r.delays.lastCounts(t.w)
	var there storedMessage
	if t.kind == replaceStored || lastCounts && (t.kind == compareStored || t.w.again) {
		var err error
		if there, err = r.store.storedForLater(ctx, subject); err != nil {
			return err
		}
	}
	is := there.beside(t.w, lastCounts)
	if t.kind == storeForLater && is == isNewest && r.store.shares.later.Load() != nil {
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
	case is != isNewest:
	case t.kind == storeForLater:
		is, err = r.store.storeForLater(ctx, t.w, lastCounts, there.place)
	case there.place > 0: // kind is replaceStored or compareStored
		err = r.store.dropLater(ctx, subject, there.place)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.w.done = true
	switch {
	case r.state.phase == closed:
	case is == isReplaced:
		t.w.d.Hold.Ack()
	case t.kind == storeForLater && is == isEarlier:
		r.delays.late(t.w)
	case t.kind == storeForLater:
		if lastCounts {
			r.delays.giveWay(t.w) // one that was accepted before may be held by now
		}
		t.w.d.Hold.Ack()
	case t.kind == replaceStored:
		if r.delays.giveWay(t.w) {
			t.w.d.Hold.Ack()
		} else {
			r.delays.hold(t.w)
		}
	case lastCounts && r.delays.giveWay(t.w): // to one that was compared while this one waited for that
		t.w.d.Hold.Ack()
	default:
		r.queue.push(r.delays.delivering(t.w))
	}
	return nil
}

// storedMessage is the message that waits for its time under a subject. Its place is 0 if there is
// none.
type storedMessage struct {
	accepted acceptance
	place    uint64
}

// standing says how a message compares with the stored one of its subject.
type standing int

const (
	isNewest   standing = iota // the stored one is older, or there is none
	isSame                     // it is the stored one
	isReplaced                 // the stored one replaces it
	isEarlier                  // the stored one was accepted after it was due: both count
)

// beside compares a message with the stored one. If not only the last one of a subject counts, the
// stored one has the same id.
func (s storedMessage) beside(w *waiting, lastCounts bool) standing {
	c := s.accepted.compare(w.accepted)
	switch {
	case s.place == 0 || c < 0:
		return isNewest
	case c == 0 || !lastCounts:
		return isSame
	case s.accepted.replaces(w):
		return isReplaced
	}
	return isEarlier
}

// laterStore is the stream of delayed messages, where receivers store what they take over.
type laterStore struct {
	*resources
	reader reader
	dead   *deadLetters
}

// storeTries is how often storeForLater compares a message with the stored one while other
// processes change that.
const storeTries = 5

// storeForLater stores a message until its time, in place of the one that is stored at a place, 0
// for none. The message keeps its id. If another one is stored by now, storeForLater compares the
// two first. A process may be frozen before it publishes, for longer than NATS remembers ids.
// Meanwhile another process may have stored the message, and a newer one in place of it, which must
// stay.
//
// If nothing is stored by now, because the newer one was due, the message is stored all the same.
func (l *laterStore) storeForLater(ctx context.Context, w *waiting, lastCounts bool, place uint64) (standing, error) {
	m := l.laterMessage(w)
	for range storeTries {
		_, err := l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(place))
		switch {
		case err == nil:
			return isNewest, nil
		case isChanged(err):
		case permanent(err) && !misconfigured(err):
			l.log.Error("NATS: a delayed message was refused and dead-lettered", "subject", w.d.Subject, "error", err)
			return isNewest, l.dead.StoreDeadLetter(ctx, w.d, broker.Cause{Reason: "refused", Detail: err.Error(),
				By: "delay"})
		default:
			return isNewest, err
		}
		there, err := l.storedForLater(ctx, m.Subject)
		if err != nil {
			return isNewest, err
		}
		if is := there.beside(w, lastCounts); is != isNewest {
			return is, nil
		}
		// Second: another process stores the message BEFORE it acknowledges the delivery.
		unsettled, err := l.reader.isThere(ctx, l.names.inbox, w.d.Sequence)
		if err != nil {
			return isNewest, problem("look for "+w.d.Subject, err)
		}
		if !unsettled {
			return isReplaced, nil
		}
		place = there.place
	}
	return isNewest, fmt.Errorf("store %s: other processes keep changing the stored message", m.Subject)
}

// laterMessage returns what makes NATS publish a message when it is due.
func (l *laterStore) laterMessage(w *waiting) *nats.Msg {
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
	return m
}

// isChanged reports whether a message was refused because another one than expected is the last one
// of its subject.
func isChanged(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// storedForLater returns the message that waits for its time under a subject.
func (l *laterStore) storedForLater(ctx context.Context, subject string) (storedMessage, error) {
	m, err := l.reader.lastOf(ctx, l.names.later, subject)
	if m == nil || err != nil {
		return storedMessage{}, problem("look for "+subject, err)
	}
	h, err := m.header()
	return storedMessage{readAcceptance(events.Header(h)), m.Sequence}, problem("read "+subject, err)
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
