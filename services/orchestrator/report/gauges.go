package report

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator/ownership"
)

// Memory counts the instances and messages that an orchestrator has in memory, and their bytes.
type Memory struct {
	Instances, Hydrated, Messages int
	InstanceBytes, MessageBytes   int64
	// Loading, Deciding and Committing count the instances in these stages.
	Loading, Deciding, Committing int
}

// Limits bound the memory.
type Limits struct {
	Instances, Messages         int
	InstanceBytes, MessageBytes int64
}

// Process tells the state of an orchestrator. Its functions may be called by any goroutine.
type Process struct {
	Limits Limits
	// Memory is as of a moment ago; nil before the first count.
	Memory func() *Memory
	// Unpublished counts the committed messages that are not published, the first since a time.
	Unpublished func() (messages int, since time.Duration)
	// Steps counts the inline steps, Stuck the goroutines whose code does not return.
	Steps, Stuck func() int
	// Clocks tells how far the clock of this machine is ahead of others, by their names.
	Clocks func() map[string]time.Duration
}

// Members tells what an orchestrator knows about the others, and owns.
type Members interface {
	Owned() []int
	Members() []broker.Member
	Layout() (partitions broker.Partitions, owners map[int]string, members []broker.Member)
	AnybodyKnows(name, version string) bool
	Unknown() []ownership.Unknown
}

// Backlogs reads the backlogs in the broker.
type Backlogs interface {
	Backlog(ctx context.Context, partition int) (broker.Backlog, error)
	ListTaskQueues(ctx context.Context) ([]broker.TaskQueueName, error)
	TaskBacklog(ctx context.Context, q broker.TaskQueueName) (broker.Backlog, error)
	DirectLoad() map[broker.TaskQueueName]float64
}

// Store counts what waits in the database.
type Store interface {
	CountOutbox(ctx context.Context, most int) (int, error)
	OldestOutbox(ctx context.Context) (time.Time, error)
	OldOutbox(ctx context.Context, before time.Time, limit int) ([]history.OutboxEntry, error)
	Count(ctx context.Context, filter history.Filter, most int64) (int64, error)
}

// Gauges reads the backlogs in the broker and the database at intervals, so that an export of
// metrics does not wait for them. Make it with its exported fields, and run it once.
type Gauges struct {
	Every    time.Duration // the interval
	Process  Process
	Members  Members
	Backlogs Backlogs
	Store    Store
	Metrics  *telemetry.Metrics // nil: none
	Logger   *slog.Logger

	seen     atomic.Pointer[sight]
	searched time.Time // when the whole outbox was last searched
}

// sight has the results of one look.
type sight struct {
	at         time.Time
	partitions map[int]broker.Backlog
	// The rest is about the whole system, and only one orchestrator reads it.
	queues               map[broker.TaskQueueName]broker.Backlog
	entries              int
	oldest               time.Time // entry, zero if there is none
	halted               int64
	hasOutbox, hasHalted bool
}

const (
	// lookFor bounds one look. Backlogs that were not read by then are not exported.
	lookFor = 10 * time.Second
	// lookAgain is the interval while the orchestrator owns no partition.
	lookAgain = 500 * time.Millisecond
	// maxCounted bounds the counts: more rows are not counted.
	maxCounted = 10_000
	// searchEvery is the interval at which the whole outbox is searched for entries that are older.
	searchEvery = time.Hour
	// exportFor is for how many intervals the last results are exported.
	exportFor = 4
)

// Run looks until the context ends.
func (k *Gauges) Run(ctx context.Context) {
	if k.Metrics == nil {
		return
	}
	defer k.Metrics.Watch(k.record)()
	for {
		wait := k.Every
		if len(k.Members.Owned()) == 0 {
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

// look reads the backlogs. Only the owner of the first partition reads the numbers of the whole
// system, or every orchestrator would export the same.
func (k *Gauges) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	s := &sight{at: time.Now(), partitions: make(map[int]broker.Backlog),
		queues: make(map[broker.TaskQueueName]broker.Backlog)}
	owned := k.Members.Owned()
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
			if b, err := k.Backlogs.Backlog(ctx, p); err == nil {
				mu.Lock()
				s.partitions[p] = b
				mu.Unlock()
			}
		})
	}
	if len(owned) > 0 && owned[0] == 0 {
		queues, err := k.Backlogs.ListTaskQueues(ctx)
		if err != nil {
			k.Logger.Debug("the task queues could not be seen", "error", err)
		}
		for _, q := range queues[:min(len(queues), maxQueuesShown)] {
			each(func() {
				if b, err := k.Backlogs.TaskBacklog(ctx, q); err == nil {
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

// lookAtStore counts the outbox entries, and how many instances are halted.
func (k *Gauges) lookAtStore(ctx context.Context, s *sight) {
	var err error
	if s.entries, err = k.Store.CountOutbox(ctx, maxCounted); err == nil {
		s.oldest, err = k.oldestEntry(ctx)
		s.hasOutbox = err == nil
	}
	if err != nil {
		k.Logger.Debug("outbox entries could not be counted", "error", err)
	}
	if s.halted, err = k.Store.Count(ctx, history.Filter{Statuses: []round.Status{round.Halted}},
		maxCounted); err != nil {
		k.Logger.Debug("halted instances could not be counted", "error", err)
	}
	s.hasHalted = err == nil
}

// oldestEntry tells when the oldest outbox entry was stored. An entry where sweeps no longer look
// would stay unnoticed, so from time to time oldestEntry searches the whole outbox. That may take
// long, so it repeats a search at once only while there is such an entry.
func (k *Gauges) oldestEntry(ctx context.Context) (time.Time, error) {
	oldest, err := k.Store.OldestOutbox(ctx)
	if err != nil || time.Since(k.searched) < searchEvery {
		return oldest, err
	}
	searching, cancel := context.WithTimeout(ctx, lookFor/2)
	defer cancel()
	now := time.Now()
	old, err := k.Store.OldOutbox(searching, now.Add(-searchEvery), 1)
	if err != nil {
		k.Logger.Debug("the whole outbox could not be searched", "error", err)
	} else if len(old) > 0 {
		if made := old[0].Key.Made(); oldest.IsZero() || made.Before(oldest) {
			return made, nil
		}
	}
	k.searched = now
	return oldest, nil
}

// tell exports the last results, and the state of this orchestrator.
func (k *Gauges) record(record telemetry.Record) {
	record(telemetry.MetricPartitions, float64(len(k.Members.Owned())))
	record(telemetry.MetricMembers, float64(len(k.Members.Members())))
	p := &k.Process
	if m := p.Memory(); m != nil {
		record(telemetry.MetricInstancesActive, float64(m.Instances))
		record(telemetry.MetricInstancesHydrated, float64(m.Hydrated))
		record(telemetry.MetricInstancesMemory, float64(m.InstanceBytes))
		record(telemetry.MetricInstancesBusy, float64(m.Loading), "loading")
		record(telemetry.MetricInstancesBusy, float64(m.Deciding), "deciding")
		record(telemetry.MetricInstancesBusy, float64(m.Committing), "committing")
		record(telemetry.MetricMessagesHeld, float64(m.Messages))
		record(telemetry.MetricMessagesMemory, float64(m.MessageBytes))
	}
	record(telemetry.MetricInstancesLimit, float64(p.Limits.Instances))
	record(telemetry.MetricInstancesMost, float64(p.Limits.InstanceBytes))
	record(telemetry.MetricMessagesLimit, float64(p.Limits.Messages))
	record(telemetry.MetricMessagesMost, float64(p.Limits.MessageBytes))
	unpublished, since := p.Unpublished()
	record(telemetry.MetricOutboxUnpublished, float64(unpublished))
	record(telemetry.MetricOutboxUnpublishedAge, since.Seconds())
	record(telemetry.MetricStepsRunning, float64(p.Steps()))
	for name, ahead := range p.Clocks() {
		record(telemetry.MetricClockAhead, ahead.Seconds(), name)
	}
	k.recordLoads(record)
	k.recordStuck(record)
	if s := k.seen.Load(); s != nil && time.Since(s.at) < exportFor*k.Every+lookFor {
		k.recordSeen(record, s)
	}
}

// recordLoads exports the tasks in direct delivery of this orchestrator.
func (k *Gauges) recordLoads(record telemetry.Record) {
	loads := make(map[broker.TaskQueueName]float64) // queues without a label of their own share one
	for q, n := range k.Backlogs.DirectLoad() {
		loads[broker.TaskQueueName{Activity: k.Metrics.Activity(q.Activity), Tag: k.Metrics.Tag(q.Tag)}] += n
	}
	for q, n := range loads {
		record(telemetry.MetricTaskDirect, n, q.Activity, q.Tag)
	}
}

func (k *Gauges) recordStuck(record telemetry.Record) {
	record(telemetry.MetricInstancesStuck, float64(k.Process.Stuck()), "code")
	unknown := map[round.Reason]int{round.NotKnownHere: 0, round.NewerEngine: 0}
	for _, u := range k.Members.Unknown() {
		unknown[u.Reason]++
	}
	for reason, n := range unknown {
		record(telemetry.MetricInstancesStuck, float64(n), string(reason))
	}
}

func (k *Gauges) recordSeen(record telemetry.Record, s *sight) {
	m := k.Metrics
	for p, b := range s.partitions {
		record(telemetry.MetricPartitionWait, float64(b.Waiting), strconv.Itoa(p))
		record(telemetry.MetricPartitionHeld, float64(b.Held), strconv.Itoa(p))
	}
	queues := make(map[broker.TaskQueueName]broker.Backlog) // queues without a label of their own share one
	for q, b := range s.queues {
		name := broker.TaskQueueName{Activity: m.Activity(q.Activity), Tag: m.Tag(q.Tag)}
		sum := queues[name]
		queues[name] = broker.Backlog{Waiting: sum.Waiting + b.Waiting, Held: sum.Held + b.Held,
			Receivers: sum.Receivers + b.Receivers}
	}
	for q, b := range queues {
		record(telemetry.MetricTaskWaiting, float64(b.Waiting), q.Activity, q.Tag)
		record(telemetry.MetricTaskHeld, float64(b.Held), q.Activity, q.Tag)
		record(telemetry.MetricTaskReceivers, float64(b.Receivers), q.Activity, q.Tag)
	}
	if s.hasOutbox {
		age := time.Duration(0)
		if !s.oldest.IsZero() {
			age = max(s.at.Sub(s.oldest), 0)
		}
		record(telemetry.MetricOutboxEntries, float64(s.entries))
		record(telemetry.MetricOutboxAge, age.Seconds())
	}
	if s.hasHalted {
		record(telemetry.MetricInstancesStuck, float64(s.halted), "halted")
	}
}
