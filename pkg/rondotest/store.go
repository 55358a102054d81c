package rondotest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// problems are violations that the environment has found.
type problems []error

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// instance is what the store and the orchestrator have of an instance.
type instance struct {
	id      string
	live    *round.Instance // nil: not in memory
	row     round.Row
	history map[int64][]events.Event
	values  map[string]codec.Payload
	sweep   bool // it has crashed: look after it at its wake-up time
	former  *round.Former
	// deployed is how the instance was when the code was deployed that runs now.
	deployed round.RowVersion
}

func (in *instance) forget() {
	if in.live != nil {
		in.live.Evict()
		in.live = nil
	}
}

// known is what the store gives.
func (in *instance) known() round.Known {
	return round.Known{Instance: in.id, Row: in.row, History: slices.Clone(in.history[in.row.Execution])}
}

// own is the first event of the current execution that the code has recorded that runs now.
func (in *instance) own() int64 {
	if d := in.deployed; d.Incarnation == in.row.Incarnation && d.Execution == in.row.Execution {
		return d.LastEvent + 1
	}
	return 1
}

// recall reads what former executions have taken in.
func (in *instance) recall(q round.Question) {
	in.former = round.NewFormer(q.Execution)
	for x := in.former.Next(q.Sent); x > 0; x = in.former.Next(q.Sent) {
		in.former.Read(in.history[x])
	}
}

// store keeps all instances. A turn changes it only if the turn was decided on what the store has.
type store struct {
	instances map[string]*instance
	order     []string // ids, in the order of their appearance
	problems  *problems
}

// instanceOf finds or makes the record of an instance.
func (s *store) instanceOf(id string) *instance {
	in := s.instances[id]
	if in == nil {
		in = &instance{id: id, history: make(map[int64][]events.Event), values: make(map[string]codec.Payload)}
		s.instances[id] = in
		s.order = append(s.order, id)
	}
	return in
}

// each calls do with all instances, in the order of their appearance.
func (s *store) each(do func(*instance)) {
	for _, id := range s.order {
		do(s.instances[id])
	}
}

// value reads a value of an instance.
func (s *store) value(id, key string) (codec.Payload, bool) {
	in := s.instances[id]
	if in == nil {
		return nil, false
	}
	data, ok := in.values[key]
	return data, ok
}

// ended reports whether there is such an instance and it has ended.
func (s *store) ended(id string) bool {
	in := s.instances[id]
	return in != nil && in.row.Status.Ended()
}

// commit stores what a turn appends, through the wire form.
func (s *store) commit(in *instance, turn round.Turn) {
	if len(turn.Executions) > 0 && turn.Expected != in.row.RowVersion() {
		s.problems.addf("instance %q: a turn was decided on %+v, the store has %+v", in.id, turn.Expected,
			in.row.RowVersion())
	}
	for _, x := range turn.Executions {
		for _, ev := range x.Events {
			data, err := events.EncodeEvent(ev)
			if err != nil {
				s.problems.addf("instance %q: %v", in.id, err)
				continue
			}
			back, err := events.DecodeEvent(data)
			if err != nil {
				s.problems.addf("instance %q: %v", in.id, err)
			}
			in.history[x.ID] = append(in.history[x.ID], back)
		}
	}
	if len(turn.Executions) > 0 {
		in.row = turn.Row
	}
	if turn.ClearValues {
		clear(in.values)
	}
	for _, v := range turn.Values {
		if v.Removed {
			delete(in.values, v.Key)
		} else {
			in.values[v.Key] = v.Value
		}
	}
}

// nextSweep finds the crashed instance that is to be looked after first.
func (s *store) nextSweep() *instance {
	var first *instance
	s.each(func(in *instance) {
		if in.sweep && !in.row.WakeAt.IsZero() && (first == nil || in.row.WakeAt.Before(first.row.WakeAt)) {
			first = in
		}
	})
	return first
}

// check joins the problems and the violations in the histories of all instances.
func (s *store) check() error {
	var all []check.Instance
	s.each(func(in *instance) {
		all = append(all, check.Instance{ID: in.id, Row: in.row, History: in.history, Values: in.values})
	})
	return errors.Join(append(slices.Clone(*s.problems), check.Together(all...))...)
}
