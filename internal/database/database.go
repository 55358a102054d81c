// Package database opens the history that an address names: a SQLite file, or CockroachDB or
// PostgreSQL.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Also says, at the end of a text, which other schemes the program knows.
func Also(schemes ...string) string {
	if len(schemes) == 0 {
		return ""
	}
	return "; this program also opens " + strings.Join(schemes, ":, ") + ":"
}

// Check returns an error if an address is neither that of a server nor the path of a SQLite file: a
// mistyped address of a server, for example. A path without "sqlite:" is that of a file that
// exists, or has an extension of SQLite files. The error also names the other schemes that the
// program knows.
func Check(address string, others ...string) error {
	also := Also(others...)
	path, ok := file(address)
	explicit := path != address
	bare := strings.TrimLeft(path, "/")
	extension := strings.ToLower(filepath.Ext(path))
	scheme, _, _ := strings.Cut(address, ":")
	switch {
	case !explicit && otherScheme.MatchString(address) && !slices.Contains(schemes, scheme) && !exists(path):
		return fmt.Errorf("a database cannot be of the kind %q; write postgres://USER@HOST:PORT/NAME for CockroachDB "+
			"and PostgreSQL, and sqlite:PATH for a file%s", scheme, also)
	case !ok:
		return nil // the driver reads it
	case explicit && (path == sqlite.Memory || path == ""):
		if path == "" {
			return errors.New("the path after sqlite: is missing")
		}
		return nil
	case path == sqlite.Memory:
		return errors.New("a database in memory is lost when the process ends; sqlite:" + sqlite.Memory +
			" says that this is wanted")
	case explicit && strings.HasPrefix(path, "//"):
		return fmt.Errorf("sqlite:%s has slashes that are not part of a path: say sqlite:%s, or sqlite:/%s", path,
			bare, bare)
	case !explicit && !exists(path) && (likeServer.MatchString(path) || !slices.Contains(extensions, extension)):
		return fmt.Errorf("%s is neither the address of a server, postgres://USER@HOST:PORT/NAME, nor the path of a "+
			"SQLite file, which ends in %s or is written as sqlite:PATH%s", withoutLogin(path),
			strings.Join(extensions, ", "), also)
	}
	return nil
}

// schemes are those of addresses of servers.
var schemes = []string{"postgres", "postgresql"}

// otherScheme matches what begins with a scheme other than "sqlite:".
var otherScheme = regexp.MustCompile(`^(?i)(sqlite3?:|file:|[a-z][a-z0-9+.-]*://)`)

// extensions are those of SQLite files.
var extensions = []string{".db", ".sqlite", ".sqlite3"}

// likeServer matches addresses of servers, and variables that were not expanded.
var likeServer = regexp.MustCompile(`^(postgres|cockroach)|[@$]|:[0-9]`)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// withoutLogin hides the text before the last @.
func withoutLogin(address string) string {
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return "(hidden)" + address[i:]
	}
	return address
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
