package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// This file validates operations.

func (m *Machine) checkPush(p Push) error {
	if len(p.Jobs) == 0 || len(p.Jobs) > MaxCount {
		return &InvalidError{"push 1 to 1000 items at once"}
	}
	if len(p.Key) > MaxKey {
		return &InvalidError{"the idempotency key is too long; it may have 255 characters"}
	}
	last := m.Settings.WithDefaults().Priorities - 1
	i := slices.IndexFunc(p.Jobs, func(n NewJob) bool { return n.Priority < 0 || n.Priority > last })
	if i >= 0 {
		return badJob(i, p.Jobs, "priority", p.Jobs[i].Priority, last)
	}
	i = slices.IndexFunc(p.Jobs, func(n NewJob) bool { return n.Delay < 0 || n.Delay > MaxDelay })
	if i >= 0 {
		return badJob(i, p.Jobs, "delay_seconds", int(p.Jobs[i].Delay/time.Second), int(MaxDelay/time.Second))
	}
	return nil
}

func badJob(at int, items []NewJob, what string, is, most int) error {
	where := ""
	if len(items) > 1 {
		where = fmt.Sprintf("item %d of %d: ", at+1, len(items))
	}
	return &InvalidError{fmt.Sprintf("%s%s: %d; want 0 to %d", where, what, is, most)}
}

// looks reports whether the sizes of jobs are read before the jobs are taken.
func (p Pop) looks() bool { return p.Bytes > 0 && p.Count > lookAhead }

func (p Pop) check() error {
	if p.Count < 1 || p.Count > MaxCount {
		return &InvalidError{fmt.Sprintf("count: %d; want 1 to %d", p.Count, MaxCount)}
	}
	return p.Mode.Check()
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// checkSizes returns an error for a push of a job that is too large.
func (p Push) checkSizes() error {
	for n, i := range p.Jobs {
		if p.MaxJob > 0 && len(i.Data) > p.MaxJob {
			return &InvalidError{fmt.Sprintf("item %d of %d has %d bytes, and may have %d (--jobs-max-size of the "+
				"orchestrators); keep the data in a store and push a reference to it", n+1, len(p.Jobs), len(i.Data),
				p.MaxJob)}
		}
	}
	return nil
}
