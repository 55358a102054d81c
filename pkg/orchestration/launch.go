package orchestration

import (
	"errors"
	"maps"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file has the options that starts by clients share with starts by orchestration code.

// launch has what starts by clients, starts of children and detached starts have in common.
type launch struct {
	id, version string
	idSet       bool
	conflict    events.StartConflict
	attributes  map[string]string
	delay       time.Duration
	at          time.Time
	with        []MessageOption
}

// check lists the errors of the options, except for those of the id.
func (l *launch) check(now time.Time) error {
	errs := []error{events.CheckAttributes(l.attributes), checkVersion(l.version)}
	if wait := l.due(now).Sub(now); wait > events.MaxDelay {
		errs = append(errs, events.Limit("delay of a start (seconds)", int64(wait/time.Second),
			int64(events.MaxDelay/time.Second), "is the unit right?"))
	}
	return errors.Join(errs...)
}

// due is when the start may be taken, zero for at once.
func (l *launch) due(now time.Time) time.Time {
	switch {
	case !l.at.IsZero():
		return l.at
	case l.delay > 0:
		return now.Add(l.delay)
	}
	return time.Time{}
}

// messages encodes the messages that the start brings along. It returns those that it can encode
// with an error, too.
func (l *launch) messages(enc codec.Codec) (out []events.StartMessage, _ error) {
	var errs []error
	for _, w := range l.with {
		data, err := enc.Encode(w.v)
		errs = append(errs, err, events.CheckName("mailbox", w.mailbox))
		out = append(out, events.StartMessage{Mailbox: w.mailbox, Data: data})
	}
	return out, errors.Join(errs...)
}

// Attributes are kept with the instance and can be searched for. They are for starts by clients,
// children and detached instances. If the option is given twice, the last one counts. A child does
// not inherit the attributes of its parent.
func Attributes(a map[string]string) AttributesOption { return AttributesOption(a) }

// AttributesOption is made by [Attributes].
type AttributesOption map[string]string

func (a AttributesOption) start(o *startOptions) { o.attributes = a }
func (a AttributesOption) child(o *childOption)  { o.attributes = maps.Clone(map[string]string(a)) }
func (a AttributesOption) detach(o *childOption) { a.child(o) }

// UseExisting lets a start change nothing if there is an instance of its id, running or ended: the
// handle is then that one's. So it is if nothing else is said; the option is for saying so.
func UseExisting() ExistingOption { return ExistingOption{events.KeepExisting} }

// RestartFinished starts afresh an instance of the same id that has ended; a running one is kept.
func RestartFinished() ExistingOption { return ExistingOption{events.RestartFinished} }

// ReplaceRunning starts afresh even when an instance of the same id is running: that one is
// terminated.
func ReplaceRunning() ExistingOption { return ExistingOption{events.ReplaceRunning} }

// ExistingOption says what becomes of a start, or of a detached start, whose id is in use. It is
// made by [UseExisting], [RestartFinished] and [ReplaceRunning]. Children do not take it: the
// result of a child belongs to its parent, so an id in use is always an error for the parent.
type ExistingOption struct{ conflict events.StartConflict }

func (e ExistingOption) start(o *startOptions) { o.conflict, o.reject = e.conflict, false }
func (e ExistingOption) detach(o *childOption) { o.conflict = e.conflict }

// Delay lets the instance start later. Until then there is none of its id. A detached start counts
// from [Context.Now].
func Delay(d time.Duration) DelayOption { return DelayOption{delay: d} }

// At lets the instance start at a moment; one that has passed means at once.
func At(t time.Time) DelayOption { return DelayOption{at: t} }

// DelayOption delays a start, or a detached start. It is made by [Delay] and [At]; the last one
// counts. Children do not take it: sleep in a branch before the call.
type DelayOption struct {
	delay time.Duration
	at    time.Time
}

func (d DelayOption) start(o *startOptions) { o.delay, o.at = d.delay, d.at }
func (d DelayOption) detach(o *childOption) { o.delay, o.at = d.delay, d.at }

// WithMessage puts a message into a mailbox of the instance before its code begins:
// [Mailbox.TryReceive] and [Mailbox.Len] find it in the first round. If an instance of the id runs
// already, the message is for that one, unless the start replaces it; then it must be of the same
// orchestration.
//
// With [RestartFinished], this sends to an instance or starts it, and loses nothing: if the running
// instance ends and its code has not looked at the message, the engine starts an instance with it.
// Without that option, such a message is lost, and one for an instance that has ended is
// dead-lettered.
func WithMessage[T any](q Mailbox[T], v T) MessageOption { return MessageOption{q.name, v} }

// MessageOption gives a mailbox message to a start, or to a detached start. It is made by
// [WithMessage].
type MessageOption struct {
	mailbox string
	v       any
}

func (m MessageOption) start(o *startOptions) { o.with = append(o.with, m) }
func (m MessageOption) detach(o *childOption) { o.with = append(o.with, m) }
