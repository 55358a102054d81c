package jobserver

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// StartBroker is the part of the broker that starts need.
type StartBroker interface {
	broker.Publisher
	// Prefix begins all subjects.
	Prefix() string
	// Connected returns an error while there is no connection.
	Connected() error
}

// StarterConfig is the configuration of a [Starter]. The zero value is good but for Knows.
type StarterConfig struct {
	// Knows reports whether a running orchestrator can run a version of an orchestration, "" for
	// any version. As long as none can, the jobs stay in the queue: there they keep their order,
	// can be counted, and can be popped by hand. As messages they would be redelivered again and
	// again until an orchestrator has the code. nil: all are known.
	Knows func(orchestration, version string) bool
	// Ready returns an error while nothing is to be started. nil: always ready.
	Ready func() error
	// Every is the interval of looking for jobs to start: every second.
	Every time.Duration
	// Patience bounds the time in which the broker stores starts: 20 seconds. It must be less than
	// the 30 seconds of a lock.
	Patience time.Duration
	// Grace bounds that time when the Starter ends: 2 seconds.
	Grace time.Duration
	// Metrics counts the changes of jobs; nil: no metrics.
	Metrics *telemetry.Metrics
	// Logger gets warnings for operators; nil is slog.Default.
	Logger *slog.Logger
}

// StarterCounts count the work of a [Starter] since it was made.
type StarterCounts struct {
	// Started counts jobs whose start the broker has stored. Returned counts those that were
	// returned to their queue, Died those of them that are dead now.
	Started, Returned, Died int64
	// Failed counts the attempts that failed because of the broker or the database.
	Failed int64
}

// Starter starts an instance for each job of the queues whose settings say so (see [jobs.Start]).
// Every orchestrator process runs one.
//
//	pop with a lock ──► publish the starts ──► stored: acknowledge the lock, and pop the
//	                                           next jobs in the same transaction
//	                                      └──► not stored: return them, to be tried again
//
// # Idempotence
//
// The instance's id and the id of the start message are made of the queue's name, its incarnation
// and the number of the job, and of nothing else. So when a process dies between publishing and
// acknowledging, or the lock has expired meanwhile, the job is started again by the same message
// for the same instance, and the engine finds that it was taken before. That holds for as long as
// the instance is kept (see the orchestrator's Retention), which must be longer than a lock.
//
// # Failures
//
//   - No orchestrator knows the orchestration: see [StarterConfig].Knows.
//   - The broker does not store the starts: they are returned with a delay, a second at first and
//     half a minute at last, and this process pops nothing until the delay is over and there is a
//     connection. That does not count as an attempt, and another process that does reach the broker
//     continues.
//   - The broker refuses starts because of a setting: see [broker.ErrMisconfigured]. They are
//     returned with a delay of half a minute, which does not count as an attempt, and those behind
//     them proceed. If the broker refuses all of a batch, this process pops the next one of the
//     queue after three seconds. A warning each minute names the setting.
//   - A job can never be started, because it is too large, or the broker or the engine refuses
//     its start: it is returned alone, with the reason, while the others of its batch are started.
//     With max_attempts it is dead after so many. Without, it is ready again after a second, and
//     after twice as long each time, up to ten minutes; meanwhile it is a delayed job, and those
//     behind it proceed.
//   - The database does not answer: the jobs stay locked until the lock expires, or until the
//     acknowledgement has succeeded.
//
// # Rate
//
// MaxPerSecond bounds the starts of this process; several orchestrators start so many each. A tenth
// of it may come at once.
type Starter struct {
	store  jobs.Store
	broker StartBroker
	config StarterConfig
	log    *slog.Logger

	look   signal.Signal // has a value when the Starter is to look at once
	slots  chan struct{}
	counts struct{ started, returned, died, failed atomic.Int64 }
	warns  rate.Sometimes // about settings of the broker

	mu      sync.Mutex
	queues  map[string]*starting
	outage  int       // how often the broker has failed in a row
	pauseTo time.Time // nothing is popped before
	unready string    // why nothing was popped last time
}

// starting is a queue whose jobs start instances.
type starting struct {
	busy    bool
	again   bool // a job was pushed while it was busy
	limit   *rate.Limiter
	most    float64
	unknown bool      // an unknown orchestration was logged
	failed  int       // how often the database has failed in a row
	notTill time.Time // when the rate allows the next job, or the database is asked again
}

const (
	// startAtOnce bounds the jobs of a batch, startBytes their size.
	startAtOnce = 100
	startBytes  = 4 << 20
	// queuesAtOnce bounds the queues whose jobs are started at the same time. batchesInARow is the
	// number of batches after which another queue has its turn.
	queuesAtOnce  = 8
	batchesInARow = 20
	// startTTL is the time of the locks.
	startTTL = jobs.DefaultTTL
	// shortWait and longWait bound the delays after failures of the broker or the database,
	// longestWait those of jobs that can never be started. longWait is the delay of those that a
	// setting of the broker prevents, and preventedWait, after a batch of only such jobs, that of
	// the next one of the queue. It is much less, because that may have other jobs.
	shortWait     = time.Second
	longWait      = 30 * time.Second
	preventedWait = 3 * time.Second
	longestWait   = 10 * time.Minute
	// operationFor bounds one transaction, endFor one that is in flight, or begins, when the
	// Starter ends.
	operationFor, endFor = 10 * time.Second, 3 * time.Second
	// warnEvery bounds the warnings about what repeats itself.
	warnEvery = time.Minute
)

// AttributeQueue is the attribute by which the instances of a queue are found: its value is the
// queue's name.
const AttributeQueue = "rondo.queue"

// NewStarter makes a Starter. Run runs it.
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
		store: Counted(store, c.Metrics), broker: broker, config: c, log: c.Logger, look: signal.New(),
		slots: make(chan struct{}, queuesAtOnce), queues: make(map[string]*starting),
		warns: rate.Sometimes{Interval: warnEvery},
	}
}

// Counts returns the counts of its work.
func (s *Starter) Counts() StarterCounts {
	c := &s.counts
	return StarterCounts{Started: c.started.Load(), Returned: c.returned.Load(), Died: c.died.Load(),
		Failed: c.failed.Load()}
}

// Pushed tells the Starter that a job was pushed here, so that it need not look for it. It does
// not block.
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

// Hear returns a store that tells the Starter of pushes.
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

func (s *Starter) lookSoon() { s.look.Set() }

// Run starts instances until the context ends. The starts that are in flight then have the grace;
// the others are returned at once.
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
				s.log.Warn("queues: the list of queues that start instances cannot be read; retrying", "error", err)
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

// begin starts the jobs of a queue, if there may be some, and if no goroutine does already.
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

// mayStart reports whether it is worth to pop from a queue.
func (s *Starter) mayStart(i jobs.Info) bool {
	switch {
	case i.Exclusive != nil && !i.Exclusive.Expired(i.At):
		return false // a client holds it, and its end is known
	case i.Depth() == 0 && i.Delayed == 0 && i.Locked == 0:
		return false
	}
	return s.ready() && s.known(i)
}

// ready reports whether the broker can be expected to store starts.
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

// known reports whether an orchestrator can run a queue's orchestration. One with an invalid name
// counts as known, so that its jobs fail.
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

// work starts the jobs of a queue, batch after batch.
func (s *Starter) work(ctx context.Context, name string, mode jobs.Mode, q *starting) {
	var before *batch
	for n := 0; ; n++ {
		count := s.allowed(q)
		if n >= batchesInARow {
			s.lookSoon()
			count = 0
		}
		if ctx.Err() != nil || !s.ready() || before != nil && before.prevented {
			count = 0
		}
		next, err := s.change(ctx, name, mode, before, count)
		if err != nil {
			s.broken(name, q, err)
			return
		}
		s.worked(q, before)
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

// batch are jobs that are started together.
type batch struct {
	jobs.Result
	lock  string
	items []jobs.Job
	// end is the operation that ends the lock, and started the number of started jobs.
	end     jobs.Operation
	started int
	// prevented says that a setting of the broker prevents the starts of all its jobs.
	prevented bool
}

// allowed is the number of jobs that the rate allows now. If it is none, the Starter looks again
// when it allows one.
func (s *Starter) allowed(q *starting) int {
	if q.limit == nil {
		return startAtOnce
	}
	now := time.Now()
	if tokens := q.limit.TokensAt(now); tokens < 1 {
		// The Starter looks that often anyway, and by then the rate may be another. A very low one
		// has a wait that no time.Duration could hold.
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
	return backoff.Backoff{First: shortWait, Most: most}.After(failures)
}

// worked notes that the database has answered, and ended a batch if there was one.
func (s *Starter) worked(q *starting, before *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.failed = 0; before != nil && before.prevented {
		q.notTill = time.Now().Add(preventedWait)
	}
}

// change ends the lock of a batch, if there is one, and pops further jobs, if count allows some,
// in one transaction.
func (s *Starter) change(ctx context.Context, name string, mode jobs.Mode, before *batch, count int) (*batch, error) {
	var operations []jobs.Operation
	if before != nil {
		operations = append(operations, before.end)
	}
	if count == 0 {
		return nil, s.finish(ctx, name, before, false, operations...)
	}
	var b [8]byte
	rand.Read(b[:]) // it never fails
	lock := jobs.LockID(b)
	pop := jobs.Pop{Count: count, Bytes: startBytes, LockID: lock, TTL: startTTL, Mode: mode}
	results, err := s.once(ctx, name, append(operations, pop)...)
	if err != nil { // its outcome may be unknown
		undo := append(operations,
			jobs.Return{LockID: lock, Uncounted: true, Reason: "the database did not say whether it was popped"})
		_ = s.finish(ctx, name, before, true, undo...) // the caller gets the first error
		return nil, err
	}
	if before != nil {
		s.ended(name, before, results[0], false)
	}
	r := results[len(results)-1]
	var locked *jobs.LockedError
	switch {
	case errors.As(r.Refused, &locked): // by another orchestrator, or by a client over HTTP
		return nil, nil
	case r.Refused != nil || len(r.Items) == 0:
		return nil, r.Refused
	}
	return &batch{Result: r, lock: lock, items: r.Items}, nil
}

// ended notes the end of a batch's lock. That it was over already does no harm: its jobs are
// popped again, and the engine finds that they were started. In doubt, a transaction whose answer
// was lost has ended it.
func (s *Starter) ended(name string, b *batch, r jobs.Result, doubt bool) {
	done := doubt && (errors.Is(r.Refused, jobs.ErrNoLock) || errors.Is(r.Refused, jobs.ErrWrongLock))
	if r.Refused != nil && !done {
		s.log.Info("queues: a lock was over before its items were acknowledged; they come again", "queue", name,
			"error", r.Refused)
		return
	}
	s.counts.started.Add(int64(b.started))
	s.counts.returned.Add(int64(len(b.items) - b.started))
	s.counts.died.Add(int64(r.Died))
	s.config.Metrics.Jobs().Changed(telemetry.JobsStarted, b.started)
}

// once does operations in one transaction, also when the context has ended: it completes them, so
// that no lock is left behind.
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

// finish does operations that may be done twice, the first of which ends the lock of a batch if
// there is one, and retries if the database fails. In doubt, they may have been done before.
func (s *Starter) finish(ctx context.Context, name string, b *batch, doubt bool, operations ...jobs.Operation) error {
	if len(operations) == 0 {
		return nil
	}
	for try := 0; ; try++ {
		results, err := s.once(ctx, name, operations...)
		if err == nil && b != nil {
			s.ended(name, b, results[0], doubt || try > 0)
		}
		if err == nil || try == 2 || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(growing(try, longWait) / 10):
		case <-ctx.Done():
		}
	}
}

// start publishes the starts of a batch, and decides how its lock is to end. It reports false if it
// has ended it already.
func (s *Starter) start(ctx context.Context, name string, b *batch) bool {
	if b.Start == nil { // the queue is to start nothing any more
		b.end = jobs.Return{LockID: b.lock, Uncounted: true, Reason: "the queue starts nothing any more"}
		_ = s.finish(ctx, name, b, false, b.end) // otherwise the lock expires
		return false
	}
	var wires []events.Wire
	var sent, bad []jobs.Job
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
		s.release(ctx, name, b, err)
		return false
	}
	s.mu.Lock()
	s.outage = 0
	s.mu.Unlock()
	b.started, b.end = len(b.items)-len(bad), jobs.Acknowledge{LockID: b.lock}
	switch waits := prevented(refused); {
	case waits != nil:
		b.end = s.later(name, b, bad, waits)
	case len(bad) > 0:
		b.end = s.never(name, b, bad, why)
	}
	return true
}

// release returns the jobs whose starts the broker has not stored.
func (s *Starter) release(ctx context.Context, name string, b *batch, why error) {
	r := jobs.Return{LockID: b.lock, Uncounted: true, Reason: "the broker did not take the start: " + why.Error()}
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
	if err := s.finish(ctx, name, b, false, r); err != nil {
		s.log.Warn("queues: items could not be returned; they come again when their lock has expired", "queue", name,
			"items", len(b.items), "error", err)
	}
}

// publish publishes starts within the patience, or within the grace after the context has ended.
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

// encode encodes the start of a job. It refuses starts that the orchestrators would refuse.
func (s *Starter) encode(name string, b *batch, item jobs.Job) (w events.Wire, err error) {
	if err := events.CheckName("orchestration", b.Start.Orchestration); err != nil {
		return w, err
	}
	input := codec.Canonical(item.Data)
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

// InstanceOf is the id of the instance that a job starts, and of the message that starts it:
// "queue/<queue>/<incarnation>/<item>". The incarnation is the queue's, see [jobs.Info].
func InstanceOf(name, incarnation string, item int64) string {
	return "queue/" + name + "/" + incarnation + "/" + strconv.FormatInt(item, 10)
}
