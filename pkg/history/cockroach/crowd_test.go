package cockroach

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// crowd is a store with many instances.
type crowd struct {
	*testing.T
	x     *explainer
	store *Store // looked at
	blind *Store // not looked at
	conn  *pgx.Conn
	now   time.Time
	half  int
	n     int

	pruned int // how often
}

const crowdSize = 100_000

// crowdMembers are the numbers of the instances that are stored: all, or a third of the thousands
// when time is short. What differs between instances differs within each thousand or two.
func crowdMembers() (list []int) {
	for i := range crowdSize {
		if thousand := i / 1000; !testing.Short() || thousand%3 == 0 || thousand == 50 {
			list = append(list, i)
		}
	}
	return list
}

// Each minute, an instance began. The last one began just now.
var (
	crowdBegan = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	crowdNow   = crowdBegan.Add(crowdSize * time.Minute)
)

func newCrowd(t *testing.T) *crowd {
	address := Migrated.Database(t)
	w := &crowd{T: t, x: &explainer{early: make(map[string]string)}, now: crowdNow}
	// The clock moves with each look at it: outbox entries of one moment may draw the same number,
	// and only the store tries again then.
	var looks atomic.Int64
	opened := func(o Options) *Store {
		o.Log = slog.New(slog.DiscardHandler)
		o.Now = func() time.Time { return w.now.Add(time.Duration(looks.Add(1)) * time.Microsecond) }
		s, err := Open(t.Context(), address, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	w.blind = opened(Options{})
	// One connection has all the prepared statements.
	w.store = opened(Options{MaxConns: 1, Configure: func(c *pgxpool.Config) { c.ConnConfig.Tracer = w.x }})
	var err error
	if w.conn, err = pgx.Connect(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close(context.Background()) })
	for _, table := range []string{"instances", "history", "executions", "values", "attributes", "outbox", "marks",
		"schedules"} {
		w.exec("ALTER TABLE rondo_" + table + " SET (autovacuum_enabled = off)") // it makes statistics
	}
	// its schema makes PostgreSQL forget all plans
	w.exec("CREATE TEMPORARY TABLE crowd (i INT4, instance TEXT, shard INT2)")
	w.planEarly()
	w.fill()
	return w
}

func (w *crowd) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.conn.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// planEarly prepares the statements that are kept while there is nothing, and makes their plans.
func (w *crowd) planEarly() {
	conn, err := w.store.db.pool.Acquire(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Release()
	w.x.t = w.T
	defer func() { w.x.t = nil }()
	st := statementsFor(postgres)
	for i, sql := range []string{
		st.fresh, st.known, st.both, st.commit, st.commitExtras, st.instances, st.history, st.former, st.values,
		st.attributes, st.rows, st.events,
		dueEntries, leaseEntries, removeEntry, removeEntries, dueWakes, takeOverdue,
	} {
		name := fmt.Sprintf("early_%d", i)
		d, err := conn.Conn().PgConn().Prepare(w.Context(), name, sql, nil)
		if err != nil {
			w.Fatal(err)
		}
		nothing := strings.TrimSuffix(strings.Repeat("NULL, ", len(d.ParamOIDs)), ", ")
		w.x.explain(w.Context(), conn.Conn(), "generic", name+"("+nothing+")", sql)
		w.x.early[sql] = name
	}
}

// fill makes the instances.
func (w *crowd) fill() {
	id := func(i int) string { return fmt.Sprintf("order-%06d", i) }
	members := crowdMembers()
	_, err := w.conn.CopyFrom(w.Context(), pgx.Identifier{"crowd"}, []string{"i", "instance", "shard"},
		pgx.CopyFromSlice(len(members), func(n int) ([]any, error) {
			i := members[n]
			return []any{i, id(i), history.ShardOf(id(i))}, nil
		}))
	if err != nil {
		w.Fatal(err)
	}
	// One in twenty runs, and has waited since it began. One in ten is a child, and the oldest
	// instance has 2,000 more.
	w.exec(`INSERT INTO rondo_instances (shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine,
			fresh, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at,
			parent_instance, parent_incarnation, parent_execution, parent_event,
			start_message, attributes, output)
		SELECT shard, instance, 'incarnation-' || i, CASE WHEN i = 20 THEN 301 ELSE 1 END, CASE WHEN i % 500 = 40 THEN 100 ELSE 2 END, '', 0, 0,
			CASE WHEN i % 20 = 0 THEN 'running' WHEN i % 500 = 7 THEN 'suspended' WHEN i % 1000 = 11 THEN 'halted' WHEN i % 50 = 3 THEN 'failed'
				WHEN i % 100 = 5 THEN 'cancelled' WHEN i % 200 = 6 THEN 'terminated' WHEN i % 2000 = 13 THEN 'deleting' WHEN i % 40 = 14 THEN 'deleted' ELSE 'completed' END,
			CASE WHEN i % 97 < 50 THEN 'orders' WHEN i % 97 < 80 THEN 'payments' WHEN i % 97 < 96 THEN 'reports' WHEN i % 7 = 0 THEN 'audits' ELSE 'refunds' END,
			CASE WHEN i < 90000 THEN '1.0.0' ELSE '2.0.0' END, 1, false, 0, 500, 0,
			at, at, at, CASE WHEN i % 20 > 0 THEN at + INTERVAL '30 seconds' END, CASE WHEN i % 20 = 0 THEN $2::TIMESTAMPTZ + i % 600 * INTERVAL '1 second' END,
			p, 'incarnation-' || i / 10 * 10, CASE WHEN p IS NOT NULL THEN 1 END, CASE WHEN p IS NOT NULL THEN 2 END,
			'start-' || i, convert_to('{"customer":"c-' || i % 10000 || '","region":"' || (ARRAY['eu', 'us', 'ap'])[1 + i % 3] || '"}', 'UTF8'), '{"receipt":"r-1"}'
		FROM (SELECT *, $1::TIMESTAMPTZ + i * INTERVAL '1 minute' AS at,
			CASE WHEN i % 10 = 9 THEN 'order-' || lpad((i - 9)::TEXT, 6, '0') WHEN i % 50 = 1 THEN 'order-000000' END AS p FROM crowd) c`,
		crowdBegan, crowdNow.Add(-time.Minute))
	a := historytest.NewActor("a")
	a.Start()
	a.Notes(99)
	var data [][]byte
	for _, e := range a.Events[1] {
		d, err := events.EncodeEvent(e)
		if err != nil {
			w.Fatal(err)
		}
		data = append(data, d)
	}
	w.exec(`INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
		SELECT shard, instance, x, e, e, ($1::BYTEA[])[e]
		FROM rondo_instances CROSS JOIN LATERAL generate_series(1, execution) x CROSS JOIN LATERAL generate_series(1, last_event) e
		WHERE status <> 'deleted'`, data)
	w.exec(`INSERT INTO rondo_executions (shard, instance, execution, incarnation, name, version, engine, status, started_at, ended_at, last_event, history_bytes)
		SELECT shard, instance, x - CASE WHEN execution = 1 THEN 3 ELSE 0 END, incarnation, name, version, 1, 'continued_as_new', created_at, created_at, 2, 500
		FROM rondo_instances CROSS JOIN LATERAL generate_series(1, greatest(3, execution - 1)) x WHERE status = 'running'`)
	w.exec(`INSERT INTO rondo_values (shard, instance, key, value, execution)
		SELECT shard, instance, k, '1', 1 FROM rondo_instances CROSS JOIN unnest(ARRAY['a', 'b']) k
		WHERE status IN ('running', 'failed')`)
	w.exec(`INSERT INTO rondo_attributes (shard, instance, name, value, created_at)
		SELECT i.shard, i.instance, a.key, a.value, i.created_at
		FROM rondo_instances i CROSS JOIN LATERAL jsonb_each_text(convert_from(i.attributes, 'UTF8')::JSONB) a
		WHERE i.status NOT IN ('deleting', 'deleted')`)
	entries := "INSERT INTO rondo_outbox (shard, id, messages) SELECT i % 16, $1::INT8 + i * 4096, '' FROM " +
		"generate_series(1, $2::INT8) i"
	w.exec(entries, history.OutboxID(crowdNow, 0), 20_000) // none of them is due
	w.exec(entries, history.OutboxID(crowdNow.Add(-2*time.Minute), 0), 1000)
	w.exec(`INSERT INTO rondo_schedules (version, token, wake_at, changed_at, id, data)
		SELECT i, i, CASE WHEN i % 2 = 0 THEN $1::TIMESTAMPTZ + (i - 100) * INTERVAL '1 minute' END, $1::TIMESTAMPTZ,
			'schedule-' || lpad(i::TEXT, 6, '0'), convert_to(repeat('x', 200), 'UTF8')
		FROM generate_series(1, 20000) i`, crowdNow)
}

// again makes statistics, and undoes what the first half has swept.
func (w *crowd) again() {
	w.exec("DELETE FROM rondo_marks")
	w.exec("UPDATE rondo_instances SET status = 'deleting' WHERE status = 'deleted' AND instance < 'order-003'")
	w.exec("ANALYZE")
	w.x.early = nil // statistics make PostgreSQL plan anew
}

// id is a new one.
func (w *crowd) id(kind string) string {
	w.n++
	return fmt.Sprintf("%s-%d", kind, w.n)
}

// pick finds instances that a condition holds for.
func (w *crowd) pick(where string, n int) (ids []string) {
	w.Helper()
	rows, err := w.conn.Query(w.Context(),
		"SELECT instance FROM rondo_instances WHERE instance < 'p' AND "+where+" ORDER BY instance DESC LIMIT $1", n)
	if err == nil {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(ids) != n {
		w.Fatal(ids, err)
	}
	return ids
}

func (w *crowd) long(n int) []string  { return w.pick("last_event = 100 AND status = 'running'", n) }
func (w *crowd) short(n int) []string { return w.pick("last_event = 2 AND status = 'completed'", n) }

// eternal has many executions.
func (w *crowd) eternal() string { return "order-000020" }

func (w *crowd) resume(ids ...string) (list []*historytest.Actor) {
	known, err := w.blind.Load(w.Context(), ids, nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, k := range known {
		if k.Unreadable != nil {
			w.Fatal(k.Unreadable)
		}
		list = append(list, historytest.Resume(k, w.now))
	}
	return list
}

// running are instances that can be taken further.
func (w *crowd) running(n int) []*historytest.Actor {
	return w.resume(w.pick("status = 'running' AND last_event = 2", n)...)
}

func (w *crowd) commits(b history.Batch) error {
	result, err := w.store.Commit(w.Context(), b)
	for _, o := range result.Outcomes {
		if o.Status != history.Committed {
			return fmt.Errorf("a turn is not taken: %v %v", o.Status, o.Err)
		}
	}
	return err
}

func (w *crowd) load(ids []string) error {
	known, err := w.store.Load(w.Context(), ids, nil)
	for _, k := range known {
		if err == nil {
			err = k.Unreadable
		}
	}
	return err
}

// someKeys are those of outbox entries that are there.
func (w *crowd) someKeys(n int) (keys []history.OutboxKey) {
	w.Helper()
	rows, err := w.conn.Query(w.Context(),
		"SELECT shard, id FROM rondo_outbox WHERE shard = 3 ORDER BY id DESC LIMIT $1", n)
	if err == nil {
		keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[history.OutboxKey])
	}
	if err != nil || len(keys) != n {
		w.Fatal(keys, err)
	}
	return keys
}

func (w *crowd) takes(n int) func([]history.Overdue, error) error {
	return func(got []history.Overdue, err error) error {
		if err == nil && len(got) != n {
			err = fmt.Errorf("%d were taken", len(got))
		}
		return err
	}
}

func (w *crowd) leaseEntries(n int, take history.Lease) error {
	got, err := w.store.LeaseOutbox(w.Context(), take)
	if err == nil && len(got) != n {
		err = fmt.Errorf("%d were taken", len(got))
	}
	return err
}
