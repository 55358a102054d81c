package sqlite

import (
	"context"
	"embed"
	"fmt"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Migrations are files whose names begin with their versions, 1, 2, 3, …. They only go forward, and
// a file that was released never changes. SQLite changes schemas within transactions, so all that
// are missing are run in one.

//go:embed migrations/*.sql
var migrationFiles embed.FS

// SchemaVersion is the version of the tables that this package works with.
var SchemaVersion = len(sqlrow.Migrations(migrationFiles))

const schemaTable = `CREATE TABLE IF NOT EXISTS rondo_schema (
	id      INTEGER PRIMARY KEY,
	version INTEGER NOT NULL
) STRICT`

// version reads the version of the tables, 0 if there are none.
func version(ctx context.Context, db sqlrow.DB) (version int, err error) {
	there := false
	err = db.Query(ctx, func(r sqlrow.Row) error {
		return r.Scan(&there)
	}, "SELECT count(*) FROM sqlite_schema WHERE name = 'rondo_schema'")
	if err != nil || !there {
		return 0, err
	}
	err = db.Query(ctx, func(r sqlrow.Row) error {
		return r.Scan(&version)
	}, "SELECT version FROM rondo_schema WHERE id = 1")
	return version, err
}

// verify checks the version of the tables.
func (s *Store) verify(ctx context.Context) error {
	const op = "check the tables"
	return s.db.Read(ctx, op, func(db sqlrow.DB) error {
		found, err := version(ctx, db)
		if err == nil && found != SchemaVersion {
			err = wrongSchema(op, found)
		}
		return err
	})
}

func wrongSchema(op string, found int) error {
	return &history.Error{Class: history.Permanent, Op: op,
		Err: &history.SchemaError{Found: found, Wanted: SchemaVersion}}
}

// migrate brings the tables up to date.
func (s *Store) migrate(ctx context.Context) error {
	const op = "migrate the tables"
	return s.db.Write(ctx, op, func(db sqlrow.DB) error {
		found, err := version(ctx, db)
		switch {
		case err != nil || found == SchemaVersion:
			return err
		case found > SchemaVersion:
			return wrongSchema(op, found)
		}
		if _, err := db.Exec(ctx, schemaTable); err != nil {
			return err
		}
		for i, m := range sqlrow.Migrations(migrationFiles)[found:] {
			s.options.Log.DebugContext(ctx, "migrating the database's tables", "path", s.db.path, "to", found+i+1)
			if _, err := db.Exec(ctx, m.Text); err != nil {
				return fmt.Errorf("%s: %w; if the tables are of another build of Rondo, run that one, or begin with "+
					"an empty database (dev: delete its directory)", m.Name, err)
			}
		}
		_, err = db.Exec(ctx,
			"INSERT INTO rondo_schema (id, version) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET version = "+
				"excluded.version", SchemaVersion)
		return err
	})
}
