package natsbroker

// receiverState is the state of a receiver. A receiver that resyncs looks which messages are
// delivered and not settled, because it does not have all of them, and keeps newer messages aside
// until it knows.
//
//	          otherServed                      lineChanged, lookBegun
//	live ────────────────────▶ shared    live ─────────────────────────▶ lost
//	 ▲                          │  │ lookBegunOnNewLine                   ▲ │
//	 │                          │  └──────────────────────────────────────┘ │
//	 └──────────────────────────┴───────────────────────────────────────────┘
//	      lookDone, or lookFailed for the maxLooks-th time
//
// ended leads from every state to closed, and no event leads from there.
type receiverState struct {
	phase phase
	looks int // in vain, since it was live
}

// phase is what a receiver does with the messages that arrive.
type phase uint8

const (
	live   phase = iota // queues them in order
	shared              // keeps them aside: another receiver was served, too. Its own requests stay valid.
	lost                // keeps them aside: some may be lost in flight. Then it sends its requests again.
	closed              // nacks them
)

// resyncs reports whether messages are kept aside.
func (s receiverState) resyncs() bool { return s.phase == shared || s.phase == lost }

// receiverEvent is what changes the state of a receiver.
type receiverEvent uint8

const (
	otherServed        receiverEvent = iota // the consumer delivered messages to another receiver
	lineChanged                             // a message came over another connection than those before
	lookBegun                               // after a reconnect, a long silence, or because it resyncs
	lookBegunOnNewLine                      // the same, over another connection than before
	lookDone                                // the broker has told which messages are not settled
	lookFailed                              // the broker does not answer
	ended                                   // the receiver gives the partition up
)

// transition returns the state after an event.
func transition(s receiverState, e receiverEvent) receiverState {
	switch {
	case s.phase == closed, e == ended:
		return receiverState{phase: closed}
	case e == otherServed && s.phase == live:
		s.phase = shared
	case e == lineChanged && s.phase == live, e == lookBegun && s.phase == live, e == lookBegunOnNewLine:
		s.phase = lost
	case e == lookFailed && s.looks+1 < maxLooks:
		s.looks++
	case e == lookDone, e == lookFailed: // it continues, without the lost messages
		return receiverState{phase: live}
	}
	return s
}
