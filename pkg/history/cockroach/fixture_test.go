package cockroach_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

var atFixture = cockroach.Options{Now: func() time.Time { return historytest.FixtureNow }}

// TestDatabasesOfReleasedVersions opens what each released version has left, and goes on with it.
func TestDatabasesOfReleasedVersions(t *testing.T) {
	pgtest.Need(t)
	want := migrated(t)
	historytest.Released{
		Version: cockroach.SchemaVersion,
		Make:    makeFixture,
		Open: func(t *testing.T, script string) history.Store {
			address := pgtest.Database(t)
			conn := connect(t, address)
			execute(t, conn, script)
			s := openStore(t, address, atFixture)
			checkMigrated(t, conn, want)
			return s
		},
	}.Test(t)
}

func makeFixture(t *testing.T) (string, history.Store) {
	address := pgtest.Database(t)
	s := openStore(t, address, atFixture)
	historytest.Fill(t, s)
	conn := connect(t, address)
	execute(t, conn, "SET TimeZone = 'UTC'")
	var script strings.Builder
	fmt.Fprintf(&script,
		"-- Version %d of the tables on PostgreSQL, and what historytest.Fill put into them. This file never "+
			"changes.\n\n", cockroach.SchemaVersion)
	for _, statement := range cockroach.Statements() {
		if !strings.HasPrefix(statement, "INSERT ") { // its rows follow, as all others do
			fmt.Fprintf(&script, "%s;\n\n", statement)
		}
	}
	for _, table := range column(t, conn,
		"SELECT relname FROM pg_class WHERE relkind = 'r' AND "+
			"relnamespace = current_schema()::regnamespace ORDER BY 1") {
		columns := column(t, conn,
			fmt.Sprintf("SELECT attname FROM pg_attribute WHERE attrelid = '%s'::regclass AND attnum > 0 AND NOT "+
				"attisdropped ORDER BY attnum", table))
		values := "concat_ws(', ', quote_nullable(" + strings.Join(columns, "::text), quote_nullable(") + "::text))"
		for _, row := range column(t, conn, "SELECT "+values+" FROM "+table+" ORDER BY 1") {
			fmt.Fprintf(&script, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "), row)
		}
	}
	return script.String(), s
}

// column reads a column of texts.
func column(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}
