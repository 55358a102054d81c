package round

import (
	"time"
)

// Wait is something that an instance waits for.
type Wait struct {
	Kind  WaitKind
	Event int64  // the event that opened it
	Name  string // of the activity, event, mailbox or child orchestration
	// Instance is the child's id, Tag the activity's.
	Instance, Tag string
	// Pending says that no worker has the activity any more: another program completes it, by its
	// token.
	Pending bool
	// Due is when it fires or times out, zero if never.
	Due time.Time
	// What describes it.
	What string
}

// WaitKind is what sort of thing is waited for.
type WaitKind string

// The kinds.
const (
	WaitsForActivity WaitKind = "activity"
	WaitsForTimer    WaitKind = "timer"
	WaitsForEvent    WaitKind = "event"
	WaitsForMailbox  WaitKind = "mailbox"
	WaitsForChild    WaitKind = "child"
)

// Waiting tells from an instance's history what it waits for, oldest first, and how many events it
// keeps that it does not wait for yet, by name. It runs no code, so inline steps, which leave no
// event when they start, are not in it.
func Waiting(known Known) (waits []Wait, kept map[string]int, err error) {
	var l ledger
	if err := l.load(known.History); err != nil {
		return nil, nil, err
	}
	waits = make([]Wait, 0, l.calls.open.Len())
	for _, id := range l.calls.open.Numbers() {
		waits = append(waits, l.calls.open.Get(id).wait(id))
	}
	kept = make(map[string]int)
	for name, box := range l.mail.boxes {
		if name.event && len(box.messages) > 0 {
			kept[name.name] = len(box.messages)
		}
	}
	return waits, kept, nil
}

func (o *open) wait(id int64) Wait {
	w := Wait{Event: id, Name: o.name, Instance: o.instance, Tag: o.tag, Pending: o.pending, Due: o.next()}
	switch o.kind {
	case openActivity:
		w.Kind, w.What = WaitsForActivity, "activity "+quote(o.name)
		switch {
		case o.pending:
			w.What += " to be completed by its token"
		case o.tag != "":
			w.What += " on a worker with tag " + quote(o.tag)
		}
	case openTimer:
		w.Kind, w.What = WaitsForTimer, "the timer at "+o.deadline.Format(time.RFC3339Nano)
	case openWait:
		w.Kind, w.What = WaitsForEvent, "event "+quote(o.name)
	case openRead:
		w.Kind, w.What = WaitsForMailbox, "a message in mailbox "+quote(o.name)
	case openChild:
		w.Kind, w.What = WaitsForChild, "orchestration "+quote(o.name)+" as "+quote(o.instance)
	}
	return w
}
