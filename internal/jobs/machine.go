package jobs

import (
	"strings"
	"time"
)

// Items are the items of one queue, as long as a transaction holds it. Positions and sizes come in
// ascending order.
type Items interface {
	// Expect says what will be asked for, so that it can be read at once. It need not come so.
	Expect(Expected) error
	// Add puts in items that are ready, or delayed if due is set.
	Add(item Item, due time.Time) error
	// Sizes gives the sizes of the first ready items of a priority, and nothing before from is
	// looked at.
	Sizes(priority int, from int64, limit int) ([]int, error)
	// Take removes the first ready items of a priority and gives them. Hold has a lock hold them
	// instead, and counts an attempt.
	Take(priority int, from int64, count int) ([]Item, error)
	Hold(priority int, from int64, count int, lock int64) ([]Item, error)
	// Drop removes the items of a lock, and tells how many.
	Drop(lock Lock) (int, error)
	// Move has another lock hold some of the items of a lock, by their ids, and tells how many.
	Move(ids []int64, from, to int64) (int, error)
	// GiveBack makes the items of a lock ready again, or delays them if due is set. Those with at
	// least maxAttempts (if not 0) are dead from now on.
	GiveBack(lock int64, due, now time.Time, maxAttempts int, reason string) ([]Back, error)
	// Due lists delayed items whose time has come, the first ones at the front, and when the first
	// of the others is due. Ready makes one ready.
	Due(now time.Time, limit int) (due []Delayed, next time.Time, err error)
	Ready(item Delayed, position int64, since time.Time) error
	// Dead lists dead items, those that died first at the front; with ids, those of them that are
	// there. Revive makes one ready as a new one.
	Dead(ids []DeadID, limit int) ([]Dead, error)
	Revive(item Dead, position int64, now time.Time) error
	// Remove removes items of any kind, or only dead ones.
	Remove(dead bool, limit int) ([]Removed, error)

	// AddLock, FindLock, ChangeLock and RemoveLock keep concurrent locks. FindLock gives nil if
	// there is none.
	AddLock(Lock) error
	FindLock(id string) (*Lock, error)
	ChangeLock(Lock) error
	RemoveLock(id string) error
	// Expired lists concurrent locks that have expired and are not returned, and when the first of
	// the others does.
	Expired(now time.Time, limit int) (expired []Lock, next time.Time, err error)
	// ForgetLocks removes locks that were returned and had expired before a moment, and tells when
	// the first of the others had expired.
	ForgetLocks(before time.Time, limit int) (next time.Time, err error)

	// FindKey gives the digest and the count of a push by its key, if its time has not passed,
	// AddKey notes one, ForgetKeys removes those whose time has passed and tells when the first of
	// the others is over.
	FindKey(key string, now time.Time) (digest string, count int, found bool, err error)
	AddKey(key, digest string, count int, until time.Time) error
	ForgetKeys(now time.Time, limit int) (next time.Time, err error)
}

// Expected is what operations will ask for.
type Expected struct {
	// Pops of all together so many ready items, which will be taken or held. Those whose sizes are
	// looked at before are not among them.
	Pops, Ready int
	// Locks and Keys are those that will be looked for.
	Locks, Keys []string
}

// expected is what operations will ask for, if pops that do not say theirs have a mode.
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
		}
	}
	return e
}

// Back is where an item of a lock has gone.
type Back struct {
	Priority int
	Position int64
	Dead     bool
}

// Delayed is an item that waits for its time.
type Delayed struct {
	ID       int64
	Due      time.Time
	Position int64
	Priority int
	Attempts int
}

// Removed is where an item was.
type Removed struct {
	Place    Place
	Priority int
}

// Place is where an item is.
type Place int

// The places.
const (
	PlaceReady Place = iota
	PlaceDelayed
	PlaceLocked
	PlaceDead
)

// Bounds of what one operation settles, so that no transaction grows without end. What is left is
// settled by the next.
const (
	settleLocks   = 100
	settleDelayed = 200
	forgetAtOnce  = 50
	// lookAhead is from how many items on their sizes are looked at before they are taken.
	lookAhead = 16
	// expectMost bounds the items that are read before somebody asks for them: nothing is known of
	// their sizes.
	expectMost = 100
	// rememberLocks is for how long a concurrent lock that has expired is told from one that never
	// was.
	rememberLocks = 10 * time.Minute
)

// Machine does operations on a queue, within one transaction.
type Machine struct {
	*State
	items   Items
	now     time.Time
	changed bool
	gone    bool

	expired, died int // items, during one operation
}

// NewMachine begins with a state; a queue that is to be made begins with an incarnation and nothing
// else.
func NewMachine(s *State, items Items, clock time.Time) *Machine {
	return &Machine{State: s, items: items, now: s.Now(clock)}
}

// Changed reports whether the state must be written.
func (m *Machine) Changed() bool { return m.changed }

// Gone reports whether the queue is to be removed, with everything that is left of it.
func (m *Machine) Gone() bool { return m.gone }

// Do does operations in their order, up to the one that removes the queue: what comes behind it is
// for another queue.
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
	if err := m.settle(); err != nil { // what is due comes first
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
	if limit := m.Settings.MaxItems; limit > 0 && m.State.items()+len(p.Items) > limit {
		return refused(&FullError{m.State.items(), limit})
	}
	for _, n := range p.Items {
		m.Last++
		i := Item{ID: m.Last, Priority: n.Priority, Position: m.Last, PushedAt: m.now, ReadyAt: m.now,
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
	m.Totals.Pushed += int64(len(p.Items))
	m.wrote()
	if p.Key != "" {
		until := m.now.Add(p.KeyFor)
		m.NextKey = earlier(m.NextKey, until)
		if err := m.items.AddKey(p.Key, p.Digest, len(p.Items), until); err != nil {
			return Result{}, err
		}
	}
	return Result{Count: len(p.Items)}, nil
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

// take takes items from the front, for a lock or for good.
func (m *Machine) take(p Pop, lock int64) (items []Item, err error) {
	bytes := 0
	for _, priority := range m.Priorities() {
		l := m.Levels[priority]
		count, last := min(p.Count-len(items), l.Ready), false
		if p.looks() && count > 0 {
			sizes, err := m.items.Sizes(priority, l.Head, count)
			if err != nil {
				return nil, err
			}
			if len(sizes) < count { // somebody has removed rows by hand
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
		var taken []Item
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
			// less than there should be: somebody has removed rows by hand
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

// end finds a lock that is to end, or to go on, and refuses what comes too late or for none.
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

// drop forgets a lock that has ended.
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

// expire puts the items of a lock back whose time is over.
func (m *Machine) expire(l *Lock) error {
	n, err := m.giveBack(l, time.Time{}, "the lock has expired")
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

// giveBack puts the items of a lock back.
func (m *Machine) giveBack(l *Lock, due time.Time, reason string) (int, error) {
	if len(reason) > MaxReason {
		reason = strings.ToValidUTF8(reason[:MaxReason], "")
	}
	back, err := m.items.GiveBack(l.Number, due, m.now, m.Settings.MaxAttempts, reason)
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

// settle does what is due.
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

// release makes delayed items ready whose time has come. One that was pushed with a delay comes to
// the end, one that was returned with it to the front.
func (m *Machine) release() error {
	due, next, err := m.items.Due(m.now, settleDelayed)
	if err != nil {
		return err
	}
	for _, d := range due {
		position := d.Position
		if d.Attempts == 0 {
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
		if err := m.expireAll(); err != nil {
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
		}
	}
	if len(removed) > 0 {
		m.wrote()
	}
	return Result{Count: len(removed)}, nil
}

// expireAll ends all locks, so that their items can be removed, and whoever has one is told that it
// is over.
func (m *Machine) expireAll() error {
	if m.Exclusive != nil {
		err := m.expire(m.Exclusive)
		m.Lapsed = false // its time was not over
		return err
	}
	for m.Locks > 0 {
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
			m.Locks, m.Locked = 0, 0 // somebody has removed rows by hand
			m.wrote()
		}
	}
	return nil
}

// do implements [Operation].
func (Forget) do(m *Machine) (Result, error) {
	if !m.Empty() {
		return refused(ErrNotEmpty)
	}
	m.gone = true
	m.wrote()
	return Result{}, nil
}
