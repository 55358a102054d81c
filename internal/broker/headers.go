package broker

import "github.com/rondo-run/rondo/pkg/events"

// The headers that package query defines.
const headerReceipt, headerEach = "Rondo-Receipt", "Rondo-Each"

// carried are the headers of messages. See [Carry].
var carried = func() map[string]bool {
	all := make(map[string]bool)
	for _, name := range []string{
		// of all messages
		events.HeaderMsgID, events.HeaderSent, events.HeaderIncarnation,
		events.HeaderTrace, events.HeaderTraceState, events.HeaderBaggage,
		events.HeaderCloudEventID, events.HeaderCloudEventSource, headerReceipt,
		// of starts, and of messages from instances
		events.HeaderVersion, events.HeaderConflict, events.HeaderParent, events.HeaderAttributes,
		events.HeaderMessages, events.HeaderUnknownFields, headerEach,
		// of results, timers and the ends of children
		events.HeaderWorker, events.HeaderPending, events.HeaderDue, events.HeaderOutcome,
		// of tasks
		events.HeaderHeld, events.HeaderHeartbeat, events.HeaderOrchestration, events.HeaderSession,
		events.HeaderAttempt, events.HeaderIdempotencyKey, events.HeaderStartBy, events.HeaderDeadline,
		events.HeaderStartToClose, events.HeaderHeartbeatTimeout,
	} {
		all[name] = true
	}
	return all
}()

// Carry returns, in a new map, the headers that a message keeps when a service stores it once more
// in another place: for later, when it is due, as an entry of a schedule, as a dead letter, or as
// the replay of one. There the message has the permissions of the service, and the broker may act
// on headers that it refuses from clients. So a service never copies the headers of a message: it
// carries these, and adds its own.
func Carry[H ~map[string][]string](from H) events.Header {
	h := make(events.Header, len(from)+5)
	for name, values := range from {
		if carried[name] {
			h[name] = values
		}
	}
	return h
}
