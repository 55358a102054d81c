package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/slowtest"
)

// roleVariable makes the test binary do something else than testing; see
// TestTheServerEndsWithTheProcess.
const roleVariable = "RONDO_PGTEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	os.Exit(m.Run())
}

func connect(tb testing.TB, dsn string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func do(tb testing.TB, conn *pgx.Conn, sql string) {
	tb.Helper()
	if _, err := conn.Exec(tb.Context(), sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func query(tb testing.TB, conn *pgx.Conn, sql string) string {
	tb.Helper()
	var got string
	if err := conn.QueryRow(tb.Context(), sql).Scan(&got); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgtest.Database(t))
			do(t, conn, "CREATE TABLE a (n int)")
			if got := query(t, conn, "SHOW max_connections"); got != "500" {
				t.Errorf("max_connections is %s", got)
			}
		})
	}
}

func TestADatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	other := connect(t, pgtest.Database(t))
	var count string
	t.Run("test", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		// Other processes may use this server, so only this database counts.
		count = fmt.Sprintf("SELECT count(*)::text FROM pg_database WHERE datname = '%s'", conn.Config().Database)
		if got := query(t, other, count); got != "1" {
			t.Errorf("%s databases before the end of the test", got)
		}
		// This connection is still open when the database is dropped.
		t.Cleanup(func() { t.Cleanup(func() { conn.Close(context.Background()) }) })
	})
	if after := query(t, other, count); after != "0" {
		t.Errorf("%s databases after the end of the test", after)
	}
}

func TestThePasswordCounts(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	u, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), "guess")
	_, err = pgx.Connect(t.Context(), u.String())
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "28P01" {
		t.Errorf("with a wrong password: %v", err)
	}
}

func TestTheServerWaitsForTheDiskWhenItShould(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	check := func(name, want, dsn string) {
		t.Helper()
		if got := query(t, connect(t, dsn), "SHOW fsync"); got != want {
			t.Errorf("%s: fsync is %s, want %s", name, got, want)
		}
	}
	check("a test", "off", pgtest.Database(t))
	check("a test that wants it", "on", pgtest.Database(t, pgtest.Fsync(true)))
	check("a server of its own", "on", pgtest.Start(t).DSN())
	var once sync.Once // it is called with more and more iterations
	testing.Benchmark(func(b *testing.B) { once.Do(func() { check("a benchmark", "on", pgtest.Database(b)) }) })
}

func TestSettings(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	conn := connect(t, pgtest.Start(t, pgtest.Setting("work_mem", "5MB"), pgtest.Setting("application_name", "it's"),
		pgtest.Setting("fsync", "off")).DSN())
	for name, want := range map[string]string{"work_mem": "5MB", "application_name": "it's", "fsync": "off"} {
		if got := query(t, conn, "SHOW "+name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestWhatWasCommittedSurvivesAKill(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	c := pgtest.Start(t, pgtest.Fsync(false))
	dsn := c.Database(t)
	for round := 1; round <= 3; round++ {
		conn := connect(t, dsn)
		do(t, conn, "CREATE TABLE IF NOT EXISTS a (n int)")
		do(t, conn, "INSERT INTO a VALUES (1)")
		do(t, conn, "BEGIN")
		do(t, conn, "INSERT INTO a VALUES (2)")
		if round == 3 {
			c.Restart(t) // which kills a server that runs
		} else {
			c.Kill(t)
			if _, err := pgx.Connect(t.Context(), dsn); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("the server is dead, but connecting gave %v", err)
			}
			c.Kill(t) // once more changes nothing
			c.Restart(t)
		}
		_, err := conn.Exec(t.Context(), "COMMIT")
		if _, told := errors.AsType[*pgconn.PgError](err); err == nil || told {
			t.Errorf("the connection should have been lost without a word, got %v", err)
		}
		if got, want := query(t, connect(t, dsn), "SELECT sum(n)::text FROM a"), fmt.Sprint(round); got != want {
			t.Errorf("after kill %d the sum is %s, want %s", round, got, want)
		}
	}
}

func TestWhatWasCommittedSurvivesAStop(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	c := pgtest.Start(t, pgtest.Fsync(false))
	dsn := c.Database(t)
	do(t, connect(t, dsn), "CREATE TABLE a AS SELECT 1 AS n")
	c.Stop(t)
	if _, err := pgx.Connect(t.Context(), dsn); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the server was stopped, but connecting gave %v", err)
	}
	c.Stop(t) // once more changes nothing
	if _, err := os.Stat(filepath.Join(c.Data(), "PG_VERSION")); err != nil {
		t.Errorf("its data is not where it should be: %v", err)
	}
	c.Restart(t)
	if got := query(t, connect(t, dsn), "SELECT sum(n)::text FROM a"); got != "1" {
		t.Errorf("the sum is %s, want 1", got)
	}
}

func TestAServerMayBeDeadWhenItsTestEnds(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	var addr string
	t.Run("test", func(t *testing.T) {
		c := pgtest.Start(t, pgtest.Fsync(false))
		c.Database(t)
		c.Kill(t)
		addr = c.Addr()
	})
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("the server runs again")
	}
}

// TestTheServerEndsWithTheProcess kills a process that uses a server, and waits until nothing is
// left of it.
func TestTheServerEndsWithTheProcess(t *testing.T) {
	if os.Getenv(roleVariable) != "" {
		fmt.Println("data", query(t, connect(t, pgtest.Start(t).DSN()), "SHOW data_directory"))
		fmt.Println("shared", query(t, connect(t, pgtest.Database(t)), "SHOW data_directory"))
		run, _, err := pgtest.Share()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("run", query(t, connect(t, run.DSN()), "SHOW data_directory"))
		fmt.Println("done", t.Name())
		select {}
	}
	pgtest.Need(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), roleVariable+"=victim", pgtest.SharedVariable+"=")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "done ") {
		if f := strings.Fields(lines.Text()); len(f) == 2 && filepath.IsAbs(f[1]) {
			dirs = append(dirs, f[1])
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process was killed, but ended well")
	}
	if len(dirs) != 3 {
		t.Fatalf("got %d data directories, want 3", len(dirs))
	}
	for _, dir := range dirs {
		waitUntilGone(t, dir)
	}
}

// waitUntilGone waits until a server has removed its data.
func waitUntilGone(tb testing.TB, data string) {
	tb.Helper()
	if !slowtest.Until(5*time.Minute, func() bool {
		_, err := os.Stat(filepath.Dir(data))
		return errors.Is(err, os.ErrNotExist)
	}) {
		tb.Errorf("the data of a server is left in %s", data)
	}
}

func TestWhereTheBinariesAreSought(t *testing.T) {
	pgtest.Need(t)
	dir, err := pgtest.Found()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(pgtest.BinVariable, t.TempDir())
	if _, err := pgtest.Found(); err == nil || !strings.Contains(err.Error(), pgtest.BinVariable) ||
		!strings.Contains(err.Error(), "initdb") {
		t.Errorf("in an empty directory: %v", err)
	}
	t.Setenv(pgtest.BinVariable, dir)
	if got, err := pgtest.Found(); got != dir || err != nil {
		t.Errorf("in %s: found %s, %v", dir, got, err)
	}
	t.Setenv(pgtest.BinVariable, "")
	t.Setenv("PATH", dir)
	if got, err := pgtest.Found(); got != dir || err != nil {
		t.Errorf("with %s in PATH: found %s, %v", dir, got, err)
	}
}
