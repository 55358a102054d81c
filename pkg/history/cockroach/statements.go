package cockroach

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// statements are those that are prepared once and kept.
type statements struct {
	fresh, known string // the turns of a usual batch that begin instances, and those that go on
	// the two in one; only for PostgreSQL, since CockroachDB lets a statement change a table in one
	// place only
	both         string
	commit       string // a batch whose turns have nothing but events and promises
	commitExtras string // a batch whose turns have former executions, values or attributes, too

	// The parts of a commit, for one in several statements:
	instances, history, former, values, attributes string

	rows, events string
}

// list is one array of a statement's parameters: a column of rows that are inserted together.
type list struct {
	name, kind string
	of         func([]*entry) packed // for columns of instances, their values
}

var instanceLists = []list{
	{"shard", "INT2", int2s(func(e *entry) int16 { return e.Columns.Shard })},
	{"instance", "TEXT", texts(func(e *entry) string { return e.Columns.Instance })},
	{"incarnation", "TEXT", texts(func(e *entry) string { return e.Columns.Incarnation })},
	{"execution", "INT8", int8s(func(e *entry) int64 { return e.Columns.Execution })},
	{"last_event", "INT8", int8s(func(e *entry) int64 { return e.Columns.LastEvent })},
	{"expected_incarnation", "TEXT", texts(func(e *entry) string { return e.Turn.Expected.Incarnation })},
	{"expected_execution", "INT8", int8s(func(e *entry) int64 { return e.Turn.Expected.Execution })},
	{"expected_event", "INT8", int8s(func(e *entry) int64 { return e.Turn.Expected.LastEvent })},
	{"status", "TEXT", texts(func(e *entry) string { return e.Columns.Status })},
	{"name", "TEXT", texts(func(e *entry) string { return e.Columns.Name })},
	{"version", "TEXT", texts(func(e *entry) string { return e.Columns.Version })},
	{"engine", "INT8", int8s(func(e *entry) int64 { return e.Columns.Engine })},
	{"fresh", "BOOL", bools(func(e *entry) bool { return e.Columns.Fresh })},
	{"parent_instance", "TEXT", nullTexts(func(e *entry) sql.NullString { return e.Columns.ParentInstance })},
	{"parent_incarnation", "TEXT", nullTexts(func(e *entry) sql.NullString { return e.Columns.ParentIncarnation })},
	{"parent_execution", "INT8", nullInt8s(func(e *entry) sql.NullInt64 { return e.Columns.ParentExecution })},
	{"parent_event", "INT8", nullInt8s(func(e *entry) sql.NullInt64 { return e.Columns.ParentEvent })},
	{"attributes", "BYTEA", blobs(func(e *entry) []byte { return e.Columns.Attributes })},
	{"trace", "TEXT", nullTexts(func(e *entry) sql.NullString { return e.Columns.Trace })},
	{"start_message", "TEXT", nullTexts(func(e *entry) sql.NullString { return e.Columns.StartMessage })},
	{"output", "BYTEA", blobs(func(e *entry) []byte { return e.Columns.Output })},
	{"error", "BYTEA", blobs(func(e *entry) []byte { return e.Columns.Error })},
	{"custom_status", "BYTEA", blobs(func(e *entry) []byte { return e.Columns.CustomStatus })},
	{"custom_status_version", "INT8", int8s(func(e *entry) int64 { return e.Columns.CustomStatusVersion })},
	{"history_bytes", "INT8", int8s(func(e *entry) int64 { return e.Columns.HistoryBytes })},
	{"unread", "INT8", int8s(func(e *entry) int64 { return e.Columns.Unread })},
	{"created_at", "TIMESTAMPTZ", times(func(e *entry) time.Time { return e.Columns.CreatedAt.Time })},
	{"started_at", "TIMESTAMPTZ", times(func(e *entry) time.Time { return e.Columns.StartedAt.Time })},
	{"updated_at", "TIMESTAMPTZ", times(func(e *entry) time.Time { return e.Columns.UpdatedAt.Time })},
	{"ended_at", "TIMESTAMPTZ", times(func(e *entry) time.Time { return e.Columns.EndedAt.Time })},
	{"wake_at", "TIMESTAMPTZ", times(func(e *entry) time.Time { return e.Columns.WakeAt.Time })},
}

// parentShard is an array of its own, for the turns that start children: it is not stored.
var parentShard = list{"parent_shard", "INT2", nullInt2s(func(e *entry) (int16, bool) {
	if !relational.StartsChild(e.Turn) {
		return 0, false
	}
	return history.ShardOf(e.Columns.ParentInstance.String), true
})}

// allLists are all arrays of upsertInstances.
var allLists = append(slices.Clone(instanceLists), parentShard)

// freshLists are the columns of turns that begin instances, in a batch where these are nobody's
// children and have no attributes. knownLists are those of turns that go on in the same execution.
var (
	freshLists = without(instanceLists, "expected_incarnation", "expected_execution", "expected_event",
		"parent_instance",
		"parent_incarnation", "parent_execution", "parent_event", "attributes")
	knownLists = without(instanceLists, "expected_incarnation", "expected_execution", "parent_instance",
		"parent_incarnation",
		"parent_execution", "parent_event", "attributes", "trace",
		"start_message", "created_at")
)

func without(lists []list, names ...string) []list {
	return slices.DeleteFunc(slices.Clone(lists), func(l list) bool { return slices.Contains(names, l.name) })
}

var (
	historyLists = []list{{name: "shard", kind: "INT2"}, {name: "instance", kind: "TEXT"},
		{name: "execution", kind: "INT8"}, {name: "event", kind: "INT8"}, {name: "last_event", kind: "INT8"},
		{name: "data", kind: "BYTEA"}}
	formerLists = []list{
		{name: "shard", kind: "INT2"}, {name: "instance", kind: "TEXT"}, {name: "execution", kind: "INT8"},
		{name: "incarnation", kind: "TEXT"}, {name: "name", kind: "TEXT"}, {name: "version", kind: "TEXT"},
		{name: "engine", kind: "INT8"},
		{name: "status", kind: "TEXT"}, {name: "output", kind: "BYTEA"}, {name: "error", kind: "BYTEA"},
		{name: "started_at", kind: "TIMESTAMPTZ"}, {name: "ended_at", kind: "TIMESTAMPTZ"},
		{name: "last_event", kind: "INT8"}, {name: "history_bytes", kind: "INT8"},
	}
	valueLists = []list{{name: "shard", kind: "INT2"}, {name: "instance", kind: "TEXT"},
		{name: "key", kind: "TEXT"}, {name: "value", kind: "BYTEA"}, {name: "execution", kind: "INT8"},
		{name: "set_at", kind: "TIMESTAMPTZ"}}
	attributeLists = []list{{name: "shard", kind: "INT2"}, {name: "instance", kind: "TEXT"},
		{name: "name", kind: "TEXT"}, {name: "value", kind: "TEXT"}, {name: "created_at", kind: "TIMESTAMPTZ"}}
)

// unnest makes rows of arrays, the first of which is parameter first. PostgreSQL keeps what a
// function in FROM gives before it goes on, each array by itself, which costs it some 2 us for each
// array and 0.2 us for each of its values. In a list of columns, they are read side by side.
func (f flavour) unnest(first int, lists []list, alias string) string {
	array := func(i int, l list) string { return fmt.Sprintf("$%d::%s[]", first+i, l.kind) }
	if f == postgres {
		return "(SELECT " + each(lists, func(i int, l list) string {
			return "unnest(" + array(i, l) + ") AS " + l.name
		}) + ") AS " + alias
	}
	return "unnest(" + each(lists, array) + ") AS " + alias + "(" + columns(lists) + ")"
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

// perIncarnation are the columns that keep their value for the whole incarnation of an instance.
var perIncarnation = map[string]bool{
	"parent_instance": true, "parent_incarnation": true, "parent_execution": true, "parent_event": true,
	"attributes": true, "trace": true, "start_message": true, "created_at": true,
}

// upsertInstances inserts new instances and takes known ones further, if each stands where its turn
// was decided.
func upsertInstances(f flavour, first int) string {
	set := each(instanceLists[2:], func(_ int, l list) string {
		switch {
		case perIncarnation[l.name]:
			return fmt.Sprintf("%s = CASE WHEN i.incarnation = excluded.incarnation THEN i.%[1]s ELSE "+
				"excluded.%[1]s END", l.name)
		case l.name == "custom_status":
			return "custom_status = CASE WHEN i.incarnation = excluded.incarnation AND i.custom_status_version = " +
				"excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END"
		}
		return fmt.Sprintf("%s = excluded.%[1]s", l.name)
	})
	parents, alive := bornToParents(f, first)
	return parents + `INSERT INTO rondo_instances AS i (` + columns(instanceLists) + `)
	SELECT ` + columns(instanceLists) + `
	FROM ` + f.unnest(first, allLists, "w") + `
	WHERE (w.expected_execution = 0 OR (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance))
	AND ` + alive + `
	ON CONFLICT (shard, instance) DO UPDATE SET ` + set + `
	WHERE i.incarnation = excluded.expected_incarnation AND i.execution = excluded.expected_execution AND i.last_event = excluded.expected_event
	AND NOT (i.status = '` + relational.Deleted + `' AND i.start_message IS NOT DISTINCT FROM excluded.start_message)
	RETURNING instance`
}

// bornToParents is the condition that the parent of a child that is to be born is there, or has
// begun another incarnation without being deleted, and what must stand before the statement. See
// relational.ParentGone.
func bornToParents(f flavour, first int) (before, condition string) {
	const otherIncarnation = "EXISTS (SELECT 1 FROM rondo_executions x WHERE x.shard = w.parent_shard AND " +
		"x.instance = w.parent_instance AND x.execution = w.parent_execution AND x.incarnation = w.parent_incarnation)"
	if f == cockroachdb { // transactions are serializable, and nothing needs to be locked
		return "", "(w.parent_shard IS NULL OR EXISTS (SELECT 1 FROM rondo_instances p WHERE p.shard = " +
			"w.parent_shard AND p.instance = w.parent_instance AND p." + relational.Alive +
			" AND (p.incarnation = w.parent_incarnation OR " + otherIncarnation + ")))"
	}
	// The lock keeps a parent from being deleted meanwhile. All are locked before anything is
	// written: once the statement has written a parent's row, it can no longer lock it. Counting
	// them makes PostgreSQL do that first, because the count does not depend on what is written.
	place := func(name string) int {
		return first + slices.IndexFunc(instanceLists, func(l list) bool { return l.name == name })
	}
	before = fmt.Sprintf(`WITH p AS (SELECT x.instance, x.incarnation
	FROM (SELECT DISTINCT shard, instance FROM unnest($%d::INT2[], $%d::TEXT[]) AS u(shard, instance) WHERE shard IS NOT NULL ORDER BY shard, instance) u
	CROSS JOIN LATERAL (SELECT instance, incarnation FROM rondo_instances x WHERE x.shard = u.shard AND x.instance = u.instance AND x.%s FOR KEY SHARE) x)
	`, first+len(instanceLists), place("parent_instance"), relational.Alive)
	return before, `(SELECT count(*) FROM p) >= 0 AND (w.parent_shard IS NULL OR ((w.parent_instance, w.parent_incarnation) IN (SELECT instance, incarnation FROM p)) IS TRUE
		OR ((w.parent_instance IN (SELECT instance FROM p)) IS TRUE AND ` + otherIncarnation + `))`
}

// insertFresh inserts new instances. Those that are there already it leaves out; a row that
// somebody else has just inserted makes it fail.
func insertFresh(f flavour, first int) string {
	return "INSERT INTO rondo_instances (" + columns(freshLists) + ")\n\tSELECT " + columns(freshLists) + "\n\tFROM " +
		f.unnest(first, freshLists,
			"w") + "\n\tWHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = " +
		"w.instance) IS NULL\n\tRETURNING instance"
}

// updateKnown takes known instances further in their execution, if each stands where its turn was
// decided. It is no UPDATE, because PostgreSQL may join that with the whole table, if the plan was
// made while it was small. What would be inserted is never there: tombstones stay until all turns
// that were decided before are through.
func updateKnown(f flavour, first int) string {
	set := each(without(knownLists, "shard", "instance", "incarnation", "execution", "expected_event"),
		func(_ int, l list) string {
			if l.name == "custom_status" {
				return "custom_status = CASE WHEN i.custom_status_version = excluded.custom_status_version THEN " +
					"i.custom_status ELSE excluded.custom_status END"
			}
			return l.name + " = excluded." + l.name
		})
	return `INSERT INTO rondo_instances AS i (` + columns(knownLists) + `, created_at)
	SELECT ` + columns(knownLists) + `, updated_at
	FROM ` + f.unnest(first, knownLists, "w") + `
	WHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance)
	ON CONFLICT (shard, instance) DO UPDATE SET ` + set + `
	WHERE i.incarnation = excluded.incarnation AND i.execution = excluded.execution AND i.last_event = excluded.expected_event
	RETURNING instance`
}

// keepPromises stores what a batch promises in one row: as it was put together if all turns were
// taken, and the parts of those that were otherwise.
func keepPromises(f flavour, first int, won string) string {
	fence := "" // PostgreSQL would put what is selected into the condition as well, and prepare it twice
	if f == postgres {
		fence = " OFFSET 0"
	}
	return fmt.Sprintf(`INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $%d::INT2, $%d::INT8, m.messages FROM (SELECT CASE WHEN (SELECT count(*) FROM won) = $%d::INT8 THEN $%d::BYTEA
	ELSE (SELECT string_agg(substring($%[4]d::BYTEA, r.place::INT4, r.size::INT4), ''::BYTEA ORDER BY r.place)
	FROM unnest($%[5]d::TEXT[], $%[6]d::INT8[], $%[7]d::INT8[]) AS r(instance, place, size)`, first, first+1, first+2, first+3, first+4, first+5, first+6) + won +
		") END AS messages" + fence + ") m\n\tWHERE length(m.messages) > 0"
}

// insertion inserts rows; where filters them.
func insertion(f flavour, table string, first int, lists []list, where, conflict string) string {
	return "INSERT INTO " + table + " (" + columns(lists) + ")\n\tSELECT " + columns(lists) + "\n\tFROM " +
		f.unnest(first, lists, "r") + where + conflict
}

const (
	ifNew      = "\n\tON CONFLICT DO NOTHING"
	lastCounts = "\n\tON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = " +
		"excluded.execution, set_at = excluded.set_at"
)

func statementsFor(f flavour) statements {
	// PostgreSQL would compare each row with each winner, if its statistics made it believe that
	// there are few. As a test of a value it builds a hash table.
	won := "\n\tWHERE r.instance IN (SELECT instance FROM won)"
	if f == postgres {
		won = "\n\tWHERE (r.instance IN (SELECT instance FROM won)) IS TRUE"
	}
	const end = "\nSELECT instance FROM won"
	next := 1
	take := func(n int) int {
		next += n
		return next - n
	}
	// rest stores history and promises of the turns that were taken.
	rest := func() string {
		return "),\nh AS (" + insertion(f, "rondo_history", take(len(historyLists)), historyLists, won,
			"") + "),\no AS (" + keepPromises(f, take(7), won) + ")"
	}
	s := statements{}
	s.fresh = "WITH won AS (" + insertFresh(f, take(len(freshLists))) + rest() + end
	next = 1
	s.known = "WITH won AS (" + updateKnown(f, take(len(knownLists))) + rest() + end
	if f == postgres {
		next = 1
		s.both = "WITH n AS (" + insertFresh(f, take(len(freshLists))) + "),\nk AS (" + updateKnown(f,
			take(len(knownLists))) +
			"),\nwon AS (SELECT instance FROM n UNION ALL SELECT instance FROM k" + rest() + end
	}
	next = 1
	with := "WITH won AS (" + upsertInstances(f, take(len(allLists))) + rest()
	s.commit = with + end
	s.commitExtras = with +
		",\nf AS (" + insertion(f, "rondo_executions", take(len(formerLists)), formerLists, won, "") + ")" +
		",\nv AS (" + insertion(f, "rondo_values", take(len(valueLists)), valueLists, won, lastCounts) + ")" +
		",\na AS (" + insertion(f, "rondo_attributes", take(len(attributeLists)), attributeLists, won,
		ifNew) + ")" + end

	s.instances = upsertInstances(f, 1)
	s.history = insertion(f, "rondo_history", 1, historyLists, "", "")
	s.former = insertion(f, "rondo_executions", 1, formerLists, "", "")
	s.values = insertion(f, "rondo_values", 1, valueLists, " WHERE true", lastCounts)
	s.attributes = insertion(f, "rondo_attributes", 1, attributeLists, " WHERE true", ifNew)

	// On PostgreSQL, OFFSET 0 keeps the lookup of each row what it is written as.
	fence := ""
	if f == postgres {
		fence = " OFFSET 0"
	}
	s.rows = "SELECT " + relational.Prefixed("i", relational.ColumnNames) +
		" FROM unnest($1::INT2[], $2::TEXT[]) AS w(shard, instance) CROSS JOIN LATERAL (SELECT " +
		relational.ColumnNames +
		" FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance" + fence + ") i"
	// Only while the execution is still the one whose end was read: an instance that was deleted
	// and began anew has another history in the same place.
	s.events = `SELECT w.place, h.event, h.last_event, h.data
	FROM unnest($1::INT8[], $2::INT2[], $3::TEXT[], $4::INT8[], $5::INT8[], $6::TEXT[]) AS w(place, shard, instance, execution, last_event, incarnation)
	JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance AND i.incarnation = w.incarnation AND i.execution = w.execution
	CROSS JOIN LATERAL (SELECT event, last_event, data FROM rondo_history x
		WHERE x.shard = w.shard AND x.instance = w.instance AND x.execution = w.execution AND x.event <= w.last_event ORDER BY event` + fence + `) h`
	return s
}

// ---- The parameters.

// array collects one column of entries.
func array[E, T any](entries []E, f func(E) T) []T {
	out := make([]T, len(entries))
	for i, e := range entries {
		out[i] = f(e)
	}
	return out
}

// instanceArgs are the parameters of columns of instances.
func instanceArgs(lists []list, entries []*entry) []any {
	args := make([]any, len(lists))
	for i, l := range lists {
		args[i] = l.of(entries)
	}
	return args
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
		int2s(func(r historyRow) int16 { return r.Columns.Shard })(rows),
		texts(func(r historyRow) string { return r.Columns.Instance })(rows),
		int8s(func(r historyRow) int64 { return r.Execution })(rows),
		int8s(func(r historyRow) int64 { return r.Event })(rows),
		int8s(func(r historyRow) int64 { return r.Last })(rows),
		blobs(func(r historyRow) []byte { return r.Data })(rows),
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
		int2s(func(r formerRow) int16 { return r.Columns.Shard })(rows),
		texts(func(r formerRow) string { return r.Columns.Instance })(rows),
		int8s(func(r formerRow) int64 { return r.former.Execution })(rows),
		texts(func(r formerRow) string { return r.former.Incarnation })(rows),
		texts(func(r formerRow) string { return r.former.Name })(rows),
		texts(func(r formerRow) string { return r.former.Version })(rows),
		int8s(func(r formerRow) int64 { return r.former.Engine })(rows),
		texts(func(r formerRow) string { return r.former.Status })(rows),
		blobs(func(r formerRow) []byte { return r.former.Output })(rows),
		blobs(func(r formerRow) []byte { return r.former.Error })(rows),
		times(func(r formerRow) time.Time { return r.former.StartedAt.Time })(rows),
		times(func(r formerRow) time.Time { return r.former.EndedAt.Time })(rows),
		int8s(func(r formerRow) int64 { return r.former.LastEvent })(rows),
		int8s(func(r formerRow) int64 { return r.former.HistoryBytes })(rows),
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
		int2s(func(r valueRow) int16 { return r.Columns.Shard })(rows),
		texts(func(r valueRow) string { return r.Columns.Instance })(rows),
		texts(func(r valueRow) string { return r.key })(rows),
		blobs(func(r valueRow) []byte { return r.value })(rows),
		int8s(func(r valueRow) int64 { return r.execution })(rows),
		times(func(r valueRow) time.Time { return r.set })(rows),
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
		int2s(func(r attributeRow) int16 { return r.Columns.Shard })(rows),
		texts(func(r attributeRow) string { return r.Columns.Instance })(rows),
		texts(func(r attributeRow) string { return r.name })(rows),
		texts(func(r attributeRow) string { return r.value })(rows),
		times(func(r attributeRow) time.Time { return r.Columns.CreatedAt.Time })(rows),
	}
}
