package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

// A schedule is stored in a bucket, and, unless it is paused, as a message that the broker publishes again and again. The bucket counts: what it has and the stream has
// not is healed.

var _ bus.Schedules = (*Bus)(nil)

// bucketTries is how often the bucket is looked for once more by who may not make it, every bucketAgain.
const (
	bucketTries = 10
	bucketAgain = 200 * time.Millisecond
)

// scheduleBucket is the bucket's name.
func (b *Bus) scheduleBucket() string { return b.names.inbox + "_SCHEDULES" }

// schedules opens the bucket. It is made when it is needed first, or when the orchestrators heal schedules: few systems have any.
func (b *Bus) schedules(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, b.scheduleBucket())
	if !errors.Is(err, jetstream.ErrBucketNotFound) || b.config.Setup != Make {
		return kv, err
	}
	s := setup{b: b, replicas: b.config.Replicas}
	if is := b.there.Load(); is != nil && is.inbox != nil && s.replicas == 0 {
		s.replicas = is.inbox.CachedInfo().Config.Replicas
	}
	kv = s.bucket(ctx, b.scheduleBucket(), "what is started again and again", 0)
	return kv, errors.Join(s.errs...)
}

// PutSchedule implements bus.Schedules.
func (b *Bus) PutSchedule(ctx context.Context, s bus.Schedule) error {
	what := "store schedule " + s.ID
	if s.ID == "" || s.Pattern == "" || strings.HasPrefix(s.Pattern, "@at ") {
		return fmt.Errorf("nats: %s: it needs an id, and a pattern that comes again", what)
	}
	kv, err := b.schedules(ctx)
	for try := 0; try < bucketTries && errors.Is(err, jetstream.ErrBucketNotFound); try++ { // an orchestrator that has just started is about to make it
		select {
		case <-time.After(bucketAgain):
		case <-ctx.Done():
			return problem(what, context.Cause(ctx))
		}
		kv, err = b.schedules(ctx)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("nats: %s: bucket %s is missing, and may not be made from here; an orchestrator makes it when it starts", what, b.scheduleBucket())
	}
	if err != nil {
		return problem(what, err)
	}
	before, err := b.schedule(ctx, kv, keyOf(s.ID))
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return problem(what, err)
	}
	existed := err == nil
	if err := storeSchedule(ctx, kv, s); err != nil {
		return problem(what, err)
	}
	if s.Paused {
		err = b.stopSchedule(ctx, s)
	} else {
		err = b.runSchedule(ctx, s)
	}
	var refused *bus.Refused
	if errors.As(err, &refused) {
		if existed {
			return errors.Join(err, problem(what, storeSchedule(ctx, kv, before)))
		}
		return errors.Join(err, problem(what, kv.Purge(ctx, keyOf(s.ID))))
	}
	if err == nil && existed && before.Message.Subject != s.Message.Subject {
		err = b.stopSchedule(ctx, before)
	}
	return problem(what, err)
}

// schedule reads a schedule.
func (b *Bus) schedule(ctx context.Context, kv jetstream.KeyValue, key string) (s bus.Schedule, err error) {
	e, err := kv.Get(ctx, key)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(e.Value(), &s); err != nil {
		return s, fmt.Errorf("the schedule under key %q cannot be read: %w", key, err)
	}
	return s, nil
}

func storeSchedule(ctx context.Context, kv jetstream.KeyValue, s bus.Schedule) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, keyOf(s.ID), data)
	return err
}

// runSchedule lets the broker publish.
func (b *Bus) runSchedule(ctx context.Context, s bus.Schedule) error {
	m := &nats.Msg{Subject: b.later(s.Message.Subject), Header: make(nats.Header, len(s.Message.Header)+4), Data: s.Message.Body}
	for k, v := range s.Message.Header {
		m.Header[k] = v
	}
	delete(m.Header, nats.MsgIdHdr) // what is published each time is not the same
	m.Header["Nats-Schedule"] = []string{s.Pattern}
	m.Header["Nats-Schedule-Target"] = []string{s.Message.Subject}
	m.Header["Nats-Rollup"] = []string{"sub"}
	if s.Zone != "" {
		m.Header["Nats-Schedule-Time-Zone"] = []string{s.Zone}
	}
	_, err := b.js.PublishMsg(ctx, m)
	if err != nil && permanent(err) {
		return &bus.Refused{Messages: []events.Wire{s.Message}, Reasons: []error{err}}
	}
	return err
}

// stopSchedule takes the message back.
func (b *Bus) stopSchedule(ctx context.Context, s bus.Schedule) error {
	st, err := b.js.Stream(ctx, b.names.inbox)
	if err != nil {
		return err
	}
	return st.Purge(ctx, jetstream.WithPurgeSubject(b.later(s.Message.Subject)))
}

// Schedules implements bus.Schedules.
func (b *Bus) Schedules(ctx context.Context) ([]bus.Schedule, error) {
	kv, err := b.schedules(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, problem("list schedules", err)
	}
	keys, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, problem("list schedules", err)
	}
	var all []bus.Schedule
	var errs []error
	for key := range keys.Keys() {
		s, err := b.schedule(ctx, kv, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound): // it has just been removed
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(x, y bus.Schedule) int { return strings.Compare(x.ID, y.ID) })
	return all, problem("list schedules", errors.Join(errs...))
}

// DropSchedule implements bus.Schedules.
func (b *Bus) DropSchedule(ctx context.Context, id string) (found bool, err error) {
	kv, err := b.schedules(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return false, nil
	}
	if err != nil {
		return false, problem("remove schedule "+id, err)
	}
	s, err := b.schedule(ctx, kv, keyOf(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err == nil {
		err = b.stopSchedule(ctx, s)
	}
	if err == nil {
		err = kv.Purge(ctx, keyOf(id))
	}
	return true, problem("remove schedule "+id, err)
}

// HealSchedules implements bus.Schedules.
func (b *Bus) HealSchedules(ctx context.Context) (int, error) {
	all, err := b.Schedules(ctx)
	errs, healed := []error{err}, 0
	st, err := b.js.Stream(ctx, b.names.inbox)
	if err != nil {
		return 0, problem("heal schedules", errors.Join(append(errs, err)...))
	}
	for _, s := range all {
		if s.Paused {
			continue
		}
		_, err := st.GetLastMsgForSubject(ctx, b.later(s.Message.Subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if err = b.runSchedule(ctx, s); err == nil {
				healed++
				b.log.Info("NATS: a schedule was missing", "schedule", s.ID, "since", s.Changed.Format(time.RFC3339))
			}
		}
		errs = append(errs, err)
	}
	return healed, problem("heal schedules", errors.Join(errs...))
}
