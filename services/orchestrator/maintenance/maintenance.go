// Package maintenance runs the regular jobs of an orchestrator: it sweeps the outbox, wakes overdue
// instances, restores messages that the broker has lost, and removes instances after their
// retention.
package maintenance

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// Broker is the part of the broker that maintenance needs.
type Broker interface {
	outbox.Broker
	broker.Leases
	broker.KV
	broker.Repairer
	Prefix() string
}

// Config has the settings of the jobs.
type Config struct {
	// By is the id of the orchestrator, which holds the leases of jobs.
	By string
	// Every is the interval of sweeps. Limit bounds the instances of one query.
	Every time.Duration
	Limit int
	// OverdueGrace is how long an instance may be overdue, Patience is when it is woken again.
	OverdueGrace, Patience time.Duration
	// OutboxAfter is the age at which another orchestrator publishes an outbox entry.
	OutboxAfter time.Duration
	// Retention is how long instances are kept after they have ended; 0 keeps them for ever.
	Retention time.Duration
	// KeepExecutions is how many executions are kept; 0 keeps all. KeepFormerFor is how long a
	// former execution stays in any case.
	KeepExecutions int
	KeepFormerFor  time.Duration
	// Clock returns the time once the clock of this process is right and the database may be used;
	// nil: at once.
	Clock outbox.Clock
	// Jitter returns a delay up to most for a job.
	Jitter func(what string, most time.Duration) time.Duration
	// Runs reports whether an orchestrator that is running may run some code.
	Runs func(name, version string) bool
	// Has reports whether this orchestrator has some code.
	Has func(name, version string) bool
	// Background calls f on another goroutine, for a bounded time.
	Background func(f func(ctx context.Context))
	Metrics    *telemetry.Metrics
	Logger     *slog.Logger
}

// Keeper runs the regular jobs. Every orchestrator runs all of them. The store prevents that two of
// them do the same thing twice; where it does not, a lease lets one orchestrator at a time run the
// job.
type Keeper struct {
	config  Config
	broker  Broker
	store   history.Store
	log     *slog.Logger
	sweeper outbox.Sweeper
	healer  outbox.Healer
	// requests limits the logs of requests for a recovery.
	requests rate.Sometimes

	mu     sync.Mutex
	others map[string]otherLease // the leases of other orchestrators, by name
}

// otherLease is a lease that another orchestrator held at each of the last attempts to acquire it.
type otherLease struct {
	owner       string
	first, last time.Time // of the attempts
	attempts    int
	logged      bool
}

// New returns a Keeper.
func New(b Broker, store history.Store, c Config) *Keeper {
	return &Keeper{
		config: c, broker: b, store: store, log: c.Logger, requests: rate.Sometimes{Interval: requestsEvery},
		sweeper: outbox.Sweeper{Broker: b, Store: store, Prefix: b.Prefix(), After: c.OutboxAfter,
			Hold: 3 * c.OutboxAfter, Clock: c.Clock, Log: c.Logger, Watcher: c.Metrics.Outbox()},
		healer: outbox.Healer{Broker: b, Store: store, Prefix: b.Prefix(), Grace: c.OverdueGrace,
			Patience: cmp.Or(c.Patience, time.Minute), Settle: settleFor, Runs: c.Runs, Clock: c.Clock, Log: c.Logger,
			Watcher: c.Metrics.Outbox()},
	}
}

const (
	// settleFor is longer than a directly delivered task stays unstored: a second, and three more
	// if the worker does not answer.
	settleFor = broker.LastsAfter + 4*time.Second

	// requestsEvery is the interval of logs of requests for a recovery.
	requestsEvery = time.Minute

	// heldLong is for how long, and longAttempts at how many attempts in a row, another
	// orchestrator holds a lease until that is logged: a job that takes so long may hang.
	heldLong     = 10 * time.Minute
	longAttempts = 3

	tidyEvery   = time.Minute
	retainEvery = time.Minute
	pruneEvery  = time.Hour
	renewEvery  = 5 * time.Second

	// The leases of jobs that one orchestrator at a time runs.
	retainLease  = "rondo.retention"
	pruneLease   = "rondo.pruning"
	recoverLease = "rondo.recovery"
)

// Run runs the jobs until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	var wait sync.WaitGroup
	every := k.config.Every
	wait.Go(func() { k.regularly(ctx, every, "sweeping the outbox", k.sweep) })
	wait.Go(func() { k.regularly(ctx, every, "looking after overdue instances", k.heal) })
	wait.Go(func() { k.regularly(ctx, every, "looking whether the broker is still the same", k.recover) })
	wait.Go(func() { k.regularly(ctx, tidyEvery, "erasing what was deleted", k.tidy) })
	if k.config.Retention > 0 {
		wait.Go(func() {
			k.regularly(ctx, retainEvery, "removing instances that ended long ago", k.alone(retainLease, k.removeEnded))
		})
	}
	if k.config.KeepExecutions > 0 {
		wait.Go(func() { k.regularly(ctx, pruneEvery, "removing former executions", k.alone(pruneLease, k.prune)) })
	}
	wait.Go(func() { k.wakeHalted(ctx) })
	wait.Wait()
}

// regularly calls do about every so often, with jitter, so that not all orchestrators call it at
// the same moment, and while Clock allows it. It logs a failure and continues.
func (k *Keeper) regularly(ctx context.Context, every time.Duration, what string, do func(context.Context) error) {
	failed := false
	for first := true; ; first = false {
		wait := every/2 + k.config.Jitter(what, every/2)
		if first {
			wait = k.config.Jitter(what, min(every/10, time.Second))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if _, err := k.config.Clock.Now(ctx); err != nil {
			return // the context has ended
		}
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			k.log.Warn(what+" failed; trying again", "error", err)
		}
		if err == nil && failed {
			k.log.Info(what + " works again")
		}
		failed = err != nil
	}
}

func (k *Keeper) sweep(ctx context.Context) error {
	_, err := k.sweeper.Sweep(ctx)
	return err
}

// heal looks after instances that are overdue.
func (k *Keeper) heal(ctx context.Context) error {
	healed, err := k.healer.Overdue(ctx, k.config.Limit)
	if healed.Instances > 0 {
		k.log.Debug("looked after overdue instances", "instances", healed.Instances, "messages", healed.Messages)
	}
	return err
}

// tidy erases the remains of deletions.
func (k *Keeper) tidy(ctx context.Context) error {
	for {
		more, err := k.store.Tidy(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// wakeHalted wakes halted instances whose code this orchestrator has: it may fit now. It runs once,
// because the code does not change while the process runs.
func (k *Keeper) wakeHalted(ctx context.Context) {
	if _, err := k.config.Clock.Now(ctx); err != nil {
		return // the context has ended
	}
	page := history.Page{}
	for ctx.Err() == nil {
		list, err := k.store.List(ctx, history.Filter{Statuses: []round.Status{round.Halted}}, page)
		var wires []events.Wire
		for _, x := range list.Instances {
			if !k.config.Has(x.Name, x.Version) {
				continue
			}
			if w, err := events.Encode(k.broker.Prefix(),
				events.Message{Instance: x.Instance, Content: &events.Wake{Reason: "deployed"}}); err == nil {
				wires = append(wires, w)
			}
		}
		if err == nil {
			err = k.broker.Publish(ctx, wires...)
		}
		if err != nil {
			if ctx.Err() == nil {
				k.log.Warn("halted instances could not be woken; they are tried again in their time", "error", err)
			}
			return
		}
		if page.Cursor = list.Next; list.Next == "" {
			return
		}
	}
}

// alone calls do only if no other orchestrator holds the lease.
func (k *Keeper) alone(lease string, do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		owner, err := k.broker.Acquire(ctx, lease, k.config.By)
		if err != nil {
			return err
		}
		k.held(lease, owner)
		if owner != k.config.By {
			return nil
		}
		defer k.release(lease)
		doing, stop := context.WithCancel(ctx)
		defer stop()
		go k.renew(doing, lease)
		return do(doing)
	}
}

// held notes the owner of a lease, and logs once if another one holds it for long.
func (k *Keeper) held(lease, owner string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if owner == k.config.By {
		delete(k.others, lease)
		return
	}
	now := time.Now()
	x := k.others[lease]
	if x.owner != owner || now.Sub(x.last) > 2*pruneEvery { // there was no attempt meanwhile
		x = otherLease{owner: owner, first: now}
	}
	x.last, x.attempts = now, x.attempts+1
	if !x.logged && x.attempts >= longAttempts && now.Sub(x.first) >= heldLong {
		x.logged = true
		k.log.Warn("lease held by another orchestrator for long; this one does not run the job", "lease", lease,
			"owner", owner, "for", now.Sub(x.first))
	}
	if k.others == nil {
		k.others = make(map[string]otherLease)
	}
	k.others[lease] = x
}

// renew keeps a lease while the job under it runs.
func (k *Keeper) renew(ctx context.Context, lease string) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := k.broker.Acquire(ctx, lease, k.config.By); err != nil && ctx.Err() == nil {
				k.log.Debug("a lease could not be renewed; another orchestrator may do the same thing", "lease",
					lease, "error", err)
			}
		}
	}
}

func (k *Keeper) release(lease string) {
	k.config.Background(func(ctx context.Context) {
		if err := k.broker.Release(ctx, lease, k.config.By); err != nil {
			k.log.Debug("a lease could not be released; it ends by itself", "lease", lease, "error", err)
		}
	})
}

// removeEnded removes instances that ended long ago, by the clock of the database, so that a
// process with a wrong clock does not remove too many.
func (k *Keeper) removeEnded(ctx context.Context) error {
	now, err := k.store.Clock(ctx)
	if err != nil {
		return err
	}
	filter := history.Filter{EndedBefore: now.Add(-k.config.Retention), RootsOnly: true,
		Statuses: []round.Status{round.Completed, round.Failed, round.Cancelled, round.Terminated}}
	page := history.Page{}
	var removed int64
	for {
		got, err := k.store.DeleteEnded(ctx, filter, page)
		removed += got.Instances
		if err != nil || got.Next == "" {
			if removed > 0 {
				k.log.Info("removed instances that ended long ago", "instances", removed)
			}
			return err
		}
		page.Cursor = got.Next
	}
}

// prune removes former executions.
func (k *Keeper) prune(ctx context.Context) error {
	now, err := k.store.Clock(ctx)
	if err != nil {
		return err
	}
	last, before := k.config.KeepExecutions, now.Add(-k.config.KeepFormerFor)
	page := history.Page{}
	var removed int64
	for {
		got, err := k.store.PruneAll(ctx, history.Filter{}, history.Keep{Last: last, EndedBefore: before}, page)
		removed += got.Executions
		if err != nil || got.Next == "" {
			if removed > 0 {
				k.log.Info("removed former executions", "executions", removed)
			}
			return err
		}
		page.Cursor = got.Next
	}
}

// recoveredValue is the value of the flag recovered while the broker has everything. It has no TTL,
// so that it lasts as long as the streams. Otherwise the broker is new, or has lost everything, and
// a recovery that has begun leaves there since when: the next one continues with that if it dies.
// By then, there are turns of after the loss.
const recoveredValue = "true"

// recovered reports whether the broker has everything that it should have.
func (k *Keeper) recovered(ctx context.Context) (bool, error) {
	value, err := k.broker.Get(ctx, broker.KeyRecovered)
	return string(value) == recoveredValue, err
}

// beginsWithin is how long after the broker has come back a recovery begins. Turns that are newer
// may have been taken since.
const beginsWithin = time.Minute

// lost returns the last moment at which the broker had everything, as far as the database knows: it
// may have been away since, for as long as no turn was taken. It also returns the value of the flag
// recovered with that moment.
func (k *Keeper) lost(ctx context.Context) (at time.Time, value string, err error) {
	for {
		is, err := k.broker.Get(ctx, broker.KeyRecovered)
		if err != nil {
			return at, "", err
		}
		if at, _, ok := parseLost(is); ok {
			return at, string(is), nil
		}
		now, err := k.config.Clock.Now(ctx)
		if err != nil {
			return at, "", err
		}
		before := now.Add(-beginsWithin)
		if at, err = k.store.LastUpdate(ctx, before); err != nil {
			return at, "", err
		}
		if at.IsZero() {
			at = before
		}
		value = lostAt(at, false)
		if ok, err := k.setFlag(ctx, is, value); ok || err != nil {
			return at, value, err
		}
	}
}

// LostSince has the missing messages published, as if the broker had lost something at a moment. A
// recovery that has begun is repeated, from the earlier moment on.
func (k *Keeper) LostSince(ctx context.Context, since time.Time) error {
	return k.lostSince(ctx, since, false)
}

func (k *Keeper) lostSince(ctx context.Context, since time.Time, isAsked bool) error {
	for {
		is, err := k.broker.Get(ctx, broker.KeyRecovered)
		if err != nil {
			return err
		}
		if is == nil {
			return nil // it has lost everything, and a recovery finds out since when
		}
		value := lostAt(since, isAsked)
		// The value must change, so that the recovery that has begun does not end with it.
		if at, wasAsked, ok := parseLost(is); ok && at.Before(since) {
			if value = lostAt(at.Add(-1), wasAsked); isAsked {
				value = askedAgain(is)
			}
		}
		if ok, err := k.setFlag(ctx, is, value); ok || err != nil {
			return err
		}
	}
}

// setFlag changes the flag recovered from the value that was read, nil for none. It reports false
// if the flag has another value by now.
func (k *Keeper) setFlag(ctx context.Context, read []byte, value string) (ok bool, err error) {
	if read == nil {
		return k.broker.Create(ctx, broker.KeyRecovered, []byte(value))
	}
	return k.broker.Replace(ctx, broker.KeyRecovered, read, []byte(value))
}

// lostAt is the value of the flag recovered with the moment of a loss.
func lostAt(at time.Time, isAsked bool) string {
	value := at.UTC().Format(time.RFC3339Nano)
	if isAsked {
		value += asked
	}
	return value
}

// asked is behind the moment of a loss if a user has asked for the recovery, and nothing may be
// lost.
const asked = " asked"

// again is behind that, with a number, if a user has asked since. It changes only the value, so
// that a recovery that ends knows whether more than that has happened while it ran.
const again = " again "

// askedAgain is the value of the flag recovered after one more request.
func askedAgain(value []byte) string {
	first, times, _ := strings.Cut(string(value), again)
	n, _ := strconv.ParseUint(times, 10, 64) // without a number, it is the first request
	return first + again + strconv.FormatUint(n+1, 10)
}

// onlyAsked reports whether a value of the flag differs from an earlier one only by requests.
func onlyAsked(value, before string) bool {
	first, _, _ := strings.Cut(before, again)
	now, _, isAsked := strings.Cut(value, again)
	return isAsked && now == first && value != before
}

// parseLost reads the moment of a loss.
func parseLost(value []byte) (at time.Time, wasAsked, ok bool) {
	first, _, _ := strings.Cut(string(value), again)
	moment, wasAsked := strings.CutSuffix(first, asked)
	at, err := time.Parse(time.RFC3339Nano, moment)
	return at, wasAsked, err == nil
}

// Begin sets the flag recovered if the database has no instances: such a broker has lost nothing.
func (k *Keeper) Begin(ctx context.Context) error {
	is, err := k.broker.Get(ctx, broker.KeyRecovered)
	if err != nil || string(is) == recoveredValue {
		return err
	}
	n, err := k.store.Count(ctx, history.Filter{}, 1)
	if err != nil || n > 0 {
		return err
	}
	_, err = k.setFlag(ctx, is, recoveredValue) // if another one has changed it, that counts
	return err
}

// RecoverSoon resets the flag recovered, as if the broker had lost something now, or keeps the
// moment of an earlier loss: the next orchestrator that checks the flag publishes the missing
// messages. It returns within what time that is.
func (k *Keeper) RecoverSoon(ctx context.Context) (within time.Duration, err error) {
	k.requests.Do(func() {
		k.log.Info("a user asks for a recovery; further requests are not logged for a minute")
	})
	now, err := k.config.Clock.Now(ctx) // a clock that is slow would have each request look further back
	if err != nil {
		return 0, err
	}
	return k.config.Every, k.lostSince(ctx, now, true)
}

// recover publishes to a broker that has lost everything the messages that it should have. A new
// broker gets the same treatment, which is soon over.
func (k *Keeper) recover(ctx context.Context) error {
	recovered, err := k.recovered(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return err // the broker is away or slow, and nothing of it is known to be missing
	}
	if err != nil {
		if repairErr := k.broker.Repair(ctx); repairErr != nil {
			return errors.Join(err, repairErr)
		}
		k.log.Warn("the broker was verified after an error, and repaired where something was missing", "error", err)
		recovered, err = k.recovered(ctx)
	}
	if err != nil || recovered {
		return err
	}
	began, err := k.config.Clock.Now(ctx) // BEFORE the lease, so that others can recover meanwhile
	if err != nil {
		return err
	}
	return k.alone(recoverLease, func(ctx context.Context) error {
		if recovered, err := k.recovered(ctx); err != nil || recovered {
			return err // another one has just done it
		}
		lost, value, err := k.lost(ctx)
		if err != nil {
			return err
		}
		healed, err := k.healer.All(ctx, lost)
		if err != nil {
			return err
		}
		if _, wasAsked, _ := parseLost([]byte(value)); wasAsked {
			k.log.Info("the messages for which running instances wait were published again, as a user has asked",
				"instances", healed.Instances, "messages", healed.Messages)
		} else if healed.Messages > 0 {
			k.log.Warn("the broker had lost its messages; published what the running instances wait for", "instances",
				healed.Instances, "messages", healed.Messages)
		}
		return k.endRecovery(ctx, value, began)
	})(ctx)
}

// endRecovery sets the flag recovered after a recovery that has begun with a value of the flag. If
// more was lost meanwhile, perhaps of what this recovery had found, the flag has another value, and
// the next recovery looks again. If a user has asked meanwhile, and nothing else has happened, the
// next recovery looks back to the beginning of this one: otherwise requests during each recovery
// would have the next one look further back than the one before.
func (k *Keeper) endRecovery(ctx context.Context, value string, began time.Time) error {
	if ok, err := k.setFlag(ctx, []byte(value), recoveredValue); ok || err != nil {
		return err
	}
	for {
		is, err := k.broker.Get(ctx, broker.KeyRecovered)
		if err != nil || !onlyAsked(string(is), value) {
			return err
		}
		if ok, err := k.setFlag(ctx, is, lostAt(began, true)); ok || err != nil {
			return err
		}
	}
}
