package cockroach

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// The pauses between tries.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, fails for good, or the context ends. f returns classified
// errors. If the context ends during a call, retry returns the error of the call before it, which
// names the cause.
func retry(ctx context.Context, f func() error) error {
	var before error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f()
		switch history.ClassOf(err) {
		case history.Retry, history.Contended:
		default:
			return err
		}
		if err != nil && before != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return before
		}
		if err == nil || !sqlrow.Wait(ctx, pause) {
			return err
		}
		before = err
	}
}

// querier has the methods that connections and transactions have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// runner implements [sqlrow.DB].
type runner struct {
	q    querier
	mode pgx.QueryExecMode
}

// plain runs statements that are not worth preparing: each is planned for the values at hand.
func plain(q querier) runner { return runner{q, pgx.QueryExecModeCacheDescribe} }

// kept runs statements that stay prepared: there are few of them, and planning them takes longer
// than executing them.
func kept(q querier) runner { return runner{q, pgx.QueryExecModeCacheStatement} }

// planned is the context of a statement.
func (r runner) planned(ctx context.Context) context.Context {
	if r.mode == pgx.QueryExecModeCacheDescribe {
		return plannedEach(ctx)
	}
	return ctx
}

// Query implements [sqlrow.DB].
func (r runner) Query(ctx context.Context, scan func(sqlrow.Row) error, statement string, args ...any) error {
	rows, err := r.q.Query(r.planned(ctx), statement, append([]any{r.mode}, args...)...)
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

// Exec implements [sqlrow.DB].
func (r runner) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := r.q.Exec(r.planned(ctx), statement, append([]any{r.mode}, args...)...)
	return tag.RowsAffected(), err
}

// ExecAll implements [sqlrow.Together].
func (r runner) ExecAll(ctx context.Context, statements []sqlrow.Statement) (rows []int64, err error) {
	var b pgx.Batch
	for _, s := range statements {
		b.Queue(s.Text, s.Args...)
	}
	sent := r.q.SendBatch(r.planned(ctx), &b)
	for range statements {
		tag, err := sent.Exec()
		if err != nil {
			_ = sent.Close() // for the same reason
			return nil, err
		}
		rows = append(rows, tag.RowsAffected())
	}
	return rows, sent.Close()
}

// database is the database behind its connections, which runs transactions. It implements
// [sqlrow.Transactor].
type database struct {
	pool     *pgxpool.Pool
	observer sqlrow.Observer
	flavour  flavour // known once it is connected
	readOnly bool
}

// Read implements [sqlrow.Transactor].
func (d *database) Read(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	return d.read(ctx, op, plain(d.pool), f)
}

// ReadOften implements [sqlrow.Transactor].
func (d *database) ReadOften(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	return d.read(ctx, op, kept(d.pool), f)
}

func (d *database) read(ctx context.Context, op string, db runner, f func(sqlrow.DB) error) error {
	return retry(ctx, func() error { return failUnlessMeant(op, f(db), noCommit) })
}

// ErrReadOnly is the error of methods that write, when the database was opened read-only.
var ErrReadOnly = errors.New("the database was opened read-only")

// mayWrite refuses writes to a read-only database at once. The database would refuse them, too, but
// with an error that is retried, because a server may be about to become a primary.
func (d *database) mayWrite(op string) error {
	if d.readOnly {
		return fail(op, history.Permanent, ErrReadOnly)
	}
	return nil
}

// Write implements [sqlrow.Transactor]. A commit of unknown outcome is retried, so f must do no
// harm if it is executed twice.
func (d *database) Write(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	return d.WriteOnce(ctx, op, func() {}, f)
}

// WriteOnce implements [sqlrow.Transactor].
func (d *database) WriteOnce(ctx context.Context, op string, doubted func(), f func(sqlrow.DB) error) error {
	if err := d.mayWrite(op); err != nil {
		return err
	}
	return retry(ctx, func() error {
		err := failUnlessMeant(op, d.inTransaction(plannedEach(ctx), func(tx pgx.Tx) error {
			return f(plain(tx))
		}), noCommit)
		if err != nil && history.ClassOf(err) == history.Ambiguous {
			doubted()
			if ctx.Err() == nil {
				err = &history.Error{Class: history.Retry, Op: op, Err: err}
			}
		}
		return err
	})
}

// writeKept is like Write for a single statement that stays prepared, and is a transaction by
// itself.
func (d *database) writeKept(ctx context.Context, op string, f func(sqlrow.DB) error) error {
	if err := d.mayWrite(op); err != nil {
		return err
	}
	return retry(ctx, func() error {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return fail(op, class(err, noCommit), err) // nothing was sent
		}
		defer conn.Release()
		err = failUnlessMeant(op, f(kept(conn)), d.flavour)
		if err != nil && history.ClassOf(err) == history.Ambiguous && ctx.Err() == nil {
			err = &history.Error{Class: history.Retry, Op: op, Err: err}
		}
		return err
	})
}

// inTransaction runs f in one transaction, again where the database asks for it at once.
func (d *database) inTransaction(ctx context.Context, f func(pgx.Tx) error) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return fail("begin", class(err, noCommit), err) // nothing was sent
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fail("begin", class(err, noCommit), err)
	}
	a := &restartable{Tx: tx}
	err = crdb.ExecuteInTx(ctx, a, func() error { return f(tx) })
	var ambiguous *crdb.AmbiguousCommitError
	var restart *crdb.TxnRestartError
	switch {
	case err == nil && d.flavour == postgres:
		// On CockroachDB, releasing the savepoint has committed, and ExecuteInTx ignores the error
		// of what follows. On PostgreSQL that is the commit.
		if err = a.commit; err != nil {
			return fail("commit", class(err, postgres), err)
		}
	case errors.As(err, &ambiguous):
		return &history.Error{Class: history.Ambiguous, Op: "commit", Err: err}
	case errors.As(err, &restart):
		return &history.Error{Class: history.Contended, Op: "try a transaction again", Err: err}
	}
	return err
}

// restartable is a transaction as cockroach-go runs it. It remembers the error of the commit.
type restartable struct {
	pgx.Tx
	commit error
}

// Exec implements [crdb.Tx].
func (r *restartable) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := r.Tx.Exec(ctx, statement, args...)
	return err
}

// Commit implements [crdb.Tx].
func (r *restartable) Commit(ctx context.Context) error {
	r.commit = r.Tx.Commit(ctx)
	return r.commit
}

// failUnlessMeant classifies errors of the database and leaves those alone that were meant for the
// caller.
func failUnlessMeant(op string, err error, committing flavour) error {
	if err == nil {
		return nil
	}
	for _, meant := range []error{history.ErrNoInstance, history.ErrNoExecution, history.ErrRunning,
		history.ErrHasParent, history.ErrHasChildren} {
		if errors.Is(err, meant) {
			return err
		}
	}
	return fail(op, class(err, committing), err)
}
