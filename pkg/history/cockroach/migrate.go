package cockroach

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// Migrations are files whose names begin with their versions, 1, 2, 3, …. They only go forward, and a file that was released never changes.
//
// CockroachDB changes schemas online and outside of transactions, so each statement is run by itself and can be run again, and what keeps two processes
// from migrating at once is a row that one of them holds for a while: advisory locks do nothing on CockroachDB
// (https://www.cockroachlabs.com/docs/stable/online-schema-changes#known-limitations).

//go:embed migrations/*.sql
var migrationFiles embed.FS

// SchemaVersion is the version of the tables that this package works with.
var SchemaVersion = len(migrations())

type migration struct {
	version    int
	name       string
	statements []string
}

func migrations() []migration {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	slices.Sort(names)
	list := make([]migration, len(names))
	for i, name := range names {
		data, err := migrationFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic(fmt.Sprintf("migration %s should have number %d", name, i+1))
		}
		list[i] = migration{version, name, splitStatements(string(data))}
	}
	return list
}

// splitStatements cuts a file into statements.
func splitStatements(text string) []string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			kept = append(kept, line)
		}
	}
	var out []string
	for s := range strings.SplitSeq(strings.Join(kept, ""), ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// adapt writes a statement for one of the databases.
func (f flavour) adapt(statement string) string {
	text, fill := `TEXT COLLATE "C"`, "WITH (fillfactor = 80)"
	if f == cockroachdb { // text sorts by its bytes there, and pages are not updated in place
		text, fill = "TEXT", ""
	}
	return strings.NewReplacer("{{text}}", text, "{{fill 80}}", fill).Replace(statement)
}

const schemaTable = `CREATE TABLE IF NOT EXISTS rondo_schema (
	id         INT8 PRIMARY KEY,
	version    INT8 NOT NULL,
	holder     TEXT,
	held_until TIMESTAMPTZ
)`

// The times of the row that is held while migrating.
const (
	holdFor    = 30 * time.Second
	holdAgain  = 10 * time.Second
	holdPolled = 100 * time.Millisecond
)

// MigrateSchema brings the tables up to date and tells from which version to which. It needs a role that may create tables. Any number of processes may do it at
// the same time.
func MigrateSchema(ctx context.Context, address string, options Options) (from, to int, err error) {
	options.Schema = Verify
	s, err := Open(ctx, address, options)
	var schema *history.SchemaError
	switch {
	case err == nil:
		return SchemaVersion, SchemaVersion, s.Close()
	case errors.As(err, &schema):
		from = schema.Found
	default:
		return 0, 0, err
	}
	options.Schema = Migrate
	if s, err = Open(ctx, address, options); err != nil {
		return from, from, err
	}
	return from, SchemaVersion, s.Close()
}

// version reads the version of the tables, 0 if there are none.
func (s *Store) version(ctx context.Context) (version int, err error) {
	err = s.Read(ctx, "read the version of the tables", func(db relational.DB) error {
		version = 0
		return db.Query(ctx, func(r relational.Row) error { return r.Scan(&version) }, "SELECT version FROM rondo_schema WHERE id = 1")
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" {
		return 0, nil
	}
	return version, err
}

// verify checks the version of the tables.
func (s *Store) verify(ctx context.Context) error {
	found, err := s.version(ctx)
	if err == nil && found != SchemaVersion {
		err = &history.Error{Class: history.Permanent, Op: "check the tables", Err: &history.SchemaError{Found: found, Wanted: SchemaVersion}}
	}
	return err
}

// migrate brings the tables up to date, or waits for another process that does.
func (s *Store) migrate(ctx context.Context) error {
	me := fmt.Sprintf("%016x", rand.Uint64())
	for {
		found, err := s.version(ctx)
		switch {
		case err != nil:
			return err
		case found == SchemaVersion:
			return nil
		case found > SchemaVersion:
			return s.verify(ctx)
		}
		held, err := s.hold(ctx, me)
		if err == nil && held {
			err = s.migrateHeld(ctx, me)
		}
		if errors.Is(err, errLostHold) {
			continue // it was paused for so long that another one went on
		}
		if err != nil {
			return fail("migrate the tables", class(err, false), err)
		}
		if !held && !wait(ctx, holdPolled) {
			return &history.Error{Class: history.Retry, Op: "migrate the tables", Err: fmt.Errorf("another process was still migrating: %w", ctx.Err())}
		}
	}
}

// hold tries to become the one who migrates.
func (s *Store) hold(ctx context.Context, me string) (held bool, err error) {
	err = retry(ctx, func() error {
		for _, statement := range []string{schemaTable, "INSERT INTO rondo_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING"} {
			if _, err := s.pool.Exec(ctx, statement); err != nil {
				return fail("create the table of versions", raceClass(err), err)
			}
		}
		tag, err := s.pool.Exec(ctx, `UPDATE rondo_schema SET holder = $1, held_until = now() + $2::INTERVAL
			WHERE id = 1 AND version < $3 AND (holder IS NULL OR holder = $1 OR held_until < now())`, me, holdFor, SchemaVersion)
		held = tag.RowsAffected() == 1
		return fail("begin to migrate", raceClass(err), err)
	})
	return held, err
}

// raceClass is the class of an error of a statement that others may be running, too: creating the same thing at the same moment fails on PostgreSQL
// even with IF NOT EXISTS.
func raceClass(err error) history.Class {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "23505", "42P07", "42710", "XX000":
			return history.Contended
		}
	}
	return class(err, false)
}

// migrateHeld runs the migrations that are missing, while the row is held.
func (s *Store) migrateHeld(ctx context.Context, me string) (err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	// An index on a large table takes longer than any statement may otherwise.
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return err
	}
	defer func() {
		done, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, resetErr := conn.Exec(done, "RESET statement_timeout")
		_, releaseErr := conn.Exec(done, "UPDATE rondo_schema SET holder = NULL, held_until = NULL WHERE id = 1 AND holder = $1", me)
		err = errors.Join(err, resetErr, releaseErr)
	}()
	var version int
	if err := conn.QueryRow(ctx, "SELECT version FROM rondo_schema WHERE id = 1").Scan(&version); err != nil {
		return err
	}
	for _, m := range migrations()[min(version, SchemaVersion):] {
		s.options.Log.InfoContext(ctx, "migrating the database's tables", "to", m.version)
		for _, statement := range m.statements {
			if err := s.runHeld(ctx, conn, me, s.flavour.adapt(statement)); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		tag, err := conn.Exec(ctx, "UPDATE rondo_schema SET version = $1 WHERE id = 1 AND version = $2 AND holder = $3", m.version, m.version-1, me)
		if err == nil && tag.RowsAffected() != 1 {
			err = errLostHold
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

var errLostHold = errors.New("another process has taken the migration over")

// runHeld runs a statement, and keeps the row held for as long as that takes.
func (s *Store) runHeld(ctx context.Context, conn *pgxpool.Conn, me, statement string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for wait(ctx, holdAgain) {
			tag, err := s.pool.Exec(ctx, "UPDATE rondo_schema SET held_until = now() + $2::INTERVAL WHERE id = 1 AND holder = $1", me, holdFor)
			if err == nil && tag.RowsAffected() == 0 {
				cancel(errLostHold)
			}
		}
	}()
	err := retry(ctx, func() error {
		_, err := conn.Exec(ctx, statement)
		return fail("change the tables", raceClass(err), err)
	})
	cause := context.Cause(ctx)
	cancel(nil)
	<-kept
	if errors.Is(cause, errLostHold) {
		return cause
	}
	return err
}
