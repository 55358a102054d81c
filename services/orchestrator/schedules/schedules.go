// Package schedules starts the runs of schedules at their times. A schedule is a row of the
// database. Package schedule decides; this package reads rows, asks, and commits.
//
//	look ──► due rows ──► statuses of runs ──► decide ──► commit ──► publish
//
// # Once
//
// The transaction that changes the row of a schedule stores the starts of its runs as outbox
// entries, and it is refused if another orchestrator has changed the row before. So each occurrence
// is started once, whatever number of orchestrators look at the same row.
//
// # Order of effects
//
//   - A run is in the row BEFORE its start is published.
//   - A start that the broker has lost is published again, with the same id, until there is an
//     instance: the row has each run that was not seen yet.
//
// # Several orchestrators
//
// The orchestrator that owns the partition number of a schedule's id looks at it in time. The
// others stand in for it a moment later, and mostly find the row changed by then.
package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
)

// Store is the part of the store that schedules need.
type Store interface {
	history.Schedules
	history.Bounded
	Tombstones(ctx context.Context, instances []string) ([]string, error)
}

// Publisher publishes the messages of commits.
type Publisher interface {
	Publish(ctx context.Context, x outbox.Committed) error
}

// Config configures a [Manager].
type Config struct {
	// Prefix begins the subjects of messages.
	Prefix string
	// Now returns the time once runs may be started.
	Now func(ctx context.Context) (time.Time, error)
	// First reports whether this orchestrator looks at a schedule before the others do.
	First func(number uint32) bool
	// CheckStart reports whether the code of a start is here, and why its input would fail the
	// instance. Members are the orchestrators that are running.
	CheckStart func(s *events.Start) (known bool, bad *failure.Error)
	Members    func() []broker.Member
	// Has reports whether the broker has a message that is not acknowledged.
	Has     func(ctx context.Context, message events.Wire) (bool, error)
	Metrics *telemetry.ScheduleMetrics
	Log     *slog.Logger
}

const (
	// readEvery is the interval of reading the schedules that are due.
	readEvery = 5 * time.Second
	// standInAfter is how long the other orchestrators leave a due schedule to the first one.
	standInAfter = 2 * time.Second
	// dueAtOnce bounds the schedules that are read at once, and inFlight those that are looked at
	// at the same time.
	dueAtOnce = 500
	inFlight  = 8
	// dueBytes is the size of the data from which a store may have left out schedules.
	dueBytes = 4 << 20
	// lookWithin bounds a reading, and a look at one schedule; againAfter is the delay after one
	// that failed.
	lookWithin = 10 * time.Second
	againAfter = time.Second
	// unreadableEvery is the interval of logs of rows that cannot be read.
	unreadableEvery = time.Minute
)

// Manager looks after the schedules.
type Manager struct {
	config    Config
	store     Store
	publisher Publisher
	log       *slog.Logger

	unreadable rate.Sometimes
	untold     rate.Sometimes // limits the logs of a fault that lasts
	changed    signal.Signal

	mu     sync.Mutex
	known  map[string]due  // the schedules that are due before the next reading, by id
	looks  map[string]bool // those that are looked at just now
	until  time.Time       // up to which they are known
	unread bool            // the last reading has failed
	since  time.Time       // when the fault began; zero if there is none
	fault  error           // the last one
}

// due is a schedule that is to be looked at.
type due struct {
	row    history.Schedule
	at     time.Time
	failed bool // the last look has
}

// New returns a manager.
func New(store Store, publisher Publisher, c Config) *Manager {
	return &Manager{config: c, store: store, publisher: publisher, log: c.Log, changed: signal.New(),
		unreadable: rate.Sometimes{First: 1, Interval: unreadableEvery},
		untold:     rate.Sometimes{Interval: unreadableEvery}, known: make(map[string]due),
		looks: make(map[string]bool)}
}

// Run starts runs at their times until the context ends.
func (m *Manager) Run(ctx context.Context) {
	var read time.Time // the next time
	timer := time.NewTimer(0)
	defer timer.Stop()
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		select {
		case <-timer.C:
		case <-m.changed:
		case <-ctx.Done():
			return
		}
		now, err := m.config.Now(ctx)
		if err != nil {
			return // the context has ended
		}
		if !now.Before(read) || read.Sub(now) > readEvery {
			read, err = m.read(ctx, now)
		}
		m.fire(ctx, now, &looks)
		if ctx.Err() != nil {
			return
		}
		m.judge(err)
		if now, err = m.config.Now(ctx); err != nil {
			return
		}
		timer.Reset(max(0, m.next(read).Sub(now)))
	}
}

// judge notes whether all that was due could be done. A fault lasts until each schedule that it has
// held up was looked at.
func (m *Manager) judge(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lasts := m.unread
	for _, d := range m.known {
		lasts = lasts || d.failed
	}
	switch {
	case err != nil:
		if m.fault = err; m.since.IsZero() {
			m.since, m.untold = time.Now(), rate.Sometimes{Interval: unreadableEvery}
		}
		m.untold.Do(func() { m.log.Warn("runs of schedules could not be started; trying again", "error", err) })
	case !lasts && !m.since.IsZero():
		m.since, m.fault = time.Time{}, nil
		m.log.Info("runs of schedules can be started again")
	}
}

// faultLasts is how long a fault may last before Err returns it.
const faultLasts = 5 * time.Second

// Err returns the error of the store that keeps runs from being started. An error of a schedule
// itself is none.
func (m *Manager) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ofStore *history.Error
	if m.since.IsZero() || time.Since(m.since) <= faultLasts || !errors.As(m.fault, &ofStore) {
		return nil
	}
	return fmt.Errorf("runs of schedules could not be started since %s: %w", m.since.UTC().Format(time.RFC3339),
		m.fault)
}

// read reads the schedules that are due soon, and returns when to read again.
func (m *Manager) read(ctx context.Context, now time.Time) (again time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	until := now.Add(readEvery)
	rows, err := m.store.DueSchedules(ctx, until, dueAtOnce)
	m.mu.Lock()
	m.unread = err != nil
	m.mu.Unlock()
	if err != nil {
		return now.Add(againAfter), err
	}
	size := 0
	for _, row := range rows {
		size += len(row.Data)
	}
	if len(rows) == dueAtOnce || size > dueBytes { // there may be others, which are read when these are done
		until = rows[len(rows)-1].WakeAt
	}
	m.mu.Lock()
	m.until = until
	m.mu.Unlock()
	for _, row := range rows {
		m.note(row, m.config.First(number(row.ID)))
	}
	return until, nil
}

// number assigns a schedule to one of the orchestrators.
func number(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it cannot fail
	return h.Sum32()
}

// note remembers a row that is due before the next reading.
func (m *Manager) note(row history.Schedule, first bool) {
	at := row.WakeAt
	if !first {
		at = at.Add(standInAfter)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if row.WakeAt.IsZero() || row.WakeAt.After(m.until) {
		delete(m.known, row.ID)
		return
	}
	if is, ok := m.known[row.ID]; ok && is.row.Version == row.Version && is.at.Before(at) {
		return // it was put here
	}
	m.known[row.ID] = due{row: row, at: at}
}

// forget forgets a row that is not current any more.
func (m *Manager) forget(row history.Schedule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is, ok := m.known[row.ID]; ok && is.row.Version == row.Version {
		delete(m.known, row.ID)
	}
}

// postpone has a row looked at later.
func (m *Manager) postpone(row history.Schedule, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is, ok := m.known[row.ID]; ok && is.row.Version == row.Version {
		m.known[row.ID] = due{row, until, true}
	}
}

// next returns when something is to be done: the next reading, or a schedule that is due before.
func (m *Manager) next(read time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.looks) == inFlight {
		return read // the end of one wakes Run
	}
	for id, d := range m.known {
		if d.at.Before(read) && !m.looks[id] {
			read = d.at
		}
	}
	return read
}

// fire begins to look at the schedules that are due, as many as may be in flight. It does not wait
// for them: one that is slow must not delay the others.
func (m *Manager) fire(ctx context.Context, now time.Time, looks *sync.WaitGroup) {
	began := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var rows []history.Schedule
	for id, d := range m.known {
		if !d.at.After(now) && !m.looks[id] {
			rows = append(rows, d.row)
		}
	}
	slices.SortFunc(rows, func(x, y history.Schedule) int {
		return cmp.Or(x.WakeAt.Compare(y.WakeAt), cmp.Compare(x.ID, y.ID))
	})
	for _, row := range rows[:min(len(rows), inFlight-len(m.looks))] {
		m.looks[row.ID] = true
		looks.Go(func() {
			err := m.lookAt(ctx, now, began, row)
			if err != nil {
				m.postpone(row, now.Add(againAfter))
			}
			m.looked(row.ID)
			if ctx.Err() == nil {
				m.judge(err)
			}
		})
	}
}

// looked notes the end of a look.
func (m *Manager) looked(id string) {
	m.mu.Lock()
	delete(m.looks, id)
	m.mu.Unlock()
	m.changed.Set()
}

// lookAt starts the runs of a schedule that are due. Its time is now, which was read when this look
// and those before it began.
func (m *Manager) lookAt(ctx context.Context, now, began time.Time, row history.Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	state, err := schedule.Decode(row.Data)
	if err != nil {
		m.forget(row)
		m.unreadable.Do(func() {
			m.log.Error("schedule cannot be read, and starts nothing: put it again, or delete it", "schedule", row.ID,
				"error", err)
		})
		return nil
	}
	is, err := m.statuses(ctx, state, state.Asks(now))
	if err != nil {
		return fmt.Errorf("schedule %s: read the statuses of its runs: %w", row.ID, err)
	}
	effects := m.withoutPending(ctx, row, state, state.Step(row.ID, now, is))
	changed, err := m.commit(ctx, now, began, row, state, effects)
	if err != nil || changed {
		return err
	}
	m.forget(row) // another orchestrator was faster
	row, ok, err := m.store.Schedule(ctx, row.ID)
	if err == nil && ok {
		m.note(row, false)
	}
	return err
}

// isAgain reports whether a start was sent before.
func isAgain(r schedule.Run) bool { return !r.Sent.Equal(r.StartedAt) }

// withoutPending leaves out starts that were sent before and wait in the broker: nothing has the
// code, for example. If the broker does not answer, it leaves them out until the next time.
func (m *Manager) withoutPending(ctx context.Context, row history.Schedule, state *schedule.State,
	effects []schedule.Effect) []schedule.Effect {
	return slices.DeleteFunc(effects, func(e schedule.Effect) bool {
		start, ok := e.(schedule.Start)
		if !ok || !isAgain(start.Run) {
			return false
		}
		wires, err := m.messages(row, state, []schedule.Effect{e})
		if err != nil {
			return false // commit returns the error
		}
		has, err := m.config.Has(ctx, wires[0])
		if err != nil {
			m.log.Debug("whether the start of a run waits could not be seen", "instance", start.Run.Instance,
				"error", err)
		}
		return has || err != nil
	})
}

// commit stores a schedule with its decisions. It reports false if the row has changed since
// it was read.
func (m *Manager) commit(ctx context.Context, now, began time.Time, row history.Schedule, state *schedule.State,
	effects []schedule.Effect) (bool, error) {
	messages, err := m.messages(row, state, effects)
	if err != nil {
		return false, fmt.Errorf("schedule %s: %w", row.ID, err)
	}
	data, err := state.Encode()
	if err != nil {
		return false, err
	}
	row.Data, row.WakeAt, row.ChangedAt = data, state.WakeAt(now), now
	change := history.ScheduleChange{Schedule: row, Expected: row.Version, Messages: messages}
	entries, ok, err := m.store.ChangeSchedule(ctx, change)
	if err != nil || !ok {
		return false, err
	}
	if row.Version++; change.Expected == 0 { // the first version is random
		stored, ok, err := m.store.Schedule(ctx, row.ID)
		if err != nil || !ok {
			//lint:ignore nilerr it is stored, and the next reading finds it
			return true, nil
		}
		row = stored
	}
	committed := now.Add(time.Since(began))
	m.note(row, true)
	m.changed.Set()
	// It fails only when the process ends, or after the time limit; a sweep publishes the messages
	// then.
	_ = m.publisher.Publish(ctx, outbox.Committed{Messages: messages, Keys: entries})
	m.record(state, committed, effects)
	return true, nil
}

// record logs and counts the effects of a decision.
func (m *Manager) record(state *schedule.State, committed time.Time, effects []schedule.Effect) {
	id := state.ID
	var late []schedule.Occurrence
	for _, e := range effects {
		switch e := e.(type) {
		case schedule.Start:
			if isAgain(e.Run) {
				m.log.Warn("start of a run sent again: it is not in NATS, and there is no instance", "schedule", id,
					"instance", e.Run.Instance)
				continue
			}
			m.config.Metrics.Run(string(e.Run.Reason))
			if e.Run.Reason == schedule.Scheduled {
				m.config.Metrics.Delay(committed.Sub(state.Due(e.Run)))
			}
			m.log.Debug("run of a schedule started", "schedule", id, "instance", e.Run.Instance)
		case schedule.Missed:
			m.config.Metrics.Missed(e.Count)
			m.log.Warn("runs of a schedule were missed: they could not be started within its catch-up time",
				"schedule", id, "dropped", e.Count, "detail", "the last one is of "+e.Occurrence.Nominal)
		case schedule.Skipped:
			m.config.Metrics.Skipped(1)
			m.log.Debug("run of a schedule skipped", "schedule", id, "detail", e.Occurrence.Nominal, "reason", e.Why)
			if e.CaughtUp {
				late = append(late, e.Occurrence)
			}
		case schedule.Occupied:
			m.log.Warn("run of a schedule did not begin: another start has begun the instance of its id", "schedule",
				id, "instance", e.Run.Instance)
		case schedule.Invalid:
			m.log.Error("schedule starts nothing: its times cannot be read here", "schedule", id, "error", e.Err)
		default: // it is a message that ends a run
		}
	}
	if n := len(late); n > 0 {
		from, to := late[0].At.UTC().Format(time.RFC3339), late[n-1].At.Add(time.Second).UTC().Format(time.RFC3339)
		m.log.Warn("runs of a schedule that were late were skipped, as its overlap policy says", "schedule", id,
			"dropped", n, "detail", fmt.Sprintf("rondo schedules backfill %s %s %s starts them", id, from, to))
	}
}

// maxPage bounds the bytes of the instances that are read at once; only their statuses are kept.
const maxPage = 1 << 20

// statuses reads how runs stand. The instance of a run that was not seen yet may be that of another
// start: a client can choose the same id.
func (m *Manager) statuses(ctx context.Context, state *schedule.State, ids []string) (map[string]schedule.Status,
	error) {
	starts := make(map[string]string) // the messages of runs that were not seen
	for _, r := range state.Runs {
		if !r.Seen {
			starts[r.Instance] = r.Message
		}
	}
	is := make(map[string]schedule.Status, len(ids))
	if len(ids) == 0 {
		return is, nil
	}
	instances := m.store.Within(maxPage)
	for page := (history.Page{Limit: len(ids)}); ; {
		list, err := instances.List(ctx, history.Filter{IDs: ids}, page)
		if err != nil {
			return nil, err
		}
		for _, x := range list.Instances {
			is[x.Instance] = schedule.Status{Kind: schedule.Running, Word: string(x.Status)}
			if x.Status.Ended() {
				is[x.Instance] = schedule.Status{Kind: schedule.Ended, Word: string(x.Status)}
			}
			if start, unseen := starts[x.Instance]; unseen && x.StartMessage != start {
				is[x.Instance] = schedule.Status{Kind: schedule.Other, Word: schedule.StatusOccupied}
			}
		}
		if page.Cursor = list.Next; page.Cursor == "" {
			break
		}
	}
	var missing []string
	for _, id := range ids {
		if _, ok := is[id]; !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return is, nil
	}
	gone, err := m.store.Tombstones(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, id := range missing {
		is[id] = schedule.Status{Kind: schedule.None}
	}
	for _, id := range gone {
		is[id] = schedule.Status{Kind: schedule.Gone}
	}
	return is, nil
}

// messages returns the messages that effects stand for. They are internal, so that no client can
// publish one with the id of a run, or with its attribute, before the schedule does.
func (m *Manager) messages(row history.Schedule, state *schedule.State,
	effects []schedule.Effect) ([]events.Wire, error) {
	var out []events.Wire
	id := row.ID
	end := func(instance string, how events.How) events.Message {
		return events.Message{
			ID: events.ScheduleIDs +
				fmt.Sprintf("%s/%d/%s/%s", events.EncodeToken(id), row.Version, how, instance),
			Instance: instance, Internal: true,
			Content: &events.Control{How: how, Reason: "schedule " + id + " starts its next run"}}
	}
	add := func(x events.Message) error {
		w, err := events.Encode(m.config.Prefix, x)
		out = append(out, w)
		return err
	}
	for _, e := range effects {
		var err error
		switch e := e.(type) {
		case schedule.Start:
			var start *events.Start
			if start, err = startOf(id, state.Action); err == nil {
				err = add(events.Message{ID: e.Run.Message, Instance: e.Run.Instance, Internal: true, Content: start})
			}
		case schedule.Cancel:
			err = add(end(e.Instance, events.Cancel))
		case schedule.Terminate:
			err = add(end(e.Instance, events.Terminate))
		default: // it is for the log
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// startOf is the start of a run.
func startOf(id string, action json.RawMessage) (*events.Start, error) {
	var a query.Start
	if err := json.Unmarshal(action, &a); err != nil {
		return nil, fmt.Errorf("what it starts cannot be read: %w", err)
	}
	attributes := maps.Clone(a.Attributes)
	if attributes == nil {
		attributes = make(map[string]string, 1)
	}
	attributes[events.AttributeSchedule] = id
	return &events.Start{Orchestration: a.Orchestration, Version: a.Version, Input: a.Input,
		Attributes: attributes}, nil
}
