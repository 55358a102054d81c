package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// publishers publish at the same time, each everything that has finished just then. Most of the
	// time they wait until it is committed, and what finishes meanwhile needs another one.
	publishers = 16
	// maxFinished bounds what has finished and was not taken by a publisher: beyond it, activities
	// that have finished keep their slots. maxBatch bounds one call.
	maxFinished = 1024
	maxBatch    = 512
)

// completion is a message about an attempt on its way to the instance. When it is stored, or
// committed already, the attempt is acknowledged, unless it goes on.
type completion struct {
	a     *attempt
	wire  events.Wire
	goes  bool // the attempt goes on
	tries int  // how often it was refused
}

// done publishes a result.
func (w *Worker) done(a *attempt, result events.Payload) {
	w.say(a, events.VerbDone, &events.WorkDone{Ref: a.work.Ref, Result: result, Worker: w.config.ID})
}

// fail publishes an error.
func (w *Worker) fail(a *attempt, err *events.Error) {
	w.say(a, events.VerbFail, w.failure(a, err))
}

func (w *Worker) failure(a *attempt, err *events.Error) *events.WorkFailed {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.last
	if len(last) > events.MaxHeartbeat {
		last = nil
	}
	return &events.WorkFailed{Ref: a.work.Ref, Error: err.Bounded(), Heartbeat: last, Worker: w.config.ID}
}

// pending publishes that somebody else completes the activity.
func (w *Worker) pending(a *attempt) {
	w.tell(a, events.Message{ID: events.PendingID(a.m.Instance, a.work.Ref),
		Content: &events.WorkBegun{Ref: a.work.Ref, Worker: w.config.ID, Pending: true}})
}

// begun publishes that the work has begun. It goes on meanwhile: if that is lost, the worker has
// died, and the work comes again.
func (w *Worker) begun(a *attempt) {
	wire, err := w.encode(a, events.Message{ID: events.MessageID(events.VerbBegun, a.m.Instance, a.work.Ref),
		Content: &events.WorkBegun{Ref: a.work.Ref, Worker: w.config.ID}})
	if err == nil {
		w.send(completion{a: a, wire: wire, goes: true})
	}
}

func (w *Worker) say(a *attempt, verb events.Verb, c events.Content) {
	w.tell(a, events.Message{ID: events.MessageID(verb, a.m.Instance, a.work.Ref), Content: c})
}

func (w *Worker) tell(a *attempt, m events.Message) {
	wire, err := w.encode(a, m)
	if err != nil {
		err = fmt.Errorf("what it returned cannot be sent: %w", err)
		wire, err = w.encode(a, w.shortFailure(a, events.Infrastructure, err))
	}
	if err != nil { // even that
		w.putAside(a, broker.Cause{Reason: "unsendable", Detail: err.Error(), By: w.config.ID,
			Attempts: a.d.NumDelivered})
		return
	}
	w.send(completion{a: a, wire: wire})
}

func (w *Worker) encode(a *attempt, m events.Message) (events.Wire, error) {
	m.Instance, m.Trace = a.m.Instance, cmp.Or(a.from, a.m.Trace)
	wire, err := events.Encode(w.bus.Prefix(), m)
	if back := a.d.Header[events.HeaderBack]; len(back) > 0 && a.d.NumDelivered == 1 {
		// what comes again may come because its result kills who takes it: the stream counts
		wire.Back = back[0]
	}
	return wire, err
}

// shortFailure is one that fits wherever anything fits.
func (w *Worker) shortFailure(a *attempt, kind events.ErrorKind, err error) events.Message {
	const most = 400
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > most {
		for text = text[:most]; !utf8.ValidString(text); {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return events.Message{
		ID: events.MessageID(events.VerbFail, a.m.Instance, a.work.Ref) + "/short",
		Content: &events.WorkFailed{Ref: a.work.Ref, Worker: w.config.ID,
			Error: &events.Error{Kind: kind, Final: kind == events.LimitExceeded, Message: text}},
	}
}

// send passes a completion to the publishers.
func (w *Worker) send(c completion) {
	select {
	case w.finished <- c:
	case <-w.publishing.Done():
		c.unpublished()
	}
}

// complete publishes what has finished, until the end.
func (w *Worker) complete() {
	batch := make([]completion, 0, maxBatch)
	for {
		select {
		case c := <-w.finished:
			batch = w.gather(append(batch[:0], c))
			w.publish(batch)
			clear(batch)
		case <-w.publishing.Done():
			for _, c := range w.gather(batch[:0]) {
				c.unpublished()
			}
			return
		}
	}
}

// gather takes everything that has finished by now.
func (w *Worker) gather(batch []completion) []completion {
	for len(batch) < maxBatch {
		select {
		case c := <-w.finished:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// publish publishes a batch, and settles it.
func (w *Worker) publish(batch []completion) {
	wires := make([]events.Wire, len(batch))
	for i, c := range batch {
		wires[i] = c.wire
	}
	began := time.Now()
	err := w.bus.Publish(w.publishing, wires...)
	w.config.Metrics.Completed(time.Since(began), err)
	var refused *broker.Refused
	switch {
	case err == nil:
		for _, c := range batch {
			c.stored()
		}
	case errors.As(err, &refused):
		for _, c := range batch {
			if reason := reasonFor(refused, c.wire); reason != nil {
				w.refused(c, reason)
			} else {
				c.stored()
			}
		}
	default:
		if !errors.Is(err, context.Canceled) {
			w.log.Warn("worker: completions could not be published; the work goes back", "messages",
				len(batch), "error", err)
		}
		for _, c := range batch {
			c.unpublished()
		}
	}
}

// reasonFor tells why the broker does not take a message; nil if it does.
func reasonFor(refused *broker.Refused, wire events.Wire) error {
	id := idOf(wire)
	for i, m := range refused.Messages {
		if m.Subject == wire.Subject && idOf(m) == id {
			return refused.Reasons[i]
		}
	}
	return nil
}

func idOf(w events.Wire) string {
	if id := w.Header[events.HeaderMsgID]; len(id) > 0 {
		return id[0]
	}
	return ""
}

// refused tells the instance that what should be told cannot be.
func (w *Worker) refused(c completion, reason error) {
	c.a.log().Warn("worker: the broker refuses a completion", "bytes", len(c.wire.Body), "error", reason)
	switch {
	case c.goes:
		return
	case c.tries == 0:
		err := fmt.Errorf("what it returned (%d bytes) is refused by the broker: %w; keep large data in a store and "+
			"pass a reference to it", len(c.wire.Body), reason)
		wire, failed := w.encode(c.a, w.shortFailure(c.a, events.LimitExceeded, err))
		if failed == nil {
			w.publish([]completion{{a: c.a, wire: wire, tries: 1}})
			return
		}
	}
	w.putAside(c.a, broker.Cause{Reason: "unsendable", Detail: reason.Error(), By: w.config.ID,
		Attempts: c.a.d.NumDelivered})
}

// stored acknowledges the work.
func (c completion) stored() {
	if !c.goes {
		c.a.finish(acked, 0)
	}
}

// unpublished gives the work back.
func (c completion) unpublished() {
	if !c.goes {
		c.a.finish(returned, 0)
	}
}
