package orchestrator

import (
	"testing"
	"time"
)

// TestBatchesAreCut checks how many of the waiting turns a commit takes.
func TestBatchesAreCut(t *testing.T) {
	limits := batchLimits{turns: 4, events: 100, bytes: 1000}
	turn := func(events, bytes int) *decision { return &decision{events: events, bytes: bytes} }
	alone := &decision{events: 1, bytes: 1, retry: turnRetry{alone: 1}}
	for _, c := range []struct {
		name    string
		waiting []*decision
		want    int
	}{
		{"nothing waits", nil, 0},
		{"all fit", []*decision{turn(50, 500), turn(50, 500)}, 2},
		{"too many turns", []*decision{turn(1, 1), turn(1, 1), turn(1, 1), turn(1, 1), turn(1, 1)}, 4},
		{"too many events", []*decision{turn(50, 1), turn(50, 1), turn(1, 1)}, 2},
		{"too many bytes", []*decision{turn(1, 999), turn(1, 2)}, 1},
		{"one that is too large", []*decision{turn(1000, 10_000), turn(1, 1)}, 1},
		{"one that is too large, behind others", []*decision{turn(1, 1), turn(1000, 10_000)}, 1},
		{"the first was refused alone", []*decision{alone, turn(1, 1)}, 1},
		{"the second was refused alone", []*decision{turn(1, 1), alone, turn(1, 1)}, 1},
	} {
		if got := limits.cut(c.waiting); got != c.want {
			t.Errorf("%s: it takes %d turns, want %d", c.name, got, c.want)
		}
	}
}

// TestCommitsBackOff checks the delay and the size of commits after failures and successes.
func TestCommitsBackOff(t *testing.T) {
	const all = 512
	now := time.Unix(1, 0)
	var s commitBackoff
	for i, c := range []struct {
		turns int
		fails bool
		delay time.Duration
		most  int
	}{
		{512, false, 0, all},
		{512, true, 20 * time.Millisecond, 256},
		{256, true, 40 * time.Millisecond, 128},
		{100, true, 80 * time.Millisecond, 50},
		{1, true, 160 * time.Millisecond, 1},
		{1, true, 320 * time.Millisecond, 1},
		{1, false, 0, 2},
		{1, false, 0, 2}, // fewer than it may take: it tells nothing about more
		{2, false, 0, 4},
		{4, true, 20 * time.Millisecond, 2},
		{2, false, 0, 4},
		{4, false, 0, 8},
		{8, false, 0, 16},
		{16, false, 0, 32},
		{32, false, 0, 64},
		{64, false, 0, 128},
		{128, false, 0, 256},
		{256, false, 0, all},
	} {
		now = now.Add(time.Second)
		if c.fails {
			s.fail(c.turns)
		} else {
			s.succeed(c.turns, all, now)
		}
		failing := c.delay > 0 || c.most < all
		if s.delay != c.delay || s.most(all) != c.most || s.failing() != failing {
			t.Errorf("step %d: delay %v, at most %d turns, failing %t; want %v, %d, %t", i, s.delay, s.most(all),
				s.failing(), c.delay, c.most, failing)
		}
		if !c.fails && s.succeeded != now {
			t.Errorf("step %d: the last success was at %v", i, s.succeeded)
		}
	}
	for range 20 {
		s.fail(1)
	}
	if s.delay != commitDelay.Most {
		t.Errorf("after many failures, the delay is %v, want %v", s.delay, commitDelay.Most)
	}
}

// TestRefusedTurnsAreRetried checks when a turn is committed again that the store refuses alone,
// depending on whether it takes others.
func TestRefusedTurnsAreRetried(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	t.Run("the store takes no others", func(t *testing.T) {
		var r turnRetry
		for i := range 20 {
			want := retryLast
			if i+1 < refusalsAlone {
				want = retryFirst
			}
			if got := r.refuse(time.Time{}, at(i)); got != want {
				t.Errorf("refusal %d: %d, want %d", i, got, want)
			}
		}
	})
	t.Run("the store takes others", func(t *testing.T) {
		var r turnRetry
		for i := range refusalsAlone {
			r.refuse(at(0), at(10+i))
		}
		for i := range triesAlone {
			if got := r.refuse(at(100+i), at(100+i)); got != retryLater {
				t.Errorf("try %d: %d, want %d", i, got, retryLater)
			}
			if got, want := r.delay(), time.Second<<i; got != want {
				t.Errorf("try %d is delayed by %v, want %v", i, got, want)
			}
		}
		if got := r.refuse(at(200), at(200)); got != retryNever {
			t.Errorf("after %d tries: %d, want %d", triesAlone, got, retryNever)
		}
	})
}

// TestReadsShrinkAfterFailures checks how many instances one read takes.
func TestReadsShrinkAfterFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		most, n int
		failed  bool
		want    int
	}{
		{"all is well", 0, 50, false, 0},
		{"the first failure", 0, 128, true, 64},
		{"another one", 64, 64, true, 32},
		{"a single one fails", 1, 1, true, 1},
		{"it is read", 1, 1, false, 2},
		{"fewer than may be", 32, 7, false, 32},
		{"as many as ever", maxLoad, maxLoad, false, maxLoad},
	} {
		if got := nextLoad(c.most, c.n, c.failed); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
