package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

var atFixture = sqlite.Options{Now: func() time.Time { return historytest.FixtureNow }}

// TestDatabasesOfReleasedVersions opens what each released version has left, and goes on with it.
func TestDatabasesOfReleasedVersions(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	open(t, fresh, sqlite.Options{}).Close()
	want := strings.Join(column(t, fresh, madeBy), ";\n")
	historytest.Released{
		Version: sqlite.SchemaVersion,
		Make:    makeFixture,
		Open: func(t *testing.T, script string) history.Store {
			path := filepath.Join(t.TempDir(), "rondo.db")
			behind(t, path, script)
			s := open(t, path, atFixture)
			if got := strings.Join(column(t, path, madeBy), ";\n"); got != want {
				t.Errorf("the tables are\n%s\nwant\n%s", got, want)
			}
			return s
		},
	}.Test(t)
}

// madeBy gives the statements that make the tables.
const madeBy = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name = " +
	"'rondo_schema' DESC, type DESC, name"

func makeFixture(t *testing.T) (string, history.Store) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	s := open(t, path, atFixture)
	historytest.Fill(t, s)
	var script strings.Builder
	fmt.Fprintf(&script,
		"-- Version %d of the tables on SQLite, and what historytest.Fill put into them. This file never changes.\n\n",
		sqlite.SchemaVersion)
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
	return script.String(), s
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

func TestReleasedMigrationsDoNotChange(t *testing.T) {
	historytest.Unchanged(t, map[string]string{
		"0001_tables.sql":    "02435d2d44bbfb4e9fd9a577a3c2e893962fb27bea9547af71ee3a9ad9e6347b",
		"0002_system.sql":    "3f21d50e1ed1a3d93997b690f627d4fe33b7f7e506d098af94468edb00b16971",
		"0003_schedules.sql": "7e02115dfffe3d86809448850df510eecf6e647870448397a38da3c4254d6621",
	})
}
