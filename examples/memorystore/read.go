package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// reader implements [history.Reader], [history.Bounded] and [history.Audit].
type reader struct{ *session }

// Within implements [history.Bounded].
func (s reader) Within(bytes int) history.BoundedReader {
	bounded := *s.session
	bounded.bytes = max(bytes, 1)
	return reader{&bounded}
}

// page returns the first items, at most limit of them. None comes after the one with which their
// sizes reach the bound in bytes.
func page[T any](s *session, items []T, limit int, size func(T) int) []T {
	total := 0
	for n, item := range items {
		if n == limit || s.bytes > 0 && total >= s.bytes {
			return items[:n]
		}
		total += size(item)
	}
	return items
}

func sizeOf(r round.Row) int {
	size := len(r.Output) + len(r.CustomStatus)
	for name, value := range r.Attributes {
		size += len(name) + len(value)
	}
	if r.Error != nil {
		data, _ := json.Marshal(r.Error) // it has no values that JSON does not
		size += len(data)
	}
	return size
}

// fits reports whether all that a filter sets holds for an instance.
func fits(f history.Filter, id string, in *instance) bool {
	r := in.row
	for name, want := range f.Attributes {
		if value, ok := r.Attributes[name]; !ok || value != want {
			return false
		}
	}
	return in.exists() &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, id)) && strings.HasPrefix(id, f.IDPrefix) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status)) &&
		(f.Name == "" || f.Name == r.Name) && (f.Version == "" || f.Version == r.Version) &&
		(f.Parent == "" || f.Parent == in.parent()) && (!f.RootsOnly || r.Parent == nil) &&
		!in.created.Before(f.CreatedAfter) && (f.CreatedBefore.IsZero() || in.created.Before(f.CreatedBefore)) &&
		(f.EndedAfter.IsZero() || !r.EndedAt.IsZero() && !r.EndedAt.Before(f.EndedAfter)) &&
		(f.EndedBefore.IsZero() || !r.EndedAt.IsZero() && r.EndedAt.Before(f.EndedBefore))
}

// parent is the id of an instance's parent; "" if it has none.
func (in *instance) parent() string {
	if in.row.Parent == nil {
		return ""
	}
	return in.row.Parent.Instance
}

func (in *instance) info(id string) history.Info {
	return history.Info{Instance: id, CreatedAt: in.created, Row: copyRow(in.row)}
}

// A cursor names the last instance of a page, so that a page does not depend on those before it.
const (
	byCreation = "c %d %q" // nanoseconds, and the id
	byID       = "i %q"
)

// list gives a page of the instances that fit a filter.
func (s *session) list(f history.Filter, p history.Page) (list history.InstanceList, err error) {
	if err := f.Check(); err != nil {
		return list, err
	}
	var all []history.Info
	for id, in := range s.instances {
		if fits(f, id, in) {
			all = append(all, in.info(id))
		}
	}
	order := func(a, b history.Info) int { return cmp.Compare(a.Instance, b.Instance) }
	if f.IDPrefix == "" {
		order = func(a, b history.Info) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Instance, a.Instance))
		}
	}
	slices.SortFunc(all, order)
	cursor := func(last history.Info) string {
		if f.IDPrefix != "" {
			return fmt.Sprintf(byID, last.Instance)
		}
		return fmt.Sprintf(byCreation, last.CreatedAt.UnixNano(), last.Instance)
	}
	if p.Cursor != "" {
		var last history.Info
		var nanos int64
		if f.IDPrefix != "" {
			_, err = fmt.Sscanf(p.Cursor, byID, &last.Instance)
		} else {
			_, err = fmt.Sscanf(p.Cursor, byCreation, &nanos, &last.Instance)
		}
		last.CreatedAt = time.Unix(0, nanos)
		if err != nil || cursor(last) != p.Cursor {
			return list, fmt.Errorf("cursor %q: %w", p.Cursor, history.ErrBadCursor)
		}
		all = slices.DeleteFunc(all, func(i history.Info) bool { return order(i, last) <= 0 })
	}
	list.Instances = page(s, all, p.Size(), func(i history.Info) int { return sizeOf(i.Row) })
	if n := len(list.Instances); n > 0 && n < len(all) {
		list.Next = cursor(list.Instances[n-1])
	}
	return list, nil
}

// List implements [history.Reader].
func (s reader) List(ctx context.Context, f history.Filter, p history.Page) (history.InstanceList, error) {
	return call(ctx, s.session, "list", func() (history.InstanceList, error) { return s.list(f, p) })
}

// Count implements [history.Reader].
func (s reader) Count(ctx context.Context, f history.Filter, limit int64) (int64, error) {
	return call(ctx, s.session, "count", func() (n int64, err error) {
		for id, in := range s.instances {
			if fits(f, id, in) && (limit <= 0 || n < limit) {
				n++
			}
		}
		return n, f.Check()
	})
}

// Instance implements [history.Reader].
func (s reader) Instance(ctx context.Context, id string) (history.Info, error) {
	return call(ctx, s.session, "instance", func() (history.Info, error) {
		in, err := s.find(id)
		if err != nil {
			return history.Info{}, err
		}
		return in.info(id), nil
	})
}

// Executions implements [history.Reader].
func (s reader) Executions(ctx context.Context, id string, after int64, limit int) ([]history.ExecutionInfo, error) {
	return call(ctx, s.session, "executions", func() (list []history.ExecutionInfo, err error) {
		in, err := s.find(id)
		if err != nil {
			return nil, err
		}
		rows := append(slices.Collect(maps.Values(in.former)), in.row)
		rows = slices.DeleteFunc(rows, func(r round.Row) bool { return r.Execution <= after })
		slices.SortFunc(rows, func(a, b round.Row) int { return cmp.Compare(a.Execution, b.Execution) })
		for _, r := range page(s.session, rows, history.Page{Limit: limit}.Size(), sizeOf) {
			r = copyRow(r)
			list = append(list, history.ExecutionInfo{Execution: r.Execution, Incarnation: r.Incarnation, Name: r.Name,
				Version: r.Version, Engine: r.Engine, Status: r.Status, Output: r.Output, Error: r.Error,
				StartedAt: r.StartedAt, EndedAt: r.EndedAt, Events: r.LastEvent, Bytes: r.HistoryBytes})
		}
		return list, nil
	})
}

// Events implements [history.Reader].
func (s reader) Events(ctx context.Context, id string, execution, after int64, limit int) ([]events.Event, error) {
	return call(ctx, s.session, "events", func() ([]events.Event, error) {
		in, err := s.find(id)
		if err != nil {
			return nil, err
		}
		if execution == 0 {
			execution = in.row.Execution
		}
		all, ok := in.events[execution]
		if !ok {
			return nil, fmt.Errorf("instance %q, execution %d: %w", id, execution, history.ErrNoExecution)
		}
		rest := all[min(max(after, 0), int64(len(all))):]
		size := func(data []byte) int { return len(data) }
		return decode(id, execution, page(s.session, rest, history.Page{Limit: limit}.Size(), size))
	})
}

// Stats implements [history.Reader].
func (s reader) Stats(ctx context.Context, id string) (history.Stats, error) {
	return call(ctx, s.session, "stats", func() (history.Stats, error) {
		in, err := s.find(id)
		if err != nil {
			return history.Stats{}, err
		}
		stats := history.Stats{Execution: in.row.Execution, Events: in.row.LastEvent,
			HistoryBytes: in.row.HistoryBytes, Unread: in.row.Unread, Values: len(in.values)}
		for _, v := range in.values {
			stats.ValueBytes += int64(len(v.Data))
		}
		return stats, nil
	})
}

// valuesOf copies the values of an instance; none if it does not exist.
func (t *tables) valuesOf(id string) map[string]history.Value {
	values := make(map[string]history.Value)
	if in, err := t.find(id); err == nil {
		for key, v := range in.values {
			v.Data = slices.Clone(v.Data)
			values[key] = v
		}
	}
	return values
}

// Values implements [history.Reader].
func (s reader) Values(ctx context.Context, id string) (map[string]history.Value, error) {
	return call(ctx, s.session, "values", func() (map[string]history.Value, error) { return s.valuesOf(id), nil })
}

// Value implements [history.Reader].
func (s reader) Value(ctx context.Context, id, key string) (value history.Value, ok bool, err error) {
	value, err = call(ctx, s.session, "value", func() (v history.Value, err error) {
		v, ok = s.valuesOf(id)[key]
		return v, nil
	})
	return value, ok, err
}

// CustomStatus implements [history.Reader].
func (s reader) CustomStatus(ctx context.Context, id string, known int64) (history.CustomStatus, error) {
	return call(ctx, s.session, "custom_status", func() (status history.CustomStatus, err error) {
		in, err := s.find(id)
		if err == nil {
			status.Version = in.row.CustomStatusVersion
		}
		if status.Changed = status.Version != known; status.Changed && err == nil {
			status.Data = slices.Clone(in.row.CustomStatus)
		}
		return status, nil
	})
}

// family gives instances with all their descendants, parents before their children.
func (t *tables) family(ids []string) (nodes []history.Node) {
	seen := make(map[string]bool)
	add := func(id string, depth int) {
		if in := t.instances[id]; in.exists() && !seen[id] {
			seen[id] = true
			nodes = append(nodes, history.Node{Instance: id, Parent: in.parent(), Name: in.row.Name,
				Status: in.row.Status, Depth: depth})
		}
	}
	children := make(map[string][]string)
	for _, id := range slices.Sorted(maps.Keys(t.instances)) {
		children[t.instances[id].parent()] = append(children[t.instances[id].parent()], id)
	}
	for _, id := range ids {
		add(id, 0)
	}
	for i := 0; i < len(nodes); i++ { // it grows meanwhile
		for _, id := range children[nodes[i].Instance] {
			add(id, nodes[i].Depth+1)
		}
	}
	return nodes
}

// Tree implements [history.Reader].
func (s reader) Tree(ctx context.Context, id string) ([]history.Node, error) {
	return call(ctx, s.session, "tree", func() ([]history.Node, error) {
		if _, err := s.find(id); err != nil {
			return nil, err
		}
		return s.family([]string{id}), nil
	})
}

// Metrics implements [history.Reader].
func (s reader) Metrics(ctx context.Context) (history.Metrics, error) {
	return call(ctx, s.session, "metrics", func() (history.Metrics, error) {
		m := history.Metrics{Instances: make(map[round.Status]int64), OutboxEntries: int64(len(s.outbox))}
		for _, in := range s.instances {
			if !in.exists() {
				m.Tombstones++
				continue
			}
			m.Instances[in.row.Status]++
			m.Executions += int64(len(in.former)) + 1
			for _, list := range in.events {
				m.Events += int64(len(list))
			}
		}
		return m, nil
	})
}

// ---- For a checker.

// ValuesOf implements [history.Audit].
func (s reader) ValuesOf(ctx context.Context, ids []string) (map[string]map[string]history.Value, error) {
	return call(ctx, s.session, "values_of", func() (map[string]map[string]history.Value, error) {
		all := make(map[string]map[string]history.Value)
		for _, id := range ids {
			if values := s.valuesOf(id); len(values) > 0 {
				all[id] = values
			}
		}
		return all, nil
	})
}

// Tombstones implements [history.Audit].
func (s reader) Tombstones(ctx context.Context, ids []string) ([]string, error) {
	return call(ctx, s.session, "tombstones", func() (found []string, err error) {
		for _, id := range ids {
			if in := s.instances[id]; in != nil && !in.exists() {
				found = append(found, id)
			}
		}
		return found, nil
	})
}

// maxOldOutbox bounds the bytes of the messages that OldOutbox gives at once.
const maxOldOutbox = 8 << 20

// OldOutbox implements [history.Audit].
func (s reader) OldOutbox(ctx context.Context, before time.Time, limit int) ([]history.OutboxEntry, error) {
	return call(ctx, s.session, "old_outbox", func() (old []history.OutboxEntry, err error) {
		size := 0
		for _, key := range s.before(before) {
			size += len(s.outbox[key].packed)
			if len(old) == (history.Page{Limit: limit}).Size() || len(old) > 0 && size > maxOldOutbox {
				break
			}
			old = append(old, s.unpack(key))
		}
		return old, nil
	})
}
