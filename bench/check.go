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

// This file is what must be true of a run: a result that is not correct is none.

// check ends the services, completes what only then can be read, and looks at all that was stored.
func (r *run) check(ctx context.Context, v variant) error {
	// What a killed process has promised, others publish a while later, whether it is still needed
	// or not.
	err := r.await(ctx, time.Second/10, "nothing is in the outbox", func() (bool, error) {
		n, err := r.store.CountPromises(ctx, 1)
		return n == 0, err
	})
	if err != nil {
		return err
	}
	r.endServices()
	c, err := r.database.read(ctx)
	if err != nil {
		return err
	}
	if r.result.counted {
		r.result.Transactions += c.transactions
		r.result.Rows += c.rows
		r.result.Syncs += c.flushes
		r.result.Logged += c.logged
		r.result.Pages += c.pages
	}
	if err := r.checkOutputs(ctx); err != nil {
		return err
	}
	return r.checkHistories(ctx, v)
}

// checkOutputs compares the end of each instance with what it must be.
func (r *run) checkOutputs(ctx context.Context) error {
	seen := 0
	err := eachInstance(ctx, r.store, func(info history.Info) error {
		seen++
		return r.checkOutput(info)
	})
	if err != nil {
		return err
	}
	if seen != r.driver.all.n {
		return fmt.Errorf("%d instances were started, and %d are stored", r.driver.all.n, seen)
	}
	return nil
}

func (r *run) checkOutput(info history.Info) error {
	i := r.driver.all.of(info.Instance)
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

// checkHistories lets the checker look at all histories and at what the client was promised.
func (r *run) checkHistories(ctx context.Context, v variant) error {
	store, ok := r.store.(check.Store)
	if !ok {
		return errors.New("this database cannot be checked")
	}
	promised := check.Promises{Name: "driver", Each: r.driver.all.promised}
	report, err := check.System(ctx, store, check.Options{Promises: []check.Promises{promised}, NothingRemoved: true,
		Quiescent: !v.leavesOpen, Prefix: r.prefix(), Dir: r.dir})
	if err == nil {
		err = report.Err()
	}
	if err == nil && report.Instances != int64(r.driver.all.n) {
		err = fmt.Errorf("it has looked at %d instances of %d", report.Instances, r.driver.all.n)
	}
	if err != nil {
		return fmt.Errorf("the checker: %w", err)
	}
	return nil
}
