package jobstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Model is a [jobs.Store] in memory that is as simple as possible: each queue is a list of jobs,
// which is searched for everything. It settles all that is due at once, where stores may leave a
// part to the next transaction. It is not for concurrent use.
type Model struct {
	now    func() time.Time
	queues map[string]*modelQueue
}

// NewModel returns an empty model.
func NewModel(now func() time.Time) *Model {
	return &Model{now: now, queues: make(map[string]*modelQueue)}
}

type modelQueue struct {
	settings jobs.Settings
	last     int64
	lastLock int64
	items    []*modelJob
	locks    []*jobs.Lock // those that were returned included
	only     *jobs.Lock   // the one of locks that is exclusive
	lapsed   bool         // that one has expired; since then, no pop and no error to a client
	latest   time.Time    // when the last of the concurrent locks ends that were there since there was none
	keys     map[string]modelKey
	totals   jobs.Totals
	at       time.Time

	// The times at which an operation must settle again, at the latest. They matter only to the
	// time of the queue, which stands until a change.
	dueAt, expiryAt, forgetAt, keyAt time.Time

	now           time.Time
	changed       bool
	expired, died int // by the operation
}

type modelJob struct {
	jobs.Job
	place  jobs.Place
	lock   int64
	at     time.Time // when it is due, or died
	reason string
	// returned says that it has had a lock.
	returned bool
}

type modelKey struct {
	digest string
	count  int
	until  time.Time
}

// Do implements [jobs.Store].
func (m *Model) Do(_ context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	if err := jobs.CheckName(name); err != nil {
		return nil, err
	}
	q, fresh := m.queues[name], false
	var results []jobs.Result
	for _, o := range operations {
		if q == nil {
			switch o.(type) {
			case jobs.Push, jobs.Configure:
				q, fresh = &modelQueue{keys: make(map[string]modelKey)}, true
			case jobs.Pop, jobs.Settle:
				results = append(results, jobs.Result{})
				continue
			case jobs.Acknowledge, jobs.Return, jobs.Extend:
				results = append(results, jobs.Result{Refused: jobs.ErrNoLock})
				continue
			default:
				results = append(results, jobs.Result{Refused: jobs.ErrNoQueue})
				continue
			}
		}
		if q.now = m.now(); q.now.Before(q.at) {
			q.now = q.at
		}
		q.expired, q.died = 0, 0
		r := q.do(o)
		r.Expired, r.Died = q.expired, q.died
		if results = append(results, r); r.Refused == nil {
			if _, ok := o.(jobs.Forget); ok {
				q, fresh = nil, false
			}
		}
	}
	if q == nil || fresh && !q.changed {
		delete(m.queues, name)
	} else {
		m.queues[name] = q
	}
	return results, nil
}

func refuse(err error) jobs.Result { return jobs.Result{Refused: err} }

func (q *modelQueue) do(o jobs.Operation) jobs.Result {
	switch o := o.(type) {
	case jobs.Push:
		return q.push(o)
	case jobs.Pop:
		return q.pop(o)
	case jobs.Acknowledge:
		return q.end(o.LockID, func(l *jobs.Lock) jobs.Result {
			n := len(q.items)
			q.items = slices.DeleteFunc(q.items, func(i *modelJob) bool {
				return i.place == jobs.PlaceLocked && i.lock == l.Number
			})
			n -= len(q.items)
			q.totals.Acknowledged += int64(n)
			q.drop(l)
			return jobs.Result{Count: n, Lock: l}
		})
	case jobs.Return:
		if o.Delay < 0 || o.Delay > jobs.MaxDelay {
			return refuse(&jobs.InvalidError{Problem: "the delay"})
		}
		return q.end(o.LockID, func(l *jobs.Lock) jobs.Result {
			n := q.giveBack(l, o.Delay, o.Reason, o.Uncounted)
			q.totals.Returned += int64(n)
			q.drop(l)
			return jobs.Result{Count: n, Lock: l}
		})
	case jobs.Extend:
		return q.end(o.LockID, func(l *jobs.Lock) jobs.Result {
			l.ExpiresAt = q.now.Add(jobs.TTL(o.TTL))
			q.changes()
			if q.only == nil {
				q.seen(l)
			}
			held := *l
			return jobs.Result{Lock: &held, Count: l.Items}
		})
	case jobs.Configure:
		return q.configure(o)
	case jobs.Requeue:
		return q.requeue(o)
	case jobs.Remove:
		return q.remove(o)
	case jobs.Forget:
		if len(q.items) > 0 {
			return refuse(jobs.ErrNotEmpty)
		}
		return jobs.Result{}
	case jobs.Settle:
		q.settle()
		return jobs.Result{}
	default:
	}
	panic(fmt.Sprintf("there is no %T", o))
}

func (q *modelQueue) changes() { q.changed, q.at = true, q.now }

func first(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (q *modelQueue) isOver(at time.Time) bool { return !at.IsZero() && !q.now.Before(at) }

func (q *modelQueue) push(p jobs.Push) jobs.Result {
	bad := len(p.Jobs) == 0 || len(p.Jobs) > jobs.MaxCount || len(p.Key) > jobs.MaxKey
	for _, i := range p.Jobs {
		bad = bad || i.Priority < 0 || i.Priority >= q.settings.WithDefaults().Priorities || i.Delay < 0 ||
			i.Delay > jobs.MaxDelay
	}
	if bad {
		return refuse(&jobs.InvalidError{Problem: "the push"})
	}
	q.settle()
	if p.Key != "" {
		if q.isOver(q.keyAt) {
			maps.DeleteFunc(q.keys, func(_ string, k modelKey) bool { return q.isOver(k.until) })
			q.keyAt = time.Time{}
			for _, k := range q.keys {
				q.keyAt = first(q.keyAt, k.until)
			}
			q.changes()
		}
		k, found := q.keys[p.Key]
		switch {
		case found && q.now.Before(k.until) && k.digest != p.Digest:
			return refuse(jobs.ErrKeyReused)
		case found && q.now.Before(k.until):
			return jobs.Result{Count: k.count, Again: true}
		}
	}
	if limit := q.settings.MaxJobs; limit > 0 && len(q.items)+len(p.Jobs) > limit {
		return refuse(&jobs.FullError{Items: len(q.items), Limit: limit})
	}
	for _, n := range p.Jobs {
		q.last++
		i := &modelJob{Job: jobs.Job{ID: q.last, Priority: n.Priority, Position: q.last, PushedAt: q.now,
			ReadyAt: q.now, Trace: n.Trace, Data: slices.Clone(n.Data)}}
		if n.Delay > 0 {
			i.place, i.at = jobs.PlaceDelayed, q.now.Add(n.Delay)
			q.dueAt = first(q.dueAt, i.at)
		}
		q.items = append(q.items, i)
	}
	q.totals.Pushed += int64(len(p.Jobs))
	q.changes()
	if p.Key != "" {
		q.keys[p.Key] = modelKey{p.Digest, len(p.Jobs), q.now.Add(p.KeyFor)}
		q.keyAt = first(q.keyAt, q.now.Add(p.KeyFor))
	}
	return jobs.Result{Count: len(p.Jobs)}
}

// placed returns the jobs at a place, in order.
func (q *modelQueue) placed(place jobs.Place) (list []*modelJob) {
	for _, i := range q.items {
		if i.place == place {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b *modelJob) int {
		if place == jobs.PlaceReady {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Position, b.Position))
		}
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Position, b.Position))
	})
	return list
}

func (q *modelQueue) active() (list []*jobs.Lock) {
	for _, l := range q.locks {
		if !l.Returned && l != q.only {
			list = append(list, l)
		}
	}
	return list
}

func (q *modelQueue) pop(p jobs.Pop) jobs.Result {
	settings := q.settings.WithDefaults()
	mode := cmp.Or(p.Mode, settings.Mode)
	if p.Count < 1 || p.Count > jobs.MaxCount || mode.Check() != nil {
		return refuse(&jobs.InvalidError{Problem: "the pop"})
	}
	q.settle()
	if q.lapsed {
		q.lapsed = false
		q.changes()
	}
	switch {
	case q.only != nil:
		return refuse(&jobs.LockedError{Until: q.only.ExpiresAt})
	case mode == jobs.Exclusive && len(q.active()) > 0:
		return refuse(&jobs.LockedError{Until: q.latest})
	}
	var taken []*modelJob
	bytes := 0
	for _, i := range q.placed(jobs.PlaceReady) {
		bytes += len(i.Data)
		if len(taken) == p.Count || p.Bytes > 0 && p.Count > 16 && bytes > p.Bytes && len(taken) > 0 {
			break
		}
		taken = append(taken, i)
	}
	if len(taken) == 0 {
		return jobs.Result{}
	}
	q.totals.Popped += int64(len(taken))
	q.changes()
	r := jobs.Result{Count: len(taken)}
	if p.LockID == "" {
		q.items = slices.DeleteFunc(q.items, func(i *modelJob) bool { return slices.Contains(taken, i) })
	} else {
		q.lastLock++
		ttl := cmp.Or(p.TTL, time.Duration(settings.TTL)*time.Second)
		l := &jobs.Lock{ID: p.LockID, Number: q.lastLock, Items: len(taken), CreatedAt: q.now,
			ExpiresAt: q.now.Add(jobs.TTL(ttl))}
		q.locks = append(q.locks, l)
		if mode == jobs.Exclusive {
			q.only = l
		} else {
			q.seen(l)
		}
		held := *l
		r.Lock = &held
		for _, i := range taken {
			i.place, i.lock = jobs.PlaceLocked, l.Number
			i.Attempts++
		}
	}
	for _, i := range taken {
		r.Items = append(r.Items, i.Job)
	}
	return r
}

// seen notes when a concurrent lock ends.
func (q *modelQueue) seen(l *jobs.Lock) {
	q.expiryAt = first(q.expiryAt, l.ExpiresAt)
	if q.latest.Before(l.ExpiresAt) {
		q.latest = l.ExpiresAt
	}
}

func (q *modelQueue) end(id string, do func(*jobs.Lock) jobs.Result) jobs.Result {
	if id == "" {
		return refuse(&jobs.InvalidError{Problem: "no lock_id"})
	}
	if l := q.only; l != nil {
		switch {
		case q.isOver(l.ExpiresAt):
			q.expire(l)
			q.lapsed = false
			return refuse(jobs.ErrLockExpired)
		case l.ID != id:
			return refuse(jobs.ErrWrongLock)
		}
		return do(l)
	}
	if q.lapsed {
		q.lapsed = false
		q.changes()
		return refuse(jobs.ErrLockExpired)
	}
	for _, l := range q.locks {
		switch {
		case l.ID != id:
			continue
		case l.Returned:
			return refuse(jobs.ErrLockExpired)
		case q.isOver(l.ExpiresAt):
			q.expire(l)
			return refuse(jobs.ErrLockExpired)
		}
		return do(l)
	}
	if len(q.active()) == 0 {
		return refuse(jobs.ErrNoLock)
	}
	return refuse(jobs.ErrWrongLock)
}

func (q *modelQueue) drop(l *jobs.Lock) {
	q.locks = slices.DeleteFunc(q.locks, func(x *jobs.Lock) bool { return x == l })
	if q.only == l {
		q.only = nil
	}
	q.fewer()
	q.changes()
}

// fewer is for when there may be no concurrent lock any more.
func (q *modelQueue) fewer() {
	if len(q.active()) == 0 {
		q.expiryAt, q.latest = time.Time{}, time.Time{}
	}
}

func (q *modelQueue) expire(l *jobs.Lock) {
	n := q.giveBack(l, 0, "the lock has expired", false)
	q.expired += n
	q.totals.Expired += int64(n)
	if q.only == l {
		q.lapsed = true
		q.drop(l)
		return
	}
	l.Returned = true
	q.fewer()
	q.forgetAt = first(q.forgetAt, l.ExpiresAt.Add(10*time.Minute))
	q.changes()
}

func (q *modelQueue) giveBack(l *jobs.Lock, delay time.Duration, reason string, uncounted bool) (n int) {
	for _, i := range q.items {
		if i.place != jobs.PlaceLocked || i.lock != l.Number {
			continue
		}
		n++
		i.returned = true
		if uncounted {
			i.Attempts--
		}
		switch {
		case !uncounted && q.settings.MaxAttempts > 0 && i.Attempts >= q.settings.MaxAttempts:
			i.place, i.at, i.reason = jobs.PlaceDead, q.now, reason
			q.died++
			q.totals.Died++
		case delay > 0:
			i.place, i.at = jobs.PlaceDelayed, q.now.Add(delay)
			q.dueAt = first(q.dueAt, i.at)
		default:
			i.place = jobs.PlaceReady
		}
	}
	return n
}

func (q *modelQueue) settle() {
	if q.only != nil && q.isOver(q.only.ExpiresAt) {
		q.expire(q.only)
	}
	if q.isOver(q.expiryAt) {
		for _, l := range q.active() {
			if q.isOver(l.ExpiresAt) {
				q.expire(l)
			}
		}
		q.expiryAt = time.Time{}
		for _, l := range q.active() {
			q.expiryAt = first(q.expiryAt, l.ExpiresAt)
		}
		q.changes()
	}
	if q.isOver(q.forgetAt) {
		q.locks = slices.DeleteFunc(q.locks, func(l *jobs.Lock) bool {
			return l.Returned && q.isOver(l.ExpiresAt.Add(10*time.Minute))
		})
		q.forgetAt = time.Time{}
		for _, l := range q.locks {
			if l.Returned {
				q.forgetAt = first(q.forgetAt, l.ExpiresAt.Add(10*time.Minute))
			}
		}
		q.changes()
	}
	if !q.isOver(q.dueAt) {
		return
	}
	q.dueAt = time.Time{}
	for _, i := range q.placed(jobs.PlaceDelayed) {
		if !q.isOver(i.at) {
			q.dueAt = first(q.dueAt, i.at)
			continue
		}
		if i.place = jobs.PlaceReady; !i.returned {
			q.last++
			i.Position, i.ReadyAt = q.last, i.at
		}
	}
	q.changes()
}

func (q *modelQueue) configure(c jobs.Configure) jobs.Result {
	if err := c.Settings.Check(); err != nil {
		return refuse(err)
	}
	for _, i := range q.placed(jobs.PlaceReady) {
		if i.Priority >= c.Settings.WithDefaults().Priorities {
			return refuse(&jobs.InvalidError{Problem: "priorities"})
		}
	}
	q.settings = c.Settings
	q.changes()
	return jobs.Result{}
}

func (q *modelQueue) requeue(r jobs.Requeue) jobs.Result {
	q.settle()
	dead := q.placed(jobs.PlaceDead)
	chosen := dead[:min(r.Limit, len(dead))]
	if len(r.IDs) > 0 {
		chosen = nil
		for _, id := range r.IDs {
			for _, i := range dead {
				if i.dead().DeadID() == id && !slices.Contains(chosen, i) {
					chosen = append(chosen, i)
				}
			}
		}
	}
	for _, i := range chosen {
		q.last++
		i.place, i.Position, i.Attempts, i.ReadyAt, i.reason = jobs.PlaceReady, q.last, 0, q.now, ""
		q.changes()
	}
	return jobs.Result{Count: len(chosen)}
}

func (i *modelJob) dead() jobs.Dead {
	return jobs.Dead{Job: i.Job, DiedAt: i.at, Reason: i.reason}
}

func (q *modelQueue) remove(r jobs.Remove) jobs.Result {
	places := []jobs.Place{jobs.PlaceDead}
	if !r.Dead {
		places = []jobs.Place{jobs.PlaceReady, jobs.PlaceDelayed, jobs.PlaceDead}
		lapsed := q.lapsed
		for _, l := range slices.Clone(q.locks) {
			if !l.Returned {
				q.expire(l)
			}
		}
		q.lapsed = lapsed
	}
	var removed []*modelJob
	for _, place := range places {
		removed = append(removed, q.placed(place)...)
	}
	removed = removed[:min(r.Limit, len(removed))]
	q.items = slices.DeleteFunc(q.items, func(i *modelJob) bool { return slices.Contains(removed, i) })
	if len(removed) > 0 {
		q.changes()
	}
	return jobs.Result{Count: len(removed)}
}

// Look implements [jobs.Store].
func (m *Model) Look(ctx context.Context, name string) (jobs.Info, error) {
	if err := jobs.CheckName(name); err != nil {
		return jobs.Info{}, err
	}
	q := m.queues[name]
	if q == nil {
		return jobs.Info{}, jobs.ErrNoQueue
	}
	now := m.now()
	if now.Before(q.at) {
		now = q.at
	}
	if q.now = now; q.only != nil && q.isOver(q.only.ExpiresAt) || q.isOver(q.expiryAt) || q.isOver(q.dueAt) {
		if _, err := m.Do(ctx, name, jobs.Settle{}); err != nil {
			return jobs.Info{}, err
		}
	}
	i := q.info(name, now)
	for _, x := range q.placed(jobs.PlaceReady) {
		i.Oldest = first(i.Oldest, x.ReadyAt)
	}
	return i, nil
}

func (q *modelQueue) info(name string, now time.Time) jobs.Info {
	if now.Before(q.at) {
		now = q.at
	}
	i := jobs.Info{
		Queue: name, Settings: q.settings.WithDefaults(), Ready: make(map[int]int), Totals: q.totals, At: now,
		Locks:  len(q.active()),
		Locked: len(q.placed(jobs.PlaceLocked)), Delayed: len(q.placed(jobs.PlaceDelayed)),
		Dead: len(q.placed(jobs.PlaceDead)),
	}
	for _, x := range q.placed(jobs.PlaceReady) {
		i.Ready[x.Priority]++
	}
	if q.only != nil {
		held := *q.only
		i.Exclusive, i.Locks = &held, 1
	}
	return i
}

// List implements [jobs.Store].
func (m *Model) List(_ context.Context, after string, limit int) (list []jobs.Info, err error) {
	for _, name := range slices.Sorted(maps.Keys(m.queues)) {
		if name > after && len(list) < limit {
			list = append(list, m.queues[name].info(name, m.now()))
		}
	}
	return list, nil
}

// Dead implements [jobs.Store].
func (m *Model) Dead(_ context.Context, name string, after jobs.DeadID, limit int) (list []jobs.Dead, err error) {
	if err := jobs.CheckName(name); err != nil || m.queues[name] == nil {
		return nil, err
	}
	for _, i := range m.queues[name].placed(jobs.PlaceDead) {
		id := i.dead().DeadID()
		if (id.At > after.At || id.At == after.At && id.Position > after.Position) && len(list) < limit {
			list = append(list, i.dead())
		}
	}
	return list, nil
}

// Starting implements [jobs.Store].
func (m *Model) Starting(context.Context) (list []jobs.Info, err error) {
	for _, name := range slices.Sorted(maps.Keys(m.queues)) {
		if i := m.queues[name].info(name, m.now()); i.Settings.Start != nil {
			list = append(list, i)
		}
	}
	return list, nil
}

// refusal names the reason for a refusal, without its text.
func refusal(err error) string {
	var locked *jobs.LockedError
	var full *jobs.FullError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &locked):
		return fmt.Sprint("locked until ", locked.Until)
	case errors.As(err, &full):
		return full.Error()
	case errors.As(err, new(*jobs.InvalidError)):
		return "invalid"
	}
	return strings.TrimSpace(err.Error())
}
