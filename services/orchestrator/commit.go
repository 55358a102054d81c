package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// committed says what became of a batch.
type committed struct {
	decisions []*decision
	result    history.Result
	err       error

	begun, at, published time.Time // when the commit began and ended, and all of it was published
}

// takeDecision takes a turn that was decided: to the next commit, or, if it appends nothing, to
// where it is checked.
func (l *loop) takeDecision(d *decision) {
	e := d.entry
	e.stuck = false
	switch {
	case d.err != nil:
		// the limits of package events make this impossible; if it happens all the same, the
		// instance must not be lost silently
		l.of(e).Error("a turn cannot be committed; its messages come again", "error", d.err)
		l.countAgainst(e, d.err.Error())
	case len(d.turn.Executions) > 0:
		e.stage = committing
		l.toCommit = append(l.toCommit, d)
	case l.certain(d):
		l.finish(d)
	default:
		e.stage = checking
		l.toCheck = append(l.toCheck, d)
	}
}

// certain reports whether what a turn without events says can be done at once: it was decided on
// what the store has, or gives everything back.
func (l *loop) certain(d *decision) bool {
	if len(d.promises) > 0 {
		return false
	}
	return d.entry.fresh || !slices.ContainsFunc(d.turn.Receipts, func(r round.Receipt) bool {
		return r.Verdict == round.Ignored || r.Verdict == round.Dead
	})
}

const (
	// maxCommits is how many commits are under way at once, none of which knows an instance of
	// another. So the processors have something to do while the database waits for its disk, or for
	// the network.
	maxCommits = 2
	// secondFrom is how many turns must wait before a commit begins beside another. With fewer, it
	// is cheaper to wait for that one and to commit more at once.
	secondFrom = 48
)

// lull is how long the loop waits after a commit before it begins a small one. What the commit
// before has set free comes back within that time where much is under way, and shares the next one
// then. Whoever is alone does not wait: a commit of a few turns is followed by the next one at
// once.
type lull struct {
	ended time.Time // when the last commit did
	turns int       // how many it had
	armed bool      // the loop is woken when it is over
}

const (
	// lullFor is how long a commit waits at most, since the one before has ended.
	lullFor = 500 * time.Microsecond
	// lullUpTo is how many turns need not wait.
	lullUpTo = 24
	// lullFrom is how many turns the commit before must have had.
	lullFrom = 4
)

// left is how long so many turns are to wait.
func (u *lull) left(turns int) time.Duration {
	if turns >= lullUpTo || u.turns < lullFrom {
		return 0
	}
	return lullFor - time.Since(u.ended)
}

// wakeAfter has the loop woken after a while.
func (l *loop) wakeAfter(d time.Duration) {
	if l.lull.armed {
		return
	}
	l.lull.armed = true
	time.AfterFunc(d, func() { l.tell(l.o.lifetime, func(l *loop) { l.lull.armed = false }) })
}

// startCommit commits what was decided meanwhile, if no commit is under way, or if enough waits for
// another one. When commits fail, one at a time tells what is wrong.
func (l *loop) startCommit(ctx context.Context) {
	switch n := len(l.toCommit); {
	case n == 0 || l.commits >= maxCommits:
		return
	case l.commits > 0 && (n < secondFrom || l.slow.trouble()):
		return
	case l.commits == 0 && !l.draining:
		if left := l.lull.left(n); left > 0 {
			l.wakeAfter(left)
			return
		}
	}
	n, written, bytes := 0, 0, 0
	for most := l.slow.most(l.o.config.MaxBatch); n < len(l.toCommit) && n < most; {
		d := l.toCommit[n]
		if n > 0 && (d.tries > 0 || l.toCommit[0].tries > 0 || written+d.events > l.o.config.MaxBatchEvents ||
			bytes+d.bytes > l.o.config.MaxBatchBytes) {
			break // what is small should not have to wait for what is large
		}
		written, bytes = written+d.events, bytes+d.bytes
		n++
	}
	decisions := append([]*decision(nil), l.toCommit[:n]...)
	l.toCommit = l.toCommit[n:]
	if len(l.toCommit) == 0 {
		l.toCommit = nil
	}
	batch := history.Batch{Turns: make([]history.Decided, n)}
	delay := l.slow.delay
	if delay == 0 {
		batch.Published = l.o.publisher.Kept() // if they cannot be removed, that must not be why it fails again
	}
	for i, d := range decisions {
		batch.Turns[i] = history.Decided{Turn: &d.turn, Promises: d.promises}
	}
	l.commits++
	go func() {
		x := &committed{decisions: decisions}
		x.begun, x.result, x.err = l.commit(ctx, batch, delay)
		x.at = time.Now()
		if x.err == nil {
			l.publish(ctx, decisions, x.result)
			x.published = time.Now()
		} else {
			l.o.publisher.Keep(batch.Published) // what is published and not removed, a sweep publishes again
		}
		l.o.measureCommit(x)
		l.committed <- x
	}()
}

// commit tries to commit a batch, after a while if the one before has failed.
func (l *loop) commit(ctx context.Context, batch history.Batch, delay time.Duration) (begun time.Time,
	_ history.Result, _ error) {
	if !wait(ctx, delay) {
		// there is no other try
		return time.Now(), history.Result{},
			&history.Error{Class: history.Ambiguous, Op: "commit", Err: context.Cause(ctx)}
	}
	within, cancel := context.WithTimeout(ctx, l.o.config.CommitTimeout)
	defer cancel()
	begun = time.Now()
	result, err := l.o.store.Commit(within, batch)
	return begun, result, err
}

// wait waits for a while, and reports false if the context ends first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// slowness is how the loop goes on after commits that have failed. Most often it is because of the
// store, and the same turns are committed a little later. But it may be because of one of them, or
// because they are too much at once. So fewer are tried, in the end each alone, and one that the
// store does not take while it takes others waits for itself.
type slowness struct {
	delay     time.Duration // before the next commit
	fewer     int           // how many turns the next commit may have; 0: as many as may be
	delayed   int           // turns that wait for themselves
	succeeded time.Time
	fault     *commitFault
}

// trouble reports whether a commit has failed not long ago.
func (s *slowness) trouble() bool { return s.delay > 0 || s.fewer > 0 }

// most is how many turns the next commit may have.
func (s *slowness) most(all int) int {
	if s.fewer > 0 {
		return min(all, s.fewer)
	}
	return all
}

const (
	maxCommitDelay = 2 * time.Second
	// refusalsAlone is how often in a row a turn is not taken alone before others are let go first.
	refusalsAlone = 5
	// triesAlone is how often a turn that the store does not take while it takes others is tried
	// before that counts as an attempt that has failed.
	triesAlone = 3
)

// takeStored notes that a batch of so many turns was taken.
func (l *loop) takeStored(n int) {
	s := &l.slow
	s.delay, s.fault, s.succeeded = 0, nil, time.Now()
	l.commitFault.Store(nil)
	if s.fewer > 0 && n >= s.fewer {
		if s.fewer *= 2; s.fewer >= l.o.config.MaxBatch {
			s.fewer = 0
		}
	}
}

// takeUnstored has turns that were not stored committed again.
func (l *loop) takeUnstored(x *committed) {
	s, n := &l.slow, len(x.decisions)
	if s.fault == nil {
		s.fault = &commitFault{since: time.Now(), err: x.err}
		l.o.log.Warn("a commit failed; trying again", "turns", n, "class", history.ClassOf(x.err).String(),
			"error", x.err)
	}
	l.commitFault.Store(&commitFault{since: s.fault.since, err: x.err})
	s.delay = min(max(20*time.Millisecond, 2*s.delay), maxCommitDelay)
	if s.fewer == 0 || n/2 < s.fewer {
		s.fewer = max(1, n/2)
	}
	if n > 1 {
		l.toCommit = append(x.decisions, l.toCommit...)
		return
	}
	d := x.decisions[0]
	switch d.refusals++; {
	case d.refusals < refusalsAlone:
		l.toCommit = append(x.decisions, l.toCommit...)
		return
	case d.refused.IsZero() || !s.succeeded.After(d.refused):
		d.refused = time.Now()
		l.toCommit = append(l.toCommit, d) // others first: they tell whether it is because of this one
		return
	}
	if d.tries++; d.tries > triesAlone {
		l.of(d.entry).Error("the database does not manage to store a turn", "events", d.events, "bytes", d.bytes,
			"error", x.err)
		l.countAgainst(d.entry, x.err.Error())
		return
	}
	s.delayed++
	time.AfterFunc(time.Second/2<<d.tries, func() {
		l.tell(l.o.lifetime, func(l *loop) {
			l.slow.delayed--
			l.toCommit = append(l.toCommit, d)
		})
	})
}

// publish hands what the turns that were taken have promised to the publisher. When that has too
// much to do, it waits, and so does the next commit.
func (l *loop) publish(ctx context.Context, decisions []*decision, result history.Result) {
	var x outbox.Promised
	for i, d := range decisions {
		if result.Outcomes[i].Status == history.Committed {
			x.Messages = append(x.Messages, d.promises...)
		}
	}
	x.Keys = result.Promises
	if len(x.Messages) > 0 || len(x.Keys) > 0 {
		_ = l.o.publisher.Publish(ctx, x) // otherwise the process ends, and a sweep publishes it
	}
}

// takeCommitted goes on with each instance as its turn's verdict says.
func (l *loop) takeCommitted(ctx context.Context, x *committed) {
	l.commits--
	l.lull.ended, l.lull.turns = time.Now(), len(x.decisions)
	switch {
	case x.err != nil && (ctx.Err() != nil || history.ClassOf(x.err) == history.Ambiguous):
		l.takeFailed(x)
		return
	case x.err != nil:
		l.takeUnstored(x)
		return
	}
	l.takeStored(len(x.decisions))
	for i, d := range x.decisions {
		outcome := x.result.Outcomes[i]
		e := d.entry
		if outcome.Status == history.Committed {
			e.conflicts = 0
			e.known, e.fresh = knownOf(&d.turn.Row), false
			d.committed, d.published, d.batch = x.at, x.published, len(x.decisions)
			l.weigh(e)
			l.finish(d)
			continue
		}
		l.evict(e)
		e.stage = idle
		switch outcome.Status {
		case history.Conflict:
			l.again(e)
		case history.Deleted, history.ParentDeleted:
			l.dropStarts(e, outcome.Status, d.turn.Row.StartMessage)
		case history.Deleting:
			l.returnTaken(e, time.Second)
		default:
			l.of(e).Error("the database does not take a turn", "verdict", outcome.Status.String(),
				"error", outcome.Err)
			l.countAgainst(e, outcome.Err.Error())
		}
	}
}

// takeFailed goes on after a commit of which nobody knows whether it happened: history will tell.
func (l *loop) takeFailed(x *committed) {
	l.o.log.Warn("nobody knows whether a commit has happened; reading the instances again", "turns", len(x.decisions),
		"error", x.err)
	for _, d := range x.decisions {
		for _, i := range d.entry.taken {
			i.doubtful = true
		}
		l.evict(d.entry)
		d.entry.stage = idle
		l.again(d.entry)
	}
}

// maxConflicts is after how many conflicts in a row an instance is left alone for a while: somebody
// else is at it.
const maxConflicts = 3

// again has the messages of a round decided again, on what the store has now.
func (l *loop) again(e *entry) {
	l.putBack(e, e.taken)
	e.taken = nil
	e.conflicts++
	if e.conflicts > maxConflicts && !l.draining {
		l.pause(e, min(20*time.Millisecond<<min(e.conflicts, 6), time.Second))
		return
	}
	l.advance(e)
}

// dropStarts ends the start of an instance that must not begin, and has the rest decided again.
func (l *loop) dropStarts(e *entry, why history.CommitStatus, start string) {
	dropped, rest := partStarts(e.taken, start)
	for _, i := range dropped {
		r := round.Receipt{Verdict: round.Ignored, Reason: round.Reason(why.String())}
		l.settle(e, i, r)
		l.o.receipt(e, i, r)
	}
	if len(dropped) == 0 { // a message that is no start found nobody
		l.again(e)
		return
	}
	e.taken = nil
	l.putBack(e, rest)
	e.conflicts++ // so that it is read
	l.advance(e)
}

// partStarts takes the start that has begun a turn out of the messages of a round, however often it
// has come. Another start means another instance: the store has not judged it.
func partStarts(taken []*item, start string) (those, rest []*item) {
	for _, i := range taken {
		if _, isStart := i.message.Content.(*events.Start); isStart && i.message.ID == start {
			those = append(those, i)
		} else {
			rest = append(rest, i)
		}
	}
	return those, rest
}

// returnTaken gives the messages of a round back, to come again later; what waits behind them, too,
// so that the order stays.
func (l *loop) returnTaken(e *entry, after time.Duration) {
	l.putBack(e, e.taken)
	e.taken = nil
	l.returnWaiting(e, after)
	l.advance(e)
}

// countAgainst counts an attempt against the messages of a round that cannot be committed, and
// gives them back. After too many, the round will dead-letter them.
func (l *loop) countAgainst(e *entry, why string) {
	l.evict(e)
	e.stage = idle
	var rest []*item
	for _, i := range e.taken {
		l.o.suspects.count(i, why)
		if most := l.o.config.Round.MaxAttempts; i.attempts > 2*max(most, 10) && !i.inside() {
			// even to end the instance was not possible
			l.settled(i)
			l.o.deadLetter(i.settling(),
				broker.Cause{Reason: reasonUnstorable, Detail: why, By: l.o.config.ID, Attempts: i.attempts})
			continue
		}
		rest = append(rest, i)
	}
	e.taken = rest
	l.returnTaken(e, time.Second)
}

// ---- Turns that append nothing.

// checked says which turns without events were decided on what the store has, and have published
// what they say.
type checked struct {
	decisions []*decision
	good      []bool
}

// startCheck compares turns that append nothing with the store: if somebody else has taken the
// instance further, a message that means nothing here may mean something there.
func (l *loop) startCheck(ctx context.Context) {
	if len(l.toCheck) == 0 || l.checks > 0 {
		return
	}
	n := min(len(l.toCheck), maxLoad)
	decisions := append([]*decision(nil), l.toCheck[:n]...)
	l.toCheck = l.toCheck[n:]
	l.checks++
	go func() { l.checked <- &checked{decisions, l.check(ctx, decisions)} }()
}

func (l *loop) check(ctx context.Context, decisions []*decision) []bool {
	good := make([]bool, len(decisions))
	ids := make([]string, len(decisions))
	for i, d := range decisions {
		ids[i] = d.entry.id
	}
	within, cancel := context.WithTimeout(ctx, l.o.config.LoadTimeout)
	defer cancel()
	known, err := l.o.store.Load(within, ids, func(string, round.Row) bool { return false })
	if err != nil {
		l.o.log.Warn("instances could not be compared with the store; deciding again", "instances",
			len(ids), "error", err)
		return good
	}
	var messages []events.Wire
	for i, d := range decisions {
		good[i] = known[i].Row.RowVersion() == d.turn.Expected
		if good[i] {
			messages = append(messages, d.promises...)
		}
	}
	if len(messages) == 0 {
		return good
	}
	if err := outbox.Send(within, l.o.broker, l.o.broker.Prefix(), messages, l.o.log, l.o.config.Metrics); err != nil {
		l.o.log.Warn("what a turn without events says could not be published; deciding again", "error", err)
		clear(good)
	}
	return good
}

func (l *loop) takeChecked(x *checked) {
	l.checks--
	for i, d := range x.decisions {
		if x.good[i] {
			l.finish(d)
			continue
		}
		l.evict(d.entry)
		d.entry.stage = idle
		l.again(d.entry)
	}
}
