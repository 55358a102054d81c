package outbox

import (
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// TestClassify lists the classes of messages, with and without direct delivery of tasks.
func TestClassify(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newClassifier("rondo")
	direct := c
	direct.direct = true
	for _, x := range []struct {
		name          string
		subject       string
		after         time.Duration
		purge         bool
		class, direct class
	}{
		{"task", "rondo.task.charge.default.x.1-4", 0, false, prompt, task},
		{"task that is due", "rondo.task.charge.default.x.1-4", time.Second, false, prompt, task},
		{"next attempt", "rondo.task.charge.default.x.1-4", 1001 * time.Millisecond, false, delayed, delayed},
		{"next attempt in an hour", "rondo.task.charge.default.x.1-4", time.Hour, false, delayed, delayed},
		{"withdrawn task", "rondo.task.charge.default.x.1-4", 0, true, withdrawal, withdrawal},
		{"timer of a moment", "rondo.timer-due.x", time.Second, false, prompt, prompt},
		{"timer", "rondo.timer-due.x", 30 * time.Second, false, delayed, delayed},
		{"distant timer", "rondo.timer-due.x", 30*time.Second + 1, false, distant, distant},
		{"withdrawn timer", "rondo.timer-due.x", time.Hour, true, withdrawal, withdrawal},
		{"start", "rondo.start.x", 0, false, prompt, prompt},
		{"delayed start", "rondo.start.x", time.Hour, false, delayed, delayed},
		{"another verb with the same beginning", "rondo.workshop.x", 0, false, prompt, prompt},
		{"another prefix", "rondo2.work.x", 0, false, prompt, prompt},
	} {
		m := events.Wire{Subject: x.subject, Purge: x.purge}
		if x.after > 0 {
			m.NotBefore = now.Add(x.after)
		}
		if got := c.classify(m, now); got != x.class {
			t.Errorf("%s: class %d, want %d", x.name, got, x.class)
		}
		if got := direct.classify(m, now); got != x.direct {
			t.Errorf("%s, delivered directly: class %d, want %d", x.name, got, x.direct)
		}
	}
}

// TestEntrySettles checks that an entry can be removed once, when all its messages were published.
func TestEntrySettles(t *testing.T) {
	failure := errors.New("too slow")
	type step struct {
		messages int
		err      error
	}
	for name, x := range map[string]struct {
		messages int
		steps    []step
		want     []bool
	}{
		"at once":           {2, []step{{2, nil}}, []bool{true}},
		"one by one":        {3, []step{{1, nil}, {1, nil}, {1, nil}}, []bool{false, false, true}},
		"nothing in a step": {1, []step{{0, nil}, {1, nil}, {0, nil}}, []bool{false, true, false}},
		"the first fails":   {2, []step{{1, failure}, {1, nil}}, []bool{false, false}},
		"the last fails":    {2, []step{{1, nil}, {1, failure}}, []bool{false, false}},
	} {
		e := newEntry(nil, x.messages)
		for i, s := range x.steps {
			if got := e.settle(s.messages, s.err); got != x.want[i] {
				t.Errorf("%s: step %d: removable %t, want %t", name, i+1, got, x.want[i])
			}
		}
	}
}
