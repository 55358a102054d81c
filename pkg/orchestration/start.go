package orchestration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// StartInstance starts an instance of an orchestration of which only the name is known, with an
// input that is encoded already. It gives the id of the instance, and for [Client.Outcome] the id
// of the start message if what was there before it does not count. Both are given with an error,
// too, if the start may have been stored.
func StartInstance(ctx context.Context, c Client, name string, input events.Payload, opts ...StartOption) (id,
	start string, err error) {
	var o startOptions
	for _, opt := range opts {
		opt.start(&o)
	}
	o.identify(c)
	if err := o.check(name, input); err != nil {
		return "", "", err
	}
	with, err := o.messages(c, input)
	if err != nil {
		return "", "", err
	}
	if o.conflict != events.KeepExisting {
		start = o.messageID // what was there before is not what is waited for
	}
	m := events.Message{ID: o.messageID, Instance: o.id, NotBefore: o.due(c), Content: &events.Start{
		Orchestration: name, Version: o.version, Input: input, Conflict: o.onConflict(), Attributes: o.attributes,
		IgnoreUnknown: o.ignoreUnknown, Messages: with,
	}}
	if !o.decided() {
		return o.id, start, c.Publish(ctx, m)
	}
	r, err := c.Deliver(ctx, m)
	if o.receipt != nil && err == nil {
		*o.receipt = r
	}
	exists := !r.Taken && r.Reason == reasonExists
	switch {
	case err != nil:
		return o.id, start, err
	case exists && o.reject:
		return o.id, start, &ExistsError{Instance: o.id, Status: r.Status}
	case r.Reason == reasonWrongInput:
		return o.id, start, &events.Error{Kind: events.Application, Type: TypeMismatch, Final: true, Message: r.Detail}
	case !r.Taken && !exists:
		return o.id, start, fmt.Errorf("instance %q was not started: %s (%s)", o.id, r.Detail, r.Reason)
	}
	return o.id, start, nil
}

// reasonExists is the reason in a receipt of a start that has found an instance.
const reasonExists = "exists"

// reasonWrongInput is the reason in a receipt of a start whose instance has failed before its code
// ran.
const reasonWrongInput = "wrong_input"

// StartOption says how an instance is started from outside.
type StartOption interface{ start(*startOptions) }

type startOptions struct {
	id, version, messageID string
	idSet                  bool
	conflict               events.StartConflict
	reject                 bool
	ignoreUnknown          bool
	receipt                *Receipt
	attributes             map[string]string
	delay                  time.Duration
	at                     time.Time
	with                   []withMessage
	err                    error
}

// identify chooses the ids that nobody has chosen.
func (o *startOptions) identify(c Client) {
	if !o.idSet {
		o.id = o.messageID // so that the same start is for the same instance
		if o.id == "" {
			o.id = c.NewID()
		}
	}
	if o.messageID == "" {
		o.messageID = c.NewID()
	}
}

// check lists everything that is wrong with a start.
func (o *startOptions) check(name string, input events.Payload) error {
	errs := []error{o.err, events.CheckName("orchestration", name), events.CheckChosenInstance(o.id),
		events.CheckAttributes(o.attributes), checkVersion(o.version)}
	if e := events.CheckPayload("input", input); e != nil {
		errs = append(errs, e)
	}
	if o.delay > events.MaxDelay {
		errs = append(errs, events.Limit("delay of a start (seconds)", int64(o.delay/time.Second),
			int64(events.MaxDelay/time.Second), "is the unit right?"))
	}
	if o.decided() && (o.delay > 0 || !o.at.IsZero()) {
		option := "RejectExisting"
		if !o.reject {
			option = "ReceiptTo"
		}
		errs = append(errs, fmt.Errorf("%s cannot wait for a start that is delayed; leave out one of them", option))
	}
	return errors.Join(errs...)
}

// decided reports whether the start returns when an orchestrator has decided it, and not when it is
// stored.
func (o *startOptions) decided() bool { return o.reject || o.receipt != nil }

// due is when the start may be taken, zero for at once.
func (o *startOptions) due(c Client) time.Time {
	switch {
	case !o.at.IsZero():
		return o.at
	case o.delay > 0:
		return c.Now().Add(o.delay)
	}
	return time.Time{}
}

// onConflict is what the start says of an instance that is there already.
func (o *startOptions) onConflict() events.StartConflict {
	if o.reject && len(o.with) > 0 {
		return events.RejectExisting // nor are the messages for it
	}
	return o.conflict
}

// messages are those that the start brings along.
func (o *startOptions) messages(c Client, input events.Payload) ([]events.StartMessage, error) {
	var out []events.StartMessage
	var errs []error
	for _, w := range o.with {
		name, v := w.queue()
		data, err := c.Codec().Encode(v)
		errs = append(errs, err, events.CheckName("queue", name))
		if e := events.CheckPayload("queue "+quote(name), data); e != nil {
			errs = append(errs, e)
		}
		out = append(out, events.StartMessage{Queue: name, Data: data})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, events.CheckStartMessages(input, out)
}

// failedOption is what has failed before a start.
type failedOption struct{ err error }

func (f failedOption) start(o *startOptions) { o.err = f.err }

// Attributes are kept with the instance and can be searched for.
func Attributes(a map[string]string) StartOption { return attributesOption(a) }

type attributesOption map[string]string

func (a attributesOption) start(o *startOptions) { o.attributes = a }

// UseExisting lets a start change nothing if there is an instance of its id, running or ended: the
// handle is then that one's. So it is if nothing else is said; the option is for saying so.
func UseExisting() StartOption { return conflictOption(events.KeepExisting) }

// RestartFinished starts afresh an instance of the same id that has ended; a running one is kept.
func RestartFinished() StartOption { return conflictOption(events.RestartFinished) }

// ReplaceRunning starts afresh even when an instance of the same id is running: that one is
// terminated.
func ReplaceRunning() StartOption { return conflictOption(events.ReplaceRunning) }

type conflictOption events.StartConflict

func (c conflictOption) start(o *startOptions) { o.conflict, o.reject = events.StartConflict(c), false }

// RejectExisting makes the start fail with [ErrExists] if there is an instance of its id, running
// or ended. The start then returns when an orchestrator has decided it, not when it is stored. The
// same start sent again (see [RequestID]) is no other start.
func RejectExisting() StartOption { return rejectOption{} }

type rejectOption struct{}

func (rejectOption) start(o *startOptions) { o.conflict, o.reject = events.KeepExisting, true }

// ReceiptTo has the start wait until an orchestrator has decided it, and writes down what became of
// it: whether it has begun an instance, or found one of its id, and how that one stood. Reason is
// then "exists", and the error nil unless [RejectExisting] says otherwise. Without it, a start
// returns when it is stored, and does not know.
func ReceiptTo(r *Receipt) StartOption { return receiptOption{r} }

type receiptOption struct{ to *Receipt }

func (r receiptOption) start(o *startOptions) { o.receipt = r.to }

// RequestID makes the start the same start when it is sent again. Without [ID], it is the id of the
// instance, too.
func RequestID(id string) StartOption { return requestID(id) }

type requestID string

func (r requestID) start(o *startOptions) { o.messageID = string(r) }

// Delay lets the instance start later. Until then there is none of its id.
func Delay(d time.Duration) StartOption { return delayOption(d) }

type delayOption time.Duration

func (d delayOption) start(o *startOptions) { o.delay, o.at = time.Duration(d), time.Time{} }

// At lets the instance start at a moment; one that has passed means at once.
func At(t time.Time) StartOption { return atOption{t} }

type atOption struct{ t time.Time }

func (a atOption) start(o *startOptions) { o.delay, o.at = 0, a.t }

// WithMessage puts a message into a queue of the instance before its code begins:
// [Queue.TryReceive] and [Queue.Len] find it in the first round. If an instance of the id runs
// already, the message is for that one, unless the start replaces it; then it must be of the same
// orchestration.
//
// With [RestartFinished], this sends to an instance or starts it, and loses nothing: if the running
// instance ends and its code has not looked at the message, an instance is started with it.
// Without, such a message is lost, and one for an instance that has ended becomes a dead letter.
func WithMessage[T any](q Queue[T], v T) StartOption { return messageOption[T]{q.name, v} }

type messageOption[T any] struct {
	name string
	v    T
}

// withMessage is a messageOption of any type.
type withMessage interface{ queue() (name string, v any) }

func (m messageOption[T]) queue() (string, any)  { return m.name, m.v }
func (m messageOption[T]) start(o *startOptions) { o.with = append(o.with, m) }
