package jobs

import "time"

// do implements [Operation].
func (r Return) do(m *Machine) (Result, error) {
	if r.Delay < 0 || r.Delay > MaxDelay {
		return refused(&InvalidError{"delay_seconds: want 0 to " + inSeconds(MaxDelay)})
	}
	return m.end(r.LockID, func(l *Lock) (Result, error) {
		due := time.Time{}
		if r.Delay > 0 {
			due = m.now.Add(r.Delay)
		}
		back := *l
		if len(r.Only) > 0 {
			if err := m.split(&back, r.Only); err != nil {
				return Result{}, err
			}
		}
		n, err := m.returnJobs(&back, due, r.Reason, r.Uncounted)
		if err != nil {
			return Result{}, err
		}
		m.Totals.Returned += int64(n)
		return Result{Count: n, Lock: l}, m.drop(l)
	})
}

// split gives some of the jobs of a lock a number of their own, and drops the others.
func (m *Machine) split(l *Lock, ids []int64) error {
	others := *l
	m.LastLock++
	l.Number = m.LastLock
	moved, err := m.items.Move(ids, others.Number, l.Number)
	if err != nil {
		return err
	}
	others.Items = max(0, others.Items-moved)
	dropped, err := m.items.Drop(others)
	m.Totals.Acknowledged += int64(dropped)
	return err
}
