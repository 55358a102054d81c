package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// StartInstance starts an instance of an orchestration of which only the name is known, with an
// encoded input. It gives the id of the instance, and for [Client.Outcome] the id of the start
// message if an instance that was there before does not count. It gives both with an error, too, if
// the start may have been stored.
func StartInstance(ctx context.Context, c Client, name string, input codec.Payload, opts ...StartOption) (id,
	start string, err error) {
	var o startOptions
	for _, opt := range opts {
		opt.start(&o)
	}
	o.identify(c)
	now := c.Now()
	if err := o.check(name, input, now); err != nil {
		return "", "", err
	}
	with, err := o.messages(c.Codec(), input)
	if err != nil {
		return "", "", err
	}
	if o.conflict != events.KeepExisting {
		start = o.messageID // the caller waits for this start, not for an earlier instance
	}
	m := events.Message{ID: o.messageID, Instance: o.id, NotBefore: o.due(now), Content: &events.Start{
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
		return o.id, start, &failure.Error{Kind: failure.Application, Type: TypeMismatch, NonRetryable: true,
			Message: r.Detail}
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
	launch
	messageID     string
	reject        bool
	ignoreUnknown bool
	receipt       *Receipt
	durable       bool
	err           error
}

// identify chooses the ids that the caller has not chosen.
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
func (o *startOptions) check(name string, input codec.Payload, now time.Time) error {
	errs := []error{o.err, events.CheckName("orchestration", name), events.CheckChosenInstance(o.id),
		o.launch.check(now)}
	if e := events.CheckPayload("input", input); e != nil {
		errs = append(errs, e)
	}
	if o.decided() && (o.delay > 0 || !o.at.IsZero()) {
		option := "Durable"
		switch {
		case o.reject:
			option = "RejectExisting"
		case o.receipt != nil:
			option = "ReceiptTo"
		}
		errs = append(errs, fmt.Errorf("%s cannot wait for a start that is delayed; leave out one of them", option))
	}
	return errors.Join(errs...)
}

// decided reports whether the start returns when an orchestrator has decided it, and not when it is
// stored.
func (o *startOptions) decided() bool { return o.reject || o.receipt != nil || o.durable }

// onConflict is what the start says of an instance that is there already.
func (o *startOptions) onConflict() events.StartConflict {
	if o.reject && len(o.with) > 0 {
		return events.RejectExisting // nor are the messages for it
	}
	return o.conflict
}

// CheckStart returns what [StartInstance] would refuse in a start with these arguments: an invalid
// name, id, version or attribute, too large an input, or too long a delay from now. It sends
// nothing.
func CheckStart(name string, input codec.Payload, now time.Time, opts ...StartOption) error {
	var o startOptions
	for _, opt := range opts {
		opt.start(&o)
	}
	if !o.idSet {
		o.id = cmp.Or(o.messageID, "made-up") // as identify does
	}
	return o.check(name, input, now)
}

// messages are those that the start brings along.
func (o *startOptions) messages(enc codec.Codec, input codec.Payload) ([]events.StartMessage, error) {
	out, err := o.launch.messages(enc)
	errs := []error{err}
	for _, m := range out {
		if e := events.CheckPayload("mailbox "+quote(m.Mailbox), m.Data); e != nil {
			errs = append(errs, e)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, events.CheckStartMessages(input, out)
}

// failedOption is an option whose error makes the start fail.
type failedOption struct{ err error }

func (f failedOption) start(o *startOptions) { o.err = f.err }

// RejectExisting makes the start fail with [ErrExists] if there is an instance of its id, running
// or ended. The start then returns when an orchestrator has decided it, not when it is stored. The
// same start sent again (see [RequestID]) is no other start. [Definition.Detach] does not take this
// option, because it has no receipt.
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

// Durable has the start wait until the instance is in the database, and publishes it again if NATS
// loses it before that. Without it, a start returns when NATS has stored it. An orchestrator that
// has the code must be running, so give the context a deadline. After an error, start again with
// the same [ID].
func Durable() StartOption { return durableOption{} }

type durableOption struct{}

func (durableOption) start(o *startOptions) { o.durable = true }

// RequestID makes the start the same start when it is sent again. Without [ID], it is the id of the
// instance, too.
func RequestID(id string) StartOption { return requestID(id) }

type requestID string

func (r requestID) start(o *startOptions) { o.messageID = string(r) }
