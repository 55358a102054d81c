// Package database opens the history that an address names: a SQLite file, or CockroachDB or
// PostgreSQL.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/x/redact"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// Options configure how a database is opened.
type Options struct {
	// Verify checks the tables. By default, Open migrates them.
	Verify bool
	// DialTimeout limits one attempt to connect to a server.
	DialTimeout time.Duration
	// Observer gets the operations of the store; nil means none.
	Observer history.Observer
	Log      *slog.Logger
}

// Store is an open database: the history, the job queues, and the pool of connections.
type Store interface {
	history.Store
	history.Pooled

	// Queues returns the job queues.
	Queues() jobs.Store
}

// Open opens a database once, without retries.
func Open(ctx context.Context, address string, o Options) (Store, error) {
	if path, ok := file(address); ok {
		options := sqlite.Options{Observer: o.Observer, Log: o.Log}
		if o.Verify {
			options.Schema = sqlite.Verify
		}
		s, err := sqlite.Open(ctx, path, options)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	options := cockroach.Options{Observer: o.Observer, Log: o.Log, ConnectTimeout: o.DialTimeout}
	if o.Verify {
		options.Schema = cockroach.Verify
	}
	s, err := cockroach.Open(ctx, address, options)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// OpenReadOnly opens a database read-only, beside its writers. Methods that would change it fail.
func OpenReadOnly(ctx context.Context, address string, log *slog.Logger) (history.Store, error) {
	if path, ok := file(address); ok {
		s, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true, Schema: sqlite.Verify, Log: log})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Describe(address), err)
		}
		return s, nil
	}
	const dialFor = 10 * time.Second
	s, err := cockroach.Open(ctx, address,
		cockroach.Options{ReadOnly: true, Schema: cockroach.Verify, ConnectTimeout: dialFor, Log: log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Describe(address), err)
	}
	return s, nil
}

// Migrate migrates the tables once, without retries, and returns their versions before and after.
func Migrate(ctx context.Context, address string, o Options) (from, to int, err error) {
	path, ok := file(address)
	if !ok {
		return cockroach.MigrateSchema(ctx, address, cockroach.Options{Log: o.Log, ConnectTimeout: o.DialTimeout})
	}
	to = sqlite.SchemaVersion
	s, err := sqlite.Open(ctx, path, sqlite.Options{Schema: sqlite.Verify, Log: o.Log})
	if err == nil {
		return to, to, s.Close()
	}
	var schema *history.SchemaError
	if !errors.As(err, &schema) {
		return 0, 0, err
	}
	if s, err = sqlite.Open(ctx, path, sqlite.Options{Log: o.Log}); err != nil {
		return 0, 0, err
	}
	return schema.Found, to, s.Close()
}

// SchemaVersion is the version of the tables that this build needs.
func SchemaVersion(address string) int {
	if IsFile(address) {
		return sqlite.SchemaVersion
	}
	return cockroach.SchemaVersion
}

// Describe names a database in messages, without its password.
func Describe(address string) string {
	if path, ok := file(address); ok {
		return "the database " + path
	}
	return "the database at " + redact.Addresses(address)
}

// IsFile reports whether the address is the path of a SQLite file.
func IsFile(address string) bool {
	_, ok := file(address)
	return ok
}

// file is the path that an address names if it is that of a SQLite file.
func file(address string) (path string, ok bool) {
	if path, ok = strings.CutPrefix(address, "sqlite:"); ok {
		return path, true
	}
	return address, !strings.Contains(address, "://") && !strings.Contains(address, "=")
}
