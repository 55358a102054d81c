package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// After a commit has failed, only its retry is in flight, however many turns wait.
func TestCommitsAreTriedOneAtATime(t *testing.T) {
	for name, slow := range map[string]commitBackoff{"before the next try": {delay: commitDelay.Most},
		"with fewer turns": {limit: 10}} {
		t.Run(name, func(t *testing.T) {
			c := &committer{inFlight: 1, waiting: make([]*decision, 10*secondFrom), backoff: slow}
			c.start(t.Context(), false)
			if c.inFlight != 1 || len(c.waiting) != 10*secondFrom {
				t.Errorf("%d commits are in flight and %d turns wait", c.inFlight, len(c.waiting))
			}
		})
	}
}

// Under load, a small commit waits for more turns, but not longer than the delay. A lone instance
// never waits.
func TestSmallCommitsWaitAMoment(t *testing.T) {
	for _, c := range []struct {
		name           string
		before, turns  int
		since, waiting time.Duration
	}{
		{"few turns after many", groupCommitMin, 1, 0, groupCommitDelay},
		{"as many as need not wait", 10 * groupCommitFull, groupCommitFull, 0, 0},
		{"one after another one", 1, 1, 0, 0},
		{"the first one of all", 0, 1, 0, 0},
		{"a part of the time is over", groupCommitMin, groupCommitFull - 1, groupCommitDelay / 5,
			groupCommitDelay * 4 / 5},
		{"a while later", groupCommitMin, 1, groupCommitDelay, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1, 0)
			u := &groupCommit{ended: now.Add(-c.since), turns: c.before}
			if got := max(0, u.left(c.turns, now)); got != c.waiting {
				t.Errorf("it waits for %v, want %v", got, c.waiting)
			}
		})
	}
}

// A failed batch is tried again, while a small commit succeeds. The process counts as failing since
// the first attempt began, until each turn of the batch was stored or given up.
func TestASmallCommitDoesNotEndAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &committer{limits: batchLimits{turns: 10}, log: slog.New(slog.DiscardHandler)}
		began := time.Now()
		failing := func(want bool) {
			t.Helper()
			err := c.failing()
			if says := "since " + began.UTC().Format(time.RFC3339); (err != nil) != want ||
				want && !strings.Contains(err.Error(), says) {
				t.Errorf("%v; want an error %s: %t", err, says, want)
			}
		}
		large := &committed{decisions: []*decision{{}, {}}, err: errors.New("the disk is full"), begun: began}
		small := &committed{decisions: []*decision{{}}}
		<-time.After(4 * time.Second) // the attempt takes as long
		c.retry(large)
		failing(false)
		<-time.After(2 * time.Second)
		failing(true)
		c.succeed(small)
		failing(true)
		large.begun = time.Now()
		c.retry(large)
		c.succeed(&committed{decisions: large.decisions[:1]})
		failing(true)
		refused := &committed{decisions: large.decisions[1:], err: large.err, begun: time.Now()}
		c.after = func(time.Duration, func()) {}
		for c.retry(refused) == nil {
			failing(true)
			<-time.After(time.Second)
			c.succeed(small)
		}
		failing(false)
	})
}

// TestAStoredTurnEndsADoubt: a turn has failed, and then its outcome is unknown. That it is found
// to be stored ends the fault, also if nothing else is committed.
func TestAStoredTurnEndsADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &committer{limits: batchLimits{turns: 10}, log: slog.New(slog.DiscardHandler)}
		x := &committed{decisions: []*decision{{}}, err: errors.New("the disk is full"), begun: time.Now()}
		c.retry(x)
		c.doubt(x)
		<-time.After(time.Minute)
		if c.failing() == nil {
			t.Error("the fault ends although the outcome is unknown")
		}
		c.resolve()
		if err := c.failing(); err != nil {
			t.Errorf("the turn is stored, and yet: %v", err)
		}
	})
}

// The loop turns again when the delay is over, even if nothing else happens.
func TestTheLoopIsWokenAfterALull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls(t.Context())
		c := &committer{after: calls.after, waiting: []*decision{{}},
			group: groupCommit{ended: time.Now(), turns: groupCommitMin}}
		began := time.Now()
		for range 3 { // the loop may turn for other reasons meanwhile
			c.start(t.Context(), false)
		}
		if c.inFlight > 0 || len(c.waiting) != 1 {
			t.Fatalf("%d commits are in flight and %d turns wait", c.inFlight, len(c.waiting))
		}
		(<-calls.waiting)()
		if took := time.Since(began); took != groupCommitDelay || c.armed || c.group.left(1, time.Now()) > 0 {
			t.Errorf("woken after %v, with %v left", took, c.group.left(1, time.Now()))
		}
		synctest.Wait()
		if n := len(calls.waiting); n > 0 {
			t.Errorf("woken %d times more", n)
		}
	})
}

// The store refuses a redelivered start of a deleted instance. Another start of the same id, in the
// same round, is decided again: NATS has confirmed it to a client.
func TestOnlyTheRefusedStartIsDropped(t *testing.T) {
	message := func(id string, c events.Content) *item {
		return &item{message: events.Message{ID: id, Instance: "i", Content: c}}
	}
	former, again := message("former", &events.Start{}), message("former", &events.Start{})
	next, letter := message("next", &events.Start{Conflict: events.RestartFinished}),
		message("former", &events.MailboxMessage{})
	dropped, rest := partStarts([]*item{former, letter, next, again}, "former")
	if !slices.Equal(dropped, []*item{former, again}) || !slices.Equal(rest, []*item{letter, next}) {
		t.Errorf("dropped %v, and decides %v again", dropped, rest)
	}
}

// gate is a store whose commits end when the test lets them.
type gate struct {
	begun chan history.Batch
	end   chan struct{} // of heavy commits
}

func (g gate) Commit(_ context.Context, b history.Batch) (history.Result, error) {
	g.begun <- b
	if len(b.Turns) == 1 && b.Turns[0].Turn.Instance == "heavy" {
		<-g.end
	}
	return history.Result{Outcomes: make([]history.Outcome, len(b.Turns))}, nil
}

// nothing publishes nothing.
type nothing struct{ turnPublisher }

func (nothing) Kept() []history.OutboxKey { return nil }

// While the commit of an instance that writes much is in flight, others are committed, however few
// they are. Others that write much wait.
func TestLightTurnsDoNotWaitForHeavyOnes(t *testing.T) {
	store := gate{make(chan history.Batch, 10), make(chan struct{})}
	c := &committer{limits: batchLimits{turns: 10, events: 100, bytes: 16 << 20}, timeout: time.Hour, store: store,
		publisher: nothing{}, measure: func(*committed) {}, done: make(chan *committed, maxCommits)}
	turn := func(instance string, bytes int) *decision {
		return &decision{turn: round.Turn{Instance: instance}, events: 1, bytes: bytes}
	}
	for range 3 {
		c.add(turn("heavy", 16<<20))
	}
	c.start(t.Context(), false)
	<-store.begun
	for range 3 { // one after the other, each in a commit of its own
		c.add(turn("light", 1000))
		c.start(t.Context(), false)
		if b := <-store.begun; len(b.Turns) != 1 || b.Turns[0].Turn.Instance != "light" {
			t.Fatalf("%d turns, the first of %s", len(b.Turns), b.Turns[0].Turn.Instance)
		}
		c.finish(<-c.done)
	}
	c.start(t.Context(), false)
	if c.inFlight != 1 || len(c.waiting) != 2 {
		t.Errorf("%d commits are in flight and %d turns wait; want one heavy turn of three", c.inFlight, len(c.waiting))
	}
	close(store.end)
	c.finish(<-c.done)
	c.start(t.Context(), false)
	if b := <-store.begun; b.Turns[0].Turn.Instance != "heavy" {
		t.Errorf("the next commit is of %s", b.Turns[0].Turn.Instance)
	}
	c.finish(<-c.done)
}

// A turn that the store has refused does not pass a heavy one: it is committed alone.
func TestRefusedTurnsAreNotLight(t *testing.T) {
	limits := batchLimits{turns: 2, events: 100, bytes: 1000}
	refused := &decision{retry: turnRetry{alone: 1}}
	a, b, c, heavy := &decision{bytes: 1}, &decision{bytes: 1}, &decision{bytes: 1}, &decision{bytes: heavyTurn}
	taken, rest := limits.light([]*decision{heavy, refused, a, b, c})
	if !slices.Equal(taken, []*decision{a, b}) || !slices.Equal(rest, []*decision{heavy, refused, c}) {
		t.Errorf("takes %d turns and leaves %d", len(taken), len(rest))
	}
}
