package cockroach

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// statements are those that are prepared once and kept.
type statements struct {
	fresh, known string // the turns of a usual batch that begin instances, and those that go on
	// the two in one; only for PostgreSQL, since CockroachDB lets a statement change a table in one
	// place only
	both         string
	commit       string // a batch whose turns have nothing but events and messages
	commitExtras string // a batch whose turns have former executions, values or attributes, too

	// The parts of a commit, for one in several statements:
	instances, history, former, values, attributes string

	rows, events string
}

// list is an array among a statement's parameters: a column of rows that are inserted together.
type list struct {
	name, kind string
	changes    sqlrow.Change
}

// arrays are the parameters for rows that come as E, an array for each column.
type arrays[E any] struct {
	lists []list
	packs []func([]E) packed
}

// add appends a column.
func (a *arrays[E]) add(l list, pack func([]E) packed) {
	a.lists, a.packs = append(a.lists, l), append(a.packs, pack)
}

// args are the parameters for rows.
func (a arrays[E]) args(rows []E) []any {
	args := make([]any, len(a.packs))
	for i, pack := range a.packs {
		args[i] = pack(rows)
	}
	return args
}

// without are the arrays but those by these names.
func (a arrays[E]) without(names ...string) (out arrays[E]) {
	for i, l := range a.lists {
		if !slices.Contains(names, l.name) {
			out.add(l, a.packs[i])
		}
	}
	return out
}

// arraysOf are the arrays for columns of a table whose rows are those of some E.
func arraysOf[E, R any](columns sqlrow.Columns[R], of func(*E) *R) (a arrays[E]) {
	for _, c := range columns {
		kind, pack := arrayOf(c, of)
		a.add(list{c.Name, kind, c.Changes}, pack)
	}
	return a
}

// arrayOf is the type of a column, and how its array is packed.
func arrayOf[E, R any](c sqlrow.Column[R], of func(*E) *R) (kind string, pack func([]E) packed) {
	switch f := c.Field.(type) {
	case func(*R) *int16:
		return "INT2", int2s(func(e *E) int16 { return *f(of(e)) })
	case func(*R) *int64:
		return "INT8", int8s(func(e *E) int64 { return *f(of(e)) })
	case func(*R) *bool:
		return "BOOL", bools(func(e *E) bool { return *f(of(e)) })
	case func(*R) *string:
		return "TEXT", texts(func(e *E) string { return *f(of(e)) })
	case func(*R) *[]byte:
		return "BYTEA", blobs(func(e *E) []byte { return *f(of(e)) })
	case func(*R) *sql.NullString:
		return "TEXT", nullTexts(func(e *E) sql.NullString { return *f(of(e)) })
	case func(*R) *sql.NullInt64:
		return "INT8", nullInt8s(func(e *E) sql.NullInt64 { return *f(of(e)) })
	case func(*R) *sqlrow.Moment:
		return "TIMESTAMPTZ", times(func(e *E) time.Time { return f(of(e)).Time })
	}
	panic(fmt.Sprintf("cockroach: column %s is a %T", c.Name, c.Field))
}

// instanceArrays are the arrays that are stored in the table of instances. Behind the version of
// the row are those of the version that its turn expects.
var instanceArrays = func() (a arrays[*entry]) {
	columns := arraysOf(sqlrow.Instances, func(e **entry) *sqlrow.InstanceRow { return &(*e).Columns })
	for i, l := range columns.lists {
		if a.add(l, columns.packs[i]); l.name != "last_event" {
			continue
		}
		a.add(list{name: "expected_incarnation", kind: "TEXT"},
			texts(func(e **entry) string { return (*e).Turn.Expected.Incarnation }))
		a.add(list{name: "expected_execution", kind: "INT8"},
			int8s(func(e **entry) int64 { return (*e).Turn.Expected.Execution }))
		a.add(list{name: "expected_event", kind: "INT8"},
			int8s(func(e **entry) int64 { return (*e).Turn.Expected.LastEvent }))
	}
	return a
}()

// allArrays are all arrays of upsertInstances. That of the parents' shards is not stored: it is for
// the turns that start children.
var allArrays = func() arrays[*entry] {
	a := instanceArrays.without()
	a.add(list{name: "parent_shard", kind: "INT2"}, nullInt2s(func(e **entry) (int16, bool) {
		if !sqlrow.StartsChild((*e).Turn) {
			return 0, false
		}
		return history.ShardOf((*e).Columns.Parent.Instance.String), true
	}))
	return a
}()

// freshArrays are the columns of turns that begin instances, in a batch where these have no parents
// and no attributes. knownArrays are those of turns that go on in the same execution.
var (
	freshArrays = instanceArrays.without(slices.Concat(sqlrow.ParentColumns, []string{"attributes",
		"expected_incarnation", "expected_execution", "expected_event"})...)
	knownArrays = instanceArrays.without(slices.Concat(sqlrow.ParentColumns, []string{"attributes", "trace",
		"start_message", "created_at", "expected_incarnation", "expected_execution"})...)
)

// The arrays of the other tables.
var (
	historyArrays   = arraysOf(sqlrow.History, deref[sqlrow.HistoryRow])
	formerArrays    = arraysOf(sqlrow.Executions, deref[sqlrow.InstanceRow])
	valueArrays     = arraysOf(sqlrow.Values, itself[sqlrow.ValueRow])
	attributeArrays = arraysOf(sqlrow.Attributes, itself[sqlrow.AttributeRow])
)

func deref[R any](row **R) *R { return *row }
func itself[R any](row *R) *R { return row }

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

// upsertInstances inserts new instances and takes known ones further, if each stands where its turn
// was decided.
func upsertInstances(f flavour, first int) string {
	all := instanceArrays.lists
	set := each(all[2:], func(_ int, l list) string {
		switch {
		case l.changes == sqlrow.NewIncarnation && l.name != "incarnation":
			return fmt.Sprintf("%s = CASE WHEN i.incarnation = excluded.incarnation THEN i.%[1]s ELSE "+
				"excluded.%[1]s END", l.name)
		case l.changes == sqlrow.NewCustomStatus:
			return "custom_status = CASE WHEN i.incarnation = excluded.incarnation AND i.custom_status_version = " +
				"excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END"
		}
		return fmt.Sprintf("%s = excluded.%[1]s", l.name)
	})
	parents, alive := bornToParents(f, first)
	return parents + `INSERT INTO rondo_instances AS i (` + columns(all) + `)
	SELECT ` + columns(all) + `
	FROM ` + f.unnest(first, allArrays.lists, "w") + `
	WHERE (w.expected_execution = 0 OR (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance))
	AND ` + alive + `
	ON CONFLICT (shard, instance) DO UPDATE SET ` + set + `
	WHERE i.incarnation = excluded.expected_incarnation AND i.execution = excluded.expected_execution AND i.last_event = excluded.expected_event
	AND NOT (i.status = '` + sqlrow.Deleted + `' AND i.start_message IS NOT DISTINCT FROM excluded.start_message)
	RETURNING instance`
}

// bornToParents is the condition that the parent of a new child is there, or has begun another
// incarnation without being deleted, with the statement before it. See sqlrow.ParentGone.
func bornToParents(f flavour, first int) (before, condition string) {
	const otherIncarnation = "EXISTS (SELECT 1 FROM rondo_executions x WHERE x.shard = w.parent_shard AND " +
		"x.instance = w.parent_instance AND x.execution = w.parent_execution AND x.incarnation = w.parent_incarnation)"
	if f == cockroachdb { // transactions are serializable, and nothing needs to be locked
		return "", "(w.parent_shard IS NULL OR EXISTS (SELECT 1 FROM rondo_instances p WHERE p.shard = " +
			"w.parent_shard AND p.instance = w.parent_instance AND p." + sqlrow.Alive +
			" AND (p.incarnation = w.parent_incarnation OR " + otherIncarnation + ")))"
	}
	// The lock keeps a parent from being deleted meanwhile. All are locked before any write: once
	// the statement has written a parent's row, it can no longer lock it. Counting them makes
	// PostgreSQL do that first, because the count does not depend on the writes.
	place := func(name string) int {
		return first + slices.IndexFunc(allArrays.lists, func(l list) bool { return l.name == name })
	}
	before = fmt.Sprintf(`WITH p AS (SELECT x.instance, x.incarnation
	FROM (SELECT DISTINCT shard, instance FROM unnest($%d::INT2[], $%d::TEXT[]) AS u(shard, instance) WHERE shard IS NOT NULL ORDER BY shard, instance) u
	CROSS JOIN LATERAL (SELECT instance, incarnation FROM rondo_instances x WHERE x.shard = u.shard AND x.instance = u.instance AND x.%s FOR KEY SHARE) x)
	`, place("parent_shard"), place("parent_instance"), sqlrow.Alive)
	return before, `(SELECT count(*) FROM p) >= 0 AND (w.parent_shard IS NULL OR ((w.parent_instance, w.parent_incarnation) IN (SELECT instance, incarnation FROM p)) IS TRUE
		OR ((w.parent_instance IN (SELECT instance FROM p)) IS TRUE AND ` + otherIncarnation + `))`
}

// insertFresh inserts new instances. It leaves out those that are there already; a row that another
// transaction has just inserted makes it fail.
func insertFresh(f flavour, first int) string {
	lists := freshArrays.lists
	return "INSERT INTO rondo_instances (" + columns(lists) + ")\n\tSELECT " + columns(lists) + "\n\tFROM " +
		f.unnest(first, lists, "w") + "\n\tWHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND " +
		"x.instance = w.instance) IS NULL\n\tRETURNING instance"
}

// updateKnown updates the rows of known instances, if each still has the version on which its turn
// was decided. It is not an UPDATE, because PostgreSQL may join that with the whole table, if it
// made the plan while the table was small. It never inserts: tombstones stay until all turns that
// were decided before are through.
func updateKnown(f flavour, first int) string {
	lists := knownArrays.lists
	set := each(knownArrays.without("shard", "instance", "incarnation", "execution", "expected_event").lists,
		func(_ int, l list) string {
			if l.changes == sqlrow.NewCustomStatus {
				return "custom_status = CASE WHEN i.custom_status_version = excluded.custom_status_version THEN " +
					"i.custom_status ELSE excluded.custom_status END"
			}
			return l.name + " = excluded." + l.name
		})
	return `INSERT INTO rondo_instances AS i (` + columns(lists) + `, created_at)
	SELECT ` + columns(lists) + `, updated_at
	FROM ` + f.unnest(first, lists, "w") + `
	WHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance)
	ON CONFLICT (shard, instance) DO UPDATE SET ` + set + `
	WHERE i.incarnation = excluded.incarnation AND i.execution = excluded.execution AND i.last_event = excluded.expected_event
	RETURNING instance`
}

// insertOutboxRow stores the messages of a batch in one row: the packed ones if all turns were
// taken, and otherwise the parts of the taken ones.
func insertOutboxRow(f flavour, first int, won string) string {
	fence := "" // PostgreSQL would copy the selection into the condition, and prepare it twice
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
	// rest stores history and messages of the turns that were taken.
	rest := func() string {
		return "),\nh AS (" + insertion(f, "rondo_history", take(len(historyArrays.lists)), historyArrays.lists, won,
			"") + "),\no AS (" + insertOutboxRow(f, take(7), won) + ")"
	}
	s := statements{}
	s.fresh = "WITH won AS (" + insertFresh(f, take(len(freshArrays.lists))) + rest() + end
	next = 1
	s.known = "WITH won AS (" + updateKnown(f, take(len(knownArrays.lists))) + rest() + end
	if f == postgres {
		next = 1
		s.both = "WITH n AS (" + insertFresh(f, take(len(freshArrays.lists))) + "),\nk AS (" + updateKnown(f,
			take(len(knownArrays.lists))) +
			"),\nwon AS (SELECT instance FROM n UNION ALL SELECT instance FROM k" + rest() + end
	}
	next = 1
	with := "WITH won AS (" + upsertInstances(f, take(len(allArrays.lists))) + rest()
	s.commit = with + end
	former, values, attributes := formerArrays.lists, valueArrays.lists, attributeArrays.lists
	s.commitExtras = with +
		",\nf AS (" + insertion(f, "rondo_executions", take(len(former)), former, won, "") + ")" +
		",\nv AS (" + insertion(f, "rondo_values", take(len(values)), values, won, lastCounts) + ")" +
		",\na AS (" + insertion(f, "rondo_attributes", take(len(attributes)), attributes, won, ifNew) + ")" + end

	s.instances = upsertInstances(f, 1)
	s.history = insertion(f, "rondo_history", 1, historyArrays.lists, "", "")
	s.former = insertion(f, "rondo_executions", 1, formerArrays.lists, "", "")
	s.values = insertion(f, "rondo_values", 1, valueArrays.lists, " WHERE true", lastCounts)
	s.attributes = insertion(f, "rondo_attributes", 1, attributeArrays.lists, " WHERE true", ifNew)

	// On PostgreSQL, OFFSET 0 keeps the lookup of each row what it is written as.
	fence := ""
	if f == postgres {
		fence = " OFFSET 0"
	}
	s.rows = "SELECT " + sqlrow.Instances.Of("i") +
		" FROM unnest($1::INT2[], $2::TEXT[]) AS w(shard, instance) CROSS JOIN LATERAL (SELECT " +
		sqlrow.Instances.String() +
		" FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance" + fence + ") i"
	// Only while the execution is still the one whose end was read: an instance that was deleted
	// and began anew has another history in the same place.
	s.events = "SELECT w.place, " + sqlrow.EventColumns.Of("h") + `
	FROM unnest($1::INT8[], $2::INT2[], $3::TEXT[], $4::INT8[], $5::INT8[], $6::TEXT[]) AS w(place, shard, instance, execution, last_event, incarnation)
	JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance AND i.incarnation = w.incarnation AND i.execution = w.execution
	CROSS JOIN LATERAL (SELECT ` + sqlrow.EventColumns.String() + ` FROM rondo_history x
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

// historyRows are the rows of history of entries.
func historyRows(entries []*entry) []*sqlrow.HistoryRow {
	var rows []*sqlrow.HistoryRow
	for _, e := range entries {
		for i := range e.Rows {
			rows = append(rows, &e.Rows[i])
		}
	}
	return rows
}

// formerRows are the rows of the former executions of entries.
func formerRows(entries []*entry) []*sqlrow.InstanceRow {
	var rows []*sqlrow.InstanceRow
	for _, e := range entries {
		for i := range e.Former {
			rows = append(rows, &e.Former[i])
		}
	}
	return rows
}

// valueRows are the values that entries set.
func valueRows(entries []*entry) []sqlrow.ValueRow {
	var rows []sqlrow.ValueRow
	for _, e := range entries {
		for _, v := range e.Turn.Values {
			if !v.Removed {
				rows = append(rows, sqlrow.ValueRow{Shard: e.Columns.Shard, Instance: e.Columns.Instance,
					Key: v.Key, Value: v.Value, Execution: v.Execution, Set: sqlrow.Moment{Time: v.Set}})
			}
		}
	}
	return rows
}

// attributeRows are the attributes that entries start their instances with.
func attributeRows(entries []*entry) []sqlrow.AttributeRow {
	var rows []sqlrow.AttributeRow
	for _, e := range entries {
		if len(e.Columns.Attributes) == 0 {
			continue
		}
		names, values := sqlrow.AttributePairs(e.Turn.Row.Attributes)
		for i := range names {
			rows = append(rows, sqlrow.AttributeRow{Shard: e.Columns.Shard, Instance: e.Columns.Instance,
				Name: names[i], Value: values[i], CreatedAt: e.Columns.CreatedAt})
		}
	}
	return rows
}
