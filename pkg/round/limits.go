package round

import (
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// limits says what an execution may not do any more.
type limits struct {
	ledger *ledger
	said   int       // facts the code has said since the last fact from outside
	clock  time.Time // what the code sees as now
}

// breach tells which limit ends the execution: those after which nothing more can be written down,
// or for which no call could give an error.
func (l limits) breach(f events.Fact) *failure.Error {
	if l.said >= events.MaxTurnEvents {
		return events.Limit("things said by the code without waiting", int64(l.said)+1, events.MaxTurnEvents,
			"wait for some of them before starting more, or is there an endless loop?")
	}
	if err := l.ledger.tail.over(); err != nil {
		return err
	}
	switch f := f.(type) {
	case *events.Patched:
		return notText("id of a patch", f.ID)
	case *events.ValueSet:
		if len(f.Key) <= events.MaxValueKey { // a longer one is refused
			return notText("key of a value", f.Key)
		}
	default:
	}
	return nil
}

// refusal tells which limit a call would break.
func (l limits) refusal(f events.Fact) *failure.Error {
	switch f := f.(type) {
	case *events.ActivityScheduled:
		return either(l.overOpen(), events.CheckPayload("input of activity "+quote(f.Name), f.Input))
	case *events.ChildStarted:
		return either(l.overOpen(), events.CheckPayload("input of orchestration "+quote(f.Name), f.Input))
	case *events.TimerCreated:
		if d := f.FireAt.Sub(l.clock); d > events.MaxDelay {
			return events.Limit("delay of a timer (hours)", int64(d/time.Hour), int64(events.MaxDelay/time.Hour),
				"check its unit; for no time limit leave the timer out")
		}
		return l.overOpen()
	case *events.EventAwaited, *events.MailboxRead:
		return l.overOpen()
	case *events.Launched:
		var tooMuch *failure.Error
		errors.As(events.CheckStartMessages(f.Input, f.Messages), &tooMuch)
		return either(events.CheckPayload("input of orchestration "+quote(f.Name), f.Input), tooMuch)
	case *events.Sent:
		return events.CheckPayload("message for "+string(f.To)+" "+quote(f.Name), f.Data)
	case *events.StatusSet:
		if n := len(f.Status); n > events.MaxStatus {
			return events.Limit("custom status (bytes)", int64(n), events.MaxStatus, "keep it to what people look at")
		}
	case *events.ValueSet:
		return l.refusalOfValue(f)
	default:
	}
	return nil
}

// refusalOfValue is refusal for a value.
func (l limits) refusalOfValue(f *events.ValueSet) *failure.Error {
	if n := len(f.Key); n > events.MaxValueKey {
		return events.Limit("key of a value (bytes)", int64(n), events.MaxValueKey, "use a shorter key")
	}
	if n := len(f.Value); n > events.MaxValue {
		return events.Limit("value of key "+quote(f.Key)+" (bytes)", int64(n), events.MaxValue,
			"keep the data in a store and a reference to it here")
	}
	if _, exists := l.ledger.values.all[f.Key]; !exists && len(l.ledger.values.all) >= events.MaxValues {
		return events.Limit("values of an instance", int64(len(l.ledger.values.all))+1, events.MaxValues,
			"clear what is no longer needed (ctx.Values().Prune does), or use several instances")
	}
	return nil
}

// overOpen is the error of a call too many.
func (l limits) overOpen() *failure.Error {
	if n := l.ledger.calls.open.Len(); n >= events.MaxOpen {
		return events.Limit("activities, timers, children and waits going on at once", int64(n)+1, events.MaxOpen,
			"start them in portions, or split the work over children")
	}
	return nil
}

// notText refuses a text that history would not store unchanged.
func notText(what, s string) *failure.Error {
	if err := events.CheckText(what, s); err != nil {
		return &failure.Error{Kind: failure.Application, Type: "invalid_call", NonRetryable: true, Message: err.Error()}
	}
	return nil
}

func either(a, b *failure.Error) *failure.Error {
	if a != nil {
		return a
	}
	return b
}
