package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file checks that a run was correct: an incorrect run has no result.

// check ends the services, reads the counters that are complete only then, and checks all that was
// stored.
func (r *run) check(ctx context.Context, v variant) error {
	// The outbox entries of a killed process are published a while later by other orchestrators,
	// whether their messages are still needed or not.
	err := r.await(ctx, time.Second/10, "nothing is in the outbox", func() (bool, error) {
		n, err := r.store.CountOutbox(ctx, 1)
		return n == 0, err
	})
	if err != nil {
		return err
	}
	r.endServices()
	_, counts, err := r.database.read(ctx)
	if err != nil {
		return err
	}
	if r.result.counted {
		r.result.databaseCounts = counts.since(r.countsBefore)
	}
	o := oracle{store: r.store, all: r.driver.all, prefix: r.prefix(), dir: r.dir}
	if err := o.checkOutputs(ctx); err != nil {
		return err
	}
	return o.checkHistories(ctx, !v.leavesOpen)
}

// oracle compares what a system has stored with what the driver started. Nothing runs any more.
type oracle struct {
	store  history.Store
	all    *instances // that were started
	prefix string     // of the subjects of NATS
	dir    string     // for the checker's files
}

// checkOutputs compares the end of each instance with what it must be.
func (o *oracle) checkOutputs(ctx context.Context) error {
	seen := 0
	err := eachInstance(ctx, o.store, func(info history.Info) error {
		seen++
		return o.checkOutput(info)
	})
	if err != nil {
		return err
	}
	if want := o.all.n + o.all.scheduled; seen != want {
		return fmt.Errorf("%d instances were started, and %d are stored", want, seen)
	}
	return nil
}

func (o *oracle) checkOutput(info history.Info) error {
	i := o.all.of(info.Instance)
	if i == nil && o.all.scheduled > 0 {
		i = &instance{count: 1, ended: 1} // of a schedule
	}
	if i == nil {
		return fmt.Errorf("nobody has started %s", info.Instance)
	}
	if i.open && i.ended == 0 {
		if info.Status != round.Running {
			return fmt.Errorf("%s is %s (%v); it should be waiting", info.Instance, info.Status, info.Error)
		}
		return nil
	}
	var got echoed
	if info.Status == round.Completed {
		if err := json.Unmarshal(info.Output, &got); err != nil {
			return fmt.Errorf("the output of %s: %w", info.Instance, err)
		}
	}
	if want := i.want(); got != want {
		return fmt.Errorf("%s is %s with %+v (%v); it should have completed with %+v", info.Instance, info.Status, got,
			info.Error, want)
	}
	return nil
}

// checkHistories lets the checker compare all histories with the starts that were acknowledged. If
// quiescent, each instance has ended.
func (o *oracle) checkHistories(ctx context.Context, quiescent bool) error {
	store, ok := o.store.(check.Store)
	if !ok {
		return errors.New("this database cannot be checked")
	}
	acks := check.Acknowledgements{Name: "driver", Each: o.all.promised}
	report, err := check.System(ctx, store, check.Options{Acknowledgements: []check.Acknowledgements{acks},
		NothingRemoved: true,
		Quiescent:      quiescent, Prefix: o.prefix, Dir: o.dir})
	if err == nil {
		err = report.Err()
	}
	if err == nil && report.Instances != int64(o.all.n+o.all.scheduled) {
		err = fmt.Errorf("it has looked at %d instances of %d", report.Instances, o.all.n+o.all.scheduled)
	}
	if err != nil {
		return fmt.Errorf("the checker: %w", err)
	}
	return nil
}
