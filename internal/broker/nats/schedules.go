package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// A schedule is a row of a bucket, and, unless it is paused, an entry in the stream of delayed
// messages: a message that NATS publishes repeatedly. The row is authoritative. An entry names the
// revision of the row that it was made from, and
//
//   - settleSchedule makes the entries of a row agree with it, and reads the row again afterwards,
//     because other processes may change it at the same time;
//   - the process that forwards a message of an entry drops it if the row has another revision by
//     then, or is paused, or gone. So a schedule that was paused or dropped starts nothing more, even
//     if its entry is still there;
//   - HealSchedules settles all rows, and all entries without one.

var _ broker.Schedules = (*Bus)(nil)

// schedules are the messages that NATS publishes repeatedly.
type schedules struct {
	*resources
	reader reader
}

// bucketTries is how often a process that may not create the bucket looks for it again, every
// bucketAgain.
const (
	bucketTries = 10
	bucketAgain = 200 * time.Millisecond
	// settleTries is how often settleSchedule compares the entries of a schedule while another
	// process changes it.
	settleTries = 10

	// headerRevision names the row of the bucket that an entry was made of, and headerSchedule its
	// key.
	headerRevision = "Rondo-Schedule-Revision"
	headerSchedule = "Rondo-Schedule"
)

// open opens the bucket. It is created at its first use, or when the orchestrators heal
// schedules: few systems have any.
func (ss *schedules) open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := ss.js.KeyValue(ctx, ss.scheduleBucket())
	if !errors.Is(err, jetstream.ErrBucketNotFound) || ss.plan.config.Setup != Make {
		return kv, err
	}
	s := setup{r: ss.resources, replicas: ss.plan.config.Replicas}
	if is := ss.there.Load(); is != nil && is.inbox != nil && s.replicas == 0 {
		s.replicas = is.inbox.CachedInfo().Config.Replicas
	}
	kv = s.bucket(ctx, ss.scheduleBucket(),
		ss.plan.bucketConfig(ss.scheduleBucket(), "what is started again and again", 0))
	return kv, errors.Join(s.errs...)
}

// row is a stored schedule.
type row struct {
	broker.Schedule
	revision uint64
}

// runs reports whether a schedule must have an entry.
func (r *row) runs() bool { return r != nil && !r.Paused }

// errForeignRow says that a row of the bucket is ignored: its key is that of another schedule, or
// of none.
var errForeignRow = errors.New("no schedule has written it")

// row returns a schedule; nil if there is none.
func (ss *schedules) row(ctx context.Context, kv jetstream.KeyValue, key string) (*row, error) {
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &row{revision: e.Revision()}
	if err := json.Unmarshal(e.Value(), &r.Schedule); err != nil {
		return nil, fmt.Errorf("the schedule under key %q cannot be read: %w", key, errors.Join(errForeignRow, err))
	}
	if keyOf(r.ID) != key {
		return nil, fmt.Errorf("the schedule under key %q is of id %q: %w", key, r.ID, errForeignRow)
	}
	return r, nil
}

func storeSchedule(ctx context.Context, kv jetstream.KeyValue, s broker.Schedule) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, keyOf(s.ID), data)
	return err
}

// PutSchedule implements broker.Schedules.
func (ss *schedules) PutSchedule(ctx context.Context, s broker.Schedule) error {
	what := "store schedule " + s.ID
	if s.ID == "" || s.Pattern == "" || strings.HasPrefix(s.Pattern, "@at ") {
		return fmt.Errorf("nats: %s: it needs an id, and a pattern that comes again", what)
	}
	if err := ss.canTake(s.Message.Subject); err != nil {
		return fmt.Errorf("nats: %s: subject %q: %w", what, s.Message.Subject, err)
	}
	kv, err := ss.open(ctx)
	for try := 0; try < bucketTries && errors.Is(err, jetstream.ErrBucketNotFound); try++ {
		// An orchestrator that has just started is about to create it.
		select {
		case <-time.After(bucketAgain):
		case <-ctx.Done():
			return problem(what, context.Cause(ctx))
		}
		kv, err = ss.open(ctx)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("nats: %s: bucket %s is missing, and may not be made from here; an orchestrator makes it "+
			"when it starts", what, ss.scheduleBucket())
	}
	if err != nil {
		return problem(what, err)
	}
	key := keyOf(s.ID)
	before, err := ss.row(ctx, kv, key)
	if err != nil && !errors.Is(err, errForeignRow) {
		return problem(what, err)
	}
	if err := storeSchedule(ctx, kv, s); err != nil {
		return problem(what, err)
	}
	_, err = ss.settleSchedule(ctx, kv, key)
	var refused *broker.Refused
	switch {
	case errors.As(err, &refused): // restore the earlier schedule
		if before != nil {
			err = errors.Join(err, problem(what, storeSchedule(ctx, kv, before.Schedule)))
		} else {
			err = errors.Join(err, problem(what, kv.Purge(ctx, key)))
		}
		if _, undo := ss.settleSchedule(ctx, kv, key); undo != nil {
			err = errors.Join(err, problem(what, undo))
		}
		return err
	case err != nil:
		return problem(what+": it is stored, and an orchestrator applies it within a minute", err)
	}
	return nil
}

// settleSchedule makes the entries of a schedule agree with its row, and reports whether they did
// not.
func (ss *schedules) settleSchedule(ctx context.Context, kv jetstream.KeyValue, key string) (changed bool, err error) {
	st, err := ss.laterStream()
	if err != nil {
		return false, err
	}
	for range settleTries {
		want, err := ss.row(ctx, kv, key)
		if err != nil && !errors.Is(err, errForeignRow) {
			return changed, err
		}
		entry, err := ss.reader.lastOf(ctx, ss.names.later, ss.entriesOf(key))
		if err != nil {
			return changed, err
		}
		if agrees(want, entry) {
			return changed, nil
		}
		changed = true
		if want.runs() {
			err = ss.enterSchedule(ctx, st, key, want)
		} else {
			err = st.Purge(ctx, jetstream.WithPurgeSubject(ss.entriesOf(key)))
		}
		if err != nil {
			return changed, err
		}
	}
	return changed, errors.New("somebody else keeps changing it")
}

// agrees reports whether an entry is that of a row; nil stands for none.
func agrees(want *row, entry *found) bool {
	if !want.runs() || entry == nil {
		return !want.runs() && entry == nil
	}
	h, err := entry.header()
	return err == nil && h.Get(headerRevision) == strconv.FormatUint(want.revision, 10)
}

// enterSchedule stores the entry of a schedule, and removes earlier ones.
func (ss *schedules) enterSchedule(ctx context.Context, st jetstream.Stream, key string, s *row) error {
	m := &nats.Msg{Subject: ss.entrySubject(s.Schedule), Header: nats.Header(broker.Carry(s.Message.Header)),
		Data: s.Message.Body}
	delete(m.Header, events.HeaderMsgID) // each message that NATS publishes is a new one
	m.Header["Nats-Schedule"] = []string{s.Pattern}
	m.Header[scheduleTarget] = []string{ss.dueOf(s.Message.Subject)}
	m.Header["Nats-Rollup"] = []string{"sub"}
	m.Header[headerSchedule] = []string{key}
	m.Header[headerRevision] = []string{strconv.FormatUint(s.revision, 10)}
	if s.Zone != "" {
		m.Header["Nats-Schedule-Time-Zone"] = []string{s.Zone}
	}
	_, err := ss.js.PublishMsg(ctx, m)
	if err != nil && permanent(err) && !misconfigured(err) {
		return &broker.Refused{Messages: []events.Wire{s.Message}, Reasons: []error{err}}
	}
	if err != nil {
		return err
	}
	return st.Purge(ctx, jetstream.WithPurgeSubject(ss.entriesOf(key)), jetstream.WithPurgeKeep(1))
}

// isCurrent reports whether a message was published from the present entry of a schedule that runs.
func (ss *schedules) isCurrent(ctx context.Context, h nats.Header) (bool, error) {
	kv, err := ss.js.KeyValue(ctx, ss.scheduleBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s, err := ss.row(ctx, kv, h.Get(headerSchedule))
	if errors.Is(err, errForeignRow) || errors.Is(err, jetstream.ErrInvalidKey) {
		return false, nil
	}
	return s.runs() && h.Get(headerRevision) == strconv.FormatUint(s.revision, 10), err
}

// Schedules implements broker.Schedules.
func (ss *schedules) Schedules(ctx context.Context) ([]broker.Schedule, error) {
	kv, err := ss.open(ctx)
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
	var all []broker.Schedule
	var errs []error
	for key := range keys.Keys() {
		switch s, err := ss.row(ctx, kv, key); {
		case errors.Is(err, errForeignRow):
			ss.log.Warn("NATS: unreadable entry in the bucket of schedules ignored", "schedule", key, "error", err)
		case err != nil:
			errs = append(errs, err)
		case s != nil: // it was not removed just now
			all = append(all, s.Schedule)
		}
	}
	slices.SortFunc(all, func(x, y broker.Schedule) int { return strings.Compare(x.ID, y.ID) })
	return all, problem("list schedules", errors.Join(errs...))
}

// DropSchedule implements broker.Schedules.
func (ss *schedules) DropSchedule(ctx context.Context, id string) (found bool, err error) {
	what, key := "remove schedule "+id, keyOf(id)
	kv, err := ss.open(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return false, nil
	}
	if err != nil {
		return false, problem(what, err)
	}
	s, err := ss.row(ctx, kv, key)
	found = s != nil || errors.Is(err, errForeignRow)
	if err != nil && !found {
		return false, problem(what, err)
	}
	if found {
		if err := kv.Purge(ctx, key); err != nil {
			return true, problem(what, err)
		}
	}
	// An entry may be left even if there was no row.
	_, err = ss.settleSchedule(ctx, kv, key)
	return found, problem(what, err)
}

// HealSchedules implements broker.Schedules.
func (ss *schedules) HealSchedules(ctx context.Context) (int, error) {
	all, err := ss.Schedules(ctx)
	errs, healed := []error{err}, 0
	kv, err := ss.open(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return 0, problem("heal schedules", errors.Join(errs...))
	}
	if err != nil {
		return 0, problem("heal schedules", errors.Join(append(errs, err)...))
	}
	keys, err := ss.entryKeys(ctx)
	errs = append(errs, err)
	for _, s := range all {
		keys[keyOf(s.ID)] = true
	}
	for key := range keys {
		changed, err := ss.settleSchedule(ctx, kv, key)
		if errs = append(errs, err); changed && err == nil {
			healed++
			ss.log.Info("NATS: schedule settled: its entry was missing, or was not that of its row", "schedule", key)
		}
	}
	return healed, problem("heal schedules", errors.Join(errs...))
}

// entryKeys returns the keys of all entries.
func (ss *schedules) entryKeys(ctx context.Context) (map[string]bool, error) {
	keys := make(map[string]bool)
	st, err := ss.laterStream()
	if err != nil {
		return keys, err
	}
	begin := ss.subject("later", "schedule") + "."
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(begin+">"))
	if err != nil {
		return keys, err
	}
	for subject := range info.State.Subjects {
		key, _, _ := strings.Cut(strings.TrimPrefix(subject, begin), ".")
		keys[key] = true
	}
	return keys, nil
}
