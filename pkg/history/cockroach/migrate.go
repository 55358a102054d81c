package cockroach

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Migrations are files whose names begin with their versions, 1, 2, 3, …. They only go forward, and
// a file that was released never changes.
//
// CockroachDB changes schemas online and outside of transactions, so each statement is run by
// itself and can be run again. A row that one process holds for a while keeps two processes from
// migrating at once: advisory locks do nothing on CockroachDB
// (https://www.cockroachlabs.com/docs/stable/online-schema-changes#known-limitations).

//go:embed migrations/*.sql
var migrationFiles embed.FS

// SchemaVersion is the version of the tables that this package works with.
var SchemaVersion = len(migrations())

type migration struct {
	sqlrow.Migration
	statements []string
}

func migrations() (list []migration) {
	for _, m := range sqlrow.Migrations(migrationFiles) {
		list = append(list, migration{m, splitStatements(m.Text)})
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

// The statements about its only row.
const (
	newSchema  = "INSERT INTO rondo_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING"
	readSchema = "SELECT version FROM rondo_schema WHERE id = 1"
	holdSchema = `UPDATE rondo_schema SET holder = $1, held_until = now() + $2::INTERVAL
	WHERE id = 1 AND version < $3 AND (holder IS NULL OR holder = $1 OR held_until < now())`
	keepSchema    = "UPDATE rondo_schema SET held_until = now() + $2::INTERVAL WHERE id = 1 AND holder = $1"
	advanceSchema = "UPDATE rondo_schema SET version = $1 WHERE id = 1 AND version = $2 AND holder = $3"
	releaseSchema = "UPDATE rondo_schema SET holder = NULL, held_until = NULL WHERE id = 1 AND holder = $1"
)

// The times of the row that is held while migrating.
const (
	holdFor    = 30 * time.Second
	holdPolled = 100 * time.Millisecond
)

// holdAgain is after what time it is held anew. It is shorter in a test.
var holdAgain = 10 * time.Second

// MigrateSchema brings the tables up to date and returns from which version to which. It needs a
// role that may create tables. Any number of processes may call it at the same time.
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

// migrator looks after the tables: it checks them, or migrates them, or waits for its turn.
type migrator struct {
	*database
	log *slog.Logger
	me  string
	// readWithin bounds the wait for the version of the tables, and holdWithin that for a change of
	// the row of versions, which may wait for locks.
	readWithin, holdWithin time.Duration
	// conn is not of the pool, which may be as small as one connection.
	conn *pgx.Conn
}

func newMigrator(db *database, options Options) *migrator {
	return &migrator{database: db, log: options.Log, me: fmt.Sprintf("%016x", rand.Uint64()),
		readWithin: options.ConnectTimeout, holdWithin: options.StatementTimeout + options.ConnectTimeout}
}

// version reads the version of the tables, 0 if there are none.
func (m *migrator) version(ctx context.Context) (version int, err error) {
	err = m.answered(ctx, m.readWithin, func(ctx context.Context) error {
		return m.Read(ctx, "read the version of the tables", func(db sqlrow.DB) error {
			version = 0
			return db.Query(ctx, func(r sqlrow.Row) error { return r.Scan(&version) }, readSchema)
		})
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" {
		return 0, nil
	}
	return version, err
}

// verify checks the version of the tables.
func (m *migrator) verify(ctx context.Context) error {
	found, err := m.version(ctx)
	if err == nil && found != SchemaVersion {
		err = &history.Error{Class: history.Permanent, Op: "check the tables",
			Err: &history.SchemaError{Found: found, Wanted: SchemaVersion}}
	}
	return err
}

// migrating is the operation in errors of a migration.
const migrating = "migrate the tables"

// migrate brings the tables up to date, or waits for another process that does.
func (m *migrator) migrate(ctx context.Context) error {
	waits := false
	for {
		found, err := m.version(ctx)
		switch {
		case err != nil:
			return err
		case found == SchemaVersion:
			return nil
		case found > SchemaVersion:
			return m.verify(ctx)
		}
		held, err := m.hold(ctx)
		if err == nil && held {
			err = m.migrateHeld(ctx)
		}
		if errors.Is(err, errLostHold) {
			continue // it was paused for so long that another one went on
		}
		if err != nil {
			return fail(migrating, class(err, noCommit), err)
		}
		if !held && !waits {
			waits = true
			m.log.InfoContext(ctx, "another process migrates the database's tables; waiting until it has "+
				"migrated them, or for some time after it has died", "for", holdFor)
		}
		if !held && !sqlrow.Wait(ctx, holdPolled) {
			return &history.Error{Class: history.Retry, Op: migrating,
				Err: fmt.Errorf("another process was still migrating: %w", ctx.Err())}
		}
	}
}

// hold tries to take the lock of migrations.
func (m *migrator) hold(ctx context.Context) (held bool, err error) {
	err = m.answered(ctx, m.holdWithin, func(ctx context.Context) error {
		return retry(ctx, func() error {
			for _, statement := range []string{schemaTable, newSchema} {
				if _, err := m.pool.Exec(ctx, statement); err != nil {
					return fail(migrating, raceClass(err), err)
				}
			}
			tag, err := m.pool.Exec(ctx, holdSchema, m.me, holdFor, SchemaVersion)
			held = tag.RowsAffected() == 1
			return fail(migrating, raceClass(err), err)
		})
	})
	return held, err
}

// release lets others migrate at once. If it cannot, they can when the time of the hold has run
// out.
func (m *migrator) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := m.Write(ctx, migrating, func(db sqlrow.DB) error {
		_, err := db.Exec(ctx, releaseSchema, m.me)
		return err
	})
	if err != nil {
		m.log.WarnContext(ctx, "other processes cannot migrate the database's tables for a while", "for",
			holdFor, "error", err)
	}
	if m.conn != nil {
		_ = m.conn.Close(ctx) // it has no statement in flight
	}
}

// raceClass is the class of an error of a statement that others may be running, too: creating the
// same table or index at the same moment fails on PostgreSQL even with IF NOT EXISTS.
func raceClass(err error) history.Class {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "23505", "42P07", "42710", "XX000":
			return history.Contended
		}
	}
	return class(err, noCommit)
}

// exec runs a statement, however long it takes: an index on a large table takes longer than any
// statement may otherwise. It tries again, on another connection if that is lost.
func (m *migrator) exec(ctx context.Context, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	err = retry(ctx, func() error {
		if m.conn == nil || m.conn.IsClosed() {
			if err := m.connect(ctx); err != nil {
				return fail(migrating, class(err, noCommit), err)
			}
		}
		tag, err = m.conn.Exec(ctx, statement, args...)
		return fail(migrating, raceClass(err), err)
	})
	return tag, err
}

func (m *migrator) connect(ctx context.Context) error {
	pooled, err := m.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	m.conn = conn
	return nil
}

// migrateHeld runs the migrations that are missing, while the row is held.
func (m *migrator) migrateHeld(ctx context.Context) error {
	defer m.release(ctx)
	version, err := m.version(ctx)
	if err != nil {
		return err
	}
	for _, next := range migrations()[min(version, SchemaVersion):] {
		m.log.InfoContext(ctx, "migrating the database's tables", "to", next.Version)
		for _, statement := range next.statements {
			if err := m.runHeld(ctx, m.flavour.adapt(statement)); err != nil {
				return fmt.Errorf("%s: %w", next.Name, err)
			}
		}
		var tag pgconn.CommandTag
		err := m.answered(ctx, m.holdWithin, func(ctx context.Context) (err error) {
			tag, err = m.exec(ctx, advanceSchema, next.Version, next.Version-1, m.me)
			return err
		})
		if err == nil && tag.RowsAffected() != 1 {
			err = errLostHold // or it is done already, and only the answer was lost
		}
		if err != nil {
			return fmt.Errorf("%s: %w", next.Name, err)
		}
	}
	return nil
}

var errLostHold = errors.New("another process has taken the migration over")

// runHeld runs a statement, and keeps the row held for as long as that takes. If the server does
// not answer for as long as the row is held, another process may hold it by then, and the statement
// is given up: it has no time limit of its own.
func (m *migrator) runHeld(ctx context.Context, statement string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for since := time.Now(); sqlrow.Wait(ctx, holdAgain); {
			within, end := context.WithTimeout(ctx, holdFor/2)
			tag, err := m.pool.Exec(within, keepSchema, m.me, holdFor)
			end()
			switch {
			case err == nil && tag.RowsAffected() == 0:
				cancel(errLostHold)
			case err == nil:
				since = time.Now()
			case time.Since(since) >= holdFor && ctx.Err() == nil:
				m.log.WarnContext(ctx, "the database does not answer; giving a statement of the migration up",
					"error", err)
				cancel(errLostHold)
			}
		}
	}()
	_, err := m.exec(ctx, statement)
	cause := context.Cause(ctx)
	cancel(nil)
	<-kept
	if errors.Is(cause, errLostHold) {
		return cause
	}
	return err
}
