package cockroach_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

var makeFixture = flag.Bool("fixture", false, "write the fixture of the newest version of the tables; do it once, when the version is released")

// fixtureOf is the file with the tables of a version as plain SQL, and the one with what its stores read from them.
func fixtureOf(version int) (sql, reading string) {
	name := fmt.Sprintf("testdata/schema-%04d", version)
	return name + ".sql", name + ".json"
}

var atFixture = cockroach.Options{Now: func() time.Time { return historytest.FixtureNow }}

// TestDatabasesOfReleasedVersions opens what each released version has left, and goes on with it.
func TestDatabasesOfReleasedVersions(t *testing.T) {
	pgtest.Need(t)
	if *makeFixture {
		writeFixture(t)
	}
	newest, _ := fixtureOf(cockroach.SchemaVersion)
	if _, err := os.Stat(newest); err != nil {
		t.Errorf("version %d of the tables has no fixture: run go test ./pkg/history/cockroach -run %s -fixture (%v)", cockroach.SchemaVersion, t.Name(), err)
	}
	want := migrated(t)
	for version := 1; version <= cockroach.SchemaVersion; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			sql, reading := fixtureOf(version)
			script, err := os.ReadFile(sql)
			if err != nil {
				t.Fatal(err)
			}
			once, err := os.ReadFile(reading)
			if err != nil {
				t.Fatal(err)
			}
			address := pgtest.Database(t)
			conn := connect(t, address)
			execute(t, conn, string(script))
			s := openStore(t, address, atFixture)
			checkMigrated(t, conn, want)
			historytest.Compare(t, historytest.Reading(t, s), once)
			historytest.GoOn(t, s)
		})
	}
	if files, _ := filepath.Glob("testdata/schema-*"); len(files) != 2*cockroach.SchemaVersion {
		t.Errorf("the fixtures are %q", files)
	}
}

// writeFixture writes the fixture of the newest version.
func writeFixture(t *testing.T) {
	address := pgtest.Database(t)
	s := openStore(t, address, atFixture)
	historytest.Fill(t, s)
	conn := connect(t, address)
	execute(t, conn, "SET TimeZone = 'UTC'")
	var script strings.Builder
	fmt.Fprintf(&script, "-- Version %d of the tables on PostgreSQL, and what historytest.Fill put into them. This file never changes.\n\n", cockroach.SchemaVersion)
	for _, statement := range cockroach.Statements() {
		fmt.Fprintf(&script, "%s;\n\n", statement)
	}
	for _, table := range column(t, conn, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY 1") {
		columns := column(t, conn, fmt.Sprintf("SELECT attname FROM pg_attribute WHERE attrelid = '%s'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum", table))
		values := "concat_ws(', ', quote_nullable(" + strings.Join(columns, "::text), quote_nullable(") + "::text))"
		for _, row := range column(t, conn, "SELECT "+values+" FROM "+table+" ORDER BY 1") {
			fmt.Fprintf(&script, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "), row)
		}
	}
	sql, reading := fixtureOf(cockroach.SchemaVersion)
	if _, err := os.Stat(sql); err == nil {
		t.Fatalf("%s is there; a fixture of a released version never changes", sql)
	}
	for name, data := range map[string][]byte{sql: []byte(script.String()), reading: historytest.Reading(t, s)} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
