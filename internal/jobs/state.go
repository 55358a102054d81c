package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// State is the row of a queue. It has the places of the jobs, so that an operation need not count
// or search.
type State struct {
	// Incarnation tells apart two queues that had the same name.
	Incarnation string   `json:"incarnation"`
	Settings    Settings `json:"settings"`
	// Last is the last number that was given to a job or a position, LastLock the last one of a
	// lock.
	Last     int64 `json:"last"`
	LastLock int64 `json:"last_lock,omitempty"`
	// Levels are the priorities that have ready jobs.
	Levels map[int]*Level `json:"levels,omitempty"`
	// Delayed jobs become ready from NextDue on. Like the other times of this kind, it may be too
	// early, but not too late.
	Delayed int       `json:"delayed,omitempty"`
	NextDue time.Time `json:"next_due,omitzero"`
	// Exclusive is the only lock, if there is one of that kind. Otherwise there are Locks, the
	// first of which expires at NextExpiry, the last at LastExpiry.
	Exclusive *Lock `json:"exclusive,omitempty"`
	// Lapsed says that the exclusive lock has expired and that another operation has made its jobs
	// ready again. A client that acknowledges it still gets [ErrLockExpired], unless there was a
	// pop in between.
	Lapsed     bool      `json:"lapsed,omitempty"`
	Locks      int       `json:"locks,omitempty"`
	NextExpiry time.Time `json:"next_expiry,omitzero"`
	LastExpiry time.Time `json:"last_expiry,omitzero"`
	// Locked and Dead count jobs.
	Locked int `json:"locked,omitempty"`
	Dead   int `json:"dead,omitempty"`
	// NextKey is when the first idempotency key expires.
	NextKey time.Time `json:"next_key,omitzero"`
	// Forgotten is the last key that an unfinished removal of the queue has removed. There is none
	// up to it, so that the next portion does not walk over the rows of those that are gone.
	Forgotten string `json:"forgotten,omitempty"`
	// NextForget is when the first returned lock may be forgotten.
	NextForget time.Time `json:"next_forget,omitzero"`
	Totals     Totals    `json:"totals"`
	// At is the time of the last change.
	At time.Time `json:"at"`
	// Writers has the last transaction of each process that writes, so that a process whose commit
	// is in doubt can see whether it happened.
	Writers map[string]Written `json:"writers,omitempty"`
}

// Level is a priority that has ready jobs.
type Level struct {
	Ready int `json:"ready"`
	// Head is a position with none before it.
	Head int64 `json:"head"`
}

// Written is the last transaction of a process.
type Written struct {
	Token int64     `json:"token"`
	At    time.Time `json:"at"`
}

// writerAge is the time after which a process that has not written is forgotten. It is much longer
// than the retries of any transaction.
const writerAge = time.Hour

// Wrote notes that a process has written.
func (s *State) Wrote(writer string, token int64) {
	for name, w := range s.Writers {
		if s.At.Sub(w.At) > writerAge {
			delete(s.Writers, name)
		}
	}
	if s.Writers == nil {
		s.Writers = make(map[string]Written)
	}
	s.Writers[writer] = Written{token, s.At}
}

// Encode encodes the state.
func (s *State) Encode() ([]byte, error) { return json.Marshal(s) }

// DecodeState decodes a state.
func DecodeState(data []byte) (*State, error) {
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("the state of the queue cannot be read: %w", err)
	}
	return s, nil
}

// Empty reports whether the queue has no jobs at all.
func (s *State) Empty() bool { return s.items() == 0 }

// items counts all jobs.
func (s *State) items() int { return s.ready() + s.Locked + s.Delayed + s.Dead }

func (s *State) ready() (n int) {
	for _, l := range s.Levels {
		n += l.Ready
	}
	return n
}

// Priorities lists those that have ready jobs, the highest first.
func (s *State) Priorities() []int {
	list := make([]int, 0, len(s.Levels))
	for p := range s.Levels {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// Info is the state for clients. Only the store knows Oldest.
func (s *State) Info(queue string, now time.Time) Info {
	i := Info{
		Queue: queue, Settings: s.Settings.WithDefaults(), Ready: make(map[int]int), Locked: s.Locked, Locks: s.Locks,
		Delayed: s.Delayed, Dead: s.Dead,
		Totals: s.Totals, Incarnation: s.Incarnation, At: s.Now(now),
	}
	for p, l := range s.Levels {
		i.Ready[p] = l.Ready
	}
	if s.Exclusive != nil {
		lock := *s.Exclusive
		i.Exclusive, i.Locks = &lock, 1
	}
	return i
}

// Now is the time of the queue, which never goes back.
func (s *State) Now(clock time.Time) time.Time {
	if clock.Before(s.At) {
		return s.At
	}
	return clock
}

// Due reports whether an operation has to settle.
func (s *State) Due(now time.Time) bool {
	return s.Exclusive != nil && s.Exclusive.Expired(now) || passed(s.NextExpiry, now) || passed(s.NextDue, now)
}

// passed reports whether a time is set and has passed.
func passed(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// add records that a job is ready.
func (s *State) add(priority int, position int64) {
	if s.Levels == nil {
		s.Levels = make(map[int]*Level)
	}
	l := s.Levels[priority]
	if l == nil {
		l = &Level{Head: position}
		s.Levels[priority] = l
	}
	l.Ready++
	l.Head = min(l.Head, position)
}

// earlier returns the first of two times, one of which may be zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
