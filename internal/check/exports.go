package check

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Exports are exported histories, to be checked like a store. They are sorted into a file, of which
// a small index is in memory: so there may be more of them than fit into memory.
type Exports struct {
	sorter sorter
	file   *os.File
	index  []indexed // of one record in each 64 KiB
	count  int64
}

// indexed is where a record is in the file.
type indexed struct {
	key string
	at  int64
}

var _ Store = (*Exports)(nil)

// NewExports returns Exports that keep their file in dir. Default: the directory for temporary
// files.
func NewExports(dir string) *Exports { return &Exports{sorter: sorter{dir: dir}} }

// Add reads exported histories, one after the other, as `rondo history --export` writes them. It
// returns their number.
func (x *Exports) Add(from io.Reader) (n int, err error) {
	dec := json.NewDecoder(from)
	for ; ; n++ {
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("it is no exported history: %w", err)
		}
		var head struct {
			Instance  string `json:"instance"`
			Execution int64  `json:"execution"`
		}
		if err := json.Unmarshal(raw, &head); err != nil || head.Instance == "" || head.Execution < 1 {
			return n, errors.New("it is no exported history: want an object with instance, execution and events")
		}
		if err := x.sorter.add(exportKey(head.Instance, head.Execution), raw); err != nil {
			return n, err
		}
	}
}

// exportKey sorts by instance, and by execution within one.
func exportKey(instance string, execution int64) string {
	return string(binary.BigEndian.AppendUint64([]byte(instance+"\x00"), uint64(execution)))
}

func splitKey(key string) (instance string, execution int64) {
	at := max(0, len(key)-9)
	return key[:at], int64(binary.BigEndian.Uint64([]byte(key[at+1:])))
}

// Sort ends the adding; afterwards the exports can be read. If an execution was exported several
// times, the longest export counts.
func (x *Exports) Sort() error {
	f, err := os.CreateTemp(x.sorter.dir, "rondo-check-*")
	if err != nil {
		return err
	}
	x.file = f
	w := bufio.NewWriterSize(f, 64<<10)
	at, next := int64(0), int64(0)
	put := func(r record) error {
		if at >= next {
			x.index, next = append(x.index, indexed{r.key, at}), at+64<<10
		}
		n, err := writeRecord(w, r)
		at += n
		x.count++
		return err
	}
	var last record
	for r, err := range x.sorter.all() {
		switch {
		case err != nil:
			return err
		case r.key == last.key && len(r.data) <= len(last.data):
			continue
		case last.key != "" && r.key != last.key:
			if err := put(last); err != nil {
				return err
			}
		}
		last = r
	}
	if last.key != "" {
		err = put(last)
	}
	return errors.Join(err, w.Flush(), x.sorter.close())
}

// Close removes the file.
func (x *Exports) Close() error {
	err := x.sorter.close()
	if x.file != nil {
		err = errors.Join(err, remove([]*os.File{x.file}))
		x.file = nil
	}
	return err
}

// scan calls each for the records from a key on, until each returns false. It reads data only when
// each asks for them.
func (x *Exports) scan(from string, each func(key string, data func() ([]byte, error)) (more bool, err error)) error {
	i := sort.Search(len(x.index), func(i int) bool { return x.index[i].key > from })
	at := int64(0)
	if i > 0 {
		at = x.index[i-1].at
	}
	r := bufio.NewReaderSize(io.NewSectionReader(x.file, at, 1<<62-at), 64<<10)
	for {
		key, length, err := readKey(r)
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		read, more := false, true
		if key >= from {
			more, err = each(key, func() ([]byte, error) {
				read = true
				data := make([]byte, length)
				_, err := io.ReadFull(r, data)
				return data, cutOff(err)
			})
		}
		if err != nil || !more {
			return err
		}
		if !read {
			if _, err := r.Discard(int(length)); err != nil {
				return cutOff(err)
			}
		}
	}
}

// exported is an execution as it was exported.
type exported struct {
	execution int64
	bytes     int64
	events    []events.Event
	err       error
}

// of calls each for the executions of an instance, in order, but only for those after one.
func (x *Exports) of(instance string, after int64, each func(exported) (more bool, err error)) error {
	return x.scan(exportKey(instance, after+1), func(key string, data func() ([]byte, error)) (bool, error) {
		id, execution := splitKey(key)
		if id != instance {
			return false, nil
		}
		raw, err := data()
		if err != nil {
			return false, err
		}
		var export events.Export
		e := exported{execution: execution, bytes: int64(len(raw))}
		if e.err = json.Unmarshal(raw, &export); e.err == nil {
			e.events = export.Events
		}
		return each(e)
	})
}

// last returns the last execution of an instance.
func (x *Exports) last(instance string) (e exported, ok bool, err error) {
	highest := int64(0)
	err = x.scan(exportKey(instance, 1), func(key string, _ func() ([]byte, error)) (bool, error) {
		id, execution := splitKey(key)
		if id != instance {
			return false, nil
		}
		highest = execution
		return true, nil
	})
	if err == nil && highest > 0 {
		err = x.of(instance, highest-1, func(found exported) (bool, error) {
			e, ok = found, true
			return false, nil
		})
	}
	return e, ok, err
}

// row derives the row of an instance from its history.
func (e exported) row(instance string) round.Row {
	row := round.Row{Execution: e.execution, HistoryBytes: e.bytes, Status: round.Running}
	l := newLineage(instance)
	l.begin(e.execution)
	l.take(e.events)
	x := l.now
	row.Status, row.LastEvent, row.UpdatedAt = x.standing(), x.last.ID, x.last.At
	row.Output, row.Error = outcome(x.end.Fact)
	row.CustomStatus, row.CustomStatusVersion = x.status, x.statusVersion
	if x.end.Fact != nil {
		row.EndedAt = x.end.At
	}
	if s := x.started; s != nil {
		row.Incarnation, row.Engine, row.Name, row.Version, row.Parent = s.Incarnation, s.Engine, s.Name,
			s.Version, s.Parent
		row.Attributes, row.StartMessage, row.StartedAt = s.Attributes, s.Message, x.begunAt
	}
	return row
}

// Load implements [Store].
func (x *Exports) Load(_ context.Context, instances []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	out := make([]round.Known, len(instances))
	for i, id := range instances {
		out[i].Instance = id
		e, ok, err := x.last(id)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		out[i].Row, out[i].Unreadable = e.row(id), e.err
		if admit == nil || admit(id, out[i].Row) {
			out[i].History = e.events
		}
	}
	return out, nil
}

// List implements [Store]: by id, whatever the filter.
func (x *Exports) List(ctx context.Context, f history.Filter, p history.Page) (list history.InstanceList, err error) {
	var ids []string
	from := exportKey(p.Cursor, 1<<62)
	if p.Cursor == "" {
		from = f.IDPrefix
	}
	err = x.scan(from, func(key string, _ func() ([]byte, error)) (bool, error) {
		id, _ := splitKey(key)
		if id != p.Cursor && (len(ids) == 0 || ids[len(ids)-1] != id) {
			ids = append(ids, id)
		}
		return len(ids) <= p.Size(), ctx.Err()
	})
	if err != nil {
		return list, err
	}
	if len(ids) > p.Size() {
		ids = ids[:p.Size()]
		list.Next = ids[len(ids)-1]
	}
	for _, id := range ids {
		e, ok, err := x.last(id)
		if err != nil {
			return list, err
		}
		info := history.Info{Instance: id, Row: e.row(id), Problem: e.err}
		if ok && fits(f, info) {
			list.Instances = append(list.Instances, info)
		}
	}
	return list, nil
}

// fits reports whether an exported instance is one that a filter means. When its incarnation began
// is taken to be when its last execution did.
func fits(f history.Filter, i history.Info) bool {
	for name, value := range f.Attributes {
		if i.Attributes[name] != value {
			return false
		}
	}
	return strings.HasPrefix(i.Instance, f.IDPrefix) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, i.Instance)) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, i.Status)) &&
		cmp.Or(f.Name, i.Name) == i.Name && cmp.Or(f.Version, i.Version) == i.Version &&
		(f.Parent == "" || i.Parent != nil && i.Parent.Instance == f.Parent) && (!f.RootsOnly || i.Parent == nil) &&
		(f.CreatedAfter.IsZero() || !i.StartedAt.Before(f.CreatedAfter)) &&
		(f.CreatedBefore.IsZero() || i.StartedAt.Before(f.CreatedBefore)) &&
		(f.EndedAfter.IsZero() || i.Status.Ended() && !i.EndedAt.Before(f.EndedAfter)) &&
		(f.EndedBefore.IsZero() || i.Status.Ended() && i.EndedAt.Before(f.EndedBefore))
}

// Executions implements [Store].
func (x *Exports) Executions(_ context.Context, instance string, after int64,
	limit int) (list []history.ExecutionInfo, err error) {
	err = x.of(instance, after, func(e exported) (bool, error) {
		row := e.row(instance)
		list = append(list, history.ExecutionInfo{
			Execution: e.execution, Incarnation: row.Incarnation, Name: row.Name, Version: row.Version,
			Engine: row.Engine,
			Status: row.Status, Output: row.Output, Error: row.Error,
			StartedAt: row.StartedAt, EndedAt: row.EndedAt, Events: int64(len(e.events)), Bytes: e.bytes,
		})
		return len(list) < limit, nil
	})
	return list, err
}

// Events implements [Store].
func (x *Exports) Events(_ context.Context, instance string, execution, after int64,
	limit int) (list []events.Event, err error) {
	found := false
	err = x.of(instance, execution-1, func(e exported) (bool, error) {
		if found = e.execution == execution; found {
			from := min(int(after), len(e.events))
			list = e.events[from:min(from+limit, len(e.events))]
			if e.err != nil {
				return false, &history.Error{Class: history.Corrupt, Op: "read a history", Err: e.err}
			}
		}
		return false, nil
	})
	if err == nil && !found {
		err = fmt.Errorf("instance %q, execution %d: %w", instance, execution, history.ErrNoExecution)
	}
	return list, err
}

// ValuesOf implements [Store]: an export has no values.
func (x *Exports) ValuesOf(context.Context, []string) (map[string]map[string]history.Value, error) {
	return nil, nil
}

// Tombstones implements [Store]: there are none.
func (x *Exports) Tombstones(context.Context, []string) ([]string, error) { return nil, nil }

// Clock implements [Store]: there is none.
func (x *Exports) Clock(context.Context) (time.Time, error) { return time.Time{}, nil }

// OldOutbox implements [Store]: there are none.
func (x *Exports) OldOutbox(context.Context, time.Time, int) ([]history.OutboxEntry, error) {
	return nil, nil
}
