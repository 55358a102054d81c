// Package sqlite is the store in one file, for one process: for `rondo dev`, for tests, and for
// services that need no second process.
//
// # One writer, several readers
//
//	Commit, sweeps, deletions ──► the writer, one transaction at a time ──► the log (-wal) ──► the file
//	Load, lists, histories    ──► a few readers, each at one moment of the database ◄─────────────┘
//
// SQLite has one writer at a time in any case, so there is one connection that writes. Other
// writers wait for it in Go, not for locks of the file. Transactions begin with BEGIN IMMEDIATE:
// rows that they read stay the same until they end. In the mode WAL, readers neither wait for the
// writer nor hold it up. A database in memory (the path ":memory:") has a single connection for
// both, because a database that several connections share without a file has neither of these
// properties.
//
// A commit is forced onto the disk when it returns (synchronous=FULL), so it survives a power
// failure. SQLite copies the log to the file whenever another 16 MiB have been written.
// Readers that overlap all the time can keep the log from beginning anew; when it reaches 64 MiB,
// the writer waits for them for a moment.
//
// # One process
//
// The process that writes holds the lock of the file <path>.lock and writes its pid there. Another
// one that wants to write is refused at once ([LockedError]). Any number may open the database with
// [Options].ReadOnly beside it. The system releases the lock when the process ends in any way, and
// the next one that opens the database finds all commits. No program
// should open and close the database's file in the same process by other means: on Unix that takes
// away the locks of SQLite's.
//
// # The commit
//
// A batch is one transaction. It reads how the instances of the batch stand, judges each turn, and
// writes the rows of those that are taken, many rows with one statement. No other connection can
// write meanwhile, so that this compares and swaps at once; the statement that changes a row says
// where it must stand all the same. A statement that fails because of what one turn stores ends the
// transaction; it is done again with a savepoint for each turn, so that only that turn is
// unstorable, and batches without such a turn pay nothing for it.
//
// The end of a transaction is in doubt in two cases only. One is that the disk fails while the log
// is forced onto it. The connection takes that as a transaction that did not happen, but if the
// process crashed now, the log might be read as if it did. Another transaction in the same place of
// the log decides it. The other is that memory runs out, which may come before the end or after it.
// So the batch is tried again, and a turn that is stored by then counts as taken; if it goes on
// failing, the error is [history.Ambiguous].
//
// Removed rows are gone, other than with CockroachDB, so the sweeps need no marks to begin from.
//
// # The driver
//
// modernc.org/sqlite is SQLite translated to Go, so that nothing here needs a C compiler. v1.60.1
// was measured against github.com/ncruces/go-sqlite3 v0.35.3, which runs SQLite as WebAssembly:
// 171,000 against 125,000 inserted rows a second, in transactions of 1,024 rows with WAL and
// synchronous=FULL.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqladmin"
	"github.com/rondo-run/rondo/pkg/history/internal/sqljobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Memory is the path of a database in memory. Each store that is opened has one of its own, and it
// is gone when the store is closed.
const Memory = ":memory:"

// Options are the settings of a store. The zero value is good for production.
type Options struct {
	// Schema sets whether Open brings the tables up to date, or only checks that they are.
	Schema SchemaMode
	// Sync sets when writes are forced onto the disk.
	Sync Sync
	// ReadOnly opens the database beside the process that writes it. Methods that write then give
	// [ErrReadOnly].
	ReadOnly bool
	// WakeStep is what wake-up times are rounded up to; 0 means that they are kept as they are.
	WakeStep time.Duration
	// Observer gets the operations; nil means none.
	Observer history.Observer
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
	// Log gets warnings for the operator; nil means [slog.Default].
	Log *slog.Logger

	driver string // name of the driver, "" for SQLite's; tests use one that injects faults
}

// SchemaMode sets whether Open changes the tables.
type SchemaMode int

// The modes.
const (
	Migrate SchemaMode = iota // bring them up to date
	Verify                    // check them
)

// Sync sets when writes are forced onto the disk.
type Sync int

const (
	// EachCommit: a commit survives a power failure.
	EachCommit Sync = iota
	// Checkpoints: a commit survives a crash of the process, but a power failure may take back the
	// last commits. For tests.
	Checkpoints
)

// ErrReadOnly is the error of methods that write, when the database was opened read-only.
var ErrReadOnly = errors.New("the database was opened read-only; only the process that has it open " +
	"for writing may change it")

// dialect is the dialect of plain statements for SQLite. There is nothing to lock: no other
// connection writes during a transaction.
var dialect = sqlrow.Dialect{Shards: 1, Time: func(t time.Time) any { return t.UnixMicro() }, Exclusive: true}

var errClosed = errors.New("the store is closed")

// readers is the number of connections that read a file.
const readers = 4

// The sizes of the log.
const (
	pageSize       = 4096
	checkpointSize = 16 << 20 // written anew, until it is copied to the file
	maxLogSize     = 64 << 20 // until readers must wait
)

// Store is a store in a file, or in memory. Its parts are small stores for a share of the contract
// each.
type Store struct {
	*sqladmin.Admin
	*sqladmin.Systems
	*sqladmin.Schedules
	*loader
	*committer
	*outbox
	*wakes

	options Options
	db      *database
	queues  *sqljobs.Queues

	lock             *flock.Flock
	writing, reading *sql.DB // make connections; one session keeps each for good

	closing  sync.Once
	closed   chan struct{}
	closeErr error
}

var (
	_ history.Store  = (*Store)(nil)
	_ history.Pooled = (*Store)(nil)
)

// Pool implements [history.Pooled].
func (s *Store) Pool() (all history.Pool) {
	for _, p := range []*pool{s.db.writer, s.db.readers} {
		open, free := p.open.Load(), len(p.free)
		used := cap(p.free) - free
		all.Used += used
		all.Idle += max(int(open)-used, 0)
		all.Limit += cap(p.free)
		all.Waits += p.waits.Load()
		all.Waited += time.Duration(p.waited.Load())
	}
	return all
}

// Open opens the database in a file, and makes it, with its directory, if it is not there. The path
// ":memory:" makes one in memory.
func Open(ctx context.Context, path string, options Options) (_ *Store, err error) {
	const op = "open the database"
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.driver == "" {
		options.driver = "sqlite"
	}
	db := &database{log: options.Log, observer: sqlrow.Observer(options.Observer)}
	step := wakeStep(options.WakeStep)
	c := &committer{db: db, step: step, now: options.Now}
	s := &Store{
		Admin:     sqladmin.New(dialect, db, db.observer, options.Now, c.entry),
		Systems:   sqladmin.NewSystems(dialect, db, db.observer, options.Now),
		Schedules: sqladmin.NewSchedules(dialect, db, db.observer, c.entry, rand.Uint64),
		loader:    &loader{db},
		committer: c,
		outbox:    &outbox{db, options.Now},
		wakes:     &wakes{db, step},
		options:   options,
		db:        db,
		queues:    sqljobs.NewQueues(dialect, db, options.Now),
		closed:    make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if path == Memory {
		err = s.openMemory()
	} else {
		err = s.openFile(path)
	}
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, fail(op, err)
	}
	return s, nil
}

func (s *Store) openMemory() error {
	if s.options.ReadOnly {
		return errors.New("a database in memory cannot be opened read-only: nobody else has it")
	}
	var err error
	if s.writing, err = sql.Open(s.options.driver, Memory+"?"+pragmas(0, "temp_store(MEMORY)")); err != nil {
		return err
	}
	s.db.writer = newPool(s.closed, s.writing, 1, false)
	s.db.readers = s.db.writer
	return nil
}

func (s *Store) openFile(path string) error {
	if path == "" || strings.HasPrefix(path, "file:") {
		return fmt.Errorf("%q is no path of a file; give one like data/rondo.db, or %s", path, Memory)
	}
	path, err := s.prepareFile(path)
	if err != nil {
		return err
	}
	s.db.path = path
	const cache = 8 << 20
	if s.reading, err = sql.Open(s.options.driver,
		address(path)+"?mode=ro&"+pragmas(cache, "query_only(1)")); err != nil {
		return err
	}
	s.db.readers = newPool(s.closed, s.reading, readers, true)
	if s.options.ReadOnly {
		return nil
	}
	synchronous := "synchronous(FULL)"
	if s.options.Sync == Checkpoints {
		synchronous = "synchronous(NORMAL)"
	}
	s.writing, err = sql.Open(s.options.driver,
		address(path)+"?mode=rw&"+pragmas(4*cache, "journal_mode(WAL)", synchronous, "temp_store(MEMORY)",
			fmt.Sprintf("wal_autocheckpoint(%d)", checkpointSize/pageSize),
			fmt.Sprintf("journal_size_limit(%d)", checkpointSize)))
	if err != nil {
		return err
	}
	s.db.writer = newPool(s.closed, s.writing, 1, true)
	return nil
}

// prepareFile makes missing files and directories, takes the lock, and gives the path that every
// process knows the file by.
func (s *Store) prepareFile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	making := !s.options.ReadOnly && s.options.Schema == Migrate
	if making {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
	}
	switch real, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = real
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	case !making:
		return "", fmt.Errorf("there is no file %s (is the path right?): %w", path, wrongSchema("open the database", 0))
	default:
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
	}
	if s.options.ReadOnly {
		return path, nil
	}
	if s.lock, err = lock(path); err != nil {
		return "", err
	}
	if making { // SQLite would make it readable for all users
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return "", err
		}
		return path, f.Close()
	}
	return path, nil
}

// address is the path as SQLite's kind of URI.
func address(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// busyTimeout is how long a statement waits for another process; then it is tried again if the
// context goes on.
const busyTimeout = time.Second

// pragmas are the settings of each connection.
func pragmas(cache int, more ...string) string {
	q := url.Values{"_dqs": {"0"}}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()))
	q.Add("_pragma", "foreign_keys(0)")
	if cache > 0 {
		q.Add("_pragma", fmt.Sprintf("cache_size(-%d)", cache>>10))
	}
	for _, p := range more {
		q.Add("_pragma", p)
	}
	return q.Encode()
}

// start checks the opened database.
func (s *Store) start(ctx context.Context) error {
	if s.options.ReadOnly {
		return s.verify(ctx)
	}
	if s.db.path != "" {
		if err := s.checkMode(ctx); err != nil {
			return err
		}
	}
	check := s.migrate
	if s.options.Schema == Verify {
		check = s.verify
	}
	if err := check(ctx); err != nil {
		return err
	}
	return s.db.Read(ctx, "find the last outbox entry", func(db sqlrow.DB) error {
		return db.Query(ctx, func(r sqlrow.Row) error {
			return r.Scan(&s.ids.last)
		}, "SELECT coalesce(max(id), 0) FROM rondo_outbox")
	})
}

// checkMode makes sure that the file has the log that readers need.
func (s *Store) checkMode(ctx context.Context) error {
	w, err := s.db.writer.take(ctx)
	if err != nil {
		return err
	}
	defer s.db.writer.give(w)
	var mode string
	if err := w.query(ctx, func(r sqlrow.Row) error { return r.Scan(&mode) }, "PRAGMA journal_mode"); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%s: SQLite chose the journal mode %q where WAL was asked for; is the file on a network "+
			"file system? It must be on a disk of this machine", s.db.path, mode)
	}
	return nil
}

// Queues is where the queues are.
func (s *Store) Queues() jobs.Store { return s.queues }

// Path is the file of the database, "" if it is in memory.
func (s *Store) Path() string { return s.db.path }

// Ping implements [history.Store].
func (s *Store) Ping(ctx context.Context) (err error) {
	defer s.db.observer.Begin("ping").End(&err)
	return s.db.Read(ctx, "reach the database", func(db sqlrow.DB) error {
		_, err := version(ctx, db)
		return err
	})
}

// Clock implements [history.Store]. SQLite runs in this process, and has its clock.
func (s *Store) Clock(ctx context.Context) (now time.Time, err error) {
	defer s.db.observer.Begin("clock").End(&err)
	if err := ctx.Err(); err != nil {
		return now, fail("read the clock of the database", err)
	}
	return s.options.Now().UTC(), nil
}

// Close waits for transactions in flight, copies the log to the file, and releases the lock.
// Closing again does nothing.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.closeErr = fail("close the database", s.release())
	})
	return s.closeErr
}

// release closes the open connections.
func (s *Store) release() error {
	var errs []error
	if s.db.readers != nil && s.db.readers != s.db.writer {
		errs = append(errs, s.db.readers.close(nil))
	}
	if s.db.writer != nil {
		errs = append(errs, s.db.writer.close(func(w *session) error {
			if s.db.path == "" {
				return nil
			}
			// Readers of another process may hold it up. Commits are safe in the log, too.
			_, err := w.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)")
			return err
		}))
	}
	for _, db := range []*sql.DB{s.reading, s.writing} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, unlock(s.lock))...)
}
