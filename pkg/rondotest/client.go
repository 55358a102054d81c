package rondotest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// outside is the client of an environment.
type outside struct {
	system *system
	ids    int
}

// Publish implements [orchestration.Client].
func (o *outside) Publish(ctx context.Context, messages ...events.Message) error {
	for _, m := range messages {
		o.system.broker.publish(withBaggage(ctx, m))
	}
	return nil
}

// Deliver implements [orchestration.Client]: it lets the system run until it is known what became
// of the message.
func (o *outside) Deliver(ctx context.Context, m events.Message) (orchestration.Receipt, error) {
	if m.ID == "" {
		return orchestration.Receipt{}, errors.New("rondotest: a message that is to be delivered needs an id")
	}
	known := o.system.report.decided
	delete(known, m.ID)
	o.system.broker.publish(withBaggage(ctx, m))
	if err := o.system.runUntil(ctx, m.Instance, func() bool { _, ok := known[m.ID]; return ok }); err != nil {
		return orchestration.Receipt{}, err
	}
	r := known[m.ID]
	taken := r.Verdict == round.Accepted || r.Reason == round.Duplicate || r.Reason == round.Woken
	return orchestration.Receipt{Taken: taken, Reason: string(r.Reason), Detail: r.Detail,
		Status: string(r.status)}, nil
}

// Outcome implements [orchestration.Client]: it lets the system run until the instance has ended,
// skipping the time in which nothing happens.
func (o *outside) Outcome(ctx context.Context, id, start string) (orchestration.Outcome, error) {
	ended := func() bool {
		return o.system.store.ended(id) && (start == "" || o.system.report.decided[start].Verdict != 0)
	}
	if err := o.system.runUntil(ctx, id, ended); err != nil {
		return orchestration.Outcome{}, err
	}
	row := o.system.store.instances[id].row
	return orchestration.Outcome{Output: row.Output, Error: row.Error, Orchestration: row.Name,
		Execution: row.Execution}, nil
}

// ReadValue implements [orchestration.Client]. It reads what the store has, and lets nothing run.
func (o *outside) ReadValue(ctx context.Context, id, key string) (codec.Payload, bool, error) {
	data, ok := o.system.store.value(id, key)
	return data, ok, ctx.Err()
}

// WaitForValue implements [orchestration.Client]: it lets the system run until the instance has the
// value, skipping the time in which nothing happens.
func (o *outside) WaitForValue(ctx context.Context, id, key string) (codec.Payload, error) {
	if err := errors.Join(events.CheckInstance(id), events.CheckText("key", key)); err != nil {
		return nil, err
	}
	has := func() bool { _, ok := o.system.store.value(id, key); return ok }
	err := o.system.runUntil(ctx, id, func() bool { return has() || o.system.store.ended(id) })
	if err != nil {
		return nil, err
	}
	data, ok := o.system.store.value(id, key)
	if !ok {
		return nil, fmt.Errorf("instance %q, value %q: %w (%s)", id, key, orchestration.ErrNoValue,
			o.system.store.instances[id].row.Status)
	}
	return data, nil
}

// ReadStatus implements [orchestration.Client]. It reads what the store has, and lets nothing run.
func (o *outside) ReadStatus(ctx context.Context, id string) (orchestration.CustomStatus, error) {
	row, _ := o.row(id)
	return orchestration.CustomStatus{Data: row.CustomStatus, Version: row.CustomStatusVersion}, ctx.Err()
}

// WatchStatus implements [orchestration.Client]: between the statuses it lets the system run,
// skipping the time in which nothing happens.
func (o *outside) WatchStatus(ctx context.Context, id string) iter.Seq2[orchestration.CustomStatus, error] {
	return func(yield func(orchestration.CustomStatus, error) bool) {
		var seen orchestration.CustomStatus
		var incarnation string
		for {
			var row round.Row
			changed := func() bool {
				row, _ = o.row(id)
				return row.CustomStatusVersion > seen.Version || row.Incarnation != incarnation &&
					row.CustomStatusVersion > 0
			}
			err := events.CheckInstance(id)
			if err == nil {
				err = o.system.runUntil(ctx, id, func() bool { return changed() || o.system.store.ended(id) })
			}
			if err != nil {
				yield(orchestration.CustomStatus{}, err)
				return
			}
			if !changed() {
				return
			}
			seen = orchestration.CustomStatus{Data: row.CustomStatus, Version: row.CustomStatusVersion}
			incarnation = row.Incarnation
			if !yield(seen, nil) {
				return
			}
		}
	}
}

// NewID implements [orchestration.Client].
func (o *outside) NewID() string {
	o.ids++
	return fmt.Sprintf("id-%d", o.ids)
}

// Now implements [orchestration.Client]. It is the virtual time.
func (o *outside) Now() time.Time { return o.system.queue.now }

// Codec implements [orchestration.Client].
func (o *outside) Codec() codec.Codec { return o.system.settings.codec() }

func (o *outside) row(id string) (round.Row, bool) {
	in := o.system.store.instances[id]
	if in == nil || in.row.Execution == 0 {
		return round.Row{}, false
	}
	return in.row, true
}
