package cockroach_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/cockroach-go/v2/testserver"
	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// The variables that name a server for tests. The first is the address of one that runs:
// CockroachDB or PostgreSQL, with a role that may create databases. The second is a binary of
// CockroachDB, which is started for the test.
const (
	addressVariable = "RONDO_TEST_DATABASE_URL"
	binaryVariable  = "COCKROACH_BINARY"
)

var onServer = flag.Bool("server", false,
	fmt.Sprintf("let the faults happen before the server that %s or %s names, instead of a private PostgreSQL",
		addressVariable, binaryVariable))

// needServer gives the address of the server that a variable names, or skips the test.
func needServer(tb testing.TB) string {
	tb.Helper()
	if address := os.Getenv(addressVariable); address != "" {
		return address
	}
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		tb.Skipf("CockroachDB is not tested: set %s to its binary, or %s to the address of a server", binaryVariable,
			addressVariable)
	}
	server, err := testserver.NewTestServer(testserver.CockroachBinaryPathOpt(binary))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Stop)
	return server.PGURL().String()
}

// ownDatabase makes a database on a server that others use, too, and gives its address. It is
// dropped with the test.
func ownDatabase(tb testing.TB, server string) string {
	tb.Helper()
	ctx := context.Background() // the test's ends before it is cleaned up
	u, err := url.Parse(server)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		// without the error, it has the password in it
		tb.Fatalf("%s must be a URL like postgres://user@host:26257/defaultdb", addressVariable)
	}
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	name, force := "rondo_test_"+strings.ToLower(rand.Text()[:12]), " WITH (FORCE)"
	if conn.PgConn().ParameterStatus("crdb_version") != "" {
		force = " CASCADE"
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn, err := pgx.Connect(ctx, server)
		if err == nil {
			_, err = conn.Exec(ctx, "DROP DATABASE "+name+force)
			conn.Close(ctx)
		}
		if err != nil {
			tb.Errorf("database %s is left behind: %v", name, err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

func TestConformanceOnCockroachDB(t *testing.T) {
	server := needServer(t)
	conn := connect(t, server)
	var version string
	if err := conn.QueryRow(t.Context(), "SELECT version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	t.Log(version)
	historytest.Run(t, func(tb testing.TB) *historytest.Database { return database(tb, ownDatabase(tb, server)) })
}

func BenchmarkCockroachDB(b *testing.B) {
	server := needServer(b)
	historytest.Bench(b, func(tb testing.TB) *historytest.Database { return database(tb, ownDatabase(tb, server)) })
}

// faultyDatabase makes a database for a test with a proxy before it, which cannot encrypt: on the
// server that a variable names, if the test asks for it, else on a private PostgreSQL.
func faultyDatabase(tb testing.TB) string {
	tb.Helper()
	if *onServer {
		return ownDatabase(tb, needServer(tb))
	}
	pgtest.Need(tb)
	return cockroach.Migrated.Database(tb)
}
