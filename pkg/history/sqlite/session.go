package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// session is a connection with the statements that were prepared on it. One goroutine at a time has
// it.
type session struct {
	conn   *sql.Conn
	kept   map[string]*sql.Stmt
	broken bool // it must be replaced
}

// prepared gives a statement that is kept as long as the connection.
func (s *session) prepared(statement string) (*sql.Stmt, error) {
	p, ok := s.kept[statement]
	if !ok {
		var err error
		if p, err = s.conn.PrepareContext(context.Background(), statement); err != nil {
			return nil, err
		}
		s.kept[statement] = p
	}
	return p, nil
}

// exec runs a kept statement. It is not interrupted: for each statement that can be, the driver
// starts a goroutine. Look at the context between statements.
func (s *session) exec(statement string, args ...any) (int64, error) {
	p, err := s.prepared(statement)
	if err != nil {
		return 0, err
	}
	result, err := p.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query runs a kept statement and calls scan for each row.
func (s *session) query(ctx context.Context, scan func(sqlrow.Row) error, statement string, args ...any) error {
	p, err := s.prepared(statement)
	if err != nil {
		return err
	}
	return each(scan)(p.QueryContext(ctx, args...))
}

func each(scan func(sqlrow.Row) error) func(*sql.Rows, error) error {
	return func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// Query implements [sqlrow.DB], for statements that are not worth keeping.
func (s *session) Query(ctx context.Context, scan func(sqlrow.Row) error, statement string, args ...any) error {
	return each(scan)(s.conn.QueryContext(ctx, statement, args...))
}

// Exec implements [sqlrow.DB].
func (s *session) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := s.conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// How transactions begin.
const (
	toRead  = "BEGIN"
	toWrite = "BEGIN IMMEDIATE"
)

// transaction runs f in a transaction, which happens only if f gives no error and the context goes
// on until then. An error of class Ambiguous means that the outcome is unknown.
func (s *session) transaction(ctx context.Context, begin string, f func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.broken {
		// the connection of a database in memory, which cannot be replaced, may not have ended its
		// last transaction
		s.broken = false
		s.rollback(nil)
	}
	if _, err := s.exec(begin); err != nil {
		s.rollback(err) // it may have begun all the same, without the memory to say so
		return err
	}
	done := false
	defer func() {
		if !done { // failed, or panics
			s.rollback(err)
		}
	}()
	if err = f(); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if _, err = s.exec("COMMIT"); err == nil {
		done = true
		return nil
	}
	if begin == toWrite && inDoubt(err) {
		if a, ok := lookUp(advice, code(err)); ok {
			err = fmt.Errorf("%w; %s", err, a)
		}
		err = &history.Error{Class: history.Ambiguous, Op: "commit", Err: err}
	}
	return err
}

// rollback ends a transaction after an error.
func (s *session) rollback(why error) {
	_, err := s.exec("ROLLBACK")
	// SQLite has rolled back itself after some errors, and says that there is nothing to roll back.
	s.broken = s.broken || breaks(why) || err != nil && code(err) != codes.SQLITE_ERROR
}

// close closes the connection for good.
func (s *session) close() error {
	for _, p := range s.kept {
		_ = p.Close() // the connection ends, and all of its statements with it
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // not back to those that wait to be used again
	if err := s.conn.Close(); err != nil && err != sql.ErrConnDone {
		return err
	}
	return nil
}

// pool keeps sessions of one kind.
type pool struct {
	db      *sql.DB
	free    chan *session // nil in place of one that is to be opened
	closed  <-chan struct{}
	renewed bool // broken ones are replaced

	open          atomic.Int64 // sessions there are
	waits, waited atomic.Int64 // number and total nanoseconds of waits for a session
}

func newPool(closed <-chan struct{}, db *sql.DB, size int, renewed bool) *pool {
	db.SetMaxIdleConns(-1)
	p := &pool{db: db, free: make(chan *session, size), closed: closed, renewed: renewed}
	for range size {
		p.free <- nil
	}
	return p
}

// take waits for a session.
func (p *pool) take(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(p.free) == 0 {
		p.waits.Add(1)
		defer func(since time.Time) { p.waited.Add(int64(time.Since(since))) }(time.Now())
	}
	select {
	case <-p.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	case s := <-p.free:
		if s != nil {
			return s, nil
		}
		conn, err := p.db.Conn(ctx)
		if err != nil {
			p.free <- nil
			return nil, err
		}
		p.open.Add(1)
		return &session{conn: conn, kept: make(map[string]*sql.Stmt)}, nil
	}
}

// give gives it back.
func (p *pool) give(s *session) {
	if s.broken && p.renewed {
		_ = s.close() // it is broken, and another one takes its place
		p.open.Add(-1)
		s = nil
	}
	p.free <- s
}

// close closes all sessions, each after a last thing to do, when they are free.
func (p *pool) close(last func(*session) error) error {
	var first error
	for range cap(p.free) {
		s := <-p.free
		if s == nil {
			continue
		}
		var err error
		if last != nil {
			err = last(s)
		}
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// ---- Transactions.

// The pauses between tries, and how often a transaction is tried whose end is in doubt.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	doubts     = 3
)

// database runs transactions on the connections of a database. It implements
// [sqlrow.Transactor].
type database struct {
	path            string // as in error messages, "" for one in memory
	log             *slog.Logger
	observer        sqlrow.Observer
	writer, readers *pool
	commits         int // since the log was last looked at; the writer's
}

// retry calls f, which gives classified errors, until it succeeds or fails for good, as long as
// another process is in the way and the context goes on.
func (d *database) retry(ctx context.Context, f func() error) error {
	doubtful, since := 0, time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f()
		switch history.ClassOf(err) {
		case history.Contended:
			if waited := time.Since(since); waited > 10*time.Second {
				since = time.Now()
				d.log.WarnContext(ctx, "database file locked by another process; retrying",
					"path", d.path, "error", err)
			}
		case history.Ambiguous:
			if doubtful++; doubtful == doubts {
				return err
			}
		default:
			return err
		}
		if !sqlrow.Wait(ctx, pause) {
			return err
		}
	}
}

// Read implements [sqlrow.Transactor]: all that f reads is as of one moment.
func (d *database) Read(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	return d.read(ctx, op, func(r *session) error { return f(r) })
}

// ReadOften implements [sqlrow.Transactor].
func (d *database) ReadOften(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	return d.Read(ctx, op, f)
}

// Write implements [sqlrow.Transactor].
func (d *database) Write(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	return d.write(ctx, op, func(w *session) error { return f(w) })
}

// WriteOnce implements [sqlrow.Transactor].
func (d *database) WriteOnce(ctx context.Context, op string, doubted func(), f func(sqlrow.DB) error) error {
	return d.retry(ctx, func() error {
		err := fail(op, d.once(ctx, d.writer, toWrite, func(w *session) error { return f(w) }))
		if err != nil && history.ClassOf(err) == history.Ambiguous {
			doubted()
		}
		return err
	})
}

func (d *database) read(ctx context.Context, op string, f func(*session) error) error {
	return d.retry(ctx, func() error { return fail(op, d.once(ctx, d.readers, toRead, f)) })
}

func (d *database) write(ctx context.Context, op string, f func(*session) error) error {
	return d.retry(ctx, func() error { return fail(op, d.once(ctx, d.writer, toWrite, f)) })
}

// once runs f in one transaction.
func (d *database) once(ctx context.Context, p *pool, begin string, f func(*session) error) error {
	if p == nil {
		return ErrReadOnly
	}
	c, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer p.give(c)
	err = c.transaction(ctx, begin, func() error { return f(c) })
	if err == nil && begin == toWrite {
		d.boundLog(ctx, c)
	}
	return err
}

// logLooks is how many commits go by between two looks at the size of the log.
const logLooks = 64

// boundLog makes readers wait when they have kept the log from beginning anew for too long.
func (d *database) boundLog(ctx context.Context, w *session) {
	if d.commits++; d.commits%logLooks != 0 || d.path == "" {
		return
	}
	info, err := os.Stat(d.path + "-wal")
	if err != nil || info.Size() < maxLogSize {
		return
	}
	var busy, frames, copied int
	err = w.query(context.WithoutCancel(ctx), func(r sqlrow.Row) error {
		return r.Scan(&busy, &frames, &copied)
	}, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err != nil || busy != 0 {
		d.log.WarnContext(ctx, "the log of the database grows; something reads it for a long time", "path",
			d.path, "bytes", info.Size(), "error", err)
	}
}
