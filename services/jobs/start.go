package jobserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
)

// StartBroker is what is needed of the broker to start instances.
type StartBroker interface {
	broker.Publisher
	// Prefix begins all subjects.
	Prefix() string
	// Connected tells whether there is a connection just now.
	Connected() error
}

// StarterConfig says how a [Starter] works. The zero value is good but for Knows.
type StarterConfig struct {
	// Knows reports whether an orchestrator that is running can run a version of an orchestration,
	// "" for any version. As long as none can, the items stay where they are: in the queue they
	// keep their order, can be counted, and can be taken by hand. As messages they would go back
	// and forth until somebody knows them. nil: all are known.
	Knows func(orchestration, version string) bool
	// Ready says why nothing is to be started just now, if so. nil: there is no reason.
	Ready func() error
	// Every is how often it is looked whether there is something to start: every second.
	Every time.Duration
	// Patience is how long the broker may take to store what is started: 20 seconds. It must be
	// less than the 30 seconds of a lock.
	Patience time.Duration
	// Grace is how long the broker may take still when the Starter ends: 2 seconds.
	Grace time.Duration
	// Metrics counts what becomes of items; nil: nobody does.
	Metrics *telemetry.Metrics
	// Logger gets what operators should know; nil is slog.Default.
	Logger *slog.Logger
}

// StarterCounts count what a [Starter] has done since it was made.
type StarterCounts struct {
	// Started counts items of which the broker has the start. Returned counts those that went back
	// into their queue, Died those of them that are dead now.
	Started, Returned, Died int64
	// Failed counts the tries to start something at which the broker or the database did not do its
	// part.
	Failed int64
}

// Starter starts an instance for each item of the queues whose settings say so (see [jobs.Start]).
// Every orchestrator process runs one.
//
//	pop with a lock ──► publish the starts ──► stored: acknowledge the lock, and pop the next items in
//	                                           the same transaction
//	                                      └──► not stored: return them, to be tried again
//
// # Once
//
// The instance's id and the id of the start message are made of the queue's name, its incarnation
// and the number of the item, and of nothing else. So when a process dies between publishing and
// acknowledging, or the lock has expired meanwhile, the item is started again by the same message
// for the same instance, and the engine finds that it was taken before. That holds for as long as
// the instance is kept (see the orchestrator's KeepEnded), which is to be longer than a lock.
//
// # What goes wrong
//
//   - Nobody knows the orchestration: see [StarterConfig].Knows.
//   - The broker does not take the starts: they go back with a delay, a second at first and half a
//     minute at last, and this process pops nothing until the delay is over and there is a
//     connection. So an outage costs an item few of its max_attempts, and another process that does
//     reach the broker goes on.
//   - An item can never be started, because it is too large, or the broker or the engine refuses
//     its start: it goes back alone, with the reason, while the others of its batch are started.
//     With max_attempts it is dead after so many. Without, it comes again after a second, and after
//     twice as long each time, up to ten minutes; meanwhile it is a delayed item, and those behind
//     it go on.
//   - The database does not answer: what is held stays locked until the lock expires, or until the
//     acknowledgement has come through.
//
// # How fast
//
// MaxPerSecond bounds what this process starts; as many orchestrators as there are may start so
// many times as much. A tenth of it may come at once.
type Starter struct {
	store  jobs.Store
	broker StartBroker
	config StarterConfig
	log    *slog.Logger

	look   chan struct{} // has a value when it is to be looked at once
	slots  chan struct{}
	counts struct{ started, returned, died, failed atomic.Int64 }

	mu      sync.Mutex
	queues  map[string]*starting
	outage  int       // how often the broker has failed in a row
	pauseTo time.Time // nothing is popped before
	unready string    // why nothing was popped last time
}

// starting is a queue whose items start instances.
type starting struct {
	busy    bool
	again   bool // something was pushed while it was busy
	limit   *rate.Limiter
	most    float64
	unknown bool      // it was said that nobody knows the orchestration
	failed  int       // how often the database has failed in a row
	notTill time.Time // when the rate allows the next item, or the database is asked again
}

const (
	// startAtOnce bounds the items of a batch, startBytes their size.
	startAtOnce = 100
	startBytes  = 4 << 20
	// queuesAtOnce bounds the queues of which items are started at the same time. batchesInARow is
	// after how many batches another queue has its turn.
	queuesAtOnce  = 8
	batchesInARow = 20
	// startTTL is for how long items are locked.
	startTTL = jobs.DefaultTTL
	// shortWait and longWait bound the delays of what could not be started because of the broker or
	// the database, longestWait those of what can never be.
	shortWait   = time.Second
	longWait    = 30 * time.Second
	longestWait = 10 * time.Minute
	// operationFor bounds one transaction, endFor one that is under way, or begins, when the
	// Starter ends.
	operationFor, endFor = 10 * time.Second, 3 * time.Second
)

// AttributeQueue is the attribute by which the instances of a queue are found: its value is the
// queue's name.
const AttributeQueue = "rondo.queue"

// NewStarter makes one. Run has it work.
func NewStarter(store jobs.Store, broker StartBroker, c StarterConfig) *Starter {
	for _, d := range []struct {
		is *time.Duration
		to time.Duration
	}{{&c.Every, time.Second}, {&c.Patience, 20 * time.Second}, {&c.Grace, 2 * time.Second}} {
		if *d.is <= 0 {
			*d.is = d.to
		}
	}
	if c.Knows == nil {
		c.Knows = func(string, string) bool { return true }
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Starter{
		store: Counted(store, c.Metrics), broker: broker, config: c, log: c.Logger, look: make(chan struct{}, 1),
		slots: make(chan struct{}, queuesAtOnce), queues: make(map[string]*starting),
	}
}

// Counts tells what it has done.
func (s *Starter) Counts() StarterCounts {
	c := &s.counts
	return StarterCounts{Started: c.started.Load(), Returned: c.returned.Load(), Died: c.died.Load(),
		Failed: c.failed.Load()}
}

// Pushed tells that something was pushed to a queue here, so that it need not be looked for. It
// does not block.
func (s *Starter) Pushed(name string) {
	s.mu.Lock()
	q := s.queues[name]
	if q != nil && q.busy {
		q.again = true
	}
	s.mu.Unlock()
	if q != nil {
		s.lookSoon()
	}
}

// Hear gives a store that tells the Starter of what is pushed with it.
func (s *Starter) Hear(store jobs.Store) jobs.Store { return heard{store, s} }

type heard struct {
	jobs.Store
	starter *Starter
}

// Do implements [jobs.Store].
func (h heard) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := h.Store.Do(ctx, name, operations...)
	for n, r := range results {
		if _, is := operations[n].(jobs.Push); is && r.Count > 0 {
			h.starter.Pushed(name)
			break
		}
	}
	return results, err
}

func (s *Starter) lookSoon() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// Run starts instances until the context ends. What is being published then may take the grace
// still; what is not stored by then goes back at once.
func (s *Starter) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(s.config.Every)
	defer tick.Stop()
	failed := 0
	for {
		list, err := s.store.Starting(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if failed++; failed == 1 || failed%60 == 0 {
				s.log.Warn("queues: which of them start instances cannot be seen; trying on", "error", err)
			}
		default:
			failed = 0
			s.forget(list)
			for _, i := range list {
				s.begin(ctx, &all, i)
			}
		}
		select {
		case <-tick.C:
		case <-s.look:
		case <-ctx.Done():
			return nil
		}
	}
}

// forget forgets queues that start nothing any more.
func (s *Starter) forget(list []jobs.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[string]bool, len(list))
	for _, i := range list {
		there[i.Queue] = true
		if s.queues[i.Queue] == nil {
			s.queues[i.Queue] = &starting{}
		}
	}
	for name, q := range s.queues {
		if !there[name] && !q.busy {
			delete(s.queues, name)
		}
	}
}

// begin has the items of a queue started, if there may be some, and if nobody is at it.
func (s *Starter) begin(ctx context.Context, all *sync.WaitGroup, i jobs.Info) {
	if i.Settings.Start == nil || !s.mayStart(i) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[i.Queue]
	if q == nil || q.busy || time.Now().Before(q.notTill) {
		return
	}
	q.limitTo(i.Settings.Start.MaxPerSecond)
	q.busy = true
	all.Go(func() {
		select {
		case s.slots <- struct{}{}:
			s.work(ctx, i.Queue, i.Settings.Mode, q)
			<-s.slots
		case <-ctx.Done():
		}
		s.mu.Lock()
		again := q.again
		q.busy, q.again = false, false
		s.mu.Unlock()
		if again {
			s.lookSoon()
		}
	})
}

// limitTo sets the rate.
func (q *starting) limitTo(most float64) {
	if q.most == most {
		return
	}
	q.most, q.limit = most, nil
	if most > 0 {
		q.limit = rate.NewLimiter(rate.Limit(most), int(math.Max(1, most/10)))
	}
}

// mayStart reports whether it is worth to ask a queue for items.
func (s *Starter) mayStart(i jobs.Info) bool {
	switch {
	case i.Exclusive != nil && !i.Exclusive.Expired(i.At):
		return false // somebody has it, and says when it goes on
	case i.Depth() == 0 && i.Delayed == 0 && i.Locked == 0:
		return false
	}
	return s.ready() && s.known(i)
}

// ready reports whether the broker can be expected to take something.
func (s *Starter) ready() bool {
	err := s.broker.Connected()
	if err == nil {
		err = s.config.Ready()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.unready = ""
		return !time.Now().Before(s.pauseTo)
	}
	if why := err.Error(); why != s.unready {
		s.unready = why
		s.log.Info("queues: no instances are started just now; the items wait", "error", why)
	}
	return false
}

// known reports whether somebody can run what a queue starts. What nobody can ever run is known to
// be wrong.
func (s *Starter) known(i jobs.Info) bool {
	start := i.Settings.Start
	is := events.CheckName("orchestration", start.Orchestration) != nil ||
		s.config.Knows(start.Orchestration, start.Version)
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[i.Queue]
	if q == nil {
		return is
	}
	if !is && !q.unknown {
		s.log.Warn("queues: no orchestrator that is running knows the orchestration that a queue starts; its items "+
			"wait for one",
			"queue", i.Queue, "orchestration", start.Orchestration, "version", start.Version)
	}
	q.unknown = !is
	return is
}

// work starts the items of a queue, batch after batch.
func (s *Starter) work(ctx context.Context, name string, mode jobs.Mode, q *starting) {
	var before *batch
	for n := 0; ; n++ {
		count := s.allowed(q)
		if n >= batchesInARow {
			s.lookSoon()
			count = 0
		}
		if ctx.Err() != nil || !s.ready() {
			count = 0
		}
		next, err := s.change(ctx, name, mode, before, count)
		if err != nil {
			s.broken(name, q, err)
			return
		}
		s.worked(q)
		if next == nil {
			return
		}
		if q.limit != nil {
			q.limit.ReserveN(time.Now(), len(next.items))
		}
		if before = next; !s.start(ctx, name, next) {
			return
		}
	}
}

// batch are items that are started together.
type batch struct {
	jobs.Result
	lock  string
	items []jobs.Item
	// end is how the lock is to end, and started how many of the items were.
	end     jobs.Operation
	started int
}

// allowed is how many items the rate allows just now. If it is none, it is looked again when it
// allows one.
func (s *Starter) allowed(q *starting) int {
	if q.limit == nil {
		return startAtOnce
	}
	now := time.Now()
	if tokens := q.limit.TokensAt(now); tokens < 1 {
		// It is looked that often anyway, and by then the rate may be another. A very low one has a
		// wait that no time.Duration could hold.
		wait := time.Duration(min((1-tokens)/float64(q.limit.Limit())*float64(time.Second), float64(s.config.Every)))
		s.mu.Lock()
		q.notTill = now.Add(wait)
		s.mu.Unlock()
		time.AfterFunc(wait, s.lookSoon)
		return 0
	}
	return min(startAtOnce, int(q.limit.TokensAt(now)))
}

// broken notes that the database has failed.
func (s *Starter) broken(name string, q *starting, err error) {
	s.counts.failed.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := growing(q.failed, longWait) / 10
	q.failed++
	q.notTill = time.Now().Add(wait)
	s.log.Warn("queues: the items of a queue cannot be read or acknowledged; trying again", "queue", name, "after",
		wait, "error", err)
}

// growing is a delay after some failures.
func growing(failures int, most time.Duration) time.Duration {
	return min(shortWait<<min(failures, 20), most)
}

// worked notes that the database has done its part.
func (s *Starter) worked(q *starting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.failed = 0
}

// change ends the lock of a batch, if there is one, and takes further items, if there are to be
// some, in one transaction.
func (s *Starter) change(ctx context.Context, name string, mode jobs.Mode, before *batch, count int) (*batch, error) {
	var operations []jobs.Operation
	if before != nil {
		operations = append(operations, before.end)
	}
	if count == 0 {
		results, err := s.do(ctx, name, operations...)
		if err == nil && before != nil {
			s.ended(name, before, results[0])
		}
		return nil, err
	}
	var b [8]byte
	rand.Read(b[:]) // it never fails
	lock := jobs.LockID(b)
	pop := jobs.Pop{Count: count, Bytes: startBytes, LockID: lock, TTL: startTTL, Mode: mode}
	results, err := s.once(ctx, name, append(operations, pop)...)
	if err != nil { // it may have happened all the same
		undo := append(operations,
			jobs.Return{LockID: lock, Reason: "the database did not say whether it was handed out"})
		if results, e := s.do(ctx, name, undo...); e == nil && before != nil {
			s.ended(name, before, results[0])
		}
		return nil, err
	}
	if before != nil {
		s.ended(name, before, results[0])
	}
	r := results[len(results)-1]
	var locked *jobs.LockedError
	switch {
	case errors.As(r.Refused, &locked): // by another orchestrator, or by somebody over HTTP
		return nil, nil
	case r.Refused != nil || len(r.Items) == 0:
		return nil, r.Refused
	}
	return &batch{Result: r, lock: lock, items: r.Items}, nil
}

// ended notes what became of the lock of a batch. That it was over already is nothing bad: its
// items come again, and are found to be started.
func (s *Starter) ended(name string, b *batch, r jobs.Result) {
	if r.Refused != nil {
		s.log.Info("queues: a lock was over before its items were acknowledged; they come again", "queue", name,
			"error", r.Refused)
		return
	}
	s.counts.started.Add(int64(b.started))
	s.counts.returned.Add(int64(len(b.items) - b.started))
	s.counts.died.Add(int64(r.Died))
	s.config.Metrics.QueueItems(telemetry.ItemsStarted, b.started)
}

// once does operations in one transaction, also when the context has ended: what has begun is
// brought to an end, so that no lock is left behind.
func (s *Starter) once(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationFor)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(endFor, cancel)
		context.AfterFunc(whole, func() { timer.Stop() })
	})
	defer stop()
	return s.store.Do(whole, name, operations...)
}

// do does operations that may be done twice, and tries again if the database fails.
func (s *Starter) do(ctx context.Context, name string,
	operations ...jobs.Operation) (results []jobs.Result, err error) {
	if len(operations) == 0 {
		return nil, nil
	}
	for try := 0; ; try++ {
		if results, err = s.once(ctx, name, operations...); err == nil || try == 2 || ctx.Err() != nil {
			return results, err
		}
		select {
		case <-time.After(shortWait / 10 << try):
		case <-ctx.Done():
		}
	}
}

// start publishes the starts of a batch, and decides how its lock is to end. It reports false if it
// has ended already.
func (s *Starter) start(ctx context.Context, name string, b *batch) bool {
	if b.Start == nil { // the queue is to start nothing any more
		b.end = jobs.Return{LockID: b.lock, Reason: "the queue starts nothing any more"}
		if results, err := s.do(ctx, name, b.end); err == nil {
			s.ended(name, b, results[0])
		}
		return false
	}
	var wires []events.Wire
	var sent, bad []jobs.Item
	var why error
	for _, item := range b.items {
		w, err := s.encode(name, b, item)
		if err != nil {
			bad, why = append(bad, item), err
			continue
		}
		wires, sent = append(wires, w), append(sent, item)
	}
	err := s.publish(ctx, wires)
	var refused *broker.Refused
	switch {
	case errors.As(err, &refused):
		bySubject := make(map[string]error, len(refused.Messages))
		for n, m := range refused.Messages {
			bySubject[m.Subject] = refused.Reasons[n]
		}
		for n, w := range wires {
			if reason, ok := bySubject[w.Subject]; ok {
				bad, why = append(bad, sent[n]), reason
			}
		}
	case err != nil:
		s.giveBack(ctx, name, b, err)
		return false
	}
	s.mu.Lock()
	s.outage = 0
	s.mu.Unlock()
	b.started, b.end = len(b.items)-len(bad), jobs.Acknowledge{LockID: b.lock}
	if len(bad) > 0 {
		b.end = s.never(name, b, bad, why)
	}
	return true
}

// never is how a lock ends of which some items cannot be started.
func (s *Starter) never(name string, b *batch, bad []jobs.Item, why error) jobs.Return {
	r := jobs.Return{LockID: b.lock, Reason: fmt.Sprintf("orchestration %q cannot be started with it: %v",
		b.Start.Orchestration, why), Delay: longestWait}
	for _, item := range bad {
		r.Only = append(r.Only, item.ID)
		r.Delay = min(r.Delay, growing(item.Attempts-1, longestWait))
	}
	s.log.Warn("queues: items cannot be started", "queue", name, "items", len(bad), "after", r.Delay, "error", why)
	return r
}

// giveBack returns what the broker has not taken.
func (s *Starter) giveBack(ctx context.Context, name string, b *batch, why error) {
	r := jobs.Return{LockID: b.lock, Reason: "the broker did not take the start: " + why.Error()}
	if ctx.Err() != nil {
		r.Reason = "the orchestrator that was to start it has ended"
	} else {
		s.mu.Lock()
		r.Delay = growing(s.outage, longWait)
		s.outage++
		s.pauseTo = time.Now().Add(r.Delay)
		s.mu.Unlock()
		s.counts.failed.Add(1)
		s.log.Warn("queues: instances could not be started; trying again", "queue", name, "items", len(b.items),
			"after", r.Delay, "error", why)
	}
	results, err := s.do(ctx, name, r)
	if err != nil {
		s.log.Warn("queues: items could not be returned; they come again when their lock has expired", "queue", name,
			"items", len(b.items), "error", err)
		return
	}
	s.ended(name, b, results[0])
}

// publish publishes starts within the patience, of which the grace is left when the context ends.
func (s *Starter) publish(ctx context.Context, wires []events.Wire) error {
	if len(wires) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Patience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(s.config.Grace, cancel)
		context.AfterFunc(within, func() { timer.Stop() })
	})
	defer stop()
	return s.broker.Publish(within, wires...)
}

// encode writes the start of an item. What the orchestrators would refuse is refused here.
func (s *Starter) encode(name string, b *batch, item jobs.Item) (w events.Wire, err error) {
	if err := events.CheckName("orchestration", b.Start.Orchestration); err != nil {
		return w, err
	}
	input := events.Canonical(item.Data)
	if e := events.CheckPayload("input", input); e != nil {
		return w, e
	}
	id := InstanceOf(name, b.Incarnation, item.ID)
	m := events.Message{ID: id, Instance: id, Content: &events.Start{
		Orchestration: b.Start.Orchestration, Version: b.Start.Version, Input: input,
		Attributes: map[string]string{AttributeQueue: name},
	}}
	if _, ok := events.ParseTrace(item.Trace); ok {
		m.Trace = item.Trace
	}
	if w, err = events.Encode(s.broker.Prefix(), m); err == nil {
		_, err = events.Decode(s.broker.Prefix(), w.Subject, w.Header, w.Body, "")
	}
	return w, err
}

// InstanceOf is the id of the instance that an item starts, and of the message that starts it:
// "queue/<queue>/<incarnation>/<item>". The incarnation is the queue's, see [jobs.Info].
func InstanceOf(name, incarnation string, item int64) string {
	return "queue/" + name + "/" + incarnation + "/" + strconv.FormatInt(item, 10)
}
