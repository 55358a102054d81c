package orchestrator

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// item is a message for an instance, from when it came until it is settled.
type item struct {
	message events.Message
	// delivery is how it came. Its Hold is nil if this process says it to itself.
	delivery broker.Delivery
	attempts int
	handed   bool // by another orchestrator, which cannot run it
	suspect  bool // it may kill the process: it is decided alone
	blocked  bool // a suspect whose turn has not come
	counted  bool // the attempt is counted against it
	doubtful bool // nobody knows whether it was taken before
	void     bool // the broker has lost it, and counts from one again: settling it would settle another one
	arrived  time.Time
	extended time.Time
	starts   <-chan struct{} // of a start that takes room from others: where it came from
}

// free makes room for another start.
func (i *item) free() {
	if i.starts != nil {
		<-i.starts
		i.starts = nil
	}
}

// inside reports whether the message never was in the broker.
func (i *item) inside() bool { return i.delivery.Hold == nil }

// hold is how to settle it.
func (i *item) hold() broker.Hold {
	if i.void {
		return noHold{}
	}
	return i.delivery.Hold
}

// settling is the delivery with how to settle it.
func (i *item) settling() broker.Delivery {
	d := i.delivery
	d.Hold = i.hold()
	return d
}

// noHold settles nothing.
type noHold struct{}

func (noHold) Ack()               {}
func (noHold) Nak(time.Duration)  {}
func (noHold) InProgress()        {}
func (noHold) AckSubject() string { return "" }

// size is about how much memory it takes.
func (i *item) size() int64 { return int64(len(i.delivery.Body)) + 512 }

// stage is where an instance is just now.
type stage uint8

const (
	idle stage = iota
	queued
	loading
	ready
	deciding
	committing
	checking
	pausing
	asking
)

// entry is an instance that this process knows of. Everything in it belongs to the loop, except for
// live while the stage is deciding.
type entry struct {
	id        string
	partition int
	foreign   bool // its messages are handed over by the owner of its partition
	stuck     bool // its code does not come back
	stage     stage
	live      *round.Instance // nil: to be loaded
	fresh     bool            // live was loaded for the next round, so it is as the store has it
	known     known           // of its row, as it was loaded or committed last
	waiting   []*item         // in their order
	taken     []*item         // of the round that is under way
	conflicts int             // in a row
	weight    int64           // about how much memory live takes
	place     *list.Element   // among those that may be forgotten
	question  round.Question  // what is asked, while the stage is asking, and
	former    *round.Former   // what was asked before; nil if nothing was
}

// known is what is needed of a row beside rounds. The whole row is in the live instance, and there
// are many entries.
type known struct {
	incarnation, name, version, trace, startMessage string
	status                                          round.Status
	execution, historyBytes                         int64
	engine                                          int
}

func knownOf(r *round.Row) known {
	return known{r.Incarnation, r.Name, r.Version, r.Trace, r.StartMessage, r.Status, r.Execution,
		r.HistoryBytes, r.Engine}
}

// row is a row with that.
func (k *known) row() round.Row {
	return round.Row{
		Incarnation: k.incarnation, Name: k.name, Version: k.version, Trace: k.trace, StartMessage: k.startMessage,
		Status:    k.status,
		Execution: k.execution, HistoryBytes: k.historyBytes, Engine: k.engine,
	}
}

// loop is the one that knows of everything. All its fields belong to its goroutine, except for
// those at the end.
type loop struct {
	o *Orchestrator

	entries map[string]*entry
	held    map[uint64]*item // what came from the broker, by place
	bytes   int64            // of what is held
	owned   map[int]bool     // partitions
	resting *list.List       // entries that may be forgotten, the one used last in front
	alive   int              // entries with a live instance
	weight  int64            // about how much memory those take

	toLoad   []*entry
	loads    int // under way
	loadMost int // how many instances one of them reads at most, after one that failed; 0: as many as may be
	toDecide []*entry
	toCommit []*decision
	commits  int // under way
	slow     slowness
	lull     lull
	toCheck  []*decision
	checks   int
	toAsk    []*entry
	asks     int
	draining bool
	drained  chan struct{}
	ended    chan struct{} // closed when it turns no more

	// How the others tell the loop something.
	starts    chan struct{} // has one for each start that is held
	in        chan *item    // from the broker; not read while too much is in memory
	own       chan func(*loop)
	decided   chan *decision
	loaded    chan *loaded
	committed chan *committed
	checked   chan *checked
	answered  chan *formerRead

	turned      atomic.Int64 // when the loop turned last, in Unix nanoseconds
	commitFault atomic.Pointer[commitFault]
	holds       atomic.Pointer[holds] // what is in memory, for metrics
}

// commitFault is why nothing can be committed, and since when.
type commitFault struct {
	since time.Time
	err   error
}

func newLoop(o *Orchestrator) *loop {
	return &loop{
		o: o, entries: make(map[string]*entry), held: make(map[uint64]*item), owned: make(map[int]bool),
		resting: list.New(), drained: make(chan struct{}), ended: make(chan struct{}),
		starts: make(chan struct{}, maxStarts), in: make(chan *item, 1024), own: make(chan func(*loop), 1024),
		decided: make(chan *decision, 64), loaded: make(chan *loaded, maxLoads),
		committed: make(chan *committed, maxCommits), checked: make(chan *checked, 1),
		answered: make(chan *formerRead, maxFormerReads),
	}
}

// run turns until the context ends. Each time, something has come or is done; then everything that
// can begin begins.
func (l *loop) run(ctx context.Context) {
	tick := time.NewTicker(min(l.o.broker.InboxWait()/4, time.Second))
	defer tick.Stop()
	defer l.forgetAll()
	defer close(l.ended)
	l.lookAtSelf()
	for {
		l.turned.Store(time.Now().UnixNano())
		in := l.in
		if l.full() || l.draining {
			in = nil
		}
		l.giveJobs()
		var jobs chan<- *entry
		var next *entry
		if len(l.toDecide) > 0 {
			jobs, next = l.o.deciders.jobs, l.toDecide[0]
		}
		select {
		case <-ctx.Done():
			return
		case i := <-in:
			l.arrive(i)
			l.arriveMore()
		case f := <-l.own:
			f(l)
		case jobs <- next:
			l.gaveJob()
		case d := <-l.decided:
			l.takeDecision(d)
			l.takeMoreDecisions()
		case x := <-l.loaded:
			l.takeLoaded(x)
		case x := <-l.committed:
			l.takeCommitted(ctx, x)
		case x := <-l.checked:
			l.takeChecked(x)
		case x := <-l.answered:
			l.takeFormer(x)
		case <-tick.C:
			l.touch()
			l.lookAtSelf()
		}
		l.startLoads(ctx)
		l.startCommit(ctx)
		l.startCheck(ctx)
		l.startAsking(ctx)
		l.endDrain()
	}
}

// maxStarts bounds the starts that are in memory, which is how many are before what instances that
// run wait for. It is enough for full batches.
const maxStarts = 256

// full reports whether enough is in memory.
func (l *loop) full() bool {
	return len(l.held) >= l.o.config.MaxMessages || l.bytes >= l.o.config.MaxMessageBytes
}

// arriveMore takes what has come already, so that it shares batches.
func (l *loop) arriveMore() {
	for range cap(l.in) {
		if l.full() {
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

// giveJobs hands out what is to be decided, as long as somebody takes it at once. That is much
// cheaper than to wait for all things with each of them, and so is takeMoreDecisions.
func (l *loop) giveJobs() {
	for len(l.toDecide) > 0 {
		select {
		case l.o.deciders.jobs <- l.toDecide[0]:
			l.gaveJob()
		default:
			return
		}
	}
}

func (l *loop) gaveJob() {
	l.toDecide[0].stage = deciding
	l.toDecide[0] = nil
	l.toDecide = l.toDecide[1:]
}

// takeMoreDecisions takes what was decided already, so that it shares batches.
func (l *loop) takeMoreDecisions() {
	for {
		select {
		case d := <-l.decided:
			l.takeDecision(d)
		default:
			return
		}
	}
}

// tell has the loop do something. It gives up when the context or the loop ends.
func (l *loop) tell(ctx context.Context, f func(*loop)) {
	select {
	case l.own <- f:
	case <-l.ended:
	case <-ctx.Done():
	}
}

// ask has the loop do something and waits until it has. It reports false when the context or the
// loop has ended first.
func (l *loop) ask(ctx context.Context, f func(*loop)) bool {
	done := make(chan struct{})
	l.tell(ctx, func(l *loop) {
		f(l)
		close(done)
	})
	select {
	case <-done:
		return true
	case <-l.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

// arrive takes a message from the broker.
func (l *loop) arrive(i *item) {
	if before := l.held[i.delivery.Sequence]; before != nil {
		if before.delivery.StoredAt.Equal(i.delivery.StoredAt) {
			i.free()
			return // it is here already: how that one is settled counts
		}
		l.bytes -= before.size()
		before.void = true
		delete(l.held, i.delivery.Sequence)
	}
	if l.draining || !i.handed && !l.owned[i.delivery.Partition] {
		i.free()
		i.delivery.Hold.Nak(0)
		return
	}
	l.held[i.delivery.Sequence] = i
	l.bytes += i.size()
	e := l.entries[i.message.Instance]
	if e == nil {
		e = &entry{id: i.message.Instance}
		l.entries[e.id] = e
	}
	e.partition, e.foreign = i.delivery.Partition, i.handed
	e.waiting = append(e.waiting, i)
	if e.stuck {
		l.returnWaiting(e, l.o.config.StuckAfter)
	}
	l.advance(e)
}

// setStuck notes that the code of an instance does not come back. What waits for it must not take
// the room of others, nor hold up the other suspects.
func (l *loop) setStuck(e *entry) {
	if e.stage != deciding {
		return // it has come back after all
	}
	e.stuck = true
	for _, i := range e.taken {
		l.o.suspects.letGo(i)
	}
	l.returnWaiting(e, l.o.config.StuckAfter)
}

// returnWaiting gives back what waits for an instance, to come again later. What this process has
// said to it itself stays only if its code may come back.
func (l *loop) returnWaiting(e *entry, after time.Duration) {
	var inside []*item
	for _, i := range e.waiting {
		if i.inside() {
			inside = append(inside, i)
			continue
		}
		l.settled(i)
		l.o.returned.note(i.delivery, after)
		i.hold().Nak(after)
	}
	e.waiting = nil
	switch {
	case e.stuck && !l.draining:
		e.waiting = inside
	case len(inside) > 0: // the result of a step, say, is lost
		l.o.wakeElsewhere(e.id)
	}
}

// arriveFromStep takes the result of an inline step.
func (l *loop) arriveFromStep(i *item) {
	if e := l.entries[i.message.Instance]; e != nil && !l.draining {
		e.waiting = append(e.waiting, i)
		l.advance(e)
		return
	}
	l.o.wakeElsewhere(i.message.Instance) // it moves
}

// advance does what is next for an instance that is idle.
func (l *loop) advance(e *entry) {
	if e.stage != idle {
		return
	}
	if !e.foreign && !l.owned[e.partition] || l.draining {
		l.giveBack(e)
	}
	switch {
	case len(e.waiting) == 0:
		l.rest(e)
	case e.waiting[0].blocked:
		l.unrest(e)
	case e.live == nil && l.startsAnew(e):
		l.unrest(e)
		l.enliven(e, round.Known{Instance: e.id})
		e.fresh = false // the commit will tell whether there was one
		l.makeReady(e)
	case e.live == nil:
		l.unrest(e)
		e.stage = queued
		l.toLoad = append(l.toLoad, e)
	default:
		l.unrest(e)
		l.makeReady(e)
	}
}

// startsAnew reports whether the instance most likely does not exist yet, so that looking would be
// in vain: if it does, the commit is refused.
func (l *loop) startsAnew(e *entry) bool {
	i := e.waiting[0]
	_, isStart := i.message.Content.(*events.Start)
	return isStart && e.conflicts == 0 && i.delivery.NumDelivered == 1 && !i.suspect
}

func (l *loop) enliven(e *entry, k round.Known) {
	l.o.teller.takeOver(k)
	e.live, e.known, e.fresh = round.New(&l.o.config.Round, k), knownOf(&k.Row), true
	l.alive++
	l.weigh(e)
}

// weigh notes about how much memory an instance takes: its coroutines, and what of its history it
// has to remember.
func (l *loop) weigh(e *entry) {
	l.weight -= e.weight
	e.weight = 0
	if e.live != nil {
		e.weight = 8<<10 + e.known.historyBytes/4
	}
	l.weight += e.weight
}

// makeReady hands an instance with its messages to those who decide. A suspect is alone.
func (l *loop) makeReady(e *entry) {
	n := 0
	for n < len(e.waiting) && n < l.o.config.MaxInbox && !e.waiting[n].blocked && (n == 0 || !e.waiting[n].suspect) {
		n++
		if e.waiting[0].suspect {
			break
		}
	}
	e.taken = append([]*item(nil), e.waiting[:n]...)
	e.waiting = slices.Delete(e.waiting, 0, n)
	e.stage = ready
	e.live.Remember(e.former)
	l.toDecide = append(l.toDecide, e)
}

// rest keeps an instance in memory as long as there is room, in case something comes for it.
func (l *loop) rest(e *entry) {
	if e.live == nil || !e.live.Hydrated() || !e.foreign && !l.owned[e.partition] || l.draining {
		l.forget(e)
		return
	}
	switch {
	case l.o.steps.has(e.id): // it will go on soon
		l.unrest(e)
	case e.place == nil:
		e.place = l.resting.PushFront(e)
	default:
		l.resting.MoveToFront(e.place)
	}
	for (l.alive > l.o.config.MaxInstances || l.weight > l.o.config.MaxInstanceBytes) && l.resting.Len() > 1 {
		l.o.config.Metrics.Evicted()
		l.forget(l.resting.Back().Value.(*entry))
	}
}

func (l *loop) unrest(e *entry) {
	if e.place != nil {
		l.resting.Remove(e.place)
		e.place = nil
	}
}

// giveBack gives back what waits for an instance, in its order.
func (l *loop) giveBack(e *entry) {
	l.returnWaiting(e, 0)
}

// settled notes that a message is no longer held.
func (l *loop) settled(i *item) {
	i.free()
	if !i.inside() && l.held[i.delivery.Sequence] == i {
		delete(l.held, i.delivery.Sequence)
		l.bytes -= i.size()
	}
	if i.suspect {
		l.o.suspects.settled(i)
	}
}

// putBack puts the messages of a round that did not happen before those that wait.
func (l *loop) putBack(e *entry, items []*item) {
	e.waiting = append(slices.Clone(items), e.waiting...)
}

// pause leaves an instance alone for a while.
func (l *loop) pause(e *entry, d time.Duration) {
	e.stage = pausing
	time.AfterFunc(d, func() {
		l.tell(l.o.lifetime, func(l *loop) {
			if e.stage == pausing {
				e.stage = idle
				l.advance(e)
			}
		})
	})
}

// touch tells the broker that the messages which have been here for a while are still here.
func (l *loop) touch() {
	now := time.Now()
	for _, i := range l.held {
		if now.Sub(i.extended) >= l.o.broker.InboxWait()/3 {
			i.extended = now
			i.delivery.Hold.InProgress()
		}
	}
}

// setOwned says which partitions are this orchestrator's. What waits in others goes back.
func (l *loop) setOwned(owned map[int]bool) {
	before := l.owned
	l.owned = owned
	var lost []*entry
	for _, e := range l.entries {
		if before[e.partition] && !owned[e.partition] && !e.foreign {
			lost = append(lost, e)
		}
	}
	l.giveUp(lost)
}

// giveUp gives back what waits for instances, oldest first over all of them, and forgets those that
// are idle.
func (l *loop) giveUp(lost []*entry) {
	slices.SortFunc(lost, func(a, b *entry) int { return cmp.Compare(firstPlace(a), firstPlace(b)) })
	for _, e := range lost {
		l.giveBack(e)
		switch e.stage {
		case idle:
			l.forget(e)
		case queued:
			l.toLoad = slices.DeleteFunc(l.toLoad, func(x *entry) bool { return x == e })
			e.stage = idle
			l.forget(e)
		}
	}
}

func firstPlace(e *entry) uint64 {
	if len(e.waiting) == 0 {
		return 0
	}
	return e.waiting[0].delivery.Sequence
}

// ---- The end.

// drain gives back what has not been begun, and waits until everything that was begun is committed
// and settled.
func (l *loop) drain(ctx context.Context) error {
	l.tell(ctx, func(l *loop) {
		l.draining = true
		for len(l.in) > 0 {
			l.arrive(<-l.in)
		}
		all := make([]*entry, 0, len(l.entries))
		for _, e := range l.entries {
			all = append(all, e)
		}
		l.giveUp(all)
	})
	select {
	case <-l.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the grace period is over; what was not committed comes again: %w", context.Cause(ctx))
	}
}

// endDrain notices the end.
func (l *loop) endDrain() {
	if !l.draining || l.loads+l.commits+l.checks+l.asks+l.slow.delayed > 0 ||
		len(l.toCommit)+len(l.toCheck)+len(l.toAsk) > 0 {
		return
	}
	for _, e := range l.entries {
		if e.stage == ready || e.stage == deciding {
			return
		}
	}
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}

// ---- How it is.

// liveWithin is how old the last turn of the loop may be.
const liveWithin = 15 * time.Second

func (l *loop) live() error {
	at := l.turned.Load()
	if age := time.Since(time.Unix(0, at)); at > 0 && age > liveWithin {
		return fmt.Errorf("the loop has not turned for %v", age.Round(time.Second))
	}
	return nil
}

// committing tells why nothing can be committed, if that has been so for a while.
func (l *loop) committing() error {
	if f := l.commitFault.Load(); f != nil && time.Since(f.since) > 5*time.Second {
		return fmt.Errorf("nothing can be committed since %s: %w", f.since.UTC().Format(time.RFC3339), f.err)
	}
	return nil
}
