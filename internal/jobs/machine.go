package jobs

import (
	"strings"
	"time"
)

// Items are the jobs of one queue, while a transaction holds it. Callers pass positions and sizes
// in ascending order.
type Items interface {
	// Expect lists reads to come, so that the store can do them at once. They need not come.
	Expect(Expected) error
	// Add adds jobs that are ready, or delayed if due is set.
	Add(item Job, due time.Time) error
	// Sizes returns the sizes of the first ready jobs of a priority. It does not search before
	// from.
	Sizes(priority int, from int64, limit int) ([]int, error)
	// Take removes the first ready jobs of a priority and returns them. Hold assigns them to a
	// lock instead, and counts an attempt.
	Take(priority int, from int64, count int) ([]Job, error)
	Hold(priority int, from int64, count int, lock int64) ([]Job, error)
	// Drop removes the jobs of a lock, and returns their number.
	Drop(lock Lock) (int, error)
	// Move assigns some of the jobs of a lock to another lock, by their ids, and returns their
	// number.
	Move(ids []int64, from, to int64) (int, error)
	// GiveBack makes the jobs of a lock ready again, or delays them if due is set. Those with at
	// least maxAttempts (if not 0) are dead from now on. If uncounted, none dies, and each has an
	// attempt less.
	GiveBack(lock int64, due, now time.Time, maxAttempts int, reason string, uncounted bool) ([]Back, error)
	// Due lists delayed jobs that are due, the first ones at the front, and returns when the first
	// of the others is due. Ready makes one ready.
	Due(now time.Time, limit int) (due []Delayed, next time.Time, err error)
	Ready(item Delayed, position int64, since time.Time) error
	// Dead lists dead jobs, those that died first at the front; with ids, those of them that
	// exist. Revive makes one ready as a new one.
	Dead(ids []DeadID, limit int) ([]Dead, error)
	Revive(item Dead, position int64, now time.Time) error
	// Remove removes jobs of any kind, or only dead ones.
	Remove(dead bool, limit int) ([]Removed, error)

	// AddLock, FindLock, ChangeLock and RemoveLock store concurrent locks. FindLock returns nil if
	// there is none.
	AddLock(Lock) error
	FindLock(id string) (*Lock, error)
	ChangeLock(Lock) error
	RemoveLock(id string) error
	// Expired lists concurrent locks that have expired and are not returned, and returns when the
	// first of the others expires.
	Expired(now time.Time, limit int) (expired []Lock, next time.Time, err error)
	// ForgetLocks removes locks that were returned and had expired before a moment, and returns
	// when the first of the others had expired.
	ForgetLocks(before time.Time, limit int) (next time.Time, err error)

	// FindKey returns the digest and the count of a push by its key, unless the key has expired.
	// AddKey stores a key. ForgetKeys removes expired keys, and returns when the first of the
	// others expires.
	FindKey(key string, now time.Time) (digest string, count int, found bool, err error)
	AddKey(key, digest string, count int, until time.Time) error
	ForgetKeys(now time.Time, limit int) (next time.Time, err error)

	// Forget removes the first locks, and the first keys after one, up to a limit of both together.
	// It returns their number and the last key; without any, the one given.
	Forget(after string, limit int) (n int, last string, err error)
}

// Expected lists the reads of operations.
type Expected struct {
	// Pops is the number of pops, Ready the most jobs that they take or hold together. Pops that
	// read the sizes first are not counted.
	Pops, Ready int
	// Locks and Keys will be looked up.
	Locks, Keys []string
}

// expected returns the reads of operations. Mode is that of pops without one.
func expected(operations []Operation, mode Mode) (e Expected) {
	exclusive := false // those behind an exclusive lock are refused, unless there is nothing to take
	for _, o := range operations {
		switch o := o.(type) {
		case Pop:
			if o.looks() {
				continue
			}
			if e.Pops++; !exclusive {
				e.Ready = min(expectMost, e.Ready+min(max(0, o.Count), MaxCount))
			}
			if o.Mode == "" {
				o.Mode = mode
			}
			exclusive = exclusive || o.LockID != "" && o.Mode == Exclusive
		case Acknowledge:
			e.Locks = append(e.Locks, o.LockID)
		case Push:
			if o.Key != "" {
				e.Keys = append(e.Keys, o.Key)
			}
		default:
		}
	}
	return e
}

// Back is the new place of a job whose lock has ended.
type Back struct {
	Priority int
	Position int64
	Dead     bool
}

// Delayed is a job that is not yet due.
type Delayed struct {
	ID       int64
	Due      time.Time
	Position int64
	Priority int
	// Returned says that it has had a lock, and keeps its position.
	Returned bool
}

// Removed is the former place of a job.
type Removed struct {
	Place    Place
	Priority int
}

// Place is where a job is.
type Place int

// The places.
const (
	PlaceReady Place = iota
	PlaceDelayed
	PlaceLocked
	PlaceDead
)

// Bounds of the settling by one operation, so that no transaction grows without end. The next
// operation settles the rest.
const (
	settleLocks   = 100
	settleDelayed = 200
	forgetAtOnce  = 50
	forgetRows    = 1000
	// lookAhead is the number of jobs from which a pop reads their sizes before it takes them.
	lookAhead = 16
	// expectMost bounds the jobs that are read ahead: their sizes are not known.
	expectMost = 100
	// rememberLocks is for how long an expired concurrent lock is told from an unknown one.
	rememberLocks = 10 * time.Minute
)

// Machine does operations on a queue, within one transaction.
type Machine struct {
	*State
	items   Items
	now     time.Time
	changed bool
	gone    bool

	expired, died int // jobs, during one operation
}

// NewMachine starts with a state. The state of a new queue has an incarnation and nothing else.
func NewMachine(s *State, items Items, clock time.Time) *Machine {
	return &Machine{State: s, items: items, now: s.Now(clock)}
}

// Changed reports whether the state must be written.
func (m *Machine) Changed() bool { return m.changed }

// Gone reports whether the queue is to be removed, with all its jobs.
func (m *Machine) Gone() bool { return m.gone }

// Do does operations in their order, up to the one that removes the queue: those behind it are for
// another queue.
func (m *Machine) Do(operations []Operation) ([]Result, error) {
	if err := m.items.Expect(expected(operations, m.Settings.WithDefaults().Mode)); err != nil {
		return nil, err
	}
	results := make([]Result, 0, len(operations))
	for _, o := range operations {
		m.expired, m.died = 0, 0
		r, err := o.do(m)
		if err != nil {
			return nil, err
		}
		r.Expired, r.Died = m.expired, m.died
		if results = append(results, r); m.gone {
			break
		}
	}
	return results, nil
}

// wrote notes a change.
func (m *Machine) wrote() {
	m.changed = true
	m.At = m.now
}

func refused(err error) (Result, error) { return Result{Refused: err}, nil }

// do implements [Operation].
func (p Push) do(m *Machine) (Result, error) {
	if err := m.checkPush(p); err != nil {
		return refused(err)
	}
	if err := m.settle(); err != nil { // due jobs go first
		return Result{}, err
	}
	if p.Key != "" {
		if passed(m.NextKey, m.now) {
			next, err := m.items.ForgetKeys(m.now, forgetAtOnce)
			if err != nil {
				return Result{}, err
			}
			m.NextKey = next
			m.wrote()
		}
		digest, count, found, err := m.items.FindKey(p.Key, m.now)
		switch {
		case err != nil:
			return Result{}, err
		case found && digest != p.Digest:
			return refused(ErrKeyReused)
		case found:
			return Result{Count: count, Again: true}, nil
		}
	}
	if err := p.checkSizes(); err != nil {
		return refused(err)
	}
	if limit := m.Settings.MaxJobs; limit > 0 && m.State.items()+len(p.Jobs) > limit {
		return refused(&FullError{m.State.items(), limit})
	}
	for _, n := range p.Jobs {
		m.Last++
		i := Job{ID: m.Last, Priority: n.Priority, Position: m.Last, PushedAt: m.now, ReadyAt: m.now,
			Trace: n.Trace, Data: n.Data}
		due := time.Time{}
		if n.Delay > 0 {
			due = m.now.Add(n.Delay)
			m.Delayed++
			m.NextDue = earlier(m.NextDue, due)
		} else {
			m.add(i.Priority, i.Position)
		}
		if err := m.items.Add(i, due); err != nil {
			return Result{}, err
		}
	}
	m.Totals.Pushed += int64(len(p.Jobs))
	m.wrote()
	if p.Key != "" {
		until := m.now.Add(p.KeyFor)
		m.NextKey = earlier(m.NextKey, until)
		m.Forgotten = "" // the key may be before that one
		if err := m.items.AddKey(p.Key, p.Digest, len(p.Jobs), until); err != nil {
			return Result{}, err
		}
	}
	return Result{Count: len(p.Jobs)}, nil
}

// do implements [Operation].
func (p Pop) do(m *Machine) (Result, error) {
	settings := m.Settings.WithDefaults()
	if p.Mode == "" {
		p.Mode = settings.Mode
	}
	if p.TTL == 0 {
		p.TTL = time.Duration(settings.TTL) * time.Second
	}
	if err := p.check(); err != nil {
		return refused(err)
	}
	if err := m.settle(); err != nil {
		return Result{}, err
	}
	if m.Lapsed {
		m.Lapsed = false
		m.wrote()
	}
	switch {
	case m.Exclusive != nil:
		return refused(&LockedError{m.Exclusive.ExpiresAt})
	case p.Mode == Exclusive && m.Locks > 0:
		return refused(&LockedError{m.LastExpiry})
	}
	lock := Lock{ID: p.LockID, Number: m.LastLock + 1, CreatedAt: m.now, ExpiresAt: m.now.Add(TTL(p.TTL))}
	items, err := m.take(p, lock.Number)
	if err != nil || len(items) == 0 {
		return Result{}, err
	}
	m.Totals.Popped += int64(len(items))
	m.wrote()
	r := Result{Items: items, Count: len(items), Incarnation: m.Incarnation, Start: m.Settings.Start}
	if p.LockID == "" {
		return r, nil
	}
	lock.Items = len(items)
	r.Lock = &lock
	m.LastLock = lock.Number
	m.Locked += len(items)
	if p.Mode == Exclusive {
		held := lock
		m.Exclusive = &held
		return r, nil
	}
	m.Locks++
	m.NextExpiry = earlier(m.NextExpiry, lock.ExpiresAt)
	if m.LastExpiry.Before(lock.ExpiresAt) {
		m.LastExpiry = lock.ExpiresAt
	}
	return r, m.items.AddLock(lock)
}

// take takes jobs from the front, for a lock or without one.
func (m *Machine) take(p Pop, lock int64) (items []Job, err error) {
	bytes := 0
	for _, priority := range m.Priorities() {
		l := m.Levels[priority]
		count, last := min(p.Count-len(items), l.Ready), false
		if p.looks() && count > 0 {
			sizes, err := m.items.Sizes(priority, l.Head, count)
			if err != nil {
				return nil, err
			}
			if len(sizes) < count { // an operator has removed rows by hand
				if l.Ready = len(sizes); l.Ready == 0 {
					delete(m.Levels, priority)
				}
				m.wrote()
			}
			fit := 0
			for _, size := range sizes {
				if bytes += size; bytes > p.Bytes && len(items)+fit > 0 {
					last = true
					break
				}
				fit++
			}
			count = fit
		}
		if count == 0 && !last {
			continue
		}
		if count == 0 {
			break
		}
		var taken []Job
		if p.LockID == "" {
			taken, err = m.items.Take(priority, l.Head, count)
		} else {
			taken, err = m.items.Hold(priority, l.Head, count, lock)
		}
		if err != nil {
			return nil, err
		}
		items = append(items, taken...)
		if l.Ready -= len(taken); l.Ready == 0 || len(taken) < count {
			// less than there should be: an operator has removed rows by hand
			delete(m.Levels, priority)
			m.changed = true
		} else {
			l.Head = taken[len(taken)-1].Position + 1
		}
		if last || len(items) == p.Count {
			break
		}
	}
	return items, nil
}

// do implements [Operation].
func (a Acknowledge) do(m *Machine) (Result, error) {
	return m.end(a.LockID, func(l *Lock) (Result, error) {
		n, err := m.items.Drop(*l)
		if err != nil {
			return Result{}, err
		}
		m.Totals.Acknowledged += int64(n)
		return Result{Count: n, Lock: l}, m.drop(l)
	})
}

// do implements [Operation].
func (e Extend) do(m *Machine) (Result, error) {
	return m.end(e.LockID, func(l *Lock) (Result, error) {
		l.ExpiresAt = m.now.Add(TTL(e.TTL))
		m.wrote()
		if l == m.Exclusive {
			held := *l
			return Result{Lock: &held, Count: l.Items}, nil
		}
		m.NextExpiry = earlier(m.NextExpiry, l.ExpiresAt)
		if m.LastExpiry.Before(l.ExpiresAt) {
			m.LastExpiry = l.ExpiresAt
		}
		return Result{Lock: l, Count: l.Items}, m.items.ChangeLock(*l)
	})
}

// end finds a lock to end or extend, and refuses requests that are too late or name no lock.
func (m *Machine) end(id string, do func(*Lock) (Result, error)) (Result, error) {
	if id == "" {
		return refused(&InvalidError{"lock_id is required"})
	}
	if l := m.Exclusive; l != nil {
		switch {
		case l.Expired(m.now):
			if err := m.expire(l); err != nil {
				return Result{}, err
			}
			m.Lapsed = false
			return refused(ErrLockExpired)
		case l.ID != id:
			return refused(ErrWrongLock)
		}
		return do(l)
	}
	if m.Lapsed {
		m.Lapsed = false
		m.wrote()
		return refused(ErrLockExpired)
	}
	l, err := m.items.FindLock(id)
	switch {
	case err != nil:
		return Result{}, err
	case l == nil && m.Locks == 0:
		return refused(ErrNoLock)
	case l == nil:
		return refused(ErrWrongLock)
	case l.Returned:
		return refused(ErrLockExpired)
	case l.Expired(m.now):
		if err := m.expire(l); err != nil {
			return Result{}, err
		}
		return refused(ErrLockExpired)
	}
	return do(l)
}

// drop removes a lock that has ended.
func (m *Machine) drop(l *Lock) error {
	m.Locked = max(0, m.Locked-l.Items)
	m.wrote()
	if l == m.Exclusive {
		m.Exclusive = nil
		return nil
	}
	m.unlocked()
	return m.items.RemoveLock(l.ID)
}

// unlocked counts one lock less.
func (m *Machine) unlocked() {
	if m.Locks--; m.Locks <= 0 {
		m.Locks, m.NextExpiry, m.LastExpiry = 0, time.Time{}, time.Time{}
	}
}

// expire makes the jobs of an expired lock ready again.
func (m *Machine) expire(l *Lock) error {
	n, err := m.returnJobs(l, time.Time{}, "the lock has expired", false)
	if err != nil {
		return err
	}
	m.expired += n
	m.Totals.Expired += int64(n)
	if l == m.Exclusive {
		m.Lapsed = true
		return m.drop(l)
	}
	m.Locked = max(0, m.Locked-l.Items)
	m.unlocked()
	m.NextForget = earlier(m.NextForget, l.ExpiresAt.Add(rememberLocks))
	l.Returned = true
	m.wrote()
	return m.items.ChangeLock(*l)
}

// returnJobs makes the jobs of a lock ready again.
func (m *Machine) returnJobs(l *Lock, due time.Time, reason string, uncounted bool) (int, error) {
	if len(reason) > MaxReason {
		reason = strings.ToValidUTF8(reason[:MaxReason], "")
	}
	back, err := m.items.GiveBack(l.Number, due, m.now, m.Settings.MaxAttempts, reason, uncounted)
	for _, b := range back {
		switch {
		case b.Dead:
			m.State.Dead++
			m.Totals.Died++
			m.died++
		case !due.IsZero():
			m.Delayed++
			m.NextDue = earlier(m.NextDue, due)
		default:
			m.add(b.Priority, b.Position)
		}
	}
	return len(back), err
}

// settle ends expired locks, and makes due jobs ready.
func (m *Machine) settle() error {
	if m.Exclusive != nil && m.Exclusive.Expired(m.now) {
		if err := m.expire(m.Exclusive); err != nil {
			return err
		}
	}
	if passed(m.NextExpiry, m.now) {
		expired, next, err := m.items.Expired(m.now, settleLocks)
		if err != nil {
			return err
		}
		for n := range expired {
			if err := m.expire(&expired[n]); err != nil {
				return err
			}
		}
		if m.Locks > 0 {
			m.NextExpiry = next
		}
		m.wrote()
	}
	if passed(m.NextForget, m.now) {
		next, err := m.items.ForgetLocks(m.now.Add(-rememberLocks), settleLocks)
		if err != nil {
			return err
		}
		m.NextForget = time.Time{}
		if !next.IsZero() {
			m.NextForget = next.Add(rememberLocks)
		}
		m.wrote()
	}
	if passed(m.NextDue, m.now) {
		return m.release()
	}
	return nil
}

// release makes delayed jobs ready that are due. One that was pushed with a delay goes to the end,
// one that was returned with it to the front.
func (m *Machine) release() error {
	due, next, err := m.items.Due(m.now, settleDelayed)
	if err != nil {
		return err
	}
	for _, d := range due {
		position := d.Position
		if !d.Returned {
			m.Last++
			position = m.Last
		}
		if err := m.items.Ready(d, position, d.Due); err != nil {
			return err
		}
		m.Delayed--
		m.add(d.Priority, position)
	}
	m.NextDue = next
	m.wrote()
	return nil
}

// do implements [Operation].
func (Settle) do(m *Machine) (Result, error) { return Result{}, m.settle() }

// do implements [Operation].
func (c Configure) do(m *Machine) (Result, error) {
	if err := c.Settings.Check(); err != nil {
		return refused(err)
	}
	if p := m.Priorities(); len(p) > 0 && p[len(p)-1] >= c.Settings.WithDefaults().Priorities {
		return refused(&InvalidError{"priorities: the queue has items of lower priorities; pop them first, " +
			"or keep more"})
	}
	m.Settings = c.Settings
	m.wrote()
	return Result{}, nil
}

// do implements [Operation].
func (r Requeue) do(m *Machine) (Result, error) {
	if err := m.settle(); err != nil {
		return Result{}, err
	}
	dead, err := m.items.Dead(r.IDs, r.Limit)
	if err != nil {
		return Result{}, err
	}
	for _, d := range dead {
		m.Last++
		if err := m.items.Revive(d, m.Last, m.now); err != nil {
			return Result{}, err
		}
		m.State.Dead--
		m.add(d.Priority, m.Last)
	}
	if len(dead) > 0 {
		m.wrote()
	}
	return Result{Count: len(dead)}, nil
}

// do implements [Operation].
func (r Remove) do(m *Machine) (Result, error) {
	if !r.Dead {
		if err := m.expireMany(); err != nil {
			return Result{}, err
		}
	}
	removed, err := m.items.Remove(r.Dead, r.Limit)
	if err != nil {
		return Result{}, err
	}
	for _, x := range removed {
		switch x.Place {
		case PlaceReady:
			if l := m.Levels[x.Priority]; l != nil {
				if l.Ready--; l.Ready <= 0 {
					delete(m.Levels, x.Priority)
				}
			}
		case PlaceDelayed:
			m.Delayed--
		case PlaceDead:
			m.State.Dead--
		case PlaceLocked: // expireMany has ended the locks of ready jobs
		}
	}
	if len(removed) > 0 {
		m.wrote()
	}
	more := len(removed) == r.Limit || !r.Dead && m.Locks > 0
	return Result{Count: len(removed), More: more}, nil
}

// expireMany ends locks, so that their jobs can be removed: all, unless that is too much for one
// transaction. Clients that acknowledge one get [ErrLockExpired].
func (m *Machine) expireMany() error {
	if m.Exclusive != nil {
		err := m.expire(m.Exclusive)
		m.Lapsed = false // its time was not over
		return err
	}
	if m.Locks == 0 {
		return nil
	}
	expired, _, err := m.items.Expired(m.LastExpiry, settleLocks)
	if err != nil {
		return err
	}
	for n := range expired {
		if err := m.expire(&expired[n]); err != nil {
			return err
		}
	}
	if len(expired) == 0 {
		m.Locks, m.Locked = 0, 0 // an operator has removed rows by hand
		m.wrote()
	}
	return nil
}

// do implements [Operation].
func (Forget) do(m *Machine) (Result, error) {
	if !m.Empty() {
		return refused(ErrNotEmpty)
	}
	n, last, err := m.items.Forget(m.Forgotten, forgetRows)
	if err != nil {
		return Result{}, err
	}
	m.Forgotten = last
	m.gone = n < forgetRows
	m.wrote()
	return Result{More: !m.gone}, nil
}
