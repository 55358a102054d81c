package orchestrator

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// ---- What rounds do.

// measureRound records a round that was decided, and notes what is needed for the rest of it. It is
// done by who decides.
func (o *Orchestrator) measureRound(d *decision, hydrated bool) {
	m := o.config.Metrics
	if m == nil {
		return
	}
	from := telemetry.FromMemory
	switch {
	case hydrated:
	case d.turn.Expected == round.RowVersion{}:
		from = telemetry.FromNothing
	default:
		from = telemetry.FromHistory
	}
	x := d.times
	name := d.turn.Row.Name
	if name == "" { // it writes nothing
		name = d.entry.known.name
	}
	m.Decided(name, &d.turn, from, x.decided.Sub(x.arrived), x.undecided.Sub(x.decided))
	for _, i := range d.entry.taken {
		if _, isStart := i.message.Content.(*events.Start); isStart && i.delivery.Scheduled {
			if d.repeated == nil {
				d.repeated = make(map[string]bool, 1)
			}
			d.repeated[i.message.ID] = true
		}
	}
}

// measureCommit records an attempt to commit, and what the turns that were taken have changed.
func (o *Orchestrator) measureCommit(x *committed) {
	m := o.config.Metrics
	if m == nil {
		return
	}
	o.asides.Go(func() { // the next commit does not wait for it
		outcome, written := "stored", 0
		if x.err != nil {
			outcome = history.ClassOf(x.err).String()
		}
		for _, d := range x.decisions {
			written += d.events
		}
		m.Commit(outcome, len(x.decisions), written)
		if x.err != nil {
			return
		}
		verdicts := make(map[history.CommitStatus]int, 1)
		for _, o := range x.result.Outcomes {
			verdicts[o.Status]++
		}
		for verdict, n := range verdicts {
			m.CommitStatus(verdict.String(), n)
		}
		for i, d := range x.decisions {
			verdict := x.result.Outcomes[i].Status
			if verdict != history.Committed {
				continue
			}
			m.Phase(telemetry.PhaseBatch, x.begun.Sub(d.times.undecided))
			m.Phase(telemetry.PhaseCommit, x.at.Sub(x.begun))
			m.Phase(telemetry.PhasePublish, x.published.Sub(x.at))
			m.Appended(d.events)
			m.Turn(&d.turn, func(message string) bool { return d.repeated[message] })
		}
	})
}

// measureSettled records that all messages of a round are settled.
func (o *Orchestrator) measureSettled(d *decision) {
	m := o.config.Metrics
	if m == nil {
		return
	}
	for _, limit := range d.turn.Near {
		m.NearLimit(d.turn.Row.Name, limit)
	}
	now := time.Now()
	if !d.published.IsZero() {
		m.Phase(telemetry.PhaseAck, now.Sub(d.published))
	}
	m.Phase(telemetry.PhaseTotal, now.Sub(d.times.arrived))
}

// measureLoaded records what a read has brought.
func (o *Orchestrator) measureLoaded(x *loaded) {
	m := o.config.Metrics
	if m == nil {
		return
	}
	if x.err != nil {
		m.Loaded("failed", len(x.entries))
		return
	}
	found, unreadable := 0, 0
	for _, k := range x.known {
		switch {
		case k.Unreadable != nil:
			unreadable++
		case k.Row.Execution > 0:
			found++
		}
	}
	m.Loaded("found", found)
	m.Loaded("unreadable", unreadable)
	m.Loaded("new", len(x.known)-found-unreadable)
}

// ---- What is in memory.

// holds is what the loop has in memory.
type holds struct {
	entries, hydrated, messages   int
	weight, bytes                 int64
	loading, deciding, committing int
}

// lookAtSelf notes what is in memory.
func (l *loop) lookAtSelf() {
	if l.o.config.Metrics == nil {
		return
	}
	h := l.count()
	l.holds.Store(&h)
}

// count counts what is in memory.
func (l *loop) count() holds {
	h := holds{entries: len(l.entries), hydrated: l.alive, messages: len(l.held), weight: l.weight, bytes: l.bytes}
	for _, e := range l.entries {
		switch e.stage {
		case queued, loading:
			h.loading++
		case ready, deciding:
			h.deciding++
		case committing, checking:
			h.committing++
		}
	}
	return h
}

// ---- What waits elsewhere.

// lookout looks now and then what waits in the broker and in the database, so that whoever reads
// metrics does not have to wait for them.
type lookout struct {
	o    *Orchestrator
	seen atomic.Pointer[sight]
}

// sight is what was seen.
type sight struct {
	at         time.Time
	partitions map[int]broker.Backlog
	// The rest is about the whole system, and seen by one orchestrator only.
	queues                 map[broker.Queue]broker.Backlog
	promises               int
	oldest                 time.Time // promise, zero if there is none
	halted                 int64
	hasPromises, hasHalted bool
}

const (
	// lookFor bounds one look. What is not seen by then is not told.
	lookFor = 10 * time.Second
	// lookAgain is when the next look follows while there is nothing to look at.
	lookAgain = 500 * time.Millisecond
	// maxCounted is where counting ends.
	maxCounted = 10_000
	// tellFor is for how many looks something is told that could not be seen again.
	tellFor = 4
)

// run looks until the context ends.
func (k *lookout) run(ctx context.Context) {
	if k.o.config.Metrics == nil {
		return
	}
	defer k.o.config.Metrics.Watch(k.tell)()
	for {
		wait := k.o.config.MeasureEvery
		if len(k.o.Owned()) == 0 {
			wait = min(wait, lookAgain) // it has just begun
		}
		k.look(ctx)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// look sees what waits. What is one number for the whole system is looked at by the owner of the
// first partition, or every orchestrator would tell the same.
func (k *lookout) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	s := &sight{at: time.Now(), partitions: make(map[int]broker.Backlog), queues: make(map[broker.Queue]broker.Backlog)}
	owned := k.o.Owned()
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, lookingAtOnce)
	each := func(look func()) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			look()
		})
	}
	for _, p := range owned {
		each(func() {
			if b, err := k.o.broker.Backlog(ctx, p); err == nil {
				mu.Lock()
				s.partitions[p] = b
				mu.Unlock()
			}
		})
	}
	if len(owned) > 0 && owned[0] == 0 {
		queues, err := k.o.broker.Queues(ctx)
		if err != nil {
			k.o.log.Debug("which queues of work there are could not be seen", "error", err)
		}
		for _, q := range queues[:min(len(queues), maxQueuesShown)] {
			each(func() {
				if b, err := k.o.broker.WorkBacklog(ctx, q); err == nil {
					mu.Lock()
					s.queues[q] = b
					mu.Unlock()
				}
			})
		}
		each(func() { k.lookAtStore(ctx, s) })
	}
	all.Wait()
	if ctx.Err() == nil || k.seen.Load() == nil {
		k.seen.Store(s)
	}
}

// lookAtStore sees how much is promised, and how many instances are halted.
func (k *lookout) lookAtStore(ctx context.Context, s *sight) {
	var err error
	if s.promises, err = k.o.store.CountPromises(ctx, maxCounted); err == nil {
		var old []history.Promise
		if old, err = k.o.store.OldPromises(ctx, time.Now(), 1); err == nil {
			if s.hasPromises = true; len(old) > 0 {
				s.oldest = old[0].Key.Made()
			}
		}
	}
	if err != nil {
		k.o.log.Debug("what is promised could not be counted", "error", err)
	}
	if s.halted, err = k.o.store.Count(ctx, history.Filter{Statuses: []round.Status{round.Halted}},
		maxCounted); err != nil {
		k.o.log.Debug("halted instances could not be counted", "error", err)
	}
	s.hasHalted = err == nil
}

// tell tells what was seen, and how this orchestrator stands.
func (k *lookout) tell(tell telemetry.Tell) {
	o := k.o
	tell(telemetry.MetricPartitions, float64(len(o.Owned())))
	tell(telemetry.MetricMembers, float64(len(o.own.members.Members())))
	if h := o.loop.holds.Load(); h != nil {
		tell(telemetry.MetricInstancesActive, float64(h.entries))
		tell(telemetry.MetricInstancesHydrated, float64(h.hydrated))
		tell(telemetry.MetricInstancesMemory, float64(h.weight))
		tell(telemetry.MetricInstancesBusy, float64(h.loading), "loading")
		tell(telemetry.MetricInstancesBusy, float64(h.deciding), "deciding")
		tell(telemetry.MetricInstancesBusy, float64(h.committing), "committing")
		tell(telemetry.MetricMessagesHeld, float64(h.messages))
		tell(telemetry.MetricMessagesMemory, float64(h.bytes))
	}
	tell(telemetry.MetricInstancesLimit, float64(o.config.MaxInstances))
	tell(telemetry.MetricInstancesMost, float64(o.config.MaxInstanceBytes))
	tell(telemetry.MetricMessagesLimit, float64(o.config.MaxMessages))
	tell(telemetry.MetricMessagesMost, float64(o.config.MaxMessageBytes))
	unpublished, since := o.publisher.Waiting()
	tell(telemetry.MetricOutboxUnpublished, float64(unpublished))
	tell(telemetry.MetricOutboxUnpublishedAge, since.Seconds())
	o.steps.mu.Lock()
	steps := len(o.steps.running)
	o.steps.mu.Unlock()
	tell(telemetry.MetricStepsRunning, float64(steps))
	k.tellStuck(tell)
	if s := k.seen.Load(); s != nil && time.Since(s.at) < tellFor*o.config.MeasureEvery+lookFor {
		k.tellSeen(tell, s)
	}
}

func (k *lookout) tellStuck(tell telemetry.Tell) {
	k.o.deciders.mu.Lock()
	lost := k.o.deciders.lost
	k.o.deciders.mu.Unlock()
	tell(telemetry.MetricInstancesStuck, float64(lost), "code")
	unknown := map[round.Reason]int{round.NotKnownHere: 0, round.NewerEngine: 0}
	for _, u := range k.o.Unknown() {
		unknown[u.Reason]++
	}
	for reason, n := range unknown {
		tell(telemetry.MetricInstancesStuck, float64(n), string(reason))
	}
}

func (k *lookout) tellSeen(tell telemetry.Tell, s *sight) {
	m := k.o.config.Metrics
	for p, b := range s.partitions {
		tell(telemetry.MetricPartitionWait, float64(b.Waiting), strconv.Itoa(p))
		tell(telemetry.MetricPartitionHeld, float64(b.Held), strconv.Itoa(p))
	}
	queues := make(map[broker.Queue]broker.Backlog) // those that have no label of their own share one
	for q, b := range s.queues {
		name := broker.Queue{Activity: m.Activity(q.Activity), Tag: m.Tag(q.Tag)}
		sum := queues[name]
		queues[name] = broker.Backlog{Waiting: sum.Waiting + b.Waiting, Held: sum.Held + b.Held,
			Receivers: sum.Receivers + b.Receivers}
	}
	for q, b := range queues {
		tell(telemetry.MetricWorkWaiting, float64(b.Waiting), q.Activity, q.Tag)
		tell(telemetry.MetricWorkHeld, float64(b.Held), q.Activity, q.Tag)
		tell(telemetry.MetricWorkReceivers, float64(b.Receivers), q.Activity, q.Tag)
	}
	if s.hasPromises {
		age := time.Duration(0)
		if !s.oldest.IsZero() {
			age = max(s.at.Sub(s.oldest), 0)
		}
		tell(telemetry.MetricOutboxPromises, float64(s.promises))
		tell(telemetry.MetricOutboxAge, age.Seconds())
	}
	if s.hasHalted {
		tell(telemetry.MetricInstancesStuck, float64(s.halted), "halted")
	}
}
