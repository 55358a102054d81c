package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file compares instances with the acknowledgements of clients, and with the messages that
// other instances sent to them. The check sorts all of these by instance, on disk if need be, and
// then reads each instance once for all of them.

// [acknowledgement] is an acknowledgement with the number of its log, or a message from one
// instance to another with the event that sent it.
type acknowledgement struct {
	Log int            `json:"log"`
	By  *events.Parent `json:"by,omitempty"`
	Acknowledged
}

// from is the earliest time at which the message could be processed.
func (p acknowledgement) from() time.Time {
	if p.Due.After(p.At) {
		return p.Due
	}
	return p.At
}

// group has the acknowledgements and messages about one instance.
type group struct {
	instance string
	list     []acknowledgement
}

// saidBy lists the starts and messages that an execution sent to other instances.
func (x *execution) saidBy(instance string) (list []acknowledgement) {
	if x.started == nil {
		return nil
	}
	for _, f := range x.said {
		p := acknowledgement{Log: -1,
			Acknowledged: Acknowledged{What: f.what, Instance: f.instance, At: f.at, Due: f.due}}
		p.By = &events.Parent{Instance: instance, Incarnation: x.started.Incarnation, Execution: x.number,
			Event: f.event}
		verb := events.VerbStart
		if p.Name = f.name; f.what == AcknowledgedMailbox {
			verb, p.Name, p.Mailbox = events.VerbMailbox, "", f.name
		}
		p.Message = events.MessageID(verb, instance,
			events.Ref{Incarnation: p.By.Incarnation, Execution: p.By.Execution, Event: p.By.Event})
		list = append(list, p)
	}
	return list
}

// sortSaid keeps messages between instances until all instances were read.
func (s *system) sortSaid(list []acknowledgement) error {
	for _, p := range list {
		if !s.o.Quiescent && !s.overdue(p.At) {
			continue // the outbox may still have it
		}
		s.report.Said++
		if err := s.sort(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) sort(p acknowledgement) error {
	data, err := json.Marshal(p)
	if err == nil {
		err = s.sorted.add(p.Instance, data)
	}
	if err != nil {
		return fmt.Errorf("sort the acknowledgements: %w", err)
	}
	return nil
}

// sortAcknowledgements reads the acknowledgements of clients.
func (s *system) sortAcknowledgements(ctx context.Context) error {
	for i, log := range s.o.Acknowledgements {
		for p, err := range log.Each {
			if err != nil {
				return &LogError{log.Name, err}
			}
			if !strings.HasPrefix(p.Instance, s.o.Filter.IDPrefix) {
				continue
			}
			s.report.Acknowledgements++
			if err := s.sort(acknowledgement{Log: i, Acknowledged: p}); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// LogError reports an acknowledgement log that cannot be read.
type LogError struct {
	Name string
	Err  error
}

func (e *LogError) Error() string {
	return fmt.Sprintf("the acknowledgements of %s: %v", e.Name, e.Err)
}

// Unwrap returns the reason.
func (e *LogError) Unwrap() error { return e.Err }

// [system.acknowledgements] judges all acknowledgements, instance by instance, some instances at a
// time.
func (s *system) acknowledgements(ctx context.Context) error {
	const most = 2000 // acknowledgements at a time, unless one instance has more
	var all []group
	n := 0
	for r, err := range s.sorted.all() {
		var p acknowledgement
		if err == nil {
			err = json.Unmarshal(r.data, &p)
		}
		if err != nil {
			return fmt.Errorf("read the sorted acknowledgements: %w", err)
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

// judgeGroups reads instances with the acknowledgements about them.
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

// judgeSome judges some groups. It reads an instance again before it reports a finding.
func (s *system) judgeSome(ctx context.Context, all []group) error {
	first, err := s.kept(ctx, all)
	if err != nil {
		return err
	}
	for i, k := range first {
		if len(k.findings)+len(k.lost) > 0 {
			again, err := s.kept(ctx, all[i:i+1])
			if err != nil {
				return err
			}
			before := k
			k = again[0]
			k.findings = slices.DeleteFunc(k.findings, func(f Finding) bool {
				return !slices.ContainsFunc(before.findings, f.same)
			})
			k.lost = slices.DeleteFunc(k.lost, func(x lost) bool {
				return !slices.ContainsFunc(before.lost, func(y lost) bool { return x.messageKey == y.messageKey })
			})
		}
		for _, f := range k.findings {
			s.found(f)
		}
		for _, x := range k.lost {
			if err := s.doubt(ctx, x); err != nil {
				return err
			}
		}
		s.report.InFlight += k.inFlight
		s.report.Refused += k.refused
		for why, n := range k.not {
			s.report.NotJudged[why] += n
		}
	}
	return nil
}

// kept judges groups, each by itself. It asks for tombstones after it has read the instances: an
// instance that is missing then and has no tombstone was not deleted in between.
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
