package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Together checks instances that are in memory, each by itself and with their parents and children.
// They are all there are, and nothing was removed.
func Together(instances ...Instance) error {
	m := make(memory, len(instances))
	for _, in := range instances {
		if in.Row.Execution > 0 {
			m[in.ID] = in
		}
	}
	r, err := System(context.Background(), m, Options{NothingRemoved: true, Overdue: -1})
	if err != nil {
		return err // data in memory can always be read
	}
	return r.Err()
}

// memory is a store of instances that are in memory, by id.
type memory map[string]Instance

// Load implements [Store].
func (m memory) Load(_ context.Context, instances []string, admit func(string, round.Row) bool) ([]round.Known, error) {
	known := make([]round.Known, len(instances))
	for i, id := range instances {
		in := m[id]
		known[i] = round.Known{Instance: id, Row: in.Row}
		if admit == nil || admit(id, in.Row) {
			known[i].History = in.History[in.Row.Execution]
		}
	}
	return known, nil
}

// List implements [Store]: by id, whatever the filter.
func (m memory) List(_ context.Context, _ history.Filter, p history.Page) (list history.InstanceList, err error) {
	for _, id := range slices.Sorted(maps.Keys(m)) {
		switch {
		case id <= p.Cursor:
		case len(list.Instances) == p.Size():
			list.Next = list.Instances[len(list.Instances)-1].Instance
			return list, nil
		default:
			list.Instances = append(list.Instances, history.Info{Instance: id, Row: m[id].Row})
		}
	}
	return list, nil
}

// Executions implements [Store]. The memory has nothing of a former execution but its history.
func (m memory) Executions(_ context.Context, instance string, after int64,
	limit int) (list []history.ExecutionInfo, err error) {
	in := m[instance]
	for _, x := range slices.Sorted(maps.Keys(in.History)) {
		if h := in.History[x]; x > after && len(h) > 0 && len(list) < limit {
			l := newLineage(instance)
			l.begin(x)
			l.take(h)
			output, failure := outcome(l.now.end.Fact)
			list = append(list, history.ExecutionInfo{Execution: x, Status: l.now.standing(), Output: output,
				Error: failure, StartedAt: h[0].At, Events: int64(len(h))})
		}
	}
	return list, nil
}

// Events implements [Store].
func (m memory) Events(_ context.Context, instance string, execution, after int64, limit int) ([]events.Event, error) {
	h, ok := m[instance].History[execution]
	if !ok {
		return nil, fmt.Errorf("instance %q, execution %d: %w", strings.ToValidUTF8(instance, "?"), execution,
			history.ErrNoExecution)
	}
	from := min(int(after), len(h))
	return h[from:min(from+limit, len(h))], nil
}

// ValuesOf implements [Store].
func (m memory) ValuesOf(_ context.Context, instances []string) (map[string]map[string]history.Value, error) {
	all := make(map[string]map[string]history.Value, len(instances))
	for _, id := range instances {
		all[id] = make(map[string]history.Value)
		for k, v := range m[id].Values {
			all[id][k] = history.Value{Data: v}
		}
	}
	return all, nil
}

// Tombstones implements [Store]: there are none.
func (m memory) Tombstones(context.Context, []string) ([]string, error) { return nil, nil }

// Clock implements [Store]: there is none.
func (m memory) Clock(context.Context) (time.Time, error) { return time.Time{}, nil }

// OldOutbox implements [Store]: there are none.
func (m memory) OldOutbox(context.Context, time.Time, int) ([]history.OutboxEntry, error) {
	return nil, nil
}
