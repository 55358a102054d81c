package sqlite_test

import (
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

var makeFixture = flag.Bool("fixture", false, "write the fixture of the newest version of the tables; do it once, when the version is released")

// fixtureOf is the file with the tables of a version as plain SQL, and the one with what its stores read from them.
func fixtureOf(version int) (script, reading string) {
	name := fmt.Sprintf("testdata/schema-%04d", version)
	return name + ".sql", name + ".json"
}

var atFixture = sqlite.Options{Now: func() time.Time { return historytest.FixtureNow }}

// TestDatabasesOfReleasedVersions opens what each released version has left, and goes on with it.
func TestDatabasesOfReleasedVersions(t *testing.T) {
	if *makeFixture {
		writeFixture(t)
	}
	newest, _ := fixtureOf(sqlite.SchemaVersion)
	if _, err := os.Stat(newest); err != nil {
		t.Errorf("version %d of the tables has no fixture: run go test ./pkg/history/sqlite -run %s -fixture (%v)", sqlite.SchemaVersion, t.Name(), err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	open(t, fresh, sqlite.Options{}).Close()
	want := strings.Join(column(t, fresh, madeBy), ";\n")
	for version := 1; version <= sqlite.SchemaVersion; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			file, reading := fixtureOf(version)
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			once, err := os.ReadFile(reading)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "rondo.db")
			behind(t, path, string(script))
			s := open(t, path, atFixture)
			if got := strings.Join(column(t, path, madeBy), ";\n"); got != want {
				t.Errorf("the tables are\n%s\nwant\n%s", got, want)
			}
			historytest.Compare(t, historytest.Reading(t, s), once)
			historytest.GoOn(t, s)
		})
	}
	if files, _ := filepath.Glob("testdata/schema-*"); len(files) != 2*sqlite.SchemaVersion {
		t.Errorf("the fixtures are %q", files)
	}
}

// madeBy gives the statements that make the tables.
const madeBy = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name = 'rondo_schema' DESC, type DESC, name"

// writeFixture writes the fixture of the newest version.
func writeFixture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	s := open(t, path, atFixture)
	historytest.Fill(t, s)
	var script strings.Builder
	fmt.Fprintf(&script, "-- Version %d of the tables on SQLite, and what historytest.Fill put into them. This file never changes.\n\n", sqlite.SchemaVersion)
	for _, statement := range column(t, path, madeBy) {
		fmt.Fprintf(&script, "%s;\n\n", statement)
	}
	for _, table := range column(t, path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
		columns := column(t, path, "SELECT name FROM pragma_table_info('"+table+"') ORDER BY cid")
		values := "quote(" + strings.Join(columns, ") || ', ' || quote(") + ")"
		for _, row := range column(t, path, "SELECT "+values+" FROM "+table+" ORDER BY 1") {
			fmt.Fprintf(&script, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "), row)
		}
	}
	file, reading := fixtureOf(sqlite.SchemaVersion)
	if _, err := os.Stat(file); err == nil {
		t.Fatalf("%s is there; a fixture of a released version never changes", file)
	}
	for name, data := range map[string][]byte{file: []byte(script.String()), reading: historytest.Reading(t, s)} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// column reads a column of texts behind the store's back.
func column(t *testing.T, path, query string) (list []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		list = append(list, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// released are the migrations as they were released, by their SHA-256. None of them ever changes: a database that was made with one would differ from
// others of the same version. What should be different needs a new migration.
var released = map[string]string{
	"0001_tables.sql": "7380b71ee8c567fbfa82562ff4f278f47929c0e0994788744bcabf08717cb89f",
}

func TestReleasedMigrationsDoNotChange(t *testing.T) {
	files, err := filepath.Glob("migrations/*")
	if err != nil || len(files) != len(released) {
		t.Errorf("there are %d migrations, and %d in this test's list: add the new one (%v)", len(files), len(released), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%x", sha256.Sum256(data)), released[filepath.Base(file)]; got != want {
			t.Errorf("%s has SHA-256 %s, released was %q: a migration that was released never changes, write a new one", file, got, want)
		}
	}
}
