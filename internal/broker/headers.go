package broker

import (
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
)

// headerReceipt is a header that package query defines.
const headerReceipt = "Rondo-Receipt"

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
		events.HeaderMessages, events.HeaderUnknownFields,
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
// in another place: for later, when it is due, as a dead letter, or as the replay of one. There the
// message has the permissions of the service, and the broker may act on headers that it refuses
// from clients. So a service never copies the headers of a message: it carries these, and adds its
// own.
func Carry[H ~map[string][]string](from H) events.Header {
	h := make(events.Header, len(from)+5)
	for name, values := range from {
		if carried[name] {
			h[name] = values
		}
	}
	return h
}

// known are the headers of received messages that services read or carry, by their names.
var known = func() map[string]string {
	all := map[string]string{
		events.HeaderNATSMsgID: events.HeaderNATSMsgID, events.HeaderDirectReply: events.HeaderDirectReply,
		// Those that tell a stored message, which NATS sent in a response, from a published one.
		"Nats-Stream": "Nats-Stream", "Nats-Sequence": "Nats-Sequence",
	}
	for name := range carried {
		all[name] = name
	}
	return all
}()

const (
	// HeaderOthers is the only header of a received message that had none but unknown ones: a
	// message without any header may be a response that NATS sent.
	HeaderOthers = "Rondo-Other-Headers"
	// maxValues is the maximum number of values that a received message keeps of a header. Services
	// read the first one.
	maxValues = 8
)

// KnownHeader reports whether a received message keeps a header, and returns its name as a string
// that shares no memory with the argument.
func KnownHeader(name string) (same string, is bool) {
	same, is = known[name]
	return same, is
}

// Received returns, in memory of their own, the headers that a received message keeps: those that
// services read or carry, with at most 8 values each. A sender could fill the memory of a receiver
// by others. A message without headers has none; one that had only others has [HeaderOthers].
func Received[H ~map[string][]string](from H) events.Header {
	if len(from) == 0 {
		return nil
	}
	h := make(events.Header)
	for name, values := range from {
		if name, is := KnownHeader(name); is {
			kept := make([]string, min(len(values), maxValues))
			for i := range kept {
				kept[i] = strings.Clone(values[i])
			}
			h[name] = kept
		}
	}
	if len(h) == 0 {
		h[HeaderOthers] = []string{"true"}
	}
	return h
}
