package orchestrator

import (
	"container/list"
	"log/slog"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// entry is an instance that this process knows of. Everything in it belongs to the loop, except for
// live while the stage is deciding.
type entry struct {
	id        string
	partition int
	foreign   bool // the owner of its partition forwards its messages
	stuck     bool // its code does not return
	refused   bool // the broker refuses a message of its last turn because of a setting
	behind    bool // the result of a step was dropped, so that live waits for it for ever
	stage     stage
	live      *round.Instance // nil: to be loaded
	fresh     bool            // live was loaded for the next round, so it is as the store has it
	known     known           // of its row, as it was loaded or committed last
	waiting   []*item         // in their order
	taken     []*item         // of the current round
	conflicts int             // in a row
	weight    int64           // about how much memory live takes
	unread    int64           // the size of a history that had no room when it was to be read
	place     *list.Element   // in instances.parked; nil: it must not be evicted
	reading   *formerRead     // of former executions, until it is done; nil: there is none
	former    *round.Former   // the receipts of former executions; nil if none were read
	aside     []*item         // messages that wait for the watermark, in their order
	barred    bool            // one of them was in a round already: no other message is taken before it
	watermark time.Time       // all messages are known that the broker stored before
	awaits    time.Time       // the watermark that the broker was asked for last; zero: none
	asked     uint64          // the first question for one that still counts; 0: there is none
}

// logger returns the logger for messages about an instance.
func (e *entry) logger(log *slog.Logger) *slog.Logger {
	return telemetry.LogOf(log, e.id, e.known.row())
}

// putBack puts the messages of a round that did not happen before those that wait.
func (e *entry) putBack(items []*item) {
	e.waiting = append(slices.Clone(items), e.waiting...)
}

// startsAnew reports whether the instance most likely does not exist yet, so that a read would be
// in vain. If it does exist, the store refuses the commit.
func (e *entry) startsAnew() bool {
	i := e.waiting[0]
	return isStart(i) && e.conflicts == 0 && i.delivery.NumDelivered == 1 && !i.quarantined
}

// isStart reports whether a message starts an instance.
func isStart(i *item) bool {
	_, ok := i.message.Content.(*events.Start)
	return ok
}

// partStarts removes the start that began a turn from the messages of a round, with its duplicates.
// Another start is for another incarnation, which the store has not judged.
func partStarts(taken []*item, start string) (those, others []*item) {
	for _, i := range taken {
		if isStart(i) && i.message.ID == start {
			those = append(those, i)
		} else {
			others = append(others, i)
		}
	}
	return those, others
}

// takeMessages takes the messages of the next round, up to a number. A quarantined message is
// alone.
func (e *entry) takeMessages(most int) {
	n := 0
	for n < len(e.waiting) && n < most && !e.waiting[n].blocked && (n == 0 || !e.waiting[n].quarantined) {
		n++
		if e.waiting[0].quarantined {
			break
		}
	}
	e.taken = append([]*item(nil), e.waiting[:n]...)
	e.waiting = slices.Delete(e.waiting, 0, n)
}

// knownUntil is the watermark of a round that takes no message of those that wait: the moment
// before which the broker stored none of them, and none that is still to come.
func (e *entry) knownUntil() time.Time {
	until := e.watermark
	if until.IsZero() {
		until = time.Unix(0, 0) // the zero time would stand for no watermark
	}
	// The messages are sorted by the moments of all of them: see inOrder.
	all := append(slices.Clone(e.taken), e.waiting...)
	for _, at := range moments(all)[len(e.taken):] {
		if !at.IsZero() && at.Before(until) {
			until = at
		}
	}
	return until
}

// starts says which starts are known to the next round.
func (e *entry) starts() round.Starts {
	s := round.Starts{Known: e.watermark}
	if s.Known.IsZero() {
		s.Known = time.Unix(0, 0)
	}
	for _, items := range [][]*item{e.taken, e.waiting} {
		for _, i := range items {
			_, is := i.message.Content.(*events.Start)
			s.Waiting = s.Waiting || is || i.startWaits
		}
	}
	return s
}

// firstPlace is the sequence of the oldest message that waits; 0 if none does.
func (e *entry) firstPlace() uint64 {
	if len(e.waiting) == 0 {
		return 0
	}
	return e.waiting[0].delivery.Sequence
}

// known has the fields of a row that the loop needs outside rounds. The live instance has the whole
// row, and there are many entries.
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

// row returns a row with these fields.
func (k *known) row() round.Row {
	return round.Row{
		Incarnation: k.incarnation, Name: k.name, Version: k.version, Trace: k.trace, StartMessage: k.startMessage,
		Status:    k.status,
		Execution: k.execution, HistoryBytes: k.historyBytes, Engine: k.engine,
	}
}

// instanceLimits bound the instances in memory.
type instanceLimits struct {
	most         int
	mostBytes    int64
	none         bool          // no instance without messages stays in memory
	runawayAfter time.Duration // when deferred code of an evicted instance is reported
}

// instances is the table of the instances in memory. It keeps instances without messages while
// there is room, and evicts those that were used the longest time ago. The goroutine of the loop
// owns it.
type instances struct {
	limits  instanceLimits
	round   *round.Config
	steps   stepRunner
	wake    func(instance string) // where the instance goes on
	metrics *telemetry.RoundMetrics
	log     *slog.Logger

	entries  map[string]*entry
	owned    map[int]bool         // partitions
	draining bool                 // the service ends, so that it keeps no instance
	parked   *list.List           // entries that may be evicted, the one used last in front
	own      map[string]ownEvents // what this process has recorded, if each round replays it
	alive    int                  // entries with a live instance
	weight   int64                // about how much memory those take
	late     time.Time            // when deferred code last took longer than unwindFor
}

func newInstances(limits instanceLimits, round *round.Config, steps stepRunner, wake func(instance string),
	metrics *telemetry.RoundMetrics, log *slog.Logger) *instances {
	return &instances{limits: limits, round: round, steps: steps, wake: wake, metrics: metrics, log: log,
		entries: make(map[string]*entry), owned: make(map[int]bool), parked: list.New(),
		own: make(map[string]ownEvents)}
}

// obtain returns the entry of an instance, and makes it if it is missing.
func (t *instances) obtain(id string) *entry {
	e := t.entries[id]
	if e == nil {
		e = &entry{id: id}
		t.entries[id] = e
	}
	return e
}

// keeps reports whether the instance may take messages here.
func (t *instances) keeps(e *entry) bool {
	return (e.foreign || t.owned[e.partition]) && !t.draining
}

// firstBlocked returns the quarantined message that the instance of one waits for first: no later
// message is taken before it.
func (t *instances) firstBlocked(i *item) *item {
	e := t.entries[i.message.Instance]
	if e == nil {
		return i
	}
	first, rest := e.waiting, e.aside
	if e.barred { // as the watermark puts them
		first, rest = append(slices.Clone(e.aside), e.waiting...), nil
		inOrder(first)
	}
	for _, items := range [][]*item{first, rest} {
		if n := slices.IndexFunc(items, func(i *item) bool { return i.blocked }); n >= 0 {
			return items[n]
		}
	}
	return i
}

// setOwned sets the partitions of this orchestrator, and returns the instances of those that it
// owned before and does not own any more.
func (t *instances) setOwned(owned map[int]bool) (lost []*entry) {
	before := t.owned
	t.owned = owned
	for _, e := range t.entries {
		if before[e.partition] && !owned[e.partition] && !e.foreign {
			lost = append(lost, e)
		}
	}
	return lost
}

// drain has the table keep no instance from now on, and returns all of them.
func (t *instances) drain() []*entry {
	t.draining = true
	all := make([]*entry, 0, len(t.entries))
	for _, e := range t.entries {
		all = append(all, e)
	}
	return all
}

// has reports whether an instance is in one of the stages.
func (t *instances) has(stages ...stage) bool {
	for _, e := range t.entries {
		if slices.Contains(stages, e.stage) {
			return true
		}
	}
	return false
}

// ownEvents are the events of an execution that this process has recorded, and so with the code
// that it still has.
type ownEvents struct {
	incarnation string
	execution   int64
	first, last int64
}

// recorded notes which events a committed turn has recorded. Only with limits.none, since it takes
// memory for each instance until that ends.
func (t *instances) recorded(turn *round.Turn) {
	n := len(turn.Executions)
	if !t.limits.none || n == 0 {
		return
	}
	if turn.Row.Status.Ended() {
		delete(t.own, turn.Instance)
		return
	}
	before := turn.Expected
	o, known := t.own[turn.Instance]
	if !known || n > 1 || o != (ownEvents{before.Incarnation, before.Execution, o.first, before.LastEvent}) {
		o.first = turn.Executions[n-1].Events[0].ID
	}
	o.incarnation, o.execution, o.last = turn.Row.Incarnation, turn.Row.Execution, turn.Row.LastEvent
	t.own[turn.Instance] = o
}

// firstOwn is [round.Known.Own] of a loaded instance: zero if another process has recorded its last
// event.
func (t *instances) firstOwn(k *round.Known) int64 {
	o, known := t.own[k.Instance]
	if !known || o != (ownEvents{k.Row.Incarnation, k.Row.Execution, o.first, k.Row.LastEvent}) {
		return 0
	}
	return o.first
}

// hydrate gives an entry its instance, as it was loaded.
func (t *instances) hydrate(e *entry, k round.Known) {
	k.Own = t.firstOwn(&k)
	e.live, e.known, e.fresh = round.New(t.round, k), knownOf(&k.Row), true
	t.alive++
	t.weigh(e)
}

// weigh notes about how much memory an instance takes: its coroutines, and the part of its history
// that it has to remember.
func (t *instances) weigh(e *entry) {
	t.weight -= e.weight
	e.weight = 0
	if e.live != nil {
		e.weight = 8<<10 + e.known.historyBytes/4
	}
	t.weight += e.weight
}

// park keeps an instance without messages in memory while there is room, for its next messages.
func (t *instances) park(e *entry) {
	if e.live == nil || !e.live.Hydrated() || !t.keeps(e) {
		t.forget(e)
		return
	}
	switch {
	case t.steps.Has(e.id): // it continues soon
		t.unpark(e)
	case t.limits.none:
		t.forget(e)
		return
	case e.place == nil:
		e.place = t.parked.PushFront(e)
	default:
		t.parked.MoveToFront(e.place)
	}
	for (t.alive > t.limits.most || t.weight > t.limits.mostBytes) && t.parked.Len() > 1 {
		t.metrics.Evicted()
		t.forget(t.parked.Back().Value.(*entry))
	}
}

// unpark keeps an instance with messages from being evicted.
func (t *instances) unpark(e *entry) {
	if e.place != nil {
		t.parked.Remove(e.place)
		e.place = nil
	}
}

// evict removes the code of an instance from memory; its messages stay.
func (t *instances) evict(e *entry) {
	if e.live != nil {
		t.unwind(e)
		e.live = nil
		t.alive--
		t.weigh(e)
	}
}

// unwindFor is how long the loop, or a decider that ends, waits for the coroutines of an evicted
// instance: their deferred calls are code of the author.
const unwindFor = 10 * time.Millisecond

// unwindAgain is how long the loop waits for no other instance after one whose deferred calls
// block: many may be evicted at once, and all other instances would wait for each of them.
const unwindAgain = 50 * unwindFor

// unwind ends the coroutines of an instance. If a deferred call blocks, the loop goes on without
// it.
func (t *instances) unwind(e *entry) {
	if !e.live.Hydrated() {
		return
	}
	most := unwindFor
	if time.Since(t.late) < unwindAgain {
		most = 0
	}
	done, inTime := evict(e.live, most)
	if inTime {
		return
	}
	if most > 0 {
		t.late = time.Now()
	}
	log := e.logger(t.log)
	time.AfterFunc(t.limits.runawayAfter, func() {
		select {
		case <-done:
		default:
			log.Error("deferred code of an instance does not return when the instance is evicted: it must not block; " +
				"going on without it")
		}
	})
}

// evict ends the coroutines of an instance, and waits for so long for their end, which closes done.
func evict(live *round.Instance, most time.Duration) (done <-chan struct{}, inTime bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		live.Evict()
	}()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-ended:
		return ended, true
	case <-late.C: // it takes longer, or the machine has much else to do
		return ended, false
	}
}

// forget removes an instance without waiting messages from memory.
func (t *instances) forget(e *entry) {
	t.unpark(e)
	t.evict(e)
	if t.steps.Has(e.id) { // the instance moves: the new owner of its partition runs them
		t.steps.Drop(e.id)
		t.wake(e.id)
	}
	delete(t.entries, e.id)
}

// evictAll ends the coroutines of all instances but those that deciders have: see
// [deciders.evictRest].
func (t *instances) evictAll() {
	for _, e := range t.entries {
		if e.stage != deciding {
			t.evict(e)
		}
	}
}

// count counts the instances in memory.
func (t *instances) count() report.Memory {
	m := report.Memory{Instances: len(t.entries), Hydrated: t.alive, InstanceBytes: t.weight}
	for _, e := range t.entries {
		switch e.stage {
		case queued, loading:
			m.Loading++
		case ready, deciding:
			m.Deciding++
		case committing, checking:
			m.Committing++
		case idle, pausing, asking, stages:
		}
	}
	return m
}
