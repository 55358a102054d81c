package integration_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// ---- That there is a window for everything.

// gatedCalls are the calls that change something, by the methods of broker and store, with their
// names in windows.
var gatedCalls = map[string]string{
	"Publish": "publish", "Receive": "receive", "StoreDeadLetter": "store a dead letter", "Notify": "announce",
	"Join":  "join",
	"Leave": "leave", "Handover": "hand over",
	"ReceiveHandovers": "take over", "Acquire": "acquire lease", "Release": "release", "Put": "put",
	"Take": "take work", "Offer": "take work",
	"Withdrawals": "hear of a withdrawal", "Ack": "acknowledge", "Nak": "give back",
	"Load": "load", "Commit": "commit", "LeaseOutbox": "lease outbox", "RemoveOutbox": "remove outbox",
	"LeaseOverdue": "lease overdue", "Create": "put", "Replace": "put",
}

// otherCalls are the others, with why they need no window.
var otherCalls = map[string]string{
	"Request": reads, "Discover": reads, "Backlog": reads, "Changed": reads, "Connected": reads, "Count": reads,
	"CountOutbox": reads, "CustomStatus": reads, "Family": reads,
	"Events": reads, "Executions": reads, "Has": reads, "InboxAckWait": reads, "Instance": reads, "List": reads,
	"Get": reads, "Listen": reads, "Members": reads,
	"Metrics": reads, "Owner": reads, "Partitions": reads, "Ping": reads, "Prefix": reads,
	"PendingStarts": reads, "StartWaits": reads,
	"Now": reads, "Clock": reads, "Fault": reads, "Flaws": reads, "Crowded": reads, "DirectLoad": reads,
	"AwaitWatermark": reads, "Reconnected": reads,
	"ListTaskQueues": reads, "Stats": reads,
	"Stored": reads, "Tree": reads, "Value": reads, "Values": reads, "TaskBacklog": reads,
	"AckSubject": reads, "TaskAckWait": reads, "Tombstones": reads, "OldOutbox": reads, "OldestOutbox": reads,
	"ValuesOf": reads, "LastUpdate": reads, "Identity": reads,
	"Within": reads, "Schedule": reads, "ListSchedules": reads, "DueSchedules": reads,

	"Handle": serves, "HandleDiscovery": serves, "Delete": serves,
	"WithdrawStart": serves,
	"Prune":         serves,

	"OpenTaskQueue":      "it makes a queue if there is none, and making it again changes nothing",
	"Repair":             "it makes what is missing, and making it again changes nothing",
	"RedeliverAfterLeap": "the broker redelivers what is unacknowledged, which a process survives at any time",
	"ChangeSchedule":     "it is one transaction: see schedules/one_of_many_changes_wins of historytest",
	"SetIdentity": "a process that dies around it leaves a count that the next one sees: see " +
		"TestEachDeathIsSurvived of package identity",
	"InProgress": "a process that dies extends nothing: this is every window",
	"Close":      "it comes after everything else",
	"Tidy": "it removes what nobody can see any more, and goes on where it was: see " +
		"removal/interrupted_anywhere of historytest",
	"DeleteEnded": "each is one transaction, and it goes on where it was",
	"PruneAll":    "each is one transaction, and it goes on where it was",
}

const (
	reads  = "it changes nothing"
	serves = "people ask for it, and ask again if they get no answer"
)

func (u *undisturbed) everyCallHasAWindow(t *testing.T) {
	t.Helper()
	interfaces := []reflect.Type{
		reflect.TypeFor[orchestrator.Broker](), reflect.TypeFor[worker.Broker](), reflect.TypeFor[history.Store](),
		reflect.TypeFor[broker.Hold](), reflect.TypeFor[broker.TaskQueue](), reflect.TypeFor[broker.Membership](),
	}
	known := map[string]bool{}
	for _, x := range interfaces {
		for m := range x.NumMethod() {
			name := x.Method(m).Name
			known[name] = true
			call, gated := gatedCalls[name]
			_, other := otherCalls[name]
			switch {
			case gated == other:
				t.Errorf("%s.%s: it has to be in one of gatedCalls and otherCalls", x, name)
			case gated && !slices.ContainsFunc(windows, func(w window) bool { return w.at.call == call }):
				t.Errorf("%s.%s: no window has %q", x, name, call)
			}
		}
	}
	for _, calls := range []map[string]string{gatedCalls, otherCalls} {
		for name := range calls {
			if !known[name] {
				t.Errorf("%s: no interface has this method: remove it", name)
			}
		}
	}
	for shape, passed := range u.passed {
		who, ofWorker := strings.CutPrefix(shape, "worker/")
		for c := range passed {
			if !slices.ContainsFunc(windows, func(w window) bool {
				return w.worker == ofWorker && w.at.call == c.call && (w.at.kind == "" || w.at.kind == c.kind)
			}) {
				t.Errorf("%s (of a worker: %t): no window has %q", who, ofWorker, c)
			}
		}
	}
}
