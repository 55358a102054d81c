package round

import (
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
)

// This file warns before an instance meets a limit, while an operator can still react.

// usage is the use of each limit of an execution, in the order of the limits.
type usage [6]int64

// limited are the limits that an instance approaches, with what to do about each.
var limited = [len(usage{})]struct {
	name, what string
	most       int64
	cure       string
}{
	{"values", "values of an instance", events.MaxValues,
		"clear what is no longer needed (ctx.Values().Prune does), or use several instances"},
	{"open", "activities, timers, children and waits going on at once", events.MaxOpen,
		"start them in portions, or split the work over children"},
	{"mailbox_messages", "unread mailbox messages", events.MaxMailbox,
		"read faster, or send slower: further ones become dead letters"},
	{"mailbox_bytes", "bytes of unread mailbox messages", events.MaxMailboxBytes,
		"read faster, or send slower: further ones become dead letters"},
	{"history_events", "events in the history of one execution", events.MaxHistoryEvents,
		"continue as new (ctx.ShouldContinueAsNew says when)"},
	{"history_bytes", "bytes in the history of one execution", events.MaxHistoryBytes,
		"continue as new (ctx.ShouldContinueAsNew says when)"},
}

// nearNumerator of nearDenominator of a limit are near it.
const nearNumerator, nearDenominator = 4, 5

func nearOf(limit int64) int64 { return (limit*nearNumerator + nearDenominator - 1) / nearDenominator }

func (l *ledger) usage() usage {
	return usage{int64(len(l.values.all)), int64(l.calls.open.Len()), int64(l.mail.unread), l.mail.unreadBytes,
		l.tail.lastID, l.tail.bytes}
}

// warnNear warns when an event has brought the execution near a limit.
func (r *recorder) warnNear(before, after usage) {
	for i, is := range after {
		if before[i] == is {
			continue
		}
		l := &limited[i]
		near := nearOf(l.most)
		if before[i] < near && near <= is {
			r.turn.Near = append(r.turn.Near, l.name)
			r.warn(fmt.Sprintf("near a limit: %s: %d of at most %d; %s", l.what, is, l.most, l.cure))
		}
	}
}
