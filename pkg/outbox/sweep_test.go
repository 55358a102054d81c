package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestSweepPublishesAndRemoves(t *testing.T) {
	b, s := &fakeBroker{}, &store{}
	for i := range int64(250) {
		s.entries = append(s.entries, history.OutboxEntry{Key: history.OutboxKey{ID: i},
			Messages: wires(fmt.Sprint(i))})
	}
	s.entries[7].Err = errors.New("unreadable")
	sweeper := outbox.Sweeper{Broker: b, Store: s, Prefix: "rondo", After: time.Second, Hold: time.Minute, Log: silent}
	n, err := sweeper.Sweep(t.Context())
	if n != 249 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if len(b.published) != 249 || len(s.removed) != 249 || slices.Contains(s.removed, 7) {
		t.Errorf("%d published, %d removed", len(b.published), len(s.removed))
	}
}

func TestSweepLeavesWhatCannotBePublished(t *testing.T) {
	b := &fakeBroker{fail: func(events.Wire) error { return errors.New("no broker") }}
	s := &store{entries: []history.OutboxEntry{{Key: history.OutboxKey{ID: 1}, Messages: wires("a")}}}
	sweeper := outbox.Sweeper{Broker: b, Store: s, Prefix: "rondo", After: time.Second, Hold: time.Minute, Log: silent}
	if n, err := sweeper.Sweep(t.Context()); n != 0 || err == nil || len(s.removed) > 0 {
		t.Errorf("swept %d, %v, removed %v", n, err, s.removed)
	}
}

// Entries with messages that the broker refuses because of a setting do not hold up the others, not
// even if they fill a page.
func TestSweepGoesOnBesideWhatASettingPrevents(t *testing.T) {
	denied := true
	b := &fakeBroker{fail: func(w events.Wire) error {
		if denied && w.Subject == "denied" {
			return fmt.Errorf("%w: no permission", broker.ErrMisconfigured)
		}
		return nil
	}}
	var entries []history.OutboxEntry
	for i := range int64(250) {
		subject := "denied"
		if i >= 150 {
			subject = "good"
		}
		entries = append(entries, history.OutboxEntry{Key: history.OutboxKey{ID: i}, Messages: wires(subject)})
	}
	s := &store{entries: entries}
	sweeper := outbox.Sweeper{Broker: b, Store: s, Prefix: "rondo", After: time.Second, Hold: time.Minute, Log: silent}
	if n, err := sweeper.Sweep(t.Context()); n != 100 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if len(b.published) != 100 || len(s.removed) != 100 || slices.Min(s.removed) != 150 || len(b.deadLettered) > 0 {
		t.Errorf("%d published, %d removed, %d dead-lettered", len(b.published), len(s.removed), len(b.deadLettered))
	}
	denied, s.entries = false, entries[:150]
	if n, err := sweeper.Sweep(t.Context()); n != 150 || err != nil {
		t.Errorf("with the permission, swept %d, %v", n, err)
	}
}

// Work whose process died after it was published is not published once more if it was answered or
// is still in the broker: it would be executed twice.
func TestSweepLeavesOutWorkThatNeedNotBeDoneAgain(t *testing.T) {
	known := parked(round.Running,
		&events.ActivityScheduled{Name: "lost", Attempt: 1},
		&events.ActivityScheduled{Name: "kept", Attempt: 1},
		&events.ActivityScheduled{Name: "answered", Attempt: 1},
		&events.ActivityCompleted{Schedule: 4},
	)
	s := &store{known: map[string]round.Known{"a": known,
		"ended": parked(round.Completed, &events.ActivityScheduled{Name: "late", Attempt: 1}, &events.Completed{})}}
	work := func(instance, activity string, event int64) events.Wire {
		ref := events.Ref{Incarnation: "incarnation", Execution: 1, Event: event}
		w, err := events.Encode("rondo", events.Message{ID: events.MessageID(events.VerbTask, instance, ref),
			Instance: instance, Content: &events.Task{Ref: ref, Activity: activity, Attempt: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	s.entries = []history.OutboxEntry{{Key: history.OutboxKey{ID: 1}, Messages: append(wires("rondo.mailbox.q.x"),
		work("a", "lost", 2), work("a", "kept", 3), work("a", "answered", 4), work("ended", "late", 2),
		work("nobody", "late", 2))}}
	b := &fakeBroker{has: map[string]bool{"rondo.task._.kept.1-3-incarnation.a": true}}
	sweeper := outbox.Sweeper{Broker: b, Store: s, Prefix: "rondo", After: time.Second, Hold: time.Minute, Log: silent}
	if n, err := sweeper.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if want := []string{"rondo.mailbox.q.x", "rondo.task._.lost.1-2-incarnation.a"}; !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
}
