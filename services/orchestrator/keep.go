package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// keeper does what has to be done now and then: it sweeps, heals, erases and prunes. Every
// orchestrator does all of it; the store sees to it that they do not do the same things twice, and
// where it does not, one at a time does them.
type keeper struct {
	o       *Orchestrator
	sweeper outbox.Sweeper
	healer  outbox.Healer
}

func newKeeper(o *Orchestrator) *keeper {
	c := o.config
	patience := c.Round.Patience
	if patience == 0 {
		patience = time.Minute
	}
	return &keeper{
		o: o,
		sweeper: outbox.Sweeper{Broker: o.broker, Store: o.store, Prefix: o.broker.Prefix(), After: c.PromiseAfter,
			Hold: 3 * c.PromiseAfter, Log: o.log, Watcher: c.Metrics},
		healer: outbox.Healer{Broker: o.broker, Store: o.store, Prefix: o.broker.Prefix(), Grace: c.OverdueGrace,
			Patience: patience, Settle: settleFor, Runs: o.own.mayRun, Log: o.log, Watcher: c.Metrics},
	}
}

const (
	// settleFor is longer than a task is with a worker before it is stored: a second, and three
	// more if the worker does not answer.
	settleFor = broker.LastsAfter + 4*time.Second

	tidyEvery   = time.Minute
	retainEvery = time.Minute
	pruneEvery  = time.Hour
	renewEvery  = 5 * time.Second
	// schedulesEvery is how often it is looked whether the broker still has what starts something
	// again and again.
	schedulesEvery = time.Minute

	// The leases of what one orchestrator at a time does.
	retainLease  = "rondo.retention"
	pruneLease   = "rondo.pruning"
	recoverLease = "rondo.recovery"

	// recoveredMark stands in the broker once everything that it should have is there. A broker
	// without it is new, or has lost everything.
	recoveredMark = "recovered"
)

// run does its work until the context ends.
func (k *keeper) run(ctx context.Context) {
	var wait sync.WaitGroup
	every := k.o.config.SweepEvery
	wait.Go(func() { k.regularly(ctx, every, "sweeping the outbox", k.sweep) })
	wait.Go(func() { k.regularly(ctx, every, "looking after overdue instances", k.heal) })
	wait.Go(func() { k.regularly(ctx, every, "looking whether the broker is still the same", k.recover) })
	wait.Go(func() { k.regularly(ctx, tidyEvery, "erasing what was deleted", k.tidy) })
	wait.Go(func() { k.regularly(ctx, schedulesEvery, "looking after schedules", k.healSchedules) })
	if k.o.config.KeepEnded > 0 {
		wait.Go(func() {
			k.regularly(ctx, retainEvery, "removing instances that ended long ago", k.alone(retainLease, k.removeEnded))
		})
	}
	if k.o.config.KeepExecutions > 0 {
		wait.Go(func() { k.regularly(ctx, pruneEvery, "removing former executions", k.alone(pruneLease, k.prune)) })
	}
	wait.Go(func() { k.o.readValues(ctx) })
	wait.Go(func() { k.wakeHalted(ctx) })
	wait.Wait()
}

// regularly does something about every so often, not all orchestrators at the same moment. Failing
// is not the end.
func (k *keeper) regularly(ctx context.Context, every time.Duration, what string, do func(context.Context) error) {
	failed := false
	for first := true; ; first = false {
		wait := every/2 + k.o.config.Jitter(what, every/2)
		if first {
			wait = k.o.config.Jitter(what, min(every/10, time.Second))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			k.o.log.Warn(what+" failed; trying again", "error", err)
		}
		if err == nil && failed {
			k.o.log.Info(what + " works again")
		}
		failed = err != nil
	}
}

func (k *keeper) sweep(ctx context.Context) error {
	_, err := k.sweeper.Sweep(ctx)
	return err
}

// heal looks after instances that are overdue.
func (k *keeper) heal(ctx context.Context) error {
	healed, err := k.healer.Overdue(ctx, k.o.config.SweepLimit)
	if healed.Instances > 0 {
		k.o.log.Debug("looked after overdue instances", "instances", healed.Instances, "messages", healed.Messages)
	}
	return err
}

// tidy erases what deletions have left behind.
func (k *keeper) tidy(ctx context.Context) error {
	for {
		more, err := k.o.store.Tidy(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// wakeHalted has halted instances tried again whose code this orchestrator brings: it may fit now.
// It is done once, because the code does not change while the process lives.
func (k *keeper) wakeHalted(ctx context.Context) {
	page := history.Page{}
	for ctx.Err() == nil {
		list, err := k.o.store.List(ctx, history.Filter{Statuses: []round.Status{round.Halted}}, page)
		var wires []events.Wire
		for _, x := range list.Instances {
			if _, known := k.o.config.Round.Code.Lookup(x.Name, x.Version); !known {
				continue
			}
			if w, err := events.Encode(k.o.broker.Prefix(),
				events.Message{Instance: x.Instance, Content: &events.Wake{Reason: "deployed"}}); err == nil {
				wires = append(wires, w)
			}
		}
		if err == nil {
			err = k.o.broker.Publish(ctx, wires...)
		}
		if err != nil {
			if ctx.Err() == nil {
				k.o.log.Warn("halted instances could not be woken; they are tried again in their time", "error", err)
			}
			return
		}
		if page.Cursor = list.Next; list.Next == "" {
			return
		}
	}
}

// healSchedules gives the broker what it has lost of schedules.
func (k *keeper) healSchedules(ctx context.Context) error {
	n, err := k.o.broker.HealSchedules(ctx)
	if n > 0 {
		k.o.log.Warn("the broker had lost schedules; they go on", "schedules", n)
	}
	return err
}

// alone does something only if no other orchestrator is doing it.
func (k *keeper) alone(lease string, do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		owner, err := k.o.broker.Claim(ctx, lease, k.o.config.ID)
		if err != nil || owner != k.o.config.ID {
			return err
		}
		defer k.release(lease)
		doing, stop := context.WithCancel(ctx)
		defer stop()
		go k.renew(doing, lease)
		return do(doing)
	}
}

// renew keeps a lease while something is done under it.
func (k *keeper) renew(ctx context.Context, lease string) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := k.o.broker.Claim(ctx, lease, k.o.config.ID); err != nil && ctx.Err() == nil {
				k.o.log.Debug("a lease could not be renewed; another orchestrator may do the same thing", "lease",
					lease, "error", err)
			}
		}
	}
}

func (k *keeper) release(lease string) {
	k.o.aside(func(ctx context.Context) {
		if err := k.o.broker.Release(ctx, lease, k.o.config.ID); err != nil {
			k.o.log.Debug("a lease was not given back; it ends by itself", "lease", lease, "error", err)
		}
	})
}

// removeEnded removes instances that ended long ago.
func (k *keeper) removeEnded(ctx context.Context) error {
	before := time.Now().Add(-k.o.config.KeepEnded)
	filter := history.Filter{EndedBefore: before, RootsOnly: true,
		Statuses: []round.Status{round.Completed, round.Failed, round.Cancelled, round.Terminated}}
	page := history.Page{}
	var removed int64
	for {
		got, err := k.o.store.DeleteEnded(ctx, filter, page)
		removed += got.Instances
		if err != nil || got.Next == "" {
			if removed > 0 {
				k.o.log.Info("removed instances that ended long ago", "instances", removed)
			}
			return err
		}
		page.Cursor = got.Next
	}
}

// prune removes former executions.
func (k *keeper) prune(ctx context.Context) error {
	last, before := k.o.config.KeepExecutions, time.Now().Add(-k.o.config.KeepFormerFor)
	page := history.Page{}
	var removed int64
	for {
		got, err := k.o.store.PruneAll(ctx, history.Filter{}, history.Keep{Last: last, EndedBefore: before}, page)
		removed += got.Executions
		if err != nil || got.Next == "" {
			if removed > 0 {
				k.o.log.Info("removed former executions", "executions", removed)
			}
			return err
		}
		page.Cursor = got.Next
	}
}

// begin marks a broker that is as new as the database: it has lost nothing.
func (k *keeper) begin(ctx context.Context) error {
	marked, err := k.o.broker.Marked(ctx, recoveredMark)
	if err != nil || marked {
		return err
	}
	n, err := k.o.store.Count(ctx, history.Filter{}, 1)
	if err != nil || n > 0 {
		return err
	}
	return k.o.broker.SetMark(ctx, recoveredMark)
}

// recover gives a broker that has lost everything what it should have. A new one gets the same
// treatment, which then is soon over.
func (k *keeper) recover(ctx context.Context) error {
	marked, err := k.o.broker.Marked(ctx, recoveredMark)
	if err != nil {
		if repairErr := k.o.broker.Repair(ctx); repairErr != nil {
			return errors.Join(err, repairErr)
		}
		k.o.log.Warn("what was missing in the broker was made again", "error", err)
		marked, err = k.o.broker.Marked(ctx, recoveredMark)
	}
	if err != nil || marked {
		return err
	}
	return k.alone(recoverLease, func(ctx context.Context) error {
		healed, err := k.healer.All(ctx)
		if err != nil {
			return err
		}
		if healed.Messages > 0 {
			k.o.log.Warn("the broker had lost its messages; published what the running instances wait for", "instances",
				healed.Instances, "messages", healed.Messages)
		}
		return k.o.broker.SetMark(ctx, recoveredMark)
	})(ctx)
}
