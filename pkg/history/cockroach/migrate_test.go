package cockroach_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// connect opens a connection behind the stores' backs.
func connect(tb testing.TB, address string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// execute runs statements without parameters.
func execute(tb testing.TB, conn *pgx.Conn, statements ...string) {
	tb.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(tb.Context(), s); err != nil {
			tb.Fatalf("%s: %v", s, err)
		}
	}
}

// describe describes the tables of a schema: one line for each column, index and constraint.
func describe(tb testing.TB, conn *pgx.Conn) string {
	tb.Helper()
	rows, err := conn.Query(tb.Context(), `
		SELECT concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), o.collname, a.attnotnull, pg_get_expr(d.adbin, d.adrelid)) AS line
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_collation o ON o.oid = a.attcollation
			LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL SELECT concat_ws(' ', 'table', relname, relkind, reloptions::text) FROM pg_class WHERE relnamespace = current_schema()::regnamespace
		UNION ALL SELECT concat_ws(' ', 'index', replace(pg_get_indexdef(i.indexrelid), current_schema() || '.', ''), i.indisvalid, i.indisunique)
		FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = current_schema()::regnamespace
		UNION ALL SELECT concat_ws(' ', 'constraint', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
		ORDER BY line`)
	if err != nil {
		tb.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// migrated is what the tables look like when nothing has gone wrong.
func migrated(tb testing.TB) string {
	tb.Helper()
	address := pgtest.Database(tb)
	openStore(tb, address, cockroach.Options{})
	return describe(tb, connect(tb, address))
}

// checkMigrated checks that the tables are as wanted, and that no migrator holds the row of
// versions.
func checkMigrated(tb testing.TB, conn *pgx.Conn, want string) {
	tb.Helper()
	if got := describe(tb, conn); got != want {
		tb.Fatalf("the tables are\n%s\nwant\n%s", got, want)
	}
	var rows, version, holders int
	if err := conn.QueryRow(tb.Context(),
		"SELECT count(*), max(version), count(holder) + count(held_until) FROM rondo_schema").Scan(&rows, &version,
		&holders); err != nil {
		tb.Fatal(err)
	}
	if rows != 1 || version != cockroach.SchemaVersion || holders != 0 {
		tb.Fatalf("the table of versions has %d rows, version %d, held %d", rows, version, holders)
	}
}

// TestManyMigrateAtOnce starts ten stores at the same moment on an empty database.
func TestManyMigrateAtOnce(t *testing.T) {
	pgtest.Need(t)
	want := migrated(t)
	for range racetest.Short(5, 1) {
		address := pgtest.Database(t)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				<-begin
				s, err := cockroach.Open(t.Context(), address, cockroach.Options{MaxConns: 1 + i%3})
				if err != nil {
					t.Error(err)
					return
				}
				commitAll(t, s, historytest.NewActor(fmt.Sprint("instance-", i)).StartAndCall())
				s.Close()
			})
		}
		close(begin)
		all.Wait()
		checkMigrated(t, connect(t, address), want)
	}
}

func TestMigrateSchemaAtOnce(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	begin := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	from0 := 0
	for range 10 {
		all.Go(func() {
			<-begin
			from, to, err := cockroach.MigrateSchema(t.Context(), address, cockroach.Options{})
			if err != nil || to != cockroach.SchemaVersion || from > to {
				// between two versions, it may begin with the first
				t.Errorf("from %d to %d, %v", from, to, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if from == 0 {
				from0++
			}
		})
	}
	close(begin)
	all.Wait()
	if from0 == 0 {
		t.Error("nobody has seen the empty database")
	}
	checkMigrated(t, connect(t, address), migrated(t))
	if from, to, err := cockroach.MigrateSchema(t.Context(), address,
		cockroach.Options{}); from != cockroach.SchemaVersion || to != from || err != nil {
		t.Errorf("once more: from %d to %d, %v", from, to, err)
	}
}

// half makes half of the tables, and a row of versions that is held.
func half(tb testing.TB, conn *pgx.Conn, heldUntil string) {
	tb.Helper()
	all := cockroach.Statements()
	execute(tb, conn, all[:len(all)/2]...)
	execute(tb, conn, "INSERT INTO rondo_schema (id, version, holder, held_until) VALUES (1, 0, 'dead', "+heldUntil+")")
}

// heldOut lets the hold on the row of versions expire.
const heldOut = "UPDATE rondo_schema SET held_until = now() - INTERVAL '1 second'"

// The beginnings of statements that tests wait for.
const (
	triesToHold = "UPDATE rondo_schema SET holder = $1, held_until"
	holdsOn     = "UPDATE rondo_schema SET held_until"
)

// watched opens a store through a proxy, and says what it does.
type watched struct {
	*testing.T
	proxy *pgfault.Proxy
	seen  chan pgfault.Statement
	ended chan error
	store *cockroach.Store
	// patience ends long after everything should have happened.
	patience <-chan struct{}
}

func watch(t *testing.T, address string, hook pgfault.Hook) *watched {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{T: t, proxy: pgfault.Start(t, fmt.Sprintf("%s:%d", config.Host, config.Port)),
		seen: make(chan pgfault.Statement, 1000), ended: make(chan error, 1)}
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	w.patience = patience.Done()
	w.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		w.seen <- s
		if hook == nil {
			return pgfault.Pass
		}
		return hook(s)
	})
	return w
}

// open opens the store, in the background.
func (w *watched) open(address string, options cockroach.Options) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		w.store, err = cockroach.Open(ctx, w.proxy.DSN(address), options)
		w.ended <- err
	}()
	w.Cleanup(func() {
		cancel()
		w.proxy.Inject(nil)
		<-ended
		if w.store != nil {
			w.store.Close()
		}
	})
}

// await waits until a statement has been sent so often. The store must not be open by then.
func (w *watched) await(words string, times int) {
	w.Helper()
	for times > 0 {
		select {
		case s := <-w.seen:
			if pgfault.Is(words)(s) {
				times--
			}
		case err := <-w.ended:
			w.Fatalf("the store is open (%v) before it said %q", err, words)
		case <-w.patience:
			w.Fatalf("it does not say %q", words)
		}
	}
}

// end waits until the store is open.
func (w *watched) end() *cockroach.Store {
	w.Helper()
	select {
	case err := <-w.ended:
		if err != nil {
			w.Fatal(err)
		}
	case <-w.patience:
		w.Fatal("the store is not open")
	}
	return w.store
}

// TestADeadMigratorIsReplaced leaves half of the tables, as a process does that dies while it
// migrates. The next one takes over when the dead one's time is out, and not before.
func TestADeadMigratorIsReplaced(t *testing.T) {
	pgtest.Need(t)
	want := migrated(t)
	t.Run("long ago", func(t *testing.T) {
		address := pgtest.Database(t)
		conn := connect(t, address)
		half(t, conn, "now() - INTERVAL '1 second'")
		openStore(t, address, cockroach.Options{})
		checkMigrated(t, conn, want)
	})
	t.Run("just now", func(t *testing.T) {
		address := pgtest.Database(t)
		conn := connect(t, address)
		half(t, conn, "now() + INTERVAL '1 hour'")
		before := describe(t, conn)
		w := watch(t, address, nil)
		var logged strings.Builder
		w.open(address, cockroach.Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
		w.await(triesToHold, 3)
		if got := describe(t, conn); got != before {
			t.Fatalf("it has changed the tables while another one holds them:\n%s", got)
		}
		execute(t, conn, heldOut)
		w.end()
		checkMigrated(t, conn, want)
		if n := strings.Count(logged.String(), "another process migrates the database's tables"); n != 1 {
			t.Errorf("it said %d times what it waits for: %s", n, logged.String())
		}
	})
	t.Run("nobody waits for ever", func(t *testing.T) {
		address := pgtest.Database(t)
		half(t, connect(t, address), "now() + INTERVAL '1 hour'")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := cockroach.Open(ctx, address, cockroach.Options{})
		if history.ClassOf(err) != history.Retry || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: %v", history.ClassOf(err), err)
		}
	})
}

// TestAMigratorThatLostItsHold keeps a statement of a migrator in flight, while another migrator
// takes over.
func TestAMigratorThatLostItsHold(t *testing.T) {
	pgtest.Need(t)
	want := migrated(t)
	late := func(t *testing.T, address string, options cockroach.Options) (w *watched, arrive func()) {
		hold := make(chan struct{})
		is := pgfault.Is("CREATE INDEX IF NOT EXISTS rondo_instances_by_parent")
		w = watch(t, address, pgfault.Once(is, pgfault.Hold(hold)))
		arrive = sync.OnceFunc(func() { close(hold) })
		t.Cleanup(arrive)
		w.open(address, options)
		w.await("CREATE INDEX IF NOT EXISTS rondo_instances_by_parent", 1)
		return w, arrive
	}
	t.Run("to one who has finished", func(t *testing.T) {
		address := pgtest.Database(t)
		w, arrive := late(t, address, cockroach.Options{})
		execute(t, connect(t, address), heldOut)
		other := openStore(t, address, cockroach.Options{})
		a := historytest.NewActor("a")
		commitAll(t, other, a.StartAndCall())
		arrive()
		commitAll(t, w.end(), a.Note())
		checkMigrated(t, connect(t, address), want)
	})
	t.Run("to one who goes on", func(t *testing.T) {
		address := pgtest.Database(t)
		conn := connect(t, address)
		w, arrive := late(t, address, cockroach.Options{})
		execute(t, conn, "UPDATE rondo_schema SET holder = 'other', held_until = now() + INTERVAL '1 hour'")
		arrive()
		w.await(triesToHold, 3)
		var holder string
		var version int
		if err := conn.QueryRow(t.Context(), "SELECT holder, version FROM rondo_schema").Scan(&holder,
			&version); err != nil || holder != "other" || version != 0 {
			t.Fatalf("held by %s, version %d, %v", holder, version, err)
		}
		execute(t, conn, heldOut)
		w.end()
		checkMigrated(t, conn, want)
	})
	// A statement that takes long: the row is held on meanwhile, with a pool of one connection,
	// too. When the hold is lost, the statement is given up.
	t.Run("within a statement", func(t *testing.T) {
		cockroach.HoldAgainAfter(t, 10*time.Millisecond)
		address := pgtest.Database(t)
		conn := connect(t, address)
		w, arrive := late(t, address, cockroach.Options{MaxConns: 1})
		w.await(holdsOn, 1)
		execute(t, conn, heldOut)
		if !slowtest.Until(time.Minute, func() (held bool) {
			if err := conn.QueryRow(t.Context(),
				"SELECT held_until > now() + INTERVAL '10 seconds' FROM rondo_schema").Scan(&held); err != nil {
				t.Fatal(err)
			}
			return held
		}) {
			t.Fatal("it is not held on")
		}
		execute(t, conn, "UPDATE rondo_schema SET holder = 'other', held_until = now() + INTERVAL '1 hour'")
		w.await(triesToHold, 2)
		arrive()
		execute(t, conn, heldOut)
		w.end()
		checkMigrated(t, conn, want)
	})
}

// TestEveryStatementOfAMigrationMayFail lets each statement go wrong that Open sends to an empty
// database, in a schema of its own each time.
func TestEveryStatementOfAMigrationMayFail(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	want := migrated(t)
	address := pgtest.Database(t)
	conn := connect(t, address)
	w := watch(t, address, nil)
	schemas := 0
	migrate := func(t *testing.T, hook pgfault.Hook) int {
		t.Helper()
		schemas++
		schema := fmt.Sprintf("schema_%d", schemas)
		execute(t, conn, "CREATE SCHEMA "+schema, "SET search_path = "+schema)
		before := w.proxy.Count()
		w.proxy.Inject(hook)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		s, err := cockroach.Open(ctx, w.proxy.DSN(address)+"&search_path="+schema, cockroach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		checkMigrated(t, conn, want)
		return w.proxy.Count() - before
	}
	n := migrate(t, nil)
	t.Logf("%d statements", n)
	step := racetest.Short(racetest.Size(1, 4), 16)
	for i, name := range []string{"serialization", "cut before", "cut after"} {
		t.Run(name, func(t *testing.T) {
			for k := 1 + i%step; k <= n; k += step {
				at := w.proxy.Count() + k
				migrate(t, pgfault.Once(func(s pgfault.Statement) bool { return s.N == at }, faults[name]))
			}
		})
		t.Run(name+", one in four", func(t *testing.T) {
			var mu sync.Mutex
			chance := rand.New(rand.NewPCG(1, 2))
			migrate(t, func(pgfault.Statement) pgfault.Fault {
				mu.Lock()
				defer mu.Unlock()
				if chance.IntN(4) == 0 {
					return faults[name]
				}
				return pgfault.Pass
			})
		})
	}
}

func TestOtherVersionsAreRefused(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	conn := connect(t, address)
	refused := func(mode cockroach.SchemaMode, found int, says string) {
		t.Helper()
		_, err := cockroach.Open(t.Context(), address, cockroach.Options{Schema: mode})
		var schema *history.SchemaError
		if !errors.As(err, &schema) || schema.Found != found || schema.Wanted != cockroach.SchemaVersion ||
			history.ClassOf(err) != history.Permanent {
			t.Fatalf("version %d, mode %d: %v: %v", found, mode, history.ClassOf(err), err)
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("version %d, mode %d: %q does not say %q", found, mode, err, says)
		}
	}
	refused(cockroach.Verify, 0, "`rondo migrate`")
	half(t, conn, "now()")
	refused(cockroach.Verify, 0, "`rondo migrate`")
	openStore(t, address, cockroach.Options{})
	execute(t, conn, fmt.Sprintf("UPDATE rondo_schema SET version = %d", cockroach.SchemaVersion+1))
	for _, mode := range []cockroach.SchemaMode{cockroach.Migrate, cockroach.Verify} {
		refused(mode, cockroach.SchemaVersion+1, "another build has migrated them; run that build")
	}
	from, _, err := cockroach.MigrateSchema(t.Context(), address, cockroach.Options{})
	var schema *history.SchemaError
	if from != cockroach.SchemaVersion+1 || !errors.As(err, &schema) {
		t.Errorf("migrated from version %d: %v", from, err)
	}
}

func TestReleasedMigrationsDoNotChange(t *testing.T) {
	historytest.Unchanged(t, map[string]string{
		"0001_tables.sql":    "8521461b795ea7ddc36b3acc68e70430dd704154b99ce082844613346564914e",
		"0002_system.sql":    "b88f9a6b4eaf074d62d83021dd002b4e177bb1cb130d75e9ef073425f11e8df5",
		"0003_schedules.sql": "f955a0517ed78032e49502b955aa720e78894b1a9fb30ee2927d95504389727a",
	})
}
