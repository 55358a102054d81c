package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// stepRunner runs inline steps. [steps.Runner] implements it.
type stepRunner interface {
	// Start runs a step, unless it runs already.
	Start(instance string, row round.Row, s round.Step)
	// Cancel stops a step of an instance, Drop all of them.
	Cancel(instance string, ref round.StepRef)
	Drop(instance string)
	// Has reports whether an instance has steps that are not done.
	Has(instance string) bool
}

// loopConfig has the settings of the loop.
type loopConfig struct {
	ackWait     time.Duration
	maxInbox    int // messages of one round
	maxAttempts int // of a message, in rounds
	stuckAfter  time.Duration
	measured    bool // gauges of the memory are exported
}

// readyQueue is the instances that wait for a decider, with the messages of their rounds.
type readyQueue struct {
	jobs    chan<- *entry
	waiting []*entry
}

func (q *readyQueue) add(e *entry) {
	e.move(takeRound)
	q.waiting = append(q.waiting, e)
}

// next returns the channel of the deciders and the first instance, both nil if none waits.
func (q *readyQueue) next() (chan<- *entry, *entry) {
	if len(q.waiting) == 0 {
		return nil, nil
	}
	return q.jobs, q.waiting[0]
}

// give sends instances to the deciders while their channel has room. That is much cheaper than a
// select over all channels of the loop for each of them.
func (q *readyQueue) give() {
	for len(q.waiting) > 0 {
		select {
		case q.jobs <- q.waiting[0]:
			q.gave()
		default:
			return
		}
	}
}

// gave notes that a decider has, or will have, the first instance.
func (q *readyQueue) gave() {
	q.waiting[0].move(startRound)
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
}

// loop moves the instances in memory from one stage to the next. All its fields belong to its
// goroutine, except for those at the end.
type loop struct {
	config   loopConfig
	table    *instances
	held     *heldMessages
	marks    *watermarks
	ready    *readyQueue
	deciders *deciders
	loader   *loader
	former   *formerReader
	noops    *noops
	commits  *committer
	settler  *settler
	steps    stepRunner
	wake     func(instance string) // where the instance goes on
	refuse   func(instance string, s *events.Start)
	spans    *spans
	rounds   *roundMetrics
	turnLog  *turnLog
	log      *slog.Logger
	in       chan *item // from the broker; not read while too much is in memory

	calls   *calls
	drained chan struct{} // closed once a drain is done
	pulse   pulse
	counted atomic.Pointer[report.Memory] // for metrics
}

// run loops until the context ends. Each iteration takes one message or outcome, and then starts
// every operation that can start.
func (l *loop) run(ctx context.Context) {
	tick := time.NewTicker(min(l.config.ackWait/4, time.Second))
	defer tick.Stop()
	defer l.table.evictAll()
	defer close(l.calls.ended)
	l.lookAtSelf()
	for {
		l.pulse.beat()
		in := l.in
		if l.held.full() || l.table.draining {
			in = nil
		}
		l.ready.give()
		jobs, next := l.ready.next()
		select {
		case <-ctx.Done():
			return
		case i := <-in:
			l.arrive(i)
			l.arriveMore()
		case f := <-l.calls.waiting:
			f()
		case jobs <- next:
			l.ready.gave()
		case d := <-l.deciders.done:
			l.takeDecision(d)
			l.takeMoreDecisions()
		case x := <-l.loader.done:
			l.takeLoaded(x)
		case x := <-l.commits.done:
			l.takeCommitted(ctx, x)
		case x := <-l.noops.done:
			l.takeChecked(x)
		case x := <-l.former.done:
			l.takeFormer(x)
		case <-tick.C:
			l.held.touch(time.Now(), l.config.ackWait/3)
			l.lookAtSelf()
		}
		l.loader.start(ctx)
		l.commits.start(ctx, l.table.draining)
		l.noops.start(ctx)
		l.former.start(ctx)
		l.endDrain()
	}
}

// ---- Messages.

// arriveMore takes the messages that have arrived already, so that they share batches.
func (l *loop) arriveMore() {
	for range cap(l.in) {
		if l.held.full() {
			return
		}
		select {
		case i := <-l.in:
			l.arrive(i)
		default:
			return
		}
	}
}

// arrive takes a message from the broker.
func (l *loop) arrive(i *item) {
	i.arrive()
	if i.watermark != nil {
		if e := l.table.entries[i.message.Instance]; e != nil && l.marks.take(e, *i.watermark) {
			l.advance(e)
		}
		return
	}
	if l.held.isDuplicate(i) {
		l.settler.release(i)
		return // the first delivery will be settled
	}
	if l.table.draining || !i.handed && !l.table.owned[i.delivery.Partition] {
		l.settler.release(i)
		i.delivery.Hold.Nak(0)
		return
	}
	l.held.add(i)
	if i.quarantined { // only now can firstBlocked tell the first message of its instance
		l.settler.quarantine.add(i)
	}
	e := l.table.obtain(i.message.Instance)
	e.partition, e.foreign = i.delivery.Partition, i.handed
	if !l.marks.holds(e, i) {
		l.marks.waits(e, i)
	}
	if e.stuck || e.refused && l.held.overShare(e.waiting) { // it must not take the room of others
		l.returnWaiting(e, l.config.stuckAfter)
	}
	l.advance(e)
}

// deliver takes the result of an inline step. Any goroutine may call it.
func (l *loop) deliver(ctx context.Context, m events.Message) {
	i := &item{message: m, arrived: time.Now()}
	l.calls.run(ctx, func() {
		if e := l.table.entries[m.Instance]; e != nil && !l.table.draining {
			e.waiting = append(e.waiting, i)
			l.advance(e)
			return
		}
		l.wake(m.Instance) // it moves
	})
}

// firstBlocked returns a function that asks the loop for [instances.firstBlocked]. Any goroutine
// may call it.
func firstBlocked(l *loop) func(ctx context.Context, i *item) *item {
	return func(ctx context.Context, i *item) *item {
		var first *item
		if !l.calls.ask(ctx, func() { first = l.table.firstBlocked(i) }) {
			return i
		}
		return first
	}
}

// unblock lets a quarantined message be decided, as its given attempt. Any goroutine may call it.
func (l *loop) unblock(ctx context.Context, i *item, attempt int) {
	l.calls.run(ctx, func() {
		i.attempts, i.blocked = attempt, false
		if e := l.table.entries[i.message.Instance]; e != nil {
			l.advance(e)
		}
		if !l.held.has(i) { // nacked meanwhile
			l.settler.quarantine.settled(i)
		}
	})
}

// setStuck notes that the code of an instance does not return. Messages that wait for it must not
// take the room of others, nor delay the other quarantined messages. Any goroutine may call it.
func (l *loop) setStuck(ctx context.Context, e *entry) {
	l.calls.run(ctx, func() {
		if e.stage != deciding {
			return // it has returned after all
		}
		e.stuck = true
		for _, i := range e.taken {
			l.settler.quarantine.letGo(i)
		}
		l.returnWaiting(e, l.config.stuckAfter)
	})
}

// returnWaiting nacks the messages that wait for an instance, in their order, with a delay. It
// keeps messages of this process to itself only if the instance is stuck, because its code may
// still return.
func (l *loop) returnWaiting(e *entry, after time.Duration) {
	l.marks.forget(e)
	var inside []*item
	for _, i := range e.waiting {
		if i.inside() {
			inside = append(inside, i)
			continue
		}
		l.settler.nack(i, after)
	}
	e.waiting = nil
	switch {
	case e.stuck && !l.table.draining:
		e.waiting = inside
	case len(inside) > 0: // the result of a step, say, is lost
		e.behind = true
		l.wake(e.id)
	}
}

// giveBack nacks the messages that wait for an instance whose watermark is not to be had.
func (l *loop) giveBack(e *entry, after time.Duration) {
	l.returnWaiting(e, after)
	l.advance(e)
}

// ---- From one stage to the next.

// advance starts the next stage of an idle instance.
func (l *loop) advance(e *entry) {
	if e.stage != idle {
		return
	}
	if !l.table.keeps(e) {
		l.returnWaiting(e, 0)
	}
	if e.behind { // its partition may be back: the replay runs the step again
		l.table.evict(e)
		e.behind = false
	}
	switch {
	case len(e.waiting) == 0 && !e.awaits.IsZero():
		l.table.unpark(e)
	case len(e.waiting) == 0:
		l.table.park(e)
	case e.barred:
		l.table.unpark(e)
	case e.waiting[0].blocked:
		l.table.unpark(e)
		l.settler.quarantine.putFirst(e.waiting)
	case e.live == nil && e.startsAnew():
		l.table.unpark(e)
		l.hydrate(e, round.Known{Instance: e.id})
		e.fresh = false // the commit finds out whether the instance exists
		l.makeReady(e)
	case e.live == nil:
		l.table.unpark(e)
		l.loader.add(e)
	default:
		l.table.unpark(e)
		l.makeReady(e)
	}
}

func (l *loop) hydrate(e *entry, k round.Known) {
	e.forgetOtherIncarnation(k.Row.Incarnation)
	l.spans.takeOver(k)
	l.table.hydrate(e, k)
}

// makeReady queues an instance with its messages for the deciders.
func (l *loop) makeReady(e *entry) {
	e.takeMessages(l.config.maxInbox)
	e.live.Remember(e.former)
	if !e.foreign { // otherwise the owner of its partition has waited
		e.live.SetWatermark(e.knownUntil())
		e.live.SetStarts(e.starts())
	}
	l.ready.add(e)
}

// takeLoaded continues with the instances of a read.
func (l *loop) takeLoaded(x *loaded) {
	l.loader.finish(x)
	for i, e := range x.entries {
		e.move(rest)
		switch {
		case x.err != nil && !l.table.draining:
			l.pause(e, loadAgain)
		case x.err != nil:
			l.advance(e)
		case x.unread[e.id]:
			e.unread = x.known[i].Row.HistoryBytes
			l.advance(e)
		default:
			e.unread = 0
			l.hydrate(e, x.known[i])
			l.advance(e)
		}
		if e.stage != ready { // no decider gets it now
			l.loader.room.release(e)
		}
	}
}

// takeFormer continues with an instance whose former executions were read, as far as that went.
func (l *loop) takeFormer(x *formerRead) {
	l.former.finish(x)
	e := x.entry
	if !x.done && x.err == nil && l.table.keeps(e) {
		l.former.proceed(x)
		return
	}
	e.move(rest)
	e.former = x.former
	if x.done && !x.gaveUp {
		e.reading = nil
	}
	if x.err != nil {
		e.logger(l.log).Warn("former executions could not be read; trying again",
			"execution", x.question.Execution, "error", x.err)
		if !l.table.draining {
			l.pause(e, loadAgain)
			return
		}
	}
	l.advance(e)
}

// takeMoreDecisions takes the turns that were decided already, so that they share batches. That is
// much cheaper than a select over all channels for each of them.
func (l *loop) takeMoreDecisions() {
	for {
		select {
		case d := <-l.deciders.done:
			l.takeDecision(d)
		default:
			return
		}
	}
}

// takeDecision adds a turn to the next commit, or, if the turn appends nothing, to the next check.
func (l *loop) takeDecision(d *decision) {
	e := d.entry
	e.stuck = false
	e.forgetFailedRead()
	switch {
	case d.err != nil:
		// the limits of package events exclude this; if it happens all the same, the instance must
		// not be lost silently
		e.logger(l.log).Error("turn cannot be committed; NATS redelivers its messages", "error", d.err)
		e.move(rest)
		l.countAgainst(e, d.err.Error())
	case len(d.turn.Executions) > 0:
		e.move(needCommit)
		l.commits.add(d)
	case isCertain(d):
		l.finish(d)
	default:
		e.move(needCheck)
		l.noops.add(d)
	}
}

// takeChecked finishes the turns that were decided on the stored state, and has the others decided
// again.
func (l *loop) takeChecked(x *checked) {
	l.noops.finish()
	for i, d := range x.decisions {
		e := d.entry
		if x.outcomes[i] == sure {
			if slices.ContainsFunc(e.taken, func(m *item) bool { return m.doubtful }) {
				l.commits.resolve()
			}
			l.finish(d)
			continue
		}
		var pause time.Duration
		if e.refused = x.outcomes[i] == refused; e.refused { // of this instance alone: the checks of others go on
			pause = refusedPause
		}
		l.table.evict(e)
		e.move(rest)
		switch x.outcomes[i] {
		case startWaits:
			for _, m := range e.taken {
				m.startWaits = true
			}
		case notTold: // NATS keeps them, so that they do not fill the memory
			l.returnTaken(e, refusedPause)
			continue
		default:
		}
		l.again(e, pause)
		if e.refused && l.held.overShare(e.waiting) {
			l.returnWaiting(e, l.config.stuckAfter)
		}
	}
}

// takeCommitted continues each instance by the outcome of its turn.
func (l *loop) takeCommitted(ctx context.Context, x *committed) {
	l.commits.finish(x)
	switch {
	case x.err != nil && (ctx.Err() != nil || history.ClassOf(x.err) == history.Ambiguous):
		l.takeUnknown(x)
		return
	case x.err != nil:
		if d := l.commits.retry(x); d != nil {
			d.entry.logger(l.log).Error("turn cannot be committed on its own; NATS redelivers its messages",
				"events", d.events, "bytes", d.bytes, "error", x.err)
			d.entry.move(rest)
			l.countAgainst(d.entry, x.err.Error())
		}
		return
	}
	l.commits.succeed(x)
	for i, d := range x.decisions {
		outcome := x.result.Outcomes[i]
		e := d.entry
		if outcome.Status == history.Committed {
			e.conflicts = 0
			e.known, e.fresh = knownOf(&d.turn.Row), false
			d.committed, d.published, d.batch = x.at, x.published, len(x.decisions)
			l.table.weigh(e)
			l.table.recorded(&d.turn)
			l.finish(d)
			continue
		}
		l.table.evict(e)
		e.move(rest)
		switch outcome.Status {
		case history.Conflict:
			l.again(e, 0)
		case history.Deleted, history.ParentDeleted:
			l.dropStarts(e, outcome.Status, d.turn.Row.StartMessage)
		case history.Deleting:
			l.returnTaken(e, time.Second)
		default:
			e.logger(l.log).Error("database rejected a turn; NATS redelivers its messages",
				"outcome", outcome.Status.String(), "error", outcome.Err)
			l.countAgainst(e, outcome.Err.Error())
		}
	}
}

// takeUnknown continues after an ambiguous commit: history tells whether it happened.
func (l *loop) takeUnknown(x *committed) {
	l.commits.doubt(x)
	l.log.Warn("commit outcome unknown; reloading instances", "turns", len(x.decisions),
		"error", x.err)
	for _, d := range x.decisions {
		for _, i := range d.entry.taken {
			i.doubtful = true
		}
		l.table.evict(d.entry)
		d.entry.move(rest)
		l.again(d.entry, 0)
	}
}

// finish completes a turn after its commit, or one that has nothing to commit. It settles the
// messages, starts the steps, and continues with the messages that arrived meanwhile.
func (l *loop) finish(d *decision) {
	e, t := d.entry, &d.turn
	l.turnLog.write(t)
	l.settler.notifier.notify(t)
	var again []*item
	for n, i := range e.taken {
		if t.Receipts[n].Verdict == round.Again {
			again = append(again, i)
			continue
		}
		l.settler.settleAndNotify(e, i, t.Receipts[n])
		if t.Receipts[n].Verdict == round.Ignored {
			l.spans.again(i)
		}
	}
	l.spans.export(d)
	l.rounds.settled(d)
	e.taken, e.fresh, e.refused = nil, false, false
	switch {
	case t.Again && len(again) == 0:
		again = []*item{wakeUp(e.id, "again")}
	case !t.Again && !t.Awaits.IsZero():
		l.marks.bar(e, again, t.Awaits)
		again = nil
	}
	e.putBack(again)
	for _, s := range t.DroppedSteps {
		l.steps.Cancel(e.id, s)
	}
	for _, s := range t.Steps {
		l.steps.Start(e.id, e.known.row(), s)
	}
	e.move(rest)
	if t.Evict {
		l.table.evict(e)
	}
	if t.Question != nil && !l.table.draining {
		l.former.add(e, *t.Question)
		return
	}
	l.advance(e)
}

// ---- Rounds that did not happen.

// maxConflicts is the number of conflicts in a row after which an instance is delayed, because
// another orchestrator runs it.
const maxConflicts = 3

// conflictDelay is that delay.
var conflictDelay = backoff.Backoff{First: 20 * time.Millisecond, Most: time.Second}

// again schedules a new round for the messages of a round, on the stored state, after a pause.
func (l *loop) again(e *entry, pause time.Duration) {
	e.putBack(e.taken)
	e.taken = nil
	e.conflicts++
	if e.conflicts > maxConflicts {
		pause = max(pause, conflictDelay.After(e.conflicts))
	}
	if pause > 0 && !l.table.draining {
		l.pause(e, pause)
		return
	}
	l.advance(e)
}

// dropStarts drops the start of an instance that must not begin, and schedules a new round for the
// other messages.
func (l *loop) dropStarts(e *entry, why history.CommitStatus, start string) {
	dropped, others := partStarts(e.taken, start)
	for _, i := range dropped {
		if s, is := i.message.Content.(*events.Start); is && why == history.Deleted {
			l.refuse(e.id, s)
		}
		l.settler.settleAndNotify(e, i, round.Receipt{Verdict: round.Ignored, Reason: round.Reason(why.String())})
	}
	if len(dropped) == 0 { // a message that is no start found no instance
		l.again(e, 0)
		return
	}
	e.taken = nil
	e.putBack(others)
	e.conflicts++ // so that the instance is loaded
	l.advance(e)
}

// returnTaken nacks the messages of a round with a delay, and those that wait behind them, so that
// their order stays.
func (l *loop) returnTaken(e *entry, after time.Duration) {
	e.putBack(e.taken)
	e.taken = nil
	l.returnWaiting(e, after)
	l.advance(e)
}

// countAgainst counts a failed attempt of the messages of a round, and nacks them. After too many,
// the round dead-letters them.
func (l *loop) countAgainst(e *entry, why string) {
	l.table.evict(e)
	e.taken = l.settler.countAgainst(e.taken, why, l.config.maxAttempts)
	l.returnTaken(e, time.Second)
}

// pause leaves an instance alone for a while.
func (l *loop) pause(e *entry, d time.Duration) {
	e.move(needPause)
	l.calls.after(d, func() {
		if e.stage == pausing {
			e.move(rest)
			l.advance(e)
		}
	})
}

// ---- Partitions that move, and the end.

// setOwned sets the partitions of this orchestrator, and nacks waiting messages of the others. It
// reports false if the service ends first. Any goroutine may call it.
func (l *loop) setOwned(owned map[int]bool) bool {
	return l.calls.ask(l.calls.lifetime, func() { l.giveUp(l.table.setOwned(owned)) })
}

// giveUp nacks the messages that wait for instances, in the order of their oldest messages, and
// forgets the idle instances.
func (l *loop) giveUp(lost []*entry) {
	slices.SortFunc(lost, func(a, b *entry) int { return cmp.Compare(a.firstPlace(), b.firstPlace()) })
	for _, e := range lost {
		l.returnWaiting(e, 0)
		switch e.stage {
		case idle:
			l.table.forget(e)
		case queued:
			l.loader.remove(e)
			l.table.forget(e)
		default:
		}
	}
}

// drain nacks the messages that no round has taken. If it is to await the others, it waits until
// all started rounds are committed and settled.
func (l *loop) drain(ctx context.Context, awaits bool) error {
	l.calls.ask(ctx, func() {
		all := l.table.drain()
		for len(l.in) > 0 {
			l.arrive(<-l.in)
		}
		l.giveUp(all)
	})
	if !awaits {
		return nil
	}
	select {
	case <-l.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shutdown timeout exceeded: NATS redelivers the messages of rounds that were not "+
			"committed; a longer --shutdown-timeout gives them time to end: %w", context.Cause(ctx))
	}
}

// endDrain closes drained once no round, commit or read is left.
func (l *loop) endDrain() {
	if !l.table.draining || l.loader.inFlight > 0 || l.commits.busy() || l.noops.busy() || l.former.busy() ||
		l.table.has(ready, deciding) {
		return
	}
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}
