package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file brings instances together with what clients were promised about them, and with what
// others have said to them. All of that is sorted by instance, on disk if need be; then each
// instance is read once for all of it.

// promise is one with the log that it is from, or what an instance has said to another one, with
// the place where it has.
type promise struct {
	Log int            `json:"log"`
	By  *events.Parent `json:"by,omitempty"`
	Promised
}

// group is what was promised about one instance.
type group struct {
	instance string
	list     []promise
}

// saidBy lists what an execution has said to others.
func (x *execution) saidBy(instance string) (list []promise) {
	if x.started == nil {
		return nil
	}
	for _, f := range x.said {
		p := promise{Log: -1, Promised: Promised{What: f.what, Instance: f.instance, At: f.at}}
		p.By = &events.Parent{Instance: instance, Incarnation: x.started.Incarnation, Execution: x.number,
			Event: f.event}
		verb := events.VerbStart
		if p.Name = f.name; f.what == PromisedQueue {
			verb, p.Name, p.Queue = events.VerbQueue, "", f.name
		}
		p.Message = events.MessageID(verb, instance,
			events.Ref{Incarnation: p.By.Incarnation, Execution: p.By.Execution, Event: p.By.Event})
		list = append(list, p)
	}
	return list
}

// sortSaid keeps what an instance has said until all instances were looked at.
func (s *system) sortSaid(list []promise) error {
	for _, p := range list {
		if !s.o.Quiescent && !s.overdue(p.At) {
			continue // it may not even be sent
		}
		s.report.Said++
		if err := s.sort(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) sort(p promise) error {
	data, err := json.Marshal(p)
	if err == nil {
		err = s.sorted.add(p.Instance, data)
	}
	if err != nil {
		return fmt.Errorf("sort the promises: %w", err)
	}
	return nil
}

// sortPromises reads what clients were promised.
func (s *system) sortPromises(ctx context.Context) error {
	for i, log := range s.o.Promises {
		for p, err := range log.Each {
			if err != nil {
				return &LogError{log.Name, err}
			}
			if !strings.HasPrefix(p.Instance, s.o.Filter.IDPrefix) {
				continue
			}
			s.report.Promises++
			if err := s.sort(promise{Log: i, Promised: p}); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// LogError says that a log of promises cannot be read.
type LogError struct {
	Name string
	Err  error
}

func (e *LogError) Error() string { return fmt.Sprintf("the promises of %s: %v", e.Name, e.Err) }

// Unwrap gives the reason.
func (e *LogError) Unwrap() error { return e.Err }

// promises judges all of them, instance by instance, some instances at a time.
func (s *system) promises(ctx context.Context) error {
	const most = 2000 // promises at a time, unless one instance has more
	var all []group
	n := 0
	for r, err := range s.sorted.all() {
		var p promise
		if err == nil {
			err = json.Unmarshal(r.data, &p)
		}
		if err != nil {
			return fmt.Errorf("read the sorted promises: %w", err)
		}
		if last := len(all) - 1; last < 0 || all[last].instance != r.key {
			if n >= most || len(all) >= page {
				if err := s.judgeGroups(ctx, all); err != nil {
					return err
				}
				all, n = nil, 0
			}
			all = append(all, group{instance: r.key})
		}
		g := &all[len(all)-1]
		g.list = append(g.list, p)
		n++
	}
	return s.judgeGroups(ctx, all)
}

// judgeGroups reads instances with what was promised about them.
func (s *system) judgeGroups(ctx context.Context, all []group) error {
	var ids []string
	for _, g := range all {
		ids = append(ids, g.instance)
	}
	rows, err := s.rows(ctx, slices.Clone(ids))
	if err != nil || len(ids) == 0 {
		return err
	}
	for len(all) > 0 {
		n, size := 0, int64(0)
		for n < len(all) && (n == 0 || size+rows[all[n].instance].HistoryBytes <= portion) {
			size += rows[all[n].instance].HistoryBytes
			n++
		}
		if err := s.judgeSome(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
		s.progress()
	}
	return nil
}

// judgeSome judges promises. What seems broken is looked at once more.
func (s *system) judgeSome(ctx context.Context, all []group) error {
	first, err := s.kept(ctx, all)
	if err != nil {
		return err
	}
	for i, k := range first {
		if len(k.findings)+len(k.suspects) > 0 {
			again, err := s.kept(ctx, all[i:i+1])
			if err != nil {
				return err
			}
			before := k
			k = again[0]
			k.findings = slices.DeleteFunc(k.findings, func(f Finding) bool {
				return !slices.ContainsFunc(before.findings, f.same)
			})
			k.suspects = slices.DeleteFunc(k.suspects, func(x suspect) bool {
				return !slices.ContainsFunc(before.suspects, func(y suspect) bool { return x.message == y.message })
			})
		}
		for _, f := range k.findings {
			s.found(f)
		}
		for _, x := range k.suspects {
			if err := s.suspect(ctx, x); err != nil {
				return err
			}
		}
		s.report.UnderWay += k.underWay
		s.report.Refused += k.refused
		for why, n := range k.not {
			s.report.NotJudged[why] += n
		}
	}
	return nil
}

// kept judges groups, each by itself. Tombstones are looked for when the instances were read: who
// is not there then, and has none, was not deleted in between.
func (s *system) kept(ctx context.Context, all []group) ([]*keeping, error) {
	ids := make([]string, len(all))
	for i, g := range all {
		ids[i] = g.instance
	}
	known, err := s.store.Load(ctx, ids, func(_ string, row round.Row) bool { return round.CanRead(row) })
	if err != nil {
		return nil, fmt.Errorf("read instances: %w", err)
	}
	tombstones, err := s.tombstones(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]*keeping, len(all))
	for i, g := range all {
		k := newKeeping(s, g)
		k.row, k.exists, k.tombstone = known[i].Row, known[i].Row.Execution > 0, tombstones[g.instance]
		if k.exists {
			if k.reading, err = s.follow(ctx, known[i], k.see); err != nil {
				return nil, err
			}
			if x := k.reading.lineage.now; x != nil {
				_ = k.see(x) // it never fails
			}
		}
		if err := k.judge(ctx); err != nil {
			return nil, err
		}
		out[i] = k
	}
	return out, nil
}
