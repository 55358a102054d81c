package relational

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Admin implements [history.Reader] and [history.Remover] with plain statements.
type Admin struct {
	Dialect
	Transactor
	// Now is the clock.
	Now func() time.Time
}

// builder puts a statement together.
type builder struct {
	Dialect
	args []any
}

// arg adds a parameter and gives its place.
func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	return fmt.Sprintf("$%d", len(b.args))
}

func (b *builder) time(t time.Time) string { return b.arg(b.Time(t)) }

// text adds a parameter in a list of VALUES: CockroachDB does not find out there of what type it
// is.
func (b *builder) text(s string) string { return "CAST(" + b.arg(s) + " AS TEXT)" }

// in is the condition that a column has one of some values.
func (b *builder) in(column string, values []string) string {
	places := make([]string, len(values))
	for i, v := range values {
		places[i] = b.arg(v)
	}
	return column + " IN (" + strings.Join(places, ", ") + ")"
}

// pairs is the condition that a row is one of some instances'.
func (b *builder) pairs(table string, instances []string) string {
	places := make([]string, len(instances))
	for i, id := range instances {
		places[i] = fmt.Sprintf("(%d, %s)", b.Shard(id), b.text(Key(id)))
	}
	if table != "" {
		table += "."
	}
	return "(" + table + "shard, " + table + "instance) IN (VALUES " + strings.Join(places, ", ") + ")"
}

// cursor is where a page of a list ends.
type cursor struct {
	Created  *int64 `json:"c,omitempty"` // microseconds; none where the list is in the order of ids
	Instance string `json:"i"`
}

// cursorBehind is the cursor behind an instance of a list.
func cursorBehind(last history.Info, f history.Filter) cursor {
	c := cursor{Instance: last.Instance}
	if f.IDPrefix == "" {
		at := last.CreatedAt.UnixMicro()
		c.Created = &at
	}
	return c
}

func (c cursor) String() string {
	data, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(data)
}

// parseCursor reads a cursor of a list with a filter; nil if there is none.
func parseCursor(s string, f history.Filter) (*cursor, error) {
	if s == "" {
		return nil, nil
	}
	var c cursor
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || events.CheckInstance(c.Instance) != nil || (c.Created == nil) != (f.IDPrefix != "") {
		return nil, fmt.Errorf("history: cursor %q: %w", s, history.ErrBadCursor)
	}
	return &c, nil
}

// normal takes out of a filter what is there twice and what no instance can have. It reports
// whether there can be anything that fits.
func normal(f history.Filter) (history.Filter, bool) {
	f.Statuses = slices.Compact(slices.Sorted(slices.Values(f.Statuses)))
	if !f.EndedBefore.IsZero() { // only what has ended has a time of its end, and it began no later
		if len(f.Statuses) == 0 {
			f.Statuses = round.Statuses()
		}
		f.Statuses = slices.DeleteFunc(f.Statuses, func(s round.Status) bool { return !s.Ended() })
		if len(f.Statuses) == 0 {
			return f, false
		}
		if f.CreatedBefore.IsZero() || f.EndedBefore.Before(f.CreatedBefore) {
			f.CreatedBefore = f.EndedBefore
		}
	}
	for _, s := range []string{f.IDPrefix, f.Name, f.Version, f.Parent} {
		if !storable(s) {
			return f, false
		}
	}
	for name, value := range f.Attributes {
		if !storable(name) || !storable(value) {
			return f, false
		}
	}
	if len(f.IDs) == 0 {
		return f, true
	}
	f.IDs = slices.DeleteFunc(slices.Clone(f.IDs), func(id string) bool { return !storable(id) })
	return f, len(f.IDs) > 0
}

// lastOfAll sorts behind every id that begins with what is before it.
const lastOfAll = "\U0010FFFF"

// conditions are those of a filter, except for what the list is led by: on a row of the table that
// leads, named as keyOf says.
func (b *builder) conditions(f history.Filter, led string) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	key := keyOf(led)
	if !f.CreatedAfter.IsZero() {
		add("%s.created_at >= %s", key, b.time(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		add("%s.created_at < %s", key, b.time(f.CreatedBefore))
	}
	of := b.ofInstance(f, led)
	if led != "attribute" {
		return append(all, of...)
	}
	// As a value, PostgreSQL looks the instance up for one attribute after the other. A join it may
	// begin by reading all instances.
	const found = "(SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND " +
		"i.created_at = a.created_at AND "
	return append(all, found+strings.Join(of, " AND ")+")")
}

// keyOf names the table whose index a list is led along: instances, or attributes.
func keyOf(led string) string {
	if led == "attribute" {
		return "a"
	}
	return "i"
}

// sources are the tables by these names.
var sources = map[string]string{"i": "rondo_instances i", "a": "rondo_attributes a"}

// ofInstance are the conditions on a row of the table of instances, named i.
func (b *builder) ofInstance(f history.Filter, led string) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	tested := "%s"
	if led == "ids" || led == "attribute" {
		// IS TRUE keeps PostgreSQL from reading all that have the status or the name instead
		tested = "(%s) IS TRUE"
	}
	if led != "status" {
		if len(f.Statuses) > 0 {
			add(tested, b.in("i.status", names(f.Statuses)))
		} else {
			add("i.%s", Alive)
		}
	}
	if f.Name != "" {
		add(tested, "i.name = "+b.arg(f.Name))
	}
	if f.Version != "" {
		add("i.version = %s", b.arg(f.Version))
	}
	if len(f.IDs) > 0 {
		add("%s", b.pairs("i", f.IDs))
	}
	if f.IDPrefix != "" && led != "prefix" {
		add("i.instance >= %s AND i.instance < %s", b.arg(f.IDPrefix), b.arg(f.IDPrefix+lastOfAll))
	}
	if f.Parent != "" && led != "parent" {
		add("i.parent_instance = %s", b.arg(f.Parent))
	}
	if f.RootsOnly {
		add("i.parent_instance IS NULL")
	}
	if !f.EndedBefore.IsZero() {
		add("i.ended_at < %s", b.time(f.EndedBefore))
	}
	for n, name := range slices.Sorted(maps.Keys(f.Attributes)) {
		if led == "attribute" && n == 0 {
			continue
		}
		// As a value, too. With EXISTS, PostgreSQL may read all instances with the attribute for
		// each branch.
		add("(SELECT true FROM rondo_attributes x WHERE x.name = %s AND x.value = %s AND "+
			"x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)", b.arg(name),
			b.arg(f.Attributes[name]))
	}
	return all
}

func names(statuses []round.Status) []string {
	out := make([]string, len(statuses))
	for i, s := range statuses {
		out[i] = string(s)
	}
	return out
}

// branches are the places of an index where a list is led along, each a condition on a row. What is
// found at each is in order; the list puts them together.
func (b *builder) branches(f history.Filter) (led string, conditions []string) {
	switch {
	case len(f.IDs) > 0:
		return "ids", []string{"true"}
	case f.IDPrefix != "":
		led = "prefix"
		from, to := b.arg(f.IDPrefix), b.arg(f.IDPrefix+lastOfAll)
		for shard := range b.Shards {
			conditions = append(conditions,
				fmt.Sprintf("i.shard = %d AND i.instance >= %s AND i.instance < %s", shard, from, to))
		}
	case f.Parent != "":
		return "parent", []string{"i.parent_instance = " + b.arg(f.Parent)}
	case len(f.Attributes) > 0:
		led = "attribute"
		name := slices.Min(slices.Collect(maps.Keys(f.Attributes)))
		lead := fmt.Sprintf("a.name = %s AND a.value = %s", b.arg(name), b.arg(f.Attributes[name]))
		for shard := range b.Shards {
			conditions = append(conditions, fmt.Sprintf("%s AND a.shard = %d", lead, shard))
		}
	default:
		led = "status"
		lead := ""
		if f.Name != "" {
			lead = "i.name = " + b.arg(f.Name) + " AND "
		}
		statuses := f.Statuses
		if len(statuses) == 0 {
			statuses = round.Statuses()
		}
		for _, status := range statuses {
			for shard := range b.Shards {
				conditions = append(conditions, fmt.Sprintf("%si.status = '%s' AND i.shard = %d", lead, status, shard))
			}
		}
	}
	return led, conditions
}

// page is the statement that gives the keys of a page of a list, and the order it is in.
func (b *builder) page(f history.Filter, from *cursor, limit int) (statement, order string) {
	led, branches := b.branches(f)
	if led == "status" && f.Name != "" {
		f.Name = "" // it leads, too
	}
	conditions := b.conditions(f, led)
	order = "created_at DESC, instance DESC"
	if led == "prefix" {
		order = "instance"
	}
	if from != nil {
		if led == "prefix" {
			conditions = append(conditions, "i.instance > "+b.arg(from.Instance))
		} else {
			created, instance := b.time(time.UnixMicro(*from.Created)), b.arg(from.Instance)
			conditions = append(conditions,
				fmt.Sprintf("(%s.created_at, %[1]s.instance) < (%s, %s)", keyOf(led), created, instance))
		}
	}
	key := keyOf(led)
	parts := make([]string, len(branches))
	for i, branch := range branches {
		where := strings.Join(append([]string{branch}, conditions...), " AND ")
		parts[i] = fmt.Sprintf(
			"SELECT * FROM (SELECT %s.shard, %[1]s.instance, %[1]s.created_at FROM %s WHERE %s "+
				"ORDER BY %s LIMIT %d) b%d",
			key, sources[key], where, key+"."+strings.ReplaceAll(order, ", ", ", "+key+"."), limit, i)
	}
	return strings.Join(parts, "\nUNION ALL ") + fmt.Sprintf("\nORDER BY %s LIMIT %d", order, limit), order
}

// usual reports whether a filter is one of the few that dashboards ask for again and again.
func usual(f history.Filter) bool {
	statuses := f.Statuses
	f.Statuses, f.Name = nil, ""
	return len(statuses) <= 1 && reflect.ValueOf(f).IsZero()
}

// List implements [history.Reader].
func (a *Admin) List(ctx context.Context, f history.Filter, p history.Page) (history.InstanceList, error) {
	from, err := parseCursor(p.Cursor, f)
	if err == nil {
		err = f.Check()
	}
	f, possible := normal(f)
	if err != nil || !possible {
		return history.InstanceList{}, err
	}
	limit := p.Size()
	b := builder{Dialect: a.Dialect}
	keys, order := b.page(f, from, limit+1)
	statement := "SELECT " + Prefixed("i", ColumnNames) + " FROM (" + keys +
		") k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance\nORDER BY i." +
		strings.ReplaceAll(order, ", ", ", i.")
	read := a.Read
	if usual(f) && limit == (history.Page{}).Size() {
		read = a.ReadOften // planning takes longer than reading
	}
	var list history.InstanceList
	err = read(ctx, "list instances", func(db DB) error {
		list = history.InstanceList{}
		return db.Query(ctx, func(r Row) error {
			var c Columns
			if err := r.Scan(c.Targets()...); err != nil {
				return err
			}
			if !c.Tombstone() { // it may have become one between the two reads
				list.Instances = append(list.Instances, c.Info())
			}
			return nil
		}, statement, b.args...)
	})
	if err != nil {
		return history.InstanceList{}, err
	}
	if len(list.Instances) > limit {
		list.Instances = list.Instances[:limit]
		list.Next = cursorBehind(list.Instances[limit-1], f).String()
	}
	return list, nil
}

// Count implements [history.Reader].
func (a *Admin) Count(ctx context.Context, f history.Filter, limit int64) (n int64, err error) {
	if err := f.Check(); err != nil {
		return 0, err
	}
	f, possible := normal(f)
	if !possible {
		return 0, nil
	}
	b := builder{Dialect: a.Dialect}
	led, branches := b.branches(f)
	if led == "status" && f.Name != "" {
		f.Name = ""
	}
	where := strings.Join(b.conditions(f, led), " AND ")
	if where == "" {
		where = "true"
	}
	parts := make([]string, len(branches))
	for i, branch := range branches {
		parts[i] = "SELECT 1 FROM " + sources[keyOf(led)] + " WHERE " + branch + " AND " + where
	}
	statement := "SELECT count(*) FROM (" + strings.Join(parts, "\nUNION ALL ")
	if limit > 0 {
		statement += fmt.Sprintf("\nLIMIT %d", limit)
	}
	err = a.Read(ctx, "count instances", func(db DB) error {
		return db.Query(ctx, func(r Row) error { return r.Scan(&n) }, statement+") c", b.args...)
	})
	return n, err
}

// find reads the row of an instance, which must not be a tombstone.
func (d Dialect) find(ctx context.Context, db DB, instance string) (*Columns, error) {
	var found *Columns
	err := db.Query(ctx, func(r Row) error {
		found = new(Columns)
		return r.Scan(found.Targets()...)
	}, "SELECT "+ColumnNames+" FROM rondo_instances WHERE shard = $1 AND instance = $2", d.Shard(instance),
		Key(instance))
	if err != nil {
		return nil, err
	}
	if found == nil || found.Tombstone() {
		return nil, fmt.Errorf("instance %q: %w", instance, history.ErrNoInstance)
	}
	return found, nil
}

// Instance implements [history.Reader].
func (a *Admin) Instance(ctx context.Context, instance string) (info history.Info, err error) {
	err = a.Read(ctx, "read an instance", func(db DB) error {
		c, err := a.find(ctx, db, instance)
		if err == nil {
			info = c.Info()
		}
		return err
	})
	return info, err
}

const executionColumns = `execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes`

// Executions implements [history.Reader].
func (a *Admin) Executions(ctx context.Context, instance string, after int64,
	limit int) (list []history.ExecutionInfo, err error) {
	limit = history.Page{Limit: limit}.Size()
	err = a.Read(ctx, "list executions", func(db DB) error {
		list = nil
		if _, err := a.find(ctx, db, instance); err != nil {
			return err
		}
		page := fmt.Sprintf(" ORDER BY execution LIMIT %d", limit)
		where := " WHERE shard = $1 AND instance = $2 AND execution > $3 AND " + Alive
		return db.Query(ctx, func(r Row) error {
			x, err := scanExecution(instance, r)
			list = append(list, x)
			return err
		}, "SELECT * FROM (SELECT "+executionColumns+" FROM rondo_executions"+where+page+") f UNION ALL SELECT "+
			executionColumns+" FROM rondo_instances"+where+page,
			a.Shard(instance), instance, after)
	})
	return list, err
}

func scanExecution(instance string, r Row) (history.ExecutionInfo, error) {
	var c Columns
	c.Instance = instance
	err := r.Scan(&c.Execution, &c.Incarnation, &c.Name, &c.Version, &c.Engine, &c.Status, &c.Output,
		&c.Error, &c.StartedAt,
		&c.EndedAt, &c.LastEvent, &c.HistoryBytes)
	if err != nil {
		return history.ExecutionInfo{}, err
	}
	x := history.ExecutionInfo{
		Execution: c.Execution, Incarnation: c.Incarnation, Name: c.Name, Version: c.Version, Engine: int(c.Engine),
		Status: round.Status(c.Status),
		Output: payload(c.Output), StartedAt: c.StartedAt.Time, EndedAt: c.EndedAt.Time, Events: c.LastEvent,
		Bytes: c.HistoryBytes,
	}
	if len(c.Error) > 0 {
		x.Error = new(events.Error)
		if err := json.Unmarshal(c.Error, x.Error); err != nil {
			return x, &history.Error{Class: history.Corrupt, Op: "list executions",
				Err: &history.UnreadableError{Instance: instance, Execution: x.Execution, Column: "error", Err: err}}
		}
	}
	return x, nil
}

// eventsBetween begins with the row that the first event is in.
const eventsBetween = `SELECT event, last_event, data FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event <= $5
	AND event >= coalesce((SELECT event FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event <= $4 ORDER BY event DESC LIMIT 1), 0)
	ORDER BY event`

// Events implements [history.Reader].
func (a *Admin) Events(ctx context.Context, instance string, execution, after int64,
	limit int) (list []events.Event, err error) {
	limit, after = history.Page{Limit: limit}.Size(), max(after, 0)
	err = a.Read(ctx, "read a history", func(db DB) error {
		// What is pruned, deleted, or left behind by the current execution while it is read, is
		// looked for again, unless nothing has changed.
		var missed *ending
		for {
			end, err := a.end(ctx, db, instance, execution)
			if err != nil {
				return err
			}
			x, until := end.execution, min(end.last, after+int64(limit))
			var rows []EventRow
			err = db.Query(ctx, func(r Row) error {
				var e EventRow
				err := r.Scan(&e.Event, &e.Last, &e.Data)
				rows = append(rows, e)
				return err
			}, eventsBetween, a.Shard(instance), instance, x, after+1, until)
			if err != nil {
				return err
			}
			if !Covered(rows, after, until) && (missed == nil || *missed != end) {
				missed = &end
				continue
			}
			if list, err = Decode(instance, x, after, until, rows); err != nil {
				list = nil
				return &history.Error{Class: history.Corrupt, Op: "read a history", Err: err}
			}
			return nil
		}
	})
	return list, err
}

// ending is where an execution ends.
type ending struct {
	incarnation     string
	execution, last int64
}

// end finds an execution that is kept (0: the current one), and its last event.
func (d Dialect) end(ctx context.Context, db DB, instance string, execution int64) (end ending, err error) {
	c, err := d.find(ctx, db, instance)
	switch {
	case err != nil:
		return end, err
	case execution == 0 || execution == c.Execution:
		return ending{c.Incarnation, c.Execution, c.LastEvent}, nil
	}
	end.execution = execution
	err = db.Query(ctx, func(r Row) error { return r.Scan(&end.incarnation, &end.last) },
		"SELECT incarnation, last_event FROM rondo_executions WHERE shard = $1 AND instance = $2 "+
			"AND execution = $3 AND "+
			Alive, d.Shard(instance), instance, execution)
	if err == nil && end.last == 0 {
		err = fmt.Errorf("instance %q, execution %d: %w", instance, execution, history.ErrNoExecution)
	}
	return end, err
}

// Stats implements [history.Reader].
func (a *Admin) Stats(ctx context.Context, instance string) (s history.Stats, err error) {
	err = a.Read(ctx, "measure an instance", func(db DB) error {
		c, err := a.find(ctx, db, instance)
		if err != nil {
			return err
		}
		s = history.Stats{Execution: c.Execution, Events: c.LastEvent, HistoryBytes: c.HistoryBytes,
			Unread: int(c.Unread)}
		return db.Query(ctx, func(r Row) error { return r.Scan(&s.Values, &s.ValueBytes) },
			"SELECT count(*), CAST(coalesce(sum(length(value)), 0) AS INT8) FROM rondo_values WHERE shard = $1 AND "+
				"instance = $2", a.Shard(instance), instance)
	})
	return s, err
}

// Values implements [history.Reader].
func (a *Admin) Values(ctx context.Context, instance string) (values map[string]history.Value, err error) {
	err = a.Read(ctx, "read values", func(db DB) error {
		values = make(map[string]history.Value)
		return db.Query(ctx, func(r Row) error {
			key, v, err := scanValue(r)
			values[key] = v
			return err
		}, valueStatement, a.Shard(instance), Key(instance))
	})
	return values, err
}

// Value implements [history.Reader].
func (a *Admin) Value(ctx context.Context, instance, name string) (value history.Value, ok bool, err error) {
	err = a.Read(ctx, "read a value", func(db DB) error {
		ok = false
		return db.Query(ctx, func(r Row) error {
			var err error
			_, value, err = scanValue(r)
			ok = true
			return err
		}, valueStatement+" AND v.key = $3", a.Shard(instance), Key(instance), Key(name))
	})
	return value, ok, err
}

// valueStatement reads values of an instance that was not deleted.
const valueStatement = `SELECT v.key, v.value, v.execution, v.set_at
	FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance
	WHERE i.shard = $1 AND i.instance = $2 AND i.` + Alive

func scanValue(r Row) (string, history.Value, error) {
	var (
		key string
		v   history.Value
		set Moment
		raw []byte
	)
	err := r.Scan(&key, &raw, &v.Execution, &set)
	v.Data, v.Set = payload(raw), set.Time
	return key, v, err
}

// CustomStatus implements [history.Reader].
func (a *Admin) CustomStatus(ctx context.Context, instance string, known int64) (s history.CustomStatus, err error) {
	err = a.Read(ctx, "read a custom status", func(db DB) error {
		s = history.CustomStatus{}
		var data []byte
		err := db.Query(ctx, func(r Row) error { return r.Scan(&data, &s.Version) },
			"SELECT CASE WHEN custom_status_version <> $3 THEN custom_status END, custom_status_version FROM "+
				"rondo_instances WHERE shard = $1 AND instance = $2 AND "+Alive,
			a.Shard(instance), Key(instance), known)
		s.Changed = s.Version != known
		if s.Changed {
			s.Data = payload(data)
		}
		return err
	})
	return s, err
}

// Metrics implements [history.Reader].
func (a *Admin) Metrics(ctx context.Context) (m history.Metrics, err error) {
	err = a.Read(ctx, "count everything", func(db DB) error {
		m = history.Metrics{Instances: make(map[round.Status]int64)}
		err := db.Query(ctx, func(r Row) error {
			var (
				status    string
				n, events int64
			)
			if err := r.Scan(&status, &n, &events); err != nil {
				return err
			}
			if status == Deleting || status == Deleted {
				m.Tombstones += n
				return nil
			}
			m.Instances[round.Status(status)] += n
			m.Executions += n
			m.Events += events
			return nil
		}, "SELECT status, count(*), CAST(sum(last_event) AS INT8) FROM rondo_instances GROUP BY status")
		if err != nil {
			return err
		}
		return db.Query(ctx, func(r Row) error {
			var n, events int64
			err := r.Scan(&n, &events, &m.Promises)
			m.Executions += n
			m.Events += events
			return err
		}, "SELECT count(*), CAST(coalesce(sum(last_event), 0) AS INT8), (SELECT count(*) FROM rondo_outbox) FROM "+
			"rondo_executions WHERE "+Alive+
			" AND (shard, instance) NOT IN (SELECT shard, instance FROM rondo_instances WHERE status = '"+Deleting+"')")
	})
	return m, err
}
