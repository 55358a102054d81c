package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

const (
	// publishers is the number of goroutines that publish. Each publishes all attempts that have
	// just finished. Mostly they wait for commits, and attempts that finish meanwhile need another
	// goroutine.
	publishers = 16
	// maxFinished is the maximum number of finished attempts that wait for a publisher: beyond it,
	// finished activities keep their slots. maxBatch is the maximum of one call.
	maxFinished = 1024
	maxBatch    = 512
	// finishedBytes is the maximum size of the messages about attempts that have ended, until they
	// are stored. Beyond it, finished activities keep their slots. It is also that of messages that
	// a setting of the broker prevents, before these count to the others.
	finishedBytes = 64 << 20
)

// completer publishes messages about attempts to their instances, and then has their tasks
// acknowledged.
type completer struct {
	ctx      context.Context
	bus      broker.Publisher
	prefix   string
	id       string
	metrics  *telemetry.TaskMetrics
	log      *slog.Logger
	settler  *settler
	dead     *deadLetters
	finished chan completion
	room     *semaphore.Weighted // in bytes, for the messages about attempts that have ended
	refusals *semaphore.Weighted // likewise, for those of them that a setting prevents
	warnings rate.Sometimes      // about what a setting prevents
}

// completion is a message about an attempt to its instance. When it is stored, or committed
// already, the attempt is acknowledged, unless it goes on.
type completion struct {
	a     *attempt
	wire  events.Wire
	goes  bool // the attempt goes on
	tries int  // how often the broker refused it
	// bytes is the share of room that it has, until it is stored or given up. room is nil if it has
	// none.
	bytes int64
	room  *semaphore.Weighted
}

// release gives its room back.
func (x completion) release() {
	if x.room != nil {
		x.room.Release(x.bytes)
	}
}

// done publishes a result.
func (c *completer) done(a *attempt, result codec.Payload) {
	c.say(a, events.VerbDone, &events.TaskDone{Ref: a.work.Ref, Result: result, Worker: c.id})
}

// fail publishes an error.
func (c *completer) fail(a *attempt, err *failure.Error) {
	c.say(a, events.VerbFail, c.failure(a, err))
}

func (c *completer) failure(a *attempt, err *failure.Error) *events.TaskFailed {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.progress.last
	if len(last) > events.MaxHeartbeat {
		last = nil
	}
	return &events.TaskFailed{Ref: a.work.Ref, Error: events.Bounded(err), Heartbeat: last, Worker: c.id}
}

// pending publishes that another program completes the activity.
func (c *completer) pending(a *attempt) {
	c.report(a, events.Message{ID: events.PendingID(a.m.Instance, a.work.Ref),
		Content: &events.TaskBegun{Ref: a.work.Ref, Worker: c.id, Pending: true}})
}

// begun publishes that the task has begun. The execution goes on meanwhile: if the message is lost,
// the worker has died, and the task is redelivered.
func (c *completer) begun(a *attempt) {
	wire, err := c.encode(a, events.Message{ID: events.MessageID(events.VerbBegun, a.m.Instance, a.work.Ref),
		Content: &events.TaskBegun{Ref: a.work.Ref, Worker: c.id}})
	if err == nil {
		c.send(completion{a: a, wire: wire, goes: true})
	}
}

func (c *completer) say(a *attempt, verb events.Verb, content events.Content) {
	c.report(a, events.Message{ID: events.MessageID(verb, a.m.Instance, a.work.Ref), Content: content})
}

func (c *completer) report(a *attempt, m events.Message) {
	wire, err := c.encode(a, m)
	if err != nil {
		err = fmt.Errorf("what it returned cannot be sent: %w", err)
		wire, err = c.encode(a, c.shortFailure(a, failure.Infrastructure, err))
	}
	if err != nil { // even that cannot be sent
		c.dead.deadLetter(a, "unsendable", err.Error())
		return
	}
	x := completion{a: a, wire: wire}
	bytes := min(int64(len(wire.Subject)+len(wire.Body)), finishedBytes)
	if c.room.Acquire(c.ctx, bytes) == nil { // otherwise the worker ends, and send nacks the task
		x.bytes, x.room = bytes, c.room
	}
	c.send(x)
}

func (c *completer) encode(a *attempt, m events.Message) (events.Wire, error) {
	m.Instance, m.Trace = a.m.Instance, cmp.Or(a.span.from, a.m.Trace)
	wire, err := events.Encode(c.prefix, m)
	if back := a.d.Header[events.HeaderDirectReply]; len(back) > 0 && a.numDelivered() == 1 {
		// A redelivery may be due to a result that kills its receiver: the stream counts
		// deliveries.
		wire.DirectTo = back[0]
	}
	return wire, err
}

// shortFailure is a failure that fits wherever any message fits.
func (c *completer) shortFailure(a *attempt, kind failure.Kind, err error) events.Message {
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
		Content: &events.TaskFailed{Ref: a.work.Ref, Worker: c.id,
			Error: &failure.Error{Kind: kind, NonRetryable: kind == failure.LimitExceeded, Message: text}},
	}
}

// send sends a completion to the publishers.
func (c *completer) send(x completion) {
	select {
	case c.finished <- x:
		if c.ctx.Err() != nil { // the publishers may have ended
			c.giveUp()
		}
	case <-c.ctx.Done():
		c.unpublished(x)
	}
}

// giveUp nacks the tasks of the attempts that have finished by now.
func (c *completer) giveUp() {
	for _, x := range c.gather(nil) {
		c.unpublished(x)
	}
}

// run publishes finished attempts, until the worker ends.
func (c *completer) run() {
	batch := make([]completion, 0, maxBatch)
	for {
		select {
		case x := <-c.finished:
			batch = c.gather(append(batch[:0], x))
			c.publish(batch)
			clear(batch)
		case <-c.ctx.Done():
			c.giveUp()
			return
		}
	}
}

// gather adds all attempts that have finished by now.
func (c *completer) gather(batch []completion) []completion {
	for len(batch) < maxBatch {
		select {
		case x := <-c.finished:
			batch = append(batch, x)
		default:
			return batch
		}
	}
	return batch
}

// refusedPause is the delay before completions are published again that the broker refuses because
// of a setting.
const refusedPause = time.Second

// warnEvery is the interval of warnings about that.
const warnEvery = 30 * time.Second

// publish publishes a batch, and settles its attempts. While a setting of the broker prevents that
// for some, it tries these again: the activities need not be executed again for it. Meanwhile it
// publishes what else finishes, because the setting may allow that.
func (c *completer) publish(batch []completion) {
	again := c.publishOnce(batch)
	for len(again) > 0 {
		again = c.publishOthers(again)
		if c.ctx.Err() != nil {
			for _, x := range again {
				c.unpublished(x)
			}
			return
		}
		again = c.publishOnce(again)
	}
}

// publishOthers publishes what finishes during the pause before some completions are published
// again. It returns these, with those that must be published again, too. If they are many, it
// publishes no others, so that finished activities keep their slots.
func (c *completer) publishOthers(again []completion) []completion {
	pause := time.After(refusedPause)
	for {
		finished := c.finished
		if len(again) >= maxBatch {
			finished = nil
		}
		select {
		case x := <-finished:
			again = append(again, c.publishOnce(c.gather([]completion{x}))...)
		case <-pause:
			return again
		case <-c.ctx.Done():
			return again
		}
	}
}

// publishOnce publishes a batch, and settles its attempts, except those of the completions that it
// returns, which must be published again.
func (c *completer) publishOnce(batch []completion) (again []completion) {
	wires := make([]events.Wire, len(batch))
	for i, x := range batch {
		wires[i] = x.wire
	}
	began := time.Now()
	err := c.bus.Publish(c.ctx, wires...)
	c.metrics.Completed(time.Since(began), err)
	var refused *broker.Refused
	var failures []completion // instead of results that the broker refuses
	switch {
	case err == nil:
		for _, x := range batch {
			c.stored(x)
		}
	case errors.As(err, &refused):
		for _, x := range batch {
			switch reason := refused.ReasonFor(x.wire); {
			case reason == nil:
				c.stored(x)
			case errors.Is(reason, broker.ErrMisconfigured) && !x.goes:
				again = append(again, c.aside(x))
			default:
				if instead, ok := c.refused(x, reason); ok {
					failures = append(failures, instead)
				}
			}
		}
		if len(again) > 0 {
			c.warnings.Do(func() {
				c.log.Warn("worker: the broker refuses results because of a setting; trying again", "messages",
					len(again), "subject", again[0].wire.Subject, "error", refused.ReasonFor(again[0].wire))
			})
		}
	default:
		if !errors.Is(err, context.Canceled) {
			c.log.Warn("worker: results could not be published; NATS redelivers the tasks", "messages",
				len(batch), "error", err)
		}
		for _, x := range batch {
			c.unpublished(x)
		}
	}
	if len(failures) > 0 {
		again = append(again, c.publishOnce(failures)...)
	}
	return again
}

// aside moves a completion that a setting prevents to the room for these, if there is some: those
// of other activities are to go on meanwhile.
func (c *completer) aside(x completion) completion {
	if x.room == c.room && x.bytes > 0 && c.refusals.TryAcquire(x.bytes) {
		x.release()
		x.room = c.refusals
	}
	return x
}

// refused returns what tells the instance that the broker has refused its completion. If there is
// nothing to tell, or the broker has refused that, too, it returns false.
func (c *completer) refused(x completion, reason error) (instead completion, ok bool) {
	x.a.log().Warn("worker: the broker refuses a completion", "bytes", len(x.wire.Body), "error", reason)
	switch {
	case x.goes:
		return completion{}, false
	case x.tries == 0:
		err := fmt.Errorf("what it returned (%d bytes) is refused by the broker: %w; keep large data in a store and "+
			"pass a reference to it", len(x.wire.Body), reason)
		wire, failed := c.encode(x.a, c.shortFailure(x.a, failure.LimitExceeded, err))
		if failed == nil {
			return completion{a: x.a, wire: wire, tries: 1, bytes: x.bytes, room: x.room}, true
		}
	}
	c.dead.deadLetter(x.a, "unsendable", reason.Error())
	x.release()
	return completion{}, false
}

// stored acknowledges the task.
func (c *completer) stored(x completion) {
	if !x.goes {
		c.settler.answered(x.a, x.wire)
		x.release()
	}
}

// unpublished nacks the task.
func (c *completer) unpublished(x completion) {
	if !x.goes {
		c.settler.finish(x.a, returned, 0)
		x.release()
	}
}
