package orchestrator

import (
	"time"

	"github.com/rondo-run/rondo/internal/x/backoff"
)

// groupCommit delays a small commit after another one. Under load, turns that follow from the
// commit before arrive within the delay, and share the transaction. A lone instance does not wait:
// after a commit of a few turns, the next one begins at once.
type groupCommit struct {
	ended time.Time // when the last commit ended
	turns int       // the turns of the last commit
}

const (
	// groupCommitDelay is the longest delay, from the end of the commit before.
	groupCommitDelay = 500 * time.Microsecond
	// groupCommitFull is the number of turns from which a commit is not delayed.
	groupCommitFull = 24
	// groupCommitMin is the number of turns that the commit before must have had.
	groupCommitMin = 4
)

// left is the rest of the delay for a number of turns.
func (u *groupCommit) left(turns int, now time.Time) time.Duration {
	if turns >= groupCommitFull || u.turns < groupCommitMin {
		return 0
	}
	return groupCommitDelay - now.Sub(u.ended)
}

// batchLimits bound one commit.
type batchLimits struct{ turns, events, bytes int }

// cut returns how many of the waiting turns the next commit takes: at least one, and then as many
// as fit. A turn that the store has refused while it took others is alone.
func (b batchLimits) cut(waiting []*decision) int {
	n, events, bytes := 0, 0, 0
	for n < len(waiting) && n < b.turns {
		d := waiting[n]
		if n > 0 && (d.retry.alone > 0 || waiting[0].retry.alone > 0 || events+d.events > b.events ||
			bytes+d.bytes > b.bytes) {
			break // a small turn should not wait for a large one
		}
		events, bytes = events+d.events, bytes+d.bytes
		n++
	}
	return n
}

// heavyTurn is the size in bytes from which a turn makes its commit heavy: light turns do not wait
// for it.
const heavyTurn = 1 << 20

// light takes from the waiting turns those that need not wait for a heavy commit, as many as fit.
// Turns that the store has refused are not among them.
func (b batchLimits) light(waiting []*decision) (taken, rest []*decision) {
	events, bytes := 0, 0
	for _, d := range waiting {
		if len(taken) == b.turns || d.bytes >= heavyTurn || d.retry.alone > 0 || events+d.events > b.events ||
			bytes+d.bytes > b.bytes {
			rest = append(rest, d)
			continue
		}
		taken = append(taken, d)
		events, bytes = events+d.events, bytes+d.bytes
	}
	return taken, rest
}

// commitBackoff delays and shrinks commits after failures. Most often the store is the cause, and
// the committer commits the same turns a little later. But one of the turns may be the cause, or
// the size of the batch. So the batches are halved, in the end to single turns. A turn that the
// store refuses while it takes others gets a delay of its own.
type commitBackoff struct {
	delay     time.Duration // before the next commit
	limit     int           // the most turns of the next commit; 0: no limit but that of the config
	succeeded time.Time
}

// turnRetry counts the failures of the commits of a turn.
type turnRetry struct {
	refusedAt time.Time // when others were let go first, after several refusals in a row
	refusals  int       // how often the store has refused the turn alone
	alone     int       // retries since others succeed and the turn does not
}

// commitDelay is the delay before the next commit after a failed one.
var commitDelay = backoff.Backoff{First: 20 * time.Millisecond, Most: 2 * time.Second}

const (
	// refusalsAlone is how often in a row the store refuses a single turn before others go first.
	refusalsAlone = 5
	// triesAlone is how often the loop tries a turn that the store refuses while it takes others,
	// before that counts as a failed attempt of its messages.
	triesAlone = 3
)

// failing reports whether a commit has failed recently.
func (s *commitBackoff) failing() bool { return s.delay > 0 || s.limit > 0 }

// most is the most turns of the next commit.
func (s *commitBackoff) most(all int) int {
	if s.limit > 0 {
		return min(all, s.limit)
	}
	return all
}

// succeed records that the store has taken a batch of n turns; all is the most of a batch.
func (s *commitBackoff) succeed(n, all int, now time.Time) {
	s.delay, s.succeeded = 0, now
	if s.limit > 0 && n >= s.limit {
		if s.limit *= 2; s.limit >= all {
			s.limit = 0
		}
	}
}

// fail records that the store has not taken a batch of n turns.
func (s *commitBackoff) fail(n int) {
	s.delay = commitDelay.Next(s.delay)
	if s.limit == 0 || n/2 < s.limit {
		s.limit = max(1, n/2)
	}
}

// retryPlan is when a turn is committed again that the store has refused alone.
type retryPlan uint8

const (
	retryFirst retryPlan = iota // before the other turns
	retryLast                   // after them: they show whether this turn is the cause
	retryLater                  // after turnRetry.delay
	retryNever
)

// refuse counts a refusal of a turn that was alone in its batch, and plans its retry. succeeded is
// when the store has taken a batch last.
func (r *turnRetry) refuse(succeeded, now time.Time) retryPlan {
	switch r.refusals++; {
	case r.refusals < refusalsAlone:
		return retryFirst
	case r.refusedAt.IsZero() || !succeeded.After(r.refusedAt):
		r.refusedAt = now
		return retryLast
	}
	if r.alone++; r.alone > triesAlone {
		return retryNever
	}
	return retryLater
}

// delay is the delay of a turn that the store refuses while it takes others.
func (r *turnRetry) delay() time.Duration {
	return backoff.Backoff{First: time.Second, Most: 4 * time.Second}.After(r.alone - 1)
}
