package orchestrator

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// After a commit has failed, no other begins beside the one that is tried again, however many turns
// wait.
func TestCommitsAreTriedOneAtATime(t *testing.T) {
	for name, slow := range map[string]slowness{"before the next try": {delay: maxCommitDelay},
		"with fewer turns": {fewer: 10}} {
		t.Run(name, func(t *testing.T) {
			l := &loop{commits: 1, toCommit: make([]*decision, 10*secondFrom), slow: slow}
			l.startCommit(t.Context())
			if l.commits != 1 || len(l.toCommit) != 10*secondFrom {
				t.Errorf("%d commits are under way and %d turns wait", l.commits, len(l.toCommit))
			}
		})
	}
}

// Where much is under way, a small commit waits a moment for more, and not longer. Whoever is alone
// never waits.
func TestSmallCommitsWaitAMoment(t *testing.T) {
	for _, c := range []struct {
		name           string
		before, turns  int
		since, waiting time.Duration
	}{
		{"few turns after many", lullFrom, 1, 0, lullFor},
		{"as many as need not wait", 10 * lullUpTo, lullUpTo, 0, 0},
		{"one after another one", 1, 1, 0, 0},
		{"the first one of all", 0, 1, 0, 0},
		{"a part of the time is over", lullFrom, lullUpTo - 1, lullFor / 5, lullFor * 4 / 5},
		{"a while later", lullFrom, 1, lullFor, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &lull{ended: time.Now().Add(-c.since), turns: c.before}
				if got := max(0, u.left(c.turns)); got != c.waiting {
					t.Errorf("it waits for %v, want %v", got, c.waiting)
				}
			})
		})
	}
}

// The loop turns again when the moment is over, even if nothing else happens.
func TestTheLoopIsWokenAfterALull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loop{o: &Orchestrator{lifetime: t.Context()}, own: make(chan func(*loop), 1), ended: make(chan struct{}),
			toCommit: []*decision{{}}, lull: lull{ended: time.Now(), turns: lullFrom}}
		began := time.Now()
		for range 3 { // the loop may turn for other reasons meanwhile
			l.startCommit(t.Context())
		}
		if l.commits > 0 || len(l.toCommit) != 1 {
			t.Fatalf("%d commits are under way and %d turns wait", l.commits, len(l.toCommit))
		}
		(<-l.own)(l)
		if took := time.Since(began); took != lullFor || l.lull.armed || l.lull.left(1) > 0 {
			t.Errorf("woken after %v, with %v left", took, l.lull.left(1))
		}
		synctest.Wait()
		if n := len(l.own); n > 0 {
			t.Errorf("woken %d times more", n)
		}
	})
}

// The store refuses a start that comes again for a deleted instance. Another start of the same id,
// in the same round, is decided again: a client was told that NATS has it.
func TestOnlyTheRefusedStartIsDropped(t *testing.T) {
	message := func(id string, c events.Content) *item {
		return &item{message: events.Message{ID: id, Instance: "i", Content: c}}
	}
	former, again := message("former", &events.Start{}), message("former", &events.Start{})
	next, letter := message("next", &events.Start{Conflict: events.RestartFinished}),
		message("former", &events.QueueSent{})
	dropped, rest := partStarts([]*item{former, letter, next, again}, "former")
	if !slices.Equal(dropped, []*item{former, again}) || !slices.Equal(rest, []*item{letter, next}) {
		t.Errorf("dropped %v, and decides %v again", dropped, rest)
	}
}
