package sqladmin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Schedules implements [history.Schedules] but for the list, which an [Admin] has.
type Schedules struct {
	dialect  dialect
	db       sqlrow.Transactor
	observer sqlrow.Observer
	entry    func() history.OutboxKey
	random   func() uint64
	lowest   lowest
}

// NewSchedules makes the Schedules of a store, with what [New] gets, and random numbers.
func NewSchedules(d sqlrow.Dialect, t sqlrow.Transactor, observer sqlrow.Observer,
	entry func() history.OutboxKey, random func() uint64) *Schedules {
	return &Schedules{dialect: dialect{d}, db: t, observer: observer, entry: entry, random: random}
}

var (
	// readColumns are the columns of schedules that are read.
	readColumns  = sqlrow.Schedules.Without("token")
	readSchedule = "SELECT " + readColumns.String() + " FROM rondo_schedules WHERE id = $1"
)

const (
	scheduleSize = "CAST(length(data) AS INT8)"
	// The condition on wake_at implies that it is not null, which is that of the index.
	dueSchedules = " FROM rondo_schedules WHERE wake_at >= $1 AND wake_at < $2 ORDER BY wake_at, id LIMIT $3"
)

var dueScheduleRows = "SELECT " + readColumns.String() + dueSchedules

// scanSchedule reads a row of readColumns.
func scanSchedule(r sqlrow.Row) (history.Schedule, error) {
	var c sqlrow.ScheduleRow
	err := r.Scan(readColumns.Targets(&c)...)
	return history.Schedule{ID: c.ID, Version: c.Version, WakeAt: c.WakeAt.Time, ChangedAt: c.ChangedAt.Time,
		Data: c.Data}, err
}

// Schedule implements [history.Schedules].
func (a *Schedules) Schedule(ctx context.Context, id string) (s history.Schedule, ok bool, err error) {
	defer a.observer.Begin("schedule").End(&err)
	err = a.db.ReadOften(ctx, "read a schedule", func(db sqlrow.DB) error {
		s, ok = history.Schedule{}, false
		return db.Query(ctx, func(r sqlrow.Row) (err error) {
			ok = true
			s, err = scanSchedule(r)
			return err
		}, readSchedule, sqlrow.Key(id))
	})
	return s, ok && err == nil, err
}

// maxDueBytes bounds the data that DueSchedules reads at once.
const maxDueBytes = 8 << 20

// DueSchedules implements [history.Schedules]. It reads the sizes before it reads the data, as much
// as fits. Most often nothing is due, and it reads one place of the index.
func (a *Schedules) DueSchedules(ctx context.Context, before time.Time,
	limit int) (due []history.Schedule, err error) {
	defer a.observer.Begin("due_schedules").End(&err)
	limit = history.Page{Limit: limit}.Size()
	var from time.Time
	seen := 0
	if a.dialect.Garbage {
		from, seen = a.lowest.begin()
	}
	first, args := before, []any{a.dialect.Time(from), a.dialect.Time(before)}
	err = a.db.ReadOften(ctx, "look for due schedules", func(db sqlrow.DB) error {
		page := fit{most: maxDueBytes}
		due, first = nil, before
		if err := db.Query(ctx, func(r sqlrow.Row) error {
			var size int64
			var at sqlrow.Moment
			err := r.Scan(&at, &size)
			if first.After(at.Time) {
				first = at.Time
			}
			page.add(size)
			return err
		}, "SELECT wake_at, "+scheduleSize+dueSchedules, args[0], args[1], limit); err != nil {
			return err
		}
		if page.rows == 0 {
			return nil
		}
		return db.Query(ctx, func(r sqlrow.Row) error {
			s, err := scanSchedule(r)
			due = append(due, s)
			return err
		}, dueScheduleRows, args[0], args[1], page.rows)
	})
	if err != nil {
		return nil, err
	}
	a.lowest.looked(seen, first)
	return due, nil
}

// lowest remembers below which time there was no due schedule. Where removed rows of an index stay
// for hours, each search would walk over all of them otherwise. It need not be right: every few
// searches begin at the start.
type lowest struct {
	mu    sync.Mutex
	at    time.Time
	looks int // since the last search from the start
	moved int // counts the changes of this process that moved it
}

// begin tells where a search begins, and what it gives to looked.
func (l *lowest) begin() (from time.Time, moved int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from = l.at; l.looks%history.ScheduleLooks == 0 {
		from = time.Time{}
	}
	l.looks++
	return from, l.moved
}

// looked is called after a search with the time of the first schedule that it found, or the one
// before which it found none.
func (l *lowest) looked(moved int, first time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.moved == moved {
		l.at = first.Add(-history.ScheduleSlack)
	}
}

// stored is called after this process may have stored a schedule with that time. A search that is
// running may have missed it.
func (l *lowest) stored(wakeAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved++
	if !wakeAt.IsZero() && wakeAt.Before(l.at) {
		l.at = wakeAt
	}
}

// ---- The list.

// scheduleCursor is where a page of schedules ends.
type scheduleCursor struct {
	ID string `json:"s"`
}

func (c scheduleCursor) String() string {
	data, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(data)
}

// parseScheduleCursor gives the id behind which a page begins.
func parseScheduleCursor(s string) (after string, err error) {
	if s == "" {
		return "", nil
	}
	var c scheduleCursor
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || events.CheckInstance(c.ID) != nil {
		return "", fmt.Errorf("history: cursor %q: %w", s, history.ErrBadCursor)
	}
	return c.ID, nil
}

// pageOfSchedules is the statement that reads columns of a page; "" if no schedule fits the filter.
func (a *pages) pageOfSchedules(columns string, f history.ScheduleFilter,
	p history.Page) (statement string, args []any, err error) {
	after, err := parseScheduleCursor(p.Cursor)
	if err != nil || !sqlrow.Storable(f.IDPrefix) {
		return "", nil, err
	}
	b := a.builder()
	where := []string{"id > " + b.Arg(after)}
	if f.IDPrefix != "" {
		where = append(where, "id >= "+b.Arg(f.IDPrefix), "id < "+b.Arg(f.IDPrefix+lastOfAll))
	}
	return "SELECT " + columns + " FROM rondo_schedules WHERE " + strings.Join(where, " AND ") + " ORDER BY id LIMIT " +
		b.Arg(p.Size()+1), b.Args, nil
}

// ListSchedules implements [history.Schedules].
func (a *pages) ListSchedules(ctx context.Context, f history.ScheduleFilter,
	p history.Page) (list history.ScheduleList, err error) {
	defer a.observer.Begin("list_schedules").End(&err)
	return a.listSchedules(ctx, f, p)
}

func (a *pages) listSchedules(ctx context.Context, f history.ScheduleFilter,
	p history.Page) (list history.ScheduleList, err error) {
	statement, args, err := a.pageOfSchedules(readColumns.String(), f, p)
	if statement == "" {
		return list, err
	}
	err = a.ReadOften(ctx, "list schedules", func(db sqlrow.DB) error {
		list = history.ScheduleList{}
		return db.Query(ctx, func(r sqlrow.Row) error {
			s, err := scanSchedule(r)
			list.Schedules = append(list.Schedules, s)
			return err
		}, statement, args...)
	})
	if err != nil {
		return history.ScheduleList{}, err
	}
	if limit := p.Size(); len(list.Schedules) > limit {
		list.Schedules = list.Schedules[:limit]
		list.Next = scheduleCursor{list.Schedules[limit-1].ID}.String()
	}
	return list, nil
}

// ListSchedules implements [history.BoundedReader].
func (b bounded) ListSchedules(ctx context.Context, f history.ScheduleFilter,
	p history.Page) (list history.ScheduleList, err error) {
	defer b.observer.Begin("list_schedules").End(&err)
	statement, args, err := b.pageOfSchedules(scheduleSize, f, p)
	if statement == "" {
		return list, err
	}
	var page fit
	err = b.ReadOften(ctx, "measure schedules", func(db sqlrow.DB) error {
		page = fit{most: b.bytes}
		return db.Query(ctx, page.size, statement, args...)
	})
	if err != nil {
		return history.ScheduleList{}, err
	}
	if page.cut {
		p.Limit = min(p.Size(), int(page.rows))
	}
	return b.listSchedules(ctx, f, p)
}
