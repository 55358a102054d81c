package cockroach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// statements are those that are prepared once and kept.
type statements struct {
	commit       string // a batch whose turns have nothing but events and promises
	commitExtras string // a batch whose turns have former executions, values or attributes, too

	// The parts of a commit, for one in several statements:
	instances, history, former, values, attributes string

	rows, events string
}

// list is one array of a statement's parameters: a column of rows that are inserted together.
type list struct{ name, kind string }

var instanceLists = []list{
	{"shard", "INT2"}, {"instance", "TEXT"}, {"life", "TEXT"}, {"execution", "INT8"}, {"last_event", "INT8"},
	{"basis_life", "TEXT"}, {"basis_execution", "INT8"}, {"basis_event", "INT8"},
	{"status", "TEXT"}, {"name", "TEXT"}, {"version", "TEXT"}, {"engine", "INT8"}, {"fresh", "BOOL"},
	{"parent_instance", "TEXT"}, {"parent_life", "TEXT"}, {"parent_execution", "INT8"}, {"parent_event", "INT8"},
	{"attributes", "BYTEA"}, {"trace", "TEXT"}, {"start_message", "TEXT"},
	{"output", "BYTEA"}, {"error", "BYTEA"}, {"custom_status", "BYTEA"}, {"custom_status_version", "INT8"},
	{"history_bytes", "INT8"}, {"unread", "INT8"},
	{"created_at", "TIMESTAMPTZ"}, {"started_at", "TIMESTAMPTZ"}, {"updated_at", "TIMESTAMPTZ"}, {"ended_at", "TIMESTAMPTZ"}, {"wake_at", "TIMESTAMPTZ"},
}

// parentShard is an array of its own, for the turns that start children: it is not stored.
var parentShard = list{"parent_shard", "INT2"}

var (
	historyLists = []list{{"shard", "INT2"}, {"instance", "TEXT"}, {"execution", "INT8"}, {"event", "INT8"}, {"last_event", "INT8"}, {"data", "BYTEA"}}
	formerLists  = []list{
		{"shard", "INT2"}, {"instance", "TEXT"}, {"execution", "INT8"}, {"life", "TEXT"}, {"name", "TEXT"}, {"version", "TEXT"}, {"engine", "INT8"},
		{"status", "TEXT"}, {"output", "BYTEA"}, {"error", "BYTEA"}, {"started_at", "TIMESTAMPTZ"}, {"ended_at", "TIMESTAMPTZ"},
		{"last_event", "INT8"}, {"history_bytes", "INT8"},
	}
	valueLists     = []list{{"shard", "INT2"}, {"instance", "TEXT"}, {"key", "TEXT"}, {"value", "BYTEA"}, {"execution", "INT8"}, {"set_at", "TIMESTAMPTZ"}}
	attributeLists = []list{{"shard", "INT2"}, {"instance", "TEXT"}, {"name", "TEXT"}, {"value", "TEXT"}, {"created_at", "TIMESTAMPTZ"}}
)

// unnest makes rows of arrays, the first of which is parameter first.
func unnest(first int, lists []list, alias string) string {
	return "unnest(" + each(lists, func(i int, l list) string { return fmt.Sprintf("$%d::%s[]", first+i, l.kind) }) + ") AS " + alias + "(" + columns(lists) + ")"
}

func columns(lists []list) string {
	return each(lists, func(_ int, l list) string { return l.name })
}

func each(lists []list, f func(int, list) string) string {
	parts := make([]string, len(lists))
	for i, l := range lists {
		parts[i] = f(i, l)
	}
	return strings.Join(parts, ", ")
}

// perLife are the columns that keep their value for the whole life of an instance.
var perLife = map[string]bool{
	"parent_instance": true, "parent_life": true, "parent_execution": true, "parent_event": true,
	"attributes": true, "trace": true, "start_message": true, "created_at": true,
}

// upsertInstances inserts new instances and takes known ones further, if each stands where its turn was decided.
func upsertInstances(f flavour, first int) string {
	set := each(instanceLists[2:], func(_ int, l list) string {
		switch {
		case perLife[l.name]:
			return fmt.Sprintf("%s = CASE WHEN i.life = excluded.life THEN i.%[1]s ELSE excluded.%[1]s END", l.name)
		case l.name == "custom_status":
			return "custom_status = CASE WHEN i.life = excluded.life AND i.custom_status_version = excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END"
		}
		return fmt.Sprintf("%s = excluded.%[1]s", l.name)
	})
	parents, alive := bornToParents(f, first)
	return parents + `INSERT INTO rondo_instances AS i (` + columns(instanceLists) + `)
	SELECT ` + columns(instanceLists) + `
	FROM ` + unnest(first, append(instanceLists[:len(instanceLists):len(instanceLists)], parentShard), "w") + `
	WHERE (w.basis_execution = 0 OR (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance))
	AND ` + alive + `
	ON CONFLICT (shard, instance) DO UPDATE SET ` + set + `
	WHERE i.life = excluded.basis_life AND i.execution = excluded.basis_execution AND i.last_event = excluded.basis_event
	AND NOT (i.status = '` + relational.Deleted + `' AND i.start_message IS NOT DISTINCT FROM excluded.start_message)
	RETURNING instance`
}

// bornToParents is the condition that the parent of a child that is to be born is there, or has begun another life without being deleted, and what must stand
// before the statement. See relational.ParentGone.
func bornToParents(f flavour, first int) (before, condition string) {
	const otherLife = "EXISTS (SELECT 1 FROM rondo_executions x WHERE x.shard = w.parent_shard AND x.instance = w.parent_instance AND x.execution = w.parent_execution AND x.life = w.parent_life)"
	if f == cockroachdb { // transactions are serializable, and nothing needs to be locked
		return "", "(w.parent_shard IS NULL OR EXISTS (SELECT 1 FROM rondo_instances p WHERE p.shard = w.parent_shard AND p.instance = w.parent_instance AND p." + relational.Alive +
			" AND (p.life = w.parent_life OR " + otherLife + ")))"
	}
	// The lock keeps a parent from being deleted meanwhile. All are locked before anything is written: once the statement has written a parent's row, it can
	// no longer lock it. Counting them makes PostgreSQL do that first, because the count does not depend on what is written.
	place := func(name string) int {
		return first + slices.IndexFunc(instanceLists, func(l list) bool { return l.name == name })
	}
	before = fmt.Sprintf(`WITH p AS (SELECT x.instance, x.life
	FROM (SELECT DISTINCT shard, instance FROM unnest($%d::INT2[], $%d::TEXT[]) AS u(shard, instance) WHERE shard IS NOT NULL ORDER BY shard, instance) u
	CROSS JOIN LATERAL (SELECT instance, life FROM rondo_instances x WHERE x.shard = u.shard AND x.instance = u.instance AND x.%s FOR KEY SHARE) x)
	`, first+len(instanceLists), place("parent_instance"), relational.Alive)
	return before, `(SELECT count(*) FROM p) >= 0 AND (w.parent_shard IS NULL OR ((w.parent_instance, w.parent_life) IN (SELECT instance, life FROM p)) IS TRUE
		OR ((w.parent_instance IN (SELECT instance FROM p)) IS TRUE AND ` + otherLife + `))`
}

// insertion inserts rows; where filters them.
func insertion(table string, first int, lists []list, where, conflict string) string {
	return "INSERT INTO " + table + " (" + columns(lists) + ")\n\tSELECT " + columns(lists) + "\n\tFROM " + unnest(first, lists, "r") + where + conflict
}

const (
	ifNew      = "\n\tON CONFLICT DO NOTHING"
	lastCounts = "\n\tON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = excluded.execution, set_at = excluded.set_at"
)

func statementsFor(f flavour) statements {
	// PostgreSQL would compare each row with each winner, if its statistics made it believe that there are few. As a test of a value it builds a hash table.
	won := "\n\tWHERE r.instance IN (SELECT instance FROM won)"
	if f == postgres {
		won = "\n\tWHERE (r.instance IN (SELECT instance FROM won)) IS TRUE"
	}
	next := 1
	take := func(n int) int {
		next += n
		return next - n
	}
	with := "WITH won AS (" + upsertInstances(f, take(len(instanceLists)+1)) + "),\nh AS (" +
		insertion("rondo_history", take(len(historyLists)), historyLists, won, "") + "),\n"
	outbox := take(5)
	with += fmt.Sprintf(`o AS (INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $%d::INT2, r.id, string_agg(r.piece, ''::BYTEA ORDER BY r.Place)
	FROM unnest($%d::INT8[], $%d::TEXT[], $%d::BYTEA[], $%d::INT8[]) AS r(id, instance, piece, place)`, outbox, outbox+1, outbox+2, outbox+3, outbox+4) + won + "\n\tGROUP BY r.id)"
	end := "\nSELECT instance FROM won"
	s := statements{commit: with + end}
	s.commitExtras = with +
		",\nf AS (" + insertion("rondo_executions", take(len(formerLists)), formerLists, won, "") + ")" +
		",\nv AS (" + insertion("rondo_values", take(len(valueLists)), valueLists, won, lastCounts) + ")" +
		",\na AS (" + insertion("rondo_attributes", take(len(attributeLists)), attributeLists, won, ifNew) + ")" + end

	s.instances = upsertInstances(f, 1)
	s.history = insertion("rondo_history", 1, historyLists, "", "")
	s.former = insertion("rondo_executions", 1, formerLists, "", "")
	s.values = insertion("rondo_values", 1, valueLists, " WHERE true", lastCounts)
	s.attributes = insertion("rondo_attributes", 1, attributeLists, " WHERE true", ifNew)

	// On PostgreSQL, OFFSET 0 keeps the lookup of each row what it is written as.
	fence := ""
	if f == postgres {
		fence = " OFFSET 0"
	}
	s.rows = "SELECT " + relational.Prefixed("i", relational.ColumnNames) + " FROM unnest($1::INT2[], $2::TEXT[]) AS w(shard, instance) CROSS JOIN LATERAL (SELECT " +
		relational.ColumnNames + " FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance" + fence + ") i"
	// Only while the execution is still the one whose end was read: an instance that was deleted and began anew has another history in the same place.
	s.events = `SELECT w.place, h.event, h.last_event, h.data
	FROM unnest($1::INT8[], $2::INT2[], $3::TEXT[], $4::INT8[], $5::INT8[], $6::TEXT[]) AS w(place, shard, instance, execution, last_event, life)
	JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance AND i.life = w.life AND i.execution = w.execution
	CROSS JOIN LATERAL (SELECT event, last_event, data FROM rondo_history x
		WHERE x.shard = w.shard AND x.instance = w.instance AND x.execution = w.execution AND x.event <= w.last_event ORDER BY event` + fence + `) h`
	return s
}

// ---- The parameters.

// at is a time as a parameter, nil for none.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// array collects one column of entries.
func array[E, T any](entries []E, f func(E) T) []T {
	out := make([]T, len(entries))
	for i, e := range entries {
		out[i] = f(e)
	}
	return out
}

func nullable[T any](v T, valid bool) *T {
	if !valid {
		return nil
	}
	return &v
}

// blob keeps nil for NULL, as pgx does not with other types of bytes.
func blob(b []byte) []byte { return b }

// instanceArgs are the parameters of upsertInstances.
func instanceArgs(entries []*entry) []any {
	return []any{
		array(entries, func(e *entry) int16 { return e.Columns.Shard }),
		array(entries, func(e *entry) string { return e.Columns.Instance }),
		array(entries, func(e *entry) string { return e.Columns.Life }),
		array(entries, func(e *entry) int64 { return e.Columns.Execution }),
		array(entries, func(e *entry) int64 { return e.Columns.LastEvent }),
		array(entries, func(e *entry) string { return e.Turn.Basis.Life }),
		array(entries, func(e *entry) int64 { return e.Turn.Basis.Execution }),
		array(entries, func(e *entry) int64 { return e.Turn.Basis.LastEvent }),
		array(entries, func(e *entry) string { return e.Columns.Status }),
		array(entries, func(e *entry) string { return e.Columns.Name }),
		array(entries, func(e *entry) string { return e.Columns.Version }),
		array(entries, func(e *entry) int64 { return e.Columns.Engine }),
		array(entries, func(e *entry) bool { return e.Columns.Fresh }),
		array(entries, func(e *entry) *string {
			return nullable(e.Columns.ParentInstance.String, e.Columns.ParentInstance.Valid)
		}),
		array(entries, func(e *entry) *string { return nullable(e.Columns.ParentLife.String, e.Columns.ParentLife.Valid) }),
		array(entries, func(e *entry) *int64 {
			return nullable(e.Columns.ParentExecution.Int64, e.Columns.ParentExecution.Valid)
		}),
		array(entries, func(e *entry) *int64 { return nullable(e.Columns.ParentEvent.Int64, e.Columns.ParentEvent.Valid) }),
		array(entries, func(e *entry) []byte { return blob(e.Columns.Attributes) }),
		array(entries, func(e *entry) *string { return nullable(e.Columns.Trace.String, e.Columns.Trace.Valid) }),
		array(entries, func(e *entry) *string { return nullable(e.Columns.StartMessage.String, e.Columns.StartMessage.Valid) }),
		array(entries, func(e *entry) []byte { return blob(e.Columns.Output) }),
		array(entries, func(e *entry) []byte { return blob(e.Columns.Error) }),
		array(entries, func(e *entry) []byte { return blob(e.Columns.CustomStatus) }),
		array(entries, func(e *entry) int64 { return e.Columns.CustomStatusVersion }),
		array(entries, func(e *entry) int64 { return e.Columns.HistoryBytes }),
		array(entries, func(e *entry) int64 { return e.Columns.Unread }),
		array(entries, func(e *entry) *time.Time { return at(e.Columns.CreatedAt.Time) }),
		array(entries, func(e *entry) *time.Time { return at(e.Columns.StartedAt.Time) }),
		array(entries, func(e *entry) *time.Time { return at(e.Columns.UpdatedAt.Time) }),
		array(entries, func(e *entry) *time.Time { return at(e.Columns.EndedAt.Time) }),
		array(entries, func(e *entry) *time.Time { return at(e.Columns.WakeAt.Time) }),
		array(entries, func(e *entry) *int16 {
			return nullable(history.ShardOf(e.Columns.ParentInstance.String), relational.StartsChild(e.Turn))
		}),
	}
}

// historyRow is a row of history with whose it is.
type historyRow struct {
	*entry
	relational.TurnRow
}

func historyRows(entries []*entry) []historyRow {
	var rows []historyRow
	for _, e := range entries {
		for _, r := range e.Rows {
			rows = append(rows, historyRow{e, r})
		}
	}
	return rows
}

func historyArgs(rows []historyRow) []any {
	return []any{
		array(rows, func(r historyRow) int16 { return r.Columns.Shard }),
		array(rows, func(r historyRow) string { return r.Columns.Instance }),
		array(rows, func(r historyRow) int64 { return r.Execution }),
		array(rows, func(r historyRow) int64 { return r.Event }),
		array(rows, func(r historyRow) int64 { return r.Last }),
		array(rows, func(r historyRow) []byte { return r.Data }),
	}
}

// formerRow is a former execution with whose it is.
type formerRow struct {
	*entry
	former relational.Columns
}

func formerArgs(entries []*entry) []any {
	var rows []formerRow
	for _, e := range entries {
		for _, f := range e.Former {
			rows = append(rows, formerRow{e, f})
		}
	}
	return []any{
		array(rows, func(r formerRow) int16 { return r.Columns.Shard }),
		array(rows, func(r formerRow) string { return r.Columns.Instance }),
		array(rows, func(r formerRow) int64 { return r.former.Execution }),
		array(rows, func(r formerRow) string { return r.former.Life }),
		array(rows, func(r formerRow) string { return r.former.Name }),
		array(rows, func(r formerRow) string { return r.former.Version }),
		array(rows, func(r formerRow) int64 { return r.former.Engine }),
		array(rows, func(r formerRow) string { return r.former.Status }),
		array(rows, func(r formerRow) []byte { return blob(r.former.Output) }),
		array(rows, func(r formerRow) []byte { return blob(r.former.Error) }),
		array(rows, func(r formerRow) *time.Time { return at(r.former.StartedAt.Time) }),
		array(rows, func(r formerRow) *time.Time { return at(r.former.EndedAt.Time) }),
		array(rows, func(r formerRow) int64 { return r.former.LastEvent }),
		array(rows, func(r formerRow) int64 { return r.former.HistoryBytes }),
	}
}

// valueRow is a value that was set, with whose it is.
type valueRow struct {
	*entry
	key       string
	value     []byte
	execution int64
	set       time.Time
}

func valueRows(entries []*entry) []valueRow {
	var rows []valueRow
	for _, e := range entries {
		for _, v := range e.Turn.Values {
			if !v.Removed {
				rows = append(rows, valueRow{e, v.Key, v.Value, v.Execution, v.Set})
			}
		}
	}
	return rows
}

func valueArgs(rows []valueRow) []any {
	return []any{
		array(rows, func(r valueRow) int16 { return r.Columns.Shard }),
		array(rows, func(r valueRow) string { return r.Columns.Instance }),
		array(rows, func(r valueRow) string { return r.key }),
		array(rows, func(r valueRow) []byte { return blob(r.value) }),
		array(rows, func(r valueRow) int64 { return r.execution }),
		array(rows, func(r valueRow) *time.Time { return at(r.set) }),
	}
}

// attributeRow is an attribute that an instance was started with.
type attributeRow struct {
	*entry
	name, value string
}

func attributeArgs(entries []*entry) []any {
	var rows []attributeRow
	for _, e := range entries {
		if len(e.Columns.Attributes) == 0 {
			continue
		}
		names, values := relational.AttributePairs(e.Turn.Row.Attributes)
		for i := range names {
			rows = append(rows, attributeRow{e, names[i], values[i]})
		}
	}
	return []any{
		array(rows, func(r attributeRow) int16 { return r.Columns.Shard }),
		array(rows, func(r attributeRow) string { return r.Columns.Instance }),
		array(rows, func(r attributeRow) string { return r.name }),
		array(rows, func(r attributeRow) string { return r.value }),
		array(rows, func(r attributeRow) time.Time { return r.Columns.CreatedAt.Time }),
	}
}
