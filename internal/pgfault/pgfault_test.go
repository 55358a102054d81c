package pgfault_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a database with a table of numbers, which can be reached directly and through a proxy.
type world struct {
	*testing.T
	dsn    string
	direct *pgx.Conn
	proxy  *pgfault.Proxy
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pgtest.Need(t)
	dsn := pgtest.Database(t)
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, dsn: dsn, proxy: pgfault.Start(t, fmt.Sprintf("%s:%d", c.Host, c.Port))}
	w.direct = w.connect(dsn)
	w.do(w.direct, "CREATE TABLE a (n int)")
	return w
}

// connect opens a connection, which is closed with the test.
func (w *world) connect(dsn string) *pgx.Conn {
	w.Helper()
	conn, err := pgx.Connect(w.Context(), dsn)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = conn.Close(context.Background())
		<-conn.PgConn().CleanupDone() // a connection that was given up sends a request to cancel in the background
	})
	return conn
}

// through opens a connection through the proxy.
func (w *world) through() *pgx.Conn {
	w.Helper()
	return w.connect(w.proxy.DSN(w.dsn))
}

func (w *world) do(conn *pgx.Conn, sql string, args ...any) {
	w.Helper()
	if _, err := conn.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// numbers gives the contents of the table, as another session sees them.
func (w *world) numbers() string {
	w.Helper()
	var got string
	if err := w.direct.QueryRow(w.Context(),
		"SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), 'none') FROM a").Scan(&got); err != nil {
		w.Fatal(err)
	}
	return got
}

func (w *world) wantNumbers(want string) {
	w.Helper()
	if got := w.numbers(); got != want {
		w.Errorf("the table has %s, want %s", got, want)
	}
}

// waitForNumbers waits until the table has the numbers. It is for changes that the server makes
// without an answer to a client.
func (w *world) waitForNumbers(want string) {
	w.Helper()
	for w.numbers() != want { // the deadline is that of the test
	}
}

// wantUnlocked checks that no transaction is left that has touched the table.
func (w *world) wantUnlocked() {
	w.Helper()
	w.do(w.direct, "BEGIN; LOCK TABLE a NOWAIT; COMMIT")
}

// wantUsable checks that a connection is as good as a new one.
func (w *world) wantUsable(conn *pgx.Conn) {
	w.Helper()
	w.proxy.Inject(nil)
	if got := conn.PgConn().TxStatus(); got != 'I' {
		w.Errorf("the state of the connection is %c", got)
	}
	before := w.numbers()
	for _, way := range ways {
		if err := way.insert(w.Context(), conn, 99); err != nil {
			w.Errorf("%s: the connection cannot be used any more: %v", way.name, err)
		}
	}
	w.do(conn, "DELETE FROM a WHERE n = 99")
	w.wantNumbers(before)
}

func (w *world) wantLost(conn *pgx.Conn, err error) {
	w.Helper()
	if _, told := errors.AsType[*pgconn.PgError](err); err == nil || told {
		w.Errorf("the connection should be lost, got %v", err)
	}
	if !conn.IsClosed() {
		w.Error("the connection is not closed")
	}
}

func (w *world) wantCode(err error, code string) {
	w.Helper()
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || e.Code != code || code == injected && (e.Message != "bad luck" || e.Severity != "ERROR") {
		w.Errorf("got %v, want an error with code %s", err, code)
	}
}

const (
	injected = "40001"
	aborted  = "25P02" // what PostgreSQL says to a statement in a transaction that has failed
)

var (
	fail   = pgfault.FailBefore(injected, "bad luck")
	insert = pgfault.Is("INSERT INTO a")
	commit = pgfault.Is("commit")
)

// nth matches the nth of the statements that match.
func nth(n int, match func(pgfault.Statement) bool) func(pgfault.Statement) bool {
	return func(s pgfault.Statement) bool {
		if match(s) {
			n--
		}
		return match(s) && n == 0
	}
}

type way struct {
	name string
	mode pgx.QueryExecMode
}

// ways are those in which a client can send a statement.
var ways = []way{
	{"prepared and kept", pgx.QueryExecModeCacheStatement},
	{"described and kept", pgx.QueryExecModeCacheDescribe},
	{"described", pgx.QueryExecModeDescribeExec},
	{"extended", pgx.QueryExecModeExec},
	{"simple", pgx.QueryExecModeSimpleProtocol},
}

func (way way) insert(ctx context.Context, conn *pgx.Conn, n int) error {
	_, err := conn.Exec(ctx, "INSERT INTO a VALUES ($1::int)", way.mode, n)
	return err
}

// eachWay runs a test for each way to send a statement: for the first time, and when it has been
// sent before. When time is short, the second makes a difference: to a way that keeps nothing, each
// time is the first, and to describe a statement is the same whether that is kept.
func eachWay(t *testing.T, test func(w *world, conn *pgx.Conn, insert func(n int) error)) {
	for _, way := range ways {
		for _, again := range []bool{false, true} {
			different := again == strings.Contains(way.name, "kept") || way.name == "prepared and kept"
			if testing.Short() && !different {
				continue
			}
			t.Run(fmt.Sprintf("%s, again=%t", way.name, again), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				conn := w.through()
				insert := func(n int) error { return way.insert(t.Context(), conn, n) }
				if again {
					if err := insert(0); err != nil {
						t.Fatal(err)
					}
					w.do(w.direct, "TRUNCATE a")
				}
				test(w, conn, insert)
			})
		}
	}
}

// batch gives a batch that inserts the numbers up to n.
func batch(n int) *pgx.Batch {
	b := new(pgx.Batch)
	for i := range n {
		b.Queue("INSERT INTO a VALUES ($1::int)", i+1)
	}
	return b
}

// send sends a batch, and gives the errors of its statements, and that of its end.
func send(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) (each []error, end error) {
	results := conn.SendBatch(ctx, b)
	for range b.Len() {
		_, err := results.Exec()
		each = append(each, err)
	}
	return each, results.Close()
}

func TestStatementsAreCountedWithTheirText(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var got []string
	w.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprintf("%d: connection %d: %s", s.N, s.Conn, s.SQL))
		return pgfault.Pass
	})
	one, two := w.through(), w.through()
	w.do(one, "SELECT 1")
	for range 2 { // the first time it is prepared as well, which is no statement
		w.do(two, "SELECT $1::int", 2)
	}
	w.do(one, "SELECT $1::int", pgx.QueryExecModeExec, 3)
	w.do(one, "SELECT 4; SELECT 5")
	if _, err := send(t.Context(), two, batch(2)); err != nil {
		t.Fatal(err)
	}
	tx, err := one.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1: connection 1: SELECT 1",
		"2: connection 2: SELECT $1::int",
		"3: connection 2: SELECT $1::int",
		"4: connection 1: SELECT $1::int",
		"5: connection 1: SELECT 4; SELECT 5",
		"6: connection 2: INSERT INTO a VALUES ($1::int)",
		"7: connection 2: INSERT INTO a VALUES ($1::int)",
		"8: connection 1: begin",
		"9: connection 1: commit",
	}
	if !slices.Equal(got, want) || w.proxy.Count() != len(want) {
		t.Errorf("counted %d:\n%s\nwant\n%s", w.proxy.Count(), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestWhatPostgresSaysPassesThrough shows that the proxy passes on messages that are not answers to
// statements, and errors.
func TestWhatPostgresSaysPassesThrough(t *testing.T) {
	w := newWorld(t)
	config, err := pgx.ParseConfig(w.proxy.DSN(w.dsn))
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())

	w.do(conn, "LISTEN news")
	w.do(w.direct, "NOTIFY news, 'hello'")
	if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload != "hello" {
		t.Errorf("notified of %v, %v", n, err)
	}
	w.do(conn, "DO $$ BEGIN RAISE NOTICE 'careful'; END $$")
	if !slices.Equal(notices, []string{"careful"}) {
		t.Errorf("notices: %q", notices)
	}
	w.do(conn, "SET application_name = 'me'")
	if got := conn.PgConn().ParameterStatus("application_name"); got != "me" {
		t.Errorf("the parameter is %q", got)
	}
	rows, _ := conn.Query(t.Context(), "SELECT n, repeat('x', 1000) FROM generate_series(1, $1) AS n", 5000)
	if got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		N    int
		Text string
	}]); err != nil || len(got) != 5000 || got[4999].N != 5000 {
		t.Errorf("got %d rows, %v", len(got), err)
	}
	_, err = conn.Exec(t.Context(), "SELECT 1 / $1::int", 0)
	w.wantCode(err, "22012")
	_, err = conn.Exec(t.Context(), "SELECT from nowhere to $1", 1)
	w.wantCode(err, "42601")
	w.do(conn, "") // has an answer of its own
	w.wantUsable(conn)

	// An error of a batch that comes only with its Sync, and one in its middle.
	w.do(conn, "CREATE TABLE b (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	b := new(pgx.Batch)
	b.Queue("INSERT INTO b VALUES ($1)", 1)
	b.Queue("INSERT INTO b VALUES ($1)", 1)
	_, err = send(t.Context(), conn, b)
	w.wantCode(err, "23505")
	b = new(pgx.Batch)
	b.Queue("INSERT INTO a VALUES ($1)", 1)
	b.Queue("SELECT 1 / $1::int", 0)
	b.Queue("INSERT INTO a VALUES ($1)", 2)
	_, err = send(t.Context(), conn, b)
	w.wantCode(err, "22012")
	w.wantNumbers("none")
	w.wantUsable(conn)

	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"a"}, []string{"n"},
		pgx.CopyFromRows([][]any{{7}, {8}})); err != nil {
		t.Error(err)
	}
	w.wantNumbers("7 8")
	w.wantUsable(conn)
}

func TestAWrongPasswordIsRefusedByTheServer(t *testing.T) {
	w := newWorld(t)
	config, err := pgx.ParseConfig(w.proxy.DSN(w.dsn))
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "guess"
	_, err = pgx.ConnectConfig(t.Context(), config)
	w.wantCode(err, "28P01")
}

func TestARequestToCancelPassesThrough(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	over := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_sleep($1)", 1000)
		over <- err
	}()
	for {
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-over:
			w.wantCode(err, "57014")
			w.wantUsable(conn)
			return
		default: // it came before the statement, and has had no effect
		}
	}
}

func TestDSNsLeadThroughTheProxy(t *testing.T) {
	p := pgfault.Start(t, "127.0.0.1:1")
	for _, dsn := range []string{
		"postgres://me:a%2Fb@db.example.com:1234/mine?sslmode=require&application_name=x",
		"postgresql://me:a%2Fb@/mine?host=db.example.com&port=1234&application_name=x",
		"host=db.example.com port=1234 user=me password='a/b' dbname=mine sslmode=require application_name=x",
	} {
		c, err := pgx.ParseConfig(p.DSN(dsn))
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if got := fmt.Sprintf("%s:%d", c.Host, c.Port); got != p.Addr() {
			t.Errorf("%s: leads to %s", dsn, got)
		}
		if c.User != "me" || c.Password != "a/b" || c.Database != "mine" ||
			c.RuntimeParams["application_name"] != "x" || c.TLSConfig != nil || len(c.Fallbacks) != 0 {
			t.Errorf("%s: became %+v", dsn, c)
		}
	}
}

func TestNewConnectionsAreRefused(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	w.proxy.Refuse(true)
	if _, err := pgx.Connect(t.Context(), w.proxy.DSN(w.dsn)); err == nil {
		t.Error("a new connection was not refused")
	}
	w.do(conn, "SELECT 1")
	w.proxy.Refuse(false)
	w.do(w.through(), "SELECT 1")
}

func TestAllConnectionsAreCut(t *testing.T) {
	w := newWorld(t)
	idle, busy := w.through(), w.through()
	ready := make(chan struct{})
	w.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		close(ready)
		return pgfault.Hold(nil)
	})
	over := make(chan error)
	go func() {
		_, err := busy.Exec(t.Context(), "INSERT INTO a VALUES (1)")
		over <- err
	}()
	<-ready
	w.proxy.CutAll()
	w.wantLost(busy, <-over)
	w.proxy.Inject(nil)
	_, err := idle.Exec(t.Context(), "SELECT 1")
	w.wantLost(idle, err)
	w.do(w.through(), "SELECT 1")
	w.wantNumbers("none")
}

func TestTheServerDiesAndComesBack(t *testing.T) {
	pgtest.Need(t)
	c := pgtest.Start(t, pgtest.Fsync(false))
	w := &world{T: t, dsn: c.DSN(), proxy: pgfault.Start(t, c.Addr())}
	conn := w.through()
	c.Kill(t)
	_, err := conn.Exec(t.Context(), "SELECT 1")
	w.wantLost(conn, err)
	if _, err := pgx.Connect(t.Context(), w.proxy.DSN(w.dsn)); err == nil {
		t.Error("connected to a dead server")
	}
	c.Restart(t)
	w.do(w.through(), "SELECT 1")
}

func TestADelayedStatementIsOnlyLate(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	w.proxy.Inject(pgfault.Once(insert, pgfault.Delay(time.Millisecond)))
	w.do(conn, "INSERT INTO a VALUES (1)")
	w.wantNumbers("1")
	w.wantUsable(conn)
}
