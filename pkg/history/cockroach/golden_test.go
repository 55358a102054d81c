package cockroach

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/internal/sqladmin"
	"github.com/rondo-run/rondo/pkg/history/internal/sqljobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

var update = flag.Bool("update", false,
	"write testdata/*.sql anew; check cockroachdb.sql with CockroachDB's parser then")

const goldenHead = `-- All statements as they are sent to %s: those that depend on what is asked for once each,
-- and with lists of 2 shards instead of all.
-- %s
-- Written by: go test ./pkg/history/cockroach -run %s -update
`

// TestStatementsForCockroachDB keeps the statements as the store sends them to CockroachDB, so that
// a developer that changes one is reminded to check it there, too.
func TestStatementsForCockroachDB(t *testing.T) {
	compareStatements(t, cockroachdb, "cockroachdb.sql",
		"Most were parsed with the parsers of CockroachDB v23.2 and v25.2; none was run on a server.",
		", and check that file again with CockroachDB's parser (github.com/cockroachdb/cockroachdb-parser), "+
			"because no test here runs on CockroachDB")
}

// TestStatementsForPostgreSQL keeps the statements as the store sends them to PostgreSQL, so that a
// reviewer sees the final text of each.
func TestStatementsForPostgreSQL(t *testing.T) {
	compareStatements(t, postgres, "postgresql.sql", "Run on PostgreSQL by the other tests of this package.", "")
}

// compareStatements compares all statements for a database with a file, which -update writes.
func compareStatements(t *testing.T, f flavour, file, tested, advice string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	text := fmt.Sprintf(goldenHead, f, tested, t.Name()) + strings.Join(statementsTo(t, f), "\n----\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("The statements for %v are no longer those of %s. Run this test with -update%s. First that "+
			"differs:\n%s", f, path, advice, firstDifference(text, string(want)))
	}
}

func firstDifference(have, want string) string {
	known := strings.Split(want, "\n----\n")
	for _, s := range strings.Split(have, "\n----\n") {
		if !slices.Contains(known, s) {
			return s
		}
	}
	return "(one is gone, or they are in another order)"
}

var (
	written      = regexp.MustCompile(`\b(INSERT INTO|UPDATE|DELETE FROM) (rondo_\w+)`)
	changesTable = regexp.MustCompile(`^(CREATE|ALTER|DROP|TRUNCATE)\b`)
	joinsTable   = regexp.MustCompile(`;\s*(CREATE|ALTER|DROP|TRUNCATE)\b`)
	boundByQuery = regexp.MustCompile(`rondo_\w+[^()]* [<>]=? (coalesce\()?\(SELECT\b`)
)

// TestStatementsFitCockroachDB checks what CockroachDB's parser does not: what its server refuses,
// or takes and does not do.
func TestStatementsFitCockroachDB(t *testing.T) {
	for _, s := range statementsTo(t, cockroachdb) {
		if bad := misfits(s); len(bad) > 0 {
			t.Errorf("%s:\n%s", strings.Join(bad, "; "), s)
		}
	}
}

// misfits lists the parts of a statement that CockroachDB does not support.
func misfits(s string) (bad []string) {
	times := make(map[string]int)
	plain := !strings.Contains(s, "ON CONFLICT")
	for _, m := range written.FindAllStringSubmatch(s, -1) { // DO UPDATE and FOR UPDATE name no table
		times[m[2]]++
		plain = plain && m[1] == "INSERT INTO"
	}
	for table, n := range times {
		if n > 1 && !plain {
			bad = append(bad, fmt.Sprintf("%s is written %d times in one statement, and not by plain INSERTs only",
				table, n))
		}
	}
	ddl := changesTable.MatchString(s)
	if ddl && strings.Contains(s, "COLLATE") {
		bad = append(bad, "COLLATE in a definition cannot be parsed")
	}
	if strings.Contains(s, ";") && (ddl || joinsTable.MatchString(s)) {
		bad = append(bad, "a definition must be a statement of its own")
	}
	if strings.Contains(s, "advisory") {
		bad = append(bad, "advisory locks do nothing")
	}
	if boundByQuery.MatchString(s) {
		bad = append(bad, "a bound from a subquery does not bound the scan: this may read all rows of a key")
	}
	if strings.Contains(s, "FOR KEY SHARE") {
		bad = append(bad, "FOR KEY SHARE locks against every change")
	}
	return bad
}

// TestMisfitsAreNoticed makes sure that the checks find what they are there to find, and nothing
// else.
func TestMisfitsAreNoticed(t *testing.T) {
	for s, want := range map[string]string{
		"WITH a AS (INSERT INTO rondo_x SELECT 1), " +
			"b AS (DELETE FROM rondo_x) SELECT 1": "is written 2 times",
		"WITH a AS (INSERT INTO rondo_x SELECT 1), " +
			"b AS (INSERT INTO rondo_x SELECT 1) SELECT 1": "",
		"WITH a AS (INSERT INTO rondo_x SELECT 1 ON CONFLICT DO NOTHING), " +
			"b AS (INSERT INTO rondo_x SELECT 1)": "is written 2 times",
		"INSERT INTO rondo_values VALUES (1) ON CONFLICT (key) DO UPDATE SET value = 1": "",
		`CREATE TABLE x (y TEXT COLLATE "C")`:                                           "COLLATE",
		"ALTER TABLE x ADD y INT8; SELECT 1":                                            "of its own",
		"SELECT 1; DROP TABLE x":                                                        "of its own",
		"DELETE FROM rondo_jobs WHERE queue = $1 AND position <= (SELECT max(position) " +
			"FROM rondo_jobs)": "a bound from a subquery",
		"SELECT data FROM rondo_history WHERE instance = $1 AND event >= coalesce((SELECT event FROM rondo_history), " +
			"0)": "a bound from a subquery",
		"SELECT 1 FROM rondo_history WHERE event >= $1":        "",
		"SELECT pg_advisory_xact_lock(1)":                      "advisory",
		"SELECT 1 FROM rondo_instances FOR KEY SHARE":          "FOR KEY SHARE",
		"SELECT 1 FROM rondo_instances FOR UPDATE":             "",
		statementsFor(postgres).commit:                         "FOR KEY SHARE",
		postgres.adapt("CREATE TABLE x (y {{text}} NOT NULL)"): "COLLATE",
	} {
		if got := strings.Join(misfits(s), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q in it", s, got, want)
		}
	}
}

// statementsTo are all statements for a database. There is no server: a recorder makes up the
// answers.
func statementsTo(t *testing.T, to flavour) []string {
	t.Helper()
	r := &recorder{seen: make(map[string]bool)}
	if to == cockroachdb {
		r.note(cockroachSession)
	} else {
		r.note(postgresSession, keptPlans, ownPlans)
	}
	r.note(schemaTable, newSchema, readSchema, holdSchema, keepSchema, advanceSchema, releaseSchema)
	r.note("SET statement_timeout = 0", "RESET statement_timeout")
	for _, m := range migrations() {
		for _, s := range m.statements {
			r.note(to.adapt(s))
		}
	}
	st := statementsFor(to)
	r.note(st.fresh, st.known)
	if to == postgres {
		r.note(st.both, removeEntry)
	}
	r.note(st.commit, st.commitExtras, st.instances, st.rows, st.events, sameEvent)
	r.note(readMarks, advanceMarks, dueEntries, leaseEntries, oldestEntries([]int{0, 1}), removeEntries,
		dueWakes, takeOverdue)
	r.note(sqljobs.Statements(to.queueDialect())...)
	options := Options{Now: func() time.Time { return crowdNow }}.withDefaults()
	db := &database{flavour: to}
	s := newStore(db, newMarks(db, options), options, options.Now)
	few := dialect
	few.Shards = 2
	s.Admin = sqladmin.New(few, r, nil, options.Now, s.committer.ids.key)
	s.Systems = sqladmin.NewSystems(few, r, nil, options.Now)
	s.Schedules = sqladmin.NewSchedules(few, r, nil, s.committer.ids.key, rand.New(rand.NewPCG(1, 2)).Uint64)
	ctx := t.Context()
	a := historytest.NewActor("x")
	turn := historytest.Sends(historytest.Together(a.Start(), a.Set("a", "1"), a.Remove("b")), "m", "y")
	entries, err := s.encode(historytest.Batch(t, turn).Turns)
	if err != nil {
		t.Fatal(err)
	}
	err = s.commitRest(ctx, &recordingTx{r: r}, entries, []int64{1}, [][]byte{nil},
		[]history.OutboxKey{{Shard: 1, ID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	again := *turn
	again.ClearValues = true
	entries[0].Turn = &again
	if err := s.commitRest(ctx, &recordingTx{r: r}, entries, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	r.drive(t, s)
	return r.all
}

// drive lets a store send all of its plain statements. The consequences of the made-up answers do
// not matter.
func (r *recorder) drive(t *testing.T, s *Store) {
	ctx := t.Context()
	child := historytest.NewActor("y")
	parent := historytest.NewActor("x")
	parent.Start()
	_, goneErr := s.ParentGone(ctx, r, child.Start(historytest.WithParent(parent)),
		&sqlrow.InstanceRow{Status: "running"})
	if goneErr != nil {
		t.Fatal(goneErr)
	}
	r.note(countEntries)

	all := history.Filter{
		Statuses: []round.Status{round.Completed, round.Failed}, Name: "orders", Version: "1.0.0", RootsOnly: true,
		CreatedAfter: crowdBegan, CreatedBefore: crowdNow, EndedAfter: crowdBegan, EndedBefore: crowdNow,
	}
	with := func(f history.Filter, change func(*history.Filter)) history.Filter {
		change(&f)
		return f
	}
	attributes := map[string]string{"customer": "c-7", "region": "eu"}
	for _, f := range []history.Filter{
		{}, all, {Name: "orders"},
		with(all, func(f *history.Filter) { f.IDs = []string{"x", "y"} }),
		with(all, func(f *history.Filter) { f.IDPrefix = "x" }),
		with(all, func(f *history.Filter) { f.Parent, f.RootsOnly = "x", false }),
		with(all, func(f *history.Filter) { f.Attributes = attributes }),
		with(all, func(f *history.Filter) { f.Attributes, f.IDPrefix = attributes, "x" }),
	} {
		list, err := s.List(ctx, f, history.Page{Limit: 1})
		if err == nil {
			_, err = s.List(ctx, f, history.Page{Limit: 1, Cursor: list.Next})
		}
		_, countErr := s.Count(ctx, f, 100)
		if err := errors.Join(err, countErr); err != nil || list.Next == "" {
			t.Fatal(list.Next, err)
		}
	}
	_, _ = s.Count(ctx, history.Filter{}, 0)
	_, _ = s.Executions(ctx, "x", 0, 10)
	_, _ = s.Events(ctx, "x", 2, 0, 10)
	within := s.Within(1)
	_, _ = within.List(ctx, history.Filter{}, history.Page{Limit: 1})
	_, _ = within.Executions(ctx, "x", 0, 10)
	_, _ = within.Events(ctx, "x", 2, 0, 10)
	_, _ = s.Stats(ctx, "x")
	_, _ = s.Values(ctx, "x")
	_, _, _ = s.Value(ctx, "x", "k")
	_, _ = s.CustomStatus(ctx, "x", 0)
	_, _ = s.Tree(ctx, "x")
	_, _ = s.Metrics(ctx)
	_, _ = s.Prune(ctx, "x", history.Keep{Last: 2, EndedBefore: crowdNow})
	_, deleteErr := s.Delete(ctx, []string{"x"}, history.Deletion{Force: true})
	_, tidyErr := s.Tidy(ctx)
	_, updateErr := s.LastUpdate(ctx, crowdNow)
	_, systemErr := s.Identity(ctx)
	_, _, setErr := s.SetIdentity(ctx, history.System{}, "x", 1)
	if err := errors.Join(deleteErr, tidyErr, updateErr, systemErr, setErr, r.schedules(ctx, s)); err != nil {
		t.Fatal(err)
	}
}

// schedules lets a store send all of its statements about schedules. The outcome of the changes
// stays unknown.
func (r *recorder) schedules(ctx context.Context, s *Store) error {
	messages := []events.Wire{{Subject: "x"}}
	var errs []error
	for _, c := range []history.ScheduleChange{{}, {Expected: 5, Messages: messages}, {Expected: 5, Delete: true}} {
		c.ID = "x"
		_, _, _ = s.ChangeSchedule(ctx, c)
	}
	_, _, readErr := s.Schedule(ctx, "x")
	_, dueErr := s.DueSchedules(ctx, crowdNow, 10)
	errs = append(errs, readErr, dueErr)
	for _, f := range []history.ScheduleFilter{{}, {IDPrefix: "x"}} {
		_, listErr := s.ListSchedules(ctx, f, history.Page{})
		_, withinErr := s.Within(1).ListSchedules(ctx, f, history.Page{})
		errs = append(errs, listErr, withinErr)
	}
	return errors.Join(errs...)
}

// recorder writes down statements, and answers each with one row.
type recorder struct {
	all  []string
	seen map[string]bool
	// unchanged says that statements change no row.
	unchanged bool
}

func (r *recorder) note(statements ...string) {
	for _, s := range statements {
		if kind := kindOf(s); !r.seen[kind] {
			r.seen[kind] = true
			r.all = append(r.all, s)
		}
	}
}

func (r *recorder) Read(_ context.Context, _ string, f func(sqlrow.DB) error) error { return f(r) }
func (r *recorder) ReadOften(_ context.Context, _ string, f func(sqlrow.DB) error) error {
	return f(r)
}
func (r *recorder) Write(_ context.Context, _ string, f func(sqlrow.DB) error) error { return f(r) }
func (r *recorder) WriteOnce(_ context.Context, _ string, doubted func(), f func(sqlrow.DB) error) error {
	if err := f(r); err != nil {
		return err
	}
	doubted()
	r.unchanged = true // by the second try
	defer func() { r.unchanged = false }()
	return f(r)
}

func (r *recorder) Query(_ context.Context, scan func(sqlrow.Row) error, statement string, _ ...any) error {
	r.note(statement)
	n := 1
	if strings.HasPrefix(statement, "SELECT i.shard,") { // a list of one and one more
		n = 2
	}
	for range n {
		if err := scan(madeUp{}); err != nil {
			return err
		}
	}
	return nil
}

func (r *recorder) Exec(_ context.Context, statement string, _ ...any) (int64, error) {
	if r.note(statement); r.unchanged {
		return 0, nil
	}
	return 1, nil
}

// madeUp is a row that fits every statement.
type madeUp struct{}

func (madeUp) Scan(into ...any) error {
	for _, to := range into {
		switch to := to.(type) {
		case *string:
			*to = "x"
		case *int64:
			*to = 1
		case *int:
			*to = 1
		case *int16:
			*to = 1
		case *bool:
			*to = true
		case *[]byte:
			*to = []byte(`{"k":"v"}`)
		case *sqlrow.Moment:
			to.Time = crowdBegan
		case *sql.NullString, *sql.NullInt64: // none
		default:
			return fmt.Errorf("a row with a %T", to)
		}
	}
	return nil
}

// recordingTx is as much of a transaction as a commit needs.
type recordingTx struct {
	pgx.Tx
	r *recorder
}

func (tx *recordingTx) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		tx.r.note(q.SQL)
	}
	return noResults{}
}

type noResults struct{ pgx.BatchResults }

func (noResults) Close() error { return nil }
