package events

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
)

// The limits. Each protects the system from a mistake; ordinary use meets none of them. They are
// constants, not settings: code that runs into one must do so again when it is replayed, on any
// replica.
const (
	// MaxPayload bounds one input, output, event or message. NATS takes 1 MiB per message unless
	// told otherwise; this leaves room for headers and for what wraps the payload. Keep larger data
	// elsewhere and pass a reference.
	MaxPayload = 960 << 10

	// MaxName bounds the names of orchestrations, activities, events and mailboxes: they are tokens
	// of NATS subjects and labels of metrics.
	MaxName = 128
	// MaxInstanceID bounds instance ids: they are tokens of NATS subjects and keys in the database.
	// Percent-encoding can triple them.
	MaxInstanceID = 256
	// MaxTag bounds worker tags and session ids, for the same reason.
	MaxTag = 128
	// MaxReason bounds the reason given with a cancel, terminate, suspend or resume: a sentence,
	// not a document.
	MaxReason = 4 << 10
	// MaxErrorText bounds the message, the stack and the details of an error, each. MaxErrorCauses
	// bounds how deep causes nest. Longer ones are cut, so that a failure can always be reported.
	MaxErrorText   = 16 << 10
	MaxErrorCauses = 8
	// MaxAttributes and MaxAttribute bound the attributes set at start: they are indexed.
	MaxAttributes = 32
	MaxAttribute  = 256
	// MaxStartMessages bounds the messages that a start brings along: they travel in one of its
	// headers.
	MaxStartMessages = 100
	// MaxTraceState and MaxBaggage bound what goes with a trace; more is left out.
	MaxTraceState = 512
	MaxBaggage    = 4 << 10

	// MaxHeartbeat bounds the progress of a heartbeat: it travels in a header, beside an input that
	// may be as large as MaxPayload. A larger one is dropped, so that the failure it comes with is
	// not lost.
	MaxHeartbeat = 4 << 10

	// MaxStatus bounds the custom status: it is read and watched as a whole.
	MaxStatus = 256 << 10
	// MaxValues, MaxValueKey and MaxValue bound an instance's values: a continue-as-new copies them
	// all.
	MaxValues   = 256
	MaxValueKey = 256
	MaxValue    = 64 << 10

	// MaxMailbox bounds an instance's unread mailbox messages, all mailboxes together: they are
	// kept in memory with it.
	MaxMailbox = 10_000
	// MaxMailboxBytes bounds their size.
	MaxMailboxBytes = 16 << 20

	// MaxOpen bounds what one execution can have going on at once: activities, timers, children,
	// waits.
	MaxOpen = 20_000
	// MaxHistoryEvents and MaxHistoryBytes bound one execution's history: it is read as a whole
	// when the instance moves. Continue as new well before: see HintHistoryEvents.
	MaxHistoryEvents = 100_000
	MaxHistoryBytes  = 64 << 20
	// HintHistoryEvents and HintHistoryBytes are when ShouldContinueAsNew begins to say yes.
	HintHistoryEvents = 10_000
	HintHistoryBytes  = 8 << 20

	// MaxTurnEvents bounds what the code may say in one round: it is committed in one transaction.
	MaxTurnEvents = 25_000
	// MaxTurnBytes is the size from which a round takes no further message, fires no further timer
	// and runs no further execution. The rest happens in later rounds, so that the commit of one
	// instance does not hold up the others. A round exceeds it by what the code writes after its
	// last message.
	MaxTurnBytes = 16 << 20
	// MaxTurnOperations bounds the calls the code may make between two waits. Code that makes more
	// is in an endless loop.
	MaxTurnOperations = 1_000_000
	// MaxTurnContinues bounds the executions that one round goes through when the code continues as
	// new at once, again and again. The rest happens in later rounds, so that one instance cannot
	// hold up the others.
	MaxTurnContinues = 8
	// MaxTurnLogs bounds the log records of one round; further ones are counted and dropped.
	MaxTurnLogs = 1_000

	// MaxSeen bounds the message ids that an execution carries over from former ones. About
	// messages that were sent before those, the histories of former executions are read.
	MaxSeen = 1_024

	// MaxDelay bounds timers and timeouts: beyond it they are mistakes in units.
	MaxDelay = 100 * 365 * 24 * time.Hour
)

// Limit makes the error for a breach: which limit, by how much, and what to do.
func Limit(what string, got, most int64, cure string) *failure.Error {
	return &failure.Error{Kind: failure.LimitExceeded, NonRetryable: true,
		Message: fmt.Sprintf("%s: %d is over the limit of %d; %s", what, got, most, cure)}
}

// CheckPayload tells whether a payload fits into a message.
func CheckPayload(what string, p codec.Payload) *failure.Error {
	if len(p) <= MaxPayload {
		return nil
	}
	return Limit(what+" (bytes)", int64(len(p)), MaxPayload, "keep the data in a store and pass a reference to it")
}
