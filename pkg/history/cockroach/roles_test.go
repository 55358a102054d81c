package cockroach_test

import (
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// shippedSQL reads a file that comes with Rondo.
func shippedSQL(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/sql/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// as is an address with another role, which gets a password first.
func as(t *testing.T, admin *pgx.Conn, address, role string) string {
	t.Helper()
	execute(t, admin, "ALTER ROLE "+role+" WITH PASSWORD 'secret'")
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

// TestShippedRoles has each of the shipped roles do its work, and try what it must not do. Roles
// are of a whole server, so it has one of its own.
func TestShippedRoles(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	address := pgtest.Start(t, pgtest.Fsync(false)).Database(t)
	admin := connect(t, address)
	execute(t, admin, shippedSQL(t, "roles.sql"))
	owner, run, read := as(t, admin, address, "rondo_owner"), as(t, admin, address, "rondo_run"),
		as(t, admin, address, "rondo_read")

	// Only the owner may create tables, and without grants no other role may read them.
	for _, other := range []string{run, read} {
		if _, _, err := cockroach.MigrateSchema(t.Context(), other,
			cockroach.Options{Log: silence}); history.ClassOf(err) != history.Permanent {
			t.Errorf("another role than the owner migrates: %v", err)
		}
	}
	if _, _, err := cockroach.MigrateSchema(t.Context(), owner, cockroach.Options{Log: silence}); err != nil {
		t.Fatal(err)
	}
	if _, err := cockroach.Open(t.Context(), run, cockroach.Options{Log: silence}); history.ClassOf(
		err) != history.Permanent || !strings.Contains(err.Error(), "deploy/sql/grants.sql") {
		t.Errorf("without grants: %v", err)
	}
	ownerConn := connect(t, owner)
	for range 2 { // it may be executed again
		execute(t, ownerConn, shippedSQL(t, "grants.sql"))
	}
	tables := column(t, admin, "SELECT tablename::text FROM pg_tables WHERE tableowner = 'rondo_owner' ORDER BY 1")
	if len(tables) < 8 {
		t.Fatalf("the owner owns %v", tables)
	}

	now := historytest.Began.Add(24 * time.Hour)
	for name, mode := range map[string]cockroach.SchemaMode{"verify": cockroach.Verify, "migrate": cockroach.Migrate} {
		wholeLife(t, openStore(t, run, cockroach.Options{Schema: mode, Now: func() time.Time { return now }}), name)
	}
	commitAll(t, openStore(t, run, cockroach.Options{}), historytest.NewActor("a").Start())
	// as database.OpenReadOnly does
	s, err := cockroach.Open(t.Context(), read,
		cockroach.Options{ReadOnly: true, Schema: cockroach.Verify, Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, err := check.System(t.Context(), s, check.Options{}); err != nil || r.Instances == 0 {
		t.Errorf("whoever reads cannot check: %d instances, %v", r.Instances, err)
	}
	if list, err := s.List(t.Context(), history.Filter{Attributes: map[string]string{"region": "eu"}},
		history.Page{}); err != nil {
		t.Errorf("whoever reads cannot list: %v, %v", list, err)
	}
	if list, err := s.Queues().List(t.Context(), "", 10); err != nil {
		t.Errorf("whoever reads cannot list queues: %v, %v", list, err)
	}

	mayNotTouch(t, connect(t, run), tables, func(statement string) bool {
		verb, table, _ := strings.Cut(statement, " ")
		return table == "rondo_schema" || verb == "UPDATE" && slices.Contains([]string{"rondo_history",
			"rondo_attributes"}, table) || verb == "DELETE" && table == "rondo_marks" ||
			verb != "UPDATE" && table == "rondo_system"
	})
	mayNotTouch(t, connect(t, read), tables, func(string) bool { return true })
}

// mayNotTouch has a role try to change tables, and those rows that it may not change, given as a
// verb and a table.
func mayNotTouch(t *testing.T, conn *pgx.Conn, tables []string, denied func(statement string) bool) {
	t.Helper()
	refused := func(statement string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), statement)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" { // insufficient privilege
			t.Errorf("%s may %s: %v", conn.Config().User, statement, err)
		}
	}
	for _, table := range tables {
		first := column(t, conn, "SELECT column_name::text FROM information_schema.columns WHERE table_name = '"+table+
			"' ORDER BY ordinal_position LIMIT 1")
		if len(first) != 1 {
			t.Fatalf("%s has the columns %v", table, first)
		}
		for verb, statement := range map[string]string{
			"INSERT": "INSERT INTO " + table + " SELECT * FROM " + table + " WHERE false",
			"UPDATE": "UPDATE " + table + " SET " + first[0] + " = " + first[0] + " WHERE false",
			"DELETE": "DELETE FROM " + table + " WHERE false",
		} {
			if denied(verb + " " + table) {
				refused(statement)
			} else {
				execute(t, conn, statement)
			}
		}
		for _, statement := range []string{"TRUNCATE %", "DROP TABLE %", "ALTER TABLE % ADD COLUMN x INT8",
			"ALTER TABLE % RENAME TO x", "CREATE INDEX x ON % (" + first[0] + ")",
			"ALTER TABLE % OWNER TO rondo_read"} {
			refused(strings.Replace(statement, "%", table, 1))
		}
	}
	for _, statement := range []string{"CREATE TABLE x (id INT8 PRIMARY KEY)", "CREATE SCHEMA x", "DROP SCHEMA public",
		"CREATE ROLE x", "CREATE DATABASE x", "SET ROLE rondo_owner", "ALTER ROLE rondo_owner WITH PASSWORD 'x'"} {
		refused(statement)
	}
}
