package round

import "time"

// open is something that an answer is expected for. An instance that is parked is little more than
// a few of these, so what only some of them need lies elsewhere.
type open struct {
	kind    openKind
	abandon bool // child: not cancelled with its parent
	begun   bool
	pending bool // activity: another program will complete it, no service owes the answer

	round int64    // in which round of the hydrated instance it was opened, and
	sent  [2]int32 // which messages of that turn came of it

	name     string    // activity, event or mailbox
	deadline time.Time // timer: when it fires
	since    time.Time // when it was opened
	*asked             // shared by all about which nothing was said
}

// asked is the request for an activity or a child.
type asked struct {
	tag       string
	instance  string // child
	startBy   time.Time
	notBefore time.Time // when an activity may be taken up at the earliest, zero for at once
	attempt   int
}

var nothingAsked asked

// askedOpen is both in one piece of memory.
func askedOpen(o open, a asked) *open {
	x := &struct {
		open  open
		asked asked
	}{o, a}
	x.open.asked = &x.asked
	return &x.open
}

type openKind uint8

const (
	openActivity openKind = iota
	openTimer
	openWait
	openRead
	openChild
)

// next is when something must happen to it, zero if never.
func (o *open) next() time.Time {
	if o.kind == openActivity && !o.begun && !o.startBy.IsZero() &&
		(o.deadline.IsZero() || o.startBy.Before(o.deadline)) {
		return o.startBy
	}
	return o.deadline
}

// owed reports whether one of the services owes the answer.
func (o *open) owed() bool { return o.kind == openActivity && !o.pending || o.kind == openChild }
